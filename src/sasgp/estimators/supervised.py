"""The base class of SASGPRegressor and SASGPClassifier: `fit`, `update`, and what predictions are conditioned on.

A subclass turns its targets into standardised numbers before training (`_learn_targets`), and the Gaussian process's
means and variances of these into predictions.

Unlike a decoder, a regression keeps its training rows: predictions are made from those nearest to a query.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_consistent_length, check_is_fitted
from torch import Tensor

from sasgp.data.blocks import rows_at_once, slices
from sasgp.data.columns import Columns
from sasgp.data.pairs import PairedRows
from sasgp.data.progress import progress_bar
from sasgp.data.rows import ArrayRows, row_blocks
from sasgp.errors import InputError
from sasgp.estimators.base import checked_fingerprint, kept_until_the_end
from sasgp.estimators.callbacks import Callback
from sasgp.estimators.notebook import FittedCard, supervised_card
from sasgp.estimators.supervised_storage import SupervisedPersistence
from sasgp.estimators.validation import check_choice, check_count, check_device, check_number, check_rows, seed_of
from sasgp.gp import kernels
from sasgp.gp.nearest import NearestRows
from sasgp.gp.neighbours import Neighbours
from sasgp.gp.positions import CHOSEN_FROM, choose
from sasgp.gp.posterior import GaussianProcess
from sasgp.gp.row_sums import RowSums, condition
from sasgp.models.regression import LEAST_NOISE, RegressionModel, RegressionSettings
from sasgp.models.settings import SupervisedSettings
from sasgp.training import checkpoint as checkpoints
from sasgp.training.checkpoint import Checkpointer
from sasgp.training.distributed import agreed, joined, same_everywhere
from sasgp.training.fingerprint import fingerprint
from sasgp.training.loop import Ranks, generator
from sasgp.training.malloc import keep_freed_memory
from sasgp.training.regression import STEPS, sharpen, start, steps_of_sharpening
from sasgp.training.restored import check_run
from sasgp.training.run import Plan, TrainingRun

__all__ = ["ATTRIBUTES", "SupervisedEstimator"]

Array = NDArray[Any]

EXACT_ROWS = 2000  # that prediction="auto" conditions on exactly

ATTRIBUTES = """
    kernel_ : gpytorch.kernels.Kernel
        The trained kernel, of standardised inputs and standardised targets.
    relevance_ : ndarray [P]
        How much each input matters: the spread of the training rows in it, in lengthscales of the kernel.
    prediction_ : str
        What predictions are conditioned on: "nearest", "all-rows" or "exact".
    history_ : list of dict
        One record per epoch: epoch, step, loss, noise, learning_rate, seconds, dropped.
    columns_ : Columns or None
        What the columns of a table of inputs were taken for.
    dtype_ : str
        The `dtype` used: "float64" if the squares of the inputs do not fit into float32.
    model_ : torch.nn.Module
        Kernel, noise and units as trained.
