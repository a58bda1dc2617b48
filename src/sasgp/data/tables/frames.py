"""Data frames of pandas and polars, as polars frames in which every column has its natural type.

The index of a pandas frame is ignored. A column of Python objects becomes numbers, booleans, dates or text if all its
values are, and else text that is read as the cells of a text file are. pandas is never imported here: a frame of pandas
can only come from a program that has done so. Its columns are converted one by one, because the conversion of polars
needs pyarrow.
"""

import datetime
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np

from sasgp.data.tables.cells import MISSING, type_columns
from sasgp.data.tables.disk import DiskTable
from sasgp.data.tables.headers import check_names, name_rows
from sasgp.data.tables.stored import tidied
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Frame", "is_frame", "read_frame"]


@dataclass(frozen=True)
class Frame:
    """A polars frame, and the names of the columns whose categories have an order. These have the type Enum."""

    frame: "pl.DataFrame"
    ordered: frozenset[str] = frozenset()


def is_frame(X: object) -> bool:
    """Whether `read_frame` takes it. Nothing is imported to find out."""
    if isinstance(X, DiskTable):
        return True
    polars, pandas = sys.modules.get("polars"), sys.modules.get("pandas")
    return bool(
        (polars and isinstance(X, polars.DataFrame | polars.LazyFrame)) or (pandas and isinstance(X, pandas.DataFrame))
    )


def read_frame(X: Any, *, missing: Sequence[str] = ()) -> Frame:
    """A data frame with natural types, null for missing values and names that are text.

    Parameters
    ----------
    X
        A pandas or polars DataFrame.
    missing
        Codes of missing values besides the usual ones (`cells.MISSING`), such as "-999".
    """
    if not is_frame(X):
        raise InputError(f"X must be a DataFrame of pandas or polars. Got {type(X).__name__}.", argument="X")
    import polars as pl

    X = X.sample(len(X)) if isinstance(X, DiskTable) else X
    if isinstance(X, pl.DataFrame | pl.LazyFrame):
        objects = [name for name, dtype in X.collect_schema().items() if dtype == pl.Object]
        frame = X.lazy().collect()
        frame = frame.with_columns([_encoded(_from_objects, name, frame[name].to_list(), missing) for name in objects])
        return Frame(tidied(frame.lazy(), "X", missing).collect())

    names = name_rows([_text(name) for name in X.columns])
    check_names(names, "X")
    columns = [_encoded(_column, name, X.iloc[:, i], missing) for i, name in enumerate(names)]
    ordered = frozenset(column.name for column in columns if column.dtype == pl.Enum)
    return Frame(tidied(pl.DataFrame(columns).lazy(), "X", missing).collect(), ordered)


def _text(name: object) -> str:
    """A name of a column as text. Names of several levels are joined."""
    return "_".join(str(part) for part in name if part != "") if isinstance(name, tuple) else str(name)


def _encoded(convert: Callable[..., "pl.Series"], name: str, values: Any, missing: Sequence[str]) -> "pl.Series":
    """A converted column. Raise InputError if its text has half a character, which Python keeps and UTF-8 has not."""
    try:
        return convert(name, values, missing)
    except UnicodeEncodeError as error:
        half, text = error.object[error.start], error.object[max(error.start - 20, 0) : error.end + 20]
        where = "The name of column" if error.object == name else f"{text!a} in column"
        raise InputError(
            f"{where} {name!a} contains {half!a}, a lone surrogate, which is half a character and cannot be "
            "written to a file. Replace it, or read the data again with the encoding that it was written in.",
            argument="X",
        ) from error


def _column(name: str, values: Any, missing: Sequence[str]) -> "pl.Series":
    """A column of a pandas frame."""
    import polars as pl

    dtype = values.dtype
    if hasattr(dtype, "categories"):
        levels = [str(level) for level in dtype.categories]
        codes = pl.Series(values.cat.codes.to_numpy().astype(np.int64))
        text = pl.Series(name, levels, dtype=pl.String).gather(codes.set(codes < 0, None))
        return text.cast(pl.Enum(levels) if dtype.ordered and len(set(levels)) == len(levels) else pl.Categorical)
    if hasattr(dtype, "subtype") and hasattr(dtype, "fill_value"):  # sparse
        return _column(name, values.sparse.to_dense(), missing)
    kind = dtype.kind
    if getattr(dtype, "tz", None) is not None:
        moments = values.dt.tz_convert("UTC").dt.tz_localize(None).to_numpy().astype("M8[us]")
        return pl.Series(name, moments).dt.replace_time_zone("UTC")
    if kind in "Mm" and isinstance(dtype, np.dtype):
        return pl.Series(name, values.to_numpy().astype(f"{kind}8[us]"))
    if kind in "biuf":
        return _numbers(values, name)
    absent = values.isna().to_numpy(dtype=bool)
    objects = values.to_numpy(dtype=object)
    return _from_objects(name, [None if gone else value for value, gone in zip(objects, absent, strict=True)], missing)


def _numbers(values: Any, name: str) -> "pl.Series":
    """A column of numbers or booleans, of numpy's types or of those of pandas that know missing values."""
    import polars as pl

    dtype = values.dtype
    plain = (
        dtype if isinstance(dtype, np.dtype) else np.dtype(f"{dtype.kind}{1 if dtype.kind == 'b' else dtype.itemsize}")
    )
    plain = np.dtype(np.float32) if plain == np.float16 else plain
    if isinstance(dtype, np.dtype):
        return pl.Series(name, np.ascontiguousarray(values.to_numpy(), dtype=plain))
    absent = pl.Series(values.isna().to_numpy(dtype=bool))
    return pl.Series(name, values.to_numpy(dtype=plain, na_value=0)).set(absent, None)


def _from_objects(name: str, values: list[Any], missing: Sequence[str]) -> "pl.Series":
    """A column of Python objects, by what all of them are."""
    import polars as pl

    given = [value for value in values if value is not None]
    types = {type(value) for value in given}

    def all_are(*kinds: type) -> bool:
        return all(issubclass(each, kinds) for each in types)

    def each(convert: Callable[[Any], Any]) -> list[Any]:
        return [None if value is None else convert(value) for value in values]

    if not types:
        return pl.Series(name, values, dtype=pl.Null)
    if all_are(bool, np.bool_):
        return pl.Series(name, each(bool), dtype=pl.Boolean)
    if all_are(int, np.integer) and all(-(2**63) <= value < 2**63 for value in given):
        return pl.Series(name, each(int), dtype=pl.Int64)
    if all_are(int, float, Decimal, np.number, np.bool_) and not all_are(int, np.integer):
        return pl.Series(name, each(float), dtype=pl.Float64)
    if all_are(datetime.datetime) and len({value.tzinfo is None for value in given}) == 1:
        return pl.Series(name, values)
    if all_are(datetime.date) and not any(issubclass(each, datetime.datetime) for each in types):
        return pl.Series(name, values, dtype=pl.Date)
    text = pl.Series(
        name, each(lambda value: value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value))
    )
    if all_are(str) and not text.str.strip_chars().is_in([*MISSING, *missing]).any():
        return text  # as text on purpose, also if all of it is digits
    typed = type_columns([text], missing=missing)[0][0]
    return typed if typed.dtype.is_numeric() or not all_are(str) else text
