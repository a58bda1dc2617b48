"""Train a model of the paper's tables, and measure it."""

import json
import os
import time
from collections.abc import Callable
from copy import copy
from dataclasses import asdict
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

import sasgp
from sasgp.data import load
from sasgp.estimators.base import LatentEstimator
from sasgp.evaluation import knn, reconstruction, structure
from sasgp.gp.row_sums import condition
from sasgp.metrics import _log_mass as log_mass
from sasgp.training.checkpoint import Checkpointer
from sasgp.training.loop import Alone
from studies import records
from studies.paper import ablation, pca, peers
from studies.paper.listing import Training
from studies.records import EARLIER, Run

__all__ = ["MEASURES", "execute"]

FEWER, SOME = 400, 2000  # rows that the decoder is given instead of all; 400 is the paper's largest active set
KEPT_ROWS = 5000  # training rows in a figure
REFINE = 20  # steps for the latents of new rows
GRID = 80  # points of the background along each axis
CLIPPED_ROWS, HALF_LEVEL = 1000, 0.5 / 255  # rows at a time, and half the distance of two levels of 8-bit data
EVIDENCE_SIZES = (100, 200, 400, 800)

Found = dict[str, Any]


def execute(run: Run) -> Found:
    """Train once and measure."""
    run = Training(run.name, run.settings, run.seed)
    data = _load(run.data)
    X = _some(data.X, run.rows, run.seed) if run.measures != ("evidence",) else data.X
    estimator = _estimator(run.estimator)
    own = {name: value for name, value in ({"verbose": True} | EARLIER).items() if name in estimator().get_params()}
    model = estimator(**{**own, **run.parameters}, random_state=run.seed)
    training = _fit(model, X, run.title)
    metrics: Found = {}
    arrays: Found = {}
    for measure in run.measures:
        found, kept = MEASURES[measure](model, data, run)
        metrics |= found
        arrays |= kept
    return {
        "parameters": model.get_params(),
        "precision": getattr(model, "precision_", None),  # what "auto" came to
        **training,
        "rows": len(X),
        "metrics": metrics,
        "curve": model.history_,
        "arrays": arrays,
    }


def _fit(model: Any, X: Any, title: str) -> Found:
    """Train, and say how long it took.

    With SASGP_CHECKPOINTS=FOLDER, the last checkpoint of a training is kept there. A run that finds one does only what
    comes after training, so that a new measure needs no new training. The record then names the commit that trained.
    """
    kept = os.environ.get("SASGP_CHECKPOINTS")
    path = Path(kept) / f"{title}.pt" if kept and isinstance(model, LatentEstimator) else None
    earlier: Found = {}
    note = None if path is None else path.with_suffix(".json")
    if note is not None and note.exists():
        earlier = json.loads(note.read_text())
    started, cpu = time.perf_counter(), time.process_time()
    if path is None:
        model.fit(X)
    else:
        model.fit(X, checkpoint=Checkpointer(path), resume=path if earlier else None)
    took = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    if earlier:
        return {name: took[name] + earlier[name] for name in took} | {"trained by commit": earlier["commit"]}
    if note is not None:
        note.write_text(json.dumps(took | {"commit": records.commit()}))
    return took


@lru_cache(maxsize=1)
def _load(name: str) -> Any:
    return load(name)


def _estimator(name: str) -> Any:
    homes = (home for home in (ablation, pca, peers) if name in home.__all__)
    return getattr(next(homes, sasgp), name)


def _some(X: Any, n: int | None, seed: int | None) -> Any:
    return X if n is None else X[np.sort(np.random.default_rng(seed).permutation(len(X))[:n])]


# ---- measures ----


