"""The GP decoder trained with stochastic active sets: point latents (Eq. 6) or Bayesian ones (Eq. 8).

With everything active it is the exact GP-LVM; there is no second model for that.
"""

import math

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from sasgp.gp.covariance import covariances
from sasgp.gp.objective import sas_estimate
from sasgp.gp.posterior import Posterior
from sasgp.models.anchor import Anchor
from sasgp.models.encoders import Encoder
from sasgp.models.latent import latents

__all__ = ["SASDecoder"]


class SASDecoder(nn.Module):
    """Encoder, kernel and noise under one objective.

    Parameters
    ----------
    encoder : Encoder
        q(z|x).
    kernel : gpytorch.kernels.Kernel
        k_θ on the latent space.
    noise : float
        σ² to start from, in squared units of the data.
    mean : Tensor [D]
        Training mean, subtracted from every row.
    active_set_size : int or None
        A; None makes the whole batch active.
    encoder_noise : float
        s, the noise on the encoder's input in training, in units of σ.
    scales : Tensor [2, D] or None
        Units of every feature's signal and noise: the least that they may come to, and those to start from. They are
        learnt. None is 1 for all, and stays.
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
        scales: Tensor | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.kernel = kernel
        # In logarithms a step of Adam is a relative change, whatever the units of the data
        self.log_noise = nn.Parameter(torch.tensor(math.log(noise), dtype=mean.dtype))
        self.log_scales = None if scales is None else nn.Parameter(scales[1].log())
        self.register_buffer("least_scales", None if scales is None else scales[0])
        self.register_buffer("mean", mean)
        self.active_set_size = active_set_size
        self.encoder_noise = encoder_noise
        self.anchor: Anchor | None = None

    @property
    def noise(self) -> Tensor:
        """σ², the likelihood's variance."""
        return self.log_noise.exp()

    @property
    def scales(self) -> Tensor | None:
        """s_d, the units of every feature."""
        if self.log_scales is None or self.least_scales is None:
            return None
        return (self.least_scales.square() + (2 * self.log_scales).exp()).sqrt()

    @property
    def feature_noise(self) -> Tensor:
        """The likelihood's variance in squared units of the data: [1] for all features, or [D]."""
        scales = self.scales
        return self.noise * (torch.ones_like(self.mean[:1]) if scales is None else scales.square())

    @property
    def hyperparameters(self) -> list[nn.Parameter]:
        """All that is learnt but the encoder: kernel, noise, and the units of features."""
        own = [self.log_noise] if self.log_scales is None else [self.log_noise, self.log_scales]
        return [*self.kernel.parameters(), *own]

    def forward(self, X: Tensor, rows: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """Negative objective in nats for each entry of the data, estimated from a batch (Eq. 6 or Eq. 8)."""
        B, D = X.shape
        A = B if self.active_set_size is None else self.active_set_size
        Z, log_prior = latents(self, X, rows, generator)
        K_BA, k = covariances(self.kernel, Z, A)  # [B, A], [B]
        log_p = sas_estimate(X - self.mean, K_BA, k[A:], self.noise, n_total, self.scales)
        objective = log_p + n_total / B * log_prior.sum() + self._hyperprior()
        return -objective / (n_total * D)

    def _hyperprior(self) -> Tensor | float:
        """Log density of the priors that a kernel may carry."""
        terms = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in self.kernel.named_priors()]
        return sum(terms, start=0.0)

    def parameter_groups(self, learning_rate: float, hyper_learning_rate: float) -> list[dict[str, object]]:
        """Groups for Adam: the encoder, then kernel and noise."""
        return [
            {"params": list(self.encoder.parameters()), "lr": learning_rate, "rows": not self.encoder.amortised},
            {"params": self.hyperparameters, "lr": hyper_learning_rate},
        ]

    def monitor(self) -> dict[str, float]:
        """What a progress bar shows of the model."""
        return {"noise": float(self.feature_noise.detach().mean())}

    @torch.no_grad()
    def diagnose(self, X: Tensor, rows: Tensor) -> dict[str, float]:
        """What to look at when a batch gives no finite numbers: hyperparameters, and the least pivot of its factor."""
        found = self.monitor()
        for name, value in self.kernel.named_parameters():
            if name.endswith(("raw_lengthscale", "raw_outputscale")):
                constraint = self.kernel.constraint_for_parameter_name(name)
                found[name.rpartition("raw_")[2]] = float(constraint.transform(value).min())
        A = len(X) if self.active_set_size is None else self.active_set_size
        mu = self.encoder.position(X, rows)
        found["largest latent"] = float(mu.abs().max())
        K = self.kernel(mu[:A]).to_dense().double() + self.noise.double() * torch.eye(A, device=X.device)
        # K = L Lᵀ fails where a pivot L_ii² is not positive; its eigenvalues tell by how much
        found["smallest pivot"] = (
            float(torch.linalg.cholesky_ex(K).L.diagonal().square().min()) if K.isfinite().all() else math.nan
        )
        return found

    def condition(self, X: Tensor, Z: Tensor) -> Posterior:
        """The decoder given support points: observations [S, D] and their latents [S, Q]."""
        return Posterior(self.kernel, self.noise, Z, X, self.mean, self.scales)
