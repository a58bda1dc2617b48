"""Metrics of arrays: how close predictions are to the data, and how well a latent space keeps its structure.

Rows are read in blocks and summed in float64, so that memory stays flat for a million memory-mapped float32 rows.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasgp.data.blocks import slices
from sasgp.errors import InputError

__all__ = [
    "bits_per_value",
    "continuity",
    "coverage",
    "knn_accuracy",
    "knn_r2",
    "mae",
    "neighbour_recall",
    "nlpd",
    "pit_counts",
    "rmse",
    "silhouette",
    "triplet_accuracy",
    "trustworthiness",
]

PIT_BINS = 200  # so that the ends of the 50, 90 and 99 % intervals are edges of bins


def rmse(X: ArrayLike, mean: ArrayLike) -> float:
    """Root mean squared error over all rows and features.

    Parameters
    ----------
    X
        Observations [N, D].
    mean
        Predictions [N, D].

    Returns
    -------
    float
        √( Σ (x − m)² / (N D) ).
    """
    X, mean = _pair(X, mean)
    total = sum(float(np.square(_residual(X, mean, rows)).sum()) for rows in slices(*X.shape))
    return math.sqrt(total / X.size)


def mae(X: ArrayLike, mean: ArrayLike) -> float:
    """Mean absolute error over all rows and features.

    Parameters
    ----------
    X
        Observations [N, D].
    mean
        Predictions [N, D].

    Returns
    -------
    float
        ``Σ |x − m| / (N D)``.
    """
    X, mean = _pair(X, mean)
    return sum(float(np.abs(_residual(X, mean, rows)).sum()) for rows in slices(*X.shape)) / X.size


def nlpd(X: ArrayLike, mean: ArrayLike, var: ArrayLike) -> float:
    """Negative log predictive density of Gaussian predictions, averaged over rows and features. Lower is better.

    It has a sign: where predictions are narrow and right, the density is above 1 and the NLPD is negative.

    Parameters
    ----------
    X
        Observations [N, D].
    mean
        Predictive means [N, D].
    var
        Predictive variances, including the noise: [N] or [N, 1] with one per row, [N, D] with one per value, or a
        single number. A one-dimensional array always has one per row, even if N = D.

    Returns
    -------
    float
        Σ ½ ( log 2πv + (x − m)² / v ) / (N D).
    """
    X, mean = _pair(X, mean)
    # −log N(x | m, v) = ½ (log 2πv + (x − m)² / v)
    total = sum(
        float((0.5 * (np.log(2 * np.pi * v) + np.square(residual) / v)).sum())
        for residual, v in _residuals(X, mean, np.asarray(var))
    )
    return total / X.size


def bits_per_value(X: ArrayLike, mean: ArrayLike, var: ArrayLike, levels: ArrayLike) -> float:
    """Bits that a value of rounded data costs under Gaussian predictions, averaged over rows and features.

    A level's probability is the mass up to half way to its neighbours, and the outermost levels take the tails. So the
    probabilities of all levels sum to 1, and unlike a density they cannot exceed 1. Lower is better.

    Parameters
    ----------
    X, mean, var
        As for `nlpd`. Each value of X counts as the nearest level.
    levels
        The values that can occur [L], at least two, in rising order: np.arange(256), or np.arange(256) / 255.

    Returns
    -------
    float
        Σ −log₂ P(x) / (N D).
    """
    X, mean = _pair(X, mean)
    levels = np.asarray(levels, np.float64)
    if levels.ndim != 1 or len(levels) < 2 or not (np.diff(levels) > 0).all():
        raise InputError("levels must be two or more numbers in rising order.", argument="levels")
    inner = (levels[1:] + levels[:-1]) / 2
    edges = np.concatenate([[-np.inf], inner, [np.inf]])
    total = 0.0
    for rows, (residual, v) in zip(slices(*X.shape), _residuals(X, mean, np.asarray(var)), strict=True):
        x, sd = X[rows].astype(np.float64), np.sqrt(v)
        level, m = np.searchsorted(inner, x), x - residual
        total -= float(_log_mass((edges[level] - m) / sd, (edges[level + 1] - m) / sd).sum())
    return total / (X.size * math.log(2))


def _log_mass(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """log(Φ(b) − Φ(a)) for a < b, to full precision however far in the tails."""
    from scipy.special import log_ndtr

    # Φ(b) − Φ(a) = Φ(−a) − Φ(−b). On the left side, log Φ(b) + log(1 − Φ(a)/Φ(b)) loses nothing
    a, b = np.where(a > 0, -b, a), np.where(a > 0, -a, b)
    top = log_ndtr(b)
    with np.errstate(divide="ignore", invalid="ignore"):
        found = top + np.log(-np.expm1(log_ndtr(a) - top))
        # Where the density hardly changes within the interval, its logarithms differ by less than they are rounded
        middle, width = (a + b) / 2, b - a
        flat = width * np.maximum(1, np.abs(middle)) < 1e-4
        return np.where(flat, -0.5 * (np.log(2 * np.pi) + np.square(middle)) + np.log(width), found)


def pit_counts(X: ArrayLike, mean: ArrayLike, var: ArrayLike) -> NDArray[np.int64]:
    """Histogram of the probability integral transform of Gaussian predictions, u = Φ((x − m) / √v).

    It is flat if the predictions are calibrated. A hump in the middle means that the variances are too large, peaks at
    both ends that they are too small. The histograms of parts of the data can be added.

    Parameters
    ----------
    X, mean, var
        As for `nlpd`.

    Returns
    -------
    ndarray [200]
        Number of values in each of 200 equal parts of [0, 1].
    """
    from scipy.special import ndtr

    X, mean = _pair(X, mean)
    counts = np.zeros(PIT_BINS, np.int64)
    for residual, v in _residuals(X, mean, np.asarray(var)):
        u = ndtr(residual / np.sqrt(v))
        if np.isnan(u).any():
            raise InputError(f"X, mean and var must be finite. {int(np.isnan(u).sum())} of the values are NaN.")
        counts += np.bincount(np.minimum((PIT_BINS * u).astype(np.int64), PIT_BINS - 1).ravel(), minlength=PIT_BINS)
    return counts


def coverage(counts: ArrayLike, level: float = 0.9) -> float:
    """Share of values within the central prediction interval of a level. Calibrated 90 % intervals give 0.9.

    Parameters
    ----------
    counts
        What `pit_counts` returns.
    level
        Level of the interval: a multiple of 0.01, such as 0.5, 0.9 or 0.99.

    Returns
    -------
    float
        Share in [0, 1].
    """
    counts = np.asarray(counts)
    outside = round((1 - level) / 2 * len(counts), 6)  # bins at either end
    if not 0 <= level <= 1 or outside % 1:
        raise InputError(
            f"level must be a multiple of {2 / len(counts):g} between 0 and 1, so that the interval ends at edges of "
            f"bins. Got {level:g}.",
            argument="level",
        )
    return float(counts[int(outside) : len(counts) - int(outside)].sum() / counts.sum())


def knn_accuracy(Z_train: ArrayLike, y_train: ArrayLike, Z_test: ArrayLike, y_test: ArrayLike, k: int = 1) -> float:
    """Accuracy of a k-nearest-neighbour classifier in the latent space.

    Parameters
    ----------
    Z_train, Z_test
        Latent coordinates [N, Q] and [M, Q].
    y_train, y_test
        Their labels, [N] and [M].
    k
        Number of neighbours that vote.

    Returns
    -------
    float
        Accuracy in [0, 1].
    """
    from sklearn.neighbors import KNeighborsClassifier

    Z, y, Z_new, y_new = _neighbours(Z_train, y_train, Z_test, y_test, k)
    for name, labels in (("train", y), ("test", y_new)):
        if labels.dtype.kind == "f" and (labels != np.rint(labels)).any():
            raise InputError(f"y_{name} must hold classes. Got fractions such as {labels[labels % 1 != 0][0]:g}.")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # … is large: that may be right here
        return float(KNeighborsClassifier(n_neighbors=k).fit(Z, y).score(Z_new, y_new))


def knn_r2(Z_train: ArrayLike, y_train: ArrayLike, Z_test: ArrayLike, y_test: ArrayLike, k: int = 15) -> float:
    """R² of the average label of the k nearest neighbours in the latent space, for labels that are measurements.

    Parameters
    ----------
    Z_train, Z_test
        Latent coordinates [N, Q] and [M, Q].
    y_train, y_test
        Their labels, [N] and [M].
    k
        Number of neighbours.

    Returns
    -------
    float
        1 − Σ (y − ŷ)² / Σ (y − ȳ)²; 1 at best, 0 for the mean.
    """
    from sklearn.neighbors import KNeighborsRegressor

    Z, y, Z_new, y_new = _neighbours(Z_train, y_train, Z_test, y_test, k)
    return float(KNeighborsRegressor(n_neighbors=k).fit(Z, y.astype(np.float64)).score(Z_new, y_new))


def _neighbours(
    Z_train: ArrayLike, y_train: ArrayLike, Z_test: ArrayLike, y_test: ArrayLike, k: int
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Latents and labels as arrays. Raise InputError if they do not fit each other."""
    Z, Z_new, y, y_new = map(np.asarray, (Z_train, Z_test, y_train, y_test))
    for name, points, labels in (("train", Z, y), ("test", Z_new, y_new)):
        if points.ndim != 2 or labels.shape != (len(points),):
            raise InputError(
                f"Z_{name} must have shape [N, Q], and y_{name} one label per row. "
                f"Got shapes {points.shape} and {labels.shape}."
            )
    if Z.shape[1] != Z_new.shape[1]:
        raise InputError(
            f"Z_train and Z_test must have the same number of columns. Got {Z.shape[1]} and {Z_new.shape[1]}."
        )
    if not len(Z_new):
        raise InputError("Z_test must hold at least one point. Got none.", argument="Z_test")
    if not 1 <= k <= len(Z):
        raise InputError(f"k must be from 1 to {len(Z)}, the number of training points. Got {k}.", argument="k")
    return Z, y, Z_new, y_new


