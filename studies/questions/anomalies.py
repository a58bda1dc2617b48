"""Anomalies: a decoder of Fashion-MNIST, and rows of another kind.

    SASGP_DATA=data python experiments/anomalies.py

Trained on the 60 000 rows of Fashion-MNIST, test rows of it against test rows of MNIST; and trained without one class,
test rows of the others against those of that class. AUROC: the chance that a row of another kind scores as the more
unusual of the two. Beside it PCA's reconstruction error (as many components explain 90 % of the variance),
scikit-learn's IsolationForest, and a VAE with the same encoder: its ELBO, and log p(x) by the same importance sampling
as ours. Every task is a JSON in experiments/results, which what is missing is added to.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from sasgp import SASGP, VAE
from sasgp.data import load

RESULTS = Path(__file__).parent / "results"
TASKS = {"mnist": None, "without sandals": 5, "without bags": 8}
N_TEST = 1000  # rows of either kind at the most

Scores = Callable[[np.ndarray, np.ndarray, int, int], dict[str, np.ndarray]]


def decoders(train: np.ndarray, rows: np.ndarray, epochs: int, seed: int) -> dict[str, np.ndarray]:
    """A score for each row, high for what is unusual: Gaussian processes, and what scikit-learn has."""
    pca = PCA(0.9, random_state=seed).fit(train)
    plane = PCA(2, random_state=seed).fit(train)
    forest = IsolationForest(n_estimators=200, random_state=seed).fit(train)
    model = SASGP(max_epochs=epochs, random_state=seed).fit(train)
    wide = SASGP(n_components=8, max_epochs=epochs, random_state=seed).fit(train)
    return {
        "log p(x), 2 dimensions": -model.score_samples(rows),
        "reconstruction, 2 dimensions": -model.score_samples(rows, n_samples=0),
        "log p(x), 8 dimensions": -wide.score_samples(rows),
        "reconstruction, 8 dimensions": -wide.score_samples(rows, n_samples=0),
        f"PCA, {pca.n_components_} components": np.square(rows - pca.inverse_transform(pca.transform(rows))).sum(1),
        "PCA, 2 components": np.square(rows - plane.inverse_transform(plane.transform(rows))).sum(1),
        "IsolationForest": -forest.score_samples(rows),
    }


def networks(train: np.ndarray, rows: np.ndarray, epochs: int, seed: int) -> dict[str, np.ndarray]:
    """The same by VAEs."""
    scores = {}
    for Q in (2, 8):
        model = VAE(n_components=Q, max_epochs=epochs, random_state=seed).fit(train)
        scores[f"VAE, ELBO, {Q} dimensions"] = -elbo(model, rows, seed)
        scores[f"VAE, log p(x), {Q} dimensions"] = -model.score_samples(rows)
    return scores


def elbo(model: VAE, rows: np.ndarray, seed: int, n_samples: int = 16) -> np.ndarray:
    """E_q[log p(x|z)] − KL[q(z|x) ‖ N(0, I)] of each row, by draws from q."""
    X, draw = torch.as_tensor(rows), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        mu, var = model.model_.encoder(X)
        divergence = 0.5 * (mu.square() + var - var.log() - 1).sum(1)
        drawn = (mu + var.sqrt() * torch.randn(mu.shape, generator=draw) for _ in range(n_samples))
        return (sum(model.posterior_.log_density(X, Z) for Z in drawn) / n_samples - divergence).numpy()


METHODS = {"log p(x)": decoders, "VAE": networks}  # by how the names of their scores begin


def run(task: str, epochs: int, seed: int, score: Scores) -> tuple[dict[str, float], float]:
    """Train, score the usual and the unusual, and compare: the areas, and the seconds that it took."""
    fashion, left_out = load("fashion-mnist"), TASKS[task]
    train, test, other = fashion.X, fashion.X_test, load("mnist").X_test
    if left_out is not None:
        train = train[fashion.y != left_out]
        test, other = test[fashion.y_test != left_out], test[fashion.y_test == left_out]
    usual, other = test[:N_TEST], other[:N_TEST]
    started = time.monotonic()
    scores = score(train, np.concatenate([usual, other]), epochs, seed)
    truth = np.repeat([0, 1], [len(usual), len(other)])
    return {name: float(roc_auc_score(truth, found)) for name, found in scores.items()}, time.monotonic() - started


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for task in TASKS:
        path = RESULTS / f"anomalies-{task.replace(' ', '-')}-seed{arguments.seed}.json"
        found = {"task": task, "epochs": arguments.epochs, "seed": arguments.seed, "auroc": {}, "seconds": 0.0}
        found = json.loads(path.read_text()) if path.exists() else found
        for begins, method in METHODS.items():
            if not any(name.startswith(begins) for name in found["auroc"]):
                auroc, seconds = run(task, arguments.epochs, arguments.seed, method)
                found["auroc"] |= auroc
                found["seconds"] += seconds
                path.write_text(json.dumps(found) + "\n")
        print(task, {name: round(value, 3) for name, value in found["auroc"].items()})
