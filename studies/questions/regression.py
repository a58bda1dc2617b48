"""Regression on six tables of the UCI repository, beside gradient boosting and two Gaussian processes of GPyTorch.

`--file` names the folder with the tables: FOLDER/energy/data.csv.gz, whose last column is the target, and
FOLDER/energy/test_mask.csv.gz, with a column of zeros and ones for each split. A seed is a split. Inputs and target are
standardised by the training rows, and NLL is that of the standardised target. A seventh table, "steps", is generated,
and made for trees: 10 000 rows of 20 normal inputs, whose target jumps at thresholds of six of them.

    sasgp      SASGPRegressor(), one default for all tables
    deep       SASGPRegressor(kernel="deep")
    boosting   scikit-learn's HistGradientBoostingRegressor(). It predicts no spread; it gets one for all rows, from the
               errors of a cross-validation in five parts, whose time counts as time of the fit
    exact      GPyTorch's exact Gaussian process, ARD Matérn-3/2, float64, 100 steps of Adam; the two smallest tables
    svgp       GPyTorch's SVGP, ARD Matérn-3/2, 1024 inducing points, 400 steps of 512 rows; the first split

Seconds are CPU time of one thread, so that they mean something on a shared machine.
"""

import math
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import KFold, cross_val_predict

from sasgp import InputError, SASGPRegressor
from studies.questions.gpytorch_models import SVGP, ExactGP
from studies.records import Record, Run
from studies.tables import NOTHING, count, mean_and_deviation
from studies.tables import table as markdown

__all__ = ["MODELS", "TABLES", "part", "scored", "split"]

Array = NDArray[np.float64]
Prediction = tuple[Array, Array, Array]  # mean, and the ends of 95 % intervals, [M] each

TABLES = ("elevators", "pol", "bike", "kin40k", "concrete", "energy")
SMALL = ("concrete", "energy")
STEPS = "steps"
MODELS = {
    "sasgp": "SASGPRegressor",
    "deep": 'with kernel="deep"',
    "boosting": "gradient boosting",
    "exact": "exact GP",
    "svgp": "SVGP, M = 1024",
}
SETTINGS: dict[str, dict[str, Any]] = {
    "exact": {"steps": 100, "learning_rate": 0.1},
    "svgp": {"n_inducing": 1024, "steps": 400, "batch_size": 512, "learning_rate": 0.03},
}
FOLDS = 5
Z95 = 1.959964


def runs(seed: int, quick: bool) -> list[Run]:
    """Every model of every table that it can take."""
    if quick:
        return [_run("diabetes", model, seed, {"max_epochs": 2}) for model in ("sasgp", "boosting")]
    return [
        _run(data, model, seed, SETTINGS.get(model, {}))
        for model in ("sasgp", "boosting", "exact", "svgp", "deep")
        for data in TABLES
        if (model != "exact" or data in SMALL) and (model != "svgp" or seed == 0)
    ] + [_run(STEPS, model, seed, {}) for model in ("sasgp", "boosting")]


def _run(data: str, model: str, split: int, settings: dict[str, Any]) -> Run:
    return Run(f"regression-{data}-{model}", {"data": data, "model": model, **settings}, split)


# ---- data ----


def split(data: str, folder: str | None, number: int) -> tuple[Array, Array, Array, Array]:
    """Training inputs and targets, then those of the test rows, standardised by the training rows."""
    rows, test = _rows(data, folder, number)
    mean, std = rows[~test].mean(0), rows[~test].std(0)
    scaled = (rows - mean) / np.where(std > 0, std, 1.0)
    return scaled[~test, :-1], scaled[~test, -1], scaled[test, :-1], scaled[test, -1]


def _rows(data: str, folder: str | None, number: int) -> tuple[Array, NDArray[np.bool_]]:
    if data == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = load_diabetes(return_X_y=True)
        return np.column_stack([X, y]), np.random.default_rng(number).random(len(X)) < 0.1
    if data == STEPS:
        return steps(11_000, number), np.arange(11_000) >= 10_000
    if folder is None:
        raise InputError("The tables are in a folder of their own. Name it with --file.")
    rows, masks = (np.loadtxt(Path(folder) / data / f"{name}.csv.gz", delimiter=",") for name in ("data", "test_mask"))
    return rows, masks[:, number] > 0


def steps(n: int, seed: int) -> Array:
    """Rows [n, 21] of 20 inputs and a target that jumps at thresholds of six of them, with noise of deviation .2."""
    draw = np.random.default_rng(seed)
    X = draw.normal(size=(n, 20))
    high = X[:, :6] > draw.normal(0, 0.5, 6)
    y = high @ draw.normal(0, 1, 6) + 2.0 * (high[:, 0] & high[:, 1]) - 2.0 * (high[:, 2] & high[:, 3])
    return np.column_stack([X, y + draw.normal(0, 0.2, n)])


# ---- models ----