def trustworthiness(X: ArrayLike, Z: ArrayLike, k: int = 15) -> float:
    """Whether neighbours in the latent space are also neighbours in the data (Venna & Kaski, 2001).

    Memory grows with the square of the number of rows: pass a few thousand at most.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    k
        Number of neighbours, less than N/2.

    Returns
    -------
    float
        1 if all of them are, about ½ for random latents. A row among the k nearest in Z that has rank r > k in X
        lowers it in proportion to r − k.
    """
    from sklearn import manifold

    X, Z = _points(X, Z, k)
    if 2 * k >= len(X):
        raise InputError(f"k must be less than half the number of rows, {len(X)}. Got {k}.", argument="k")
    return float(manifold.trustworthiness(X, Z, n_neighbors=k))


def continuity(X: ArrayLike, Z: ArrayLike, k: int = 15) -> float:
    """Whether neighbours in the data are also neighbours in the latent space: `trustworthiness` with X, Z swapped.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    k
        Number of neighbours.
    """
    return trustworthiness(Z, X, k)


def neighbour_recall(X: ArrayLike, Z: ArrayLike, k: int = 15) -> float:
    """Share of the k nearest neighbours in the data that are also among the k nearest in the latent space.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    k
        Number of neighbours.

    Returns
    -------
    float
        ``Σ_n |N_k(x_n) ∩ N_k(z_n)| / (N k)``: 1 if the neighbourhoods are the same, k / (N − 1) for random latents.
    """
    from sklearn.neighbors import NearestNeighbors

    X, Z = _points(X, Z, k)
    near_x, near_z = (
        NearestNeighbors(n_neighbors=k).fit(points).kneighbors(return_distance=False) for points in (X, Z)
    )
    both = (near_x[:, :, None] == near_z[:, None, :]).any(2)  # [N, k]
    return float(both.mean())


