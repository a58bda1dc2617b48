"""How good a fitted decoder is on rows that training did not see.

`structure` is public: it says how well latents keep neighbours and distances. The commands `sasgp fit` and
`sasgp evaluate` print it with the other metrics.
"""

# Metrics of decoded rows go through the latent space, z = encoder(x): they measure how well a row is reconstructed from
# its own latent position, not how well an unseen row is predicted.

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeGuard

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasgp import metrics
from sasgp.data.blocks import slices
from sasgp.data.rows import moments, read_rows, take_rows
from sasgp.data.tables import DiskTable, read_frame
from sasgp.errors import InputError
from sasgp.evaluation import tables

if TYPE_CHECKING:
    from sasgp.data.named import Dataset
    from sasgp.estimators.protocol import Decoder

__all__ = ["structure"]

Array = NDArray[Any]

TEST_FRACTION, MAX_TEST_ROWS = 0.1, 10_000
MIN_ROWS = 50  # with fewer rows nothing is held out unless asked for: neither part would be large enough
MAX_COPIED = 1 << 26  # bytes: larger files are cut in two, because a shuffle would copy them into memory
NEIGHBOURS = (1, 15)
LEVELS = (50, 90, 99)  # of the intervals, in per cent
LEVEL_VALUES = 500_000  # that are looked at to recognise 8-bit data
FOLDS = 5
MOST_CLASSES = 30  # of whole numbers with more values than this and than a twentieth of the rows, R² is measured
STRUCTURE_ROWS = 2000  # all distances between them are computed
MAX_EVALUATED = 10_000  # training rows that are decoded if no rows were held out
PCA_ROWS = 20_000  # the principal axes of more rows are the same to three digits
PCA_VALUES = 50_000_000  # of these rows, so that they fit in memory


@dataclass(frozen=True)
class Part:
    """Rows, their labels if there are any, and their row numbers in the data."""

    X: Array
    y: Array | None
    rows: Array


@dataclass(frozen=True)
class Split:
    """Training rows, and held-out rows if there are any; `how` says in words how these were chosen."""

    train: Part
    test: Part | None
    how: str


