"""The trained decoder. `Posterior` is a Gaussian process that is known through its values at M positions.

What the data say about these values is a Gaussian. `sasgp.gp.row_sums` makes it from all rows, `sasgp.models.inducing`
learns it. Its factor is computed once and kept. Mean, variance, samples and log density all use that factor, so they
cannot disagree. Queries are answered in blocks, so memory does not grow with their number.

All computations are in float64; results are rounded to the dtype of the model at the end. With many positions the
kernel matrix is badly conditioned, and float32 would give wrong means (docs/measurements.md).
"""

from collections.abc import Iterator
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.data.blocks import rows_at_once
from sasgp.gp.linalg import cholesky, inverse, times_lower
from sasgp.gp.local_noise import LocalNoise
from sasgp.gp.objective import LOG_2PI

__all__ = ["GaussianProcess", "Posterior", "Predictive", "whitened_mean", "whitened_root"]

JOINT = 2000  # points that are sampled jointly: 32 MB of covariance


class Predictive:
    """p(x | z) = N(m(z), c(z)): the interface of all trained decoders.

    Attributes
    ----------
    Z : Tensor [M, Q]
        Positions in the latent space that the decoder knows: the search for latents of new rows starts from them.
    mean : Tensor [D]
        Training mean.
    """

    Z: Tensor
    mean: Tensor

    @property
    def feature_noise(self) -> Tensor:
        """The likelihood's variance in squared units of the data, without local noise: [1] for all features, or [D]."""
        raise NotImplementedError

    @property
    def block_size(self) -> int:
        """Queries answered at a time: k(z*, Z) and the means have to fit."""
        return rows_at_once(max(len(self.Z), len(self.mean)))

    @property
    def search(self) -> "Predictive":
        """The decoder that searches for latents use, which evaluate it many times: itself, or nearly itself."""
        return self

    def blocks(self, n: int) -> Iterator[slice]:
        """Slices that cover n queries, one per block."""
        for start in range(0, n, self.block_size):
            yield slice(start, start + self.block_size)

    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] of an observation at each z and its variance with noise: [M, 1] for all features, or [M, D]."""
        raise NotImplementedError

    def predict_mean(self, Z: Tensor) -> Tensor:
        """The mean [M, D] of `predict` alone, which may take less work."""
        return self.predict(Z)[0]

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
    local_noise : LocalNoise or None
        σ²_d(z), the noise of an observation at a place. None: it is σ² s_d² everywhere.
    """

    noise: Tensor
    scales: Tensor
    local_noise: LocalNoise | None = None

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] of an observation at each z and, in units of s², the function's variance c_f, in float64.

        The variance is [M], or [M, D] if features differ in the rows that they were observed in.
        """
        raise NotImplementedError

    @property
    def _width(self) -> int:
        """The number of different variances that an observation may have at one z: 1 or D."""
        return len(self.scales) if self.local_noise is None else len(self.mean)

    def _variance(self, Z: Tensor, c_f: Tensor) -> Tensor:
        """Variance of an observation at each z, in squared units of the data: [M, 1] for all features, or [M, D]."""
        # (c_f + σ²) s_d²          or          c_f s_d² + σ²_d(z)
        c_f = c_f if c_f.ndim == 2 else c_f[:, None]
        if self.local_noise is None:
            return (c_f + self.noise) * self.scales.square()
        return c_f * self.scales.square() + self.local_noise(Z)

    @torch.no_grad()
    def residuals(self, X: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Residuals [M, D] of rows that the decoder is conditioned on, and the leverages c_f / σ², [M] or [M, D]."""
        mean, c_f = self._moments(Z.double())
        # What the positions cannot express is part of c_f as well, so that it may exceed σ²
        return X - mean, (c_f / self.noise).clamp_max(1)

    @property
    def feature_noise(self) -> Tensor:
        """The likelihood's variance in squared units of the data: [1] for all features, or [D]."""
        return self.noise * self.scales.square()

    @torch.no_grad()
    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] of an observation at each z and its variance with noise: [M, 1] for all features, or [M, D]."""
        mean, var = self.mean.new_empty(len(Z), len(self.mean)), self.mean.new_empty(len(Z), self._width)
        for block in self.blocks(len(Z)):
            mean[block], c_f = self._moments(Z[block].double())
            var[block] = self._variance(Z[block].double(), c_f)
        return mean, var

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density log N(x | m(z), c(z)) of each row, [M]: that of its observed values, if some are NaN.

        It is differentiable in Z, so pass at most one block of rows at a time.
        """
        mean, c_f = self._moments(Z.double())
        c = self._variance(Z.double(), c_f)  # [M, 1 or D]
        missing = X.isnan()
        if missing.any():
            each = LOG_2PI + c.log() + (torch.where(missing, mean, X) - mean).square() / c
            return (-0.5 * each.masked_fill(missing, 0.0).sum(1)).to(X.dtype)
        log_det = X.shape[1] * c.log().mean(1)
        return (-0.5 * (X.shape[1] * LOG_2PI + log_det + ((X - mean).square() / c).sum(1))).to(X.dtype)


