"""Whether geodesics are right, and help: neighbours of digits by geodesic distance, known surfaces, and times.

Digits: five splits into 1437 training and 360 test rows. Surfaces: 600 rows with noise of .01 in 20 dimensions, from a
cap of the unit sphere and from a Swiss roll, on which models are trained as on any data; lengths of geodesics between
the latents of 200 random pairs of rows are compared with the true ones between these rows. Times are those of the
processor; OMP_NUM_THREADS=1 makes them those of one core. With --file RUNS, MNIST's model is
RUNS/mnist/model.safetensors, which `sasgp fit mnist --max-epochs 3 --out RUNS/mnist` leaves.
"""

from collections.abc import Callable, Sequence
from time import process_time
from typing import Any

import numpy as np

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation.geodesic import knn_by_distance
from studies.questions.models import trained
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(5)
TEST_ROWS = 360
ROWS, NOISE, FEATURES, PAIRS = 600, 0.01, 20, 200
SURFACES: dict[str, dict[str, Any]] = {"sphere": {"init": "pca"}, "roll": {"init": "spectral"}}


def runs(seed: int, quick: bool) -> list[Run]:
    """A split of digits; without a seed, the surfaces, and MNIST for its time."""
    epochs = {"max_epochs": 1 if quick else None}
    surfaces = [Run(f"geodesics-{name}", {**own, **epochs}) for name, own in SURFACES.items()]
    others = [] if quick else [*surfaces, Run("geodesics-mnist", {"data": "mnist"})]
    return [Run("geodesics-digits", {"n_components": 2, **epochs}, seed), *others]


def execute(run: Run) -> dict[str, Any]:
    """Train and measure."""
    name = run.name.split("-")[1]
    if name == "mnist":
        return times(trained("mnist", run.file, quick=False))
    return digits(run) if name == "digits" else of_surface(name, run)


def digits(run: Run) -> dict[str, Any]:
    """Accuracy of neighbours by both distances, on one split."""
    data: Any = load("digits")
    X, y = np.concatenate([data.X, data.X_test]), np.concatenate([data.y, data.y_test])
    order = np.random.default_rng(run.seed).permutation(len(X))[: 500 if run.settings["max_epochs"] == 1 else None]
    test, train = order[:TEST_ROWS], order[TEST_ROWS:]
    model = SASGP(**run.settings, random_state=run.seed).fit(X[train])
    start = process_time()
    found, rows = knn_by_distance(model, model.transform(X[test]), y[test], model.embedding_, y[train])
    return found | {"rows": rows, "seconds": process_time() - start}


def sphere(rng: np.random.Generator) -> tuple[Any, Callable[[Any], Any]]:
    """Points [N, 3] of a cap of 75 degrees, and a function that finds coordinates of points near the sphere."""
    height, angle = rng.uniform(np.cos(np.radians(75)), 1, ROWS), rng.uniform(0, 2 * np.pi, ROWS)
    r = np.sqrt(1 - height**2)
    points = np.stack([r * np.cos(angle), r * np.sin(angle), height], 1)
    return points, lambda near: near / np.linalg.norm(near, axis=1, keepdims=True)


def roll(rng: np.random.Generator) -> tuple[Any, Callable[[Any], Any]]:
    """Points [N, 3] of a Swiss roll, and a function that finds coordinates of points near them: arc and height."""
    t, height = rng.uniform(1.5 * np.pi, 3.5 * np.pi, ROWS), rng.uniform(0, 10, ROWS)
    points = np.stack([t * np.cos(t), height, t * np.sin(t)], 1) / 10
    arc = (t * np.sqrt(1 + t**2) + np.arcsinh(t)) / 20  # ∫ √(1 + t²) dt along the spiral
    forward = np.stack([np.cos(t) - t * np.sin(t), 0 * t, np.sin(t) + t * np.cos(t)], 1) / np.sqrt(1 + t**2)[:, None]
    return points, lambda near: np.stack([arc + ((near - points) * forward).sum(1), near[:, 1]], 1)


def true_lengths(name: str, a: Any, b: Any) -> Any:
    """Lengths of geodesics of the surface itself. Great circles between points of the cap stay in it."""
    if name == "sphere":
        return np.arccos(np.clip((a * b).sum(1), -1, 1))
    return np.linalg.norm(a - b, axis=1)


def of_surface(name: str, run: Run) -> dict[str, Any]:
    """Lengths of geodesics, of straight lines and of paths over the graph, as shares of the true ones."""
    rng = np.random.default_rng(0)
    points, coordinates = {"sphere": sphere, "roll": roll}[name](rng)
    axes = np.linalg.qr(rng.normal(size=(FEATURES, 3)))[0]
    X = points @ axes.T + NOISE * rng.normal(size=(ROWS, FEATURES))
    places = coordinates(X @ axes)  # of the rows, which noise has moved
    model = SASGP(**run.settings, random_state=0).fit(X)
    i, j = rng.permutation(ROWS)[: 2 * PAIRS].reshape(2, -1)
    truth = true_lengths(name, places[i], places[j])
    Z = model.embedding_
    straight = model.length(np.stack([Z[i], Z[j]], 1))
    lengths = {
        "geodesic": model.length(model.geodesic(Z[i], Z[j])),
        "graph": np.diagonal(model.distance(Z[i], Z[j])),
        "straight": straight,
    }
    found = {key: _quantiles(value / truth) for key, value in lengths.items()}
    return found | {"longer than straight": int((lengths["geodesic"] > straight * (1 + 1e-4)).sum())}


def _quantiles(ratio: Any) -> dict[str, float]:
    low, median, high = np.quantile(ratio, [0.025, 0.5, 0.975]).tolist()
    return {"median": median, "2.5 %": low, "97.5 %": high, "within 5 %": float((np.abs(ratio - 1) < 0.05).mean())}


def times(model: SASGP) -> dict[str, Any]:
    """Seconds that calls take on one core, if there is one thread. The first geodesic makes the graph as well."""
    Z = model.embedding_[np.random.default_rng(0).permutation(len(model.embedding_))]
    calls = {
        "metric of 1000 points": lambda: model.metric(Z[:1000]),
        "first geodesic": lambda: model.geodesic(Z[0], Z[1]),
        "a geodesic": lambda: [model.geodesic(a, b) for a, b in Z[:20].reshape(10, 2, 2)],
        "1000 distances": lambda: model.distance(Z[:25], Z[100:140]),
    }
    found: dict[str, Any] = {"positions": model.support_size_}
    for name, call in calls.items():
        start = process_time()
        call()
        found[name] = (process_time() - start) / (10 if name == "a geodesic" else 1)
    return found


def table(records: Sequence[Record]) -> str:
    """Accuracies over splits."""
    found = [record["results"] for record in records if record["name"] == "geodesics-digits"]
    rows = [
        [name, *(mean_and_deviation([one[f"{name}_knn_{k}"] for one in found]) for k in (1, 15)), str(len(found))]
        for name in ("geodesic", "euclidean")
    ]
    return markdown(["distance", "1-NN", "15-NN", "splits"], rows)
