"""All rows of the data in sums of fixed size: what M positions of the latent space can tell about N rows.

With U [M, Q] the positions, K_UU = L Lᵀ and a_n = L⁻¹ k(U, z_n), one pass over the rows gives

    S = Σ a_n a_nᵀ [M, M]     b = Σ a_n x_nᵀ [M, D]     t = Σ (k_nn − ‖a_n‖²)     e = Σ ‖x_n‖²     I + S/σ² = L_B L_Bᵀ

    m(z) = a(z)ᵀ (I + S/σ²)⁻¹ b / σ²                     c(z) = k(z,z) − ‖a(z)‖² + ‖L_B⁻¹ a(z)‖² + σ²
    log p(X|Z) ≥ −½ [ N D log 2πσ² + D log|I + S/σ²| + e/σ² − ‖L_B⁻¹ b‖²/σ⁴ + D t/σ² ]

(Titsias, 2009). With U = Z this is the exact Gaussian process. The sums add: over blocks, over processes, and over rows
that arrive after training.
"""

from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.gp.linalg import NotPositiveDefiniteError, cholesky, inverse, lower_times, times_upper, upper_times
from sasgp.gp.objective import LOG_2PI
from sasgp.gp.posterior import Posterior, whitened_mean, whitened_root

__all__ = ["RowSums", "condition"]

ROUNDING = 1e-15  # of a kernel matrix's diagonal: pivots below it are not trusted
ROWS_AT_ONCE = 1024  # a few matrices [B, M] are in memory at a time


class RowSums:
    """The sums over rows, empty at first.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        It is copied, and evaluated in float64.
    U : Tensor [M, Q]
        Positions in the latent space.
    n_features : int
        D.
    L : Tensor [M, M], optional
        Factor of K_UU. The sums of a file go with the factor that they were made with: another machine may round
        differently, or need other jitter.
    """

    @torch.no_grad()
    def __init__(self, kernel: Kernel, U: Tensor, n_features: int, L: Tensor | None = None) -> None:
        self.kernel = deepcopy(kernel).double().requires_grad_(False)
        self.U = U.detach()
        # K_UU = L Lᵀ. Jitter, where it needs some, makes what U knows a little less: the bound stays one
        factor = _factor(self.kernel(U.double()).to_dense()) if L is None else L
        self.L = factor.contiguous()  # [M, M]; in another order of its numbers, BLAS would round differently
        self._L_inv: Tensor | None = None  # of the factor that is there when the first rows come
        M = len(U)
        self.S, self.b = self.L.new_zeros(M, M), self.L.new_zeros(M, n_features)
        self.t, self.e, self.k, self.n = self.L.new_zeros(4)  # k = Σ k_nn, n the number of rows

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The sums themselves, by their names. They are float64, whatever the dtype of the rows."""
        return {name: getattr(self, name) for name in ("S", "b", "t", "e", "k", "n")}

    @property
    def n_rows(self) -> int:
        return int(self.n)

    @torch.no_grad()
    def add(self, X: Tensor, Z: Tensor) -> None:
        """Add centred rows X [B, D], in units of their features' scales, whose latents are Z [B, Q]."""
        if self._L_inv is None:
            self._L_inv = inverse(self.L)
        for start in range(0, len(X), ROWS_AT_ONCE):
            part = slice(start, start + ROWS_AT_ONCE)
            self._add(X[part].double(), Z[part].double(), self._L_inv)

    def _add(self, X: Tensor, Z: Tensor, L_inv: Tensor) -> None:
        A = times_upper(self.kernel(Z, self.U.double()).to_dense(), L_inv)  # rows are a_n: [B, M]
        k = self.kernel(Z, diag=True)  # [B]
        self.S.addmm_(A.T, A)
        self.b.addmm_(A.T, X)  # in float32 it would be twice as fast, and useless where σ² is small
        # Rounding may leave k_nn less than ‖a_n‖²
        self.t += (k - A.square().sum(1)).clamp_min(0).sum()
        self.e += X.square().sum()
        self.k += k.sum()
        self.n += len(X)

    @property
    def missed_share(self) -> float:
        """The share t / Σ k_nn of the prior's variance at the rows that the positions cannot express."""
        return float(self.t / self.k)

    def _precision(self, noise: Tensor) -> Tensor:
        """L_B [M, M]."""
        B = self.S / noise
        B.diagonal().add_(1)
        return cholesky(B)

    @torch.no_grad()
    def posterior(self, noise: Tensor, mean: Tensor, scales: Tensor | None = None) -> Posterior:
        """The Gaussian process given all rows added so far. The mean and the scales [D] are those of the rows."""
        noise = noise.detach().double()
        L_B = self._precision(noise)
        V = torch.cholesky_solve(self.b / noise, L_B)  # (I + S/σ²)⁻¹ b / σ²
        alpha = whitened_mean(self.L, V) * (1 if scales is None else scales.detach())
        return Posterior(self.kernel, noise, self.U, alpha, whitened_root(self.L, L_B), mean, scales)

    def bound(self, noise: Tensor | float) -> float:
        """The lower bound on log p(X|Z) of all rows added so far, with the noise variance σ²."""
        noise = torch.as_tensor(noise).detach().to(self.S)
        D, L_B = self.b.shape[1], self._precision(noise)
        log_det = 2 * L_B.diagonal().log().sum()
        fit = torch.linalg.solve_triangular(L_B, self.b, upper=False).square().sum()  # ‖L_B⁻¹ b‖²
        misfit = self.e / noise - fit / noise.square() + D * self.t / noise
        return float(-0.5 * (self.n_rows * D * (LOG_2PI + noise.log()) + D * log_det + misfit))


def _factor(K: Tensor) -> Tensor:
    """Cholesky factor of a kernel matrix, also of a kernel that is not positive definite, such as a cosine in a plane.

    Training never needs more than K + σ²I, so such a kernel can be trained, and its decoder must not fail.
    """
    L, info = torch.linalg.cholesky_ex(K)
    # A pivot of the size of rounding errors is made of nothing else, and L⁻¹ would multiply them
    if info == 0 and (L.diagonal().square() > ROUNDING * K.diagonal()).all():
        return L
    try:
        return cholesky(K)
    except NotPositiveDefiniteError:
        if not K.isfinite().all():
            raise
        least = torch.linalg.eigvalsh(K)[0].abs()
        return cholesky(K + 2 * least * torch.eye(len(K), dtype=K.dtype, device=K.device))


@torch.no_grad()
def condition(
    kernel: Kernel, noise: Tensor, Z: Tensor, X: Tensor, mean: Tensor, scales: Tensor | None = None
) -> Posterior:
    """The exact Gaussian process given rows X [N, D] at latents Z [N, Q]: every row is a position."""
    # α = (K + σ²I)⁻¹ X          TᵀT = (K + σ²I)⁻¹, which is better conditioned than sums through K⁻¹
    kernel = deepcopy(kernel).double().requires_grad_(False)
    K = kernel(Z.double()).to_dense() + noise.detach().double() * torch.eye(len(Z), dtype=torch.float64).to(Z.device)
    root = inverse(cholesky(K))
    alpha = upper_times(root, lower_times(root, X.double() - mean.double()))
    return Posterior(kernel, noise, Z, alpha, root, mean, scales)
