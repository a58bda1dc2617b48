"""The GP decoder trained with stochastic active sets: point latents (Eq. 6) or Bayesian ones (Eq. 8).

With all rows active it is the exact GP-LVM, so there is no separate model for that.
"""

import math
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from sasgp.gp import kernels
from sasgp.gp.covariance import covariances
from sasgp.gp.local_noise import ResidualSums
from sasgp.gp.masked import masked_estimate
from sasgp.gp.masked_sums import FilledSums, PatternSums, most_positions
from sasgp.gp.objective import sas_estimate
from sasgp.gp.posterior import Posterior
from sasgp.gp.row_sums import RowSums
from sasgp.models.base import LatentModel, ModelSettings
from sasgp.models.encoders import Encoder

__all__ = ["SASModel"]


class SASModel(LatentModel):
    """An encoder and a Gaussian process with the objective of Eq. 6 or Eq. 8.

    Parameters
    ----------
    encoder : Encoder
        q(z|x).
    kernel : gpytorch.kernels.Kernel
        k_θ on the latent space.
    noise : float
        The initial σ², in squared units of the data.
    mean : Tensor [D]
        Training mean, subtracted from each row.
    active_set_size : int or None
        A. None: the whole batch is active.
    encoder_noise : float
        s, the noise on the encoder's input during training, in units of σ.
    by_feature : bool
        Whether each feature has its own scale, the unit of its signal and noise, which is learned. Otherwise all
        scales are 1 and stay so.
    """

    mean: Tensor
    log_scales: nn.Parameter | None
    least_scales: Tensor | None

    def __init__(
        self,
        encoder: Encoder,
        kernel: Kernel,
        *,
        noise: float,
        mean: Tensor,
        active_set_size: int | None,
        encoder_noise: float = 0.0,
        by_feature: bool = False,
    ) -> None:
        super().__init__(encoder, encoder_noise)
        self.kernel = kernel
        # On a log scale, a step of Adam is a relative change, whatever the units of the data
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise), dtype=mean.dtype))
        self.log_scales = nn.Parameter(mean.new_zeros(len(mean))) if by_feature else None
        self.register_buffer("least_scales", mean.new_zeros(len(mean)) if by_feature else None)
        self.register_buffer("mean", mean)
        self.active_set_size = active_set_size

    @classmethod
    def build(cls, encoder: Encoder, encoder_noise: float, settings: ModelSettings, D: int, Q: int) -> Self:
        return cls(
            encoder,
            kernels.build(settings.kernel, Q),
            noise=1.0,
            mean=torch.zeros(D),
            active_set_size=settings.active_set_size,
            encoder_noise=encoder_noise,
            by_feature=settings.by_feature,
        )

    @torch.no_grad()
    def start_from(self, mean: Tensor, noise: float, scales: Tensor) -> None:
        """Set the training mean [D], the noise σ² and, if they are learned, the scales [2, D]: the least, the first."""
        self.mean.copy_(mean)
        self.log_noise.fill_(math.log(noise))
        if self.log_scales is not None and self.least_scales is not None:
            self.least_scales.copy_(scales[0])
            self.log_scales.copy_(scales[1].log())

    @property
    def noise(self) -> Tensor:
        """σ², the variance of the likelihood."""
        return self.log_noise.exp()

    @property
    def scales(self) -> Tensor | None:
        """s_d, the scale of each feature."""
        if self.log_scales is None or self.least_scales is None:
            return None
        return (self.least_scales.square() + (2 * self.log_scales).exp()).sqrt()

    @property
    def feature_noise(self) -> Tensor:
        """The likelihood's variance in squared units of the data: [1] for all features, or [D]."""
        scales = self.scales
        return self.noise * (torch.ones_like(self.mean[:1]) if scales is None else scales.square())

    @property
    def decoder_parameters(self) -> list[nn.Parameter]:
        """Everything that is learned except the encoder: kernel, noise, and the scales of features."""
        own = [self.log_noise] if self.log_scales is None else [self.log_noise, self.log_scales]
        return [*self.kernel.parameters(), *own]

    def forward(self, X: Tensor, index: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """The negative objective in nats per value, estimated from a batch (Eq. 6 or Eq. 8)."""
        B, D = X.shape
        A = B if self.active_set_size is None else self.active_set_size
        Z, log_prior = self.draw_latents(X, index, generator)
        K_BA, k = covariances(self.kernel, Z, A)  # [B, A], [B]
        estimate = masked_estimate if self.missing else sas_estimate
        rows = self.dithered(X, generator) - self.mean
        log_p = estimate(rows, K_BA, k[A:], self.noise, n_total, self.scales)
        objective = log_p + n_total / B * log_prior.sum() + self._hyperprior()
        return -objective / (n_total * D * (1 - self.missing))

    def _hyperprior(self) -> Tensor | float:
        """Log density of the kernel's priors, if it has any."""
        terms = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in self.kernel.named_priors()]
        return sum(terms, start=0.0)

    @torch.no_grad()
    def diagnose(self, X: Tensor, index: Tensor) -> dict[str, float]:
        """Numbers for an error message if a batch gives values that are not finite: hyperparameters, smallest pivot."""
        found = self.monitor()
        for name, value in self.kernel.named_parameters():
            if name.endswith(("raw_lengthscale", "raw_outputscale")):
                constraint = self.kernel.constraint_for_parameter_name(name)
                found[name.rpartition("raw_")[2]] = float(constraint.transform(value).min())
        A = len(X) if self.active_set_size is None else self.active_set_size
        mu = self.encoder.position(X, index)
        found["largest latent"] = float(mu.abs().max())
        K = self.kernel(mu[:A]).to_dense().double() + self.noise.double() * torch.eye(A, device=X.device)
        # K = L Lᵀ fails if a pivot L_ii² is not positive
        found["smallest pivot"] = (
            float(torch.linalg.cholesky_ex(K).L.diagonal().square().min()) if K.isfinite().all() else math.nan
        )
        return found

    def centred(self, X: Tensor) -> Tensor:
        """Rows as the Gaussian process sees them: centred, and in units of their features' scales."""
        return X - self.mean if self.scales is None else (X - self.mean) / self.scales

    def row_sums(self, U: Tensor, L: Tensor | None = None, n_features: int | None = None) -> RowSums:
        """Empty sums over centred rows, or over fewer mixtures of their features, through positions U [M, Q]."""
        return RowSums(self.kernel, U, len(self.mean) if n_features is None else n_features, L)

    def masked_sums(self, U: Tensor) -> PatternSums | FilledSums:
        """The same over rows with missing values: exact, or with values filled in if there are too many features."""
        D = len(self.mean)
        kind = PatternSums if len(U) <= most_positions(D) else FilledSums
        return kind(self.kernel, U, D)

    def residual_sums(self, U: Tensor, *, masked: bool = False) -> ResidualSums:
        """Empty sums over squared residuals, at positions U [M, Q]."""
        return ResidualSums(self.kernel, U, len(self.mean), masked=masked)

    def decoder(self, sums: RowSums, residuals: ResidualSums | None = None) -> Posterior:
        """The decoder given the rows in these sums, with the local noise of these residuals if there are any."""
        posterior = sums.posterior(self.noise, self.mean, self.scales)
        if residuals is not None:
            posterior.local_noise = residuals.noise(posterior.feature_noise)
        return posterior
