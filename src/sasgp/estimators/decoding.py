"""From latents to observations: predict, reconstruct, sample, and the explorer, which decodes in the browser."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.images import image_shape_of
from sasgp.estimators.inference import Array, Inference, sinks
from sasgp.estimators.validation import check_count, check_latents, check_rows, seed_of
from sasgp.gp.posterior import Predictive
from sasgp.training.loop import generator

__all__ = ["Decoding"]

Moments = Callable[[Tensor], tuple[Tensor, Tensor]]  # latents [M, Q] → mean [M, D] and variance [M, 1 or D]


class Decoding(Inference):
    """The methods of an estimator that decode."""

    image_shape_: Sequence[int] | None

    def predict(self, Z: Any, return_std: bool = False, *, out: Any = None) -> Array | tuple[Array, Array]:
        """Decode latents Z [M, Q]: the mean [M, D] of an observation there and, if asked for, its standard deviation.

        The standard deviation is that of a new observation, noise included. `reconstruct` decodes rows.

        Parameters
        ----------
        Z : array-like [M, Q]
        return_std : bool
        out : path or array, optional
            As for `transform`; with return_std it is a pair.
        """
        check_is_fitted(self)
        return self._decode(Z, return_std, out, self.posterior_)

    def _decode(self, Z: Any, return_std: bool, out: Any, decoder: Predictive, moments: Moments | None = None) -> Any:
        """Mean and, if asked for, standard deviation at latents Z [M, Q], one of the decoder's blocks at a time.

        `moments` may take the place of the decoder's own `predict`.
        """
        latents = check_latents(self, Z)
        shape, dtype = (len(latents), self.n_features_in_), np.dtype(self.dtype)
        with sinks(out, return_std, shape, dtype) as (mean, *std):
            for block in decoder.blocks(len(latents)):
                m, var = (moments or decoder.predict)(latents[block])
                mean.add(m.numpy(force=True))
                if return_std:
                    std[0].add(var.sqrt().expand_as(m).numpy(force=True))
        return (mean.result, std[0].result) if return_std else mean.result

    def reconstruct(self, X: Any, return_std: bool = False, *, out: Any = None) -> Array | tuple[Array, Array]:
        """Encode rows X [M, D] and decode their latents: `predict(transform(X))`.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes.
        return_std : bool
            Return also the standard deviation [M, D] of a new observation at each row's latent.
        out : path or array, optional
            As for `predict`.
        """
        check_is_fitted(self)
        return self.predict(self._encode(self._rows(X)), return_std, out=out)

    def inverse_transform(self, X: Any) -> Array:
        """The decoder's mean [M, D] at latents X [M, Q]: `predict` under scikit-learn's name."""
        mean = self.predict(X)
        assert isinstance(mean, np.ndarray)
        return mean

    def sample(self, n_samples: int = 1, *, noise: bool = True, random_state: Any = None) -> Array:
        """Generate rows [n_samples, D]: z from the prior N(0, I), then one draw of the decoder's function there.

        Parameters
        ----------
        n_samples : int
        noise : bool
            Whether observation noise is added, as in data. Draws without noise are smooth.
        random_state : int, RandomState or None
            None: a new draw each time.
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples)
        draw = generator(seed_of(random_state), "sample")
        Z = torch.randn(n_samples, self.n_components_, generator=draw, dtype=self._dtype).to(self._device)
        return self.posterior_.sample(Z, draw, noise=noise).numpy(force=True)

    def explorer(
        self,
        X: Any = None,
        labels: Any = None,
        *,
        Z: Any = None,
        columns: Any = None,
        image_shape: Sequence[int] | None = None,
        title: str = "latent space",
    ) -> Any:
        """The latent space as an interactive page, which decodes at the pointer, in the browser.

        A notebook shows the result; `model.explorer(X, y).save("explorer.html")` writes one file that needs neither
        server nor network. It holds some of the rows of X.

        Parameters
        ----------
        X : array-like [N, D], optional
            Rows to show. Images may have their shape, [N, H, W] or [N, C, H, W]. None: the latents of the training
            rows alone.
        labels : array-like [N], optional
            What to colour by: classes or numbers.
        Z : array-like [N, Q], optional
            Latents of X if they are known, such as `embedding_`. None: `transform(X)`.
        columns : mapping or DataFrame, optional
            More to colour by, N values each. The columns of X can be chosen as well, unless they are pixels.
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
            X = check_rows(self, X, reset=False)
        return explore(
            self,
            X,
            Z=Z,
            labels=labels,
            columns=columns,
            feature_names=None if names is None else [str(name) for name in names],
            image_shape=self.image_shape_ if image_shape is None else image_shape,
            title=title,
        )
