"""Principal components of rows with missing values: probabilistic PCA (Tipping & Bishop, 1999), fitted by EM.

    x_n = W z_n + ε,   z ~ N(0, I),   ε ~ N(0, s²I)          of which each row shows only its observed values

With o_n the mask of row n, the E-step has C_n⁻¹ = I + Wᵀ diag(o_n) W / s² and z_n = C_n Wᵀ (o_n ∘ x_n) / s². The M-step
is a regression for each feature, over the rows that have it. All sums are matrix products with the masks.
"""

import torch
from torch import Tensor

from sasgp.gp.linalg import principal_axes

__all__ = ["MaskedPCA"]

ITERATIONS = 30
LEAST_NOISE = 1e-3  # of the variance of an observed value


class MaskedPCA:
    """Components of centred rows with NaN for missing values.

    Parameters
    ----------
    X : Tensor [N, D]
        Centred rows.
    n : int
        Components, Q.

    Attributes
    ----------
    W : Tensor [D, Q]
        Loadings, orthogonal columns, the longest first. There are zeros beyond the rank.
    noise : Tensor []
        s².
    """

    def __init__(self, X: Tensor, n: int) -> None:
        seen = (~X.isnan()).to(X)
        X = X.nan_to_num()
        variance = X.square().sum() / seen.sum().clamp_min(1)
        variances, V = principal_axes(X, n)
        self.W = torch.nn.functional.pad(V * variances.clamp_min(0).sqrt(), (0, n - V.shape[1]))
        self.noise = 0.5 * variance
        for _ in range(ITERATIONS):
            Z, C = self._posterior(X, seen)
            # Σ_n o_nd (z zᵀ + C_n) w_d = Σ_n o_nd x_nd z_n, and a little of a prior for features that are rarely seen
            second = (Z[:, :, None] * Z[:, None, :] + C).flatten(1)  # [N, Q²]
            A = (seen.T @ second).view(-1, n, n) + 1e-3 * torch.eye(n).to(X)
            self.W = torch.linalg.solve(A, (X.T @ Z)[:, :, None])[:, :, 0]
            # s² = mean over observed values of (x − wᵀz)² + wᵀ C w
            r = seen * (X - Z @ self.W.T)
            spread = (seen * (C.flatten(1) @ _outer(self.W).T)).sum()
            self.noise = (r.square().sum() + spread) / seen.sum().clamp_min(1)
            self.noise = self.noise.clamp_min(LEAST_NOISE * variance).clamp_min(torch.finfo(X.dtype).tiny)
            # The prior of z is N(0, I): where rows spread otherwise, W takes it over. Without this, EM would be slow
            spread_of_z = second.mean(0).view(n, n) + 1e-6 * torch.eye(n).to(X)
            self.W = self.W @ torch.linalg.cholesky(spread_of_z)
        U, S, _ = torch.linalg.svd(self.W, full_matrices=False)
        W = torch.nn.functional.pad(U * S, (0, n - len(S)))
        self.W = W * torch.where(W.gather(0, W.abs().argmax(0, keepdim=True)) < 0, -1.0, 1.0)

    def _posterior(self, X: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [N, Q] and covariance [N, Q, Q] of the coordinates of rows with 0 for missing values."""
        Q = self.W.shape[1]
        precision = (seen @ _outer(self.W) / self.noise).view(-1, Q, Q) + torch.eye(Q).to(X)
        C = torch.linalg.inv(precision)
        return (C @ (X @ self.W / self.noise)[:, :, None])[:, :, 0], C

    def coordinates(self, X: Tensor) -> Tensor:
        """The mean [B, Q] of each row's z, of unit variance over rows where much is observed."""
        return self._posterior(X.nan_to_num(), (~X.isnan()).to(X))[0]

    def completed(self, X: Tensor) -> Tensor:
        """Rows [B, D] whose missing values are those of their components."""
        return torch.where(X.isnan(), self.coordinates(X) @ self.W.T, X)


def _outer(W: Tensor) -> Tensor:
    """w_d w_dᵀ of each feature, [D, Q²]."""
    return (W[:, :, None] * W[:, None, :]).flatten(1)
