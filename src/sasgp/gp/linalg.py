"""Products with a lower triangular matrix that leave its zeros out, its inverse, and half of a symmetric product.

BLAS has them as trmm, trtri and syrk; torch does not. The matrix is cut into strips of rows: of each, what lies right
of the diagonal is left out, and products of strips go to torch. For many rows that is half of the work.
"""

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["gram", "inverse", "lower_times", "times_lower", "times_upper", "upper_times"]

WIDTH = 128  # of a strip, at the most: narrower ones leave out more zeros, but are slower for each number


def strips(n: int) -> Iterator[tuple[int, int]]:
    """First row of each strip and the first after it: all of them about as wide."""
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


def upper_times(L: Tensor, X: Tensor) -> Tensor:
    """Lᵀ X, [n, D]."""
    product = torch.empty_like(X)
    for a, b in strips(len(L)):
        torch.mm(L[a:, a:b].T, X[a:], out=product[a:b])
    return product


def times_lower(X: Tensor, L: Tensor, out: Tensor | None = None) -> Tensor:
    """X L, [M, n]."""
    product = torch.empty_like(X) if out is None else out
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
