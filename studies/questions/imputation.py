"""Imputation: eight tables with 20 and 40 % of their cells hidden, beside what scikit-learn has.

The tables and the protocol are those of Lalande & Doya (2023): cells missing completely at random, five repetitions,
root mean squared error of the hidden cells in columns scaled to [0, 1] by their observed range. `--file` names the
folder with the tables, such as breast.csv. One default setting for all of them: `SASGPImputer()`. The others get
standardised columns and their defaults, kNN 10 neighbours. The log-likelihood of a cell is
that of its predicted distribution, for values scaled to [0, 1].
"""

import time
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp import InputError, SASGPImputer
from studies.records import Record, Run
from studies.tables import count, mean_and_deviation, of_some
from studies.tables import table as markdown

SEEDS = range(5)
RATES = (20, 40)  # per cent
OURS = "SASGPImputer"

# What belongs to a table: separator, whether it has a header, and the columns that are measurements
TABLES: dict[str, tuple[str, bool, slice]] = {
    "geyser": (",", True, slice(1, -1)),
    "planets": (",", True, slice(None)),
    "breast": (",", False, slice(2, None)),
    "wine_red": (";", True, slice(-1)),
    "wine_white": (";", True, slice(-1)),
    "sylvine": (",", False, slice(1, None)),
    "gaussians": (",", True, slice(1, -1)),
    "japanese_vowels": (",", False, slice(3, None)),
}


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each table and rate."""
    if quick:
        return [Run("imputation-iris-20", {"table": "iris", "rate": 20}, seed)]
    return [
        Run(f"imputation-{table}-{rate}", {"table": table, "rate": rate}, seed) for rate in RATES for table in TABLES
    ]


def load_table(name: str, folder: str | None) -> NDArray[np.float64]:
    """The measurements of a table, [N, D]."""
    if name == "iris":
        from sklearn.datasets import load_iris

        X: NDArray[np.float64] = load_iris().data
        return X
    if folder is None:
        raise InputError("The tables are in a folder of their own. Name it with --file.")
    separator, header, columns = TABLES[name]
    lines = (Path(folder) / f"{name}.csv").read_text(encoding="utf-8").splitlines()[header:]
    return np.array([[float(cell) for cell in line.split(separator)[columns]] for line in lines])


def hide(X: NDArray[np.float64], rate: int, seed: int) -> NDArray[np.bool_]:
    """Which cells are hidden. Each row keeps at least one."""
    draw = np.random.default_rng(seed)
    hidden = draw.random(X.shape) < rate / 100
    empty = np.flatnonzero(hidden.all(1))
    hidden[empty, draw.integers(X.shape[1], size=len(empty))] = False
    return hidden


def others(seed: int) -> dict[str, Any]:
    """scikit-learn's imputers."""
    from sklearn.ensemble import ExtraTreesRegressor
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer
    from sklearn.linear_model import BayesianRidge

    return {
        "column mean": SimpleImputer(),
        "kNN, 10": KNNImputer(n_neighbors=10),
        "MICE": IterativeImputer(BayesianRidge(), random_state=seed),
        "20 extra trees": IterativeImputer(ExtraTreesRegressor(20, random_state=seed), random_state=seed),
    }


def execute(run: Run) -> dict[str, Any]:
    """Hide cells, and let every method fill them in."""
    seed, settings = run.seed or 0, run.settings
    X = load_table(settings["table"], run.file)
    hidden = hide(X, settings["rate"], seed)
    holed = np.where(hidden, np.nan, X)
    width = np.nanmax(holed, 0) - np.nanmin(holed, 0)
    mean, scale = np.nanmean(holed, 0), np.nanstd(holed, 0)

    def error(completed: NDArray[np.float64]) -> float:
        return float(100 * np.sqrt(np.mean(np.square(((completed - X) / width)[hidden]))))

    found: dict[str, Any] = {"rows": len(X), "columns": X.shape[1], "nrmse": {}, "seconds_each": {}}
    started = time.monotonic()
    imputer = SASGPImputer(random_state=seed).fit(holed)
    completed = imputer.transform(holed)
    found["nrmse"][OURS] = error(completed)
    found["seconds_each"][OURS] = time.monotonic() - started
    log_p = (imputer.log_density(holed, X) + np.log(width))[hidden]  # of values scaled to [0, 1]
    ends = [end[hidden] for end in imputer.impute(holed, return_interval=0.95)[1:]]
    found |= {
        "coverage": float(np.mean((ends[0] <= X[hidden]) & (X[hidden] <= ends[1]))),
        "log_likelihood": float(log_p.mean()),
    }
    for name, other in others(seed).items():
        started = time.monotonic()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # trees never converge, and say so
            result = other.fit_transform((holed - mean) / scale) * scale + mean
        found["nrmse"][name], found["seconds_each"][name] = error(result), time.monotonic() - started
    return found


def table(records: Sequence[Record]) -> str:
    """One line per table and rate: errors of all methods, and how honest our intervals are."""
    methods = (OURS, "MICE", "kNN, 10", "20 extra trees", "column mean")
    lines = []
    for name in dict.fromkeys(record["name"] for record in records):
        some = [record for record in records if record["name"] == name]
        found = [record["results"] for record in some]
        title, _, rate = name.removeprefix("imputation-").rpartition("-")
        errors = [[one["nrmse"][method] for one in found if method in one["nrmse"]] for method in methods]
        cells = [of_some(mean_and_deviation(values, 2), values, some) for values in errors]
        intervals = f"{100 * np.mean([one['coverage'] for one in found]):.1f} %"
        likelihood = f"{np.mean([one['log_likelihood'] for one in found]):.2f}".replace("-", "−")
        lines.append([title.replace("_", " "), f"{rate} %", *cells, intervals, likelihood, count(some)])
    header = ["100 × NRMSE", "hidden", *methods, "in 95 % intervals", "log-likelihood", "seeds"]
    return markdown(header, lines)
