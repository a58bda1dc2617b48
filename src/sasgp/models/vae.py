"""The variational autoencoder: the decoder is a network, Q-400-D, instead of a Gaussian process.

    Σ_n E_q(z_n)[ log N(x_n | m(z_n), diag c(z_n)) ] − KL[q(z_n) ‖ N(0, I)]

A batch estimates the sum with the weight N/B, as for the other models. The network does not know where it has seen no
data: c(z) is the spread of the data around the mean, and need not grow away from the data.
"""

import math
from copy import deepcopy
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp.data.blocks import rows_at_once
from sasgp.gp.objective import LOG_2PI
from sasgp.gp.posterior import Predictive
from sasgp.models.base import LatentModel, ModelSettings
from sasgp.models.encoders import Encoder, draw_weights, unfilled

__all__ = ["PRIOR_DRAWS", "NetworkPosterior", "Perceptron", "VAEModel"]

HIDDEN = 400  # the paper's decoder
PRIOR_DRAWS = 64  # latents from the prior over which the decoder's noise is averaged

Output = Literal["linear", "sigmoid"]
Variance = Literal["head", "shared", "mean"]


class Perceptron(nn.Module):
    """m(z) and c(z): one hidden layer with softplus, then a layer for the mean and, if asked for, one for the variance.

    Parameters
    ----------
    n_features : int
        D.
    n_components : int
        Q.
    output : str
        "linear": m = mean + s·h(z), where s is the standard deviation of the data. "sigmoid": m = sigmoid(h(z)).
    spread : str
        "head": c_d = least_d² + s² softplus(g_d(z)). "shared": one number. "mean": c = softplus(m).
    """

    mean: Tensor
    unit: Tensor
    least: Tensor

    def __init__(self, n_features: int, n_components: int, *, output: Output, spread: Variance) -> None:
        super().__init__()
        self.output, self.spread = output, spread
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("unit", torch.ones(()))
        self.register_buffer("least", torch.zeros(n_features))
        self.hidden = unfilled(nn.Linear, n_components, HIDDEN)
        self.location = unfilled(nn.Linear, HIDDEN, n_features)
        self.scale = unfilled(nn.Linear, HIDDEN, n_features) if spread == "head" else None
        self.log_noise = nn.Parameter(torch.zeros(())) if spread == "shared" else None

    @torch.no_grad()
    def start_from(
        self, mean: Tensor, variance: float, noise: float, least: Tensor, generator: torch.Generator
    ) -> None:
        """Draw the weights so that each z is decoded to about the training mean, with the initial noise.

        Parameters
        ----------
        mean : Tensor [D]
            Training mean.
        variance : float
            Variance of a typical feature.
        noise : float
            The initial c.
        least : Tensor [D]
            Lower bounds on the standard deviations of the head. Without them, the density of a feature that never
            varies in training would grow without limit.
        generator : torch.Generator
            Draws the weights.
        """
        self.mean.copy_(mean)
        self.unit.fill_(variance**0.5)
        self.least.copy_(least)
        draw_weights(self, generator)
        self.location.bias.copy_(
            torch.special.logit(mean, 0.01) if self.output == "sigmoid" else torch.zeros_like(mean)
        )
        if self.scale is not None:
            self.scale.bias.fill_(math.log(math.expm1(noise / variance)))
        if self.log_noise is not None:
            self.log_noise.fill_(math.log(noise))

    def forward(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and variance of an observation at each z: [M, D], or [1] if it is shared."""
        h = F.softplus(self.hidden(Z))
        raw = self.location(h)
        mean = torch.sigmoid(raw) if self.output == "sigmoid" else self.mean + self.unit * raw
        if self.scale is not None:
            return mean, self.least.square() + self.unit.square() * F.softplus(self.scale(h))
        return mean, F.softplus(mean) if self.log_noise is None else self.log_noise.exp()[None]


def log_density(X: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """The log density log N(x | m, diag c) of each row, [M]."""
    # −½ Σ_d [ log 2π c + (x − m)² / c ]
    return -0.5 * (LOG_2PI + var.log() + (X - mean).square() / var).sum(1)


def masked_log_density(X: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    """The same where X may have missing values, which add nothing."""
    missing = X.isnan()
    r = torch.where(missing, mean, X) - mean
    return -0.5 * (LOG_2PI + var.log() + r.square() / var).masked_fill(missing, 0.0).sum(1)


class VAEModel(LatentModel):
    """An encoder and a decoder network with one objective.

    Parameters
    ----------
    encoder : Encoder
        q(z|x).
    decoder : Perceptron
        p(x|z).
    prior_draws : Tensor [64, Q]
        Draws from the prior, over which the decoder's noise is averaged.
    encoder_noise : float
        s, the noise on the encoder's input during training, in units of that noise.
    """

    settle_rate = 5e-3  # a network needs a lower rate than kernel and noise

    prior_draws: Tensor

    def __init__(self, encoder: Encoder, decoder: Perceptron, prior_draws: Tensor, encoder_noise: float = 0.0) -> None:
        super().__init__(encoder, encoder_noise)
        self.decoder = decoder
        self.register_buffer("prior_draws", prior_draws)

    @classmethod
    def build(cls, encoder: Encoder, encoder_noise: float, settings: ModelSettings, D: int, Q: int) -> Self:
        decoder = Perceptron(D, Q, output=settings.output, spread=settings.variance)
        return cls(encoder, decoder, torch.zeros(PRIOR_DRAWS, Q), encoder_noise)

    @property
    def mean(self) -> Tensor:
        """Training mean [D]."""
        return self.decoder.mean

    @property
    @torch.no_grad()
    def feature_noise(self) -> Tensor:
        """Variance of an observation averaged over the prior of z, [D] or [1], without gradient."""
        var: Tensor = self.decoder(self.prior_draws)[1]
        return var if var.ndim == 1 else var.mean(0)

    @property
    def decoder_parameters(self) -> list[nn.Parameter]:
        """Everything that is learned except the encoder."""
        return list(self.decoder.parameters())

    def forward(self, X: Tensor, index: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """The negative ELBO in nats per value, estimated from a batch."""
        Z, log_prior = self.draw_latents(X, index, generator)
        density = masked_log_density if self.missing else log_density
        log_p = density(self.dithered(X, generator), *self.decoder(Z)) + log_prior
        return -log_p.sum() / (X.numel() * (1 - self.missing))

    def posterior(self, Z: Tensor | None = None) -> "NetworkPosterior":
        """The decoder as it is now. Z [S, Q] are latents to search from; by default, draws from the prior."""
        return NetworkPosterior(self.decoder, self.prior_draws if Z is None else Z)


class NetworkPosterior(Predictive):
    """p(x | z) of a decoder network, in float64 as a `Posterior` is.

    Parameters
    ----------
    decoder : Perceptron
        It is copied, so further training does not change this posterior.
    Z : Tensor [S, Q]
        Latents of training rows.
    """

    def __init__(self, decoder: Perceptron, Z: Tensor) -> None:
        self.Z, self.mean = Z, decoder.mean
        self.decoder = deepcopy(decoder).double().requires_grad_(False)

    @property
    def feature_noise(self) -> Tensor:
        """Variance of an observation averaged over the latents Z, [D] or [1]: a network has no other noise."""
        var: Tensor = self.decoder(self.Z.double())[1]
        return var if var.ndim == 1 else var.mean(0)

    @property
    def block_size(self) -> int:
        """Queries answered at a time."""
        return rows_at_once(max(HIDDEN, len(self.mean)))

    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and variance of an observation at each z: [M, D], or [M, 1] if it is shared."""
        parts = [self.decoder(Z[block].double()) for block in self.blocks(len(Z))]
        mean, var = (torch.cat(part).to(self.mean.dtype) for part in zip(*parts, strict=True))
        return mean, var if var.ndim == 2 else var[:1].expand(len(Z), 1)

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density log N(x | m(z), diag c(z)) of each row, [M]; differentiable in Z."""
        density = masked_log_density if X.isnan().any() else log_density
        return density(X.double(), *self.decoder(Z.double())).to(X.dtype)

    def sample(self, Z: Tensor, generator: torch.Generator, *, noise: bool = True) -> Tensor:
        """Draw [M, D] at the given z. Without noise it is the mean, because the network is one function."""
        mean, var = self.predict(Z)
        if not noise:
            return mean
        return mean + var.sqrt() * torch.randn(mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
