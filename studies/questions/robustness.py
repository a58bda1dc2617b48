"""Whether training ever fails: digits and oil flow, point and Bayesian, three learning rates, 20 seeds, in float32.

Kernel and noise learn ten times as fast as the encoder, which is the ratio of the defaults. Fits are short, 40 epochs
instead of the default 600, to keep 240 of them affordable: trouble comes early, when the rates are at their peak and
noise falls fastest.
"""

import math
import time
import warnings
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, rmse
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(20)
DATA, LATENTS, RATES = ("digits", "oil-flow"), ("point", "bayesian"), (1e-4, 1e-3, 1e-2)
EPOCHS = 40


def runs(seed: int, quick: bool) -> list[Run]:
    """All fits of a seed are one run."""
    settings = {"data": DATA[:1] if quick else DATA, "latents": LATENTS, "learning_rates": RATES}
    return [Run("robustness", {**settings, "max_epochs": 1 if quick else EPOCHS}, seed)]


def fit(data: str, latents: Any, rate: float, epochs: int, seed: int | None) -> dict[str, Any]:
    """One fit; a failure is a result."""
    rows: Any = load(data)
    model = SASGP(
        latents=latents, learning_rate=rate, hyper_learning_rate=10 * rate, max_epochs=epochs, random_state=seed
    )
    found: dict[str, Any]
    started = time.monotonic()
    try:
        model.fit(rows.X)
        Z = model.transform(rows.X_test)
        found = {
            "rmse": rmse(rows.X_test, np.asarray(model.predict(Z))),
            "1-NN": knn_accuracy(model.embedding_, rows.y, Z, rows.y_test),
            "score": float(model.score_samples(rows.X_test, n_samples=0).mean()) / rows.X.shape[1],
            "objective": -model.history_[-1]["loss"],
            "noise": model.noise_,
            "dropped": sum(record["dropped"] for record in model.history_),
        }
        found["finite"] = all(map(math.isfinite, found.values())) and bool(np.isfinite(model.embedding_).all())
    except Exception as error:  # whatever it is, it is counted
        found = {"failed": f"{type(error).__name__}: {error}"}
    key = {"data": data, "latents": latents, "learning_rate": rate}
    return key | found | {"seconds": round(time.monotonic() - started, 2)}


def execute(run: Run) -> dict[str, Any]:
    """Fit with every rate."""
    chosen = product(*(run.settings[name] for name in ("data", "latents", "learning_rates")))
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)  # an overflow in numpy would be one
        epochs = run.settings["max_epochs"]
        return {"fits": [fit(data, latents, rate, epochs, run.seed) for data, latents, rate in chosen]}


def fits(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Those of all seeds."""
    return [one for record in records for one in record["results"]["fits"]]


def table(records: Sequence[Record]) -> str:
    """Mean and deviation over the seeds."""
    lines = []
    for data, latents, rate in product(DATA, LATENTS, RATES):
        key = (data, latents, rate)
        some = [one for one in fits(records) if (one["data"], one["latents"], one["learning_rate"]) == key]
        good = [one for one in some if one.get("finite")]
        numbers = [mean_and_deviation([one[name] for one in good]) for name in ("rmse", "1-NN", "score")]
        counts = [len(some), len(some) - len(good), sum(one["dropped"] for one in good)]
        lines += [[data, latents, f"{rate:g}", *map(str, counts), *numbers]] if some else []
    header = ["data", "latents", "learning rate", "seeds", "failed or NaN", "steps dropped", "RMSE", "1-NN"]
    return markdown([*header, "score per value"], lines)


def part(records: Sequence[Record]) -> str:
    """What the page says."""
    found, total = fits(records), len(SEEDS) * len(DATA) * len(LATENTS) * len(RATES)
    failed = sum(not one.get("finite") for one in found)
    return (
        f"{len(found)} of {total} fits in float32, {EPOCHS} epochs each, kernel and noise at ten times the encoder's "
        f"learning rate:\n{failed} failed or met NaN. Mean ± standard deviation over the seeds, on test rows "
        "(`python -m studies questions robustness`).\n\n" + table(records)
    )