def triplet_accuracy(X: ArrayLike, Z: ArrayLike, n_triplets: int = 20_000, seed: int = 0) -> float:
    """Share of random triplets (i, j, l) for which data and latents agree whether j or l is nearer to i.

    It judges the global arrangement, which neighbourhoods say nothing about.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    n_triplets
        Number of triplets. The standard error is at most ½ / √n_triplets.
    seed
        Seed of the draw.

    Returns
    -------
    float
        1 if distances keep their order, ½ for random latents.
    """
    X, Z = _points(X, Z, 2)
    # Three different rows: the second and the third skip the rows drawn before them
    rng, N = np.random.default_rng(seed), len(X)
    i, step_j, step_l = (rng.integers(low, N - skip, n_triplets) for low, skip in ((0, 0), (1, 0), (1, 1)))
    step_l += step_l >= step_j
    j, l = (i + step_j) % N, (i + step_l) % N  # noqa: E741

    def nearer(points: NDArray[Any]) -> NDArray[np.bool_]:
        sides = [np.empty(n_triplets), np.empty(n_triplets)]
        for rows in slices(n_triplets, points.shape[1]):
            for side, other in zip(sides, (j, l), strict=True):
                side[rows] = np.square(np.subtract(points[i[rows]], points[other[rows]], dtype=np.float64)).sum(1)
        return sides[0] < sides[1]

    return float(np.mean(nearer(X) == nearer(Z)))


