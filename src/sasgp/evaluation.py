"""Honest numbers: rows that training does not see, and what they say about a model.

Every metric here is through the latent space, z = encoder(x): how well a row is reconstructed from its own latent
position, not how well one is predicted that nobody has seen.
"""

from dataclasses import dataclass
from typing import Any, Protocol, TypeGuard

import numpy as np
from numpy.typing import NDArray

from sasgp import metrics
from sasgp.data.named import Dataset
from sasgp.data.rows import take_rows
from sasgp.errors import InputError

__all__ = [
    "Part",
    "Split",
    "are_classes",
    "hold_out",
    "knn",
    "knn_cross_validated",
    "pca_rmse",
    "quality",
    "reconstruction",
    "structure",
    "tidy_labels",
]

Array = NDArray[Any]

TEST_FRACTION, MAX_TEST_ROWS = 0.1, 10_000
MIN_ROWS = 50  # below, nothing is held out unless asked for: neither part would be enough
MAX_COPIED = 1 << 26  # bytes: larger files are cut in two, because a shuffle would copy them into memory
VALUES_AT_ONCE = 4_000_000
NEIGHBOURS = (1, 15)
LEVELS = (50, 90, 99)  # of intervals, in per cent
FOLDS = 5
STRUCTURE_ROWS = 2000  # whose distances are all looked at: a second, and good to ±.01
MAX_EVALUATED = 10_000  # training rows that are decoded where none were held out
PCA_VALUES, PCA_ROWS = 50_000_000, 20_000  # principal axes of more rows are the same to three digits


class Model(Protocol):
    """What of an estimator is measured."""

    embedding_: Array

    @property
    def n_components_(self) -> int: ...

    def transform(self, X: Any) -> Array: ...

    def predict(self, Z: Any, return_std: bool = False) -> Any: ...


@dataclass(frozen=True)
class Part:
    """Rows, their labels where there are labels, and their place in the data."""

    X: Array
    y: Array | None
    rows: Array


@dataclass(frozen=True)
class Split:
    """Rows to train on and rows held out, where there are any; `how` says in words which those are."""

    train: Part
    test: Part | None
    how: str


def hold_out(data: Dataset, test_fraction: float | None, seed: int) -> Split:
    """Hold rows out for testing.

    Parameters
    ----------
    data
        One with a test split of its own keeps it.
    test_fraction
        Share of the rows. None: a tenth, but at most 10 000 rows, and nothing of fewer than 50. 0: nothing.
    seed
        Of the shuffle. Files above 64 MiB that stay on disk are not shuffled: their last rows are held out.
    """
    X, y, N = data.X, tidy_labels(data.y), len(data.X)
    everything = Part(X, y, np.arange(N))
    if data.X_test is not None:
        if test_fraction is not None:
            raise InputError(
                f"{data.name} has its own test split. Leave out test_fraction={test_fraction:g}.",
                argument="test_fraction",
            )
        test = Part(data.X_test, tidy_labels(data.y_test), np.arange(len(data.X_test)))
        return Split(everything, test, f"the test split of {data.name}")
    if test_fraction is None:
        n_test = min(round(TEST_FRACTION * N), MAX_TEST_ROWS) if N >= MIN_ROWS else 0
    elif not 0 <= test_fraction < 1:
        raise InputError(
            f"test_fraction must be at least 0 and less than 1. Got {test_fraction:g}.", argument="test_fraction"
        )
    else:
        n_test = round(test_fraction * N)
    if not n_test:
        return Split(everything, None, "nothing was held out")
    if n_test > N - 2:
        raise InputError(
            f"test_fraction must leave at least 2 rows to train on. Got {test_fraction:g} of {N} rows. Lower it.",
            argument="test_fraction",
        )

    def part(chosen: Any) -> Part:
        return Part(X[chosen], None if y is None else y[chosen], everything.rows[chosen])

    if isinstance(X, np.memmap) and X.nbytes > MAX_COPIED:
        return Split(part(slice(0, N - n_test)), part(slice(N - n_test, N)), "the last rows")
    order = np.random.default_rng(seed).permutation(N)
    return Split(part(np.sort(order[n_test:])), part(np.sort(order[:n_test])), "drawn at random")


def quality(model: Model, split: Split, Z_test: Array | None, seed: int) -> dict[str, Any]:
    """Metrics on the rows held out, whose latents are Z_test, or where there are none on training rows."""
    train, test = split.train, split.test
    if test is None or Z_test is None:
        some = np.sort(np.random.default_rng(seed).permutation(len(train.X))[:MAX_EVALUATED])
        X, y, Z = take_rows(train.X, some), None if train.y is None else train.y[some], model.embedding_[some]
        neighbours = knn_cross_validated(Z, y)
    else:
        X, y, Z = test.X, test.y, Z_test
        neighbours = knn(model.embedding_, train.y, Z, y)
    found: dict[str, Any] = {"rows": len(X), **reconstruction(model, X, Z)}
    del found["pit"]  # for pictures
    found["pca_rmse"] = pca_rmse(train.X, X, model.n_components_, seed)
    return found | neighbours | structure(X, Z, y, seed)


