"""VAE: the decoder is a network, a baseline for SASGP."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sasgp.data.rows import ArrayRows
from sasgp.estimators.base import ENCODE_ROWS, Array, BaseDecoder
from sasgp.models.encoders import Encoder
from sasgp.models.settings import NetworkSettings, Settings, documented
from sasgp.models.vae import ANCHORS, NetworkPosterior, Output, Perceptron, VAEDecoder
from sasgp.training import initialise
from sasgp.training.loop import generator

__all__ = ["VAE"]

N_PLACES = 400  # latents of training rows that those of new rows are searched from
NOT_HERE = ("latents", "kernel", "noise", "active_set_size", "support_size", "support", "hyper_learning_rate")


@dataclass(eq=False, repr=False)
class VAE(NetworkSettings, BaseDecoder):
    __doc__ = (
        """A variational autoencoder: the decoder is a network, Q-400-D.

    Encoder, start, loop and metrics are those of :class:`SASGP`. The network's uncertainty is the spread of the data
    around what it decodes; it does not know where it has seen nothing. Its file holds no rows of the data.
    """
        + documented(Settings, NetworkSettings, without=NOT_HERE)
        + """    hyper_learning_rate
        Peak of the one-cycle schedule for the decoder.

    Attributes
    ----------
    embedding_, history_, n_components_, batch_size_, model_, neighbours_
        As of :class:`SASGP`.
    output_ : str
        The last layer, also where output=None chose it.
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
    noise: Literal["shared", "feature"] = field(init=False, default="shared")
    active_set_size: int | None = field(init=False, default=0)
    support_size: int = field(init=False, default=0)
    support: Literal["random", "kmeans++"] = field(init=False, default="random")

    def _model(self, encoder: Encoder, rows: ArrayRows, measured: initialise.Measured) -> VAEDecoder:
        self.output_: Output = self.output or ("sigmoid" if _in_unit_interval(rows) else "linear")
        least = measured.variance**0.5 * measured.scales[0]
        decoder = self._decoder(measured.centre, measured.variance, measured.noise, least.to(measured.centre))
        draw = generator(self.seed_, "anchors")
        anchors = torch.randn(ANCHORS, self.n_components_, generator=draw, dtype=self._dtype)
        return VAEDecoder(encoder, decoder, anchors, measured.encoder_noise)

    def _decoder(self, mean: Tensor, variance: float, noise: float, least: Tensor) -> Perceptron:
        return Perceptron(
            mean,
            variance,
            self.n_components_,
            noise=noise,
            least=least,
            output=self.output_,
            spread=self.variance,
            generator=generator(self.seed_, "decoder"),
        )

    def _interim(self, rows: ArrayRows) -> NetworkPosterior:
        return self.model_.posterior()

    def _final(self, rows: ArrayRows) -> NetworkPosterior:
        chosen = torch.randperm(len(rows), generator=generator(self.seed_, "places"))[:N_PLACES]
        return self.model_.posterior(self.model_.encoder.position(rows.gather(chosen), chosen.to(self._device)))

    _SAVED: ClassVar[tuple[str, ...]] = (*BaseDecoder._SAVED, "output_")

    def _tensors(self) -> dict[str, Tensor]:
        decoder = {f"decoder.{name}": value for name, value in self.model_.decoder.state_dict().items()}
        own = {"mean": self.model_.mean, "anchors": self.model_.anchors, "places": self.posterior_.Z}
        return decoder | own | {"embedding": torch.from_numpy(self.embedding_)}

    def _restore(self, encoder: Encoder, kernel: Any, tensors: dict[str, Tensor]) -> None:
        mean = tensors["mean"]
        decoder = self._decoder(mean, 1.0, 1.0, torch.ones_like(mean))
        decoder.load_state_dict({n.partition(".")[2]: v for n, v in tensors.items() if n.startswith("decoder.")})
        self.model_ = VAEDecoder(encoder, decoder, tensors["anchors"]).to(self._device, self._dtype).eval()
        self.posterior_ = self.model_.posterior(tensors["places"].to(self._device))

    @property
    def noise_(self) -> float | Array:
        """Variance of an observation around its mean, averaged over the latent space: one number, or [D]."""
        noise = self.model_.feature_noise.numpy(force=True)
        return float(noise[0]) if self.variance == "shared" else noise


def _in_unit_interval(rows: ArrayRows) -> bool:
    return all(bool(X.min() >= 0) and bool(X.max() <= 1) for X in rows.blocks(ENCODE_ROWS))