def _quality(model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    # Neighbours among all training rows, also for a model that was trained on some of them
    Z, Z_test = model.transform(data.X), model.transform(data.X_test)
    found = reconstruction(model, data.X_test, Z_test)
    del found["pit"]
    return found | knn(Z, data.y, Z_test, data.y_test), {}


def _given(n: int, model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    """The same model with a decoder that is given n training rows, drawn at random, instead of all."""
    some = np.sort(np.random.default_rng(run.seed).permutation(len(model.embedding_))[:n])
    X = torch.as_tensor(_some(data.X, run.rows, run.seed)[some])
    Z = torch.as_tensor(model.embedding_[some])
    trained, fewer = model.model_, copy(model)
    fewer.posterior_ = condition(trained.kernel, trained.noise, Z, X.to(Z.dtype), trained.mean, trained.scales)
    found = reconstruction(fewer, data.X_test, model.transform(data.X_test))
    return {f"{name}_{n}": found[name] for name in ("rmse", "mae", "nlpd")}, {}


def _positions(model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    return {"positions": model.support_size_, "missed_share": model.missed_share_}, {}


def _local(model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    # What noise="local" adds to a model that was trained with noise="shared": training is the same
    local, Z = copy(model).set_params(noise="local"), torch.as_tensor(model.embedding_, device=model._device)
    residuals, rows = model.model_.residual_sums(model.sums_.U), model._rows(_some(data.X, run.rows, run.seed))
    local.posterior_ = local._decoder_with(model.sums_, residuals, rows, Z, Alone())
    Z_test = model.transform(data.X_test)
    found, shared = reconstruction(local, data.X_test, Z_test), reconstruction(model, data.X_test, Z_test)
    names = ("bits", "nlpd", "coverage_50", "coverage_90", "coverage_99")
    kept = {f"local_{name}": found[name] for name in names if name in found}
    if "bits" in shared:
        kept |= {"bits": shared["bits"], "local_bits_at_most_53": _bits_at_most(53, local, data.X_test, Z_test)}
    return kept, {}


def _bits_at_most(most: float, model: Any, X: Any, Z: Any) -> float:
    """Bits per value if none may cost more, as where a probability is a difference of two numbers in float64."""
    total = 0.0
    for start in range(0, len(X), CLIPPED_ROWS):
        rows = slice(start, start + CLIPPED_ROWS)
        mean, std = (part.astype(np.float64) for part in model.predict(Z[rows], return_std=True))
        x = np.asarray(X[rows], dtype=np.float64).reshape(mean.shape)
        low, high = np.where(x > 0, x - HALF_LEVEL, -np.inf), np.where(x < 1, x + HALF_LEVEL, np.inf)
        bits = -log_mass((low - mean) / std, (high - mean) / std) / np.log(2)
        total += float(np.minimum(bits, most).sum())
    return total / np.asarray(X).size


def _places(model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    model.transform(data.X_test[:20])  # what compiles itself has done so
    started = time.process_time()
    Z_test = model.transform(data.X_test)
    seconds = time.process_time() - started
    found = knn(model.embedding_, _some(data.y, run.rows, run.seed), Z_test, data.y_test)
    found |= structure(data.X_test, Z_test, data.y_test, run.seed or 0)
    return found | {"transform_seconds": seconds}, {}


def _refined(model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    started = time.process_time()
    Z_test = model.transform(data.X_test, refine=REFINE)
    found = {"transform_seconds": time.process_time() - started}
    found |= reconstruction(model, data.X_test, Z_test)
    found |= knn(model.embedding_, _some(data.y, run.rows, run.seed), Z_test, data.y_test)
    found |= structure(data.X_test, Z_test, data.y_test, run.seed or 0)
    del found["pit"]
    return {f"refined_{name}": value for name, value in found.items()}, {}


def _latents(model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    Z, Z_test = model.transform(data.X[:KEPT_ROWS]), model.transform(data.X_test)
    both = np.concatenate([Z, Z_test])
    low, high = both.min(0), both.max(0)
    centre, half = (low + high) / 2, 0.54 * (high - low).max()  # a margin of 4 % on either side
    steps = [np.linspace(c - half, c + half, GRID) for c in centre]
    grid = np.stack(np.meshgrid(*steps, indexing="xy"), axis=-1).reshape(-1, 2).astype(Z.dtype)
    decodes = hasattr(model, "predict")
    std = model.predict(grid, return_std=True)[1].mean(1).reshape(GRID, GRID) if decodes else np.zeros((GRID, GRID))
    half_precision = {"Z": Z, "Z_test": Z_test, "std": std}  # three digits, which is more than a figure shows
    return {}, {
        **{name: values.astype(np.float16) for name, values in half_precision.items()},
        "y": data.y[:KEPT_ROWS].astype(np.uint8),
        "y_test": data.y_test.astype(np.uint8),
        "extent": np.array([steps[0][0], steps[0][-1], steps[1][0], steps[1][-1]]),
    }


def _evidence(model: Any, data: Any, run: Training) -> tuple[Found, Found]:
    X = _some(data.X, run.rows, run.seed)
    found = {"exact": model.evidence(X, method="exact", dtype="float32")}
    for A in EVIDENCE_SIZES:
        if len(X) > A:
            found[f"SAS, A = {A}"] = model.evidence(
                X, method="sas", active_set_size=A, n_estimates=10, dtype="float32", random_state=run.seed
            )
    per_value = ("per_value", "standard_error_per_value")
    return {
        name: asdict(estimate) | {key: getattr(estimate, key) for key in per_value} for name, estimate in found.items()
    }, {}


MEASURES: dict[str, Callable[[Any, Any, Training], tuple[Found, Found]]] = {
    "quality": _quality,
    "fewer": partial(_given, FEWER),
    "some": partial(_given, SOME),
    "positions": _positions,
    "local": _local,
    "places": _places,
    "refined": _refined,
    "latents": _latents,
    "evidence": _evidence,
}
