"""Where the latent space starts: quality and time of every `init` on data of several kinds.

Metrics are of the test rows through the latent space, z = encoder(x): at the start, where the encoder has been fitted
to the layout and nothing else (training with a learning rate of nothing), and after training. Iris and wine are
scikit-learn's, with standardised columns; every third row is a test row. With --file FOLDER, layouts are computed once
and kept there as .npz files.
"""

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import structure
from sasgp.metrics import knn_accuracy, rmse
from sasgp.training.layouts import lay_out, max_rows
from studies.records import EARLIER, Record, Run
from studies.tables import table as markdown

SEEDS = (0,)
DATA = ("digits", "oil-flow", "iris", "wine")
INITS = ("pca", "random", "spectral", "tsne", "umap")
MNIST = {"": (8, None), "-rate0.002": (12, 2e-3)}  # from UMAP: epochs, learning rate
TABLES = {"iris": datasets.load_iris, "wine": datasets.load_wine}
NOTHING = 1e-12  # a learning rate that moves no float32
SHOWN = ("1-NN", "15-NN", "RMSE", "NLPD", "triplets")

Rows = tuple[Any, Any, Any, Any]


def runs(seed: int, quick: bool) -> list[Run]:
    """Every start of the small sets, and MNIST from UMAP."""

    def run(data: str, init: str, more: str = "", epochs: int | None = None, rate: float | None = None) -> Run:
        settings = {"data": data, "init": init, "max_epochs": epochs, "learning_rate": rate}
        return Run(f"inits-{data}-{init}{more}", settings, seed)

    if quick:
        return [run("iris", init, epochs=1) for init in ("pca", "spectral")]
    small = [run(data, init) for data in DATA for init in INITS]
    return [*small, *(run("mnist", "umap", more, *chosen) for more, chosen in MNIST.items())]


def rows(name: str) -> Rows:
    """Training rows and labels, test rows and labels."""
    if name not in TABLES:
        data = load(name)
        return data.X, data.y, data.X_test, data.y_test
    X, y = TABLES[name](return_X_y=True)
    test = np.arange(len(X)) % 3 == 0
    X = (X - X[~test].mean(0)) / X[~test].std(0)
    return X[~test], y[~test], X[test], y[test]


def laid_out(name: str, init: str, X: Any, seed: int, folder: Path | None) -> tuple[Any, float]:
    """The layout as `init` takes it, an array where it is one that can be kept, and the seconds that it took."""
    if init in ("pca", "random") or len(X) > max_rows(init, X.shape[1]):
        return init, 0.0
    path = None if folder is None else folder / f"{name}-{init}-seed{seed}.npz"
    if path is not None and path.exists():
        with np.load(path) as kept:
            return kept["Z"], float(kept["seconds"])
    started = time.monotonic()
    Z = lay_out(init, np.asarray(X, np.float32), 2, seed)
    seconds = time.monotonic() - started
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, Z=Z, seconds=seconds)
    return Z, seconds


def measure(model: SASGP, data: Rows) -> dict[str, float]:
    """Quality of the test rows' latents."""
    X, y, X_test, y_test = data
    Z, Z_test = model.embedding_, model.transform(X_test)
    return {
        **{f"{k}-NN": knn_accuracy(Z, y, Z_test, y_test, k) for k in (1, 15)},
        "RMSE": rmse(X_test, model.predict(Z_test)),
        "NLPD": -model.score_samples(X_test, n_samples=0).mean() / X.shape[1],  # reconstruction
        **structure(np.asarray(X_test), Z_test, y_test),
    }


def execute(run: Run) -> dict[str, Any]:
    """Start, measure, train, measure."""
    name, init, epochs, rate = (run.settings[key] for key in ("data", "init", "max_epochs", "learning_rate"))
    data, folder = rows(name), None if run.file is None else Path(run.file)
    layout, layout_seconds = laid_out(name, init, data[0], run.seed or 0, folder)
    started = time.monotonic()
    still: dict[str, Any] = {"learning_rate": NOTHING, "hyper_learning_rate": NOTHING}
    own: dict[str, Any] = {"init": layout, "random_state": run.seed, **EARLIER}
    start = SASGP(max_epochs=1, **own, **still).fit(data[0])
    start_seconds = time.monotonic() - started - start.history_[-1]["seconds"]
    model = SASGP(max_epochs=epochs, learning_rate=rate, verbose=True, **own).fit(data[0])
    return {
        "epochs": len(model.history_),
        "learning_rate": model.encoder_rate(),
        "seconds": {"layout": layout_seconds, "start": start_seconds, "training": model.history_[-1]["seconds"]},
        "at the start": measure(start, data),
        "after training": measure(model, data),
        "objective": -model.history_[-1]["loss"],
    }


def table(records: Sequence[Record]) -> str:
    """Two lines per run."""
    lines = []
    for record in records:
        for part in ("at the start", "after training"):
            found = record["results"][part]
            numbers = [f"{found[key]:.3f}".replace("-", "−") for key in SHOWN]
            lines.append([record["name"].removeprefix("inits-"), str(record["seed"]), part, *numbers])
    return markdown(["", "seed", "", *SHOWN], lines)
