"""An embedding from the start of a process to its end: ours, and UMAP's. `peers` and `quality` compare the two.

    python -m studies.benchmarks.embedding sasgp mnist --epochs 3 --curve
    python -m studies.benchmarks.embedding umap mnist

Seconds count from the start of the process, so importing and reading the data are part of them. Another process does
just that before, so that the files are in memory whatever ran last. Where quality is evaluated on the way (--curve),
the clock stands still meanwhile.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["embedded"]

POINTS = 10  # of a curve at most


def embedded(
    method: str, data: str, epochs: int | None = None, *, curve: bool = False, **settings: int
) -> dict[str, Any]:
    """What a new process finds out: seconds of fit and of transform of the test rows, and how good the latents are."""
    options = [*(["--epochs", str(epochs)] if epochs else []), *(["--curve"] if curve else [])]
    options += ["--settings", json.dumps(settings)] if settings else []
    command = [sys.executable, "-m", "studies.benchmarks.embedding", method, data, *options]
    imports = {"sasgp": "from sasgp import SASGP", "umap": "from umap import UMAP"}[method]
    subprocess.run(
        [sys.executable, "-c", f"{imports}; from sasgp import data, metrics; data.load({data!r})"], check=True
    )
    line = [*command, "--started", str(time.time())]
    done = subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


class Clock:
    """Seconds since the process was asked for, without those that it stood still."""

    def __init__(self, started: float) -> None:
        self.started = started

    def __call__(self) -> float:
        return time.time() - self.started

    @contextmanager
    def stopped(self) -> Iterator[None]:
        before = time.time()
        yield
        self.started += time.time() - before


def main(
    method: str, name: str, epochs: int | None, curve: bool, settings: dict[str, Any], started: float
) -> dict[str, Any]:
    """Fit, transform, evaluate."""
    clock = Clock(started)
    from sasgp.data import load
    from sasgp.evaluation import hold_out
    from sasgp.metrics import knn_accuracy

    split = hold_out(load(name), None, 0)
    train: Any = split.train
    test: Any = split.test
    result: dict[str, Any] = {"rows": len(train.X), "new rows": len(test.X)}
    model: Any
    if method == "umap":
        from umap import UMAP

        model = UMAP(n_components=2)
        model.fit(train.X)
    else:
        import numpy as np
        import torch

        from sasgp import SASGP
        from sasgp.data.rows import ArrayRows
        from sasgp.metrics import nlpd, rmse
        from sasgp.training.loop import Alone

        X, X_test = (torch.as_tensor(np.asarray(part.X, np.float32)) for part in (train, test))
        rows = ArrayRows(X.numpy(), torch.float32, torch.device("cpu"))
        points: list[dict[str, float]] = []

        @torch.no_grad()
        def evaluate(estimator: Any, record: dict[str, Any]) -> None:
            reached = clock()
            if record["epoch"] % -(-(epochs or 1) // POINTS):
                return
            with clock.stopped():
                decoder = estimator.model_
                Z, Z_test = (torch.cat([decoder.encoder(part)[0] for part in rows.split(8192)]) for rows in (X, X_test))
                estimator.embedding_ = Z.numpy()
                mean, var = estimator._final_posterior(rows, Alone()).predict(Z_test)
                points.append(
                    {
                        "epoch": record["epoch"],
                        "seconds": reached,
                        "1-NN": knn_accuracy(Z.numpy(), train.y, Z_test.numpy(), test.y),
                        "NLPD": nlpd(X_test.numpy(), mean.numpy(), var.expand_as(mean).numpy()),
                    }
                )

        model = SASGP(max_epochs=epochs, random_state=0, **settings)
        model.fit(train.X, callback=evaluate if curve else None)
        result |= {"points": points}
    result["fit"] = clock()
    result["transform"] = -clock()
    Z_test = model.transform(test.X)
    result["transform"] += clock()
    result["1-NN"] = float(knn_accuracy(model.embedding_, train.y, Z_test, test.y))
    if method == "sasgp":
        mean, std = model.predict(Z_test, return_std=True)
        result |= {"epochs": len(model.history_), "NLPD": nlpd(test.X, mean, std**2), "RMSE": rmse(test.X, mean)}
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("method", choices=("sasgp", "umap"))
    parser.add_argument("name")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--curve", action="store_true")
    parser.add_argument("--settings", type=json.loads, default={}, help="more settings of SASGP, as JSON")
    parser.add_argument("--started", type=float, default=time.time())
    print(json.dumps(main(**vars(parser.parse_args()))))
