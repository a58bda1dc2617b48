"""Tables on the command line: what their columns were taken for, and metrics by column."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.printing import Result, show
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from sasgp.cli.fit_options import TableOptions
    from sasgp.cli.runs import RunFolder
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP

__all__ = [
    "as_table",
    "check_table_suffix",
    "decode_table",
    "load_table",
    "show_by_column",
    "show_columns",
    "side_by_side",
    "write_table",
]

INTERVAL = 0.9  # of the numbers that `decode --std` writes
MOST_LINES = 60  # of the report; run.json has all


def as_table(dataset: "Dataset", options: "TableOptions") -> "tuple[Dataset, Any]":
    """A data set and the `columns` of its estimator, as the options for tables say. The id column names the rows."""
    from sasgp.data.tables import is_frame

    if not is_frame(dataset.X):
        asked = {"--kind": options.kind, "--drop": options.drop, "--only": options.only, "--id": options.id}
        if given := [option for option, value in asked.items() if value]:
            raise InputError(
                f"{', '.join(given)} say what the columns of a table hold, but {dataset.name} is an array of numbers "
                "of one unit. Leave them out."
            )
        return dataset, "auto"
    kinds = options.kinds(dataset.columns)
    if options.id is not None:
        dataset = replace(dataset, ids=_ids(dataset.X, options.id))
    return dataset, kinds or "auto"


def show_columns(X: Any, columns: Any) -> None:
    """Print what the columns of a table are taken for."""
    from sasgp.data.columns import Columns
    from sasgp.data.tables import DiskTable, is_frame
    from sasgp.estimators.tables import RECOGNISED

    if not is_frame(X):
        return
    frame = X.sample(RECOGNISED) if isinstance(X, DiskTable) else X
    lines = Columns.recognised(frame, columns if isinstance(columns, dict) else {}).report()
    shown: list[tuple[str, str | Path, str]] = [*lines[:MOST_LINES]]
    if len(lines) > MOST_LINES:
        shown.append(("…", "", f"{len(lines) - MOST_LINES} more columns, in run.json"))
    how = "change it with --kind COLUMN=KIND, --drop, --only or --id"
    show([(f"Columns ({how})", shown)])


def load_table(
    source: str, labels: str | None, model: "SASGP", run: "RunFolder", metadata: Sequence[str] = ()
) -> "Dataset":
    """A table with the columns that the model was trained on, whatever else it has."""
    from sasgp.data import load

    columns = model.columns_
    assert columns is not None
    dataset = load(source, labels=labels, columns=columns.names, table=True, metadata=metadata)
    there = set(getattr(dataset.X, "columns", ()))
    if not there:
        raise InputError(
            f"{source} must be a table with the columns {', '.join(columns.names[:5])}, …. It has no names."
        )
    if lacking := [name for name in columns.names if name not in there]:
        others = [name for name in dataset.columns if name not in columns.names]
        instead = f", and has {', '.join(others[:5])}{', …' * (len(others) > 5)} instead" if others else ""
        raise InputError(
            f"{source} must have the columns that the model was trained on. It lacks {', '.join(lacking[:5])}"
            f"{', …' * (len(lacking) > 5)}{instead}. If they are the same, rename them."
        )
    ids = next((one["name"] for one in run.findings if one["kind"] == "id" and one["why"] == "you said so"), None)
    return dataset if ids is None or ids not in there else replace(dataset, ids=_ids(dataset.X, ids))


def _ids(X: Any, name: str) -> Any:
    """The names of the rows, from a column."""
    import numpy as np
    import polars as pl

    from sasgp.data.tables import DiskTable

    blocks = replace(X, columns=(name,)).blocks() if isinstance(X, DiskTable) else [X]
    return np.array([value for block in blocks for value in block[name].cast(pl.String).fill_null("").to_list()])


def show_by_column(result: dict[str, Any]) -> None:
    """Print the metrics of each column."""
    lines: list[tuple[str, str | Path, str]] = []
    for one in result["by_column"]:
        if "accuracy" in one:
            value, note = f"accuracy {one['accuracy']:.3f}", f"log loss {one['log_loss']:.3f}"
        else:
            value = f"RMSE {one['rmse']:.3f}"
            note = f"CRPS {one['crps']:.3f}, NLPD {one['nlpd']:.3f}, in 90 % intervals {one['coverage_90']:.3f}"
        lines.append((one["column"], value, f"{one['kind']}; {note}"))
    show([("\nBy column", lines)])


def check_table_suffix(out: Path) -> None:
    """Raise InputError if a table cannot go to a file of this type."""
    if out.suffix.lower() not in (".csv", ".parquet"):
        raise InputError(
            f"The model is one of a table, which .csv and .parquet files can hold. Choose one of them. Got --out {out}."
        )


def write_table(frame: Any, out: Path, *, escape_formulas: bool) -> None:
    """Write a table, whole or not at all."""
    from sasgp.cli import files
    from sasgp.data.tables import read_frame

    check_table_suffix(out)
    with files.replacing(out) as file:
        found = read_frame(frame).frame
        if out.suffix.lower() == ".parquet":
            found.write_parquet(file)
        else:
            files.write_csv(found, file, escape_formulas=escape_formulas)


def side_by_side(frames: "Sequence[pl.DataFrame]") -> "pl.DataFrame":
    """Tables with the same rows as one. Raise InputError if two columns have one name: one would be lost."""
    import polars as pl

    from sasgp.data.tables import first_repeated

    if (twice := first_repeated(name for frame in frames for name in frame.columns)) is not None:
        raise InputError(f"The result would have two columns called '{twice}'. Rename that column of the data.")
    return pl.concat(frames, how="horizontal")


def decode_table(estimator: "SASGP", Z: Any, out: Path, *, std: bool, escape_formulas: bool) -> Result:
    """Decode latents into a table, with the uncertainty of each column if asked for."""
    import polars as pl

    check_table_suffix(out)
    estimator.frame_kind_ = "polars"
    mean, deviation, low, high = estimator.predict(Z, return_std=True, return_interval=INTERVAL)
    if std:
        assert estimator.columns_ is not None
        numbers = [
            column.name for column in estimator.columns_.columns if column.kind in ("real", "skewed", "count", "date")
        ]
        more = [deviation.select(pl.all().name.suffix("_std"))]
        more += [ends[numbers].select(pl.all().name.suffix(f"_{end}")) for end, ends in (("low", low), ("high", high))]
        mean = side_by_side([mean, *more, estimator.probabilities(Z)])
    write_table(mean, out, escape_formulas=escape_formulas)
    show([("", [("wrote", str(out), f"{len(Z)} rows, {mean.width} columns")])])
    return {"wrote": out, "rows": len(Z), "columns": mean.width}
