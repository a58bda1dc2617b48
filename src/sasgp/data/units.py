"""Whether features have one unit, so that one noise variance can serve them all, and whether a table is an array."""

from typing import TYPE_CHECKING, Any

import numpy as np

from sasgp.data.rows import take_rows
from sasgp.data.tables import DiskTable

if TYPE_CHECKING:
    import polars as pl

__all__ = ["is_array", "one_unit"]

ROWS = 2000  # that are looked at
FACTOR = 5  # between the spread of a feature and that of the median one
MANY = 64  # columns of numbers with one unit that are features of an array, such as pixels, and not a table
FEW = 50  # features: of so few, none is at the rim of an image


def one_unit(array: Any) -> bool:
    """Whether the features of an array [N, D] have one unit, by their standard deviations.

    Lengths in millimetres beside weights in grams give themselves away by a spread that is far larger than that of the
    median feature. A far smaller one may be a pixel at the rim of an image, but not in a table of few columns.
    """
    if array.dtype == np.uint8:
        return True
    N = len(array)
    rows = take_rows(array, np.linspace(0, N - 1, min(N, ROWS)).astype(np.int64)).astype(np.float64)
    rows = rows[:, ~np.isnan(rows).all(0)]
    spread = np.nanstd(rows, axis=0)
    spread = spread[spread > 1e-12 * np.nanmax(np.abs(rows), axis=0, initial=0)]  # less is rounding of a constant
    if not len(spread):
        return True
    middle = np.median(spread)
    least = middle / FACTOR if len(spread) <= FEW else 0.0
    return bool(spread.max() <= FACTOR * middle and spread.min() >= least)


def is_array(frame: "pl.DataFrame | DiskTable") -> bool:
    """Whether a table is an array with names: numbers of one unit, and not whole ones unless they are many."""
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
    return one_unit(numbers)