class Posterior(GaussianProcess):
    """p(x* | z*) = N(mean + k_*Z α, (k_** − ‖T k_Z*‖²) diag s² + noise), from what is known at M positions.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        The trained kernel. It is copied, so further training does not change this posterior.
    noise : Tensor []
        σ².
    Z : Tensor [M, Q]
        Positions.
    alpha : Tensor [M, D]
        α, in units of the data.
    root : Tensor [M, M]
        T, lower triangular.
    mean : Tensor [D]
        Training mean, which the decoder predicts far from all positions.
    scales : Tensor [D], optional
        s_d, the units of each feature's signal and noise. None: all are 1.
    """

    def __init__(
        self,
        kernel: Kernel,
        noise: Tensor,
        Z: Tensor,
        alpha: Tensor,
        root: Tensor,
        mean: Tensor,
        scales: Tensor | None = None,
    ) -> None:
        self.Z, self.alpha, self.root, self.mean = Z.detach(), alpha, root, mean
        # [1] or [D], so that variances are [M, 1] or [M, D]
        self.scales = (torch.ones_like(mean[:1]) if scales is None else scales.detach()).double()
        self.kernel = deepcopy(kernel).double().requires_grad_(False)
        self.noise = noise.detach().double()

    @torch.no_grad()
    def predict_mean(self, Z: Tensor) -> Tensor:
        """The mean [M, D] of `predict` alone: without the products with T."""
        mean = self.mean.new_empty(len(Z), len(self.mean))
        for block in self.blocks(len(Z)):
            K = self.kernel(Z[block].double(), self.Z.double()).to_dense()  # [B, M]
            mean[block] = torch.addmm(self.mean.double(), K, self.alpha)
        return mean

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        # m = mean + k_*Z α          c_f = k_** − ‖T k_Z*‖², in units of s²
        K = self.kernel(Z, self.Z.double()).to_dense()  # [B, M]
        mean = torch.addmm(self.mean.double(), K, self.alpha)  # [B, D]
        explained = (K @ self.root.T).square().sum(1)
        # Rounding may make the explained variance exceed k_**
        return mean, (self.kernel(Z, diag=True) - explained).clamp_min(0)  # [B, D], [B]

    @property
    def total_scale(self) -> Tensor:
        """Σ_d s_d² over all features, []."""
        return len(self.mean) * self.scales.square().mean()

    def knowledge(self) -> Tensor:
        """C = Σ_d s_d² T_dᵀT_d [M, M], with which Σ_d cov(f_d(z), f_d(z')) = Σ_d s_d² k(z,z') − k(z,Z) C k(Z,z')."""
        return self.total_scale * (self.root.T @ self.root)

    @torch.no_grad()
    def sample(self, Z: Tensor, generator: torch.Generator, *, noise: bool = True) -> Tensor:
        """Draw [M, D] jointly at the given z: one function per feature, with or without observation noise.

        At most `JOINT` points are drawn jointly, because the covariance of more would not fit into memory. The next
        points are an independent draw.
        """
        return torch.cat([self._sample(part, generator, noise) for part in Z.split(JOINT)])  # type: ignore[no-untyped-call]

    def _sample(self, Z: Tensor, generator: torch.Generator, noise: bool) -> Tensor:
        # f ~ N(m, C)          C = K_** − V Vᵀ          V = k_*Z Tᵀ
        Z = Z.double()
        V = self.kernel(Z, self.Z.double()).to_dense() @ self.root.T  # [B, M]
        C = self.kernel(Z).to_dense() - V @ V.T  # [B, B]
        if noise and self.local_noise is None:
            C.diagonal().add_(self.noise)
        mean, _ = self.predict(Z)

        def white() -> Tensor:
            return torch.randn(*mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)

        drawn = mean + self.scales.to(mean.dtype) * (cholesky(C).to(mean.dtype) @ white())
        if noise and self.local_noise is not None:
            drawn += self.local_noise(Z).sqrt().to(mean.dtype) * white()
        return drawn


# What is known at the positions is often a Gaussian over whitened values: with K_ZZ = L Lᵀ, each feature's function has
# f(Z) = L v. Before the data v is N(0, I). The data make it N(V_d, (L_C L_Cᵀ)⁻¹), with a precision of at least I that
# is the same for all features.


@torch.no_grad()
def whitened_mean(L: Tensor, V: Tensor) -> Tensor:
    """α [M, D] of a `Posterior`, from the means V [M, D] of whitened values."""
    # m = k_*Z L⁻ᵀ V
    return torch.linalg.solve_triangular(L.double().T, V.double(), upper=True)


@torch.no_grad()
def whitened_root(L: Tensor, L_C: Tensor) -> Tensor:
    """T [M, M] of a `Posterior`, from the factor L_C [M, M] of the precision of whitened values."""
    # c_f = k_** − k_*Z L⁻ᵀ (I − C⁻¹) L⁻¹ k_Z*. C ⪰ I, so that I − C⁻¹ = U diag(w) Uᵀ with 0 ≤ w < 1.
    # Tᵀ T = L⁻ᵀ (I − C⁻¹) L⁻¹ with T lower triangular, by Gram–Schmidt from the last column
    values, U = torch.linalg.eigh(L_C.double() @ L_C.double().T)
    root = (1 - 1 / values.clamp_min(1)).sqrt()[:, None] * times_lower(U.T, inverse(L.double()))  # [M, M]
    return torch.linalg.qr(root.flip(1)).R.flip(0, 1)
