"""`sasgp impute`: complete data with missing values."""

import math
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

from sasgp.cli.arguments import TEXT, Data, EscapeFormulas, Flag, Model, Out, Printed, command
from sasgp.cli.loading import feature_names, load_data, load_model
from sasgp.cli.printing import Result, show
from sasgp.cli.tables import side_by_side, write_table
from sasgp.data.files import at_home
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP

__all__ = ["impute"]

INTERVAL = 0.9


@command
def impute(
    model: Model,
    data: Data,
    /,
    *,
    out: Out,
    std: Annotated[bool, Flag] = False,
    samples: int = 0,
    random_state: int | None = 0,
    escape_formulas: EscapeFormulas = False,
    printed: Printed = TEXT,
) -> Result:
    """Fill in the missing values of data, each from what the rest of its row says.

    Observed cells are written as they are. A number becomes its expectation, a level the most probable one.

    Parameters
    ----------
    out
        The file to write: .csv or .parquet, or .npy for arrays.
    std
        Write also the uncertainty of what was filled in, to columns called …_std, …_low and …_high: the standard
        deviation (of a category, the probability that another level is right) and the ends of the 90 % interval. They
        are empty where a cell was observed.
    samples
        Write this many completed tables instead, drawn at random, one below the other. The first column, `draw`, counts
        them from 1. Do the same analysis on each, and pool the results (multiple imputation).
    random_state
        Seed of the draws.
    """
    from sasgp.cli import files

    files.check_suffix(out, (".csv", ".parquet", ".npy"), data)
    files.check_place(out)
    if samples < 0 or (samples and std):
        raise InputError(
            f"--samples must be at least 0, and goes without --std: the draws have their own spread. Got {samples}."
        )
    estimator, run = load_model(model)
    if not hasattr(estimator, "impute"):
        raise InputError(f"{run.model} is a {type(estimator).__name__}, which cannot impute. Train another model.")
    dataset = load_data(data, None, estimator, run)
    names = feature_names(run, estimator)
    given = _Given(estimator, dataset, data, names)
    if out.suffix.lower() == ".npy":
        n_rows = _write_array(estimator, dataset, out, std=std, samples=samples)
    else:
        completed = _completed(estimator, given, std=std, samples=samples, random_state=random_state)
        n_rows = _write(completed, out, escape_formulas=escape_formulas)
    n_filled = sum(given.gaps.values())
    filled = f"{n_rows} rows, {n_filled} cells filled in" + f", {samples} times" * bool(samples)
    show([("", [("wrote", str(out), filled)])])
    return {"wrote": out, "rows": n_rows, "filled": n_filled, "samples": samples}


class _Given:
    """The data as frames of some rows each, with all columns of the user's own table, and its gaps.

    Parameters
    ----------
    estimator : SASGP
    dataset : Dataset
    source : str
        Where it was read from. A table is read again: it may have columns that the model does not know.
    names : list of str
        The columns that the model was trained on.
    """

    def __init__(self, estimator: "SASGP", dataset: "Dataset", source: str, names: list[str]) -> None:
        from sasgp.data.tables import TABLE_SUFFIXES, read_table, table_suffix

        self.X, self.names, self.source = dataset.X, names, source
        path = at_home(source)
        is_table = path.is_file() and table_suffix(path) in TABLE_SUFFIXES
        self.table = read_table(path) if is_table else None
        if self.table is not None and not set(names) <= set(self.table.schema):
            self.names = list(dataset.columns)  # the model's have other names, such as those of a file without header

    @cached_property
    def gaps(self) -> dict[str, int]:
        """How many cells each column of the model lacks. Raise InputError for a row that has none."""
        import numpy as np
        import polars as pl

        found, start = dict.fromkeys(self.names, 0), 0
        for block in self.blocks():
            lacking = block.select(pl.col(name).is_null() for name in self.names)
            if (empty := lacking.to_numpy().all(1)).any():
                raise InputError(
                    f"{self.source} has rows without any value, the first is row {start + int(np.argmax(empty))}, "
                    "counted from 0. Each row must have at least one value: remove those that have none."
                )
            found = {name: found[name] + int(lacking[name].sum()) for name in self.names}
            start += block.height
        return found

    def blocks(self) -> "Iterator[pl.DataFrame]":
        """All rows, some at a time."""
        import polars as pl

        from sasgp.data.rows import row_blocks

        if self.table is not None:
            yield from self.table.blocks()
            return
        for _, block in row_blocks(self.X):
            yield pl.DataFrame(block, schema=self.names, orient="row").fill_nan(None)


