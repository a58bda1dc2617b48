"""Files of tables that have types: Parquet, Feather (Arrow) and JSON lines.

Parquet and Feather files are not read until somebody asks for rows. Their text stays text, whatever it looks like, but
codes such as "NA" become null, and so does NaN.
"""

import json
from collections.abc import Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from sasgp.data.tables.cells import MISSING, sentinels, type_columns, unclear_dates
from sasgp.data.tables.delimited import unpacked_bytes
from sasgp.data.tables.file import TableFile, source, wide_integers
from sasgp.data.tables.headers import check_names, name_rows
from sasgp.data.tables.pages import check_pages
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_arrow", "read_jsonl", "read_parquet", "tidied"]

PANDAS_INDEX = "__index_level_0__"


def read_parquet(path: Path, missing: Sequence[str] = ()) -> TableFile:
    """Open a .parquet file."""
    import polars as pl

    plan = pl.scan_parquet(source(path), glob=False)
    return TableFile(path, plan, tidy=partial(tidied, what=path, missing=missing), check=check_pages)


def read_arrow(path: Path, missing: Sequence[str] = ()) -> TableFile:
    """Open a .feather or .arrow file. One that was written as a stream is read whole."""
    import polars as pl

    with path.open("rb") as file:
        magic = file.read(6)
    if magic.startswith(b"FEA1"):
        raise InputError(f"{path} is a Feather file of version 1, which cannot be read. Save it again as version 2.")
    if magic == b"ARROW1":
        return TableFile(path, pl.scan_ipc(source(path), glob=False), tidy=partial(tidied, what=path, missing=missing))
    return TableFile(path, tidied(pl.read_ipc_stream(path.read_bytes()).lazy(), path, missing).collect())


def read_jsonl(path: Path, missing: Sequence[str] = ()) -> TableFile:
    """Read a .jsonl or .ndjson file, one object per line. Dates are text in JSON, so text gets its natural type."""
    import polars as pl

    content = unpacked_bytes(path)
    frame = pl.read_ndjson(content, infer_schema_length=None)
    first: dict[str, None] = {}  # the order in which names occur; polars has another
    for line in islice(content.splitlines(), 100):
        if line.strip():
            first |= dict.fromkeys(json.loads(line))
    frame = tidied(
        frame[[*first, *(name for name in frame.columns if name not in first)]].lazy(), path, missing
    ).collect()
    text = frame.select(pl.selectors.string()).get_columns()
    columns, ambiguous = type_columns(text, missing=missing)
    return TableFile(path, frame.with_columns(columns), tuple(unclear_dates(path, ambiguous)))


def tidied(frame: "pl.LazyFrame", what: object, missing: Sequence[str] = ()) -> "pl.LazyFrame":
    """A frame whose columns all have names, and whose missing values are all null."""
    import polars as pl

    schema = frame.collect_schema()
    names = schema.names()
    check_names(name_rows(names), what)
    old = [name for name in names if name == PANDAS_INDEX] or names[:1]
    frame = frame.rename({old[0]: name_rows(["", *names])[0]}) if old and old[0] in ("", PANDAS_INDEX) else frame
    codes = [*MISSING, *missing]
    frame = frame.with_columns(
        pl.selectors.string().replace(codes, [None] * len(codes)),
        pl.selectors.float().fill_nan(None),
        (pl.selectors.decimal() | pl.selectors.by_dtype(*wide_integers())).cast(pl.Float64),
    )
    if not missing:
        return frame
    by_value = partial(sentinels, missing=tuple(missing))
    return frame.with_columns(pl.selectors.numeric().map_batches(by_value, is_elementwise=True))
