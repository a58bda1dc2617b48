"""`sasgp impute`: complete data with missing values."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

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
    from sasgp.data.tables import read_table

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
    if estimator.columns_ is not None:
        dataset = replace(dataset, X=read_table(at_home(data)).frame)  # with labels and all other columns
    names = feature_names(run, estimator)
    if out.suffix.lower() == ".npy":
        n_rows, n_filled = len(dataset.X), _write_array(estimator, dataset, out, std=std, samples=samples)
    else:
        frame, n_filled = _completed(estimator, dataset, names, std=std, samples=samples, random_state=random_state)
        write_table(frame, out, escape_formulas=escape_formulas)
        n_rows = frame.height
    filled = f"{n_rows} rows, {n_filled} cells filled in" + f", {samples} times" * bool(samples)
    show([("", [("wrote", str(out), filled)])])
    return {"wrote": out, "rows": n_rows, "filled": n_filled, "samples": samples}


def _write_array(estimator: "SASGP", dataset: "Dataset", out: Path, *, std: bool, samples: int) -> int:
    """Write the completed rows, and return the number of values that were missing."""
    import numpy as np

    from sasgp.cli import files

    if estimator.columns_ is not None or std or samples:
        raise InputError(f"A .npy file can hold one array of numbers. Choose .csv or .parquet for --out. Got {out}.")
    with files.replacing(out) as file:
        np.save(file, estimator.impute(dataset.X))
    return int(np.isnan(dataset.X).sum())


def _completed(
    estimator: "SASGP", dataset: "Dataset", names: list[str], *, std: bool, samples: int, random_state: int | None
) -> "tuple[pl.DataFrame, int]":
    """The completed table, with its uncertainty or as several draws, and the number of cells that were missing."""
    import polars as pl

    from sasgp.data.tables import read_frame

    def as_frame(X: Any) -> pl.DataFrame:
        if estimator.columns_ is not None:
            return read_frame(X).frame
        return pl.DataFrame(X, schema=names, orient="row").fill_nan(None)

    estimator.frame_kind_ = None if estimator.columns_ is None else "polars"
    given = as_frame(dataset.X)
    gaps = given[list(names)].select(pl.all().is_null())
    n_filled = int(gaps.sum().sum_horizontal().item())
    if samples:
        drawn = estimator.impute(dataset.X, n_samples=samples, random_state=random_state)
        number = pl.Series("draw", [i for i in range(1, len(drawn) + 1) for _ in range(len(given))], dtype=pl.Int32)
        return side_by_side([number.to_frame(), pl.concat(map(as_frame, drawn))]), n_filled
    if not std:
        return as_frame(estimator.impute(dataset.X, random_state=random_state)), n_filled
    found = estimator.impute(dataset.X, return_std=True, return_interval=INTERVAL, random_state=random_state)
    frame, spread, low, high = map(as_frame, found)
    more = []
    for name in names:
        if gaps[name].any():
            parts = {"std": spread[name], "low": low[name], "high": high[name]}
            more += [
                pl.select(pl.when(gaps[name]).then(values).otherwise(None).alias(f"{name}_{part}")).to_series()
                for part, values in parts.items()
            ]
    return side_by_side([frame, pl.DataFrame(more)]), n_filled
