"""Larger active sets late in training: MNIST, 10 epochs, the same seed.

Active sets have `first` points up to the seventh epoch and `late` points in the last three.
"""

import time
from collections.abc import Sequence
from typing import Any

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import knn, reconstruction
from studies.records import EARLIER, Record, Run
from studies.tables import table as markdown

SEEDS = (0,)
SIZES, QUICK_SIZES = ((400, 400), (400, 800), (800, 800)), ((50, 100),)
SHOWN = {"rmse": "RMSE", "nlpd": "NLPD", "knn_1": "1-NN", "cpu_seconds": "CPU s"}


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each pair of sizes."""
    common = {"data": "digits", "max_epochs": 3} if quick else {"data": "mnist", "max_epochs": 10}
    return [
        Run(f"late-active-sets-{first}-{late}", {**common, "first": first, "late": late}, seed)
        for first, late in (QUICK_SIZES if quick else SIZES)
    ]


def execute(run: Run) -> dict[str, Any]:
    """Train, and measure on test rows."""
    first, late, max_epochs = (run.settings[name] for name in ("first", "late", "max_epochs"))
    data: Any = load(run.settings["data"])

    def grow(model: Any, record: dict[str, float]) -> None:
        if record["epoch"] == round(0.7 * max_epochs):
            model.model_.active_set_size = late

    started = time.process_time()
    model = SASGP(active_set_size=first, max_epochs=max_epochs, random_state=run.seed, **EARLIER)
    model.fit(data.X, callback=grow)
    seconds = time.process_time() - started
    Z_test = model.transform(data.X_test)
    found = reconstruction(model, data.X_test, Z_test)
    del found["pit"]
    return found | knn(model.embedding_, data.y, Z_test, data.y_test) | {"cpu_seconds": seconds}


def table(records: Sequence[Record]) -> str:
    """One line per run."""
    rows = [
        [
            *(str(record["settings"][name]) for name in ("first", "late")),
            *(f"{record['results'][name]:.4f}".replace("-", "−") for name in SHOWN),
        ]
        for record in records
    ]
    return markdown(["A, first", "A, late", *SHOWN.values()], rows)
