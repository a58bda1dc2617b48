"""All rows of the data in sums of fixed size: what M positions of the latent space can tell about N rows.

With U [M, Q] the positions, K_UU = L Lᵀ and a_n = L⁻¹ k(U, z_n), one pass over the rows gives

    S = Σ a_n a_nᵀ [M, M]     b = Σ a_n x_nᵀ [M, D]     t = Σ (k_nn − ‖a_n‖²)     e = Σ ‖x_n‖²

    log p(X|Z) ≥ −½ [ N D log 2πσ² + D log|I + S/σ²| + e/σ² − ‖L_B⁻¹ b‖²/σ⁴ + D t/σ² ]          I + S/σ² = L_B L_Bᵀ

(Titsias, 2009). With U = Z the bound is exact. The sums add, over blocks and over processes. They are float64, whatever
the dtype of the rows.
"""

from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.gp.linalg import cholesky
from sasgp.gp.objective import LOG_2PI

__all__ = ["RowSums"]


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
    """

    def __init__(self, kernel: Kernel, U: Tensor, n_features: int) -> None:
        self.kernel = deepcopy(kernel).double().requires_grad_(False)
        self.U = U.detach().double()
        with torch.no_grad():
            # K_UU = L Lᵀ. Jitter, where it needs some, makes what U knows a little less: the bound stays one
            L = cholesky(self.kernel(self.U).to_dense())  # [M, M]
        M = len(self.U)
        eye = torch.eye(M, dtype=L.dtype, device=L.device)
        self.L_inv = torch.linalg.solve_triangular(L, eye, upper=False)  # [M, M]
        self.S, self.b = L.new_zeros(M, M), L.new_zeros(M, n_features)
        self.t, self.e, self.k = L.new_zeros(3)  # k = Σ k_nn
        self.n_rows = 0

    @torch.no_grad()
    def add(self, X: Tensor, Z: Tensor) -> None:
        """Add centred rows X [B, D], in units of their features' scales, whose latents are Z [B, Q]."""
        X, Z = X.double(), Z.double()
        A = self.kernel(Z, self.U).to_dense() @ self.L_inv.T  # rows are a_n: [B, M]
        k = self.kernel(Z, diag=True)  # [B]
        self.S.addmm_(A.T, A)
        self.b.addmm_(A.T, X)
        # Rounding may leave k_nn less than ‖a_n‖²
        self.t += (k - A.square().sum(1)).clamp_min(0).sum()
        self.e += X.square().sum()
        self.k += k.sum()
        self.n_rows += len(X)

    @property
    def missed_share(self) -> float:
        """T / Σ k_nn, the share of the prior's variance at the rows that the positions cannot express."""
        return float(self.t / self.k)

    def bound(self, noise: Tensor | float) -> float:
        """The lower bound on log p(X|Z) of all rows added so far, with the noise variance σ²."""
        noise = torch.as_tensor(noise, dtype=self.S.dtype, device=self.S.device)
        M, D = self.b.shape
        L_B = cholesky(self.S / noise + torch.eye(M, dtype=self.S.dtype, device=self.S.device))  # [M, M]
        log_det = 2 * L_B.diagonal().log().sum()
        fit = torch.linalg.solve_triangular(L_B, self.b, upper=False).square().sum()  # ‖L_B⁻¹ b‖²
        misfit = self.e / noise - fit / noise.square() + D * self.t / noise
        return float(-0.5 * (self.n_rows * D * (LOG_2PI + noise.log()) + D * log_det + misfit))
