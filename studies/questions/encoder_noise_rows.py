"""Noise on the encoder's input by the number of rows, on rows held out of the training data.

The rule of `encoder_noise="auto"` (`auto_noise` in `models/build.py`) was chosen by this table. Official test rows are
not used: a model trains on some of the training rows and is measured on up to 2000 others, through the latent space.
Small sets train for the default 1000 steps, MNIST and Fashion-MNIST for about 500. Wine is standardised, because its
columns have different units.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import sasgp
from sasgp.data import load
from sasgp.metrics import knn_accuracy, rmse
from studies.records import Record, Run
from studies.tables import count, mean_and_deviation
from studies.tables import table as markdown

SEEDS = (0, 1, 2)
NOISES = (0.0, 1.0)
# Rows to train on, four fifths of the small sets, and `max_epochs`
Set = tuple[str, int, int | None]
TINY: tuple[Set, ...] = (("iris", 120, None), ("wine", 142, None))  # with three seeds
LARGER: tuple[Set, ...] = (
    *(("oil-flow", 800, None), ("digits", 1150, None)),
    *(("mnist", 500, 500), ("mnist", 2000, 250), ("mnist", 6000, 84), ("mnist", 20_000, 25), ("mnist", 58_000, 9)),
    *(("fashion-mnist", 2000, 250), ("fashion-mnist", 20_000, 25)),
)
BETWEEN: Set = ("mnist", 20_000, 25)  # where neither 0 nor 1 is clearly better: also with .5
# Does the same rule hold for other decoders, and for latents that are held near a layout?
OTHERS: dict[str, tuple[str, dict[str, Any], tuple[Set, ...]]] = {
    "layout": ("SASGP", {"init": "umap", "layout_weight": 0.7}, (("mnist", 20_000, 25),)),
    "vae": ("VAE", {}, (("digits", 1150, None), ("mnist", 58_000, 9))),
    "inducing": ("BayesianGPLVM", {}, (("digits", 1150, None),)),
}
METRICS = ("1-NN", "RMSE", "NLPD")
VALIDATION_ROWS = 2000


def runs(seed: int, quick: bool) -> list[Run]:
    """With and without noise, from the smallest set to the largest; then other models."""
    if quick:
        return [_run(("iris", 120, 1), noise, seed) for noise in NOISES]
    plain = [_run(one, noise, seed) for one in (TINY if seed else TINY + LARGER) for noise in NOISES]
    others = [_run(one, noise, seed, kind) for kind in OTHERS for one in OTHERS[kind][2] for noise in NOISES]
    return plain if seed else [*plain, _run(BETWEEN, 0.5, seed), *others]


def _run(one: Set, noise: float, seed: int, kind: str = "sasgp") -> Run:
    data, n, max_epochs = one
    estimator, more, _ = OTHERS.get(kind, ("SASGP", {}, ()))
    parameters = {"encoder_noise": noise, "max_epochs": max_epochs, **more}
    settings = {"data": data, "rows": n, "estimator": estimator, "parameters": parameters}
    return Run(f"encoder-noise-rows-{kind}-{data}-{n}-{noise:g}", settings, seed)


def execute(run: Run) -> dict[str, Any]:
    """Train once and measure."""
    X, y, X_valid, y_valid = split(run.settings["data"], run.settings["rows"], run.seed)
    model = getattr(sasgp, run.settings["estimator"])(**run.settings["parameters"], random_state=run.seed).fit(X)
    Z = model.transform(X_valid)
    metrics = {
        "1-NN": knn_accuracy(model.embedding_, y, Z, y_valid),
        "RMSE": rmse(X_valid, model.predict(Z)),
        "NLPD": -model.score_samples(X_valid, n_samples=0).mean() / X.shape[1],
    }
    return {
        "parameters": model.get_params(),
        "validation rows": len(X_valid),
        "metrics": metrics,
        "epochs": len(model.history_),
        "seconds": model.history_[-1]["seconds"],
    }


def split(data: str, rows: int, seed: int | None) -> tuple[NDArray[Any], ...]:
    """Rows to train on with their labels, and rows to measure on with theirs."""
    X, y = _training_rows(data)
    order = np.random.default_rng(seed).permutation(len(X))
    train, valid = order[:rows], order[rows : rows + VALIDATION_ROWS]
    if data == "wine":
        X = (X - X[train].mean(0)) / X[train].std(0)
    return X[train], y[train], X[valid], y[valid]


def _training_rows(data: str) -> tuple[NDArray[Any], NDArray[Any]]:
    if data in ("iris", "wine"):
        from sklearn import datasets

        found = getattr(datasets, f"load_{data}")()
        return found.data, found.target
    named: Any = load(data)
    return named.X, named.y


def table(records: Sequence[Record]) -> str:
    """A line for each model and set: every metric without noise, then with noise, as means over seeds."""
    rows = []
    for name in dict.fromkeys(record["name"].rpartition("-")[0] for record in records):
        pair = [{r["seed"]: r for r in records if r["name"] == f"{name}-{noise:g}"} for noise in NOISES]
        seeds = sorted(pair[0].keys() & pair[1].keys())  # a seed is also a split, so both sides need the same ones
        if not seeds:
            continue
        settings, kind = pair[0][seeds[0]]["settings"], name.removeprefix("encoder-noise-rows-").partition("-")[0]
        found = [[part[seed]["results"]["metrics"][m] for seed in seeds] for m in METRICS for part in pair]
        cells = [mean_and_deviation(values, 3) for values in found]
        rows.append([kind, settings["data"], str(settings["rows"]), *cells, count([pair[0][seed] for seed in seeds])])
    return markdown(["model", "data", "rows", *(f"{m}, {noise:g}" for m in METRICS for noise in NOISES), "seeds"], rows)
