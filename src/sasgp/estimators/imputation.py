"""Missing values of rows, from what the decoder knows about each row given its observed values: `impute`.

The latent of a row is not known exactly, least of all if much is missing. So a missing value is averaged over the
posterior of z given the observed ones: by draws around the refined z* (`sasgp.gp.refine`), each weighted by how well it
explains the row. The standard deviation includes what z leaves open, the decoder's own uncertainty, and the noise.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.blocks import rows_at_once
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.decoding import Decoding
from sasgp.estimators.validation import check_count, check_rows, seed_of
from sasgp.gp.refine import normal_points, weighted_draws
from sasgp.training.loop import generator

__all__ = ["Imputation"]

REFINE = 20  # steps by which latents are refined on the observed values
DRAWS = 32  # of z, for each row

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
                f"impute returns standard deviations or draws, not both. Got return_std=True with n_samples={n_samples}. "
                "Leave one of them out: the draws have their own spread.",
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
        epsilon = normal_points(DRAWS, self.n_components_, seed)
        draw, done = generator(seed, "impute"), 0
        size = rows_at_once(DRAWS * self.n_features_in_)
        for block, Z, F in self._located(rows, size, refine=steps, spread=True, anywhere=True):
            index = incomplete[done : done + len(Z)]
            if F is None:  # point latents from a network have no spread of their own
                F = torch.zeros(len(Z), Z.shape[1], Z.shape[1], dtype=torch.float64, device=Z.device)
            mean, var, weight = self._given_observed(block, Z, F, epsilon)
            missing = block.isnan()
            # E[x] = Σ_k w_k m_k          Var[x] = Σ_k w_k (c_k + m_k²) − E[x]²
            w = weight[:, :, None]
            centre = (w * mean).sum(0)
            _put(X, index, missing, centre)
            if std is not None:
                spread = (w * (var + (mean - centre).square())).sum(0)
                _put(std, index, missing, spread.sqrt())
            for sample in () if samples is None else samples:
                chosen = torch.multinomial(weight.T.cpu(), 1, generator=draw)[:, 0].to(Z.device)
                every = torch.arange(len(Z), device=Z.device)
                white = torch.randn(missing.shape, generator=draw, dtype=mean.dtype).to(Z.device)
                _put(sample, index, missing, mean[chosen, every] + var[chosen, every].sqrt() * white)
            done += len(Z)

    def _given_observed(self, X: Tensor, Z: Tensor, F: Tensor, epsilon: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Means [K, B, D], variances [K, B, 1 or D] and weights [K, B] of each row at K draws of its z."""
        draws, log_weight = weighted_draws(self.posterior_, X, Z, F, epsilon)
        parts = [self.posterior_.predict(z.to(self._dtype)) for z in draws]
        mean, var = (torch.stack(part).double() for part in zip(*parts, strict=True))
        return mean, var, torch.softmax(log_weight, 0)


def _put(target: Array, rows: NDArray[np.int64], missing: Tensor, values: Tensor) -> None:
    """Write the values [B, D] that are missing into these rows."""
    r, d = missing.nonzero(as_tuple=True)
    target[rows[r.numpy(force=True)], d.numpy(force=True)] = values[r, d].numpy(force=True)
