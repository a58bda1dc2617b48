"""Decoding from the nearest training rows: the methods of GP decoders that lead to `sasgp.gp.nearest`.

The model keeps the latents of the training rows, but not the rows. Whoever asks for neighbours passes them again, and a
fingerprint tells whether they are the same.
"""

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from sasgp.data.outputs import Out, Sink
from sasgp.data.rows import ArrayRows, check_values
from sasgp.errors import InputError
from sasgp.estimators.base import LatentEstimator
from sasgp.estimators.cells import log_factors
from sasgp.estimators.inference import SCORE_SAMPLES, Array
from sasgp.estimators.validation import check_count
from sasgp.gp.nearest import NearestRows
from sasgp.gp.posterior import Predictive
from sasgp.training.fingerprint import sample_fingerprint

__all__ = ["NearestRowsMethods"]


class NearestRowsMethods(LatentEstimator):
    """`predict`, `reconstruct` and `score_samples` with `neighbours` and `data`."""

    def predict(
        self,
        Z: Any,
        return_std: bool = False,
        *,
        return_interval: float | None = None,
        neighbours: int | None = None,
        data: Any = None,
        out: Any = None,
    ) -> Any:
        """Decode latents Z [M, Q]: the mean [M, D] of an observation there and, if asked for, its standard deviation.

        The standard deviation is that of a new observation, noise included. `reconstruct` decodes rows.

        A model of a table returns tables, with the columns that it was trained on: numbers as the mean, ordinal columns
        as the median, categories as the most probable level. The "standard deviation" of a category or a yes-or-no
        column is the probability that another level is right.

        Parameters
        ----------
        Z : array-like [M, Q]
            Latents, such as `transform` returns.
        return_std : bool
            Return also the standard deviation [M, D].
        return_interval : float, optional
            Return also the lower and the upper end of the interval that holds this share of new observations.
        neighbours : int, optional
            Predict at each z from this many training rows, those nearest to it in units of the kernel's lengthscales,
            instead of from the trained decoder. 128 to 512 are best in more than about three dimensions.
        data : array-like [N, D], optional
            The training rows, which `neighbours` needs: whatever `fit` takes. The model does not keep them. Files on
            disk are read a few rows at a time.
        out : path or array, optional
            As for `transform`; with return_std it is a pair. Not for tables and intervals.
        """
        check_is_fitted(self)
        return self._decode(Z, return_std, out, self._decoder(neighbours, data), return_interval)

    def predict_scores(
        self,
        Z: Any,
        return_std: bool = False,
        *,
        neighbours: int | None = None,
        data: Any = None,
        out: Any = None,
    ) -> Any:
        """Like `predict` but, for a table, with the scores that columns are mapped to. The same for arrays.

        Parameters
        ----------
        Z : array-like [M, Q]
            Latents.
        return_std : bool
            Also return the standard deviation, [M, D].
        neighbours : int, optional
            Condition each prediction on this many nearest training rows instead.
        data : array-like [N, D], optional
            The training rows, for `neighbours`.
        out : path or array, optional
            Where the result goes, block by block, as for `predict`.
        """
        check_is_fitted(self)
        return self._decode_scores(Z, return_std, out, self._decoder(neighbours, data))

    def reconstruct(
        self,
        X: Any,
        return_std: bool = False,
        *,
        return_interval: float | None = None,
        neighbours: int | None = None,
        data: Any = None,
        out: Any = None,
    ) -> Any:
        """Encode rows X [M, D] and decode their latents: `predict(transform(X))`.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes.
        return_std : bool
            Return also the standard deviation [M, D] of a new observation at each row's latent.
        return_interval, neighbours
            As for `predict`.
        data : array-like [N, D], optional
            The training rows, for `neighbours`.
        out : path or array, optional
            As for `predict`.
        """
        check_is_fitted(self)
        decoder = self._decoder(neighbours, data)  # before the work, not after it
        return self._decode(self._encode(self._rows(X)), return_std, out, decoder, return_interval)

    def score_samples(
        self,
        X: Any,
        *,
        n_samples: int | None = None,
        neighbours: int | None = None,
        data: Any = None,
        random_state: Any = None,
        out: Out | None = None,
    ) -> Array:
        """Log density [M] of each row under the model, in nats summed over features: low for anomalies.

        For a table, it is in the units of its columns: the log density of numbers and the log probability of levels.

        With Bayesian latents it estimates log p(x) = log ∫ p(x|z) p(z) dz, by importance sampling around the row's
        refined latent and from the prior. The estimate's exponential is unbiased, so the logarithm is a lower bound on
        average, tighter with more samples. With point latents, or n_samples=0, it is log N(x | m(z*), c(z*) I) at
        z* = transform(x), which measures reconstruction through the latent space. The negative of its mean per feature
        is the paper's NLPD. If the model is one of counts and X an AnnData object, it is the log density of the counts.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes.
        n_samples : int, optional
            Latent points per row. None: 16 with Bayesian latents, 0 with point ones.
        neighbours : int, optional
            As for `predict`. It needs n_samples=0.
        data : array-like [N, D], optional
            The training rows, for `neighbours`.
        random_state : int, RandomState or None
            Seed of these points, which are the same for all rows. None takes the model's own seed, so that the result
            does not change.
        out : path or array, optional
            As for `transform`.
        """
        if neighbours is None and data is None:
            return super().score_samples(X, n_samples=n_samples, random_state=random_state, out=out)
        check_is_fitted(self)
        decoder = self._decoder(neighbours, data)
        n_samples = (SCORE_SAMPLES if self.latents == "bayesian" else 0) if n_samples is None else n_samples
        check_count("n_samples", n_samples, 0)
        if n_samples:
            raise InputError(
                "With neighbours the score is the density of a row's reconstruction, which is not integrated over z. "
                f"Pass n_samples=0 instead of {n_samples}, or leave neighbours out.",
                argument="n_samples",
            )
        factors = log_factors(self, X)
        rows, density = self._rows_and_density(X, decoder)
        with Sink(out, (len(rows),), np.dtype(self.dtype_)) as sink, torch.no_grad():
            for X_block, Z, _ in self._located(rows, decoder.block_size):
                log_p = density(len(X_block)).log_density(X_block, Z)
                sink.add(self._of_counts(log_p, X_block, factors, sink.done))
        return sink.result

    def _decoder(self, neighbours: int | None, data: Any) -> Predictive:
        """The trained decoder or, with neighbours, the Gaussian process given the nearest of the training rows."""
        if neighbours is None:
            if data is not None:
                raise InputError(
                    "data are only used to predict from the nearest rows. Pass neighbours=128 with them, or leave data "
                    "out.",
                    argument="data",
                )
            posterior: Predictive = self.posterior_
            return posterior
        check_count("neighbours", neighbours)
        if data is None:
            raise InputError(
                f"neighbours={neighbours} needs the training rows, which the model does not keep. Pass them as data.",
                argument="data",
            )
        rows = self._training_rows(data)
        model, mean = self.model_, self.model_.mean.double()
        return NearestRows(
            model.kernel,
            model.noise,
            torch.as_tensor(self.embedding_, device=self._device),
            lambda index: rows.gather(index.cpu()).double().sub_(mean),
            model.mean,
            int(neighbours),
            model.scales,
            self.posterior_.local_noise,
        )

    def _training_rows(self, data: Any) -> ArrayRows:
        """The rows that the model was trained on. Raises InputError for others."""
        expected = f"data must be the {len(self.embedding_)} rows that the model was trained on, in their order"
        try:
            rows = self._rows(data)
        except ValueError as error:  # scikit-learn's, too
            raise InputError(f"{expected}. {' '.join(str(error).split())}", argument="data") from error
        if check_values(rows.array):
            raise InputError(
                "neighbours needs training rows without missing values, but data has some (NaN). Leave neighbours out: "
                "the trained decoder uses all values that there are.",
                argument="data",
            )
        if len(rows) != len(self.embedding_):
            raise InputError(f"{expected}. Got {len(rows)} rows.", argument="data")
        start = 0
        same = []
        for n, known in self._data_parts:
            same.append(known == sample_fingerprint(rows.array, self.dtype_, slice(start, start + n)))
            start += n
        if not all(same):
            raise InputError(f"{expected}. The rows that were passed have other values.", argument="data")
        return rows
