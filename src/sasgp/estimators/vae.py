"""VAE: the decoder is a network, a baseline for SASGP."""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sasgp.data.rows import ArrayRows
from sasgp.estimators.base import Array, LatentEstimator
from sasgp.models.base import ModelSettings
from sasgp.models.encoders import ENCODE_ROWS
from sasgp.models.settings import NetworkSettings, Settings, documented
from sasgp.models.vae import NetworkPosterior, Output, VAEModel
from sasgp.training.loop import Ranks, generator

__all__ = ["VAE"]

ABSENT = ("latents", "kernel", "noise", "active_set_size", "support_size", "hyper_learning_rate")


@dataclass(eq=False, repr=False)
class VAE(NetworkSettings, LatentEstimator):
    __doc__ = (
        """A variational autoencoder: the decoder is a network, Q-400-D.

    Encoder, initial values, training loop and metrics are those of :class:`SASGP`. The network's uncertainty is the
    spread of the data around its mean; it does not know where it has seen no data. The saved file holds no rows of the
    data.
    """
        + documented(Settings, NetworkSettings, without=ABSENT)
        + """    hyper_learning_rate
        Peak of the one-cycle schedule for the decoder.

    Attributes
    ----------
    embedding_, history_, n_components_, batch_size_, encoder_noise_, precision_, dtype_, model_
        As for :class:`SASGP`.
    output_ : str
        The last layer that was used.
    noise_ : float or ndarray [D]
        Variance of an observation around its mean, averaged over the latent space.
    posterior_ : Predictive
        The trained decoder.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sasgp import VAE
    >>> X = load_iris().data
    >>> model = VAE(max_epochs=10, random_state=0).fit(X)
    >>> model.transform(X).shape, model.predict(model.embedding_).shape
    ((150, 2), (150, 4))
    """
    )

    n_components: int = 2
    latents: Literal["bayesian", "point"] = field(init=False, default="bayesian")
    kernel: Any = field(init=False, default=None)
    noise: Literal["auto", "shared", "feature", "local"] = field(init=False, default="shared")
    active_set_size: int | None = field(init=False, default=0)
    support_size: int | Literal["auto"] | None = field(init=False, default=None)

    _MODEL: ClassVar[type[VAEModel]] = VAEModel
    _SAVED: ClassVar[tuple[str, ...]] = (*LatentEstimator._SAVED, "output_")

    def _resolve(self, rows: ArrayRows, n_rows: int) -> None:
        super()._resolve(rows, n_rows)
        self.output_: Output = self.output or ("sigmoid" if _like_pixels(rows) else "linear")

    def _model_settings(self, n_rows: int) -> ModelSettings:
        return replace(super()._model_settings(n_rows), output=self.output_, variance=self.variance)

    def _interim_posterior(self, rows: ArrayRows) -> NetworkPosterior:
        return self.model_.posterior()

    def _final_posterior(self, rows: ArrayRows, ranks: Ranks) -> NetworkPosterior:
        # The search for latents of new rows starts from those of 400 training rows
        chosen = torch.randperm(len(rows), generator=generator(self.seed_, "places"))[:400]
        return self.model_.posterior(self.model_.encoder.position(rows.gather(chosen), chosen.to(self._device)))

    def _posterior_tensors(self) -> dict[str, Tensor]:
        return {"places": self.posterior_.Z}

    def _posterior_shapes(self, tensors: dict[str, Tensor]) -> dict[str, tuple[int | None, ...]]:
        return {"places": (None, self.embedding_.shape[1])}

    def _restore_posterior(self, tensors: dict[str, Tensor]) -> None:
        self.posterior_ = self.model_.posterior(tensors["places"])

    @property
    def noise_(self) -> float | Array:
        """Variance of an observation around its mean, averaged over the latent space: one number, or [D]."""
        noise = self.model_.feature_noise.numpy(force=True)
        return float(noise[0]) if self.variance == "shared" else noise


def _like_pixels(rows: ArrayRows) -> bool:
    """Whether all values are from 0 to 1, in rows that differ: equal ones are decoded exactly without a sigmoid."""
    first, differ = rows.gather(torch.zeros(1, dtype=torch.int64)), False
    for X in rows.blocks(ENCODE_ROWS):
        differ = differ or bool((first != X).any())
        X = X.nan_to_num(0.5)  # a missing value is in any interval
        if X.min() < 0 or X.max() > 1:
            return False
    return differ
