"""The base class of all models: an encoder, a decoder and an objective. It draws the latents of a training step."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor, nn

from sasgp.gp.objective import kl_to_prior, prior_log_density
from sasgp.models.anchor import Anchor
from sasgp.models.encoders import Encoder
from sasgp.models.precision import Precision

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel

__all__ = ["NOISE_SD", "LatentModel", "ModelSettings", "Objective", "blurred", "drawn", "noise_bytes", "with_holes"]

PRACTISED = 8  # one in so many rows of a batch is encoded a second time, with holes
HIDDEN = 0.5  # largest share of a row's values that are hidden from an encoder in a training step
NOISE_SD = math.sqrt((128**2 - 1) / 3)  # standard deviation of `noise_bytes`


@dataclass(frozen=True)
class ModelSettings:
    """The settings that determine a model's structure, including those that depend on the data.

    Parameters
    ----------
    kind : type of LatentModel
    latents : str
        "bayesian" or "point".
    encoder : str or Module
        "network", "conv", "table", or the user's own module.
    kernel : str or gpytorch.kernels.Kernel
    noise : str
        "shared", "feature" or "local". The model of "local" is that of "shared".
    encoder_noise : float
        Noise on the encoder's input, in standard deviations of the decoder's noise.
    n_rows : int
        N, the length of a table of latents.
    image_shape : sequence of int or None
        The shape of a row as an image, for "conv".
    missing : float
        The share of the training values that are missing. If it is not 0, a network reads masks, too.
    active_set_size, n_inducing, output, variance
        For the models that use them.
    precision : str
        "float32" or "mixed": how the encoder computes in training.
    dtype, device
        Those of all tensors. Without a device, the CPU.
    """

    kind: "type[LatentModel]"
    latents: Literal["bayesian", "point"]
    encoder: "str | nn.Module"
    kernel: "str | Kernel"
    noise: Literal["shared", "feature", "local"]
    encoder_noise: float
    n_rows: int
    image_shape: Sequence[int] | None = None
    missing: float = 0.0
    active_set_size: int | None = None
    n_inducing: int = 0
    output: Literal["linear", "sigmoid"] = "linear"
    variance: Literal["shared", "head", "mean"] = "shared"
    precision: Precision = "float32"
    dtype: torch.dtype = torch.float32
    device: torch.device | None = None

    @property
    def bayesian(self) -> bool:
        """Whether latents have a variance."""
        return self.latents == "bayesian"

    @property
    def by_feature(self) -> bool:
        """Whether each feature has its own scale."""
        return self.noise == "feature"


class Objective(nn.Module):
    """A model that a training run can train: it maps a batch to a loss.

    Attributes
    ----------
    anchor : Anchor or None
        Keeps rows near their places in a layout during training. It is not learned, so it is not part of the state.
    """

    def __init__(self) -> None:
        super().__init__()
        self.anchor: Anchor | None = None

    def forward(self, X: Tensor, index: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """The loss: the negative objective in nats per value, estimated from a batch X [B, D] of n_total rows."""
        raise NotImplementedError

    def parameter_groups(self, learning_rate: float, hyper_learning_rate: float) -> list[dict[str, Any]]:
        """Groups for Adam: networks, then everything else."""
        raise NotImplementedError

    def running_buffers(self) -> list[Tensor]:
        """Buffers that training steps change, each process its own."""
        return []

    def monitor(self) -> dict[str, float]:
        """Numbers for the progress bar and the history: `noise` and, if there are any, others."""
        raise NotImplementedError


class LatentModel(Objective):
    """An encoder and a decoder with one objective.

    Parameters
    ----------
    encoder : Encoder
        q(z|x).
    encoder_noise : float
        s, the noise on the encoder's input during training, in units of σ.

    Attributes
    ----------
    dither : Tensor [D] or None
        Standard deviation of fresh noise on what the decoder is trained to say, for scores that stand for an interval.
        It is not part of the state.
    missing : float
        The share of the training values that are missing.
    hides : bool
        Whether values are hidden from the encoder at random during training, if some are missing anyway.
    """

    settle_rate = 0.05  # learning rate for fitting the decoder to a layout, before everything is trained

    def __init__(self, encoder: Encoder, encoder_noise: float = 0.0) -> None:
        super().__init__()
        self.encoder = encoder
        self.encoder_noise = encoder_noise
        self.dither: Tensor | None = None
        self.missing = 0.0
        self.hides = True

    @classmethod
    def build(cls, encoder: Encoder, encoder_noise: float, settings: ModelSettings, D: int, Q: int) -> "LatentModel":
        """A model of the right shape for D features and Q dimensions; `training.initialise` or a file fills it."""
        raise NotImplementedError

    @property
    def feature_noise(self) -> Tensor:
        """The variance of an observation around the decoder's function: [1] for all features, or [D]."""
        raise NotImplementedError

    @property
    def decoder_parameters(self) -> list[nn.Parameter]:
        """Everything that is learned except the encoder."""
        raise NotImplementedError

    def parameter_groups(self, learning_rate: float, hyper_learning_rate: float) -> list[dict[str, Any]]:
        return [
            {"params": list(self.encoder.parameters()), "lr": learning_rate, "by_row": not self.encoder.amortised},
            {"params": self.decoder_parameters, "lr": hyper_learning_rate},
        ]

    def running_buffers(self) -> list[Tensor]:
        return list(self.encoder.buffers())

    def monitor(self) -> dict[str, float]:
        return {"noise": float(self.feature_noise.detach().mean())}

    def dithered(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """What the decoder is trained to say of rows X [B, D]."""
        if self.dither is None:
            return X
        return X + self.dither * torch.randn(X.shape, generator=generator, dtype=X.dtype).to(X.device)

    def draw_latents(self, X: Tensor, index: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Latents [B, Q] of a batch, and the term that each adds to the objective, [B].

        The term is −KL[q(z) ‖ N(0, I)] or log N(z | 0, I). If there is an anchor, the cost of leaving the layout is
        subtracted, and the objective is no longer a bound on the evidence.
        """
        seen = X
        if self.encoder_noise and self.encoder.amortised:
            seen = blurred(X, self.encoder_noise, self.feature_noise, generator)
        mu, var = self.encoder(seen, index)
        Z, log_prior = drawn(mu, var, generator)
        if self.missing and self.hides and self.encoder.amortised:
            n = -(-len(X) // PRACTISED)
            cost = self._cost_of_holes(seen[:n], mu[:n], None if var is None else var[:n], generator)
            log_prior = torch.cat([log_prior[:n] - cost, log_prior[n:]])
        return Z, log_prior if self.anchor is None else log_prior - self.anchor(mu, index)

    def _cost_of_holes(self, X: Tensor, mu: Tensor, var: Tensor | None, generator: torch.Generator) -> Tensor:
        """KL[q(z|x) ‖ q(z|x with holes)] of each row, [B]: what teaches the encoder to do without some values.

        The first is held fixed, so that decoder and complete rows are trained as if nothing were hidden. The second
        then learns the mean of q(z|x) over all that the hidden values may be, which is the posterior given the others.
        """
        mu_h, var_h = self.encoder(with_holes(X, generator))
        mu = mu.detach()
        if var is None or var_h is None:
            return 0.5 * (mu - mu_h).square().sum(1)
        ratio = var.detach() / var_h
        return 0.5 * (ratio + (mu - mu_h).square() / var_h - 1 - ratio.log()).sum(1)


def drawn(mu: Tensor, var: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Latents [B, Q] from the encoder's mean and variance, and the term that each adds to the objective, [B]."""
    if var is None:
        # Σ_n log p(z_n): the prior fixes the scale of z against the decoder
        return mu, prior_log_density(mu)
    # z = μ + √v ε,   −Σ_n KL[q(z_n) ‖ N(0,I)]
    epsilon = torch.randn(mu.shape, generator=generator, dtype=mu.dtype).to(mu.device)
    return mu + var.sqrt() * epsilon, -kl_to_prior(mu, var)


def blurred(X: Tensor, s: float, noise: Tensor, generator: torch.Generator) -> Tensor:
    """The encoder's input during training: x + s σ ε, with new noise ε each time. σ² is [1] or [D].

    To the decoder, rows that differ by σ ε come from the same z. An encoder that sees such rows does not memorise
    single ones. Averaged over ε, the objective is still a lower bound: that of a randomised encoder.
    """
    epsilon = noise_bytes(X.shape, generator).to(X.device).to(X.dtype)
    return epsilon.mul_(s / NOISE_SD * noise.detach().sqrt()).add_(X)


def with_holes(X: Tensor, generator: torch.Generator) -> Tensor:
    """Rows with further values missing, so that an encoder learns to do without any of them.

    Each row has its own share of hidden values, uniform from 0 to `HIDDEN`.
    """
    share = HIDDEN * torch.rand(len(X), 1, generator=generator)
    hidden = noise_bytes(X.shape, generator) < 256 * share - 128
    return X.masked_fill(hidden.to(X.device), torch.nan)


def noise_bytes(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Noise for an encoder's input: odd numbers from −127 to 127, all equally likely.

    A hidden unit sees a sum over features, which is nearly normal. Each draw gives eight numbers. torch draws in a
    single thread, so normal numbers would take a noticeable share of a step.
    """
    n = shape.numel()
    draws = torch.empty(-(-n // 8), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return (draws | 0x0101010101010101).view(torch.int8)[:n].view(shape)
