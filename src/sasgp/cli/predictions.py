"""Predictions as a table, some rows at a time, and what they are worth where the target is known."""

from typing import TYPE_CHECKING, Any

from sasgp.cli.printing import Line

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from sasgp.estimators import SASGPClassifier, SASGPRegressor

__all__ = ["Predictor", "quality_lines"]

INTERVAL = 0.9


class Predictor:
    """Makes the table of predictions, and collects what metrics need.

    Parameters
    ----------
    estimator : SASGPRegressor or SASGPClassifier
    target : str
        Name of the target.
    interval : float
        Share of new observations between the columns low and high.
    """

    def __init__(self, estimator: "SASGPRegressor | SASGPClassifier", target: str, interval: float = INTERVAL) -> None:
        self.estimator, self.target, self.interval = estimator, target, interval
        self._parts: list[tuple[Any, ...]] = []

    @property
    def classes(self) -> "NDArray[Any] | None":
        found: NDArray[Any] | None = getattr(self.estimator, "classes_", None)
        return found

    def frame(self, X: Any, rows: "NDArray[Any]", ids: Any = None, y: Any = None) -> "pl.DataFrame":
        """The predictions at some rows: row, id and observed if known, predicted, and how certain it is.

        `y` are the targets: numbers with NaN where they are missing, or classes as a list with None.
        """
        import polars as pl

        columns: dict[str, Any] = {"row": rows} | ({} if ids is None else {"id": [str(name) for name in ids]})
        if y is not None:
            columns["observed"] = pl.Series(y, nan_to_null=True)
        return pl.DataFrame(columns | (self._numbers(X, y) if self.classes is None else self._levels(X, y)))

    def _numbers(self, X: Any, y: Any) -> dict[str, Any]:
        import numpy as np

        from sasgp.evaluation.supervised import predictions

        found = predictions(self.estimator, X, y, interval=self.interval)
        columns = {"predicted": found.mean, "std": found.std, "low": found.low, "high": found.high}
        if y is None:
            return columns
        known = ~np.isnan(y)
        self._parts.append((y[known], found.mean[known], found.log_density[known], found.quantile[known]))  # type: ignore[index]
        return columns | {"quantile": found.quantile}

    def _levels(self, X: Any, y: Any) -> dict[str, Any]:
        import numpy as np

        classes, P = self.classes, self.estimator.predict_proba(X)
        assert classes is not None
        if y is not None:
            known = np.array([one is not None for one in y])
            self._parts.append((np.array([one for one in y if one is not None], dtype=object), P[known]))
        named = {f"{self.target}={level}": P[:, c] for c, level in enumerate(classes)}
        return {"predicted": classes[P.argmax(1)]} | named

    def metrics(self) -> dict[str, Any]:
        """The metrics of all rows so far whose target is known; empty if there is none."""
        import numpy as np

        from sasgp.evaluation.supervised import Predictions, class_metrics, regression_metrics

        parts = [np.concatenate(some) for some in zip(*self._parts, strict=True)]
        if not parts or not len(parts[0]):
            return {}
        if self.classes is not None:
            y, classes = parts[0].astype(str), self.classes.astype(str)  # a file may have 1 where training had "1"
            order = np.argsort(classes)
            return {"rows": len(y), **class_metrics(y, parts[1][:, order], classes[order])}
        y, mean, log_density, quantile = parts
        found = Predictions(mean, mean, mean, mean, log_density, quantile)
        scale = self.estimator.targets_.columns[0].sd
        return {"rows": len(y), **regression_metrics(y, found, scale)}


METRICS = {
    "r2": ("R²", "1 at best, 0 for the mean"),
    "rmse": ("RMSE", "in units of the target"),
    "rmse_sd": ("RMSE / sd", "in standard deviations of the training targets"),
    "nll": ("NLL", "nats per row, in units of the target; lower is better"),
    "nll_sd": ("NLL, standardised", "of the target in standard deviations"),
    "coverage_90": ("90 % intervals", "share of the targets inside them"),
    "coverage_95": ("95 % intervals", ""),
    "accuracy": ("accuracy", "share of the rows whose class is the most probable one"),
    "log_loss": ("log loss", "nats per row; lower is better"),
    "unseen": ("unseen classes", "rows with a class that training did not see: errors, left out of the log loss"),
}
BASELINES = {"ridge": "ridge", "logistic_regression": "logistic regression", "gradient_boosting": "gradient boosting"}


def quality_lines(metrics: dict[str, Any]) -> list[Line]:
    """One line per metric, with the baselines beside it."""
    others = metrics.get("baselines", {})
    lines: list[Line] = []
    for key, (name, note) in METRICS.items():
        if key in metrics:
            beside = [
                f"{word}: {_number(others[one][key])}" for one, word in BASELINES.items() if key in others.get(one, ())
            ]
            lines.append((name, _number(metrics[key]), "; ".join([*beside, *([note] if note else [])])))
    return lines


def _number(value: float) -> str:
    return str(value) if isinstance(value, int) else f"{value:.4f}" if abs(value) < 1000 else f"{value:.6g}"
