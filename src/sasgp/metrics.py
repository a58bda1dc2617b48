"""How far decoded data are from the data, and how well a latent space keeps neighbours and labels together.

Rows are read in blocks and summed in float64, so that memory stays flat for a million memory-mapped float32 rows.
"""

import math
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasgp.errors import InputError

__all__ = [
    "PIT_BINS",
    "continuity",
    "coverage",
    "knn_accuracy",
    "mae",
    "neighbour_recall",
    "nlpd",
    "pit_counts",
    "rmse",
    "silhouette",
    "triplet_accuracy",
    "trustworthiness",
]

BLOCK = 1 << 20  # values in a block: 8 MB in float64
PIT_BINS = 200  # the edges of 50, 90 and 99 % intervals are among theirs


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
    total = sum(float(np.square(_residual(X, mean, rows)).sum()) for rows in _blocks(X))
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
        Σ |x − m| / (N D).
    """
    X, mean = _pair(X, mean)
    return sum(float(np.abs(_residual(X, mean, rows)).sum()) for rows in _blocks(X)) / X.size


def nlpd(X: ArrayLike, mean: ArrayLike, var: ArrayLike) -> float:
    """Negative log predictive density of Gaussian predictions, averaged over rows and features; lower is better.

    It is signed: a narrow and right prediction has a density above 1, and a negative NLPD.

    Parameters
    ----------
    X
        Observations [N, D].
    mean
        Predictive means [N, D].
    var
        Predictive variances, noise included: [N] or [N, 1] for one a row, [N, D] for one a value, or a single number.
        One axis always means one a row, also where N = D.

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


def pit_counts(X: ArrayLike, mean: ArrayLike, var: ArrayLike) -> NDArray[np.int64]:
    """Histogram of the probability integral transform of Gaussian predictions, u = Φ((x − m) / √v).

    Calibrated predictions make it flat. A hump in the middle says that variances are too large, horns at the ends that
    they are too small. Histograms of parts of the data may be added up.

    Parameters
    ----------
    X, mean, var
        As for `nlpd`.

    Returns
    -------
    ndarray [PIT_BINS]
        How many values fall into each of equal parts of [0, 1].
    """
    from scipy.special import ndtr

    X, mean = _pair(X, mean)
    counts = np.zeros(PIT_BINS, np.int64)
    for residual, v in _residuals(X, mean, np.asarray(var)):
        u = ndtr(residual / np.sqrt(v))
        if np.isnan(u).any():
            raise InputError(f"X, mean and var must be finite. Got {int(np.isnan(u).sum())} values that are NaN.")
        counts += np.bincount(np.minimum((PIT_BINS * u).astype(np.int64), PIT_BINS - 1).ravel(), minlength=PIT_BINS)
    return counts


def coverage(counts: ArrayLike, level: float = 0.9) -> float:
    """Share of values within the central interval of a level: 0.9 where 90 % intervals are calibrated.

    Parameters
    ----------
    counts
        Of `pit_counts`.
    level
        Of the interval; a multiple of 2 / PIT_BINS, such as 0.5, 0.9 or 0.99.

    Returns
    -------
    float
    """
    counts = np.asarray(counts)
    outside = round((1 - level) / 2 * len(counts), 6)  # bins at either end
    if not 0 <= level <= 1 or outside % 1:
        raise InputError(
            f"level must be a multiple of {2 / len(counts):g} between 0 and 1, where bins have edges. Got {level:g}."
        )
    return float(counts[int(outside) : len(counts) - int(outside)].sum() / counts.sum())


def knn_accuracy(Z_train: ArrayLike, y_train: ArrayLike, Z_test: ArrayLike, y_test: ArrayLike, k: int = 1) -> float:
    """Share of test points whose label their k nearest training points vote for.

    Parameters
    ----------
    Z_train, Z_test
        Latent coordinates [N, Q] and [M, Q].
    y_train, y_test
        Their labels, [N] and [M].
    k
        Neighbours that vote.

    Returns
    -------
    float
        Accuracy in [0, 1].
    """
    from sklearn.neighbors import KNeighborsClassifier

    Z, Z_new, y, y_new = map(np.asarray, (Z_train, Z_test, y_train, y_test))
    for name, points, labels in (("train", Z, y), ("test", Z_new, y_new)):
        if points.ndim != 2 or labels.shape != (len(points),):
            raise InputError(
                f"Z_{name} must have shape [N, Q] and y_{name} one label a row. Got {points.shape} and {labels.shape}."
            )
        if labels.dtype.kind == "f" and (labels != np.rint(labels)).any():
            raise InputError(f"y_{name} must hold class labels. Got fractions such as {labels[labels % 1 != 0][0]:g}.")
    if Z.shape[1] != Z_new.shape[1]:
        raise InputError(f"Z_train and Z_test must have the same columns. Got {Z.shape[1]} and {Z_new.shape[1]}.")
    if not 1 <= k <= len(Z) or not len(Z_new):
        raise InputError(
            f"k must be from 1 to the {len(Z)} training points, with a test point to classify. "
            f"Got k={k} and {len(Z_new)} test points."
        )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The number of unique classes")  # is large, and might be a mistake elsewhere
        return float(KNeighborsClassifier(n_neighbors=k).fit(Z, y).score(Z_new, y_new))


def trustworthiness(X: ArrayLike, Z: ArrayLike, k: int = 15) -> float:
    """Whether neighbours in the latent space are neighbours in the data (Venna & Kaski, 2001).

    Memory grows with the square of the rows: take a few thousand.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    k
        Neighbours, fewer than N/2.

    Returns
    -------
    float
        1 where all are. Less for every row among the k nearest in Z that in X has rank r > k, by r − k; about ½ for
        latents at random.
    """
    from sklearn import manifold

    X, Z = _points(X, Z, k)
    if 2 * k >= len(X):
        raise InputError(f"k must be less than half of the {len(X)} rows. Got k={k}; lower it.")
    return float(manifold.trustworthiness(X, Z, n_neighbors=k))


