"""Whether features have one unit, so that one noise variance can serve them all, and whether a table is an array."""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.rows import take_rows
from sasgp.data.tables import DiskTable

if TYPE_CHECKING:
    import polars as pl

__all__ = ["is_array", "one_unit"]

Array = NDArray[np.float64]

ROWS = 2000  # that are looked at
FACTOR = 5  # between the spread of a feature and that of the median one
MANY = 64  # columns of numbers with one unit that are features of an array, such as pixels, and not a table
LEVELS = 12  # different numbers that are levels, in a table of at least five times as many rows
SAME = 0.15  # by which the logarithms of standardised spreads may differ in a part of the rows
ROUNDING = 1e-3  # of float32
FEW = 50  # features: of so few, none is at the rim of an image


def one_unit(array: Any) -> bool:
    """Whether the features of an array [N, D] have one unit, by their standard deviations.

    Lengths in millimetres beside weights in grams give themselves away by a spread that is far larger than that of the
    median feature. A far smaller one may be a pixel at the rim of an image, but not in a table of few columns. Spreads
    that are all the same were made so: the columns were standardised, because their units differed.
    """
    if array.dtype == np.uint8:
        return True
    rows = _sample(array)
    return _one_spread(rows) and not _standardised(rows)


def _sample(array: Any) -> Array:
    """Some rows of an array, without empty columns."""
    N = len(array)
    rows = take_rows(array, np.linspace(0, N - 1, min(N, ROWS)).astype(np.int64)).astype(np.float64)
    return rows[:, ~np.isnan(rows).all(0)]


def _spread(rows: Array) -> tuple[Array, Array]:
    """Standard deviations of features, and which features are no constants: less is rounding."""
    spread = np.nanstd(rows, axis=0)
    varies = spread > 1e-12 * np.nanmax(np.abs(rows), axis=0, initial=0)
    return spread[varies], varies


def _one_spread(rows: Array) -> bool:
    spread, _ = _spread(rows)
    if not len(spread):
        return True
    middle = np.median(spread)
    least = middle / FACTOR if len(spread) <= FEW else 0.0
    return bool(spread.max() <= FACTOR * middle and spread.min() >= least)


def _standardised(rows: Array) -> bool:
    """Whether all features have the same spread, but for what a sample of rows changes."""
    spread, varies = _spread(rows)
    away = np.abs(np.log(spread / np.median(spread))) if len(spread) > 1 else np.array([np.inf])
    if away.max() > SAME:
        return False
    # The standard error of log s is √((κ − 1) / 4N), with the kurtosis κ
    deviations = (rows[:, varies] - np.nanmean(rows[:, varies], axis=0)) / spread
    error = np.sqrt(np.maximum(np.nanmean(deviations**4, axis=0) - 1, 0) / (4 * len(rows)))
    usual = np.median(error)  # large if one outlier makes the spreads, which then say nothing
    return bool((away <= ROUNDING).all() or (usual <= SAME and (away <= 4 * np.maximum(error, usual)).all()))


def is_array(frame: "pl.DataFrame | DiskTable") -> bool:
    """Whether a table is an array with names: numbers of one unit that are not whole and not levels, unless many."""
    if isinstance(frame, DiskTable):
        frame = frame.sample(ROWS)
    if not all(dtype.is_numeric() for dtype in frame.dtypes):
        return False
    many = frame.width >= MANY
    if not many and not all(dtype.is_float() for dtype in frame.dtypes):
        return False
    numbers = frame.to_numpy().astype(np.float64)
    if not many and (np.nan_to_num(numbers) % 1 == 0).all(0).any():
        return False
    if not many and frame.height >= 5 * LEVELS and any(column.n_unique() <= LEVELS for column in frame):
        return False
    return _one_spread(_sample(numbers))
