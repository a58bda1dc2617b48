"""What refinement does for the latents of new rows: MNIST's test rows, and digits with and without a network.

    SASGP_DATA=data python experiments/refine.py mnist runs/mnist/model.safetensors
    SASGP_DATA=data python experiments/refine.py digits

Leaves experiments/results/refine-{data}.json, a variant at a time; finished ones are skipped. RMSE and NLPD are through
the latent space. "log joint" is the mean over rows of log p(x|z) + log p(z), which refinement climbs.
"""

import json
import sys
from functools import cache
from pathlib import Path

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.estimators import inference
from sasgp.evaluation import knn, reconstruction

RESULTS = Path(__file__).parent / "results"
TEST_ROWS = 2000


def measure(model, data, rows, Z):
    """Metrics of test rows at latents Z."""
    X = np.asarray(data.X_test[rows], np.float32)
    posterior = model.posterior_
    with torch.no_grad():
        joint = [
            inference.log_joint(posterior, torch.from_numpy(X[block]), torch.as_tensor(Z[block])).mean() * len(X[block])
            for block in posterior.blocks(len(X))
        ]
    found = reconstruction(model, X, Z) | knn(model.embedding_, data.y, Z, data.y_test[rows])
    return found | {"log joint": float(sum(joint)) / len(X)}


def best_start(model, X):
    """The best of the starts by density: refinement before its first step."""
    X, index = torch.as_tensor(X, dtype=torch.float32), getattr(model, "neighbours_", None)
    starts = [inference.SupportStarts(model.posterior_), *([] if index is None else [index])]
    found = []
    for block in X.split(500):
        places = [torch.as_tensor(model.transform(block.numpy()))[:, None], *(start(block) for start in starts)]
        found.append(inference.refine(model.posterior_, block, torch.cat(places, 1), 0))
    return torch.cat(found).numpy()


def mnist(path):
    data, model = load("mnist"), SASGP.load(path)
    rows = np.sort(np.random.default_rng(0).permutation(len(data.X_test))[:TEST_ROWS])
    X = data.X_test[rows]
    yield "encoder", lambda: measure(model, data, rows, model.transform(X))
    yield "best start, support", lambda: measure(model, data, rows, best_start(model, X))
    yield "refine=10, support", lambda: measure(model, data, rows, model.transform(X, refine=10))
    model.build_index(data.X)
    yield "best start, support and all rows", lambda: measure(model, data, rows, best_start(model, X))
    yield "refine=10, support and all rows", lambda: measure(model, data, rows, model.transform(X, refine=10))


def digits():
    data = load("digits")
    rows = np.arange(len(data.X_test))
    settings = {
        "network, seed 0": {"random_state": 0},
        "network, seed 1": {"random_state": 1},
        "table, seed 0": {"encoder": "table", "random_state": 0},
        "table, learning_rate=.02, seed 0": {"encoder": "table", "learning_rate": 0.02, "random_state": 0},
    }
    for name, chosen in settings.items():
        fit = cache(lambda chosen=chosen: SASGP(**chosen).fit(data.X))
        for refine in (0,) if "encoder" in chosen else (0, 20):  # a table searches in any case
            yield (
                f"{name}, refine={refine}",
                lambda fit=fit, refine=refine: measure(fit(), data, rows, fit().transform(data.X_test, refine=refine)),
            )


def main(name, *path):
    file = RESULTS / f"refine-{name}.json"
    found = json.loads(file.read_text()) if file.exists() else {}
    for variant, run in {"mnist": mnist, "digits": digits}[name](*path):
        if variant not in found:
            found[variant] = run()
            file.write_text(json.dumps(found, indent=1) + "\n")
        print(variant, {key: round(value, 4) for key, value in found[variant].items()}, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
