"""Counts of single cells as scores: a cell's counts are scaled to a common total, then s = log1p(count).

Cells differ in how many molecules were caught, which says little about them. With x a count, n the total of its cell
over all genes, and m the median total of the training cells,

    s = log(1 + x m / n)        ∂s/∂x = (m / n) / (1 + x m / n) = (m / n) exp(−s)        x = (exp(s) − 1) n / m.

Zeros stay zeros, so a sparse matrix stays sparse.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from sasgp.data.blocks import slices

__all__ = ["SizeFactors", "are_counts"]

Array = NDArray[np.float64]


def are_counts(values: NDArray[Any]) -> bool:
    """Whether all values are whole numbers of at least 0."""
    if values.dtype.kind not in "uif":
        return False
    values = values.reshape(-1)
    for part in slices(len(values), 1):
        block = values[part]
        if (block < 0).any() or (
            block.dtype.kind == "f" and not (np.isfinite(block) & (block == np.rint(block))).all()
        ):
            return False
    return True


@dataclass(frozen=True)
class SizeFactors:
    """The map between counts and scores. `median` is m, the total that all cells are scaled to."""

    median: float

    @classmethod
    def from_totals(cls, totals: ArrayLike) -> Self:
        """The map for training cells with these totals."""
        return cls(float(np.median(_filled(totals))))

    def factors(self, totals: ArrayLike) -> Array:
        """The factor m / n of each cell. An empty cell has only zeros, and counts as one with a total of 1."""
        return self.median / _filled(totals)

    def scores(self, X: Any, totals: ArrayLike) -> Any:
        """Scores of counts X [N, D], in float32: sparse if X is sparse."""
        factors = self.factors(totals)
        if issparse(X):
            scores = csr_array(X, dtype=np.float32, copy=True)
            scores.data *= np.repeat(factors, np.diff(scores.indptr)).astype(np.float32)
            np.log1p(scores.data, out=scores.data)
            return scores
        dense = np.array(X, dtype=np.float32)
        dense *= factors[:, None].astype(np.float32)
        return np.log1p(dense, out=dense)

    def log_jacobian(self, score_sums: ArrayLike, n_features: int, totals: ArrayLike) -> Array:
        """The log |∂s/∂x| of each cell, from the sums of its scores. It turns densities of scores into those of counts.

        Counts are whole numbers, so the density of x is about the probability of each.
        """
        # Σ_d log ∂s_d/∂x_d = D log(m / n) − Σ_d s_d
        return n_features * np.log(self.factors(totals)) - np.asarray(score_sums, np.float64)

    def expected_counts(self, mean: ArrayLike, std: ArrayLike, totals: ArrayLike) -> Array:
        """Counts [N, D] that are expected for scores with these means and standard deviations [N, D]."""
        # s ~ N(μ, σ²): E x = (E exp(s) − 1) n / m, and E exp(s) = exp(μ + σ²/2)
        mean, variance = np.asarray(mean, np.float64), np.square(np.asarray(std, np.float64))
        return np.expm1(mean + variance / 2) / self.factors(totals)[:, None]


def _filled(totals: ArrayLike) -> Array:
    return np.maximum(np.asarray(totals, np.float64), 1.0)
