"""Missing values of rows, from what the decoder knows about each row given its observed values: `impute`.

The latent of a row is not known exactly, least of all if much is missing. So a missing value is averaged over the
posterior of z given the observed ones: by draws around the refined z* (`sasgp.gp.refine`), each weighted by how well it
explains the row. The prior of z is a mixture fitted to the latents of the training rows (`sasgp.gp.mixture`). The
standard deviation includes what z leaves open, the decoder's own uncertainty, and the noise.
"""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.blocks import rows_at_once, slices
from sasgp.data.progress import progress_bar
from sasgp.data.rows import ArrayRows, read_rows
from sasgp.data.tables import read_frame
from sasgp.errors import InputError
from sasgp.estimators.decoding import Decoding
from sasgp.estimators.inference import Locator, sinks
from sasgp.estimators.table_imputation import INTERVAL_DRAWS, TableCompletion, completed_frame
from sasgp.estimators.tables import as_user_frame, table_frame
from sasgp.estimators.validation import check_count, check_rows, seed_of
from sasgp.gp.mixture import Mixture, WithMixture
from sasgp.gp.refine import normal_points
from sasgp.training.loop import generator

__all__ = ["Imputation", "check_asked"]

REFINE = 20  # steps by which latents are refined on the observed values
DRAWS = 64  # of z, for each row; a quarter of them from anywhere in the latent space
BRIEF = 200  # rows that need no progress bar
MIXTURE_ROWS, MOST_COMPONENTS = 1000, 6  # of the mixture that says where rows are

Array = NDArray[np.floating[Any]]


