"""SASGPImputer: a scikit-learn imputer for tables of numbers.

By default each column is regressed on the others by a Gaussian process (`sasgp.estimators.column_imputation`). With a
number of latent dimensions, the rows are completed by an `SASGP` with a free latent for each row instead. Columns are
standardised, so that one noise variance serves all of them. docs/missing-values.md describes both.
"""

import math
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sasgp.data.rows import unmasked
from sasgp.data.tables import is_frame, read_frame
from sasgp.errors import InputError
from sasgp.estimators.column_imputation import ColumnImputation
from sasgp.estimators.imputation import check_asked
from sasgp.estimators.notebook import FittedCard, imputer_card
from sasgp.estimators.sas import SASGP
from sasgp.estimators.validation import check_count, seed_of
from sasgp.training.loop import generator

__all__ = ["SASGPImputer"]

Array = NDArray[np.float64]

ACTIVE, BATCH = 100, 256
STEPS, EPOCHS = 1000, 100  # of training: whichever is more
SHARES = (0.0, 0.25, 0.5, 0.75)  # of the number of columns: candidates for the number of latent dimensions, at least 1
MOST_DIMENSIONS = 16
HIDDEN = 0.1  # share of the observed values by which a candidate is judged
CHOICE_ROWS = 2000  # rows that decide, at most
MOST_COLUMNS = 100  # with regressions: their work grows with the cube