def continuity(X: ArrayLike, Z: ArrayLike, k: int = 15) -> float:
    """Whether neighbours in the data are neighbours in the latent space: `trustworthiness` with X and Z exchanged."""
    return trustworthiness(Z, X, k)


def neighbour_recall(X: ArrayLike, Z: ArrayLike, k: int = 15) -> float:
    """Share of a row's k nearest neighbours in the data that are among its k nearest in the latent space.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    k
        Neighbours.

    Returns
    -------
    float
        Σ_n |N_k(x_n) ∩ N_k(z_n)| / (N k): 1 where neighbourhoods are the same, k / (N − 1) for latents at random.
    """
    from sklearn.neighbors import NearestNeighbors

    X, Z = _points(X, Z, k)
    near_x, near_z = (
        NearestNeighbors(n_neighbors=k).fit(points).kneighbors(return_distance=False) for points in (X, Z)
    )
    both = (near_x[:, :, None] == near_z[:, None, :]).any(2)  # [N, k]
    return float(both.mean())


def triplet_accuracy(X: ArrayLike, Z: ArrayLike, n_triplets: int = 20_000, seed: int = 0) -> float:
    """Share of random triplets (i, j, l) of which the latents say, as the data do, whether j or l is nearer to i.

    It looks at the arrangement as a whole, which neighbourhoods say nothing about.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    n_triplets
        How many are drawn; 20 000 are good to ±.004.
    seed
        Of the draw.

    Returns
    -------
    float
        1 where distances keep their order, ½ for latents at random.
    """
    X, Z = _points(X, Z, 2)
    # Three different rows: the second and third skip those drawn before
    rng, N = np.random.default_rng(seed), len(X)
    i, step_j, step_l = (rng.integers(low, N - skip, n_triplets) for low, skip in ((0, 0), (1, 0), (1, 1)))
    step_l += step_l >= step_j
    j, l = (i + step_j) % N, (i + step_l) % N  # noqa: E741

    def nearer(points: NDArray[Any]) -> NDArray[np.bool_]:
        sides = [np.empty(n_triplets), np.empty(n_triplets)]
        size = max(1, BLOCK // points.shape[1])
        for rows in (slice(start, start + size) for start in range(0, n_triplets, size)):
            for side, other in zip(sides, (j, l), strict=True):
                side[rows] = np.square(np.subtract(points[i[rows]], points[other[rows]], dtype=np.float64)).sum(1)
        return sides[0] < sides[1]

    return float(np.mean(nearer(X) == nearer(Z)))


def silhouette(Z: ArrayLike, y: ArrayLike) -> float:
    """How well the labels' clusters are apart in the latent space (Rousseeuw, 1987): −1 to 1, and 0 where they overlap.

    Parameters
    ----------
    Z
        Latents [N, Q].
    y
        Labels [N], of at least two and fewer than N classes.

    Returns
    -------
    float
        Mean of (b − a) / max(a, b), a being the mean distance to the row's own class and b to the nearest other.
    """
    from sklearn.metrics import silhouette_score

    Z, y = np.asarray(Z), np.asarray(y)
    if not 2 <= len(np.unique(y)) < len(Z):
        raise InputError(f"y must have from 2 to {len(Z) - 1} different labels. Got {len(np.unique(y))}.")
    return float(silhouette_score(Z, y))


def _points(X: ArrayLike, Z: ArrayLike, k: int) -> tuple[NDArray[Any], NDArray[Any]]:
    X, Z = np.asarray(X), np.asarray(Z)
    if X.ndim != 2 or Z.ndim != 2 or len(X) != len(Z):
        raise InputError(f"X and Z must have as many rows each, [N, D] and [N, Q]. Got {X.shape} and {Z.shape}.")
    if not 1 <= k < len(X):
        raise InputError(f"Expected more rows than neighbours, of which there are k={k}. Got {len(X)} rows.")
    return X, Z


def _pair(X: ArrayLike, mean: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    X, mean = np.asarray(X), np.asarray(mean)
    if X.ndim != 2 or X.shape != mean.shape or not X.size:
        raise InputError(
            f"X and mean must have the same shape [N, D], with something in it. Got {X.shape} and {mean.shape}."
        )
    return X, mean


def _residuals(X: NDArray[Any], mean: NDArray[Any], V: NDArray[Any]) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """Residuals [block, D] and their variances, [block, D] or [block, 1]."""
    n, d = X.shape
    if V.shape not in ((), (n,), (n, 1), (n, d)):
        raise InputError(
            f"var must have shape ({n},), ({n}, 1) or ({n}, {d}) to go with X of shape ({n}, {d}). Got {V.shape}."
        )
    if V.ndim == 0:
        V = np.broadcast_to(V, n)
    if V.ndim == 1:
        V = V[:, None]
    for rows in _blocks(X):
        v = V[rows].astype(np.float64)
        if (v <= 0).any():
            raise InputError(
                f"var must be positive. Got {v.min():g}: is it a standard deviation, or without the noise?"
            )
        yield _residual(X, mean, rows), v


def _blocks(X: NDArray[Any]) -> Iterator[slice]:
    step = max(1, BLOCK // X.shape[1])
    return (slice(start, start + step) for start in range(0, len(X), step))


def _residual(X: NDArray[Any], mean: NDArray[Any], rows: slice) -> NDArray[np.float64]:
    return np.subtract(X[rows], mean[rows], dtype=np.float64)