def _write_array(estimator: "SASGP", dataset: "Dataset", out: Path, *, std: bool, samples: int) -> int:
    """Write the completed rows, and return how many there are."""
    from sasgp.cli import files

    if estimator.columns_ is not None or std or samples:
        raise InputError(f"A .npy file can hold one array of numbers. Choose .csv or .parquet for --out. Got {out}.")
    with files.writable(out):
        estimator.impute(dataset.X, out=out)
    return len(dataset.X)


def _completed(
    estimator: "SASGP", given: _Given, *, std: bool, samples: int, random_state: int | None
) -> "Iterator[list[pl.DataFrame]]":
    """Completed tables of some rows each, with their uncertainty, or as a list of several draws."""
    import numpy as np
    import polars as pl

    from sasgp.data.progress import progress_bar

    estimator.frame_kind_ = None if estimator.columns_ is None else "polars"
    estimator.verbose, with_gaps = False, [name for name, n in given.gaps.items() if n]
    seed: Any = estimator.seed_ if random_state is None else random_state
    seeds, interval, done = np.random.RandomState(seed), INTERVAL if std else None, 0
    with progress_bar("missing values", len(given.X)) as update:
        for block in given.blocks():
            table = _Table(estimator, block, given.names)
            found = estimator.impute(table.X, std, samples, return_interval=interval, random_state=seed)
            seed = seeds  # the next rows have other draws
            done += block.height
            update(done)
            if samples:
                yield [
                    side_by_side([pl.repeat(i, block.height, dtype=pl.Int32, eager=True).alias("draw").to_frame(), one])
                    for i, one in enumerate(map(table.filled, found), 1)
                ]
                continue
            if not std:
                yield [table.filled(found)]
                continue
            ends = {part: table.frame(values) for part, values in zip(("std", "low", "high"), found[1:], strict=True)}
            more = [
                pl.select(pl.when(block[name].is_null()).then(ends[part][name]).alias(f"{name}_{part}")).to_series()
                for name in with_gaps
                for part in ends
            ]
            yield [side_by_side([table.filled(found[0]), pl.DataFrame(more)])]


class _Table:
    """Some rows of the user's table, as the model takes them, and what the model returns, as a table again."""

    def __init__(self, estimator: "SASGP", given: "pl.DataFrame", names: list[str]) -> None:
        import polars as pl

        self.given, self.names, self.of_table = given, names, estimator.columns_ is not None
        self.X = given if self.of_table else given.select(pl.col(names).cast(pl.Float64).fill_null(math.nan)).to_numpy()

    def frame(self, found: Any) -> "pl.DataFrame":
        import polars as pl

        return found if self.of_table else pl.DataFrame(found, schema=self.names, orient="row")

    def filled(self, found: Any) -> "pl.DataFrame":
        """The user's table with its gaps filled in."""
        if self.of_table:
            return self.frame(found)
        values, series = self.frame(found), []
        for name in self.names:
            own, new = self.given[name], values[name]
            new = new.round().cast(own.dtype) if own.dtype.is_integer() else new.cast(own.dtype)
            series.append(new.zip_with(own.is_null(), own).alias(name))
        return self.given.with_columns(series)


def _write(completed: "Iterator[list[pl.DataFrame]]", out: Path, *, escape_formulas: bool) -> int:
    """Write tables that come in blocks of rows, each of several tables below the others. Return the number of rows.

    A .csv file grows with the blocks, so that it may be larger than memory.
    """
    import polars as pl

    from sasgp.cli import files

    n_rows = 0
    if out.suffix.lower() != ".csv":
        tables = zip(*completed, strict=True)
        frame = pl.concat([block for table in tables for block in table], how="vertical_relaxed")
        write_table(frame, out, escape_formulas=escape_formulas)
        return frame.height
    with files.replacing(out) as temporary, ExitStack() as opened:
        parts: list[IO[bytes]] = []
        for blocks in completed:
            for i, block in enumerate(blocks):
                first = i == len(parts)
                if first:
                    file = temporary.open("wb") if i == 0 else tempfile.TemporaryFile()  # noqa: SIM115
                    parts.append(opened.enter_context(file))
                files.write_csv(block, parts[i], escape_formulas=escape_formulas, header=first and i == 0)
                n_rows += block.height
        for part in parts[1:]:
            part.seek(0)
            shutil.copyfileobj(part, parts[0])
    return n_rows
