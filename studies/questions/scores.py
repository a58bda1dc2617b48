"""How good the estimate of log p(x) is, against the integral over z by quadrature, on digits.

log p(x) = log ∫ p(x|z) p(z) dz of 200 test rows, on a grid of 801 × 801 points over [−5, 5]², beside what
`score_samples` finds with several numbers of samples, and beside importance sampling from the encoder's q(z|x) alone.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sasgp import SASGP
from sasgp.gp.objective import prior_log_density
from studies.records import Record, Run
from studies.tables import table as markdown

REACH = 5.0
CELLS, QUICK_CELLS = 801, 41
ROWS, QUICK_ROWS = 200, 20
SHOWN = ("mean", "median", "largest", "least")


def quadrature(model: SASGP, X: Any, cells: int) -> Any:
    """The log of Σ_g p(x|z_g) p(z_g) Δ² for each row."""
    axis = np.linspace(-REACH, REACH, cells)
    total = np.full(len(X), -np.inf)
    for z0 in axis:
        Z = np.stack([np.full(cells, z0), axis], 1)
        mean, std = (part.astype(np.float64) for part in model.predict(Z, return_std=True))
        squared = (X**2).sum(1)[:, None] - 2 * X @ mean.T + (mean**2).sum(1)  # [M, G]
        log_p = -0.5 * (squared / std[:, 0] ** 2 + X.shape[1] * np.log(2 * np.pi * std[:, 0] ** 2))
        log_p += prior_log_density(torch.as_tensor(Z)).numpy()
        total = np.logaddexp(total, np.logaddexp.reduce(log_p, axis=1))
    return total + 2 * np.log(axis[1] - axis[0])


def from_the_encoder(model: SASGP, X: Any, n_samples: int) -> Any:
    """Importance sampling from q(z|x) alone: what a variational autoencoder would do."""
    mean, std = (part.astype(np.float64) for part in model.transform(X, return_std=True))
    draw = np.random.default_rng(0)
    log_w = []
    for _ in range(n_samples):
        epsilon = draw.normal(size=mean.shape)
        Z = mean + std * epsilon
        log_q = -0.5 * (epsilon**2).sum(1) - np.log(std).sum(1) - np.log(2 * np.pi)
        decoded, deviation = model.predict(Z, return_std=True)
        log_p = -0.5 * (((X - decoded) / deviation) ** 2 + np.log(2 * np.pi * deviation.astype(np.float64) ** 2)).sum(1)
        log_w.append(log_p + prior_log_density(torch.as_tensor(Z)).numpy() - log_q)
    return np.logaddexp.reduce(log_w) - np.log(n_samples)


def execute(run: Run) -> dict[str, Any]:
    """Nats by which every estimate is below the integral."""
    quick = run.settings["quick"]
    cells, n_rows = (QUICK_CELLS, QUICK_ROWS) if quick else (CELLS, ROWS)
    train, test = train_test_split(load_digits().data / 16, test_size=0.2, random_state=0)
    model, test = SASGP(random_state=0, max_epochs=1 if quick else None).fit(train), test[:n_rows]
    truth = quadrature(model, test, cells)
    found = {f"score_samples, {n} samples": model.score_samples(test, n_samples=n) for n in (4, 16, 64)}
    found |= {f"q(z|x), {n} samples": from_the_encoder(model, test, n) for n in (16, 32)}
    gaps = {name: truth - scores for name, scores in found.items()}
    summary = {
        name: {"mean": gap.mean(), "median": np.median(gap), "largest": gap.max(), "least": gap.min()}
        for name, gap in gaps.items()
    }
    return {"rows": n_rows, "log p(x), mean": truth.mean(), "gap": summary}


def table(records: Sequence[Record]) -> str:
    """One line per estimate."""
    gaps = records[0]["results"]["gap"]
    rows = [[name, *(f"{gap[part]:.3f}".replace("-", "−") for part in SHOWN)] for name, gap in gaps.items()]
    return markdown(["nats below the integral", *SHOWN], rows)
