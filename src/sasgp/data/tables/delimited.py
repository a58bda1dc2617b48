"""Text files whose cells are separated by commas, semicolons, tabs or vertical bars, also compressed by gzip.

The separator is the one that cuts most of the first lines into the same number of cells. Text is UTF-8, or UTF-16 if it
begins with the mark of that, or else Windows-1252. Blank lines are no rows. Lines end as on Linux, on Windows or, by a
carriage return alone, as Excel's "CSV (Macintosh)" writes them.
"""

import codecs
import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from sasgp.data.memory import amount, available
from sasgp.data.tables.cells import type_columns, unclear_dates
from sasgp.data.tables.file import TableFile, source
from sasgp.data.tables.headers import header_names, name_columns
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["read_delimited", "unpacked_bytes"]

SEPARATORS = "\t;|,"  # in doubt the first: commas are also in numbers and sentences
LINES_SEEN = 50
WINDOWS = "cp1252"


@dataclass(frozen=True)
class _Text:
    """A text file, and how to read it."""

    path: Path
    encoding: str
    separator: str = ","

    def lines(self) -> Iterator[tuple[int, list[str]]]:
        """The number of the line on which each row ends, and the cells of the row. A blank line has none."""
        with unpacked(self.path) as file:
            text = io.TextIOWrapper(file, self.encoding, newline="")
            reader = csv.reader(text, delimiter=self.separator)
            for cells in reader:
                yield reader.line_num, [] if len(cells) == 1 and not cells[0].strip() else cells

    def cells(self, skip: int, width: int, place: int | None = None) -> "pl.DataFrame":
        """The cells below the first `skip` rows, as text, of all columns or one. Columns are called by their places."""
        import polars as pl

        # A type guessed from the first cells may not be that of the column, and loses the zeros of 00123.
        return pl.read_csv(
            self._source(),
            has_header=False,
            skip_rows=skip,
            separator=self.separator,
            schema={str(i): pl.String for i in range(width)},
            columns=None if place is None else [place],
            eol_char=self._line_end(),
            glob=False,
        )

    def _line_end(self) -> str:
        """The last character of a line."""
        with unpacked(self.path) as file, io.TextIOWrapper(file, self.encoding, newline="") as text:
            head = text.read(1 << 16)
        return "\r" if "\r" in head and "\n" not in head else "\n"

    def _source(self) -> Path | bytes:
        if self.encoding == "utf-8-sig" and self.path.suffix.lower() != ".gz":
            return source(self.path)
        content = unpacked_bytes(self.path)
        return content if self.encoding == "utf-8-sig" else content.decode(self.encoding).encode()

    def line(self, row: int) -> int:
        """The number of the line that an editor shows for a row, counted from 0 with the header."""
        return next(islice((line for line, cells in self.lines() if cells), row, None))

    def full_rows(self, width: int) -> list[int]:
        """Indices of the rows that are not blank. Raise InputError unless each has `width` cells, after the first."""
        full: list[int] = []
        for i, (line, cells) in enumerate(self.lines()):
            if cells and full and len(cells) != width:
                raise InputError(
                    f"{self.path}: line {line} must have {width} cells like the first line, but has {len(cells)}. "
                    "Correct it."
                )
            if cells:
                full.append(i)
        return full


