"""BayesianGPLVM: the decoder with inducing points, a baseline for SASGP."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.base import ENCODE_ROWS, BaseDecoder
from sasgp.gp import supports
from sasgp.models.encoders import Encoder
from sasgp.models.inducing import InducingDecoder, InducingPosterior
from sasgp.models.latent import drawn
from sasgp.models.settings import InducingSettings, Settings, documented
from sasgp.training import initialise
from sasgp.training.loop import generator
from sasgp.training.progress import progress_bar

__all__ = ["BayesianGPLVM"]

FINAL_DRAWS = 5000  # latents, at the least, that the last q(u) averages over: of fewer rows each is drawn several times


@dataclass(eq=False, repr=False)
class BayesianGPLVM(InducingSettings, BaseDecoder):
    __doc__ = (
        """The Bayesian GP-LVM with inducing points, trained by stochastic variational inference.

    Encoder, start, loop and metrics are those of :class:`SASGP`: what differs is that the functions are summarised by
    inducing points, which are learnt, instead of active rows, which are drawn. Its file holds no rows of the data.
    """
        + documented(Settings, InducingSettings, without=("active_set_size", "support_size", "support"))
        + """
    Attributes
    ----------
    embedding_, history_, kernel_, noise_, relevance_, n_components_, batch_size_, model_, neighbours_
        As of :class:`SASGP`.
    n_inducing_ : int
        Inducing points used, where the data were too few for those asked for.
    posterior_ : Predictive
        The trained decoder.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sasgp import BayesianGPLVM
    >>> X = load_iris().data
    >>> model = BayesianGPLVM(n_inducing=50, max_epochs=10, random_state=0).fit(X)
    >>> model.transform(X).shape, model.predict(model.embedding_).shape
    ((150, 2), (150, 4))
    """
    )

    n_components: int = 2
    active_set_size: int | None = field(init=False, default=0)
    support_size: int = field(init=False, default=0)
    support: Literal["random", "kmeans++"] = field(init=False, default="random")

    def _check_world(self, world: int) -> None:
        if world > 1:
            raise InputError(f"BayesianGPLVM trains in one process: q(u) is its own. Got {world}; use one, or SASGP.")

    def _set_sizes(self, N: int) -> None:
        super()._set_sizes(N)
        self.n_inducing_ = min(int(self.n_inducing), N)

    @torch.no_grad()
    def _model(self, encoder: Encoder, rows: ArrayRows, measured: initialise.Measured) -> InducingDecoder:
        draw, A = generator(self.seed_, "inducing"), self.n_inducing_
        some = torch.randperm(len(rows), generator=draw)[: supports.CANDIDATES * A]
        parts = some.split(ENCODE_ROWS)  # type: ignore[no-untyped-call]
        Z = torch.cat([encoder.position(rows.gather(part), part.to(self._device)) for part in parts])
        return InducingDecoder(
            encoder,
            initialise.kernel(self, encoder, rows, measured.variance, self.seed_),
            noise=measured.noise,
            mean=measured.centre,
            Z=Z[supports.kmeans_plus_plus(Z, A, draw)],
            encoder_noise=measured.encoder_noise,
            scales=measured.scales if self.noise == "feature" else None,
        )

    def _interim(self, rows: ArrayRows) -> InducingPosterior:
        return self.model_.posterior()

    def _final(self, rows: ArrayRows) -> InducingPosterior:
        draws = -(-FINAL_DRAWS // len(rows)) if self.latents == "bayesian" else 1
        with progress_bar("q(u)", len(rows), show=self.verbose and len(rows) > 10 * ENCODE_ROWS) as update:
            self.model_.settle(self._pairs(rows, draws, update), draws)
        return self.model_.posterior()

    def _pairs(self, rows: ArrayRows, draws: int, update: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Every row with draws of its latent, a block at a time."""
        done, draw = 0, generator(self.seed_, "q(u)")
        for X in rows.blocks(ENCODE_ROWS):
            mu, var = self.model_.encoder(X, torch.arange(done, done + len(X), device=self._device))
            Z, _ = drawn(mu.repeat(draws, 1), None if var is None else var.repeat(draws, 1), draw)
            yield X.repeat(draws, 1), Z
            done += len(X)
            update(done)

    _SAVED: ClassVar[tuple[str, ...]] = (*BaseDecoder._SAVED, "n_inducing_")

    def _tensors(self) -> dict[str, Tensor]:
        model = self.model_
        tensors = {name: getattr(model, name) for name in ("mean", "log_noise", "Z", "M", "L_C")}
        if model.log_scales is not None:
            tensors["scales"] = torch.stack([model.least_scales, model.log_scales])
        return tensors | {"embedding": torch.from_numpy(self.embedding_)}

    def _restore(self, encoder: Encoder, kernel: Any, tensors: dict[str, Tensor]) -> None:
        scales = tensors.get("scales")
        if scales is not None:
            scales = torch.stack([scales[0], scales[1].exp()])
        model = InducingDecoder(encoder, kernel, noise=1.0, mean=tensors["mean"], Z=tensors["Z"], scales=scales)
        with torch.no_grad():
            for name in ("log_noise", "M", "L_C"):
                getattr(model, name).copy_(tensors[name])
            if model.log_scales is not None:
                model.log_scales.copy_(tensors["scales"][1])
        self.model_ = model.to(self._device, self._dtype).eval()
        self.posterior_ = self.model_.posterior()
