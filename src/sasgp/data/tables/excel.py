"""The first sheet of an Excel file, read by fastexcel, which comes with the extra `excel`."""

import io
import zipfile
from collections.abc import Sequence
from importlib import util
from pathlib import Path
from typing import Any

from sasgp.data.memory import amount, available
from sasgp.data.tables.cells import type_columns, unclear_dates
from sasgp.data.tables.file import TableFile
from sasgp.data.tables.headers import header_names, name_columns
from sasgp.errors import InputError

__all__ = ["read_excel"]


def read_excel(path: Path, missing: Sequence[str] = ()) -> TableFile:
    """Read a .xlsx file. Its cells are read as text, so that one word does not decide what a column of numbers is."""
    if util.find_spec("fastexcel") is None:
        raise InputError(f"{path} needs fastexcel to be read. Install it with `pip install 'sasgp[excel]'`.")
    import fastexcel
    import polars as pl

    content = path.read_bytes()
    _check_size(content, path)
    try:
        book = fastexcel.read_excel(content)
        sheets = list(book.sheet_names)
        cells = book.load_sheet(0, header_row=None, dtypes="string").to_polars()
    except fastexcel.FastExcelError as error:
        raise InputError(f"{path} is damaged or not an .xlsx file ({_first_line(error)}). Save it again.") from error
    cells = cells.filter(~pl.all_horizontal(pl.all().is_null()))
    if not cells.height:
        raise InputError(f"{path}: sheet '{sheets[0]}' is empty. Move the table to the first sheet.")

    first, second = (
        ["" if cell is None else cell for cell in row] for row in (cells.row(0), (cells[1:2].rows() or [()])[0])
    )
    header = header_names(first, second)
    if header is not None:
        cells = cells[1:]
    named, notes = name_columns(cells, header or [f"x{i}" for i in range(cells.width)], path)
    columns, ambiguous = type_columns(cells.select(*named).rename(named).get_columns(), missing=missing)
    if len(sheets) > 1:
        notes.insert(0, f"{path} has {len(sheets)} sheets. Only the first, '{sheets[0]}', is read.")
    return TableFile(
        path, pl.DataFrame(columns), (*notes, *unclear_dates(path, ambiguous)), has_header=header is not None
    )


def _check_size(content: bytes, path: Path) -> None:
    """Raise InputError if the file is no zip archive, or unpacks to more than the free memory."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            need, have = sum(info.file_size for info in archive.infolist()), available()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise InputError(f"{path} is damaged or not an .xlsx file. Save it again.") from error
    if need > have:
        raise InputError(f"{path} needs {amount(need)} of memory, but only {amount(have)} are free.")


def _first_line(error: Any) -> str:
    return str(error).splitlines()[0].rstrip(".")