"""  # of every class, for its docstring


class SupervisedEstimator(FittedCard, SupervisedPersistence, SupervisedSettings, BaseEstimator):
    """Gaussian-process regression of standardised targets, trained with stochastic active sets."""

    history_: list[dict[str, Any]]
    targets_: Columns  # of a regressor
    single_target_: bool
    classes_: Array  # of a classifier
    frequencies_: list[float]
    calibration_: list[float]
    _targets: Tensor  # [N, T], standardised
    _places: Tensor  # [N, Q], where the kernel sees the training rows

    # ------------------------------------------------------------------------------------------------ a class's own

    def _learn_targets(self, y: Any) -> Array:
        """Look at the targets of a fit, and return them standardised, [N, T]."""
        raise NotImplementedError

    def _more_targets(self, y: Any) -> Array:
        """Further targets, standardised as those of the fit, [N, T]."""
        raise NotImplementedError

    def _choose_maps(self) -> bool:
        """Replace targets by others that a Gaussian process explains better, and say whether there are any."""
        return False

    def _calibrate(self) -> None:
        """Set what predictions need besides the posterior."""

    # ------------------------------------------------------------------------------------------------ fitting

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "posterior_")

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        checkpoint: str | Path | Checkpointer | None = None,
        resume: str | Path | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Learn the kernel and the noise, and keep the rows for predictions.

        Under torchrun, all processes train one model, as :class:`SASGP` does.

        Parameters
        ----------
        X : array-like [N, P]
            An array, DataFrame, torch tensor, memory map or sparse matrix. Missing values are NaN.
        y : array-like [N] or [N, T]
            One target for each row, or several. A classifier takes one class for each row, [N].
        checkpoint, resume, callback : optional
            As for :meth:`SASGP.fit`.
        """
        self.__dict__.pop("posterior_", None)  # from an earlier fit
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None. Call fit(X, y).",
                argument="y",
            )
        array = check_rows(self, X, reset=True)
        check_consistent_length(array, y)
        self._check_settings()
        targets = torch.from_numpy(self._learn_targets(y))
        saved = None if resume is None else checkpoints.read(checkpoints.resolve(resume))
        with (
            kept_until_the_end({"checkpoint": checkpoint, "resume": resume}) as checkpointer,
            joined(self.torch_device()) as ranks,
            keep_freed_memory(),
        ):
            self._train(array, targets, ranks, checkpointer, saved, callback)
            self._condition()
        self._calibrate()
        return self

    def _train(
        self,
        array: Any,
        targets: Tensor,
        ranks: Ranks,
        checkpointer: Checkpointer,
        saved: dict[str, Any] | None,
        callback: Callback | None,
    ) -> None:
        if saved is not None:
            check_run(saved)
        current = checked_fingerprint(lambda: self._fingerprint(array, targets), saved, checkpointer)
        seed = seed_of(self.random_state) if saved is None else saved["seed"]
        self.seed_ = int(agreed(ranks, seed, self.torch_device()))
        N = len(array)
        self.batch_size_ = min(int(self.batch_size), N)
        self.active_set_size_ = min(int(self.active_set_size), (self.batch_size_ + 1) // 2)
        self.holed_ = _columns_with_holes(array)
        self.model_ = RegressionModel.build(self._structure(targets.shape[1]))
        own = isinstance(self.kernel, Kernel)
        if saved is None:
            start(self.model_, array, own_kernel=own, seed=self.seed_)
        everything = ArrayRows(array, self.model_.centre.dtype, self.torch_device())
        enough = STEPS * self.batch_size_ * ranks.world
        rows = PairedRows(everything, targets)
        if len(rows) > enough:
            rows = rows.subset(torch.randperm(N, generator=generator(self.seed_, "rows"))[:enough].sort().values)
        steps = math.ceil(len(rows) / (self.batch_size_ * ranks.world))
        self.history_ = []
        TrainingRun(
            self.model_,
            rows,
            Plan(
                batch_size=self.batch_size_,
                max_epochs=math.ceil(STEPS / steps) if self.max_epochs is None else int(self.max_epochs),
                learning_rate=float(self.learning_rate),
                hyper_learning_rate=float(self.hyper_learning_rate),
                early_stopping=None,
                seed=self.seed_,
                verbose=self.verbose,
            ),
            ranks=ranks,
            checkpointer=checkpointer,
            fingerprint=current,
            history=self.history_,
            on_epoch=None if callback is None else lambda record: callback(self, record),
            saved=saved,
        ).train()
        self._targets, self._places = targets, self._placed(everything)
        self._sharpen()
        if self._choose_maps():
            self._sharpen()
        same_everywhere(self.model_.state_dict().values(), ranks)

    def _sharpen(self) -> None:
        """Fit kernel and noise to what predictions use.

        Not those of a deep kernel: its network brings the training rows together that it has learned by heart, so that
        each explains the next too well.
        """
        if self.model_.features is not None:
            return
        with progress_bar("nearest rows", steps_of_sharpening(len(self._places)), show=self.verbose) as update:
            sharpen(self.model_, self._places, self._targets.to(self._places.device), self.seed_, update)

    def _structure(self, n_targets: int) -> RegressionSettings:
        return RegressionSettings(
            kernel=self.kernel,
            n_inputs=self._n_inputs,
            n_targets=n_targets,
            holed=tuple(self.holed_),
            active_set_size=self.active_set_size_,
            least_noise=self._LEAST_NOISE,
            dtype=getattr(torch, self.dtype_),
            device=self.torch_device(),
        )

    @property
    def _n_inputs(self) -> int:
        columns: Columns | None = self.columns_
        return self.n_features_in_ if columns is None else columns.n_scores

    @torch.no_grad()
    def _placed(self, rows: ArrayRows) -> Tensor:
        """The positions of all rows, [N, Q]."""
        parts = [self.model_.places(X) for X in rows.blocks(rows_at_once(self._n_inputs))]
        return torch.cat(parts)

    def _fingerprint(self, array: Any, targets: Tensor) -> dict[str, Any]:
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("verbose", "device")}
        return fingerprint(array, {"class": type(self).__name__, "targets": targets.numpy(), **settings})

    def _check_settings(self) -> None:
        for name in ("neighbours", "support_size", "active_set_size", "batch_size"):
            check_count(name, getattr(self, name))
        if self.max_epochs is not None:
            check_count("max_epochs", self.max_epochs)
        for name in ("learning_rate", "hyper_learning_rate"):
            check_number(name, getattr(self, name), "a positive number", lambda x: 0 < x < math.inf)
        check_choice("prediction", self.prediction, ("auto", "nearest", "all-rows", "exact"))
        check_choice("dtype", self.dtype, ("float32", "float64"))
        if not isinstance(self.kernel, Kernel):
            check_choice("kernel", self.kernel, (*kernels.NAMES, "deep"), "or a gpytorch.kernels.Kernel")
        check_device(self)
        if self.active_set_size >= self.batch_size:
            raise InputError(
                f"active_set_size must be smaller than batch_size. Got {self.active_set_size} with batch_size="
                f"{self.batch_size}: no row would be left to predict. Lower active_set_size or raise batch_size.",
                argument="active_set_size",
            )

    # ------------------------------------------------------------------------------------------------ the posterior

    @property
    def kernel_(self) -> Kernel:
        """The trained kernel."""
        return self.model_.kernel

    @property
    def prediction_(self) -> str:
        """What predictions are conditioned on: "nearest", "all-rows" or "exact"."""
        if self.prediction != "auto":
            return self.prediction
        return "exact" if len(self._targets) <= EXACT_ROWS else "nearest"

    @torch.no_grad()
    def _condition(self, centres: Tensor | None = None) -> None:
        """Make the posterior from all training rows; `centres` are those of their index in a file."""
        model, Z, Y = self.model_, self._places, self._targets.to(self._places.device)
        zero = torch.zeros(Y.shape[1], dtype=torch.float64, device=Z.device)
        if self.prediction_ == "exact":
            self.posterior_: GaussianProcess = condition(model.kernel, model.noise, Z, Y, zero)
        elif self.prediction_ == "all-rows":
            draw = generator(self.seed_, "positions")
            some = torch.randperm(len(Z), generator=draw)[:CHOSEN_FROM].to(Z.device)
            U = Z[some][choose(model.kernel, Z[some], int(self.support_size), draw)]
            sums = RowSums(model.kernel, U, Y.shape[1])
            for part in slices(len(Z), len(U)):
                sums.add(Y[part], Z[part])
            self.posterior_ = sums.posterior(model.noise, zero)
        else:
            self.posterior_ = self._nearest(min(int(self.neighbours), len(Z)), centres)

    def _nearest(self, k: int, centres: Tensor | None = None) -> NearestRows:
        model, Z, Y = self.model_, self._places, self._targets.to(self._places.device)
        index = Neighbours(Z, kernels.units_of(model.kernel, Z.shape[1]), centres)
        zero = torch.zeros(Y.shape[1], dtype=torch.float64, device=Z.device)
        return NearestRows(model.kernel, model.noise, Z, lambda rows: Y[rows], zero, k, index=index)

    def update(self, X: Any, y: Any) -> Self:
        """Add training rows, without training again: predictions are then conditioned on them, too.

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes, with the same columns.
        y : array-like [M] or [M, T]
            The targets of these rows.
        """
        check_is_fitted(self)
        array = check_rows(self, X, reset=False)
        check_consistent_length(array, y)
        more = torch.from_numpy(self._more_targets(y))
        places = self._placed(ArrayRows(array, self.model_.centre.dtype, self.torch_device()))
        self._targets, self._places = torch.cat([self._targets, more]), torch.cat([self._places, places])
        # With new cells, because new rows may lie elsewhere. To find centres is less work than to sort rows to them
        self._condition()
        return self

    def _moments(self, X: Any) -> Iterator[tuple[Array, Array]]:
        """Means [m, T] and variances [m, 1] of standardised targets at rows X, one block at a time."""
        check_is_fitted(self)
        array = check_rows(self, X, reset=False)
        rows = ArrayRows(array, self.model_.centre.dtype, self.torch_device())
        size = min(self.posterior_.block_size, rows_at_once(self._n_inputs))
        with torch.no_grad(), progress_bar("predictions", len(rows), show=self.verbose) as update:
            done = 0
            for block in rows.blocks(size):
                mean, var = self.posterior_.predict(self.model_.places(block))
                yield mean.numpy(force=True), var.numpy(force=True)
                done += len(block)
                update(done)

    def predict_scores(self, X: Any) -> tuple[Array, Array]:
        """Means [M, T] and standard deviations [M, 1] of the standardised targets at rows X, noise included.

        Parameters
        ----------
        X : array-like [M, P]
            Whatever `fit` takes.
        """
        means, variances = zip(*self._moments(X), strict=True)
        return np.concatenate(means), np.sqrt(np.concatenate(variances))

    # ------------------------------------------------------------------------------------------------ attributes

    @property
    def relevance_(self) -> Array:
        """How much each input matters, [P]: the spread of the training rows in it, in lengthscales of the kernel.

        Of a column of a table, the largest of its scores; of a column with missing values, also whether they are
        missing. There is none for a deep kernel.
        """
        check_is_fitted(self)
        if self.model_.features is not None:
            raise AttributeError("A deep kernel has no relevance of inputs: its network mixes them.")
        each = np.array(kernels.relevance(self.model_.kernel, self._places.cpu()))
        found, extra = each[: self._n_inputs], each[self._n_inputs :]
        for column, value in zip(self.holed_, extra, strict=True):
            found[column] = max(found[column], value)
        if self.columns_ is None:
            return found
        return np.array([found[part].max() for _, _, part in self.columns_.parts()])

    def _card(self) -> str:
        return supervised_card(self)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        return tags

    _LEAST_NOISE: ClassVar[float] = LEAST_NOISE
    _SAVED: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "dtype_",
        "batch_size_",
        "active_set_size_",
        "seed_",
        "history_",
        "holed_",
    )


def _columns_with_holes(array: Any) -> list[int]:
    """The columns of an array that have missing values."""
    holed = np.zeros(array.shape[1], bool)
    for _, block in row_blocks(array):
        if block.dtype.kind == "f":
            holed |= np.isnan(block).any(0)
    return [int(column) for column in holed.nonzero()[0]]
