"""SASGP and GPLVM: the decoder is a Gaussian process conditioned on rows of the data.

That is why they have support sets, the evidence log p(X|Z), and dimensions that can be left out after training.
"""

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.evidence import EvidenceMethods
from sasgp.estimators.gp import GPEstimator
from sasgp.estimators.inference import Array
from sasgp.estimators.validation import check_count
from sasgp.gp import kernels, supports
from sasgp.gp.posterior import Posterior
from sasgp.models.base import ModelSettings
from sasgp.models.encoders import ENCODE_ROWS
from sasgp.models.sas import SASModel
from sasgp.models.settings import Settings
from sasgp.training.loop import generator

__all__ = ["GPLVM", "SASGP"]


@dataclass(eq=False, repr=False)
class SASGP(EvidenceMethods):
    __doc__ = (
        "A Gaussian-process decoder trained with stochastic active sets.\n"
        + (Settings.__doc__ or "").partition("\n")[2]
        + """
    Attributes
    ----------
    embedding_ : ndarray [N, Q]
        Latents of the training rows.
    history_ : list of dict
        One record per epoch: epoch, step, loss (the negative objective in nats per value; with `layout_weight` it
        includes the cost of leaving the layout), noise, learning_rate, seconds, the number of steps dropped because
        their numbers were not finite and, with `early_stopping`, held_out_loss.
    kernel_ : gpytorch.kernels.Kernel
        The trained kernel.
    noise_ : float or ndarray [D]
        The trained noise variance; one per feature with noise="feature".
    n_components_ : int
        Dimensions of the latent space, also if n_components="auto" chose them.
    relevance_ : ndarray [Q]
        How much the decoder uses each dimension: the spread of the latents in it, in lengthscales of the kernel.
    active_set_size_, batch_size_ : int
        The sizes used; smaller than asked for if the data are few.
    encoder_noise_ : float
        The `encoder_noise` used, also if "auto" chose it.
    model_ : torch.nn.Module
        Encoder, kernel and noise as trained.
    posterior_ : Posterior
        The decoder conditioned on its support set.
    support_rows_ : ndarray
        Indices of the training rows in the support sets.
    supports_ : list of Posterior
        The decoder conditioned on further support sets, after `add_supports`.
    neighbours_ : Neighbours
        An index of rows whose latents are starts of refinement, after `build_index`.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sasgp import SASGP
    >>> X = load_iris().data
    >>> model = SASGP(max_epochs=10, random_state=0).fit(X)
    >>> Z = model.transform(X)
    >>> mean, std = model.predict(Z, return_std=True)
    >>> Z.shape, mean.shape, std.shape
    ((150, 2), (150, 4), (150, 4))
    """
    )

    _MODEL: ClassVar[type[SASModel]] = SASModel
    _FITTED: ClassVar[tuple[str, ...]] = (*GPEstimator._FITTED, "support_rows_", "supports_")

    # ------------------------------------------------------------------------------------------------ fitting

    def _fit(self, X: Any, array: Any, **how: Any) -> Self:
        if self.n_components != "auto":
            return super()._fit(X, array, **how)
        Q = min(12, array.shape[1])
        wide = clone(self).set_params(n_components=Q, kernel="rbf-ard", random_state=self.random_state)
        return self._adopt(wide.fit(X, **how))

    def _adopt(self, wide: Self) -> Self:
        """Take over what another estimator has learned, except the dimensions that its decoder does not use."""
        settings = self.get_params(deep=False)
        self.__dict__ |= {name: value for name, value in vars(wide).items() if name not in settings}
        relevance = wide.relevance_
        # The decoder uses a dimension if its relevance is at least a tenth of the largest
        dims = [int(q) for q in np.argsort(-relevance) if relevance[q] >= 0.1 * relevance.max()]
        self._n_features_out = len(dims)
        self.model_.encoder.keep(dims)
        self.model_.kernel = kernels.with_dimensions(wide.kernel_, dims)
        self.embedding_ = wide.embedding_[:, dims]
        self.posterior_ = self.model_.condition(wide.posterior_.X, wide.posterior_.Z[:, dims])
        return self

    def _check_world(self, world: int) -> None:
        if world > 1 and self.active_set_size is None:
            raise InputError(
                f"The exact GP-LVM has one batch, so it trains in one process, but {world} were started. Start one, or "
                "use SASGP."
            )

    def _resolve(self, rows: ArrayRows, n_rows: int) -> None:
        if self.active_set_size is None:
            self.batch_size_ = self.active_set_size_ = n_rows
            return
        batch, active = min(int(self.batch_size), n_rows), int(self.active_set_size)
        self.batch_size_ = batch
        self.active_set_size_ = active if batch == self.batch_size else min(active, (batch + 1) // 2)

    def _model_settings(self, n_rows: int) -> ModelSettings:
        A = None if self.active_set_size is None else self.active_set_size_
        return replace(super()._model_settings(n_rows), active_set_size=A)

    def _interim_posterior(self, rows: ArrayRows) -> Posterior:
        support = torch.randperm(len(rows), generator=generator(self.seed_, "early stopping"))[:400]
        return self._condition(rows, support)

    def _final_posterior(self, rows: ArrayRows) -> Posterior:
        chosen = self._choose_support(rows)
        self.support_rows_ = (chosen if rows.indices is None else rows.indices[chosen]).numpy()
        return self._condition(rows, chosen)

    @torch.no_grad()
    def _condition(self, rows: ArrayRows, chosen: Tensor) -> Posterior:
        X = rows.gather(chosen)
        return self.model_.condition(X, self.model_.encoder.position(X, chosen.to(self._device)))

    @torch.no_grad()
    def _choose_support(self, rows: ArrayRows) -> Tensor:
        """Indices of the rows to condition on. Random rows follow the density of the data."""
        draw, size = generator(self.seed_, "support"), int(self.support_size)
        order = torch.randperm(len(rows), generator=draw)
        if self.support == "random" or len(rows) <= size:
            return order[:size]
        order = order[: supports.CANDIDATES * size]
        parts = order.split(ENCODE_ROWS)  # type: ignore[no-untyped-call]
        Z = torch.cat([self.model_.encoder.position(rows.gather(part), part.to(self._device)) for part in parts])
        return order[supports.kmeans_plus_plus(Z, size, draw)]

    # ------------------------------------------------------------------------------------------------ support sets

    def predict(
        self,
        Z: Any,
        return_std: bool = False,
        *,
        n_supports: int = 1,
        neighbours: int | None = None,
        data: Any = None,
        out: Any = None,
    ) -> Array | tuple[Array, Array]:
        """Decode latents Z [M, Q]: the mean [M, D] of an observation there and, if asked for, its standard deviation.

        The standard deviation is that of a new observation, noise included. It grows away from the support points.
        `reconstruct` decodes rows.

        Parameters
        ----------
        Z : array-like [M, Q]
        return_std : bool
        n_supports : int
            Number of support sets to predict from. Each predicts by itself, and the results are combined.
            `add_supports` adds more sets.
        neighbours : int, optional
            Predict at each z from this many training rows, those nearest to it in units of the kernel's lengthscales,
            instead of from a support set. 128 to 512 are best in more than about three dimensions.
        data : array-like [N, D], optional
            The training rows, which `neighbours` needs: whatever `fit` takes. The model does not keep them. Files on
            disk are read a few rows at a time.
        out : path or array, optional
            As for `transform`; with return_std it is a pair.
        """
        check_is_fitted(self)
        check_count("n_supports", n_supports)
        decoder = self._decoder(neighbours, data)
        if neighbours is not None:
            if n_supports > 1:
                raise InputError(
                    f"n_supports={n_supports} cannot be combined with neighbours. Choose one of them.",
                    argument="n_supports",
                )
            return self._decode(Z, return_std, out, decoder)
        posteriors = [self.posterior_, *getattr(self, "supports_", ())]
        if n_supports > len(posteriors):
            raise InputError(
                f"n_supports must be at most {len(posteriors)}, the number of support sets that the model has. Got "
                f"{n_supports}. Call add_supports(X_train, {n_supports - len(posteriors)}) first.",
                argument="n_supports",
            )

        def moments(Z: Tensor) -> tuple[Tensor, Tensor]:
            predictions = [posterior.predict(Z) for posterior in posteriors[:n_supports]]
            return supports.combine(predictions, self.posterior_.feature_noise)

        return self._decode(Z, return_std, out, decoder, moments)

    def add_supports(self, X: Any, n_supports: int = 1) -> Self:
        """Draw further support sets from the training rows X [N, D], for `predict(Z, n_supports=...)`.

        Each has as many rows as the first, drawn at random, and no row is in two sets. They become part of the model
        and of its file. Only `predict` uses them; everything else uses the first set.
        """
        check_is_fitted(self)
        check_count("n_supports", n_supports)
        rows, size = self._rows(X), len(self.posterior_.Z)
        taken = 1 + len(getattr(self, "supports_", ()))
        too_few = len(rows) < max((taken + n_supports) * size, 1 + self.support_rows_.max())
        if too_few or (self._by_row and len(rows) != len(self.embedding_)):
            raise InputError(
                f"{n_supports} more support sets of {size} rows cannot be drawn from the {len(rows)} rows of X without "
                f"the rows in the present {taken}. Pass all training rows, ask for fewer sets, or fit with a smaller "
                "support_size."
            )
        free = torch.ones(len(rows), dtype=torch.bool)
        free[torch.from_numpy(self.support_rows_)] = False
        left = free.nonzero()[:, 0]
        order = left[torch.randperm(len(left), generator=generator(self.seed_, "supports", taken))]
        parts = order[: n_supports * size].view(n_supports, size)
        self.supports_ = [*getattr(self, "supports_", ()), *(self._condition(rows, part) for part in parts)]
        self.support_rows_ = np.concatenate([self.support_rows_, parts.flatten().numpy()])
        return self

    # ------------------------------------------------------------------------------------------------ files

    _SAVED: ClassVar[tuple[str, ...]] = (*GPEstimator._SAVED, "active_set_size_")

    def _posterior_tensors(self) -> dict[str, Tensor]:
        tensors = {"support.rows": torch.from_numpy(self.support_rows_)}
        for i, posterior in enumerate([self.posterior_, *getattr(self, "supports_", ())]):
            tensors |= {f"support.{i}.X": posterior.X, f"support.{i}.Z": posterior.Z}
        return tensors

    def _posterior_shapes(self, tensors: dict[str, Tensor]) -> dict[str, tuple[int | None, ...]]:
        Q, D = self.embedding_.shape[1], self.n_features_in_
        count = max(1, sum(name.startswith("support.") and name.endswith(".Z") for name in tensors))
        shapes: dict[str, tuple[int | None, ...]] = {"support.rows": (None,)}
        for i in range(count):
            Z = tensors.get(f"support.{i}.Z")
            rows = None if Z is None else len(Z)
            shapes |= {f"support.{i}.X": (rows, D), f"support.{i}.Z": (rows, Q)}
        return shapes

    def _restore_posterior(self, tensors: dict[str, Tensor]) -> None:
        self.support_rows_ = tensors["support.rows"].numpy(force=True)
        count = sum(name.startswith("support.") and name.endswith(".Z") for name in tensors)
        pairs = [(tensors[f"support.{i}.X"], tensors[f"support.{i}.Z"]) for i in range(count)]
        self.posterior_, *more = [self.model_.condition(X, Z) for X, Z in pairs]
        if more:
            self.supports_ = more


@dataclass(eq=False, repr=False)
class GPLVM(SASGP):
    """The exact GP-LVM: SASGP with all rows active, trained on log p(X|Z) itself (Eq. 2).

    Memory grows with the square of the number of rows, and time with its cube, so use it for up to a few thousand rows.
    Parameters, methods and attributes are those of :class:`SASGP`, except that there is no `active_set_size` and no
    `batch_size`, and that `latents="point"` is the default.
    """

    latents: Literal["bayesian", "point"] = "point"
    active_set_size: None = field(init=False, default=None)
    batch_size: int = field(init=False, default=SASGP.batch_size)
