"""Through which positions the decoder is conditioned on all rows: how they are chosen, and how many; held-out rows.

A model is trained on all but some of the training rows, which are held out. Model and latents, those of the encoder,
stay; only the positions change. "missed" is the share of the prior's variance at the rows that the positions cannot
express, "pivot" the smallest pivot of K_UU relative to the largest: how well it is conditioned. "2000 rows" is a
decoder that is given so many random rows and nothing of the others.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import reconstruction
from sasgp.gp import positions
from sasgp.gp.row_sums import condition
from studies.records import Record, Run
from studies.tables import table as markdown

SEEDS = (0,)
SETTINGS: dict[str, dict[str, Any]] = {
    "mnist-2": {"data": "mnist", "rows": 24_000, "n_components": 2, "max_epochs": 8, "sizes": [100, 400]},
    "mnist-8": {"data": "mnist", "rows": 24_000, "n_components": 8, "max_epochs": 8, "sizes": [400, 1000]},
}
HELD_OUT = 6  # one in so many of the rows
SHARES = (1e-2, 1e-3, 1e-4)  # missed, at which "auto" might stop
LARGEST = 1000  # positions of "auto"
GIVEN = 2000  # rows of a decoder that is not given all


def runs(seed: int, quick: bool) -> list[Run]:
    """One per data set and number of dimensions."""
    if quick:
        settings = {"data": "digits", "rows": 500, "n_components": 2, "max_epochs": 1, "sizes": [20]}
        return [Run("positions-digits", settings, seed)]
    return [Run(f"positions-{name}", settings, seed) for name, settings in SETTINGS.items()]


def random(kernel, Z, size, draw):
    return torch.randperm(len(Z), generator=draw)[:size]


def k_means(kernel, Z, size, draw):
    return positions.kmeans_plus_plus(Z, size, draw)


def greedy(kernel, Z, size, draw):
    """Each position where the variance that the others leave is largest."""
    from scipy.linalg.lapack import dpstrf

    _, order, rank, _ = dpstrf(kernel(Z.double()).to_dense().numpy(), lower=1)
    return torch.from_numpy(order[: min(size, rank)].astype(np.int64) - 1)


def pivoted(kernel, Z, size, draw):
    return positions.choose(kernel, Z, size, draw)


CHOICES: dict[str, Callable[..., Any]] = {
    "random rows": random,
    "k-means++": k_means,
    "greedy": greedy,
    "randomly pivoted": pivoted,
}


def execute(run: Run) -> dict[str, Any]:
    """All choices of one model."""
    asked, seed = run.settings, run.seed or 0
    X = np.asarray(load(asked["data"]).X[: asked["rows"]], np.float32)
    n = len(X) // HELD_OUT
    X, X_held = X[:-n], X[-n:]
    settings = {name: asked[name] for name in ("n_components", "max_epochs")}
    model = SASGP(**settings, encoder_noise=0.0, random_state=seed, verbose=True).fit(X)
    trained, kernel = model.model_, model.sums_.kernel
    Z, Z_held = torch.from_numpy(model.embedding_), model.transform(X_held)
    draw = torch.Generator().manual_seed(seed)
    some = Z[torch.randperm(len(Z), generator=draw)[: positions.CHOSEN_FROM]]

    def measured(U: torch.Tensor) -> dict[str, float]:
        started, sums = time.process_time(), trained.row_sums(U)
        for block in range(0, len(X), 4096):
            sums.add(trained.centred(torch.from_numpy(X[block : block + 4096])), Z[block : block + 4096])
        model.posterior_ = trained.decoder(sums)
        pivots = sums.L.diagonal()
        return {
            **_quality(model, X_held, Z_held),
            "positions": len(U),
            "missed": sums.missed_share,
            "bound": sums.bound(trained.noise.detach()) / X.size,
            "pivot": float((pivots.min() / pivots.max()).square()),
            "cpu_seconds": time.process_time() - started,
        }

    with torch.no_grad():
        found = {
            f"{name}, {size}": measured(some[choose(kernel, some, size, draw)])
            for size in asked["sizes"]
            for name, choose in CHOICES.items()
        }
        for share in SHARES:
            chosen = positions.choose(kernel, some, LARGEST, draw, share)
            found[f"randomly pivoted, missing {share:g}"] = measured(some[chosen])
        rows = torch.randperm(len(Z), generator=draw)[:GIVEN]
        given = torch.from_numpy(X)[rows]
        model.posterior_ = condition(kernel, trained.noise, Z[rows], given, trained.mean, trained.scales)
        found[f"none: {len(rows)} rows"] = _quality(model, X_held, Z_held)
    return found


def _quality(model: SASGP, X: Any, Z: Any) -> dict[str, float]:
    found = reconstruction(model, X, Z)
    return {name: found[name] for name in ("rmse", "nlpd")}


def table(records: Sequence[Record]) -> str:
    """One line per choice."""
    digits = {"rmse": ".4f", "nlpd": ".4f", "positions": ".0f", "missed": ".1e", "pivot": ".0e", "cpu_seconds": ".1f"}
    rows = [
        [
            f"{record['settings']['data']}, {record['settings']['n_components']} dimensions",
            choice,
            *(f"{found[key]:{how}}".replace("-", "−") if key in found else "–" for key, how in digits.items()),
        ]
        for record in records
        for choice, found in record["results"].items()
    ]
    return markdown(["", "positions", "RMSE", "NLPD", "number", "missed", "pivot", "CPU s"], rows)
