"""The decoder once it is trained. `Posterior` is a Gaussian process conditioned on a support set.

The support set's factor is computed once and kept. Mean, variance, samples and log density all read that factor, so
they cannot disagree. Queries are answered in blocks: memory does not grow with their number.

All of it is float64 inside, whatever the model's dtype; results are rounded to that at the end. The kernel matrix is at
its worst with many support points: rounded to float32 it put the mean at new z off by half a standard deviation of the
data at σ² = 1e-6 of the amplitude and S = 500.
"""

from collections.abc import Iterator
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.gp.linalg import cholesky
from sasgp.gp.objective import LOG_2PI

__all__ = ["Posterior", "Predictive"]

JOINT = 2000  # points that a sample is drawn for at once: 32 MB of covariance
BLOCK_ELEMENTS = 4_000_000  # of k(z*, Z_S), or of means [M, D] where D is larger: 32 MB


class Predictive:
    """p(x | z) = N(m(z), c(z)): what every trained decoder offers.

    Attributes
    ----------
    Z : Tensor [S, Q]
        Latents where the decoder is at home: from these, latents of new rows are searched for.
    X : Tensor [S, D]
        The rows there, where the decoder keeps any, else [0, D].
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
        """Queries answered at a time."""
        return max(1, BLOCK_ELEMENTS // max(len(self.Z), len(self.mean)))

    def blocks(self, n: int) -> Iterator[slice]:
        """Slices that cover n queries, each small enough to be answered at once."""
        for start in range(0, n, self.block_size):
            yield slice(start, start + self.block_size)

    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and variance of an observation at each z, noise included: [M, 1] for all features, or [M, D]."""
        raise NotImplementedError

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density log N(x | m(z), c(z)) of each row, [M].

        Differentiable in Z, so at most a block of rows at a time.
        """
        raise NotImplementedError

    def sample(self, Z: Tensor, generator: torch.Generator, *, noise: bool = True) -> Tensor:
        """Draw [M, D] at the given z, with or without observation noise."""
        raise NotImplementedError


class Posterior(Predictive):
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
    scales : Tensor [D], optional
        s_d, the units of every feature's signal and noise. None is 1 for all.
    """

    def __init__(
        self, kernel: Kernel, noise: Tensor, Z: Tensor, X: Tensor, mean: Tensor, scales: Tensor | None = None
    ) -> None:
        self.Z, self.X, self.mean = Z, X, mean
        # [1] or [D]: with it, variances are [M, 1] for all features alike or [M, D]
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

    @property
    def feature_noise(self) -> Tensor:
        """The likelihood's variance in squared units of the data: [1] for all features, or [D]."""
        return self.noise * self.scales.square()

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        # m = mean + k_*S α          c = k_** + σ² − ‖L⁻¹ k_S*‖², in units of s²
        K = self.kernel(Z, self.Z.double()).to_dense()  # [M, S]
        mean = torch.addmm(self.mean.double(), K, self.alpha)  # [M, D]
        explained = (K @ self.L_inv.T).square().sum(1)
        # Rounding may leave k_** less than what is explained; an observation never varies by less than the noise
        return mean, self.noise + (self.kernel(Z, diag=True) - explained).clamp_min(0)  # [M, D], [M]

    @torch.no_grad()
    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and variance of an observation at each z, noise included: [M, 1] for all features, or [M, D]."""
        mean, var = self.mean.new_empty(len(Z), len(self.mean)), self.mean.new_empty(len(Z), len(self.scales))
        for block in self.blocks(len(Z)):
            mean[block], c = self._moments(Z[block].double())
            var[block] = c[:, None] * self.scales.square()
        return mean, var

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density log N(x | m(z), c(z) diag s²) of each row, [M].

        Differentiable in Z, so at most a block of rows at a time.
        """
        mean, c = self._moments(Z.double())
        D = X.shape[1]
        log_s = D * self.scales.log().mean()
        e = ((X - mean) / self.scales).square().sum(1)
        return (-0.5 * (D * (LOG_2PI + c.log()) + e / c) - log_s).to(X.dtype)

    @torch.no_grad()
    def sample(self, Z: Tensor, generator: torch.Generator, *, noise: bool = True) -> Tensor:
        """Draw [M, D] jointly at the given z: one function for each feature, with or without observation noise.

        Of more than `JOINT` points each such part is a draw of its own: the covariance of all would not fit in memory.
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
