"""Values that are missing because they are large: how far imputation goes wrong.

Tables of scikit-learn. In every second column, values above the mean are hidden, all of them or half (self-masking).
The same number of values of the same columns, hidden at random, is the measure. Errors are in standard deviations of
the column; the bias is the mean of imputed minus true.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp import SASGPImputer
from studies.records import Record, Run
from studies.tables import count, mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(3)
TABLES = ("wine", "diabetes", "breast_cancer")
KINDS = ("at random", "half of those above the mean", "all above the mean")


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each table and kind."""
    tables = ("iris",) if quick else TABLES
    return [
        Run(f"not-at-random-{table}-{i}", {"table": table, "kind": kind}, seed)
        for table in tables
        for i, kind in enumerate(KINDS)
    ]


def hide(X: NDArray[np.float64], kind: str, seed: int) -> NDArray[np.bool_]:
    """Which values are hidden, in every second column."""
    draw = np.random.default_rng(seed)
    masked = np.arange(X.shape[1]) % 2 == 0
    above = (X.mean(0) < X) & masked
    if kind == "all above the mean":
        return above
    half = above & (draw.random(X.shape) < 0.5)
    if kind == "at random":
        return masked & (draw.random(X.shape) < half[:, masked].mean())
    return half


def execute(run: Run) -> dict[str, Any]:
    """Hide values, and fill them in."""
    from sklearn import datasets
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    seed, settings = run.seed or 0, run.settings
    X = getattr(datasets, f"load_{settings['table']}")().data.astype(float)
    X = (X - X.mean(0)) / X.std(0)
    hidden = hide(X, settings["kind"], seed)
    holed = np.where(hidden, np.nan, X)
    imputer = SASGPImputer(random_state=seed).fit(holed)
    completed, low, high = imputer.impute(holed, return_interval=0.95)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it does not always converge, and says so
        mice = IterativeImputer(random_state=seed).fit_transform(holed)
    found: dict[str, Any] = {"coverage": float(((low <= X) & (high >= X))[hidden].mean())}
    filled = {"SASGPImputer": completed, "MICE": mice, "column mean": np.where(hidden, np.nanmean(holed, 0), X)}
    for name, values in filled.items():
        error = (values - X)[hidden]
        found[name] = {"rmse": float(np.sqrt(np.mean(error**2))), "bias": float(error.mean())}
    return found


def table(records: Sequence[Record]) -> str:
    """One line per table and kind."""
    lines = []
    for name in dict.fromkeys(record["name"] for record in records):
        some = [record for record in records if record["name"] == name]
        found, settings = [record["results"] for record in some], some[0]["settings"]
        cells = [
            mean_and_deviation([one[method][what] for one in found], 2)
            for what in ("rmse", "bias")
            for method in ("SASGPImputer", "MICE", "column mean")
        ]
        inside = f"{100 * np.mean([one['coverage'] for one in found]):.0f} %"
        lines.append([settings["table"].replace("_", " "), settings["kind"], *cells, inside, count(some)])
    methods = ("SASGPImputer", "MICE", "column mean")
    header = [f"{what}, {method}" for what in ("RMSE", "bias") for method in methods]
    return markdown(["table", "hidden", *header, "in 95 % intervals", "seeds"], lines)
