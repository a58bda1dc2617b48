"""Missing values of rows, from what the decoder knows about each row given its observed values: `impute`.

The latent of a row is not known exactly, least of all if much is missing. So a missing value is averaged over the
posterior of z given the observed ones: by draws around the refined z* (`sasgp.gp.refine`), each weighted by how well it
explains the row. The prior of z is a mixture fitted to the latents of the training rows (`sasgp.gp.mixture`). The
standard deviation includes what z leaves open, the decoder's own uncertainty, and the noise.
"""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.blocks import rows_at_once
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.decoding import Decoding
from sasgp.estimators.inference import Locator
from sasgp.estimators.validation import check_count, check_rows, seed_of
from sasgp.gp.mixture import Mixture, WithMixture
from sasgp.gp.refine import normal_points
from sasgp.training.loop import generator
from sasgp.training.progress import progress_bar

__all__ = ["Imputation"]

REFINE = 20  # steps by which latents are refined on the observed values
DRAWS = 64  # of z, for each row; a quarter of them from anywhere in the latent space
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
        refine: int = REFINE,
        random_state: Any = None,
    ) -> Any:
        """Complete rows X [M, D]: each missing value, NaN, becomes its expectation given the row's observed values.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes. Observed values are returned as they are.
        return_std : bool
            Return also the standard deviation [M, D] of each missing value; it is 0 for observed ones.
        n_samples : int
            If it is not 0, draw this many completed arrays [n_samples, M, D] instead (multiple imputation): z from its
            posterior given the row's observed values, then the missing values given z.
        refine : int
            Gradient steps that refine the encoder's z on the observed values. 0 uses the encoder's answer.
        random_state : int, RandomState or None
            Seed of the draws. None: the model's own seed, so that the result does not change between calls.

        Returns
        -------
        ndarray [M, D], or with return_std a pair of them, or with n_samples an ndarray [n_samples, M, D]
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples, 0)
        check_count("refine", refine, 0)
        if n_samples and return_std:
            raise InputError(
                "impute returns standard deviations or draws, not both, but got return_std=True and n_samples="
                f"{n_samples}. Leave one of them out: the draws have their own spread.",
                argument="n_samples",
            )
        array = check_rows(self, X, reset=False)
        X = np.array(array[:], dtype=np.result_type(array.dtype, self.dtype))
        seed = self.seed_ if random_state is None else seed_of(random_state)
        std = np.zeros_like(X) if return_std else None
        samples = np.repeat(X[None], n_samples, 0) if n_samples else None
        incomplete = np.flatnonzero(np.isnan(X).any(1))
        if len(incomplete):
            self._complete(X, incomplete, std, samples, refine, seed)
        if samples is not None:
            return samples
        return X if std is None else (X, std)

    @torch.no_grad()
    def _complete(
        self, X: Array, incomplete: NDArray[np.int64], std: Array | None, samples: Array | None, steps: int, seed: int
    ) -> None:
        """Fill in X and, as far as they are there, the standard deviations and the draws, in place."""
        rows = ArrayRows(X[incomplete], self._dtype, self._device)
        # Searching and averaging evaluate the decoder many times: they use one variance for all features
        decoder = WithMixture(self.posterior_.search, self._mixture())
        locate = Locator(self.model_.encoder, decoder, steps=steps)
        epsilon = normal_points(DRAWS, self.n_components_, seed).to(self._device)
        draw, done = generator(seed, "impute"), 0
        size = min(rows_at_once(DRAWS * self.n_scores_), locate.rows_at_once(decoder))
        with progress_bar("missing values", len(rows), show=self.verbose and len(rows) > size) as update:
            for block in rows.blocks(size):
                index, missing = incomplete[done : done + len(block)], block.isnan()
                Z, F = locate(block, torch.arange(len(block), device=self._device), spread=True)
                if F is None:  # point latents from a network have no spread
                    F = torch.zeros(*Z.shape, Z.shape[1], dtype=torch.float64, device=Z.device)
                mean, var, weight = self._given_observed(decoder, block, Z, F, epsilon)
                # E[x] = Σ_k w_k m_k          Var[x] = Σ_k w_k (c_k + (m_k − E[x])²)
                w = weight[:, :, None]
                centre = (w * mean).sum(0)
                _put(X, index, missing, centre)
                if std is not None:
                    _put(std, index, missing, (w * (var + (mean - centre).square())).sum(0).sqrt())
                every = torch.arange(len(Z), device=Z.device)
                for sample in () if samples is None else samples:
                    k = torch.multinomial(weight.T.cpu(), 1, generator=draw)[:, 0].to(Z.device)
                    white = torch.randn(missing.shape, generator=draw, dtype=mean.dtype).to(Z.device)
                    _put(sample, index, missing, mean[k, every] + var[k, every].sqrt() * white)
                done += len(block)
                update(done)

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


def _put(target: Array, rows: NDArray[np.int64], missing: Tensor, values: Tensor) -> None:
    """Write the values [B, D] that are missing into these rows."""
    r, d = missing.nonzero(as_tuple=True)
    target[rows[r.numpy(force=True)], d.numpy(force=True)] = values[r, d].numpy(force=True)
