"""MNIST with 60 % of the pixels missing, in training and in test: how well they are filled in.

Pixels are from 0 to 1, and each is missing at random. 10 000 training images and 1000 test images, default settings.
Beside it the mean image, probabilistic PCA fitted by EM (`sasgp.gp.ppca`) with as many components and with 30, and
scikit-learn's KNNImputer with 10 neighbours among 2000 training images, which is all that its time allows.

A run of its own compares epochs with and without holes, which take turns.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp import SASGP
from sasgp.data import load
from sasgp.gp.ppca import MaskedPCA
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(3)
RATE = 0.6
KNN_ROWS = 2000
DIMENSIONS = (2, 10)
STEPS = "missing-pixels-steps"
TURNS, STEP_EPOCHS = 3, 5


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each number of dimensions."""
    if quick:
        return [
            Run("missing-pixels-2", {"n_components": 2, "rows": 300, "test": 20, "max_epochs": 1}, seed),
            Run(STEPS, {"rows": 300}, seed),
        ]
    steps = [Run(STEPS, {"rows": 8192}, seed)] if seed == SEEDS[0] else []
    return steps + [
        Run(f"missing-pixels-{Q}", {"n_components": Q, "rows": 10_000, "test": 1000, "max_epochs": None}, seed)
        for Q in DIMENSIONS
    ]


def execute(run: Run) -> dict[str, Any]:
    """Hide pixels, train, and fill in those of the test images; or compare seconds."""
    if run.name == STEPS:
        return compared_steps(run)
    from sklearn.impute import KNNImputer

    settings, seed = run.settings, run.seed or 0
    draw = np.random.default_rng(seed)
    X = load("mnist").X
    X = X[draw.permutation(len(X))[: settings["rows"] + settings["test"]]]
    holes = draw.random(X.shape) < RATE
    holed = np.where(holes, np.nan, X).astype(np.float32)
    n, Q = settings["rows"], settings["n_components"]
    train, test, truth, hidden = holed[:n], holed[n:], X[n:], holes[n:]
    found: dict[str, Any] = {"rmse": {}, "seconds_each": {}}

    def measure(name: str, completed: NDArray[np.floating[Any]], started: float) -> None:
        found["rmse"][name] = float(np.sqrt(np.mean(np.square((completed - truth)[hidden]))))
        found["seconds_each"][name] = time.monotonic() - started

    started = time.monotonic()
    epochs = {} if settings["max_epochs"] is None else {"max_epochs": settings["max_epochs"]}
    model = SASGP(n_components=Q, random_state=seed, **epochs).fit(train)
    measure("SASGP", model.impute(test), started)
    seen = np.maximum((~np.isnan(train)).sum(0), 1)
    mean = np.nansum(train, 0) / seen
    measure("mean image", np.where(hidden, mean, test), time.monotonic())
    for components in (Q, 30):
        started = time.monotonic()
        pca = MaskedPCA(torch.as_tensor(train - mean), components)
        completed = pca.completed(torch.as_tensor(test - mean)).numpy() + mean
        measure("PCA by EM" if components == Q else "PCA by EM, 30", completed, started)
    started = time.monotonic()
    knn = KNNImputer(n_neighbors=10, keep_empty_features=True).fit(train[:KNN_ROWS])
    measure("kNN, 10", knn.transform(test), started)
    return found


def compared_steps(run: Run) -> dict[str, Any]:
    """Median seconds of an epoch with holes over those without, in every turn."""
    X = load("mnist").X[: run.settings["rows"]].astype(np.float32)
    holed = np.where(np.random.default_rng(0).random(X.shape) < RATE, np.float32(np.nan), X)

    def seconds(rows: NDArray[np.float32]) -> float:
        at: list[float] = []
        model = SASGP(max_epochs=STEP_EPOCHS, random_state=run.seed or 0)
        model.fit(rows, callback=lambda _, record: at.append(time.perf_counter()))
        return float(np.median(np.diff(at)))

    turns = [(seconds(X), seconds(holed)) for _ in range(TURNS)]
    return {"seconds_each": turns, "ratio": float(np.median([b / a for a, b in turns]))}


def table(records: Sequence[Record]) -> str:
    """One line per number of dimensions."""
    methods = ("SASGP", "mean image", "PCA by EM", "PCA by EM, 30", "kNN, 10")
    lines = []
    ratios = [record["results"]["ratio"] for record in records if record["name"] == STEPS]
    for name in dict.fromkeys(record["name"] for record in records if record["name"] != STEPS):
        found = [record["results"]["rmse"] for record in records if record["name"] == name]
        cells = [mean_and_deviation([one[method] for one in found], 4) for method in methods]
        lines.append([name.rpartition("-")[2], *cells, str(len(found))])
    text = markdown(["dimensions", *methods, "seeds"], lines)
    return text + "".join(f"\n\nA step with holes takes {ratio:.2f} times as long as one without." for ratio in ratios)