class Imputation(Decoding):
    """`impute` of an estimator."""

    def impute(
        self,
        X: Any,
        return_std: bool = False,
        n_samples: int = 0,
        *,
        return_interval: float | None = None,
        refine: int = REFINE,
        random_state: Any = None,
        out: Any = None,
    ) -> Any:
        """Complete rows X [M, D]: each missing value, NaN, becomes its expectation given the row's observed values.

        A table comes back as a table of the same kind: numbers as their expectation, whole in columns of whole numbers;
        ordinal columns as the median; categories as the most probable level.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes. Observed values are returned as they are.
        return_std : bool
            Return also the standard deviation [M, D] of each missing value; it is 0 for observed ones. Of a category it
            is the probability that another level is right.
        n_samples : int
            If it is not 0, draw this many completed arrays [n_samples, M, D] instead (multiple imputation): z from its
            posterior given the row's observed values, then the missing values given z. Of a table, a list of tables.
        return_interval : float, optional
            Return also the lower and the upper end of the interval that holds this share of what each missing value may
            be; both are the value itself where it is observed.
        refine : int
            Gradient steps that refine the encoder's z on the observed values. 0 uses the encoder's answer.
        random_state : int, RandomState or None
            Seed of the draws. None: the model's own seed, so that the result does not change between calls.
        out : path or array, optional
            As for `transform`; with return_std it is a pair. Not for tables, intervals and draws.

        Returns
        -------
        ndarray [M, D], or with return_std or return_interval a tuple of them, or with n_samples [n_samples, M, D]
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples, 0)
        check_count("refine", refine, 0)
        check_asked(return_std, n_samples, return_interval)
        if out is not None and (self.columns_ is not None or n_samples or return_interval is not None):
            raise InputError(
                "out is for arrays without intervals and draws. Leave it out, and save the result.", argument="out"
            )
        seed = self.seed_ if random_state is None else seed_of(random_state)
        if self.columns_ is not None:
            return self._impute_table(X, return_std, n_samples, return_interval, refine, seed)
        array = check_rows(self, X, reset=False)
        return self._impute_array(array, return_std, n_samples, return_interval, refine, seed, out)

    def _impute_array(
        self,
        array: Any,
        return_std: bool,
        n_samples: int,
        return_interval: float | None,
        refine: int,
        seed: int,
        out: Any,
    ) -> Any:
        """`impute` for a model of an array, some rows at a time."""
        dtype, draw = np.result_type(array.dtype, self.dtype_), generator(seed, "impute")
        samples = np.empty((n_samples, *array.shape), dtype)
        ends = np.empty((0 if return_interval is None else 2, *array.shape), dtype)
        shown = progress_bar("missing values", len(array), show=self.verbose, brief=len(array) <= BRIEF)
        with sinks(out, return_std, array.shape, dtype) as (completed, *std), shown as update:
            for block in slices(len(array), array.shape[1] * (1 + n_samples)):
                filled = _Filled(read_rows(array, block).astype(dtype), n_samples, return_interval, draw)
                incomplete = np.flatnonzero(np.isnan(filled.X).any(1))
                for index, *moments in self._moments_of_missing(filled.X, incomplete, refine, seed):
                    filled.add(index, *moments)
                    update(block.start + int(index[-1]) + 1)
                for sink, part in zip((completed, *std), (filled.X, filled.std), strict=False):
                    sink.add(part)
                samples[:, block], ends[:, block] = filled.samples, filled.ends
        if n_samples:
            return samples
        found = [sink.result for sink in (completed, *std)] + [*ends]
        return found[0] if len(found) == 1 else tuple(found)

    def _impute_table(
        self,
        X: Any,
        return_std: bool,
        n_samples: int,
        return_interval: float | None,
        refine: int,
        seed: int,
    ) -> Any:
        """`impute` for a model of a table."""
        columns = self.columns_
        assert columns is not None
        scores = check_rows(self, X, reset=False)
        values = columns.values(read_frame(table_frame(self, X)).frame)
        completion = TableCompletion(columns, values, n_samples, return_interval, np.random.default_rng(seed))
        incomplete = np.flatnonzero(np.isnan(values).any(1))
        with progress_bar("missing values", len(values), show=self.verbose, brief=len(values) <= BRIEF) as update:
            for index, _, *moments in self._moments_of_missing(scores, incomplete, refine, seed):
                completion.add(index, *(part.numpy(force=True) for part in moments))
                update(int(index[-1]) + 1)
        if n_samples:
            return [completed_frame(columns, X, sample) for sample in completion.samples]
        found = [completed_frame(columns, X, completion.values)]
        if return_std:
            import polars as pl

            spread = pl.DataFrame(dict(zip(columns.names, completion.std.T, strict=True)))
            found.append(as_user_frame(self, spread))
        if return_interval is not None:
            found += [completed_frame(columns, X, ends) for ends in completion.ends]
        return found[0] if len(found) == 1 else tuple(found)

    @torch.no_grad()
    def _moments_of_missing(
        self, X: Array, incomplete: NDArray[np.int64], steps: int, seed: int
    ) -> Iterator[tuple[NDArray[np.int64], Tensor, Tensor, Tensor, Tensor]]:
        """Numbers and holes [B, D] of some incomplete rows, and means, variances and weights at draws of their z."""
        if not len(incomplete):
            return
        rows = ArrayRows(X[incomplete], self._dtype, self._device)
        # Searching and averaging evaluate the decoder many times: they use one variance for all features
        decoder = WithMixture(self.posterior_.search, self._mixture())
        locate = Locator(self.model_.encoder, decoder, steps=steps)
        epsilon = normal_points(DRAWS, self.n_components_, seed).to(self._device)
        done = 0
        size = min(rows_at_once(DRAWS * self.n_scores_), locate.rows_at_once(decoder))
        for block in rows.blocks(size):
            index, missing = incomplete[done : done + len(block)], block.isnan()
            Z, F = locate(block, torch.arange(len(block), device=self._device), spread=True)
            if F is None:  # point latents from a network have no spread
                F = torch.zeros(*Z.shape, Z.shape[1], dtype=torch.float64, device=Z.device)
            yield index, missing, *self._given_observed(decoder, block, Z, F, epsilon)
            done += len(block)

    def _given_observed(
        self, decoder: WithMixture, X: Tensor, Z: Tensor, F: Tensor, epsilon: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Means [K, B, D], variances [K, B, D] and weights [K, B] of each row at K draws of its z."""
        draws, log_weight = decoder.draws(X, Z, F, epsilon, near=DRAWS - DRAWS // 4)
        parts = [decoder.predict(z.to(self._dtype)) for z in draws]
        mean, var = (torch.stack(part).double() for part in zip(*parts, strict=True))
        # What a feature's own variance is more or less than that of a typical one, at z*
        own = self.posterior_.predict(Z.to(self._dtype))[1].double() - decoder.predict(Z.to(self._dtype))[1].double()
        var = torch.maximum(var + own, torch.minimum(var, self.posterior_.feature_noise.double()))
        return mean, var.expand_as(mean), torch.softmax(log_weight, 0)

    def _mixture(self) -> Mixture:
        """Where in the latent space the training rows are."""
        known = self.__dict__.get("_found_mixture")
        if known is None or known[0] is not self.embedding_:
            known = self.embedding_, self._fit_mixture()
            self._found_mixture = known
        found: Mixture = known[1]
        return found

    def _fit_mixture(self) -> Mixture:
        from sklearn.mixture import GaussianMixture

        draw = generator(self.seed_, "mixture")
        some = torch.randperm(len(self.embedding_), generator=draw)[:MIXTURE_ROWS]
        mu = torch.as_tensor(self.embedding_)[some].double().cpu()
        if self._by_row and self.latents == "bayesian":
            var = self.model_.encoder(mu, some.to(self._device))[1].double().cpu()
        else:  # if all rows together are about N(0, I), their own variances are what their means lack
            var = (1 - mu.var(0, correction=0)).clamp(0.02, 1).expand_as(mu)
        white = torch.randn(4, *mu.shape, generator=draw, dtype=mu.dtype)
        Z = (mu + var.sqrt() * white).flatten(0, 1).numpy()
        best, least = None, np.inf
        for k in range(1, 1 + max(1, min(MOST_COMPONENTS, len(mu) // (5 * mu.shape[1])))):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                found = GaussianMixture(k, reg_covar=1e-3, random_state=0).fit(Z)
            if (bic := found.bic(Z[: len(mu)])) < least:
                best, least = found, bic
        assert best is not None
        parts = (best.weights_, best.means_, best.covariances_)
        return Mixture(*(torch.as_tensor(part, device=self._device) for part in parts))


class _Filled:
    """Some rows of an array, whose missing values are filled in: the expectation, its deviation, interval and draws.

    Parameters
    ----------
    X : array [B, D]
        Filled in place.
    n_samples : int
    interval : float or None
        The share between the ends of an interval.
    draw : torch.Generator

    Attributes
    ----------
    std : array [B, D]
    samples : array [n_samples, B, D]
    ends : array [2, B, D], or [0, B, D] without intervals
    """

    def __init__(self, X: Array, n_samples: int, interval: float | None, draw: torch.Generator) -> None:
        self.X, self.interval, self.draw = X, interval, draw
        self.std, self.samples = np.zeros_like(X), np.repeat(X[None], n_samples, 0)
        self.ends = np.repeat(X[None], 0 if interval is None else 2, 0)

    def add(self, rows: NDArray[np.int64], missing: Tensor, mean: Tensor, var: Tensor, weight: Tensor) -> None:
        """Fill in rows, given their holes [B, D], and means, variances [K, B, D] and weights [K, B] at K draws of z."""
        r, d = missing.nonzero(as_tuple=True)
        at = rows[r.numpy(force=True)], d.numpy(force=True)
        # E[x] = Σ_k w_k m_k          Var[x] = Σ_k w_k (c_k + (m_k − E[x])²)
        w = weight[:, :, None]
        centre = (w * mean).sum(0)
        self.X[at] = centre[r, d].numpy(force=True)
        self.std[at] = (w * (var + (mean - centre).square())).sum(0).sqrt()[r, d].numpy(force=True)
        n_draws = len(self.samples) if self.interval is None else INTERVAL_DRAWS
        drawn, every = np.empty((n_draws, len(r)), self.X.dtype), torch.arange(len(rows), device=mean.device)
        for one in drawn:  # of missing values alone: those of all rows would not fit in memory
            k = torch.multinomial(weight.T.cpu(), 1, generator=self.draw)[:, 0].to(mean.device)
            white = torch.randn(missing.shape, generator=self.draw, dtype=mean.dtype).to(mean.device)
            one[:] = (mean[k, every] + var[k, every].sqrt() * white)[r, d].numpy(force=True)
        if self.interval is None:
            self.samples[:, *at] = drawn
        else:
            shares = [0.5 - self.interval / 2, 0.5 + self.interval / 2]
            self.ends[:, *at] = np.quantile(drawn, shares, axis=0)


def check_asked(return_std: bool, n_samples: int, return_interval: float | None) -> None:
    """Raise InputError if the arguments of `impute` do not go together."""
    if n_samples and (return_std or return_interval is not None):
        raise InputError(
            "impute returns standard deviations and intervals, or draws, not both, but got return_std or "
            f"return_interval with n_samples={n_samples}. Leave one of them out: the draws have their own spread.",
            argument="n_samples",
        )
    if return_interval is not None and not 0 < return_interval < 1:
        raise InputError(
            f"return_interval must be between 0 and 1, for example 0.9. Got {return_interval}.",
            argument="return_interval",
        )
