"""Classes by active sets, beside scikit-learn's exact Gaussian process and neighbours.

digits and breast cancer: three quarters train, in splits that keep the shares of the classes; a seed is a split. Breast
cancer has twenty, because one of its 143 test rows is .007 of accuracy; digits has five. MNIST: its own split. Inputs
are standardised by the training rows, but not the pixels of MNIST.

    sasgp      SASGPClassifier()
    deep       SASGPClassifier(kernel="deep"), of MNIST
    gpc        scikit-learn's GaussianProcessClassifier: Laplace, one class against the rest, an RBF kernel with learned
               lengthscale and signal; of the first split of digits, where it takes minutes, and not of MNIST, whose
               60 000 rows do not fit
    knn        the five nearest rows; log loss of (votes + 1/L) / 6, with L classes

Seconds are CPU time of one thread.
"""

import math
import time
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from sasgp import SASGPClassifier
from sasgp.data import load
from studies.records import Record, Run
from studies.tables import count, mean_and_deviation
from studies.tables import table as markdown

Array = NDArray[Any]

SEEDS = range(20)
SPLITS = {"breast-cancer": 20, "digits": 5}
SMALL = {"breast-cancer": load_breast_cancer, "digits": load_digits}
MODELS = {"sasgp": "SASGPClassifier", "deep": 'with kernel="deep"', "gpc": "exact GP, Laplace", "knn": "5-NN"}


def runs(seed: int, quick: bool) -> list[Run]:
    """Every model of every data set that it can take."""
    if quick:
        return [_run("breast-cancer", model, seed, {"max_epochs": 1}) for model in ("sasgp", "knn")]
    mnist = [_run("mnist", model, seed, {}) for model in ("sasgp", "deep", "knn") if seed == 0]
    small = [
        _run(data, model, seed, {})
        for model in ("sasgp", "gpc", "knn")
        for data in SMALL
        if seed < (1 if (data, model) == ("digits", "gpc") else SPLITS[data])
    ]
    return [*small, *mnist]


def _run(data: str, model: str, seed: int, settings: dict[str, Any]) -> Run:
    return Run(f"classification-{data}-{model}", {"data": data, "model": model, **settings}, seed)


def split(data: str, seed: int) -> tuple[Array, Array, Array, Array]:
    """Training rows and labels, then those of the test."""
    if data == "mnist":
        found: Any = load("mnist")
        return found.X, found.y, found.X_test, found.y_test
    X, y = SMALL[data](return_X_y=True)
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.25, stratify=y, random_state=seed)
    mean, std = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1)
    return (X - mean) / std, y, (X_test - mean) / std, y_test


def _model(model: str, settings: dict[str, Any], seed: int, n_inputs: int) -> Any:
    if model in ("sasgp", "deep"):
        chosen: dict[str, Any] = {"kernel": "deep"} if model == "deep" else {}
        return SASGPClassifier(**chosen, **settings, random_state=seed)
    if model == "gpc":
        kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(math.sqrt(n_inputs), (1e-1, 1e3))
        return GaussianProcessClassifier(kernel, random_state=seed)
    return KNeighborsClassifier(5)


def execute(run: Run) -> dict[str, Any]:
    """Fit one model, and measure its probabilities of the test rows."""
    settings, seed = dict(run.settings), run.seed or 0
    data, name = settings.pop("data"), settings.pop("model")
    X, y, X_test, y_test = split(data, seed)
    model = _model(name, settings, seed, X.shape[1])
    started = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of scikit-learn, where a bound of its kernel is reached
        model.fit(X, y)
    fitted = time.process_time()
    p = model.predict_proba(X_test)  # [M, L]
    seconds = {"fit": fitted - started, "predict": time.process_time() - fitted}
    if name == "knn":
        p = (5 * p + 1 / p.shape[1]) / 6
    places = np.searchsorted(model.classes_, y_test)
    return {
        "rows": len(X),
        "test_rows": len(X_test),
        "accuracy": float(np.mean(p.argmax(1) == places)),
        "log_loss": float(-np.log(p[np.arange(len(p)), places].clip(1e-15)).mean()),
        "cpu_seconds": seconds,
    }


def table(records: Sequence[Record]) -> str:
    """One line per data set and model: means and deviations over splits."""
    lines = []
    for data in (*SMALL, "mnist"):
        for model, title in MODELS.items():
            chosen = {"data": data, "model": model}
            some = [r for r in records if chosen.items() <= r["settings"].items()]
            found = [r["results"] for r in some]
            if found:
                cells = [mean_and_deviation([one[key] for one in found], 4) for key in ("accuracy", "log_loss")]
                times = [mean_and_deviation([one["cpu_seconds"][of] for one in found], 1) for of in ("fit", "predict")]
                lines.append([data, f"{found[0]['rows']:,}", title, *cells, *times, count(some)])
    return markdown(["data", "rows", "model", "accuracy", "log loss", "CPU s, fit", "CPU s, predict", "splits"], lines)


part = table
