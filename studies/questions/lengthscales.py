"""Lengthscales for all rows: shorter ones than sets of A rows choose, by the bound on all rows and by held-out rows.

A model is trained and left as it is. Then its lengthscales are multiplied by factors below 1, and the decoder is
conditioned on all rows each time. `fit` takes the factor at which the bound stops growing.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.data.rows import ArrayRows
from sasgp.estimators.all_rows import SHORTER
from sasgp.evaluation import reconstruction
from sasgp.gp.kernels import scale_lengthscales
from sasgp.training.loop import Alone
from studies.records import Record, Run
from studies.tables import table as markdown

SEEDS = (0,)
# Rows to train on, of the training rows; as many as a quarter of that and at most 10 000 are held out
SETS: dict[str, dict[str, Any]] = {
    "wine": {"rows": 140, "max_epochs": 300},
    "digits": {"rows": 1100, "max_epochs": 200},
    "fashion-mnist": {"rows": 6000, "max_epochs": 15},
    "mnist": {"rows": 50_000, "max_epochs": 10},
}
STEPS = 4


def runs(seed: int, quick: bool) -> list[Run]:
    """One per data set."""
    if quick:
        return [Run("lengthscales-wine", {"data": "wine", "rows": 140, "max_epochs": 2}, seed)]
    return [Run(f"lengthscales-{name}", {"data": name, **settings}, seed) for name, settings in SETS.items()]


def rows_of(name: str) -> Any:
    """The training rows of a data set; of wine all, in standard deviations."""
    if name != "wine":
        return np.asarray(load(name).X, np.float32)
    from sklearn.datasets import load_wine

    X = load_wine().data
    return ((X - X.mean(0)) / X.std(0)).astype(np.float32)


class Unshortened(SASGP):
    """A model with the lengthscales that it was trained to."""

    def _shorten_lengthscales(self, *_: Any) -> None:
        pass


def execute(run: Run) -> dict[str, Any]:
    """All factors of one model."""
    asked, X = run.settings, rows_of(run.settings["data"])
    order, n = np.random.default_rng(run.seed).permutation(len(X)), asked["rows"]
    X, X_held = X[np.sort(order[:n])], X[order[n : n + min(10_000, n // 4)]]
    model = Unshortened(max_epochs=asked["max_epochs"], random_state=run.seed, verbose=True).fit(X)
    Z_held, rows = model.transform(X_held), ArrayRows(X, torch.float32, torch.device("cpu"))
    found = {}
    for step in range(STEPS):
        if step:
            scale_lengthscales(model.kernel_, SHORTER)
            model.posterior_ = model._final_posterior(rows, Alone())
        quality = reconstruction(model, X_held, Z_held)
        found[f"{SHORTER**step:.3f}"] = {
            "bound": model.sums_.bound(model.model_.noise) / X.size,
            **{name: quality[name] for name in ("rmse", "nlpd")},
            "positions": model.support_size_,
        }
    return found


def table(records: Sequence[Record]) -> str:
    """One line per factor."""
    rows = [
        [
            f"{record['settings']['data']}, {record['settings']['rows']} rows",
            factor,
            *(f"{found[key]:.4f}".replace("-", "−") for key in ("bound", "rmse", "nlpd")),
            str(found["positions"]),
        ]
        for record in records
        for factor, found in record["results"].items()
    ]
    return markdown(["", "factor", "bound", "RMSE", "NLPD", "positions"], rows)
