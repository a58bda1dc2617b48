"""Where the latent space starts: quality and time of every `init`, by name, on data of several kinds.

    SASGP_DATA=data python experiments/layouts.py digits oil-flow iris wine --seeds 0 1 2
    SASGP_DATA=data python experiments/layouts.py mnist --inits pca umap --epochs 15 --layouts runs/layouts

Each run leaves experiments/results/layout-{data}-{init}-seed{S}.json, with another --rate layout-{data}-{init}-rate{R}-
seed{S}.json; finished runs are skipped. Layouts are computed
once for a data set and a seed, and kept as .npy files in the folder of --layouts where one is given. Metrics are of the
test rows through the latent space, z = encoder(x): at the start, where the encoder has been fitted to the layout and
nothing else (training with a learning rate of nothing), and after training. Iris and wine are scikit-learn's, with
standardised columns; every third row is a test row.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn import datasets

import sasgp
from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import structure
from sasgp.metrics import knn_accuracy, rmse
from sasgp.training.layouts import lay_out, max_rows

RESULTS = Path(__file__).parent / "results"
INITS = ("pca", "random", "spectral", "tsne", "umap")
TABLES = {"iris": datasets.load_iris, "wine": datasets.load_wine}
NOTHING = 1e-12  # a learning rate that moves no float32

Rows = tuple[Any, Any, Any, Any]


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
    """The layout as `init` takes it, and the seconds that it took: an array where it is one that can be kept."""
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
    X, y, X_test, y_test = data
    Z, Z_test = model.embedding_, model.transform(X_test)
    return {
        **{f"{k}-NN": knn_accuracy(Z, y, Z_test, y_test, k) for k in (1, 15)},
        "RMSE": rmse(X_test, model.predict(Z_test)),
        "NLPD": -model.score_samples(X_test, n_samples=0).mean() / X.shape[1],  # reconstruction
        **structure(np.asarray(X_test), Z_test, y_test),
    }


def run(
    name: str, init: str, seed: int, epochs: int | None, rate: float | None, folder: Path | None
) -> dict[str, object]:
    """Start, measure, train, measure."""
    data = rows(name)
    layout, layout_seconds = laid_out(name, init, data[0], seed, folder)
    started = time.monotonic()
    start = SASGP(init=layout, max_epochs=1, learning_rate=NOTHING, hyper_learning_rate=NOTHING, random_state=seed).fit(
        data[0]
    )
    start_seconds = time.monotonic() - started - start.history_[-1]["seconds"]
    model = SASGP(init=layout, max_epochs=epochs, learning_rate=rate, random_state=seed, verbose=True).fit(data[0])
    return {
        "data": name,
        "init": init,
        "seed": seed,
        "epochs": len(model.history_),
        "learning_rate": model.encoder_rate(),
        "seconds": {"layout": layout_seconds, "start": start_seconds, "training": model.history_[-1]["seconds"]},
        "at the start": measure(start, data),
        "after training": measure(model, data),
        "objective": -model.history_[-1]["loss"],
        "versions": {"sasgp": sasgp.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": {"cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="+")
    parser.add_argument("--inits", nargs="+", default=INITS, choices=INITS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=None)
    parser.add_argument("--rate", type=float, default=None)
    parser.add_argument("--layouts", type=Path, default=None)
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for name in arguments.data:
        for init in arguments.inits:
            for seed in arguments.seeds:
                rate = "" if arguments.rate is None else f"-rate{arguments.rate:g}"
                path = RESULTS / f"layout-{name}-{init}{rate}-seed{seed}.json"
                if not path.exists():
                    result = run(name, init, seed, arguments.epochs, arguments.rate, arguments.layouts)
                    partial = path.with_suffix(".partial")
                    partial.write_text(json.dumps(result, indent=1))
                    partial.rename(path)
                result = json.loads(path.read_text())
                shown = {
                    part: {key: round(result[part][key], 3) for key in ("1-NN", "15-NN", "RMSE", "NLPD", "triplets")}
                    for part in ("at the start", "after training")
                }
                print(name, init, seed, shown, {k: round(v) for k, v in result["seconds"].items()}, flush=True)
