"""SASGP and GPLVM: the decoder is a Gaussian process conditioned on all rows of the data.

So they have the evidence log p(X|Z), rows can be added to them, and dimensions can be left out after training.
"""

import math
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from sklearn.base import clone

from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.all_rows import AllRows
from sasgp.estimators.base import kept_until_the_end
from sasgp.gp import kernels
from sasgp.models.base import ModelSettings
from sasgp.models.sas import SASModel
from sasgp.models.settings import Settings, documented
from sasgp.training.loop import Alone

__all__ = ["GPLVM", "SASGP", "even_batch"]

SAVED = 0.9  # batches become smaller if that leaves at most this share of the work


@dataclass(eq=False, repr=False)
class SASGP(AllRows):
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
        The trained noise variance; one per feature if `noise_kind_` is "feature". With noise="local" it is the noise
        far from the data.
    n_components_ : int
        Dimensions of the latent space, also if n_components="auto" chose them.
    relevance_ : ndarray [Q]
        How much the decoder uses each dimension: the spread of the latents in it, in lengthscales of the kernel.
    active_set_size_, batch_size_ : int
        The sizes used; smaller than asked for if the data are few, or if smaller batches share the rows evenly.
    encoder_noise_ : float
        The `encoder_noise` used, also if "auto" chose it.
    noise_kind_ : str
        The `noise` used, also if "auto" chose it.
    precision_ : str
        The `precision` used, also if "auto" chose it.
    dtype_ : str
        The `dtype` used: "float64" if the squares of the data do not fit into float32.
    columns_ : Columns or None
        What the columns of a table were taken for. None if rows are numbers as they are.
    image_shape_ : tuple or None
        The shape of a row as an image: the setting's, or that of the array that `fit` was given.
    size_factor_ : float or None
        The total that the counts of cells are scaled to, if `fit` was given an AnnData object with counts.
    model_ : torch.nn.Module
        Encoder, kernel and noise as trained.
    posterior_ : Posterior
        The decoder, conditioned on all rows through its positions.
    support_size_ : int
        The number of these positions.
    missed_share_ : float
        The share of the prior's variance at the rows that the positions cannot express. If it is large, more positions
        or prediction from the nearest rows may help.

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

    # ------------------------------------------------------------------------------------------------ fitting

    def _fit(self, X: Any, array: Any, **how: Any) -> Self:
        if self.n_components != "auto":
            return super()._fit(X, array, **how)
        Q = min(12, array.shape[1])
        wide = clone(self).set_params(n_components=Q, kernel="rbf-ard", random_state=self.random_state)
        with kept_until_the_end(how) as checkpointer:
            return self._adopt(wide.fit(X, **how | {"checkpoint": checkpointer}), array)

    def _adopt(self, wide: Self, array: Any) -> Self:
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
        rows = ArrayRows(array, self._dtype, self._device)
        try:
            self.posterior_ = self._final_posterior(rows, Alone())
        except BaseException:
            self.__dict__.pop("model_", None)  # it would look like a fitted one
            raise
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
        self.active_set_size_ = active if batch == self.batch_size else min(active, (batch + 1) // 2)
        self.batch_size_ = even_batch(n_rows, batch, self.active_set_size_)

    def _model_settings(self, n_rows: int) -> ModelSettings:
        A = None if self.active_set_size is None else self.active_set_size_
        return replace(super()._model_settings(n_rows), active_set_size=A)

    _SAVED: ClassVar[tuple[str, ...]] = (*AllRows._SAVED, "active_set_size_")


def even_batch(n_rows: int, most: int, active: int) -> int:
    """The size of batches, at most `most`, that share the rows of an epoch evenly.

    The last batch of an epoch is filled up with rows that the epoch has had already: 1437 rows in two batches of 1024
    are 2048 rows of work. Two batches of 719 teach as much. With many batches in an epoch there is little to save, and
    they stay as large as asked for. At least a third of a batch is not active.
    """
    even = max(math.ceil(n_rows / math.ceil(n_rows / most)), math.ceil(1.5 * active))
    return even if even < SAVED * most else most


@dataclass(eq=False, repr=False)
class GPLVM(SASGP):
    __doc__ = (
        """The exact GP-LVM: all rows are active, and every row is a position.

    It is trained on log p(X|Z) itself (Eq. 2). Memory grows with the square of the number of rows, and time with its
    cube, so use it for up to a few thousand rows. Methods are those of :class:`SASGP`, and `latents="point"` is the
    default.
    """
        + documented(Settings, without=("active_set_size", "batch_size"))
        + """
    Attributes
    ----------
    embedding_, history_, kernel_, noise_, relevance_, n_components_, model_, posterior_
        As for :class:`SASGP`.
    """
    )

    latents: Literal["bayesian", "point"] = "point"
    active_set_size: None = field(init=False, default=None)
    batch_size: int = field(init=False, default=SASGP.batch_size)
    support_size: int | Literal["auto"] | None = None
