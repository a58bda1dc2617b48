"""Linear algebra that torch does not have: a Cholesky factor with jitter, triangular products, principal axes.

Products with a lower triangular matrix skip its zeros. BLAS has trmm, trtri and syrk for this; torch has not. Here the
matrix is cut into strips of rows. The part of a strip to the right of the diagonal block is left out, and torch
multiplies the rest. For many rows, that is half of the work.
"""

import math
from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = [
    "NotPositiveDefiniteError",
    "cholesky",
    "cholesky_each",
    "gram",
    "inverse",
    "inverse_root",
    "lower_times",
    "principal_axes",
    "times_lower",
    "times_upper",
    "upper_times",
]

LARGE = 1000  # rows and features beyond which all eigenvectors take seconds
WIDTH = 128  # of a strip at most: narrower strips skip more zeros, but take longer per number

# Relative to the mean of the diagonal. The first try adds nothing; more than the last would spoil the result.
JITTERS = {torch.float32: (0.0, 1e-6, 1e-5, 1e-4, 1e-3), torch.float64: (0.0, 1e-10, 1e-8, 1e-6, 1e-4)}


class NotPositiveDefiniteError(ArithmeticError):
    """A covariance matrix has no Cholesky factor, even with jitter on its diagonal."""


def cholesky(K: Tensor) -> Tensor:
    """Lower Cholesky factor of K, with the least jitter on the diagonal that makes it exist."""
    diagonal = K.diagonal()
    for jitter in JITTERS[K.dtype]:
        eye = torch.eye(len(K), dtype=K.dtype, device=K.device) if jitter else None
        L, info = torch.linalg.cholesky_ex(K if eye is None else K + jitter * diagonal.mean() * eye)
        if info == 0:  # LAPACK also reports success for NaN
            if not math.isfinite(L.detach().diagonal().sum()):
                break
            return L
    least, largest = diagonal.detach().aminmax()
    raise NotPositiveDefiniteError(
        f"A {len(K)}×{len(K)} covariance in {str(K.dtype).removeprefix('torch.')} is not positive definite. Its "
        f"diagonal goes from {float(least):.3g} to {float(largest):.3g}, and it has no Cholesky factor "
        f"even with {JITTERS[K.dtype][-1]:g} of the diagonal's mean added there. Use dtype='float64', a smaller "
        "learning rate, or fewer active points. If the diagonal is not finite, look for extreme values in the data."
    )


def cholesky_each(K: Tensor) -> Tensor:
    """Lower Cholesky factors of a batch [m, n, n]. Only matrices that have none get jitter."""
    L, info = torch.linalg.cholesky_ex(K)
    for i in ((info != 0) | ~L.diagonal(dim1=1, dim2=2).isfinite().all(1)).nonzero()[:, 0].tolist():
        L[i] = cholesky(K[i])
    return L


def principal_axes(X: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Variances [≤ n] and orthonormal directions [D, ≤ n] of the principal axes of centred rows X, largest first.

    There are at most as many as rows or features. If there are fewer rows than features, a direction without variance
    is zero. For large matrices, the leading axes are found by subspace iteration.
    """
    if min(X.shape) > max(LARGE, 10 * n):
        variances, V = _leading_axes(X, n)
    elif X.shape[0] < X.shape[1]:  # use the smaller of the two Gram matrices
        variances, U = torch.linalg.eigh(X @ X.T / len(X))
        V = X.T @ U * inverse_root(variances * len(X))
    else:
        variances, V = torch.linalg.eigh(X.T @ X / len(X))
    variances, V = variances.flip(0)[:n], V.flip(1)[:, :n]
    return variances, V * torch.sign(V.gather(0, V.abs().argmax(0, keepdim=True)))  # the largest entry is positive


def _leading_axes(X: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Variances and directions by subspace iteration (Halko et al., 2011), the largest last, as `eigh` returns them."""
    start = torch.randn(X.shape[1], 2 * n + 10, generator=torch.Generator().manual_seed(0), dtype=X.dtype)
    V = torch.linalg.qr(start.to(X.device)).Q  # [D, 2n + 10]
    for _ in range(12):  # five digits of the leading axes
        V = torch.linalg.qr(X.T @ (X @ V)).Q
    # Within the subspace the problem is small
    variances, U = torch.linalg.eigh((X @ V).T @ (X @ V) / len(X))
    return variances[-n:], V @ U[:, -n:]


def inverse_root(variance: Tensor) -> Tensor:
    """1/√v, or 0 where v is only rounding error, compared with the largest v."""
    real = variance > 1e-6 * variance.max()
    return torch.where(real, variance, 1.0).rsqrt() * real


def strips(n: int) -> Iterator[tuple[int, int]]:
    """First row of each strip and the first row after it. All strips have about the same width."""
    count = -(-n // WIDTH)
    return ((n * i // count, n * (i + 1) // count) for i in range(count))


def inverse(L: Tensor) -> Tensor:
    """L⁻¹ [n, n]."""
    found = torch.zeros_like(L)
    for a, b in strips(len(L)):
        # [[L₁, 0], [M, L₂]]⁻¹ = [[L₁⁻¹, 0], [−L₂⁻¹ M L₁⁻¹, L₂⁻¹]]          L₁ is all above this strip
        eye = torch.eye(b - a, dtype=L.dtype, device=L.device)
        found[a:b, a:b] = torch.linalg.solve_triangular(L[a:b, a:b], eye, upper=False)
        if a:
            torch.mm(found[a:b, a:b], times_lower(L[a:b, :a], found[:a, :a]).neg_(), out=found[a:b, :a])
    return found


def lower_times(L: Tensor, X: Tensor) -> Tensor:
    """L X, [n, D]."""
    product = torch.empty_like(X)
    for a, b in strips(len(L)):
        torch.mm(L[a:b, :b], X[:b], out=product[a:b])
    return product


def upper_times(L: Tensor, X: Tensor, out: Tensor | None = None) -> Tensor:
    """Lᵀ X, [n, D]."""
    product = torch.empty_like(X) if out is None else out
    for a, b in strips(len(L)):
        torch.mm(L[a:, a:b].T, X[a:], out=product[a:b])
    return product


def times_lower(X: Tensor, L: Tensor) -> Tensor:
    """X L, [M, n]."""
    product = torch.empty_like(X)
    for a, b in strips(len(L)):
        torch.mm(X[:, a:], L[a:, a:b], out=product[:, a:b])
    return product


def times_upper(X: Tensor, L: Tensor) -> Tensor:
    """X Lᵀ, [M, n]."""
    product = torch.empty_like(X)
    for a, b in strips(len(L)):
        torch.mm(X[:, :b], L[a:b, :b].T, out=product[:, a:b])
    return product


def gram(X: Tensor) -> Tensor:
    """X Xᵀ, [n, n]."""
    product = X.new_empty(len(X), len(X))
    for a, b in strips(len(X)):
        torch.mm(X[a:b], X[:b].T, out=product[a:b, :b])
        product[:a, a:b] = product[a:b, :a].T
    return product
