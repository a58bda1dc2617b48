"""SASGPClassifier: classes as the targets of a Gaussian-process regression, with calibrated probabilities.

Dirichlet counts α = ε, and 1 + ε for the class of a row, give Gaussian targets (Milios et al., 2018). If all classes
share the noise, and with it the factor, these are two numbers, one where the class is and one where it is not;
standardised, ε has no effect. So f_c = 0 is the frequency of the class, and

    p(c | x) ∝ frequency_c · exp(a m_c / √(1 + b v))

with the mean m_c and the variance v of f_c at x. Two numbers a and b are fitted to training rows, each predicted from
the nearest rows without itself. Far from all rows, m_c = 0 and p is the frequency.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import log_softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, column_or_1d

from sasgp.errors import InputError
from sasgp.estimators.supervised import ATTRIBUTES, SupervisedEstimator
from sasgp.models.settings import SupervisedSettings, documented
from sasgp.training.loop import generator

__all__ = ["SASGPClassifier"]

Array = NDArray[np.float64]

CALIBRATED = 2000  # rows by which probabilities are calibrated
LARGEST = 6.0  # of log a and log b


@dataclass(eq=False, repr=False)
class SASGPClassifier(ClassifierMixin, SupervisedEstimator):
    __doc__ = (
        """Gaussian-process classification, trained with stochastic active sets, predicting from the nearest rows.

    Classes are the targets of a regression with one kernel and one noise for all. Probabilities are calibrated on
    training rows, each predicted from others. It keeps its training rows, also in its file.
    """
        + documented(SupervisedSettings)
        + """
    Attributes
    ----------
    classes_ : ndarray [C]
        The classes, sorted.
    calibration_ : list of float
        Two numbers a and b that were fitted to training rows: log p(c) is log frequency_c + a m_c / √(1 + b v), up to a
        constant, with the mean m_c and the variance v of the score of class c."""
        + ATTRIBUTES
        + """
    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sasgp import SASGPClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> model = SASGPClassifier(max_epochs=20, random_state=0).fit(X[::2], y[::2])
    >>> model.predict_proba(X[1::2]).shape, bool(model.score(X[1::2], y[1::2]) > 0.9)
    ((75, 3), True)
    """
    )

    # Dirichlet counts have noise, too. Without it, few rows would be explained by chance
    _LEAST_NOISE: ClassVar[float] = 0.05
    _SAVED: ClassVar[tuple[str, ...]] = (*SupervisedEstimator._SAVED, "calibration_", "frequencies_")

    # ------------------------------------------------------------------------------------------------ targets

    def _learn_targets(self, y: Any) -> Array:
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise InputError("Input y contains NaN or infinity. Each row needs a class.", argument="y")
        check_classification_targets(y)
        self.classes_, codes = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"Classification needs at least two classes, but y has one class: {self.classes_[0]!r}. Add rows of "
                "another class.",
                argument="y",
            )
        self.frequencies_ = (np.bincount(codes) / len(codes)).tolist()
        return self._scores(codes)

    def _more_targets(self, y: Any) -> Array:
        y = column_or_1d(y, warn=True)
        codes = np.searchsorted(self.classes_, y).clip(max=len(self.classes_) - 1)
        if unknown := sorted({str(label) for label in y[self.classes_[codes] != y]}):
            raise InputError(
                f"y has classes that training did not see: {', '.join(unknown[:5])}. Fit a new model with all rows.",
                argument="y",
            )
        return self._scores(codes)

    def _scores(self, codes: NDArray[np.int64]) -> Array:
        """Standardised targets [N, C]: whether a row has the class, minus its frequency, with variance 1 on average."""
        frequencies = np.array(self.frequencies_)
        scale = np.sqrt(np.mean(frequencies * (1 - frequencies)))
        found: Array = (np.eye(len(frequencies))[codes] - frequencies) / scale
        return found

    def _described_targets(self) -> Any:
        return {"dtype": self.classes_.dtype.str, "classes": self.classes_.tolist()}

    def _restore_targets(self, found: Any) -> None:
        kind = str(found["dtype"])
        if len(kind) > 8 or kind.lstrip("<>|=")[0] not in "biufUO":
            raise ValueError(f"classes of type {kind}")
        self.classes_ = np.array(found["classes"], dtype=kind)
        a, b = self.calibration_
        right = len(self.classes_) == len(self.frequencies_) and self.classes_.ndim == 1
        if not right or not all(0 < value < np.inf for value in (a, b, *self.frequencies_)):
            raise ValueError("calibration or frequencies do not fit the classes")

    # ------------------------------------------------------------------------------------------------ probabilities

    def _calibrate(self) -> None:
        N = len(self._targets)
        nearest = self._nearest(min(int(self.neighbours), N - 1))
        rows = torch.randperm(N, generator=generator(self.seed_, "calibration"))[:CALIBRATED].to(self._places.device)
        mean, var = (part.numpy(force=True) for part in nearest.leave_one_out(rows))
        codes = self._targets[rows.cpu()].argmax(1).numpy()
        shares = np.array(self.frequencies_)

        def loss(logs: Array) -> float:
            log_p = _log_probabilities(mean, var, np.exp(logs), shares)
            # A weak prior keeps both finite if the classes can be told apart without an error
            return float(-log_p[np.arange(len(codes)), codes].mean() + 1e-3 * np.square(logs).sum())

        found = minimize(loss, np.zeros(2), method="L-BFGS-B", bounds=[(-LARGEST, LARGEST)] * 2)
        self.calibration_ = np.exp(found.x).tolist()

    def predict_log_proba(self, X: Any) -> Array:
        """Log probabilities [M, C] of the classes at rows X [M, P].

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes.
        """
        check_is_fitted(self)
        shares, calibration = np.array(self.frequencies_), np.array(self.calibration_)
        parts = [_log_probabilities(mean, var[:, 0], calibration, shares) for mean, var in self._moments(X)]
        return np.concatenate(parts)

    def predict_proba(self, X: Any) -> Array:
        """Probabilities [M, C] of the classes at rows X [M, P].

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes.
        """
        return np.exp(self.predict_log_proba(X))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable class [M] at rows X [M, P].

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes.
        """
        most = self.predict_log_proba(X).argmax(1)
        found: NDArray[Any] = self.classes_[most]
        return found


def _log_probabilities(mean: Array, var: Array, calibration: Array, frequencies: Array) -> Array:
    # p(c | x) ∝ frequency_c · exp(a m_c / √(1 + b v))
    a, b = calibration
    found: Array = log_softmax(np.log(frequencies) + a * mean / np.sqrt(1 + b * var)[:, None], axis=1)
    return found
