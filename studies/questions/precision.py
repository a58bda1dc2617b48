"""Mixed precision: a model whose encoder multiplies bfloat16 in training against one in float32.

Quality of the test rows through the latent space, z = encoder(x). After training both encoders compute in float32. The
table is made up: 20 numbers, most of them skewed, and ten categories of eight levels, 100 scores in all, are noisy
functions of five hidden numbers.
"""

import math
import time
from collections.abc import Sequence
from statistics import mean, variance
from typing import Any

import numpy as np
import polars as pl

from sasgp import SASGP
from sasgp.data import load
from sasgp.data.named import Dataset
from sasgp.evaluation.tables import table_sums
from sasgp.metrics import knn_accuracy, rmse
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(5)
SETS: dict[str, int | None] = {"digits": None, "table": None, "mnist": 10, "fashion-mnist": 10}  # and epochs
PRECISIONS = ("float32", "mixed")
SHOWN = ("1-NN", "RMSE", "NLPD")


def runs(seed: int, quick: bool) -> list[Run]:
    """Both precisions on each data set."""
    sets = {"digits": 2} if quick else SETS
    return [
        Run(f"precision-{data}-{precision}", {"data": data, "precision": precision, "max_epochs": epochs}, seed)
        for data, epochs in sets.items()
        for precision in PRECISIONS
    ]


def execute(run: Run) -> dict[str, Any]:
    """Train once and measure."""
    asked = run.settings
    rows: Any = made_up() if asked["data"] == "table" else load(asked["data"])
    started = time.process_time()
    model = SASGP(
        max_epochs=asked["max_epochs"], precision=asked["precision"], random_state=run.seed, verbose=True
    ).fit(rows.X)
    seconds = time.process_time() - started
    Z = model.transform(rows.X_test)
    return {
        "1-NN": knn_accuracy(model.embedding_, rows.y, Z, rows.y_test),
        **_through(model, rows.X_test, Z),
        "objective": -model.history_[-1]["loss"],
        "dropped": sum(record["dropped"] for record in model.history_),
        "cpu_seconds": seconds,
    }


def _through(model: SASGP, X: Any, Z: Any) -> dict[str, float]:
    """RMSE and NLPD of rows through their latents; of a table in its own measures."""
    if model.columns_ is not None:
        found = table_sums(model, model.columns_.values(X), Z).metrics()
        return {"RMSE": found["rmse"], "NLPD": found["nlpd"]}
    nlpd = -float(model.score_samples(X, n_samples=0).mean()) / X.shape[1]
    return {"RMSE": rmse(X, model.predict(Z)), "NLPD": nlpd}


def made_up() -> Dataset:
    """The table, its last quarter held out."""
    draw = np.random.default_rng(0)
    H = draw.normal(size=(2000, 5))
    skewed = np.tanh(H @ draw.normal(size=(5, 20))) + 0.1 * (H @ draw.normal(size=(5, 20))) ** 2
    numbers = (skewed + 0.2 * draw.standard_t(4, size=skewed.shape)) * 10.0 ** draw.integers(-3, 6, size=20)
    columns: dict[str, Any] = {f"n{i}": numbers[:, i] for i in range(20)}
    for i in range(10):
        level = (1.5 * H @ draw.normal(size=(5, 8)) + draw.gumbel(size=(2000, 8))).argmax(1)
        columns[f"c{i}"] = np.array(list("abcdefgh"))[level]
    X, y = pl.DataFrame(columns), (H[:, 0] > 0) + 2 * (H[:, 1] > 0)
    return Dataset("table", X[:1500], y[:1500], tuple(columns), None, X[1500:], y[1500:])


def table(records: Sequence[Record]) -> str:
    """Means and deviations over the seeds, and the difference of the means in its standard errors."""
    lines = []
    for data in SETS:
        for name in SHOWN:
            found = {
                precision: [
                    record["results"][name]
                    for record in records
                    if (record["settings"]["data"], record["settings"]["precision"]) == (data, precision)
                ]
                for precision in PRECISIONS
            }
            if all(found.values()):
                seeds = str(min(map(len, found.values())))
                numbers = [mean_and_deviation(found[precision]) for precision in PRECISIONS]
                lines.append([data, name, seeds, *numbers, _difference(found["float32"], found["mixed"])])
    return markdown(["data", "", "seeds", *PRECISIONS, "difference, in standard errors"], lines)


def _difference(one: Sequence[float], other: Sequence[float]) -> str:
    """(m₂ − m₁) / √(s₁²/n₁ + s₂²/n₂)."""
    if min(len(one), len(other)) < 2:
        return "–"
    error = math.sqrt(variance(one) / len(one) + variance(other) / len(other))
    return f"{(mean(other) - mean(one)) / error:+.1f}".replace("-", "−") if error else "0"
