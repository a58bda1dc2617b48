"""The trained decoder. `Posterior` is a Gaussian process conditioned on a support set.

The Cholesky factor of the support set is computed once and kept. Mean, variance, samples and log density all use that
factor, so they cannot disagree. Queries are answered in blocks, so memory does not grow with their number.

All computations are in float64; results are rounded to the dtype of the model at the end. With many support points the
kernel matrix is badly conditioned, and float32 would give wrong means (docs/measurements.md).
"""

from collections.abc import Iterator
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.data.blocks import rows_at_once
from sasgp.gp.linalg import cholesky
from sasgp.gp.objective import LOG_2PI

__all__ = ["GaussianProcess", "Posterior", "Predictive"]

JOINT = 2000  # points that are sampled jointly: 32 MB of covariance


class Predictive:
    """p(x | z) = N(m(z), c(z)): the interface of all trained decoders.

    Attributes
    ----------
    Z : Tensor [S, Q]
        Latents that the decoder knows: the search for latents of new rows starts from them.
    X : Tensor [S, D]
        The rows at these latents, or [0, D] if the decoder keeps no rows.
    mean : Tensor [D]
        Training mean.
    """

    Z: Tensor
    X: Tensor
    mean: Tensor

    @property
    def feature_noise(self) -> Tensor:
        """The likelihood's variance in squared units of the data: [1] for all features, or [D]."""
        raise NotImplementedError

    @property
    def block_size(self) -> int:
        """Queries answered at a time: k(z*, Z_S) [M, S] and means [M, D] have to fit."""
        return rows_at_once(max(len(self.Z), len(self.mean)))

    def blocks(self, n: int) -> Iterator[slice]:
        """Slices that cover n queries, one per block."""
        for start in range(0, n, self.block_size):
            yield slice(start, start + self.block_size)

    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] of an observation at each z and its variance with noise: [M, 1] for all features, or [M, D]."""
        raise NotImplementedError

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density log N(x | m(z), c(z)) of each row, [M].

        It is differentiable in Z, so pass at most one block of rows at a time.
        """
        raise NotImplementedError

    def sample(self, Z: Tensor, generator: torch.Generator, *, noise: bool = True) -> Tensor:
        """Draw [M, D] at the given z, with or without observation noise."""
        raise NotImplementedError


class GaussianProcess(Predictive):
    """What follows from the moments of a Gaussian process, whatever it is conditioned on.

    Attributes
    ----------
    noise : Tensor []
        σ².
    scales : Tensor [1] or [D]
        s_d, the units of each feature's signal and noise.
    """

    noise: Tensor
    scales: Tensor

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] of an observation at each z and, in units of s², its variance [M], in float64."""
        raise NotImplementedError

    @property
    def feature_noise(self) -> Tensor:
        """The likelihood's variance in squared units of the data: [1] for all features, or [D]."""
        return self.noise * self.scales.square()

    @torch.no_grad()
    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] of an observation at each z and its variance with noise: [M, 1] for all features, or [M, D]."""
        mean, var = self.mean.new_empty(len(Z), len(self.mean)), self.mean.new_empty(len(Z), len(self.scales))
        for block in self.blocks(len(Z)):
            mean[block], c = self._moments(Z[block].double())
            var[block] = c[:, None] * self.scales.square()
        return mean, var

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density log N(x | m(z), c(z) diag s²) of each row, [M].

        It is differentiable in Z, so pass at most one block of rows at a time.
        """
        mean, c = self._moments(Z.double())
        D = X.shape[1]
        log_s = D * self.scales.log().mean()
        e = ((X - mean) / self.scales).square().sum(1)
        return (-0.5 * (D * (LOG_2PI + c.log()) + e / c) - log_s).to(X.dtype)


class Posterior(GaussianProcess):
    """p(x* | z*) given S support points.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        The trained kernel. It is copied, so further training does not change this posterior.
    noise : Tensor []
        σ².
    Z, X : Tensor [S, Q], [S, D]
        Latents and observations of the support set. The observations are not centred.
    mean : Tensor [D]
        Training mean, which the decoder predicts far from all support points.
    scales : Tensor [D], optional
        s_d, the units of each feature's signal and noise. None: all are 1.
    """

    def __init__(
        self, kernel: Kernel, noise: Tensor, Z: Tensor, X: Tensor, mean: Tensor, scales: Tensor | None = None
    ) -> None:
        self.Z, self.X, self.mean = Z, X, mean
        # [1] or [D], so that variances are [M, 1] or [M, D]
        self.scales = (torch.ones_like(mean[:1]) if scales is None else scales.detach()).double()
        self.kernel = deepcopy(kernel).double().requires_grad_(False)
        self.noise = noise.detach().double()
        with torch.no_grad():
            # K = K_SS + σ²I = L Lᵀ          α = K⁻¹ (X − mean)          scales drop out of the mean
            K = self.kernel(Z.double()).to_dense()  # [S, S]
            eye = torch.eye(len(Z), dtype=K.dtype, device=K.device)
            L = cholesky(K + self.noise * eye)  # [S, S]
            self.alpha = torch.cholesky_solve((X - mean).double(), L)  # [S, D]
            self.L_inv = torch.linalg.solve_triangular(L, eye, upper=False)  # [S, S]

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        # m = mean + k_*S α          c = k_** + σ² − ‖L⁻¹ k_S*‖², in units of s²
        K = self.kernel(Z, self.Z.double()).to_dense()  # [M, S]
        mean = torch.addmm(self.mean.double(), K, self.alpha)  # [M, D]
        explained = (K @ self.L_inv.T).square().sum(1)
        # Rounding may make the explained variance exceed k_**; an observation varies at least by the noise
        return mean, self.noise + (self.kernel(Z, diag=True) - explained).clamp_min(0)  # [M, D], [M]

    @torch.no_grad()
    def sample(self, Z: Tensor, generator: torch.Generator, *, noise: bool = True) -> Tensor:
        """Draw [M, D] jointly at the given z: one function per feature, with or without observation noise.

        At most `JOINT` points are drawn jointly, because the covariance of more would not fit into memory. The next
        points are an independent draw.
        """
        return torch.cat([self._sample(part, generator, noise) for part in Z.split(JOINT)])  # type: ignore[no-untyped-call]

    def _sample(self, Z: Tensor, generator: torch.Generator, noise: bool) -> Tensor:
        # f ~ N(m, C)          C = K_** − V Vᵀ          V = k_*S L⁻ᵀ
        Z = Z.double()
        V = self.kernel(Z, self.Z.double()).to_dense() @ self.L_inv.T  # [M, S]
        C = self.kernel(Z).to_dense() - V @ V.T  # [M, M]
        if noise:
            C.diagonal().add_(self.noise)
        mean, _ = self.predict(Z)
        white = torch.randn(*mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        return mean + self.scales.to(mean.dtype) * (cholesky(C).to(mean.dtype) @ white)
