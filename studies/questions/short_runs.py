"""How fast a network should learn in a short run, whose learning rate has little time to rise and fall.

A sixth of the training rows is held out and judges, so the test rows have no say in the choice.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, nlpd
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(3)
SETS = (("mnist", 1), ("mnist", 2), ("mnist", 5), ("fashion-mnist", 1), ("digits", 30))  # and epochs
RATES = ("0.002", "0.003", "0.004")


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each length; it trains at every rate."""
    sets = (("digits", 2),) if quick else SETS
    return [Run(f"short-runs-{data}-{epochs}", {"data": data, "max_epochs": epochs}, seed) for data, epochs in sets]


def execute(run: Run) -> dict[str, Any]:
    """Train at each rate, and measure on rows that were held out."""
    data: Any = load(run.settings["data"])
    order = np.random.default_rng(run.seed).permutation(len(data.X))
    held, kept = np.split(order, [len(order) // 6])
    found: dict[str, Any] = {}
    for rate in RATES:
        model = SASGP(max_epochs=run.settings["max_epochs"], learning_rate=float(rate), random_state=run.seed)
        model.fit(data.X[kept])
        Z = model.transform(data.X[held])
        mean, std = model.predict(Z, return_std=True)
        found[rate] = {
            "1-NN": float(knn_accuracy(model.embedding_, data.y[kept], Z, data.y[held])),
            "NLPD": float(nlpd(data.X[held], mean, std**2)),
            "steps": model.history_[-1]["step"],
        }
    return found


def table(records: Sequence[Record]) -> str:
    """Means and deviations over the seeds, a line for each length and measure."""
    lines = []
    for data, epochs in dict.fromkeys((r["settings"]["data"], r["settings"]["max_epochs"]) for r in records):
        mine = [r["results"] for r in records if (r["settings"]["data"], r["settings"]["max_epochs"]) == (data, epochs)]
        for name in ("1-NN", "NLPD"):
            numbers = [mean_and_deviation([result[rate][name] for result in mine]) for rate in RATES]
            lines.append([data, str(epochs), str(mine[0][RATES[0]]["steps"]), str(len(mine)), name, *numbers])
    return markdown(["data", "epochs", "steps", "seeds", "", *RATES], lines)
