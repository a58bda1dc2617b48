"""MNIST at A=400, B=1024, Bayesian latents: the issue's check of quality, a run for each seed.

    SASGP_DATA=data python experiments/mnist.py --seeds 0 1 2

Each run leaves experiments/results/mnist-bayesian-seed{S}.json; finished runs are skipped. Metrics are of the 10 000
test images through the latent space, z = encoder(x), with 400 and with 2000 support points.
"""

import argparse
import json
import os
import platform
import time
from pathlib import Path

import torch

import sasgp
from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, mae, nlpd, rmse

RESULTS = Path(__file__).parent / "results"


def run(seed: int, epochs: int) -> dict[str, object]:
    """Train once and measure."""
    data = load("mnist")
    model = SASGP(max_epochs=epochs, random_state=seed, verbose=True)
    started = time.monotonic()
    model.fit(data.X)
    seconds = time.monotonic() - started
    Z_test = model.transform(data.X_test)
    metrics: dict[str, float] = {
        f"{k}-NN": knn_accuracy(model.embedding_, data.y, Z_test, data.y_test, k) for k in (1, 15)
    }
    support = torch.randperm(len(data.X), generator=torch.Generator().manual_seed(seed))[:2000].numpy()
    for size in (400, 2000):
        rows = support[:size]
        posterior = model.model_.condition(torch.as_tensor(data.X[rows]), torch.as_tensor(model.embedding_[rows]))
        mean, var = (part.numpy() for part in posterior.predict(torch.as_tensor(Z_test)))
        metrics |= {
            f"RMSE, {size} support points": rmse(data.X_test, mean),
            f"MAE, {size} support points": mae(data.X_test, mean),
            f"NLPD, {size} support points": nlpd(data.X_test, mean, var),
        }
    return {
        "settings": model.get_params(),
        "metrics": metrics,
        "seconds": seconds,
        "history": model.history_,
        "versions": {"sasgp": sasgp.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": {"cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()
    RESULTS.mkdir(exist_ok=True)
    for seed in arguments.seeds:
        path = RESULTS / f"mnist-bayesian-seed{seed}.json"
        if not path.exists():
            result = run(seed, arguments.epochs)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(result, indent=1))
            partial.rename(path)
        metrics = json.loads(path.read_text())["metrics"]
        print(seed, {name: round(value, 4) for name, value in metrics.items()}, flush=True)