def silhouette(Z: ArrayLike, y: ArrayLike) -> float:
    """How well classes are separated in the latent space (Rousseeuw, 1987), from −1 to 1. 0 means that they overlap.

    Parameters
    ----------
    Z
        Latents [N, Q].
    y
        Labels [N], with at least two and fewer than N classes.

    Returns
    -------
    float
        Mean of (b − a) / max(a, b). Here a is the mean distance to the row's own class, b that to the nearest other.
    """
    from sklearn.metrics import silhouette_score

    Z, y = np.asarray(Z), np.asarray(y)
    if not 2 <= len(np.unique(y)) < len(Z):
        raise InputError(f"y must have from 2 to {len(Z) - 1} different labels. Got {len(np.unique(y))}.", argument="y")
    return float(silhouette_score(Z, y))


def _points(X: ArrayLike, Z: ArrayLike, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    X, Z = np.asarray(X), np.asarray(Z)
    if X.ndim != 2 or Z.ndim != 2 or len(X) != len(Z):
        raise InputError(f"X [N, D] and Z [N, Q] must have the same number of rows. Got {X.shape} and {Z.shape}.")
    if not 1 <= k < len(X):
        raise InputError(f"There must be more rows than neighbours. Got {len(X)} rows and {k} neighbours.")
    return X, Z


def _pair(X: ArrayLike, mean: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    X, mean = np.asarray(X), np.asarray(mean)
    if X.ndim != 2 or X.shape != mean.shape or not X.size:
        raise InputError(
            f"X and mean must have the same shape [N, D] and must not be empty. Got {X.shape} and {mean.shape}."
        )
    return X, mean


def _residuals(X: NDArray[Any], mean: NDArray[Any], V: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Residuals [block, D] and their variances, [block, D] or [block, 1]."""
    n, d = X.shape
    if V.shape not in ((), (n,), (n, 1), (n, d)):
        raise InputError(
            f"var must have shape ({n},), ({n}, 1) or ({n}, {d}) for X of shape ({n}, {d}). Got {V.shape}.",
            argument="var",
        )
    if V.ndim == 0:
        V = np.broadcast_to(V, n)
    if V.ndim == 1:
        V = V[:, None]
    for rows in slices(n, d):
        v = V[rows].astype(np.float64)
        if (v <= 0).any():
            raise InputError(
                f"var must be positive. Got {v.min():g}. Check that these are variances and include the noise.",
                argument="var",
            )
        yield _residual(X, mean, rows), v


def _residual(X: NDArray[Any], mean: NDArray[Any], rows: slice) -> NDArray[np.float64]:
    return np.subtract(X[rows], mean[rows], dtype=np.float64)
