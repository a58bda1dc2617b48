"""The decoder once it is trained: a Gaussian process conditioned on a support set.

The support set's factor is computed once and kept. Mean, variance, samples and log density all read that factor, so
they cannot disagree. Queries are answered in blocks: memory does not grow with their number.
"""

from collections.abc import Iterator
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.objective import LOG_2PI, cholesky

__all__ = ["Posterior"]

BLOCK_ELEMENTS = 4_000_000  # of k(z*, Z_S): 16 MB in float32


class Posterior:
    """p(x* | z*) given S support points.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        The trained kernel. It is copied: training may go on without a word to this posterior.
    noise : Tensor []
        σ².
    Z, X : Tensor [S, Q], [S, D]
        Latents and observations of the support set, the latter not centred.
    mean : Tensor [D]
        Training mean: what the decoder says far from all support points.
    """

    def __init__(self, kernel: Kernel, noise: Tensor, Z: Tensor, X: Tensor, mean: Tensor) -> None:
        self.kernel, self.noise, self.Z, self.X, self.mean = deepcopy(kernel), noise.detach(), Z, X, mean
        self.kernel.requires_grad_(False)
        # The factor and the kernel matrix under it are in float64, whatever the model's dtype: done once, and K is
        # at its worst with many support points. A kernel matrix rounded to float32 put the mean at new z off by half a
        # standard deviation of the data at σ² = 1e-6 and S = 500; this way it is .006.
        self._kernel64 = deepcopy(self.kernel).double()
        with torch.no_grad():
            # K = K_SS + σ²I = L Lᵀ          α = K⁻¹ (X − mean)
            K = self._kernel64(Z.double()).to_dense()  # [S, S]
            eye = torch.eye(len(Z), dtype=K.dtype, device=K.device)
            self._L = cholesky(K + self.noise.double() * eye)  # [S, S]
            self.alpha = torch.cholesky_solve((X - mean).double(), self._L).to(X.dtype)  # [S, D]
            self.L_inv = torch.linalg.solve_triangular(self._L, eye, upper=False).to(X.dtype)  # [S, S]

    @property
    def block_size(self) -> int:
        """Queries answered at a time."""
        return max(1, BLOCK_ELEMENTS // len(self.Z))

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        # m = mean + k_*S α          c = k_** + σ² − ‖L⁻¹ k_S*‖²
        K = self.kernel(Z, self.Z).to_dense()  # [M, S]
        mean = torch.addmm(self.mean, K, self.alpha)  # [M, D]
        explained = (K @ self.L_inv.T).square().sum(1)
        return mean, self.noise + (self.kernel(Z, diag=True) - explained).clamp_min(0)  # [M, D], [M]

    def blocks(self, n: int) -> Iterator[slice]:
        """Slices that cover n queries, each small enough to be answered at once."""
        for start in range(0, n, self.block_size):
            yield slice(start, start + self.block_size)

    @torch.no_grad()
    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and variance [M] of an observation at each z, noise included."""
        if len(Z) <= self.block_size:
            return self._moments(Z)
        mean, var = Z.new_empty(len(Z), len(self.mean)), Z.new_empty(len(Z))
        for block in self.blocks(len(Z)):
            mean[block], var[block] = self._moments(Z[block])
        return mean, var

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density log N(x | m(z), c(z) I) of each row, [M].

        Differentiable in Z, so at most a block of rows at a time.
        """
        mean, c = self._moments(Z)
        D = X.shape[1]
        return -0.5 * (D * (LOG_2PI + c.log()) + (X - mean).square().sum(1) / c)

    @torch.no_grad()
    def sample(self, Z: Tensor, generator: torch.Generator, *, noise: bool = True) -> Tensor:
        """Draw [M, D] jointly at the given z: one function for each feature, with or without observation noise."""
        # f ~ N(m, C)          C = K_** − VᵀV          V = L⁻¹ k_S*
        # In float64: near the data C is a small difference of large numbers, and what float32 leaves is indefinite.
        K = self._kernel64(Z.double(), self.Z.double()).to_dense()  # [M, S]
        V = torch.linalg.solve_triangular(self._L, K.T, upper=False)  # [S, M]
        C = self._kernel64(Z.double()).to_dense() - V.T @ V  # [M, M]
        if noise:
            C.diagonal().add_(self.noise.double())
        mean, _ = self.predict(Z)
        white = torch.randn(*mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        return mean + cholesky(C).to(mean.dtype) @ white
