"""SASGPRegressor: Gaussian-process regression for any number of rows, with scikit-learn's interface."""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from sasgp.data.columns import Columns, Number
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.supervised import ATTRIBUTES, SupervisedEstimator
from sasgp.estimators.targets import as_columns, better_map, check_targets, plain_columns
from sasgp.estimators.validation import check_choice, check_count, check_rows, seed_of
from sasgp.gp.nearest import NearestRows, without_itself
from sasgp.gp.posterior import Posterior
from sasgp.gp.row_sums import condition
from sasgp.models.settings import SupervisedSettings, TargetSettings, documented
from sasgp.training.loop import generator

__all__ = ["SASGPRegressor"]

Array = NDArray[np.float64]

JUDGED = 2000  # rows by which maps of the target are judged
JOINT_ROWS = 2000  # rows that joint draws are conditioned on


@dataclass(eq=False, repr=False)
class SASGPRegressor(RegressorMixin, MultiOutputMixin, TargetSettings, SupervisedEstimator):
    __doc__ = (
        """Gaussian-process regression, trained with stochastic active sets, predicting from the nearest rows.

    Training takes seconds to a minute whatever the number of rows. Each prediction comes with a standard deviation.
    Unlike the models of latent spaces, it keeps its training rows, also in its file.
    """
        + documented(SupervisedSettings, TargetSettings)
        + """
    Attributes
    ----------
    noise_ : ndarray [T]
        Standard deviation of the noise of each target in its own units, where the target has no map.
    targets_ : Columns
        The targets, with their maps."""
        + ATTRIBUTES
        + """
    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from sasgp import SASGPRegressor
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = SASGPRegressor(max_epochs=20, random_state=0).fit(X[:400], y[:400])
    >>> mean, std = model.predict(X[400:], return_std=True)
    >>> mean, low, high = model.predict(X[400:], return_interval=0.9)
    >>> mean.shape, std.shape, bool((low < high).all())
    ((42,), (42,), True)
    """
    )

    _SAVED: ClassVar[tuple[str, ...]] = (*SupervisedEstimator._SAVED, "single_target_")

    # ------------------------------------------------------------------------------------------------ targets

    def _learn_targets(self, y: Any) -> Array:
        check_choice("target", self.target, ("auto", "plain"))
        Y, self.single_target_ = check_targets(y)
        names = [str(name) for name in getattr(y, "columns", [getattr(y, "name", None) or "y"])]
        self.targets_ = plain_columns(Y, names if len(names) == Y.shape[1] else [f"y{t}" for t in range(Y.shape[1])])
        return self.targets_.scores(Y)

    def _more_targets(self, y: Any) -> Array:
        return self.targets_.scores(self._known_targets(y))

    def _known_targets(self, y: Any) -> Array:
        Y, _ = check_targets(y)
        if Y.shape[1] != len(self.targets_):
            raise InputError(
                f"y must have {len(self.targets_)} columns, as in training. Got {Y.shape[1]}.", argument="y"
            )
        return Y

    def _choose_maps(self) -> bool:
        """Replace the maps of targets by better ones, and say whether there are any."""
        if self.target != "auto":
            return False
        N = len(self._targets)
        nearest = self._nearest(min(64, N - 1))
        rows = torch.randperm(N, generator=generator(self.seed_, "maps"))[:JUDGED].to(self._places.device)
        near = without_itself(nearest.index.nearest(self._places[rows], nearest.k + 1), rows)
        weights, var = (part.cpu().numpy() for part in nearest.weights(self._places[rows].double(), near))
        var = var + float(nearest.noise)
        columns = [column for column in self.targets_.columns if isinstance(column, Number)]
        # In the user's units. The map alone: an expectation over scores would take a quadrature of all rows at once
        Y = np.stack([column.map.inverse(s) for column, s in zip(columns, self._targets.numpy().T, strict=True)], 1)
        chosen = [
            better_map(column, Y[rows.cpu(), t], Y[near.cpu(), t], weights, var) for t, column in enumerate(columns)
        ]
        changed = chosen != columns
        self.targets_ = as_columns(chosen)
        self._targets = torch.from_numpy(self.targets_.scores(Y))
        return changed

    def _described_targets(self) -> Any:
        return self.targets_.as_json()

    def _restore_targets(self, found: Any) -> None:
        self.targets_ = Columns.from_json(found)
        self.targets_.predict(np.zeros((1, len(self.targets_))), np.ones((1, len(self.targets_))))

    @property
    def noise_(self) -> Array:
        """Standard deviation of the noise of each target, where it has no map."""
        check_is_fitted(self)
        sd = float(self.model_.noise.detach().sqrt())
        return np.array([sd * column.map.width for column in self.targets_.columns])  # type: ignore[attr-defined]

    # ------------------------------------------------------------------------------------------------ predictions

    def predict(self, X: Any, return_std: bool = False, *, return_interval: float | None = None) -> Any:
        """The mean of the target at rows X [M, P] and, if asked for, the standard deviation of a new observation.

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes.
        return_std : bool
            Return also the standard deviation [M] or [M, T], noise included.
        return_interval : float, optional
            Return also the lower and the upper end of the interval that holds this share of new observations.
        """
        if return_interval is not None and not 0 < return_interval < 1:
            raise InputError(
                f"return_interval must be between 0 and 1, for example 0.9. Got {return_interval}.",
                argument="return_interval",
            )
        shares = () if return_interval is None else (0.5 - return_interval / 2, 0.5 + return_interval / 2)
        parts = [self._in_units(mean, var, return_std, shares) for mean, var in self._moments(X)]
        found = [self._shaped(np.concatenate(some)) for some in zip(*parts, strict=True)]
        return found[0] if len(found) == 1 else tuple(found)

    def _in_units(self, mean: Array, var: Array, return_std: bool, shares: tuple[float, ...]) -> list[Array]:
        targets, c = self.targets_, np.broadcast_to(var, mean.shape)
        found = [targets.predict(mean, c), *[targets.std(mean, c)] * return_std]
        return found + [targets.quantile(mean, c, share) for share in shares]

    def _shaped(self, found: Array) -> Array:
        return found[:, 0] if self.single_target_ else found

    def log_density(self, X: Any, y: Any) -> Array:
        """Log density [M] of targets y at rows X, in units of the targets, summed over several targets.

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes.
        y : array-like [M] or [M, T]
            The targets of these rows.
        """
        check_is_fitted(self)
        Y, parts, start = self._known_targets(y), [], 0
        for mean, var in self._moments(X):
            part = Y[start : start + len(mean)]
            parts.append(self.targets_.log_densities(part, mean, np.broadcast_to(var, mean.shape)).sum(1))
            start += len(mean)
        if start != len(Y):
            raise InputError(f"y must have one row for each of the {start} rows of X. Got {len(Y)}.", argument="y")
        return np.concatenate(parts)

    def sample_y(self, X: Any, n_samples: int = 1, random_state: Any = 0) -> Array:
        """Draws of the target at rows X [M, P], jointly, noise included: [M, n_samples] or [M, T, n_samples].

        With prediction="nearest", rows are drawn jointly as long as the training rows nearest to any of them are at
        most 2000; the next rows are an independent draw.

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes.
        n_samples : int
            Draws at each row.
        random_state : int, RandomState or None
            None: a new draw each time.
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples)
        rows = ArrayRows(check_rows(self, X, reset=False), self.model_.centre.dtype, self.torch_device())
        Z, draw = self._placed(rows), generator(seed_of(random_state), "sample_y")
        drawn = torch.cat([_times(p, n_samples).sample(part, draw) for part, p in self._joint(Z)])  # [M, T n]
        scores = drawn.view(len(Z), -1, n_samples).numpy(force=True)
        zeros = np.zeros(scores.shape[:2])
        found = np.stack([self.targets_.predict(scores[:, :, i], zeros) for i in range(n_samples)], 2)
        return found[:, 0] if self.single_target_ else found

    def _joint(self, Z: torch.Tensor) -> list[tuple[torch.Tensor, Posterior]]:
        """Groups of positions, each with a posterior that can draw them jointly."""
        if isinstance(self.posterior_, Posterior):
            return [(Z, self.posterior_)]
        assert isinstance(self.posterior_, NearestRows)
        model, found, start = self.model_, [], 0
        near = self.posterior_.index.nearest(Z, self.posterior_.k)
        while start < len(Z):
            stop = start + 1
            while stop < len(Z) and len(near[start : stop + 1].unique()) <= JOINT_ROWS:  # type: ignore[no-untyped-call]
                stop += 1
            rows = near[start:stop].unique()  # type: ignore[no-untyped-call]
            Y = self._targets.to(Z.device)[rows]
            posterior = condition(model.kernel, model.noise, self._places[rows], Y, self.posterior_.mean)
            found.append((Z[start:stop], posterior))
            start = stop
        return found


def _times(posterior: Posterior, n: int) -> Posterior:
    """A posterior of n copies of each target, which draws each of them independently."""
    alpha, mean = posterior.alpha.repeat_interleave(n, dim=1), posterior.mean.repeat_interleave(n)
    return Posterior(posterior.kernel, posterior.noise, posterior.Z, alpha, posterior.root, mean)
