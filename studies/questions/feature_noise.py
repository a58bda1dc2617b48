"""One noise for all features, or a learned scale for each: tables at their raw scale.

Test rows through the latent space: NLPD per value, RMSE of every feature in its own standard deviations, averaged as
squares, and the share of values in 90 % intervals. docs/images/calibration.png is drawn from breast cancer's.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from sasgp import SASGP, metrics, plots
from sasgp.data import load
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

TABLES = {"iris": load_iris, "wine": load_wine, "breast-cancer": load_breast_cancer, "digits": load_digits}
DATA, NOISES = ("iris", "wine", "breast-cancer", "oil-flow", "digits"), ("shared", "feature")


def runs(seed: int, quick: bool) -> list[Run]:
    """Every table with either noise."""
    return [
        Run(f"feature-noise-{data}-{noise}", {"data": data, "noise": noise, "max_epochs": 1 if quick else None}, seed)
        for data, noise in product(("iris", "breast-cancer") if quick else DATA, NOISES)
    ]


def rows(name: str, seed: int | None) -> tuple[Any, Any]:
    """Training and test rows, as they come."""
    if name == "oil-flow":
        data = load(name)
        return data.X, data.X_test
    train, test = train_test_split(TABLES[name]().data, test_size=0.2, random_state=seed)
    return train, test


def execute(run: Run) -> dict[str, Any]:
    """Fit, reconstruct the test rows, and compare."""
    settings = dict(run.settings)
    train, test = rows(settings.pop("data"), run.seed)
    model = SASGP(**settings, random_state=run.seed).fit(train)
    mean, std = model.predict(model.transform(test), return_std=True)
    variance = np.square(std, dtype=np.float64)
    counts = metrics.pit_counts(test, mean, variance)
    units = np.where(train.std(0) > 0, train.std(0), 1)
    return {
        "nlpd": metrics.nlpd(test, mean, variance),
        "rmse": metrics.rmse(test / units, mean / units),
        "coverage": {level: metrics.coverage(counts, float(level)) for level in ("0.5", "0.9", "0.99")},
        "pit": counts.tolist(),
    }


def table(records: Sequence[Record]) -> str:
    """Mean and deviation over splits."""
    lines = []
    for data, noise in product(DATA, NOISES):
        found = _of(records, data, noise)
        cells = [mean_and_deviation([one[key] for one in found], 3) for key in ("nlpd", "rmse")]
        covered = mean_and_deviation([one["coverage"]["0.9"] for one in found], 3).partition(" ")[0]
        lines += [[data, noise, *cells, covered, str(len(found))]] if found else []
    return markdown(["data", "noise", "NLPD", "RMSE", "in 90 % intervals", "splits"], lines)


def figure(records: Sequence[Record]) -> Figure:
    """Where values lie in their predicted distributions, over all splits of breast cancer."""
    counts = np.sum([one["pit"] for one in _of(records, "breast-cancer", "feature")], 0)
    return plots.calibration(counts, title="breast cancer, noise='feature'")


def _of(records: Sequence[Record], data: str, noise: str) -> list[dict[str, Any]]:
    asked = (r for r in records if (r["settings"]["data"], r["settings"]["noise"]) == (data, noise))
    return [record["results"] for record in asked]
