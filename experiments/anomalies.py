"""Anomalies: a decoder of Fashion-MNIST, and rows of another kind.

    SASGP_DATA=data python experiments/anomalies.py

Trained on the 60 000 rows of Fashion-MNIST, test rows of it against test rows of MNIST; and trained without one class,
test rows of the others against those of that class. AUROC: the chance that a row of another kind scores as the more
unusual of the two. Beside it PCA's reconstruction error (as many components explain 90 % of the variance), and
scikit-learn's IsolationForest. Every run is a JSON in experiments/results; those that are there are skipped.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from sasgp import SASGP
from sasgp.data import load

RESULTS = Path(__file__).parent / "results"
TASKS = {"mnist": None, "without sandals": 5, "without bags": 8}
N_TEST = 1000  # rows of either kind at the most


def unusual(train: np.ndarray, rows: np.ndarray, epochs: int, seed: int) -> dict[str, np.ndarray]:
    """A score for each row by every method, high for what is unusual."""
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


def run(task: str, epochs: int, seed: int) -> dict[str, object]:
    """Train, score the usual and the unusual, and compare."""
    fashion, left_out = load("fashion-mnist"), TASKS[task]
    train, test, other = fashion.X, fashion.X_test, load("mnist").X_test
    if left_out is not None:
        train = train[fashion.y != left_out]
        test, other = test[fashion.y_test != left_out], test[fashion.y_test == left_out]
    usual, other = test[:N_TEST], other[:N_TEST]
    started = time.monotonic()
    scores = unusual(train, np.concatenate([usual, other]), epochs, seed)
    truth = np.repeat([0, 1], [len(usual), len(other)])
    auroc = {name: float(roc_auc_score(truth, score)) for name, score in scores.items()}
    return {"task": task, "epochs": epochs, "seed": seed, "auroc": auroc, "seconds": time.monotonic() - started}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    for task in TASKS:
        path = RESULTS / f"anomalies-{task.replace(' ', '-')}-seed{arguments.seed}.json"
        if not path.exists():
            path.write_text(json.dumps(run(task, arguments.epochs, arguments.seed)) + "\n")
        found = json.loads(path.read_text())
        print(task, {name: round(value, 3) for name, value in found["auroc"].items()})
