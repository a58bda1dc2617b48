"""Neighbours by the distance that a decoder measures in the data, beside neighbours in its latent space."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import r2_score

from sasgp import evaluation
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.estimators.gp import GPEstimator

__all__ = ["knn_by_distance"]

Array = NDArray[Any]

MOST, MOST_NEIGHBOURS = 1000, 5000  # rows of which neighbours are searched for, and rows that may be these
FEWER = 3  # times, in more than two dimensions, where distances take longer


def knn_by_distance(
    model: "GPEstimator",
    Z: Array,
    y: Array,
    Z_train: Array | None = None,
    y_train: Array | None = None,
    seed: int = 0,
) -> tuple[dict[str, float], str]:
    """How well nearest neighbours predict labels, by `model.distance` and by the distance in the latent space.

    Parameters
    ----------
    model
        A fitted Gaussian-process decoder.
    Z, y
        Latents [M, Q] and their tidy labels [M]. At most 1000 random ones are used, 333 in more than two dimensions.
    Z_train, y_train
        Latents and labels of rows that neighbours are searched for among, at most 5000, or 1666. None: among Z, where
        a row is not its own neighbour.
    seed
        Of the random rows.

    Returns
    -------
    dict
        `geodesic_knn_1`, `euclidean_knn_1` and so on, with the names that `knn` has.
    str
        In words, which rows were used.
    """
    rng = np.random.default_rng(seed)

    def some(n: int, most: int) -> Array:
        return np.sort(rng.permutation(n)[: most if Z.shape[1] <= 2 else most // FEWER])

    rows = some(len(Z), MOST)
    Z, y = Z[rows], y[rows]
    among = f"neighbours of {len(Z)} rows among themselves"
    own = Z_train is None or y_train is None
    if Z_train is None or y_train is None:
        Z_train, y_train = Z, y
    else:
        rows = some(len(Z_train), MOST_NEIGHBOURS)
        Z_train, y_train = Z_train[rows], y_train[rows]
        among = f"neighbours of {len(Z)} rows among {len(Z_train)} training rows"
    if len(Z_train) <= evaluation.NEIGHBOURS[0]:
        raise InputError(f"Neighbours need at least two rows with labels. Got {len(Z_train)}.", argument="y")
    squares = np.square(Z[:, None].astype(np.float64) - Z_train).sum(2)
    found: dict[str, float] = {}
    for name, distances in (("geodesic", model.distance(Z, Z_train).astype(np.float64)), ("euclidean", squares)):
        if own:
            np.fill_diagonal(distances, np.inf)
        found |= {f"{name}_{key}": value for key, value in _knn(distances, y_train, y, own).items()}
    return found, among


def _knn(distances: Array, y_train: Array, y: Array, own: bool) -> dict[str, float]:
    """As `knn`, from distances [M, N]."""
    order = np.argsort(distances, axis=1, kind="stable")
    sizes = [k for k in evaluation.NEIGHBOURS if k <= len(y_train) - own]
    if evaluation.are_measurements(y_train):
        k = evaluation.NEIGHBOURS[-1]
        means = y_train.astype(np.float64)[order[:, :k]].mean(1)
        return {f"knn_r2_{k}": float(r2_score(y.astype(np.float64), means))} if k in sizes else {}
    classes, codes = np.unique(np.concatenate([y_train.astype(np.str_), y.astype(np.str_)]), return_inverse=True)
    near, truth = codes[: len(y_train)][order], codes[len(y_train) :]
    found = {}
    for k in sizes:
        votes = np.apply_along_axis(np.bincount, 1, near[:, :k], minlength=len(classes))
        found[f"knn_{k}"] = float((votes.argmax(1) == truth).mean())  # the first of several classes with as many votes
    return found
