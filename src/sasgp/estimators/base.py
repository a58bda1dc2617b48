"""The base class of all estimators: `fit`, and the methods of `inference`, `decoding` and `persistence`.

A subclass names its model class (`_MODEL`) and makes the posterior that decodes during training and afterwards
(`_interim_posterior`, `_final_posterior`).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from torch import nn

from sasgp.data.images import image_shape_of
from sasgp.data.progress import rank_of_process
from sasgp.data.rows import ArrayRows
from sasgp.data.units import one_unit
from sasgp.errors import InputError
from sasgp.estimators.callbacks import Callback
from sasgp.estimators.imputation import Imputation
from sasgp.estimators.notebook import FittedCard, latent_card
from sasgp.estimators.persistence import Persistence
from sasgp.estimators.validation import check_image_shape, check_missing, check_rows, check_settings, seed_of
from sasgp.gp.posterior import Predictive
from sasgp.models.base import LatentModel, ModelSettings
from sasgp.models.build import auto_noise, build
from sasgp.models.precision import Precision, auto_precision
from sasgp.training import checkpoint as checkpoints
from sasgp.training.checkpoint import Checkpointer
from sasgp.training.distributed import agreed, anywhere, joined
from sasgp.training.fingerprint import differences, fingerprint, sample_fingerprint
from sasgp.training.initialise import Start, initialise
from sasgp.training.loop import DivergedError, Ranks, generator
from sasgp.training.malloc import keep_freed_memory
from sasgp.training.restored import check_run
from sasgp.training.run import Plan, TrainingRun

__all__ = ["LatentEstimator", "checked_fingerprint", "kept_until_the_end"]

Array = NDArray[np.floating[Any]]


class LatentEstimator(
    FittedCard, Imputation, Persistence, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """A latent space, with an encoder into it and a decoder out of it."""

    _MODEL: ClassVar[type[LatentModel]]
    _FITTED: ClassVar[tuple[str, ...]] = ("model_", "posterior_", "embedding_", "_found_mixture")

    history_: list[dict[str, Any]]
    image_shape_: Sequence[int] | None
    size_factor_: float | None
    batch_size_: int
    encoder_noise_: float
    noise_kind_: Literal["shared", "feature", "local"]
    precision_: Precision = "float32"
    missing_share_: float = 0.0
    _data_parts: list[Any]  # the number of rows and the fingerprint of the training data, and of each update

    # ------------------------------------------------------------------------------------------------ a class's own

    def _interim_posterior(self, rows: ArrayRows) -> Predictive:
        """The decoder during training, for held-out rows."""
        raise NotImplementedError

    def _final_posterior(self, rows: ArrayRows, ranks: Ranks) -> Predictive:
        """The trained decoder. `embedding_` is known before, and all processes call this together."""
        raise NotImplementedError

    def _check_world(self, world: int) -> None:
        """Raise InputError if this many processes cannot train together."""

    def _resolve(self, rows: ArrayRows, n_rows: int) -> None:
        """Set what depends on the data: the sizes for n_rows rows per process, as asked for or as the data allow."""
        self.batch_size_ = min(int(self.batch_size), n_rows)

    def _noise_for(self, n_rows: int) -> float:
        """The noise on the encoder's input that `encoder_noise` means for n_rows training rows of all processes."""
        if isinstance(self.encoder_noise, str):
            return auto_noise(n_rows, held=self.layout_weight > 0)
        return float(self.encoder_noise)

    def _kind_of_noise(self, array: Any) -> Literal["shared", "feature", "local"]:
        """What `noise` means for these rows."""
        if self.noise != "auto":
            return self.noise
        images = self.image_shape_ is not None
        return "shared" if images or (self.columns_ is None and one_unit(array)) else "feature"

    def _precision_for(self, saved: Mapping[str, Any] | None, ranks: Ranks) -> Precision:
        """What `precision` means here. A run that goes on keeps what it began with, and several processes agree."""
        if self.precision != "auto" and self.dtype_ == self.dtype:
            return self.precision
        if saved is not None:
            return "mixed" if saved["fingerprint"].get("precision") == "mixed" else "float32"
        if self.columns_ is not None:  # of which docs/measurements.md says why
            return "float32"
        chosen = auto_precision(self.encoder, self._dtype, self.n_scores_, self._device)
        return "float32" if anywhere(ranks, chosen == "float32", self._device) else "mixed"

    def _model_settings(self, n_rows: int) -> ModelSettings:
        """The settings that determine the model's structure. It needs what `_resolve` sets, and `encoder_noise_`."""
        default = "rbf-ard" if self.n_components == "auto" else "rbf"
        return ModelSettings(
            kind=self._MODEL,
            latents=self.latents,
            encoder=self.encoder,
            kernel=default if self.kernel is None else self.kernel,
            noise=self.noise_kind_,
            encoder_noise=self.encoder_noise_,
            n_rows=n_rows,
            image_shape=self.image_shape_,
            missing=self.missing_share_,
            precision=self.precision_,
            dtype=self._dtype,
            device=self._device,
        )

    # ------------------------------------------------------------------------------------------------ fitting

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        checkpoint: str | Path | Checkpointer | None = None,
        resume: str | Path | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train the decoder.

        Under torchrun, or if torch.distributed has a process group, all processes train one model: each takes its own
        batches of `batch_size` rows, and gradients are averaged. All processes must pass the same arguments. GPLVM and
        BayesianGPLVM train in one process.

        Parameters
        ----------
        X : array-like [N, D]
            An array, DataFrame, torch tensor or map-style torch Dataset; a memory map, which stays on disk; or a sparse
            matrix, which becomes dense one batch at a time. Missing values are NaN; each row must have at least one
            value. Images may have their shape, [N, H, W] or [N, C, H, W]: `image_shape_` remembers it. Decoded rows are
            always [M, D]. From an AnnData object, the highly variable genes are taken if they are marked, and counts
            become log1p(x m / n), with n the total of the cell and m the median of these: `size_factor_`.
        y : ignored
        checkpoint : path, optional
            A file, or a folder in which checkpoint.pt is written. It is written after every epoch and every three
            minutes within one, and removed at the end. Ctrl-C and SIGTERM then finish the step and save before they
            stop.
        resume : path, optional
            A checkpoint to go on from. The result has the same bits as without the interruption. Data and settings must
            be the same as when the checkpoint was made. Further checkpoints go to this file unless `checkpoint` names
            another.
        callback : callable, optional
            Called after every epoch with the estimator and the record of the epoch, a dict.
        """
        for name in self._FITTED:  # from an earlier fit
            self.__dict__.pop(name, None)
        self.size_factor_ = None  # unless X holds counts
        array = check_rows(self, X, reset=True)
        self.missing_share_ = check_missing(self, array)
        check_settings(self, len(array))
        self.image_shape_ = check_image_shape(self, array, image_shape_of(X))
        return self._fit(X, array, checkpoint=checkpoint, resume=resume, callback=callback)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Array:
        """Train the decoder on X and return the latents of its rows, [N, Q].

        Parameters
        ----------
        X : array-like [N, D], DataFrame or AnnData
            As for `fit`.
        y : ignored
        **fit_params
            `checkpoint`, `resume` and `callback`, as for `fit`.
        """
        return self.fit(X, y, **fit_params).embedding_

    def _fit(
        self,
        X: Any,
        array: Any,
        *,
        checkpoint: str | Path | Checkpointer | None,
        resume: str | Path | None,
        callback: Callback | None,
    ) -> Self:
        saved = None if resume is None else checkpoints.read(checkpoints.resolve(resume))
        with kept_until_the_end({"checkpoint": checkpoint, "resume": resume}) as checkpointer:
            try:
                with joined(self._device) as ranks, keep_freed_memory():
                    self._train(array, ranks, checkpointer, saved, callback)
            except BaseException:
                self.__dict__.pop("model_", None)  # a half-trained model would look like a fitted one
                raise
        return self

    def _train(
        self,
        array: Any,
        ranks: Ranks,
        checkpointer: Checkpointer,
        saved: dict[str, Any] | None,
        callback: Callback | None,
    ) -> None:
        if saved is not None:
            check_run(saved)
        self.precision_ = self._precision_for(saved, ranks)
        current = checked_fingerprint(lambda: self._fingerprint(array), saved, checkpointer)
        self._check_world(ranks.world)
        seed = seed_of(self.random_state) if saved is None else saved["seed"]
        self.seed_ = int(agreed(ranks, seed, self._device))
        self._n_features_out = int(self.n_components)

        everything = ArrayRows(array, self._dtype, self._device)
        rows, held_out = (everything, None) if self.early_stopping is None else self._split(everything)
        # With a table, each process has its own share of the rows
        self._resolve(rows, len(rows) // (ranks.world if self._by_row else 1))
        self.encoder_noise_ = self._noise_for(len(rows))
        self.noise_kind_ = self._kind_of_noise(array)
        self.model_ = build(self._model_settings(len(rows)), self.n_scores_, self.n_components_)
        if self.columns_ is not None:
            self.model_.dither = torch.as_tensor(self.columns_.dither(), dtype=self._dtype, device=self._device)
        if saved is None:
            initialise(self.model_, rows, self._start())
        self.history_ = []
        run = TrainingRun(
            self.model_,
            rows,
            self._plan(len(rows)),
            ranks=ranks,
            checkpointer=checkpointer,
            fingerprint=current,
            history=self.history_,
            held_out_loss=None if held_out is None else lambda: self._held_out_loss(rows, held_out),
            on_epoch=None if callback is None else lambda record: callback(self, record),
            saved=saved,
        )
        run.train()
        rows.release()
        self.embedding_ = self._encode_together(everything, ranks)
        if not np.isfinite(self.embedding_).all():
            raise DivergedError(
                "Training failed: some latents are not finite. Use dtype='float64' or a smaller learning rate, and "
                "look for extreme values in the data."
            )
        with torch.no_grad():
            self.posterior_ = self._final_posterior(everything, ranks)
        self._data_parts = [[len(array), sample_fingerprint(array, self.dtype_)]]

    def _split(self, rows: ArrayRows) -> tuple[ArrayRows, ArrayRows]:
        """Rows to train on and rows held out for early stopping."""
        n_held_out = max(1, round(self.validation_fraction * len(rows)))
        if len(rows) - n_held_out < 2:
            raise InputError(
                f"validation_fraction must leave at least 2 of the {len(rows)} rows to train on. Got "
                f"{self.validation_fraction}. Lower it.",
                argument="validation_fraction",
            )
        order = torch.randperm(len(rows), generator=generator(self.seed_, "validation"))
        # In the order of the data, so that reading from disk is fast
        held_out, kept = (rows.subset(part.sort().values) for part in (order[:n_held_out], order[n_held_out:]))
        return kept, held_out

    def _fingerprint(self, array: Any) -> dict[str, Any]:
        # verbose and device do not change the result
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("verbose", "device")}
        return fingerprint(array, {"class": type(self).__name__, **settings, "precision": self.precision_})

    def _start(self) -> Start:
        return Start(
            n_components=self.n_components_,
            init=self.init,
            layout_weight=float(self.layout_weight),
            by_feature=self.noise_kind_ == "feature",
            own_kernel=isinstance(self.kernel, Kernel),
            batch_size=self.batch_size_,
            seed=self.seed_,
            verbose=self.verbose,
        )

    def _plan(self, n_rows: int) -> Plan:
        epochs = None if self.max_epochs is None else int(self.max_epochs)
        # By default, about 1000. Processes share the steps, but the number of processes may change in a run
        n_steps = None if epochs is None else epochs * math.ceil(n_rows / self.batch_size_)
        return Plan(  # plain numbers, because a checkpoint holds no others
            batch_size=self.batch_size_,
            max_epochs=epochs,
            learning_rate=self.encoder_rate(n_steps),
            hyper_learning_rate=float(self.hyper_learning_rate),
            early_stopping=self.early_stopping,
            seed=self.seed_,
            verbose=self.verbose,
        )

    @torch.no_grad()
    def _held_out_loss(self, rows: ArrayRows, held_out: ArrayRows) -> float:
        """Negative log density per value of rows that training does not see."""
        posterior = self._interim_posterior(rows)
        total = n_values = 0.0
        for X in held_out.blocks(posterior.block_size):
            total -= float(posterior.log_density(X, self.model_.encoder.position(X)).sum())
            n_values += float((~X.isnan()).sum()) if self.missing_share_ else X.numel()
        return total / n_values

    # ------------------------------------------------------------------------------------------------ attributes

    def _card(self) -> str:
        return latent_card(self, type(self).__name__)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [self.dtype]
        tags.input_tags.sparse = True
        tags.input_tags.three_d_array = True
        tags.input_tags.allow_nan = not isinstance(self.encoder, nn.Module)
        return tags


@contextmanager
def kept_until_the_end(how: Mapping[str, Any]) -> Iterator[Checkpointer]:
    """What writes the checkpoints of a fit with these arguments. Their file is removed if the block has no error."""
    if isinstance(how["checkpoint"], Checkpointer):
        yield how["checkpoint"]  # the caller decides what happens to the file
        return
    place = how["checkpoint"] if how["checkpoint"] is not None else how["resume"]
    path = None if place is None else checkpoints.resolve(place)
    yield Checkpointer(path)
    if path is not None and not rank_of_process():
        path.unlink(missing_ok=True)


def checked_fingerprint(
    make: Callable[[], dict[str, Any]], saved: dict[str, Any] | None, checkpointer: Checkpointer
) -> dict[str, Any]:
    """What must be the same to go on with a fit; nothing without a checkpoint, because `make` reads all rows.

    Raises InputError if the checkpoint `saved`, which `check_run` has seen, was made with other data or settings.
    """
    if saved is None and checkpointer.path is None:
        return {}
    current = make()
    if saved is None:
        return current
    silent = {"precision": "float32"} if "precision" in current else {}  # what older checkpoints do not say
    if different := differences(silent | saved["fingerprint"], current):
        raise InputError(
            f"resume needs the data and settings that the checkpoint was made with. These differ: {different}. "
            "Put them back, or start again without resume.",
            argument="resume",
        )
    return current
