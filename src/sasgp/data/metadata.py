"""What else is known about rows, besides the features: columns of the same file, or of a table beside it.

    load("birds.csv", labels="species", metadata=["island", "year"])      # columns that are not trained on
    load("images.npy", metadata=["about.csv"])                            # all columns of a table, one line per row

Values are numbers with NaN where they are missing, dates, or text.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.files import at_home
from sasgp.data.tables import TABLE_SUFFIXES, TableFile, read_table, table_suffix
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["column_values", "is_table_file", "split_names", "table_metadata"]

MISSING = "missing"

Metadata = dict[str, NDArray[Any]]


def is_table_file(name: str) -> bool:
    """Whether a name is that of a table on disk."""
    path = at_home(name)
    return table_suffix(path) in TABLE_SUFFIXES and path.is_file()


def split_names(names: Sequence[str], columns: Sequence[str], source: str) -> tuple[list[str], list[str]]:
    """The names that are columns of the source, and those that are tables on disk."""
    own = [name for name in names if name in columns]
    others = [name for name in names if name not in columns]
    if absent := [name for name in others if not is_table_file(name)]:
        has = f"a column of {source} ({', '.join(columns[:10])}{', …' * (len(columns) > 10)}) or " if columns else ""
        raise InputError(
            f"metadata must be {has}a table file with one line per row. Got '{absent[0]}'.", argument="metadata"
        )
    return own, others


def table_metadata(files: Sequence[str], n_rows: int, source: str) -> Metadata:
    """All columns of tables beside the data, which have one line per row."""
    found: Metadata = {}
    for name in files:
        table = read_table(at_home(name))
        if table.n_rows != n_rows:
            raise InputError(
                f"metadata must have one line for each of the {n_rows} rows of {source}. {name} has {table.n_rows}.",
                argument="metadata",
            )
        found |= column_values(table, list(table.schema))
    return found


def column_values(table: TableFile, names: Sequence[str]) -> Metadata:
    """The values of columns of a table."""
    import polars as pl

    if not names:
        return {}
    frame = pl.concat(list(table.blocks(names)))
    return {name: _values(frame[name]) for name in names}


def _values(column: "pl.Series") -> NDArray[Any]:
    import polars as pl

    if column.dtype.is_integer() and not column.null_count():
        return column.to_numpy()
    if column.dtype.is_numeric():
        return column.cast(pl.Float64).fill_null(float("nan")).to_numpy()
    if column.dtype == pl.Datetime:
        return column.dt.replace_time_zone(None).to_numpy()
    if column.dtype == pl.Date:
        return column.to_numpy()
    return np.array(column.cast(pl.String, strict=False).fill_null(MISSING).to_list(), dtype=np.str_)
