"""A table in a file: its typed columns, whole or in blocks, and as numbers with a column of labels."""

import csv
import json
import math
import zlib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from sasgp.data.blocks import rows_at_once
from sasgp.data.labels import parse_labels, text_array
from sasgp.data.memory import amount, available
from sasgp.data.tables.cells import MISSING
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LABEL_NAMES", "TableFile", "TextError", "literal", "readable", "source", "wide_integers"]

LABEL_NAMES = ("label", "labels", "class", "target", "y")
MIN_PART, MOST_PARTS = 4, 8  # columns that are read together: few fetches, each of a small share of the file
LARGE = 1 << 27  # bytes of a table that is read in blocks
MOST_PROBLEMS = 10  # in one message: each may take a walk through the file to say where it is


class TextError(InputError):
    """A column that should hold numbers holds text."""


@dataclass(frozen=True)
class TableFile:
    """A file and its named columns, each with its natural type. Missing values are null.

    Parameters
    ----------
    path
    data
        What was read. For files that can be read in parts it is a plan to read them, and `tidy` is what to do with a
        part: a plan that tidies all rows would also read all of them.
    notes
        What the user should know about how the file was read, in sentences.
    separator, has_header, as_written, line
        For a text file: what separates its cells, whether its first line names the columns, the cells of a column as
        they are in the file, and the line of a row, counted from 0 with the header. Of other files the first and the
        last two are None.
    check
        Raises InputError if the file should not be read. It is called once, before the first values are.
    """

    path: Path
    data: "pl.DataFrame | pl.LazyFrame"
    notes: tuple[str, ...] = ()
    separator: str | None = None
    has_header: bool = True
    as_written: Callable[[str], list[str]] | None = None
    line: Callable[[int], int] | None = None
    tidy: "Callable[[pl.LazyFrame], pl.LazyFrame]" = lambda part: part
    check: Callable[[Path], None] = lambda path: None

    @cached_property
    def schema(self) -> "pl.Schema":
        """Names and types of the columns. Nothing else is read."""
        with readable(self.path):
            return self.tidy(self.data.lazy()).collect_schema()

    @cached_property
    def n_rows(self) -> int:
        """The number of rows. Nothing else is read."""
        import polars as pl

        if isinstance(self.data, pl.DataFrame):
            return self.data.height
        with readable(self.path):
            return int(self.data.select(pl.len()).collect().item())

    @cached_property
    def plan(self) -> "pl.DataFrame | pl.LazyFrame":
        """The data, of which values may now be read."""
        self.check(self.path)
        return self.data

    @cached_property
    def frame(self) -> "pl.DataFrame":
        """All rows and columns. A small file may hold many rows of one value, so their size is checked first."""
        import polars as pl

        if isinstance(self.data, pl.DataFrame):
            return self.data
        row_bytes = sum(pl.Series([], dtype=dtype).to_numpy().itemsize for dtype in self.schema.dtypes())
        need, have = self.n_rows * row_bytes, available()
        if need > have:
            raise InputError(
                f"{self.path}: {self.n_rows} rows need {amount(need)} of memory, but only {amount(have)} are free. "
                "Save them as a .npy file, which stays on disk."
            )
        with readable(self.path):
            return self.tidy(self.plan.lazy()).collect()

    def blocks(self, columns: Sequence[str] | None = None, size: int | None = None) -> Iterator["pl.DataFrame"]:
        """Walk through the rows in order, some at a time. A .parquet or .feather file is never in memory whole.

        Parameters
        ----------
        columns
            Those to read, in this order. None reads all.
        size
            Rows in a block. None chooses about 32 MB.
        """
        if columns is not None and (lacking := [name for name in columns if name not in self.schema]):
            raise InputError(f"{self.path} has no column {_listed(lacking)}. It has {_listed(list(self.schema))}.")
        names = list(self.schema) if columns is None else list(columns)
        size = size or rows_at_once(len(names))
        for start in range(0, self.n_rows, size):
            with readable(self.path):
                block = self._slice(start, size, names)
            yield block

    def _slice(self, start: int, size: int, names: list[str]) -> "pl.DataFrame":
        """Some rows. All rows may be one group in a file, which polars fetches whole; so columns are read in parts."""
        import polars as pl

        if isinstance(self.data, pl.DataFrame):
            return self.data.slice(start, size)[names]
        rows = self.tidy(self.plan.lazy().slice(start, size))
        width = max(MIN_PART, math.ceil(len(names) / MOST_PARTS))
        parts = [names[i : i + width] for i in range(0, len(names), width)]
        return pl.concat([rows.select(literal(part)).collect()[part] for part in parts], how="horizontal")

    @property
    def stays_on_disk(self) -> bool:
        """Whether the rows can be read in blocks and are too many to have in memory for no reason."""
        import polars as pl

        return isinstance(self.data, pl.LazyFrame) and self.n_rows * len(self.schema) * 8 > LARGE

    @property
    def label_candidates(self) -> tuple[str, ...]:
        """Columns that may hold the labels."""
        return tuple(self.schema)

    def find_label_column(self, label: str) -> str | None:
        """The column called `label`, or in a file without header the column at that place, counted from 0."""
        if label in self.schema:
            return label
        if not self.has_header and label.isdecimal() and int(label) < len(self.schema):
            return self.schema.names()[int(label)]
        return None

    def guess_label_column(self, features: Sequence[str] = ()) -> str | None:
        """A column of text or numbers whose name is in `LABEL_NAMES` but not in `features`."""
        import polars as pl

        named = [
            name
            for name, dtype in self.schema.items()
            if name in LABEL_NAMES
            and name not in features
            and (
                dtype in (pl.String, pl.Categorical, pl.Enum)
                or dtype.is_numeric()
                or (dtype.is_temporal() and self.as_written is not None)
            )
        ]
        if len(named) > 1:
            raise InputError(
                f"{self.path}: columns {_listed(named)} may all hold the labels. Choose one with labels={named[0]!r}, "
                "or drop the others.",
                argument="labels",
            )
        return named[0] if named else None

    def labels(self, column: str) -> NDArray[Any]:
        """The values of a column. Text stays text, and so do codes such as 00123."""
        import polars as pl

        with readable(self.path):
            values = self.plan.lazy().select(literal([column])).collect()[column]
        if values.null_count():
            row = values.is_null().arg_max() or 0
            raise InputError(
                f"{self.path}: {self._place(row)} has no label in column '{column}'. Add one or drop the row."
            )
        if values.dtype in wide_integers():
            return parse_labels(values.cast(pl.String).to_list())
        if values.dtype in (pl.String, pl.Categorical, pl.Enum):
            return text_array(values.cast(pl.String).to_list())
        if self.as_written and values.dtype != pl.Boolean:
            return parse_labels(self.as_written(column))
        if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
            raise InputError(
                f"{self.path}: labels must be text or numbers, but '{column}' has type {values.dtype}. Convert it.",
                argument="labels",
            )
        return values.to_numpy()

    def numbers(
        self, *, without: Collection[str], only: Sequence[str] | None = None
    ) -> tuple[NDArray[Any], tuple[str, ...]]:
        """All columns except some, as X [N, D] and their names, or `only` some if the file names all of those."""
        import polars as pl

        frame = self.frame[[name for name in self.frame.columns if name not in without]]
        if only is not None and self.has_header and set(only) <= set(frame.columns):
            frame = frame[list(only)]
        other = {
            name: dtype
            for name, dtype in frame.schema.items()
            if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null))
        }
        if other:
            raise self._not_numbers(other, may_be_labels=not without)
        if not frame.width:
            raise InputError(f"{self.path} has no column besides the labels. Add columns of numbers.")
        # Text files become float64. A Parquet file keeps its types if numpy has them.
        odd = pl.selectors.numeric() if self.separator else pl.selectors.decimal()
        frame = frame.with_columns((odd | pl.selectors.boolean() | pl.selectors.by_dtype(pl.Null)).cast(pl.Float64))
        return frame.to_numpy(order="c"), tuple(frame.columns)

    def _not_numbers(self, columns: "dict[str, pl.DataType]", may_be_labels: bool) -> InputError:
        """The error for all columns that are not numbers."""
        import polars as pl

        text, problems = [], []
        for name, dtype in columns.items():
            if dtype not in (pl.String, pl.Categorical, pl.Enum):
                problems.append(f"column '{name}' must hold numbers, but has type {dtype}. Convert or drop it.")
            elif len(problems) < MOST_PROBLEMS and (problem := self._stray_word(name)) is not None:
                problems.append(problem)
            else:
                text.append(name)
        kind = InputError if problems else TextError
        if text:
            problems.append(self._holds_text(text, may_be_labels))
        message = " ".join([problems[0], *(problem[0].upper() + problem[1:] for problem in problems[1:])])
        return kind(f"{self.path}: {message}", argument="labels" if text and may_be_labels else None)

    def _stray_word(self, name: str) -> str | None:
        """What is wrong with a column of text, most of which is numbers."""
        import polars as pl

        column = self.frame[name].cast(pl.String)
        stray = _stray(column)
        if not stray.any():
            return None
        row = stray.arg_max() or 0
        if 2 * _stray(column.str.replace(",", ".", literal=True)).sum() < stray.sum():
            return (
                f"column '{name}' must hold numbers with decimal points, but {self._place(row)} has "
                f"{column[row][:40]!r}. Save the file with decimal points and without thousands separators."
            )
        if 2 * stray.sum() < len(column) - column.null_count():
            return (
                f"column '{name}' must hold numbers, but {self._place(row)} has {column[row][:40]!r}. "
                "Correct it, or leave the cell empty if the value is missing."
            )
        return None

    def _holds_text(self, names: list[str], may_be_labels: bool) -> str:
        """What to do about columns of text: one of them may hold the labels."""
        import polars as pl

        column = self.frame[names[0]].cast(pl.String)
        row = column.is_not_null().arg_max() or 0
        example = f"({column[row][:40]!r} in row {row + 1})"
        several = len(names) > 1
        what = (
            f"columns {_listed(names)} hold text {example}" if several else f"column '{names[0]}' holds text {example}"
        )
        if not may_be_labels:
            return f"{what} where numbers are expected; drop {'them' if several else 'it'}."
        place = names[0] if self.has_header else str(self.frame.columns.index(names[0]))
        if several:
            return f"{what}. If one of them holds the labels, say labels={place!r}, and drop the others."
        return f"{what}. If it holds the labels, say labels={place!r}. Otherwise drop it."

    def _place(self, row: int) -> str:
        """Where a row is in the file. In a text file that is the line number that an editor shows."""
        return f"line {self.line(row + self.has_header)}" if self.line else f"row {row + 1}"


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turn what polars and others raise on a damaged file into one sentence."""
    import polars as pl

    try:
        yield
    except (UnicodeDecodeError, json.JSONDecodeError, csv.Error, zlib.error, EOFError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # the system's, such as a missing permission
            raise
        raise InputError(f"{path} is damaged ({_first_line(error)}). Copy it or save it again.") from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # On some damaged Parquet files polars panics, which is not one of its own errors.
        suffix = "".join(path.suffixes[-2:]) if path.suffix.lower() == ".gz" else path.suffix
        raise InputError(f"{path} cannot be read as {suffix} ({_first_line(error)}). Save it again.") from error


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")


def source(path: Path) -> Path | bytes:
    """What polars is given: the path, or the contents if the path is not UTF-8, which polars cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.read_bytes()
    return path


def wide_integers() -> "list[type[pl.DataType]]":
    """Types of integers with 128 bits, which NumPy does not have. Older releases of polars have none, or one."""
    import polars as pl

    return [getattr(pl, name) for name in ("Int128", "UInt128") if hasattr(pl, name)]


def literal(names: Sequence[str]) -> "pl.Expr":
    """Columns by their names. To polars itself, a column called * is all columns."""
    import polars as pl

    return pl.selectors.by_name(*names)


def _stray(column: "pl.Series") -> "pl.Series":
    """Cells that are neither numbers nor missing."""
    import polars as pl

    return column.cast(pl.Float64, strict=False).is_null() & ~column.fill_null("").is_in(MISSING)


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
