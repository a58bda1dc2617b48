"""Anomalies: a decoder of Fashion-MNIST, and rows of another kind.

Trained on the 60 000 rows of Fashion-MNIST, test rows of it against test rows of MNIST; and trained without one class,
test rows of the others against those of that class. AUROC: the chance that a row of another kind scores as the more
unusual of the two. Beside it PCA's reconstruction error (as many components explain 90 % of the variance),
scikit-learn's IsolationForest, and a VAE with the same encoder: its ELBO, and log p(x) by the same importance sampling
as ours.
"""

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.decomposition import PCA
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from sasgp import SASGP, VAE
from sasgp.data import load
from studies.records import Record, Run
from studies.tables import NOTHING
from studies.tables import table as markdown

SEEDS = (0,)
TASKS = {"mnist": None, "without-sandals": 5, "without-bags": 8}
N_TEST = 1000  # rows of either kind at most


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each kind of anomaly."""
    if quick:
        return [Run("anomalies-without-fives", {"data": "digits", "left_out": 5, "max_epochs": 1}, seed)]
    return [
        Run(f"anomalies-{task}", {"data": "fashion-mnist", "left_out": left_out, "max_epochs": 10}, seed)
        for task, left_out in TASKS.items()
    ]


def decoders(train: Any, rows: Any, epochs: int, seed: int | None) -> dict[str, Any]:
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


def networks(train: Any, rows: Any, epochs: int, seed: int | None) -> dict[str, Any]:
    """The same by VAEs."""
    scores = {}
    for Q in (2, 8):
        model = VAE(n_components=Q, max_epochs=epochs, random_state=seed).fit(train)
        scores[f"VAE, ELBO, {Q} dimensions"] = -elbo(model, rows, seed or 0)
        scores[f"VAE, log p(x), {Q} dimensions"] = -model.score_samples(rows)
    return scores


def elbo(model: VAE, rows: Any, seed: int, n_samples: int = 16) -> Any:
    """E_q[log p(x|z)] − KL[q(z|x) ‖ N(0, I)] of each row, by draws from q."""
    X, draw = torch.as_tensor(rows), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        mu, var = model.model_.encoder(X)
        divergence = 0.5 * (mu.square() + var - var.log() - 1).sum(1)
        drawn = (mu + var.sqrt() * torch.randn(mu.shape, generator=draw) for _ in range(n_samples))
        log_p: Any = sum(model.posterior_.log_density(X, Z) for Z in drawn)
        return (log_p / n_samples - divergence).numpy()


def execute(run: Run) -> dict[str, Any]:
    """Train, score the usual and the unusual, and compare."""
    data, left_out, epochs = (run.settings[name] for name in ("data", "left_out", "max_epochs"))
    rows: Any = load(data)
    train, test = np.asarray(rows.X, np.float32), np.asarray(rows.X_test, np.float32)
    if left_out is None:
        other = np.asarray(load("mnist").X_test)
    else:
        train = train[rows.y != left_out]
        test, other = test[rows.y_test != left_out], test[rows.y_test == left_out]
    usual, other = test[:N_TEST], other[:N_TEST]
    started, both = time.monotonic(), np.concatenate([usual, other])
    scores = decoders(train, both, epochs, run.seed) | networks(train, both, epochs, run.seed)
    truth = np.repeat([0, 1], [len(usual), len(other)])
    areas = {name: float(roc_auc_score(truth, found)) for name, found in scores.items()}
    return {"auroc": areas, "seconds": time.monotonic() - started}


def table(records: Sequence[Record]) -> str:
    """One line per method, one column per kind of anomaly."""
    areas = [record["results"]["auroc"] for record in records]
    methods = dict.fromkeys(name for found in areas for name in found)
    rows = [[name, *(f"{found[name]:.3f}" if name in found else NOTHING for found in areas)] for name in methods]
    return markdown(["AUROC", *(record["name"].removeprefix("anomalies-") for record in records)], rows)