def hold_out(data: "Dataset", test_fraction: float | None, seed: int) -> Split:
    """Hold rows out for testing.

    Parameters
    ----------
    data
        The data set. If it has its own test split, that split is used.
    test_fraction
        Share of the rows to hold out. None holds out a tenth, at most 10 000 rows, and nothing if there are fewer than
        50 rows. 0 holds out nothing.
    seed
        Seed of the shuffle. Files above 64 MiB that stay on disk, and large .parquet files, are not shuffled: their
        last rows are held out.
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

    if isinstance(X, DiskTable) or (isinstance(X, np.memmap) and X.nbytes > MAX_COPIED):
        return Split(part(slice(0, N - n_test)), part(slice(N - n_test, N)), "the last rows")
    order = np.random.default_rng(seed).permutation(N)
    return Split(part(np.sort(order[n_test:])), part(np.sort(order[:n_test])), "drawn at random")


def quality(model: "Decoder", split: Split, Z_test: Array | None, seed: int) -> dict[str, Any]:
    """All metrics on the held-out rows, whose latents are Z_test. Without held-out rows, on training rows."""
    train, test = split.train, split.test
    if test is None or Z_test is None:
        some = np.sort(np.random.default_rng(seed).permutation(len(train.X))[:MAX_EVALUATED])
        X, y, Z = take_rows(train.X, some), None if train.y is None else train.y[some], model.embedding_[some]
        neighbours = knn_cross_validated(Z, y)
    else:
        X, y, Z = test.X, test.y, Z_test
        neighbours = knn(model.embedding_, train.y, Z, y)
    if model.columns_ is not None:
        some = np.sort(np.random.default_rng(seed).permutation(len(train.X))[:PCA_ROWS])
        return {"rows": len(X), **_table(model, take_rows(train.X, some), X, Z), **neighbours} | structure(
            tables.standardised(model.columns_, table_numbers(model, X)), Z, y, seed
        )
    found: dict[str, Any] = {"rows": len(X), **reconstruction(model, X, Z)}
    del found["pit"]  # it is for figures
    found["pca_rmse"] = pca_rmse(train.X, X, model.n_components_, seed, by_feature=model.noise_kind_ == "feature")
    return found | neighbours | structure(X, Z, y, seed)


def table_numbers(model: "Decoder", X: Any) -> Array:
    """A table as numbers [N, C], for a model that was trained on such tables."""
    return model.columns_.values(read_frame(X).frame)


def _table(model: "Decoder", train: Any, X: Any, Z: Array) -> dict[str, Any]:
    """The metrics of reconstructed rows of a table, and the RMSE of principal components beside them."""
    values = table_numbers(model, X)
    sums = tables.table_sums(model, values, Z)
    found = sums.metrics() | {"by_column": sums.by_column()}
    pca = tables.table_pca_rmse(model.columns_, table_numbers(model, train), values, model.n_components_)
    return found if pca is None else found | {"pca_rmse": pca}


def structure(X: Array, Z: Array, y: Array | None, seed: int = 0) -> dict[str, float]:
    """How well the latents Z [N, Q] keep the structure of the rows X [N, D].

    Returns the trustworthiness, continuity and recall of 15 neighbours, the share of triplets in the right order and,
    if the labels are classes, their silhouette. At most 2000 random rows are used. The result is empty for fewer than
    32 rows.

    Parameters
    ----------
    X
        Observations [N, D].
    Z
        Their latents [N, Q].
    y
        Labels [N], or None.
    seed
        Seed of the random rows.
    """
    k = NEIGHBOURS[-1]
    if len(X) < 2 * k + 2:
        return {}
    some = np.sort(np.random.default_rng(seed).permutation(len(X))[:STRUCTURE_ROWS])
    X, Z = mean_filled(take_rows(X, some)), Z[some]
    found = {
        "trustworthiness": metrics.trustworthiness(X, Z, k),
        "continuity": metrics.continuity(X, Z, k),
        "neighbour_recall": metrics.neighbour_recall(X, Z, k),
        "triplets": metrics.triplet_accuracy(X, Z, seed=seed),
    }
    if are_classes(y) and 2 <= len(np.unique(y[some])) < len(some):
        found["silhouette"] = metrics.silhouette(Z, y[some])
    return found


@dataclass(frozen=True)
class ReconstructionSums:
    """What the metrics of reconstructed rows are made from. The sums of parts of the data can be added.

    `squares`, `absolute`, `density` and `bits` are sums over rows of means over features. Bits are NaN if they were not
    counted for some rows, because the data are not 8-bit. Missing values are left out: a row counts by the share of
    features that it has.
    """

    rows: float = 0
    squares: float = 0.0
    absolute: float = 0.0
    density: float = 0.0
    bits: float = 0.0
    pit: NDArray[np.int64] = field(default_factory=lambda: np.zeros(metrics.PIT_BINS, np.int64))

    LENGTH: ClassVar[int] = 5 + metrics.PIT_BINS

    def __add__(self, other: Self) -> Self:
        return self.from_vector(self.as_vector() + other.as_vector())

    def as_vector(self) -> NDArray[np.float64]:
        """All sums as one vector [LENGTH], which several processes can add. It holds counts exactly up to 2⁵³."""
        return np.array([self.rows, self.squares, self.absolute, self.density, self.bits, *self.pit], np.float64)

    @classmethod
    def from_vector(cls, vector: NDArray[np.float64]) -> Self:
        rows, squares, absolute, density, bits = vector[:5].tolist()
        return cls(rows, squares, absolute, density, bits, vector[5:].astype(np.int64))

    def metrics(self) -> dict[str, Any]:
        """The numbers that `reconstruction` returns."""
        N = self.rows
        found = {"rmse": float(np.sqrt(self.squares / N)), "mae": self.absolute / N, "nlpd": self.density / N}
        if not np.isnan(self.bits):
            found["bits"] = self.bits / N
        intervals = {f"coverage_{level}": metrics.coverage(self.pit, level / 100) for level in LEVELS}
        return found | intervals | {"pit": self.pit.tolist()}


def reconstruction(model: "Decoder", X: Array, Z: Array, predict: Callable[..., Any] | None = None) -> dict[str, Any]:
    """How well rows X [N, D] are decoded from their latents Z [N, Q], by the model or by another `predict` of it.

    Returns rmse, mae and nlpd; for 8-bit data `bits`, the bits per value; the coverage of the central 50, 90 and 99 %
    intervals; and `pit`, the counts of `metrics.pit_counts`.
    """
    scale = feature_scale(model, X)
    found = reconstruction_sums(model, X, Z, predict, eight_bit_levels(X), scale).metrics()
    return found if scale is None else found | {"units": "standard deviations"}


def feature_scale(model: "Decoder", X: Array) -> Array | None:
    """Standard deviations [D] in which errors are measured if features have units of their own. Otherwise None."""
    if model.noise_kind_ != "feature":
        return None
    variance = moments(X)[1]
    return np.sqrt(np.where(variance > 0, variance, 1.0))


def reconstruction_sums(
    model: "Decoder",
    X: Array,
    Z: Array,
    predict: Callable[..., Any] | None = None,
    levels: Array | None = None,
    scale: Array | None = None,
) -> ReconstructionSums:
    """The sums over rows X [N, D] that `reconstruction` makes its numbers from.

    `levels` are the `eight_bit_levels` and `scale` is the `feature_scale` of all rows, of which X may be a part.
    Without levels, bits are not counted. Without a scale, errors are in the data's units.
    """
    sums, unit = ReconstructionSums(), 1.0 if scale is None else scale
    for rows, mean, std in _decoded(model, Z, predict):
        block: Array = read_rows(X, rows)
        n: float = rows.stop - rows.start
        var = np.square(std, dtype=np.float64)
        if block.dtype.kind == "f" and (missing := np.isnan(block)).any():
            seen = ~missing
            n = float(seen.sum()) / block.shape[1]
            block, mean, var = block[seen][:, None], mean[seen][:, None], var[seen][:, None]
        sums += ReconstructionSums(
            n,
            squares=n * metrics.rmse(block / unit, mean / unit) ** 2,
            absolute=n * metrics.mae(block / unit, mean / unit),
            density=n * metrics.nlpd(block, mean, var),
            bits=np.nan if levels is None else n * metrics.bits_per_value(block, mean, var, levels),
            pit=metrics.pit_counts(block, mean, var),
        )
    return sums


def eight_bit_levels(X: Array) -> Array | None:
    """The 256 values that 8-bit data can have: whole numbers if X is uint8, otherwise multiples of 1/255.

    None if the data are others. More than 86 levels must occur in a sample of the rows. So classes, the 17 levels of
    the digits and other fractions, of which the 85ths are multiples of 1/255 as well, are not taken for 8-bit data.
    """
    if not len(X) or (X.dtype != np.uint8 and X.dtype.kind != "f"):
        return None
    n = min(len(X), max(1, LEVEL_VALUES // X.shape[1]))
    sample = take_rows(X, np.linspace(0, len(X) - 1, n).astype(np.int64))
    steps = np.nan_to_num(sample.astype(np.float64)) * (1 if X.dtype == np.uint8 else 255)
    whole = np.rint(steps)
    # float32 rounds a multiple of 1/255 by 1.5e-5 of a step at most
    if np.abs(steps - whole).max() > 1e-3 or whole.min() < 0 or whole.max() > 255 or len(np.unique(whole)) <= 86:
        return None
    return np.arange(256) if X.dtype == np.uint8 else np.arange(256) / 255


def shown_latents(model: "Decoder", Z: ArrayLike | None) -> Array:
    """The latents Z [N, Q] that a figure or a page shows, in float64; those of the training rows if Z is None."""
    points = np.asarray(model.embedding_ if Z is None else Z, dtype=np.float64)
    Q = model.n_components_
    if points.ndim != 2 or points.shape[1] != Q or not len(points):
        raise InputError(f"Z must hold latents [N, {Q}], at least one. Got shape {points.shape}.", argument="Z")
    if n_bad := int((~np.isfinite(points)).sum()):
        raise InputError(f"Z must be finite. Got {n_bad} values that are NaN or infinite.", argument="Z")
    return points


def decode_grid(
    model: "Decoder", steps: Sequence[Array], dims: Sequence[int] = (0, 1)
) -> Iterator[tuple[Array, Array]]:
    """Decode a grid over one or two latent dimensions, with the other dimensions at 0.

    Parameters
    ----------
    model
        A fitted model.
    steps
        The grid's coordinates in each dimension.
    dims
        The latent dimensions that these are.

    Yields
    ------
    mean, std : ndarray [B, D]
        One block of points at a time. The points run along the first dimension, then along the second.
    """
    points = np.stack(np.meshgrid(*steps, indexing="xy"), axis=-1).reshape(-1, len(steps))
    Z = np.zeros((len(points), model.n_components_))
    Z[:, list(dims[: len(steps)])] = points
    return ((mean, std) for _, mean, std in _decoded(model, Z))


def _decoded(
    model: "Decoder", Z: Array, predict: Callable[..., Any] | None = None
) -> Iterator[tuple[slice, Array, Array]]:
    """Means and standard deviations [B, D] of latents Z [N, Q], in blocks: few enough rows to keep memory flat."""
    for rows in slices(len(Z), model.n_scores_):
        mean, std = (predict or model.predict_scores)(Z[rows], return_std=True)
        yield rows, mean, std


def tidy_labels(y: Array | None) -> Array | None:
    """Labels as a text file would give them back: whole numbers as integers, bytes and booleans as text."""
    if y is None or y.dtype.kind not in "fSb":
        return y
    if y.dtype.kind == "f":
        return y.astype(np.int64) if (np.isfinite(y) & (y % 1 == 0)).all() else y
    return np.char.decode(y, "utf-8", "replace") if y.dtype.kind == "S" else np.where(y, "true", "false")


def are_classes(y: Array | None) -> TypeGuard[Array]:
    """Whether tidy labels are classes, which neighbours can vote for, and not measurements."""
    return y is not None and not are_measurements(y)


def are_measurements(y: Array | None) -> TypeGuard[Array]:
    """Whether tidy labels are numbers with fractions, or with too many different values to be classes."""
    if y is None or y.dtype.kind not in "iuf":
        return False
    return y.dtype.kind == "f" or len(np.unique(y)) > max(MOST_CLASSES, len(y) // 20)


def knn(Z_train: Array, y_train: Array | None, Z: Array, y: Array | None) -> dict[str, float]:
    """How well nearest training rows predict labels, if there are that many.

    For classes, the accuracy of 1 and of 15 neighbours; for measurements, R² of the average of 15. Empty without
    labels.
    """
    if y_train is None or y is None:
        return {}
    if are_measurements(y_train):
        k = NEIGHBOURS[-1]
        many = len(Z_train) >= k and len(Z) > 1
        return {f"knn_r2_{k}": metrics.knn_r2(Z_train, y_train, Z, y.astype(np.float64), k)} if many else {}
    train, test = y_train.astype(np.str_), y.astype(np.str_)  # labels from a file are text: "3" is the class 3
    return {f"knn_{k}": metrics.knn_accuracy(Z_train, train, Z, test, k) for k in NEIGHBOURS if k <= len(Z_train)}


def knn_cross_validated(Z: Array, y: Array | None, seed: int = 0) -> dict[str, float]:
    """How well nearest neighbours predict labels in five-fold cross-validation, for rows without a test set."""
    if y is None:
        return {}
    N = len(Z)
    folds = np.random.default_rng(seed).permutation(N) % FOLDS
    if N < 2 * FOLDS:
        return {}
    tests = [folds == fold for fold in range(FOLDS)]
    found = [knn(Z[~test], y[~test], Z[test], y[test]) for test in tests]
    everywhere = set.intersection(*map(set, found))  # a fold with fewer than 15 neighbours has no 15-NN accuracy
    shares = [test.mean() for test in tests]
    return {name: float(np.dot([one[name] for one in found], shares)) for name in found[0] if name in everywhere}


def pca_rmse(X_train: Array, X: Array, n_components: int, seed: int, *, by_feature: bool = False) -> float:
    """RMSE of rows X through the same number of principal components, from a random subset of the training rows.

    With `by_feature`, both are in standard deviations of each feature.
    """
    import torch

    from sasgp.gp.linalg import principal_axes

    N, D = X_train.shape
    n_rows = min(N, PCA_ROWS, max(PCA_VALUES // D, 10 * n_components))
    some = np.sort(np.random.default_rng(seed).choice(N, n_rows, replace=False))
    rows = take_rows(X_train, some).astype(np.float64 if X_train.dtype == np.float64 else np.float32)
    if by_feature:
        rows = rows / np.where(rows.std(0) > 0, rows.std(0), 1)
        variance = moments(X)[1]
        X = X / np.sqrt(np.where(variance > 0, variance, 1.0))
    mean = rows.mean(0)
    if np.isnan(mean).any():
        mean = np.nanmean(_with_values(rows), 0)
        rows = np.where(np.isnan(rows), mean, rows)
    axes = principal_axes(torch.from_numpy(rows - mean), n_components)[1].numpy()  # [D, Q]
    squares = n_rows = 0.0
    for part in slices(len(X), D):
        block = X[part].astype(rows.dtype)
        seen = ~np.isnan(block)
        filled = block if seen.all() else np.where(seen, block, mean)
        predicted = mean + (filled - mean) @ axes @ axes.T
        n = len(block) if seen.all() else float(seen.sum()) / D
        pair = (block, predicted) if seen.all() else (block[seen][:, None], predicted[seen][:, None])
        squares, n_rows = squares + n * metrics.rmse(*pair) ** 2, n_rows + n
    return float(np.sqrt(squares / n_rows))


def _with_values(X: Array) -> Array:
    """Rows in which a column without any value has zeros."""
    return np.where(np.isnan(X).all(0), np.zeros_like(X), X)


def mean_filled(X: Array) -> Array:
    """Rows with the mean of a column in place of its missing values, for distances between rows."""
    if X.dtype.kind != "f" or not np.isnan(X).any():
        return X
    return np.where(np.isnan(X), np.nanmean(_with_values(X), 0), X)