class SASGPImputer(FittedCard, OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    """Completes tables with Gaussian processes.

    Each column of numbers is regressed on the others, given what is known of them in the row. A table with more than
    100 columns, or with columns that are not numbers, is completed by a decoder (:class:`SASGP`) instead. A DataFrame
    with columns that are not numbers comes back as a DataFrame, in its own types.

    Parameters
    ----------
    n_components : int, "auto" or None
        None: regressions. Otherwise a decoder with this number of latent dimensions. "auto": a tenth of the observed
        values is hidden in up to 2000 rows, and the number that predicts them best is used, among 1 and a quarter, half
        and three quarters of the columns. That takes several fits. If a table needs a decoder but n_components is None,
        or if it has columns that are not numbers and n_components is "auto", the decoder has half as many dimensions as
        there are columns, from 1 to 16.
    max_epochs : int, optional
        Passes over the data that train a decoder. None: about 1000 steps, but at least 100 passes.
    random_state : int, RandomState or None
        None draws a new seed each time.
    device : str
        As for :class:`SASGP`.
    verbose : bool
        Show progress.

    Attributes
    ----------
    model_ : SASGP or None
        The decoder of the standardised columns. None with regressions.
    regressions_ : object or None
        The regressions of the standardised columns. None with a decoder.
    mean_, scale_ : ndarray [D]
        Mean and standard deviation of each column of numbers. A column without values has mean 0 and is filled with it.
        Not for a table with other columns.
    n_components_ : int or None
        Dimensions of the latent space. None with regressions.
    errors_ : dict
        With "auto", the root mean squared error of hidden values, in standard deviations, by the number of dimensions.
    n_features_in_ : int
        Number of columns.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sasgp import SASGPImputer
    >>> X = load_iris().data
    >>> holes = np.random.default_rng(0).random(X.shape) < 0.2
    >>> holes[holes.all(1)] = False
    >>> imputer = SASGPImputer(random_state=0)
    >>> completed = imputer.fit_transform(np.where(holes, np.nan, X))
    >>> bool(np.isfinite(completed).all()), bool((completed == X)[~holes].all())
    (True, True)
    """

    def __init__(
        self,
        *,
        n_components: int | Literal["auto"] | None = None,
        max_epochs: int | None = None,
        random_state: Any = None,
        device: str = "auto",
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.max_epochs = max_epochs
        self.random_state = random_state
        self.device = device
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn from the rows of X [N, D], whose missing values are NaN. Rows without any value are left out.

        Parameters
        ----------
        X : array-like [N, D]
            An array or a DataFrame.
        y : ignored
        """
        if self.n_components is not None and self.n_components != "auto":
            check_count("n_components", self.n_components, also=", or 'auto' or None")
        self.errors_: dict[int, float] = {}
        self.model_: SASGP | None = None
        self.regressions_: ColumnImputation | None = None
        self.n_components_: int | None = None
        if _is_mixed(X):
            validate_data(self, X, reset=True, skip_check_array=True)
            share = 0.5 if self.n_components is None or self.n_components == "auto" else None
            Q = _dimensions(self.n_features_in_, share) if share else int(self.n_components)  # type: ignore[arg-type]
            self.n_components_ = Q
            self.model_ = self._fitted(X, self.n_components_, seed_of(self.random_state), "feature")
            return self
        X = self._validated(X, reset=True)
        X = X[~np.isnan(X).all(1)]
        if len(X) < 2:
            raise InputError(
                f"Imputation needs at least 2 rows with values, but X has n_samples = {len(X)} of them. Add rows.",
                argument="X",
            )
        seen = ~np.isnan(X)
        there = np.maximum(seen.sum(0), 1)
        self.mean_ = np.where(seen, X, 0.0).sum(0) / there
        deviation = np.sqrt(np.square(np.where(seen, X - self.mean_, 0.0)).sum(0) / there)
        self.scale_ = np.where(deviation > 0, deviation, 1.0)
        X, seed = (X - self.mean_) / self.scale_, seed_of(self.random_state)
        if self.n_components is None and X.shape[1] <= MOST_COLUMNS:
            self.regressions_ = ColumnImputation(X, seed, show=self.verbose)
            self.seed_ = seed
            return self
        if self.n_components is None:
            self.n_components_ = _dimensions(X.shape[1], 0.5)
        else:
            self.n_components_ = self._choose(X, seed) if self.n_components == "auto" else int(self.n_components)
        self.model_ = self._fitted(X, self.n_components_, seed)
        return self

    def transform(self, X: Any) -> Any:
        """Rows X [M, D] with the expectation of each missing value in its place.

        Parameters
        ----------
        X : array-like [M, D]
            Rows with the columns that `fit` was given.
        """
        return self.impute(X)

    def impute(
        self,
        X: Any,
        return_std: bool = False,
        n_samples: int = 0,
        *,
        return_interval: float | None = None,
        random_state: Any = None,
    ) -> Any:
        """Complete rows X [M, D], with standard deviations or intervals, or as several draws: see :meth:`SASGP.impute`.

        A row without any value gets the mean and the standard deviation of each column.

        Parameters
        ----------
        X : array-like [M, D]
            Rows with the columns that `fit` was given.
        return_std : bool
            Return also the standard deviation [M, D] of each missing value; it is 0 for observed ones.
        n_samples : int
            If it is not 0, draw this many completed tables [n_samples, M, D] instead.
        return_interval : float, optional
            Return also the lower and the upper end of the interval that holds this share of what each missing value
            may be.
        random_state : int, RandomState or None
            Seed of the draws. None: the imputer's own seed, so that the result does not change between calls.
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples, 0)
        check_asked(return_std, n_samples, return_interval)
        if self.model_ is not None and self.model_.columns_ is not None:
            return self.model_.impute(
                X, return_std, n_samples, return_interval=return_interval, random_state=random_state
            )
        X = self._validated(X, reset=False)
        missing, Z = np.isnan(X), (X - self.mean_) / self.scale_
        complete = self._decoded if self.regressions_ is None else self._regressed
        found = complete(Z, return_std, n_samples, return_interval, random_state)
        if n_samples:
            return np.where(missing, found[0] * self.scale_ + self.mean_, X)
        completed = [np.where(missing, part * self.scale_ + self.mean_, X) for part in found]
        if return_std:
            completed[1] = found[1] * self.scale_
        return completed[0] if len(completed) == 1 else tuple(completed)

    def log_density(self, X: Any, truth: Any) -> Array:
        """The log density of the true value of each missing cell: how good the distributions are.

        Parameters
        ----------
        X : array-like [M, D]
            Rows of numbers with missing values.
        truth : array-like [M, D]
            The same rows with their values.

        Returns
        -------
        ndarray [M, D]
            In the units of the columns. NaN where X is observed.
        """
        check_is_fitted(self)
        if self.model_ is not None and self.model_.columns_ is not None:
            raise InputError(
                "log_density is for tables of numbers, but this table has columns of other kinds. Fit the imputer to "
                "its columns of numbers alone.",
                argument="X",
            )
        X, truth = self._validated(X, reset=False), self._validated(truth, reset=False)
        Z, found = (X - self.mean_) / self.scale_, np.full(X.shape, np.nan)
        if self.regressions_ is not None:
            for part in self.regressions_.spreads(Z):
                values = (truth[part.rows] - self.mean_) / self.scale_
                found[part.rows] = self.regressions_.log_density(part, values) - np.log(self.scale_)
        else:
            mean, std = self.impute(X, return_std=True)
            std = np.where(np.isnan(X), std, 1.0)
            found = -0.5 * (np.log(2 * np.pi * std**2) + np.square((truth - mean) / std))
        return np.where(np.isnan(X), found, np.nan)

    def _regressed(
        self, Z: Array, return_std: bool, n_samples: int, return_interval: float | None, random_state: Any
    ) -> list[Array]:
        """Standardised rows, completed by regressions: expectations, deviations and ends, or draws."""
        assert self.regressions_ is not None
        draw = generator(self.seed_ if random_state is None else seed_of(random_state), "impute")
        if n_samples:
            samples = np.repeat(Z[None], n_samples, 0)
            for part in self.regressions_.spreads(Z, show=self.verbose):
                for sample in samples:
                    sample[part.rows] = np.where(part.missing, self.regressions_.draw(part, draw), Z[part.rows])
            return [samples]
        mean, std, low, high = Z.copy(), np.zeros_like(Z), Z.copy(), Z.copy()
        for part in self.regressions_.spreads(Z, show=self.verbose):
            mean[part.rows] = np.where(part.missing, part.mean, Z[part.rows])
            std[part.rows] = np.where(part.missing, part.scale * self.regressions_.deviations, 0.0)
            for ends, side in ((low, -1), (high, 1)) if return_interval is not None else ():
                quantile = self.regressions_.quantiles(part, 0.5 + side * (return_interval or 0.0) / 2)
                ends[part.rows] = np.where(part.missing, quantile, Z[part.rows])
        return [mean] + [std] * return_std + [low, high] * (return_interval is not None)

    def _decoded(
        self, Z: Array, return_std: bool, n_samples: int, return_interval: float | None, random_state: Any
    ) -> list[Array]:
        """Standardised rows, completed by the decoder, in the same parts.

        A row without any value gets mean 0 and deviation 1.
        """
        assert self.model_ is not None
        empty = np.isnan(Z).all(1)
        Z[empty] = 0.0
        found = self.model_.impute(Z, return_std, n_samples, return_interval=return_interval, random_state=random_state)
        parts: list[Array] = list(found) if isinstance(found, tuple) else [found]
        if n_samples and empty.any():
            drawn = self.model_.sample(n_samples * int(empty.sum()), random_state=random_state or self.model_.seed_)
            parts[0][:, empty] = drawn.reshape(n_samples, -1, Z.shape[1])
        if return_std:
            parts[1][empty] = 1.0
        if return_interval is not None:
            parts[-2][empty], parts[-1][empty] = (norm.ppf(0.5 + side * return_interval / 2) for side in (-1, 1))
        return parts

    def _validated(self, X: Any, *, reset: bool) -> Array:
        found: Array = validate_data(self, unmasked(X), reset=reset, dtype=np.float64, ensure_all_finite="allow-nan")
        return found

    def _fitted(self, X: Any, Q: int, seed: int, noise: Literal["shared", "feature"] = "shared") -> SASGP:
        batch = min(BATCH, len(X))
        epochs = max(EPOCHS, math.ceil(STEPS / math.ceil(len(X) / batch)))
        model = SASGP(
            n_components=Q,
            encoder="table",
            noise=noise,
            active_set_size=ACTIVE,
            batch_size=BATCH,
            max_epochs=epochs if self.max_epochs is None else self.max_epochs,
            device=self.device,
            random_state=seed,
            verbose=self.verbose,
        )
        return model.fit(X)

    def _choose(self, X: Array, seed: int) -> int:
        """The number of latent dimensions that predicts hidden values best."""
        D, draw = X.shape[1], np.random.default_rng(seed)
        candidates = sorted({_dimensions(D, share) for share in SHARES})
        if len(candidates) == 1:
            return candidates[0]
        X = X[draw.permutation(len(X))[:CHOICE_ROWS]]
        hidden = (draw.random(X.shape) < HIDDEN) & ~np.isnan(X)
        holed = np.where(hidden, np.nan, X)
        hidden[np.isnan(holed).all(1)] = False
        if not hidden.any():
            return candidates[0]
        holed = np.where(hidden, np.nan, X)
        for Q in candidates:
            error = (self._fitted(holed, Q, seed).impute(holed) - X)[hidden]
            self.errors_[Q] = float(np.sqrt(np.mean(error**2)))
        return min(self.errors_, key=lambda Q: self.errors_[Q])

    def _card(self) -> str:
        return imputer_card(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags


def _is_mixed(X: object) -> bool:
    """Whether X is a DataFrame with columns that are not numbers."""
    return is_frame(X) and not all(dtype.is_numeric() for dtype in read_frame(X).frame.dtypes)


def _dimensions(n_columns: int, share: float) -> int:
    return min(max(1, round(share * n_columns)), MOST_DIMENSIONS)
