"""The target of a supervised model: where it is in the data, what kind of problem it is, and rows that have it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.fit_options import TableOptions, hint
from sasgp.cli.tables import as_table
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from sasgp.data.named import Dataset

__all__ = ["Problem", "is_table", "read_problem", "target_array"]

NUMBERS, LEVELS = ("real", "skewed", "count"), ("category", "binary", "ordinal")  # kinds of columns that can be targets


@dataclass(frozen=True)
class Problem:
    """Rows that have a target, and what is to be learned.

    Parameters
    ----------
    dataset : Dataset
        Its y are the targets.
    target : str
        Name of the target.
    classes : bool
        Whether it is a classification.
    why : str
        The reason, in words.
    columns : str or dict
        The setting `columns` of the estimator.
    rows : array or None
        The places of the rows in the data. None: all rows have a target.
    left_out : int
        How many rows have none.
    """

    dataset: "Dataset"
    target: str
    classes: bool
    why: str
    columns: Any
    rows: "NDArray[Any] | None" = None
    left_out: int = 0


def read_problem(source: str, target: str, options: TableOptions) -> Problem:
    """The rows of a file or a data set that have a target, and whether it is a number or a class."""
    import numpy as np

    dataset, series = _from_table(source, target, options) if is_table(source) else _from_array(source, target, options)
    kind, inputs = _kind_of(series.name, options)
    dataset, columns = as_table(dataset, inputs)
    dataset = _in_memory(dataset, columns)
    classes, why = _recognised(series, kind)
    present = series.is_not_null().to_numpy()
    y = target_array(series.drop_nulls(), classes=classes)
    if present.all():
        return Problem(replace(dataset, y=y), series.name, classes, why, columns)

    from sasgp.data.rows import take_rows

    rows = np.flatnonzero(present)
    ids = None if dataset.ids is None else dataset.ids[rows]
    dataset = replace(dataset, X=take_rows(dataset.X, rows), y=y, ids=ids)
    return Problem(dataset, series.name, classes, why, columns, rows, int((~present).sum()))


def is_table(source: str) -> bool:
    """Whether this is the path of a table. If it is not a file, or an empty one, `sasgp.data.load` says so."""
    from sasgp.data.named import NAMES
    from sasgp.data.tables import TABLE_SUFFIXES, table_suffix

    path = Path(source).expanduser()
    there = source not in NAMES and path.is_file() and path.stat().st_size > 0
    return there and table_suffix(path) in TABLE_SUFFIXES


def _from_table(source: str, target: str, options: TableOptions) -> "tuple[Dataset, pl.Series]":
    import polars as pl

    from sasgp.data.named import Dataset
    from sasgp.data.tables import DiskTable, read_table, table_suffix

    path = Path(source).expanduser()
    table = read_table(path, missing=options.missing)
    names = table.schema.names()
    column = table.find_label_column(target)
    if column is None and all(table.find_label_column(one) for one in target.split(",")):
        raise InputError(
            f"--target takes one column. Got {target}. Train a run for each; in Python, SASGPRegressor takes several."
        )
    if column is None:
        raise InputError(f"--target must be a column of {source}. There is no '{target}'. {hint(target, names)}")
    kept = tuple(name for name in names if name != column)
    if not kept:
        raise InputError(f"{source} has no column besides '{column}', so there is nothing to predict it from.")
    series = pl.concat(list(table.blocks([column])))[column]
    X: Any = DiskTable(table, kept, 0, table.n_rows) if table.stays_on_disk else table.frame.select(kept)
    return Dataset(path.name[: -len(table_suffix(path))], X, None, kept, None, notes=table.notes), series


def _in_memory(dataset: "Dataset", columns: Any) -> "Dataset":
    """The data. Of a large file, an estimator reads tables in blocks, but not numbers of one unit."""
    from sasgp.data.tables import DiskTable
    from sasgp.data.units import is_array

    X = dataset.X
    if isinstance(X, DiskTable) and columns == "auto" and is_array(X):
        return replace(dataset, X=X.file.frame.select(X.columns).to_numpy())
    return dataset


def _from_array(source: str, target: str, options: TableOptions) -> "tuple[Dataset, pl.Series]":
    """A named data set, an array, or a folder of images. Its labels are the target."""
    import numpy as np
    import polars as pl

    from sasgp.data import load
    from sasgp.data.named import NAMES
    from sasgp.data.tables import LABEL_NAMES

    path = Path(source).expanduser()
    if path.suffix.lower() == ".h5ad" and path.is_file():
        raise InputError(f"--target reads tables and arrays, but {source} holds cells. Save them as a table first.")
    own = target in LABEL_NAMES and path.suffix.lower() != ".npz" and not Path(target).expanduser().is_file()
    if source in NAMES and not own:
        raise InputError(f"{source} has one target, its labels. Say --target label. Got --target {target}.")
    dataset = load(source, labels=None if own else target, missing=options.missing)
    if dataset.y is None:
        raise InputError(f"{source} has no labels. Name a file with one target per row as --target.")
    name = Path(target).stem if Path(target).expanduser().is_file() else target
    return dataset, pl.Series(name, np.asarray(dataset.y), nan_to_null=True)


def _kind_of(target: str, options: TableOptions) -> tuple[str | None, TableOptions]:
    """What the user says that the target holds, and what is said about the other columns."""
    if target in options.drop or target == options.id:
        raise InputError(f"'{target}' is the --target, so it cannot be left out or name the rows.")
    said = [(name, kind) for name, _, kind in (pair.rpartition("=") for pair in options.kind)]
    kinds = [kind for name, kind in said if name in (target, "*")]
    others = tuple(pair for pair in options.kind if pair.rpartition("=")[0] != target)
    only = tuple(name for name in options.only if name != target)
    return kinds[-1] if kinds else None, replace(options, kind=others, only=only)


def _recognised(series: "pl.Series", kind: str | None) -> tuple[bool, str]:
    """Whether a target is a class, and why. Raises InputError if it is neither a class nor a number."""
    from sasgp.data.columns.recognise import recognise

    name = series.name
    if kind is not None and kind not in (*NUMBERS, *LEVELS):
        raise InputError(
            f"A target can be {', '.join((*NUMBERS, *LEVELS))}. Got --kind {name}={kind}. Convert the column if it "
            "holds something else."
        )
    [found] = recognise(series.to_frame(), {} if kind is None else {name: kind})
    if found.kind == "empty":
        raise InputError(f"No row has a target: column '{name}' is empty. Choose another --target.")
    present = series.drop_nulls()
    if found.kind == "constant" or present.n_unique() == 1:
        raise InputError(
            f"The target must vary, but '{name}' is always {present[0]}. There is nothing to learn. Choose another "
            "--target."
        )
    if series.dtype.is_numeric():
        whole = bool((present == present.round()).all()) if present.dtype.is_float() else True
        levels = found.kind in LEVELS and (kind is not None or whole or found.kind == "binary")
        return levels, found.why if levels else found.why.partition(",")[0]  # without the shape that inputs have
    if found.kind in LEVELS:
        return True, found.why
    raise InputError(
        f"--target {name} must hold numbers or classes, but its values are of the kind {found.kind}: {found.why}. "
        "Choose or convert another column."
    )


def target_array(series: "pl.Series", *, classes: bool) -> "NDArray[Any]":
    """Targets as an array: numbers as float64, classes as integers or text."""
    import numpy as np
    import polars as pl

    if not classes:
        return series.cast(pl.Float64).to_numpy()
    if series.dtype == pl.Boolean:
        return np.where(series.to_numpy(), "true", "false")
    whole = series.dtype.is_numeric() and bool((series.cast(pl.Float64) % 1 == 0).all())
    return series.cast(pl.Int64).to_numpy() if whole else np.array(series.cast(pl.String).to_list())
