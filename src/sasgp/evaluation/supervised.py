"""How good a regression or classification is on rows that training did not see, and simple models beside it."""

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sasgp import metrics
from sasgp.data.rows import take_rows
from sasgp.data.tables import is_frame, read_frame
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.estimators import SASGPClassifier, SASGPRegressor

__all__ = [
    "Predictions",
    "baselines",
    "class_metrics",
    "predictions",
    "quantile_counts",
    "regression_metrics",
]

Array = NDArray[Any]

LEVELS = (90, 95)  # of the intervals, in per cent
# Rows × inputs × classes that a baseline is trained on at most: half a minute of gradient boosting on one core
BASELINE_WORK = 50_000_000


@dataclass(frozen=True)
class Predictions:
    """What a regressor says about M rows, in units of the target.

    Parameters
    ----------
    mean, std, low, high : array [M]
        Expectation, standard deviation of a new observation, and the ends of its interval.
    log_density, quantile : array [M] or None
        Of the observed targets, if they are known: their log density, and the probability of a smaller target, which is
        uniform if predictions are calibrated.
    """

    mean: Array
    std: Array
    low: Array
    high: Array
    log_density: Array | None = None
    quantile: Array | None = None


def predictions(model: "SASGPRegressor", X: Any, y: Array | None = None, *, interval: float = 0.9) -> Predictions:
    """The predictions at rows X [M, P] of a model with one target, in one pass. `y` are the targets, if known."""
    from scipy.special import ndtr

    targets, (m, sd) = model.targets_, model.predict_scores(X)
    if len(targets) != 1:
        raise InputError(f"The model must have one target. It has {len(targets)}: {', '.join(targets.names)}.")
    c = np.square(sd)
    low, high = (targets.quantile(m, c, share)[:, 0] for share in (0.5 - interval / 2, 0.5 + interval / 2))
    found = Predictions(targets.predict(m, c)[:, 0], targets.std(m, c)[:, 0], low, high)
    if y is None:
        return found
    Y = np.asarray(y, np.float64)[:, None]
    # The map is monotone, so P(target < y) = Φ((s − m) / sd) with the score s of y
    u = ndtr((targets.scores(Y) - m) / sd)[:, 0]
    density = targets.log_densities(Y, m, c)[:, 0]
    return Predictions(found.mean, found.std, low, high, density, u)


def regression_metrics(y: Array, found: Predictions, scale: float) -> dict[str, float]:
    """R², RMSE, the negative log density and the coverage of intervals, for targets y [M].

    `scale` is the standard deviation of the training targets, the unit of `rmse_sd` and `nll_sd`.
    """
    assert found.log_density is not None
    assert found.quantile is not None
    result = _errors(y, found.mean) | {"rmse_sd": metrics.rmse(y[:, None], found.mean[:, None]) / scale}
    nll = -float(found.log_density.mean())
    # The density of y / s is s times that of y
    result |= {"nll": nll, "nll_sd": nll - float(np.log(scale))}
    for level in LEVELS:
        tail = (100 - level) / 200
        result[f"coverage_{level}"] = float(np.mean((found.quantile >= tail) & (found.quantile <= 1 - tail)))
    return result


def class_metrics(y: Array, P: Array, classes: Array) -> dict[str, float]:
    """Accuracy and log loss of probabilities P [M, C] for the classes of rows, y [M].

    A class that training did not see counts as an error. It has no probability, so it is left out of the log loss, and
    `unseen` says how many rows have one.
    """
    codes = np.searchsorted(classes, y).clip(max=len(classes) - 1)
    known = classes[codes] == y
    found = {"accuracy": float(np.mean(known & (P.argmax(1) == codes)))}
    if known.any():
        tiny = np.finfo(np.float64).tiny
        found["log_loss"] = -float(np.log(np.maximum(P[known, codes[known]], tiny)).mean())
    return found if known.all() else found | {"unseen": int((~known).sum())}


def quantile_counts(quantile: Array) -> NDArray[np.int64]:
    """The histogram of quantiles [M], as `metrics.pit_counts` returns it."""
    bins = metrics.PIT_BINS
    return np.bincount(np.minimum((bins * quantile).astype(np.int64), bins - 1), minlength=bins)


def _errors(y: Array, mean: Array) -> dict[str, float]:
    from sklearn.metrics import r2_score

    found = {"rmse": metrics.rmse(y[:, None], mean[:, None])}
    return found if len(y) < 2 else {"r2": float(r2_score(y, mean))} | found


# ---------------------------------------------------------------------------------------------------- baselines


def baselines(
    model: "SASGPRegressor | SASGPClassifier", train: tuple[Any, Array], test: tuple[Any, Array], seed: int
) -> dict[str, Any]:
    """The metrics of a linear model and of gradient boosting, with the inputs that the model has.

    Parameters
    ----------
    model : SASGPRegressor or SASGPClassifier
        The fitted model, which knows the columns of the table.
    train, test : tuple (X, y)
        The rows that it was trained on, and those that it is judged by.
    seed : int
        Of the choice of rows, if there are too many.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression, RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    classes = getattr(model, "classes_", None)
    D, C = _inputs(model, take_rows(train[0], np.arange(1))).shape[1], 1 if classes is None else len(classes)
    n_rows = min(len(train[1]), max(1000, BASELINE_WORK // (D * C)))
    some = np.sort(np.random.default_rng(seed).permutation(len(train[1]))[:n_rows])
    X, y, X_test = _inputs(model, take_rows(train[0], some)), train[1][some], _inputs(model, test[0])
    linear = RidgeCV(np.logspace(-3, 4, 15)) if classes is None else LogisticRegression(max_iter=1000)
    filled = SimpleImputer(add_indicator=True, keep_empty_features=True)
    boosting = HistGradientBoostingRegressor if classes is None else HistGradientBoostingClassifier
    models: dict[str, Any] = {
        "ridge" if classes is None else "logistic_regression": make_pipeline(filled, StandardScaler(), linear),
        "gradient_boosting": boosting(random_state=seed),
    }
    found: dict[str, Any] = {"rows": n_rows}
    for name, other in models.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a baseline that has not converged is still one
            other.fit(X, y)
        if classes is None:
            found[name] = _errors(test[1], other.predict(X_test))
        else:
            found[name] = class_metrics(test[1], other.predict_proba(X_test), other.classes_)
    return found


def _inputs(model: "SASGPRegressor | SASGPClassifier", X: Any) -> Array:
    """Rows as the numbers [N, D] that the model sees, with NaN for missing ones."""
    if model.columns_ is not None:
        return model.columns_.scores(model.columns_.values(read_frame(X).frame))
    return np.asarray(X.to_numpy() if is_frame(X) else X, dtype=np.float64)