class Boosting:
    """Gradient boosting, whose intervals have one width for all rows."""

    def __init__(self, seed: int) -> None:
        self.model = HistGradientBoostingRegressor(random_state=seed)

    def fit(self, X: Array, y: Array) -> None:
        folds = KFold(FOLDS, shuffle=True, random_state=0)
        self.std = math.sqrt(np.mean((cross_val_predict(self.model, X, y, cv=folds) - y) ** 2))
        self.model.fit(X, y)

    def predict(self, X: Array) -> tuple[Array, Array]:
        mean = self.model.predict(X)
        return mean, np.full_like(mean, self.std)


def _peer(model: str, settings: dict[str, Any], seed: int) -> Any:
    if model == "boosting":
        return Boosting(seed)
    return ExactGP(**settings) if model == "exact" else SVGP(**settings, seed=seed)


def scored(y: Array, predicted: Prediction, log_p: Array) -> dict[str, float]:
    """RMSE, NLL and the coverage of 95 % intervals."""
    mean, low, high = predicted
    return {
        "rmse": float(np.sqrt(np.mean((mean - y) ** 2))),
        "nll": float(-log_p.mean()),
        "coverage_95": float(np.mean((low <= y) & (y <= high))),
    }


def execute(run: Run) -> dict[str, Any]:
    """Fit one model to the training rows of a split, and predict its test rows."""
    settings, seed = dict(run.settings), run.seed or 0
    data, model = settings.pop("data"), settings.pop("model")
    X, y, X_test, y_test = split(data, run.file, seed)
    started = time.process_time()
    if model in ("sasgp", "deep"):
        chosen: dict[str, Any] = {"kernel": "deep"} if model == "deep" else {}
        ours = SASGPRegressor(**chosen, **settings, random_state=seed).fit(X, y)
        fitted = time.process_time()
        predicted = ours.predict(X_test, return_interval=0.95)
        ended = time.process_time()
        log_p = ours.log_density(X_test, y_test)
        target: Any = ours.targets_.columns[0]
        extra = {"noise": float(ours.model_.noise.detach()), "map": repr(target.map)}
    else:
        peer = _peer(model, settings, seed)
        peer.fit(X, y)
        fitted = time.process_time()
        mean, std = peer.predict(X_test)
        ended = time.process_time()
        predicted = mean, mean - Z95 * std, mean + Z95 * std
        log_p = -0.5 * (np.log(2 * np.pi * std**2) + ((y_test - mean) / std) ** 2)
        extra = {}
    found = scored(y_test, predicted, log_p)
    seconds = {"fit": fitted - started, "predict": ended - fitted}
    return {"rows": len(X), "test_rows": len(y_test), "inputs": X.shape[1], **found, "cpu_seconds": seconds, **extra}


# ---- tables ----

SHOWN = {"rmse": ("RMSE", 4), "nll": ("NLL", 3), "coverage_95": ("in 95 % intervals", 3)}


def table(records: Sequence[Record]) -> str:
    """One line per table and model: means and deviations over splits."""
    lines = []
    for data, model in dict.fromkeys((r["settings"]["data"], r["settings"]["model"]) for r in _sorted(records)):
        some = _chosen(records, data, model)
        found = [record["results"] for record in some]
        cells = [mean_and_deviation([one[key] for one in found], digits) for key, (_, digits) in SHOWN.items()]
        seconds = [
            mean_and_deviation([one["cpu_seconds"][of] for one in found], digits)
            for of, digits in {"fit": 1, "predict": 2}.items()
        ]
        lines.append([data, MODELS[model], *cells, *seconds, count(some)])
    header = ["table", "model", *(name for name, _ in SHOWN.values()), "CPU s, fit", "CPU s, predict", "splits"]
    return markdown(header, lines)


def part(records: Sequence[Record]) -> str:
    """For the page: RMSE and NLL of all models side by side, means over as many splits as there are."""
    lines = []
    for data in dict.fromkeys(r["settings"]["data"] for r in _sorted(records)):
        rows = next(r["results"]["rows"] for r in records if r["settings"]["data"] == data)
        cells = []
        for model in MODELS:
            some = _chosen(records, data, model)
            found = [record["results"] for record in some]
            rmse, nll = (np.mean([one[key] for one in found]) if found else math.nan for key in ("rmse", "nll"))
            cells.append(f"{rmse:.4f} / {nll:.2f} ({count(some)})".replace("-", "−") if found else NOTHING)
        lines.append([data, f"{rows:,}", *cells])
    return markdown(["RMSE / NLL (splits)", "rows", *MODELS.values()], lines)


def _sorted(records: Sequence[Record]) -> list[Record]:
    places = {name: i for i, name in enumerate((*TABLES, STEPS, "diabetes"))}
    order = list(MODELS)
    return sorted(records, key=lambda r: (places[r["settings"]["data"]], order.index(r["settings"]["model"])))


def _chosen(records: Sequence[Record], data: str, model: str) -> list[Record]:
    settings = {"data": data, "model": model}
    return [record for record in records if settings.items() <= record["settings"].items()]