def structure(X: Array, Z: Array, y: Array | None, seed: int = 0) -> dict[str, float]:
    """How the latents Z [N, Q] of rows X [N, D] are arranged, among at most 2000 of them that are drawn at random.

    trustworthiness, continuity and recall of 15 neighbours, the share of triplets in the right order, and where labels
    name classes their silhouette. Of fewer than 32 rows nothing is said.
    """
    k = NEIGHBOURS[-1]
    if len(X) < 2 * k + 2:
        return {}
    some = np.sort(np.random.default_rng(seed).permutation(len(X))[:STRUCTURE_ROWS])
    X, Z = take_rows(X, some), Z[some]
    found = {
        "trustworthiness": metrics.trustworthiness(X, Z, k),
        "continuity": metrics.continuity(X, Z, k),
        "neighbour_recall": metrics.neighbour_recall(X, Z, k),
        "triplets": metrics.triplet_accuracy(X, Z, seed=seed),
    }
    if are_classes(y) and 2 <= len(np.unique(y[some])) < len(some):
        found["silhouette"] = metrics.silhouette(Z, y[some])
    return found


def reconstruction(model: Model, X: Array, Z: Array) -> dict[str, Any]:
    """How well rows X [N, D] are decoded from their latents Z [N, Q], a block at a time.

    rmse, mae and nlpd; coverage of the central 50, 90 and 99 % intervals; `pit`, the counts of `metrics.pit_counts`.
    """
    step = max(1, VALUES_AT_ONCE // X.shape[1])
    squares = absolute = density = 0.0
    pit = np.zeros(metrics.PIT_BINS, np.int64)
    for start in range(0, len(X), step):
        block = np.asarray(X[start : start + step])
        mean, std = model.predict(Z[start : start + step], return_std=True)
        squares += len(block) * metrics.rmse(block, mean) ** 2
        absolute += len(block) * metrics.mae(block, mean)
        var = np.square(std, dtype=np.float64)
        density += len(block) * metrics.nlpd(block, mean, var)
        pit += metrics.pit_counts(block, mean, var)
    found = {"rmse": float(np.sqrt(squares / len(X))), "mae": absolute / len(X), "nlpd": density / len(X)}
    intervals = {f"coverage_{level}": metrics.coverage(pit, level / 100) for level in LEVELS}
    return found | intervals | {"pit": pit.tolist()}


def tidy_labels(y: Array | None) -> Array | None:
    """Labels in the form that a text file gives back: whole numbers as integers, bytes and truth values as text."""
    if y is None or y.dtype.kind not in "fSb":
        return y
    if y.dtype.kind == "f":
        return y.astype(np.int64) if (np.isfinite(y) & (y % 1 == 0)).all() else y
    return np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else np.where(y, "true", "false")


def are_classes(y: Array | None) -> TypeGuard[Array]:
    """Whether tidy labels name classes, which neighbours can vote for, rather than measure something."""
    return y is not None and y.dtype.kind != "f"


def knn(Z_train: Array, y_train: Array | None, Z: Array, y: Array | None) -> dict[str, float]:
    """Accuracy of 1 and 15 nearest neighbours among the training rows, where there are as many, and labels."""
    if not are_classes(y_train) or not are_classes(y):
        return {}
    train, test = y_train.astype(np.str_), y.astype(np.str_)  # those of a file are text: "3" is the class 3
    return {f"knn_{k}": metrics.knn_accuracy(Z_train, train, Z, test, k) for k in NEIGHBOURS if k <= len(Z_train)}


def knn_cross_validated(Z: Array, y: Array | None, seed: int = 0) -> dict[str, float]:
    """The same where the rows themselves are all there is: a fifth of them in turn, by neighbours among the rest."""
    if not are_classes(y):
        return {}
    N = len(Z)
    folds = np.random.default_rng(seed).permutation(N) % FOLDS
    if N < 2 * FOLDS:
        return {}
    tests = [folds == fold for fold in range(FOLDS)]
    found = [knn(Z[~test], y[~test], Z[test], y[test]) for test in tests]
    everywhere = set.intersection(*map(set, found))  # a fold with fewer neighbours than 15 has no such accuracy
    shares = [test.mean() for test in tests]
    return {name: float(np.dot([one[name] for one in found], shares)) for name in found[0] if name in everywhere}


def pca_rmse(X_train: Array, X: Array, n_components: int, seed: int) -> float:
    """RMSE of rows X through as many principal components, those of (at most 20 000 of) the training rows."""
    from sklearn.utils.extmath import randomized_svd

    N, D = X_train.shape
    n_rows = min(N, PCA_ROWS, max(PCA_VALUES // D, 10 * n_components))
    some = np.sort(np.random.default_rng(seed).choice(N, n_rows, replace=False))
    rows = take_rows(X_train, some).astype(np.float64 if X_train.dtype == np.float64 else np.float32)
    mean = rows.mean(0)
    # sklearn's PCA divides by the variance, and constant data have none
    axes = randomized_svd(rows - mean, min(n_components, *rows.shape), random_state=seed)[2]  # [Q, D]
    squares, step = 0.0, max(1, VALUES_AT_ONCE // D)
    for start in range(0, len(X), step):
        block = X[start : start + step].astype(rows.dtype)
        squares += len(block) * metrics.rmse(block, mean + (block - mean) @ axes.T @ axes) ** 2
    return float(np.sqrt(squares / len(X)))
