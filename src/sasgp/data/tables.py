"""CSV, TSV and Parquet files as columns of numbers and a column of labels, read by polars.

Cells of a CSV file are separated by commas, or by semicolons or tabs if its first line has no comma. Empty cells, NA,
N/A, NaN, null and None are missing values and become NaN.

The first line is a header in three cases: a cell that is not a number stands above a number, or no cell is a number, or
the cells count 0, 1, 2, … like the default column names of pandas. So `5.1,3.5,setosa` above `4.9,3.0,setosa` is data,
and `label,0,1` above `7,0,255` is a header. Without a header, columns are called x0, x1, … by their place in the file.
"""

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from sasgp.data.labels import parse_labels, text_array
from sasgp.data.memory import amount, available
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["LABEL_NAMES", "TableFile", "TextError", "first_repeated", "is_number", "read_table"]

LABEL_NAMES = ("label", "labels", "class", "target", "y")
MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "None")


class TextError(InputError):
    """A column that should hold numbers holds text."""


@dataclass(frozen=True)
class TableFile:
    """A file and its named columns. For a text file, `as_written` returns the cells of a column, given by its place.

    `separator` and `as_written` are None if it is not a text file.
    """

    path: Path
    frame: "pl.DataFrame"
    separator: str | None = None
    has_header: bool = True
    as_written: Callable[[int], list[str]] | None = None

    @property
    def n_rows(self) -> int:
        return self.frame.height

    @property
    def label_candidates(self) -> tuple[str, ...]:
        """Columns that may hold the labels."""
        return tuple(self.frame.columns)

    def find_label_column(self, label: str) -> str | None:
        """The column called `label`, or in a file without header the column at that place, counted from 0."""
        if label in self.frame.columns:
            return label
        if not self.has_header and label.isdecimal() and int(label) < self.frame.width:
            return self.frame.columns[int(label)]
        return None

    def guess_label_column(self, features: Sequence[str] = ()) -> str | None:
        """A column of text or integers whose name is in `LABEL_NAMES` but not in `features`."""
        import polars as pl

        named = [
            name
            for name, dtype in self.frame.schema.items()
            if name in LABEL_NAMES
            and name not in features
            and (dtype in (pl.String, pl.Categorical, pl.Enum) or dtype.is_integer())
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

        values = self.frame[column]
        if values.null_count():
            row = values.is_null().arg_max() or 0
            raise InputError(
                f"{self.path}: {self._place(row)} has no label in column '{column}'. Add one or drop the row."
            )
        if values.dtype in (pl.String, pl.Categorical, pl.Enum):
            return text_array(values.cast(pl.String).to_list())
        if not (values.dtype.is_numeric() or values.dtype == pl.Boolean):
            raise InputError(
                f"{self.path}: labels must be text or numbers, but '{column}' has type {values.dtype}. Convert it.",
                argument="labels",
            )
        if self.as_written and values.dtype.is_numeric():
            return parse_labels(self.as_written(self.frame.columns.index(column)))
        return values.to_numpy()

    def numbers(
        self, *, without: str | None, only: Sequence[str] | None = None
    ) -> tuple[NDArray[Any], tuple[str, ...]]:
        """All columns except the labels, as X [N, D] and their names, or `only` some if the file names all of those."""
        import polars as pl

        frame = self.frame.drop(without) if without else self.frame
        if only is not None and self.has_header and set(only) <= set(frame.columns):
            frame = frame.select(only)
        if text := [name for name in frame.columns if frame[name].dtype in (pl.String, pl.Categorical, pl.Enum)]:
            raise self._text_error(text, may_be_labels=without is None)
        for name, dtype in frame.schema.items():
            if not (dtype.is_numeric() or dtype in (pl.Boolean, pl.Null)):
                raise InputError(
                    f"{self.path}: column '{name}' must hold numbers, but has type {dtype}. Convert or drop it."
                )
        if not frame.width:
            raise InputError(f"{self.path} has no column besides the labels. Add columns of numbers.")
        # Text files become float64. A Parquet file keeps its types if numpy has them.
        odd = pl.selectors.numeric() if self.separator else pl.selectors.decimal()
        frame = frame.with_columns((odd | pl.selectors.boolean() | pl.selectors.by_dtype(pl.Null)).cast(pl.Float64))
        return frame.to_numpy(order="c"), tuple(frame.columns)

    def _text_error(self, names: list[str], may_be_labels: bool) -> InputError:
        """The error for columns of text. It points to a stray word, or suggests that a whole column is the labels."""
        import polars as pl

        text = {name: self.frame[name].cast(pl.String) for name in names}
        for name, column in text.items():
            stray = _stray(column)
            if 2 * _stray(column.str.replace(",", ".", literal=True)).sum() < stray.sum():
                row = stray.arg_max() or 0
                return InputError(
                    f"{self.path}: column '{name}' must hold numbers with decimal points, but {self._place(row)} has "
                    f"{column[row][:40]!r}. Save the file with decimal points and without thousands separators."
                )
            if 2 * stray.sum() < len(column) - column.null_count():
                row = stray.arg_max() or 0
                return InputError(
                    f"{self.path}: column '{name}' must hold numbers, but {self._place(row)} has {column[row][:40]!r}. "
                    "Correct it, or leave the cell empty if the value is missing."
                )
        name, column = next(iter(text.items()))
        row = column.is_not_null().arg_max() or 0
        what = f"{self.path}: column '{name}' holds text ({column[row][:40]!r} in row {row + 1})"
        place = name if self.has_header else str(self.frame.columns.index(name))
        if not may_be_labels:
            return TextError(f"{what} where numbers are expected; drop it.")
        if len(names) > 1:
            return TextError(
                f"{self.path}: columns {_listed(names)} hold text ({column[row][:40]!r} in row {row + 1}). If one of "
                f"them holds the labels, say labels={place!r}, and drop the others.",
                argument="labels",
            )
        return TextError(f"{what}. If it holds the labels, say labels={place!r}. Otherwise drop it.", argument="labels")

    def _place(self, row: int) -> str:
        """Where a row is in the file. In a text file that is the line number that an editor shows."""
        if self.separator is None:
            return f"row {row + 1}"
        filled = (line for line, cells in _lines(self.path, self.separator) if cells)
        return f"line {next(islice(filled, row + self.has_header, None))}"


def read_table(path: Path) -> TableFile:
    """Read a .csv, .tsv or .parquet file."""
    import polars as pl

    try:
        table = _read_parquet(path) if path.suffix.lower() == ".parquet" else _read_csv(path)
    except (UnicodeDecodeError, csv.Error, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        # On some damaged Parquet files polars panics, which is not one of its own errors.
        reason = str(error).splitlines()[0]
        cure = "Save it again" if path.suffix.lower() == ".parquet" else "Save it as UTF-8 text"
        raise InputError(f"{path} cannot be read as {path.suffix} ({reason}). {cure}.") from error
    if not table.frame.height:
        raise InputError(f"{path} has columns but no rows. Add some.")
    return table


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that occurred before, or None."""
    known: set[str] = set()
    for name in names:
        if name in known:
            return name
        known.add(name)
    return None


def is_number(cell: str) -> bool:
    """Whether a cell of a text file is a number or a missing value."""
    try:
        float(cell)
    except ValueError:
        return cell.strip() in MISSING
    return True


def _read_parquet(path: Path) -> TableFile:
    """Read a .parquet file. A small one may hold many rows of one value, so their size is checked first."""
    import polars as pl

    lazy = pl.scan_parquet(_source(path), glob=False)
    row_bytes = sum(pl.Series([], dtype=dtype).to_numpy().itemsize for dtype in lazy.collect_schema().dtypes())
    n_rows = lazy.select(pl.len()).collect().item()
    need, have = n_rows * row_bytes, available()
    if need > have:
        raise InputError(
            f"{path}: {n_rows} rows need {amount(need)} of memory, but only {amount(have)} are free. Save them as a "
            ".npy file, which stays on disk."
        )
    return TableFile(path, pl.read_parquet(_source(path), glob=False))


def _read_csv(path: Path) -> TableFile:
    import polars as pl

    with path.open("rb") as file:
        head = file.read(1 << 16)
    if b"\0" in head:
        raise InputError(f"{path} is not a text file: it contains zero bytes. Save it as UTF-8 text.")
    first_line = head.lstrip().split(b"\n", 1)[0].decode("utf-8", "replace")
    separator = "\t" if path.suffix.lower() == ".tsv" else next((s for s in ",;\t" if s in first_line), ",")

    # The first two rows show whether there is a header. polars reads what is below it.
    rows = ((i, cells) for i, (_, cells) in enumerate(_lines(path, separator)) if cells)
    start, first = next(rows, (0, []))
    _, second = next(rows, (0, []))
    if not first:
        raise InputError(f"{path} is empty. It must have a row of numbers on each line.")
    has_header = _is_header(first, second)
    names = [cell.strip() for cell in first] if has_header else [f"x{i}" for i in range(len(first))]
    _check_names(path, names)
    if has_header and not second:
        raise InputError(f"{path} has a header but no rows. Add some.")

    try:
        skip = start + has_header
        frame = _read_cells(path, separator, skip)
    except pl.exceptions.PolarsError:
        _full_rows(path, separator, len(names))
        raise
    kept = None
    # polars pads short lines and counts blank lines as rows. Both leave a null in the last column.
    if frame.width != len(names) or frame[:, -1].null_count():
        kept = [i - skip for i in _full_rows(path, separator, len(names)) if i >= skip]
        frame = frame[kept]
    names_before, frame.columns = frame.columns, names

    def as_written(place: int) -> list[str]:
        name = names_before[place]
        cells = _read_cells(path, separator, skip, columns=[name], schema_overrides={name: pl.String})[name]
        return (cells if kept is None else cells[kept]).str.strip_chars().to_list()

    frame = frame.with_columns([_as_numbers(column) for column in frame])
    return TableFile(path, frame, separator, has_header, as_written)


def _read_cells(path: Path, separator: str, skip: int, **options: Any) -> "pl.DataFrame":
    """The cells below the first `skip` rows. Types are those of the whole column, not of its first hundred cells."""
    import polars as pl

    return pl.read_csv(
        _source(path),
        has_header=False,
        skip_rows=skip,
        separator=separator,
        infer_schema_length=None,
        glob=False,
        **options,
    )


def _source(path: Path) -> Path | bytes:
    """What polars is given: the path, or the contents if the path is not UTF-8, which polars cannot open."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return path.read_bytes()
    return path


def _lines(path: Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The number of the line on which each row ends, and the cells of the row. A blank line has none."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.reader(file, delimiter=separator)
        for cells in reader:
            yield reader.line_num, [] if len(cells) == 1 and not cells[0].strip() else cells


def _full_rows(path: Path, separator: str, width: int) -> list[int]:
    """Indices of the rows that are not blank. Raise InputError unless each has `width` cells."""
    full = []
    for i, (line, cells) in enumerate(_lines(path, separator)):
        if cells and len(cells) != width:
            raise InputError(
                f"{path}: line {line} must have {width} cells like the first line, but has {len(cells)}. Correct it."
            )
        if cells:
            full.append(i)
    return full


def _is_header(first: list[str], second: list[str]) -> bool:
    named = first if first[0].strip() else first[1:]  # pandas leaves the name of its row index empty
    # Two columns are too few to distinguish counting from data.
    if len(named) > 2 and [cell.strip() for cell in named] == [str(i) for i in range(len(named))]:
        return True
    numeric = [is_number(cell) for cell in first]
    over_number = any(is_number(below) and not above for above, below in zip(numeric, second, strict=False))
    return over_number or not any(numeric)


def _check_names(path: Path, names: list[str]) -> None:
    if "" in names:
        raise InputError(
            f"{path}: column {names.index('') + 1} has no name. Name it, or drop it if it counts the rows (pandas: "
            "index=False)."
        )
    if (twice := first_repeated(names)) is not None:
        raise InputError(f"{path}: two columns are called '{twice}'. Rename or drop one.")


def _stray(column: "pl.Series") -> "pl.Series":
    """Cells that are neither numbers nor missing."""
    import polars as pl

    return column.cast(pl.Float64, strict=False).is_null() & ~column.fill_null("").is_in(MISSING)


def _as_numbers(column: "pl.Series") -> "pl.Series":
    """Convert a column that polars read as text because of blanks or missing values, if all of it is numbers."""
    import polars as pl

    if column.dtype != pl.String:
        return column
    column = column.str.strip_chars()
    if _stray(column).any():
        return column
    integers = column.cast(pl.Int64, strict=False)
    missing = column.fill_null("").is_in(MISSING)
    if (integers.is_not_null() | missing).all() and integers.is_not_null().any():
        return integers
    return column.cast(pl.Float64, strict=False)


def _listed(names: list[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
