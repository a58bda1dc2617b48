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
from sasgp.gp.linalg import cholesky, inverse, times_lower, upper_times
from sasgp.gp.objective import LOG_2PI

__all__ = ["GaussianProcess", "Posterior", "Predictive"]

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
        """The likelihood's variance in squared units of the data: [1] for all features, or [D]."""
        raise NotImplementedError

    @property
    def block_size(self) -> int:
        """Queries answered at a time: k(z*, Z) and the means have to fit."""
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
    """p(x* | z*) from a Gaussian over the function's values at M positions.

    With K_ZZ = L Lᵀ, each feature's function has f(Z) = L v. Before the data v is N(0, I); the data make it
    N(M_d, (L_C L_Cᵀ)⁻¹), with the same precision for all features. Units are those of the scales.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        The trained kernel. It is copied, so further training does not change this posterior.
    noise : Tensor []
        σ².
    Z : Tensor [M, Q]
        Positions.
    L : Tensor [M, M]
        Factor of K_ZZ.
    V : Tensor [M, D]
        Means of v.
    L_C : Tensor [M, M]
        Factor of the precision of v, which is at least I.
    mean : Tensor [D]
        Training mean, which the decoder predicts far from all positions.
    scales : Tensor [D], optional
        s_d, the units of each feature's signal and noise. None: all are 1.
    """

    @torch.no_grad()
    def __init__(
        self,
        kernel: Kernel,
        noise: Tensor,
        Z: Tensor,
        L: Tensor,
        V: Tensor,
        L_C: Tensor,
        mean: Tensor,
        scales: Tensor | None = None,
    ) -> None:
        self.Z, self.mean = Z.detach(), mean
        # [1] or [D], so that variances are [M, 1] or [M, D]
        self.scales = (torch.ones_like(mean[:1]) if scales is None else scales.detach()).double()
        self.kernel = deepcopy(kernel).double().requires_grad_(False)
        self.noise = noise.detach().double()
        L_inv = inverse(L.double())
        # m = mean + k_*Z α          α = L⁻ᵀ V diag(s)
        self.alpha = upper_times(L_inv, V.double()) * self.scales  # [M, D]
        # c = k_** + σ² − k_*Z L⁻ᵀ (I − C⁻¹) L⁻¹ k_Z*. C ⪰ I, so that I − C⁻¹ = U diag(w) Uᵀ with 0 ≤ w < 1.
        # Tᵀ T = L⁻ᵀ (I − C⁻¹) L⁻¹ with T lower triangular, by Gram–Schmidt from the last column
        values, U = torch.linalg.eigh(L_C.double() @ L_C.double().T)
        root = (1 - 1 / values.clamp_min(1)).sqrt()[:, None] * times_lower(U.T, L_inv)  # [M, M]
        self.root = torch.linalg.qr(root.flip(1)).R.flip(0, 1)  # T

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        # m = mean + k_*Z α          c = k_** + σ² − ‖T k_Z*‖², in units of s²
        K = self.kernel(Z, self.Z.double()).to_dense()  # [B, M]
        mean = torch.addmm(self.mean.double(), K, self.alpha)  # [B, D]
        explained = (K @ self.root.T).square().sum(1)
        # Rounding may make the explained variance exceed k_**; an observation varies at least by the noise
        return mean, self.noise + (self.kernel(Z, diag=True) - explained).clamp_min(0)  # [B, D], [B]

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
        if noise:
            C.diagonal().add_(self.noise)
        mean, _ = self.predict(Z)
        white = torch.randn(*mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        return mean + self.scales.to(mean.dtype) * (cholesky(C).to(mean.dtype) @ white)
