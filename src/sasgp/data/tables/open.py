"""One reader per type of file. Names of files are literal: `run*.csv` is a file of that name, never several."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from sasgp.data.tables.delimited import read_delimited
from sasgp.data.tables.excel import read_excel
from sasgp.data.tables.file import TableFile, readable
from sasgp.data.tables.stored import read_arrow, read_jsonl, read_parquet
from sasgp.errors import InputError

__all__ = ["TABLE_SUFFIXES", "read_table", "table_suffix"]

_TEXT = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_READERS: dict[str, Callable[[Path, Sequence[str]], TableFile]] = {
    **{suffix: partial(read_delimited, suffix=suffix) for suffix in _TEXT},
    ".parquet": read_parquet,
    ".feather": read_arrow,
    ".arrow": read_arrow,
    ".jsonl": read_jsonl,
    ".ndjson": read_jsonl,
    ".jsonl.gz": read_jsonl,
    ".ndjson.gz": read_jsonl,
    ".xlsx": read_excel,
}
TABLE_SUFFIXES = tuple(_READERS)


def table_suffix(path: Path) -> str:
    """The end of a file's name that says what it is, such as .csv or .csv.gz."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    return "".join(suffixes[-2:] if suffixes[-1:] == [".gz"] else suffixes[-1:])


def read_table(path: Path, *, missing: Sequence[str] = ()) -> TableFile:
    """Read a table from a file.

    Parameters
    ----------
    path
        Its type is the end of its name, one of `TABLE_SUFFIXES`.
    missing
        Codes of missing values besides the usual ones (`cells.MISSING`), such as "-999".

    Returns
    -------
    TableFile
        Its `frame` has all columns with their types. A .parquet or .feather file is not read until rows are needed.
    """
    suffix = table_suffix(path)
    if suffix not in _READERS:
        raise InputError(f"{path} must be a table ({', '.join(TABLE_SUFFIXES)}). Convert it.")
    with readable(path):
        table = _READERS[suffix](path, missing)
    if not table.n_rows:
        raise InputError(f"{path} has columns but no rows. Add some.")
    return table