def read_delimited(path: Path, missing: Sequence[str] = (), *, suffix: str = ".csv") -> TableFile:
    """Read a .csv, .tsv or .txt file."""
    import polars as pl

    encoding = _encoding(path)
    text = _Text(path, encoding, _separator(path, encoding, suffix))
    # The first two rows show whether there is a header. polars reads what is below it.
    rows = ((i, cells) for i, (_, cells) in enumerate(text.lines()) if cells)
    start, first = next(rows, (0, []))
    below, second = next(rows, (0, []))
    if not first:
        raise InputError(f"{path} is empty. It must have a row of numbers on each line.")
    header = header_names(first, second)
    names = header or [f"x{i}" for i in range(len(first))]
    if header and not second:
        raise InputError(f"{path} has a header but no rows. Add some.")

    skip = start if header is None else below  # a blank line first would make polars expect one column
    try:
        cells = text.cells(skip, len(names))
    except pl.exceptions.PolarsError:
        text.full_rows(len(names))
        raise
    kept = None
    # polars pads short lines and counts blank lines as rows. Both leave a null in the last column.
    if cells[:, -1].null_count():
        kept = [i - skip for i in text.full_rows(len(names)) if i >= skip]
        cells = cells[kept]
    named, notes = name_columns(cells, names, path)
    place = {name: int(place) for place, name in named.items()}

    def as_written(name: str) -> list[str]:
        column = text.cells(skip, len(names), place[name]).to_series()
        return (column if kept is None else column[kept]).str.strip_chars().to_list()

    columns = cells.select(*named).rename(named).get_columns()
    del cells  # so that each column of text can go when it has its type
    columns, ambiguous = type_columns(columns, decimal_commas=text.separator != ",", missing=missing)
    notes = [*_remarks(path, encoding), *notes, *unclear_dates(path, ambiguous)]
    return TableFile(
        path, pl.DataFrame(columns), tuple(notes), text.separator, header is not None, as_written, text.line
    )


def unpacked(path: Path) -> IO[bytes]:
    """The open file, uncompressed on the way if it ends in .gz."""
    return cast(IO[bytes], gzip.open(path)) if path.suffix.lower() == ".gz" else path.open("rb")


def unpacked_bytes(path: Path) -> bytes:
    """All of a file, uncompressed. A small compressed file may hold much, so there is a limit."""
    have, content = available(), io.BytesIO()
    with unpacked(path) as file:
        while block := file.read(1 << 20):
            content.write(block)
            if content.tell() > have:
                raise _too_large(path, have)
    return content.getvalue()


def _too_large(path: Path, have: int) -> InputError:
    return InputError(f"{path} holds more than {amount(have)}, which is all the memory that is free. Split it.")


def _encoding(path: Path) -> str:
    """The encoding of a text file, which is read once to the end. Raise InputError if there is none."""
    with unpacked(path) as file:
        head = file.read(1 << 16)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        candidates = ["utf-16"]
    elif b"\0" in head:
        raise InputError(f"{path} is not a text file: it contains zero bytes. Save it as UTF-8 text.")
    else:
        candidates = ["utf-8-sig", WINDOWS]
    for encoding in candidates:
        decoder, have, size = codecs.getincrementaldecoder(encoding)(), available(), 0
        with suppress(UnicodeDecodeError), unpacked(path) as file:
            while block := file.read(1 << 20):
                decoder.decode(block)
                size += len(block)
                if size > have:
                    raise _too_large(path, have)
            decoder.decode(b"", final=True)
            return encoding
    raise InputError(f"{path} is not a text file: it is neither UTF-8 nor {WINDOWS} text. Save it as UTF-8 text.")


def _separator(path: Path, encoding: str, suffix: str) -> str:
    """The separator that cuts most of the first lines into as many cells as the second one, and into more than one."""
    counts = {}
    for separator in SEPARATORS:
        widths: list[int] = []
        with suppress(csv.Error):  # a line that this separator does not cut may be longer than a cell may be
            filled = (len(cells) for _, cells in _Text(path, encoding, separator).lines() if cells)
            widths = list(islice(filled, LINES_SEEN))
        width = widths[1] if len(widths) > 1 else sum(widths)
        counts[separator] = widths.count(width) if width > 1 else 0
    best = max(SEPARATORS, key=lambda separator: counts[separator])
    usual = "\t" if suffix.startswith(".tsv") else ","
    return best if counts[best] and not (suffix.startswith(".tsv") and counts["\t"]) else usual


def _remarks(path: Path, encoding: str) -> list[str]:
    return [] if encoding == "utf-8-sig" else [f"{path} is not UTF-8 text, and is read as {encoding}."]
