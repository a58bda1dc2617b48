"""From latents to observations: predict, reconstruct, sample, and the explorer, which decodes in the browser."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch
from scipy.special import ndtri
from sklearn.utils.validation import check_is_fitted

from sasgp.data.columns import Columns
from sasgp.data.images import image_shape_of
from sasgp.errors import InputError
from sasgp.estimators.inference import Array, Inference, sinks
from sasgp.estimators.tables import as_user_frame
from sasgp.estimators.validation import check_count, check_latents, check_rows, seed_of
from sasgp.gp.posterior import Predictive
from sasgp.training.loop import generator

__all__ = ["Decoding"]


class Decoding(Inference):
    """The methods of an estimator that decode."""

    image_shape_: Sequence[int] | None

    def predict(
        self, Z: Any, return_std: bool = False, *, return_interval: float | None = None, out: Any = None
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
        out : path or array, optional
            As for `transform`; with return_std it is a pair. Not for tables and intervals.
        """
        check_is_fitted(self)
        return self._decode(Z, return_std, out, self.posterior_, return_interval)

    def predict_scores(self, Z: Any, return_std: bool = False, *, out: Any = None) -> Any:
        """Like `predict` but, for a table, with the scores that columns are mapped to. The same for arrays.

        Parameters
        ----------
        Z : array-like [M, Q]
            Latents.
        return_std : bool
            Also return the standard deviation, [M, D].
        out : path or array, optional
            Where the result goes, block by block, as for `predict`.
        """
        check_is_fitted(self)
        return self._decode_scores(Z, return_std, out, self.posterior_)

    def probabilities(self, Z: Any) -> Any:
        """Probabilities of the levels of each binary, ordinal, count or category column at latents Z [M, Q].

        Returns a table whose columns are called column=level.

        Parameters
        ----------
        Z : array-like [M, Q]
            Latents.
        """
        check_is_fitted(self)
        columns = self._table_columns("probabilities")
        mean, std = self.predict_scores(Z, return_std=True)
        found = columns.probabilities(mean.astype(np.float64), np.square(std, dtype=np.float64))
        import polars as pl

        return as_user_frame(self, pl.DataFrame(found))

    def _table_columns(self, what: str) -> Columns:
        if self.columns_ is None:
            raise InputError(
                f"{what} needs a model of a table with columns of several kinds. This one was trained on an array of "
                "numbers. Fit a DataFrame, or say columns={...}.",
                argument="columns",
            )
        return self.columns_

    def _decode(
        self, Z: Any, return_std: bool, out: Any, decoder: Predictive, return_interval: float | None = None
    ) -> Any:
        """The mean, the standard deviation and the interval at latents Z [M, Q], as far as they are asked for."""
        if return_interval is not None and not 0 < return_interval < 1:
            raise InputError(
                f"return_interval must be between 0 and 1, for example 0.9. Got {return_interval}.",
                argument="return_interval",
            )
        if self.columns_ is None and return_interval is None:
            return self._decode_scores(Z, return_std, out, decoder)
        if out is not None:
            raise InputError("out is for arrays without intervals. Leave it out, and save the result.", argument="out")
        mean, std = self._decode_scores(Z, True, None, decoder)
        shares = () if return_interval is None else (0.5 - return_interval / 2, 0.5 + return_interval / 2)
        if self.columns_ is None:
            found = [mean, *[std] * return_std, *(mean + std * float(ndtri(share)) for share in shares)]
        else:
            columns, m, c = self.columns_, mean.astype(np.float64), np.square(std, dtype=np.float64)
            found = [as_user_frame(self, columns.frame(columns.predict(m, c)))]
            if return_std:
                import polars as pl

                spread = pl.DataFrame(dict(zip(columns.names, columns.std(m, c).T, strict=True)))
                found.append(as_user_frame(self, spread))
            found += [as_user_frame(self, columns.frame(columns.quantile(m, c, share))) for share in shares]
        return found[0] if len(found) == 1 else tuple(found)

    def _decode_scores(self, Z: Any, return_std: bool, out: Any, decoder: Predictive) -> Any:
        """Mean and, if asked for, standard deviation at latents Z [M, Q], one of the decoder's blocks at a time."""
        latents = check_latents(self, Z)
        shape, dtype = (len(latents), self.n_scores_), np.dtype(self.dtype_)
        with sinks(out, return_std, shape, dtype) as (mean, *std):
            for block in decoder.blocks(len(latents)):
                if not return_std:
                    mean.add(decoder.predict_mean(latents[block]).numpy(force=True))
                    continue
                m, var = decoder.predict(latents[block])
                mean.add(m.numpy(force=True))
                std[0].add(var.sqrt().expand_as(m).numpy(force=True))
        return (mean.result, std[0].result) if return_std else mean.result

    def reconstruct(
        self, X: Any, return_std: bool = False, *, return_interval: float | None = None, out: Any = None
    ) -> Any:
        """Encode rows X [M, D] and decode their latents: `predict(transform(X))`.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes.
        return_std : bool
            Return also the standard deviation [M, D] of a new observation at each row's latent.
        return_interval : float, optional
            As for `predict`.
        out : path or array, optional
            As for `predict`.
        """
        check_is_fitted(self)
        return self.predict(self._encode(self._rows(X)), return_std, return_interval=return_interval, out=out)

    def inverse_transform(self, X: Any) -> Any:
        """The decoder's mean [M, D] at latents X [M, Q]: `predict` under scikit-learn's name.

        Parameters
        ----------
        X : array-like [M, Q]
            Latents.
        """
        return self.predict(X)

    def sample(self, n_samples: int = 1, *, noise: bool = True, random_state: Any = None) -> Any:
        """Generate rows [n_samples, D]: z from the prior N(0, I), then one draw of the decoder's function there.

        A model of a table returns a table.

        Parameters
        ----------
        n_samples : int
            Number of rows.
        noise : bool
            Whether observation noise is added, as in data. Without it, rows are values of one smooth function of z.
        random_state : int, RandomState or None
            None: a new draw each time.
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples)
        seed = seed_of(random_state)
        draw = generator(seed, "sample")
        Z = torch.randn(n_samples, self.n_components_, generator=draw, dtype=self._dtype).to(self._device)
        scores: Array = self.posterior_.sample(Z, draw, noise=noise).numpy(force=True)
        if self.columns_ is None:
            return scores
        mean, var = self.posterior_.predict(Z)
        m, c = (part.numpy(force=True).astype(np.float64) for part in (mean, var.expand_as(mean)))
        values = self.columns_.sample(scores.astype(np.float64), m, c, np.random.default_rng(seed))
        return as_user_frame(self, self.columns_.frame(values))

    def explorer(
        self,
        X: Any = None,
        labels: Any = None,
        *,
        Z: Any = None,
        columns: Any = None,
        ids: Iterable[Any] | None = None,
        image_shape: Sequence[int] | None = None,
        title: str = "latent space",
    ) -> Any:
        """The latent space as an interactive page, which decodes at the pointer, in the browser.

        A notebook shows the result; `model.explorer(X, y).save("explorer.html")` writes one file that needs neither
        server nor network. It holds some of the rows of X.

        Parameters
        ----------
        X : array-like [N, D], optional
            Rows to show. Images may have their shape, [N, H, W] or [N, C, H, W]. Columns of a table are shown in their
            own units. None: the latents of the training rows alone.
        labels : array-like [N], optional
            What to colour by: classes or numbers.
        Z : array-like [N, Q], optional
            Latents of X if they are known, such as `embedding_`. None: `transform(X)`.
        columns : mapping or DataFrame, optional
            More about the rows, N values each, to show, to search and to colour by. The columns of X can be chosen as
            well, unless they are pixels.
        ids : sequence of N names, optional
            Names of the rows, to show and to search for.
        image_shape : tuple, optional
            Shape of a row as an image: (H, W), (C, H, W) or (H, W, C). None: that of the model, if it has one;
            otherwise squares of pixels are recognised, unless X is a DataFrame. () means that rows are not images.
        title : str
            Heading of the page.

        Returns
        -------
        sasgp.explorer.Explorer
        """
        from sasgp.explorer import explore

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if X is not None:
            image_shape = image_shape_of(X) if image_shape is None else image_shape
            Z = self.transform(X) if Z is None else Z
            X = check_rows(self, X, reset=False) if self.columns_ is None else X
        return explore(
            self,
            X,
            Z=Z,
            labels=labels,
            columns=columns,
            ids=ids,
            feature_names=None if names is None else [str(name) for name in names],
            image_shape=self.image_shape_ if image_shape is None else image_shape,
            title=title,
        )
