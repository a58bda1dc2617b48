"""Mixed precision: a model whose encoder multiplies bfloat16 in training against one in float32.

Quality of the test rows through the latent space, z = encoder(x). After training both encoders compute in float32.
"""

import math
import time
from collections.abc import Sequence
from statistics import mean, variance
from typing import Any, cast

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, rmse
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(5)
SETS: dict[str, int | None] = {"digits": None, "mnist": 10, "fashion-mnist": 10}  # and epochs
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
    asked, rows = run.settings, cast(Any, load(run.settings["data"]))
    started = time.process_time()
    model = SASGP(
        max_epochs=asked["max_epochs"], precision=asked["precision"], random_state=run.seed, verbose=True
    ).fit(rows.X)
    seconds = time.process_time() - started
    Z = model.transform(rows.X_test)
    return {
        "1-NN": knn_accuracy(model.embedding_, rows.y, Z, rows.y_test),
        "RMSE": rmse(rows.X_test, model.predict(Z)),
        "NLPD": -float(model.score_samples(rows.X_test, n_samples=0).mean()) / rows.X.shape[1],
        "objective": -model.history_[-1]["loss"],
        "dropped": sum(record["dropped"] for record in model.history_),
        "cpu_seconds": seconds,
    }


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
