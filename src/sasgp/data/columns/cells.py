"""Cells of a table as numbers, and back: of levels the codes, of dates the seconds since 1970, of missing cells NaN."""

from datetime import date
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from sasgp.data.columns.column import Category, Column, Discrete, Number
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["cells", "column_values", "values"]

Array = NDArray[np.float64]

PER_DAY = {"d": 1, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}
EPOCH = date(1970, 1, 1).toordinal()
FIRST_DAY, LAST_DAY = 1 - EPOCH, date.max.toordinal() - EPOCH  # of the years 1 to 9999


def values(column: Column, series: "pl.Series") -> tuple[Array, list[str]]:
    """The numbers or codes of a column's cells, and the levels that training did not see. Missing cells are NaN."""
    import polars as pl

    if isinstance(column, Number):
        temporal = bool(column.unit)
        if series.dtype == pl.Null:
            return np.full(len(series), np.nan), []
        if not (series.dtype.is_temporal() if temporal else series.dtype.is_numeric() or series.dtype == pl.Boolean):
            expected = "dates" if temporal else "numbers"
            raise InputError(
                f"Column '{column.name}' held {expected} in training, but holds {_type(series)} now. Convert it."
            )
        x = column_values(series)
        if not np.isfinite(x[~np.isnan(x)]).all():
            raise InputError(f"Column '{column.name}' has infinite values. Replace them, or leave them empty.")
        return x, []
    assert isinstance(column, Discrete | Category)
    if column.kind == "count":
        if not (series.dtype.is_numeric() or series.dtype == pl.Null):
            raise InputError(
                f"Column '{column.name}' held counts in training, but holds {_type(series)} now. Convert it."
            )
        x = column_values(series)
        if (x < 0).any() or (x[~np.isnan(x)] % 1 != 0).any():
            raise InputError(f"Column '{column.name}' must hold counts, but has values below 0 or with fractions.")
        return np.minimum(x, len(column.levels) - 1), []
    return _codes(column, series)


def _codes(column: Discrete | Category, series: "pl.Series") -> tuple[Array, list[str]]:
    import polars as pl

    text = isinstance(column.levels[0], str)
    if series.dtype == pl.Null:
        return np.full(len(series), np.nan), []
    as_text = series.dtype in (pl.String, pl.Categorical, pl.Enum)
    if text != as_text:
        expected = f"text such as '{column.levels[0]}'" if text else f"values such as {column.levels[0]}"
        raise InputError(
            f"Column '{column.name}' held {expected} in training, but holds {_type(series)} now. Convert it."
        )
    if as_text:
        keys, levels = series.cast(pl.String), [str(level) for level in column.levels]
    else:
        keys, levels = series.cast(pl.Float64).fill_nan(None), [float(level) for level in column.levels]  # type: ignore[misc]
    known = pl.DataFrame({"key": pl.Series(levels, dtype=keys.dtype), "code": np.arange(len(levels), dtype=np.float64)})
    codes = pl.DataFrame({"key": keys}).join(known, on="key", how="left", maintain_order="left")["code"]
    new = keys.filter(codes.is_null() & keys.is_not_null())
    found = codes.to_numpy().astype(np.float64)
    if not len(new):
        return found, []
    if isinstance(column, Category):
        found[(codes.is_null() & keys.is_not_null()).to_numpy()] = len(levels)
        return found, [] if column.merged else [str(value) for value in new.unique(maintain_order=True).to_list()]
    if text:  # two levels or an order of words, in which a new one has no place
        return found, new.unique(maintain_order=True).to_list()
    # A number between or beyond the levels counts as the nearest
    numbers = column.numbers
    unseen = np.flatnonzero((codes.is_null() & keys.is_not_null()).to_numpy())
    found[unseen] = np.abs(keys.to_numpy()[unseen][:, None] - numbers).argmin(1)
    return found, [f"{value:g}" for value in new.unique(maintain_order=True).to_list()]


def cells(column: Column, values: Array) -> "pl.Series":
    """Numbers or codes as cells in the user's own terms."""
    import polars as pl

    missing = np.isnan(values)
    if isinstance(column, Number):
        if not column.unit:
            return pl.Series(column.name, values, nan_to_null=True)
        micro = pl.Series(column.name, np.where(missing, 0, np.rint(values * 1e6)).astype(np.int64))
        micro = micro.set(pl.Series(missing), None)
        if column.unit == "duration":
            return micro.cast(pl.Duration("us"))
        if column.unit == "time":
            return (micro * 1000).cast(pl.Time)
        found = micro.cast(pl.Datetime("us"))
        return found.cast(pl.Date) if column.unit == "date" else found
    assert isinstance(column, Discrete | Category)
    if isinstance(column, Discrete) and column.numeric:
        return pl.Series(column.name, values, nan_to_null=True)
    levels = [*column.levels, "other"] if isinstance(column, Category) else list(column.levels)
    return pl.Series(column.name, [None if np.isnan(code) else levels[int(code)] for code in values.tolist()])


def _type(series: "pl.Series") -> str:
    import polars as pl

    if series.dtype in (pl.String, pl.Categorical, pl.Enum):
        first = series.drop_nulls()
        return f"text such as '{first[0]}'" if len(first) else "text"
    return "numbers" if series.dtype.is_numeric() else str(series.dtype)


def column_values(series: "pl.Series") -> Array:
    """Numbers of a column, with NaN for missing cells. Dates and times are seconds since 1970."""
    import polars as pl

    if series.dtype.is_temporal():
        if series.dtype == pl.Time:
            return series.cast(pl.Int64).cast(pl.Float64).to_numpy() / 1e9
        if series.dtype == pl.Duration:
            return series.dt.total_microseconds().cast(pl.Float64).to_numpy() / 1e6
        _check_years(series)
        return series.cast(pl.Datetime("us")).dt.epoch("us").cast(pl.Float64).to_numpy() / 1e6
    return series.cast(pl.Float64).to_numpy()


def _check_years(series: "pl.Series") -> None:
    """Refuse dates that Python does not have. On those, polars panics, which is no exception of its own."""
    import polars as pl

    unit = "d" if series.dtype == pl.Date else getattr(series.dtype, "time_unit", "us")
    days = series.to_physical() // PER_DAY[unit]
    if not days.is_between(FIRST_DAY, LAST_DAY).all():
        raise InputError(f"Column '{series.name}' has dates outside of the years 1 to 9999. Correct or drop them.")
