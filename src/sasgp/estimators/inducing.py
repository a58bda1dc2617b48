"""BayesianGPLVM: the decoder with inducing points, a baseline for SASGP."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from sasgp.data.progress import progress_bar
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.gp import GPEstimator
from sasgp.gp.posterior import Posterior
from sasgp.models.base import ModelSettings, drawn
from sasgp.models.encoders import ENCODE_ROWS
from sasgp.models.inducing import InducingModel
from sasgp.models.settings import InducingSettings, Settings, documented
from sasgp.training.loop import Ranks, generator

__all__ = ["BayesianGPLVM"]


@dataclass(eq=False, repr=False)
class BayesianGPLVM(InducingSettings, GPEstimator):
    __doc__ = (
        """The Bayesian GP-LVM with inducing points, trained by stochastic variational inference.

    Encoder, initial values, training loop and metrics are those of :class:`SASGP`. The difference is that the functions
    are summarised by inducing points, which are learned, instead of active rows, which are drawn. The saved file holds
    no rows of the data.
    """
        + documented(Settings, InducingSettings, without=("active_set_size", "support_size"))
        + """
    Attributes
    ----------
    embedding_, history_, kernel_, noise_, relevance_, n_components_, batch_size_, encoder_noise_, precision_, model_
        As for :class:`SASGP`.
    dtype_ : str
        The `dtype` used: "float64" if the squares of the data do not fit into float32.
    n_inducing_ : int
        Inducing points used; fewer than asked for if the data are few.
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
    support_size: int | Literal["auto"] | None = field(init=False, default=None)

    _MODEL: ClassVar[type[InducingModel]] = InducingModel
    _SAVED: ClassVar[tuple[str, ...]] = (*GPEstimator._SAVED, "n_inducing_")

    def _check_world(self, world: int) -> None:
        if world > 1:
            raise InputError(f"BayesianGPLVM trains in one process, but {world} were started. Start one, or use SASGP.")

    def _resolve(self, rows: ArrayRows, n_rows: int) -> None:
        super()._resolve(rows, n_rows)
        self.n_inducing_ = min(int(self.n_inducing), n_rows)

    def _model_settings(self, n_rows: int) -> ModelSettings:
        return replace(super()._model_settings(n_rows), n_inducing=self.n_inducing_)

    def _interim_posterior(self, rows: ArrayRows) -> Posterior:
        return self.model_.posterior()

    def _final_posterior(self, rows: ArrayRows, ranks: Ranks) -> Posterior:
        # The final q(u) averages over at least 5000 latents, so with fewer rows each latent is drawn several times
        draws = -(-5000 // len(rows)) if self.latents == "bayesian" else 1
        with progress_bar("q(u)", len(rows), show=self.verbose, brief=len(rows) <= 10 * ENCODE_ROWS) as update:
            self.model_.settle(self._pairs(rows, draws, update), draws)
        return self.model_.posterior()

    def _pairs(self, rows: ArrayRows, draws: int, update: Any) -> Iterator[tuple[Tensor, Tensor]]:
        """Each row with `draws` draws of its latent, one block at a time."""
        done, draw = 0, generator(self.seed_, "q(u)")
        for X in rows.blocks(ENCODE_ROWS):
            mu, var = self.model_.encoder(X, torch.arange(done, done + len(X), device=self._device))
            Z, _ = drawn(mu.repeat(draws, 1), None if var is None else var.repeat(draws, 1), draw)
            yield X.repeat(draws, 1), Z
            done += len(X)
            update(done)

    def _restore_posterior(self, tensors: dict[str, Tensor]) -> None:
        self.posterior_ = self.model_.posterior()
