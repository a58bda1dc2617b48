"""What every decoder shares: fit, transform, predict, scores, samples, files.

A class of decoders says how its model is made (`_model`), what decodes while it trains and afterwards (`_interim`,
`_final`), and what of it goes into a file and comes back (`_tensors`, `_restore`).
"""

import copy
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar, overload

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import Dataset

from sasgp import __version__
from sasgp.data.outputs import Out, Sink
from sasgp.data.rows import ArrayRows, moments, take_rows
from sasgp.errors import InputError
from sasgp.estimators import inference, neighbours, storage
from sasgp.estimators.validation import (
    check_count,
    check_image_shape,
    check_latents,
    check_precision,
    check_rows,
    check_settings,
)
from sasgp.explorer import Explorer, explore
from sasgp.gp import kernels, supports
from sasgp.gp.posterior import Predictive
from sasgp.models.encoders import Custom, Encoder, Table
from sasgp.models.settings import Settings
from sasgp.training import initialise, layouts
from sasgp.training.checkpoint import Keeper, differences, fingerprint, resolve, sampled
from sasgp.training.checkpoint import read as read_checkpoint
from sasgp.training.distributed import agreed, joined
from sasgp.training.loop import Ranks, generator
from sasgp.training.malloc import kept_heap
from sasgp.training.progress import progress_bar
from sasgp.training.run import Callback, fit_model

__all__ = ["BaseDecoder"]

T = TypeVar("T")
Array = NDArray[np.floating[Any]]

FITTED = ("model_", "posterior_", "embedding_", "support_rows_", "supports_", "neighbours_")
ENCODE_ROWS = 4096  # encoded at a time
# What leaving the encoder's answer costs in refinement, as a part of what leaving the layout costs in training. (MNIST
# and Fashion-MNIST, 1000 training rows held out, 200 nats: 1-NN stays within .002; with 50 it loses .010 on MNIST.)
HELD = 0.25
SCORE_SAMPLES = 16  # the median row of digits is then within .01 nats of the integral


class BaseDecoder(Settings, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """A latent space, an encoder into it and a decoder out of it."""

    model_: Any
    posterior_: Any
    embedding_: Array
    history_: list[dict[str, Any]]
    n_features_in_: int
    batch_size_: int
    seed_: int
    image_shape_: Sequence[int] | None = None  # of a file that is older than convolutions

    # ------------------------------------------------------------------------------------------------ a decoder's own

    def _model(self, encoder: Encoder, rows: ArrayRows, measured: initialise.Measured) -> Any:
        """The model as training finds it."""
        raise NotImplementedError

    def _interim(self, rows: ArrayRows) -> Predictive:
        """The decoder in the midst of training, for rows that are held out."""
        raise NotImplementedError

    def _final(self, rows: ArrayRows) -> Predictive:
        """The trained decoder."""
        raise NotImplementedError

    def _tensors(self) -> dict[str, Tensor]:
        """What a file holds besides encoder and kernel, the embedding among it."""
        raise NotImplementedError

    def _restore(self, encoder: Encoder, kernel: Any, tensors: dict[str, Tensor]) -> None:
        """Rebuild model and posterior from what a file holds."""
        raise NotImplementedError

    def _check_world(self, world: int) -> None:
        """Raise InputError where so many processes cannot train together."""

    def _set_sizes(self, N: int) -> None:
        """Sizes for N rows: as asked for, or what the data allow."""
        self.batch_size_ = min(int(self.batch_size), N)

    # ------------------------------------------------------------------------------------------------ fitting

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        checkpoint: str | Path | Keeper | None = None,
        resume: str | Path | None = None,
        callback: Callback | None = None,
    ) -> Self:
        """Train the decoder.

        Under torchrun, or where torch.distributed has a process group, all processes train one model: each takes
        batches of `batch_size` rows of its own, and gradients are averaged. Every process must pass the same arguments.

        Parameters
        ----------
        X : array-like [N, D]
            Array, DataFrame, torch tensor or map-style torch Dataset of finite numbers, or a memory map, which stays on
            disk.
        y : ignored
        checkpoint : path, optional
            A file, or a folder for checkpoint.pt in it, that is written after every epoch and every three minutes
            within one, and removed at the end. Ctrl-C and SIGTERM then finish the step and save before they stop.
        resume : path, optional
            A checkpoint to go on from, to the same bits as without the interruption. Data and settings must be those it
            was made with. Checkpoints go on into this file unless `checkpoint` names another.
        callback : callable, optional
            Called with the estimator and the record of the epoch, a dict, after every epoch.
        """
        for name in FITTED:  # by another fit
            self.__dict__.pop(name, None)
        array = check_rows(self, X, reset=True)
        check_settings(self, len(array))
        self.image_shape_ = check_image_shape(self, array)
        return self._fit(X, array, checkpoint=checkpoint, resume=resume, callback=callback)

    def _fit(
        self,
        X: Any,
        array: Any,
        *,
        checkpoint: str | Path | Keeper | None,
        resume: str | Path | None,
        callback: Callback | None,
    ) -> Self:
        keeper = _keeper(checkpoint if checkpoint is not None else resume)
        saved = None if resume is None else read_checkpoint(resolve(resume))
        try:
            with joined(self._device) as ranks, kept_heap():
                self._train(array, ranks, keeper, saved, callback)
        except BaseException:
            self.__dict__.pop("model_", None)  # half of a model would pass for one
            raise
        if not isinstance(checkpoint, Keeper) and keeper.path is not None and ranks.rank == 0:
            keeper.path.unlink(missing_ok=True)
        return self

    def _train(
        self, array: Any, ranks: Ranks, keeper: Keeper, saved: dict[str, Any] | None, callback: Callback | None
    ) -> None:
        dtype, device = self._dtype, self._device
        # verbose and device change nothing that is learnt
        settings = {k: v for k, v in self.get_params(deep=False).items() if k not in ("verbose", "device")}
        mark = fingerprint(
            len(array), take_rows(array, sampled(len(array))), {"class": type(self).__name__, **settings}
        )
        if saved is not None and (different := differences(saved["fingerprint"], mark)):
            raise InputError(
                f"Going on needs the data and the settings that the checkpoint was made with. Got others: {different}. "
                "Put them back, or start again without resume."
            )
        self._check_world(ranks.world)
        seed = seed_of(self.random_state) if saved is None else saved["seed"]
        self.seed_ = int(agreed(ranks, seed, device))
        self._n_features_out = int(self.n_components)

        rows = everything = ArrayRows(array, dtype, device)
        held_out = None
        if self.early_stopping is not None:
            order = torch.randperm(len(rows), generator=generator(self.seed_, "validation"))
            n_held_out = max(1, round(self.validation_fraction * len(rows)))
            if len(rows) - n_held_out < 2:
                raise InputError(
                    f"validation_fraction must leave at least 2 of the {len(rows)} rows to train on. Got "
                    f"{self.validation_fraction}; lower it."
                )
            # In the order of the data, which is that of the disk
            held_out, rows = (rows.subset(part.sort().values) for part in (order[:n_held_out], order[n_held_out:]))
        # With a table every process has a share of the rows to itself
        self._set_sizes(len(rows) // (ranks.world if self._by_row else 1))
        self.model_ = self._start(array, rows, resumed=saved is not None)
        fit_model(
            self,
            rows,
            ranks=ranks,
            held_out_loss=None if held_out is None else lambda: self._held_out_loss(rows, held_out),
            keeper=keeper,
            fingerprint=mark,
            saved=saved,
            callback=callback,
        )
        self.model_.anchor = None  # has served its time
        rows.release()
        with torch.no_grad():
            self.posterior_ = self._final(rows)
        self.embedding_ = self._encode(everything)

    def _start(self, array: Any, rows: ArrayRows, *, resumed: bool) -> Any:
        """The model as training finds it. One that is resumed needs its structure alone: a file has its numbers."""
        dtype, device = self._dtype, self._device
        if resumed:
            mean, variances, ranges = np.zeros(array.shape[1]), *np.ones((2, array.shape[1]))
        else:
            mean, variances, ranges = moments(array)
        D, Q = self.n_features_in_, self.n_components_
        variance = float(variances.mean()) or 1.0  # constant data have no scale of their own
        measured = initialise.Measured(
            centre=torch.as_tensor(mean, dtype=dtype, device=device),
            variance=variance,
            scales=initialise.scales(torch.as_tensor(variances / variance), torch.as_tensor(ranges / variance**0.5)),
            noise=initialise.noise(D, Q) * variance,
            encoder_noise=self.encoder_noise * initialise.noise_share(D, Q),
        )
        units = variance**0.5 * (measured.scales[1] if self.noise == "feature" else torch.ones(()))
        if not resumed:
            check_precision(np.where(ranges > 0, mean, 0.0), units.numpy(), dtype)  # a constant has nothing to lose
        units = units.to(device, dtype)
        layout: initialise.Layout | None
        if resumed:
            layout = initialise.Layout(torch.zeros(len(rows), Q, dtype=dtype, device=device))
        else:
            layout = self._layout(array, rows, units)
        with progress_bar("encoder", initialise.fit_steps(layout), show=self.verbose) as update:
            encoder = initialise.encoder(
                self,
                rows,
                measured.centre,
                units,
                layout,
                self.seed_,
                update,
                fitted=not resumed,
                image_shape=self.image_shape_,
            )
        model = self._model(encoder, rows, measured).to(device, dtype)
        if layout is not None and self.neighbours:
            chosen = self._laid_out(rows)
            targets = layout.Z if chosen is None else layout.Z[: len(chosen)]  # of a layout to fill in they are more
            weight = float(self.neighbours) * D  # the objective has as many values a row
            model.anchor = initialise.anchor(initialise.Layout(targets, chosen), len(rows), weight).to(device)
        if layout is not None and not resumed:
            with progress_bar("kernel and noise", initialise.SETTLE_STEPS, show=self.verbose) as update:
                initialise.settle(model, rows, self.batch_size_, self.seed_, update)
        return model

    def _layout(self, array: Any, rows: ArrayRows, units: Tensor) -> initialise.Layout | None:
        """Where rows start, all or a subset of them; None where that is a projection, which needs no layout."""
        if isinstance(self.init, str) and self.init not in layouts.NAMES:
            return None
        among, chosen = np.arange(len(array)) if rows.indices is None else rows.indices.numpy(), self._laid_out(rows)
        if self._has_to_lay_out:
            among = among if chosen is None else among[chosen.numpy()]
            X = take_rows(array, among).astype(self.dtype)
            X = X / units.numpy(force=True) if units.ndim else X
            name = self.init if isinstance(self.init, str) else type(self.init).__name__
            with progress_bar(f"layout of {len(X)} rows ({name})", None, show=self.verbose):
                Z = layouts.lay_out(self.init, X, self.n_components_, self.seed_)
        else:
            Z = np.asarray(self.init)[among]
        return initialise.Layout(torch.as_tensor(Z, dtype=self._dtype, device=self._device), chosen)

    @property
    def _has_to_lay_out(self) -> bool:
        return isinstance(self.init, str) or hasattr(self.init, "fit_transform")

    def _laid_out(self, rows: ArrayRows) -> Tensor | None:
        """Which rows are laid out, None being all: a random subset where they are many, and none is given."""
        if not self._has_to_lay_out or len(rows) <= (most := layouts.max_rows(self.init, self.n_features_in_)):
            return None
        return torch.randperm(len(rows), generator=generator(self.seed_, "layout"))[:most].sort().values

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Array:
        """Train the decoder on X and return the latents of its rows."""
        return self.fit(X, y, **fit_params).embedding_

    @torch.no_grad()
    def _held_out_loss(self, rows: ArrayRows, held_out: ArrayRows) -> float:
        """Negative log density for each entry of rows that training does not see."""
        posterior = self._interim(rows)
        total = 0.0
        for X in held_out.blocks(posterior.block_size):
            total -= float(posterior.log_density(X, self.model_.encoder.position(X)).sum())
        return total / (len(held_out) * self.n_features_in_)

    # ------------------------------------------------------------------------------------------------ using it

    @overload
    def transform(self, X: Any, *, refine: int = 0, return_std: Literal[False] = False, out: Any = None) -> Array: ...

    @overload
    def transform(self, X: Any, *, refine: int = 0, return_std: bool, out: Any = None) -> Any: ...

    def transform(self, X: Any, *, refine: int = 0, return_std: bool = False, out: Any = None) -> Any:
        """Latents [M, Q] of rows X [M, D].

        With a network this is one forward pass, the mean of q(z|x). With encoder="table" every row's position is found
        by optimising its density under the decoder.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes. Memory maps and Datasets are read a block at a time.
        refine : int
            Steps by which log p(x|z) + log p(z) is climbed from the encoder's answer, from the support points that
            explain the row best and, after `build_index`, from the latents of the nearest rows there. No row ends lower
            than the encoder put it. 0: the encoder's answer. 20 is enough for most. With `neighbours` a network's
            answer is the only start, and leaving it has a cost, as leaving the layout had in training: a better
            explanation far away would be one among other neighbours.
        return_std : bool
            Return also the standard deviation [M, Q] of each latent, for Bayesian latents: that of q(z|x) from the
            network. Where z* was refined or searched for, it is that of the Gaussian with the curvature of p(z|x) at z*
            (Laplace's approximation): the network's belongs to the network's own answer.
        out : path or array, optional
            Where the result goes, a block at a time: the name of a .npy file, which then comes back as a memory map, or
            an array [M, Q]. With return_std it is a pair.
        """
        check_is_fitted(self)
        self._check_bayesian("return_std", return_std)
        return self._encode(self._rows(X), known=False, refine=refine, return_std=return_std, out=out)

    def posterior_samples(self, X: Any, n_samples: int = 1, *, refine: int = 0, random_state: Any = None) -> Array:
        """Draw latents [n_samples, M, Q] of rows X [M, D]: where they may lie, for Bayesian latents.

        The draws are from the Gaussian whose mean and standard deviation `transform(X, refine=..., return_std=True)`
        returns. With `refine` it follows the correlation of the latents too.

        Parameters
        ----------
        X : array-like [M, D]
        n_samples : int
        refine : int
            As for `transform`.
        random_state : int, RandomState or None
            None draws anew each time.
        """
        check_is_fitted(self)
        self._check_bayesian("posterior_samples", True)
        check_count("n_samples", n_samples)
        rows, draw = self._rows(X), generator(seed_of(random_state), "posterior")
        samples = np.empty((n_samples, len(rows), self.n_components_), self.dtype)
        done = 0
        for _, Z, F in self._located(rows, ENCODE_ROWS, refine=refine, spread=True):
            assert F is not None
            epsilon = torch.randn(len(Z), self.n_components_, n_samples, generator=draw, dtype=F.dtype).to(F.device)
            # z = z* + F ε
            samples[:, done : done + len(Z)] = (Z[:, :, None] + F @ epsilon).permute(2, 0, 1).numpy(force=True)
            done += len(Z)
        return samples

    def build_index(self, X: Any) -> Self:
        """Index rows X [N, D], as a rule the training rows: their latents become starts for `transform(refine=...)`.

        `save` leaves the index beside the model file, and `load` finds it there. It holds up to 64 principal
        coordinates of every row: whoever has it can tell roughly what the rows are. With encoder="table" X must be the
        training rows, in their order. More than 200 000 rows need the extra `neighbours`. A network that was trained
        with `neighbours=` needs no index: its own answer is the only start.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        if self._by_row and len(rows) != len(self.embedding_):
            raise InputError(
                f"With encoder='table' the index must be of the {len(self.embedding_)} training rows, whose "
                f"latents are known. Got {len(rows)} rows; hand over those that the model was fitted to."
            )
        Z = self.embedding_ if self._by_row else self._encode(rows)
        self.neighbours_ = neighbours.build(rows, Z, self.seed_)
        return self

    def predict(self, Z: Any, return_std: bool = False, *, out: Any = None) -> Array | tuple[Array, Array]:
        """Decode latents Z [M, Q]: the mean [M, D] of an observation there and, if asked for, its standard deviation.

        The standard deviation is that of a new observation, noise included. Rows with as many columns as the training
        data, rather than `n_components`, are encoded first: the result is their reconstruction.

        Parameters
        ----------
        Z : array-like [M, Q] or [M, D]
        return_std : bool
        out : path or array, optional
            As for `transform`; with return_std it is a pair.
        """
        check_is_fitted(self)
        return self._predict(Z, [self.posterior_], return_std, out)

    def _predict(self, Z: Any, posteriors: Sequence[Predictive], return_std: bool, out: Any) -> Any:
        latents = check_latents(self, Z)
        shape, dtype = (len(latents), self.n_features_in_), np.dtype(self.dtype)
        outs = out if return_std and out is not None else (out, None)
        with Sink(outs[0], shape, dtype) as mean, Sink(outs[1], shape if return_std else (0, 0), dtype) as std:
            for block in self.posterior_.blocks(len(latents)):
                predictions = [posterior.predict(latents[block]) for posterior in posteriors]
                m, var = supports.combine(predictions, self.posterior_.feature_noise)
                mean.add(m.numpy(force=True))
                if return_std:
                    std.add(var.sqrt().expand_as(m).numpy(force=True))
        return (mean.result, std.result) if return_std else mean.result

    def inverse_transform(self, X: Any) -> Array:
        """The decoder's mean [M, D] at latents [M, Q]: `predict` under scikit-learn's name."""
        mean = self.predict(X)
        assert isinstance(mean, np.ndarray)
        return mean

    def score_samples(
        self, X: Any, *, n_samples: int | None = None, random_state: Any = None, out: Out | None = None
    ) -> Array:
        """Log density [M] of each row under the model, in nats summed over features: low for anomalies.

        Bayesian latents: an estimate of log p(x) = log ∫ p(x|z) p(z) dz, by importance sampling around the row's
        refined latent and from the prior. Its exponential is unbiased, so that the logarithm is a lower bound on
        average, the tighter the more samples. Point latents, or n_samples=0: log N(x | m(z*), c(z*) I) at
        z* = transform(x), which measures reconstruction through the latent space. Its mean for each feature is the
        paper's NLPD with the sign turned.

        Parameters
        ----------
        X : array-like [M, D]
        n_samples : int, optional
            Points of the latent space for each row. None: 16 with Bayesian latents, 0 with point ones.
        random_state : int, RandomState or None
            Of those points, the same for all rows. None takes the model's own seed: the result does not change.
        out : path or array, optional
            As for `transform`.
        """
        check_is_fitted(self)
        n_samples = (SCORE_SAMPLES if self.latents == "bayesian" else 0) if n_samples is None else n_samples
        check_count("n_samples", n_samples, 0)
        self._check_bayesian("n_samples", bool(n_samples))
        rows, posterior = self._rows(X), self.posterior_
        seed = self.seed_ if random_state is None else seed_of(random_state)
        epsilon = inference.normal_points(max(1, n_samples), self.n_components_, seed)
        steps = inference.SCORE_STEPS if n_samples else 0
        with Sink(out, (len(rows),), np.dtype(self.dtype)) as sink, torch.no_grad():
            located = self._located(rows, posterior.block_size, refine=steps, spread=bool(n_samples), everywhere=True)
            for X_block, Z, F in located:
                if F is None:
                    log_p = posterior.log_density(X_block, Z)
                else:
                    log_p = inference.log_evidence(posterior, X_block, Z, F, epsilon)
                sink.add(log_p.to(self._dtype).numpy(force=True))
        return sink.result

    def score(self, X: Any, y: Any = None) -> float:
        """Mean of `score_samples`: what a grid search maximises."""
        return float(np.mean(self.score_samples(X), dtype=np.float64))

    def sample(self, n_samples: int = 1, *, noise: bool = True, random_state: Any = None) -> Array:
        """Generate rows [n_samples, D]: z from the prior N(0, I), then one draw of the decoder's function there.

        Parameters
        ----------
        n_samples : int
        noise : bool
            Whether observation noise is added, as it is in data. Without it the draws are smooth.
        random_state : int, RandomState or None
            None draws anew each time.
        """
        check_is_fitted(self)
        check_count("n_samples", n_samples)
        draw = generator(seed_of(random_state), "sample")
        Z = torch.randn(n_samples, self.n_components_, generator=draw, dtype=self._dtype).to(self._device)
        return self.posterior_.sample(Z, draw, noise=noise).numpy(force=True)

    def _located(
        self,
        rows: ArrayRows,
        size: int,
        *,
        known: bool = False,
        refine: int = 0,
        spread: bool = False,
        everywhere: bool = False,
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Rows, their latents and the factors of their q(z|x), a block at a time; `known` rows are those of a Table.

        `everywhere` looks for them there also where neighbours are to be kept.
        """
        check_count("refine", refine, 0)
        index = getattr(self, "neighbours_", None)
        locate = inference.Locator(
            self.model_.encoder,
            self.posterior_,
            steps=refine,
            starts=() if index is None else [index],
            known=known,
            weight=0.0 if everywhere else HELD * self.neighbours * self.n_features_in_,
        )
        size = min(size, locate.block_size) if locate.searches else size
        long = locate.searches or len(rows) > 50 * size
        with progress_bar("latents", len(rows), show=self.verbose and long) as update:
            done = 0
            for X in rows.blocks(size):
                yield X, *locate(X, torch.arange(done, done + len(X), device=self._device), spread=spread)
                done += len(X)
                update(done)

    def _encode(
        self, rows: ArrayRows, *, known: bool = True, refine: int = 0, return_std: bool = False, out: Any = None
    ) -> Any:
        shape, dtype = (len(rows), self.n_components_), np.dtype(self.dtype)
        outs = out if return_std and out is not None else (out, None)
        with Sink(outs[0], shape, dtype) as mean, Sink(outs[1], shape if return_std else (0, 0), dtype) as std:
            for _, Z, F in self._located(rows, ENCODE_ROWS, known=known, refine=refine, spread=return_std):
                mean.add(Z.numpy(force=True))
                if F is not None:
                    std.add(F.norm(dim=2).numpy(force=True))  # √ diag F Fᵀ
        return (mean.result, std.result) if return_std else mean.result

    def _check_bayesian(self, what: str, wanted: bool) -> None:
        if wanted and self.latents != "bayesian":
            raise InputError(
                f"{what} needs Bayesian latents, which have a distribution. Got latents={self.latents!r}, one position "
                "for each row; fit with latents='bayesian'."
            )

    def explorer(
        self,
        X: Any = None,
        labels: Any = None,
        *,
        Z: Any = None,
        columns: Any = None,
        image_shape: Sequence[int] | None = None,
        title: str = "latent space",
    ) -> Explorer:
        """The latent space as a page to look around in: it decodes wherever the pointer is, in the browser.

        In a notebook the result shows itself; `model.explorer(X, y).save("explorer.html")` writes one file that needs
        neither server nor network. It holds rows of X, and with SASGP and GPLVM the support set.

        Parameters
        ----------
        X : array-like [N, D], optional
            Rows to show. Images may have their shape, [N, H, W] or [N, C, H, W]. None: the training rows' latents, with
            the support set for observations.
        labels : array-like [N], optional
            What to colour by: classes or numbers.
        Z : array-like [N, Q], optional
            Latents of X where they are known, such as `embedding_`. None: `transform(X)`.
        columns : mapping or DataFrame, optional
            More to colour by, N values each. The columns of X are there as well, unless they are pixels.
        image_shape : tuple, optional
            Shape of a row as an image: (H, W), (C, H, W) or (H, W, C). None: that of the model, where it has one; else
            squares of pixels are recognised, unless X is a DataFrame. () is a table.
        title : str
            Above the page.
        """
        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", None)
        if X is not None:
            if not isinstance(X, Dataset) and np.ndim(X) > 2:
                array = np.asarray(X)
                image_shape = array.shape[1:] if image_shape is None else image_shape
                X = array.reshape(len(array), -1)
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

    # ------------------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one .safetensors file.

        The file holds the settings, the weights of encoder and decoder, kernel and noise, and with SASGP and GPLVM the
        support set: up to `support_size` rows of the training data themselves. It holds no code, and loading it runs
        none.
        """
        check_is_fitted(self)
        model = self.model_
        settings = dict(self.get_params(deep=False))
        tensors = self._tensors()
        fitted_kernel: dict[str, Any] | None
        try:
            fitted_kernel = kernels.describe(model.kernel) if hasattr(model, "kernel") else None
            if isinstance(self.kernel, Kernel):
                settings["kernel"] = kernels.describe(self.kernel)
        except kernels.CustomKernelError:
            fitted_kernel = settings["kernel"] = {"custom": _class_name(self.kernel)}
            tensors |= {f"kernel.{name}": value for name, value in model.kernel.state_dict().items()}
        if isinstance(self.encoder, nn.Module):
            settings["encoder"] = {"custom": _class_name(self.encoder)}
        if model.encoder.amortised:
            tensors |= {f"encoder.{name}": value for name, value in model.encoder.state_dict().items()}
        if hasattr(self.init, "fit_transform"):
            settings["init"] = {"custom": _class_name(self.init)}
        elif not isinstance(self.init, str | dict):
            settings["init"] = {"array": "init"}
            tensors["init"] = torch.as_tensor(np.asarray(self.init, np.float64))
        if not isinstance(self.random_state, int | np.integer | None):
            settings["random_state"] = self.seed_
        if self.image_shape is not None:
            settings["image_shape"] = [int(size) for size in self.image_shape]

        # Settings may be numpy's numbers, as from a grid search over np.arange; JSON knows Python's
        settings = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
        fitted = {name: getattr(self, name) for name in self._SAVED}
        names = getattr(self, "feature_names_in_", None)
        header = {
            "class": type(self).__name__,
            "sasgp": __version__,
            "settings": settings,
            "fitted": fitted | {"feature_names_in_": None if names is None else [str(name) for name in names]},
            "kernel": fitted_kernel,
        }
        storage.write(path, header, {name: tensor.detach() for name, tensor in tensors.items()})
        neighbours.write(path, getattr(self, "neighbours_", None), self.embedding_)

    _SAVED: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "batch_size_",
        "seed_",
        "history_",
        "image_shape_",
        "_n_features_out",
    )

    @classmethod
    def load(
        cls, path: str | Path, *, kernel: Kernel | None = None, encoder: nn.Module | None = None, device: str = "auto"
    ) -> Self:
        """Read a model written by `save`.

        Parameters
        ----------
        path : str or Path
        kernel, encoder : optional
            An instance of the user's own class, where the model was made with one: the file holds its numbers, never
            its code.
        device : str
            Where to put the model; the file does not remember.
        """
        header, tensors = storage.read(path)
        known: dict[str, type[Self]] = {c.__name__: c for c in (cls, *_subclasses(cls))}
        if header.get("class") not in known:
            raise InputError(
                f"Expected a {cls.__name__} model. Got {header.get('class')} in {path}. Load it with "
                f"sasgp.{header.get('class')}.load, or with the command line, which finds out by itself."
            )
        settings = header["settings"] | {"device": device}
        given = {"kernel": kernel, "encoder": encoder}
        for part, instance in given.items():
            setting = settings.get(part)
            custom = setting.get("custom") if isinstance(setting, dict) else None
            if custom and instance is None:
                raise InputError(
                    f"The model in {path} was made with a {part} of the class {custom}, which is not part of the file. "
                    f"Hand it over: load(path, {part}={custom.rpartition('.')[2]}(...))."
                )
            if instance is not None and not custom:
                raise InputError(f"The model in {path} has a {part} of its own. Got another: leave {part} out.")
            if custom:
                settings[part] = instance
        if isinstance(settings.get("kernel"), dict):
            settings["kernel"] = kernels.rebuild(settings["kernel"])
        # An object that made a layout stays a name: only another fit needs it
        if isinstance(settings["init"], dict) and "array" in settings["init"]:
            settings["init"] = tensors["init"].numpy()

        self = known[header["class"]](**settings)
        fitted = header["fitted"]
        names = fitted.pop("feature_names_in_")
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        for name, value in fitted.items():
            setattr(self, name, value)
        self.embedding_ = tensors["embedding"].numpy()
        self._restore(*self._restored(header["kernel"], tensors, path), tensors)
        index = neighbours.read(path, self.embedding_, self._device)
        if index is not None:
            self.neighbours_ = index
        return self

    def _restored(
        self, fitted_kernel: dict[str, Any] | None, tensors: dict[str, Tensor], path: str | Path
    ) -> tuple[Encoder, Kernel | None]:
        """Encoder and, of decoders that have one, kernel from a file's tensors."""
        bayesian, mean = self.latents == "bayesian", tensors["mean"]
        encoder: Encoder
        if isinstance(self.encoder, nn.Module):
            encoder = Custom(copy.deepcopy(self.encoder), self.n_components_, variance=bayesian)
        elif self.encoder == "table":
            encoder = Table(tensors["embedding"], variance=bayesian)
        else:
            sized = copy.copy(self)
            sized.n_components = self.n_components_
            scale = torch.ones_like(tensors["encoder.scale"])
            encoder = initialise.network(sized, mean, scale, self.seed_, self.image_shape_)
        kernel: Kernel | None = None
        parts: list[tuple[str, nn.Module]] = [("encoder", encoder)]
        if fitted_kernel is not None:
            custom: Kernel = copy.deepcopy(self.kernel)
            kernel = custom if "custom" in fitted_kernel else kernels.rebuild(fitted_kernel)
            parts.append(("kernel", kernel))
        for part, module in parts:
            state = {k.removeprefix(f"{part}."): v for k, v in tensors.items() if k.startswith(f"{part}.")}
            try:
                if state:
                    module.load_state_dict(state)
            except RuntimeError as error:
                raise InputError(
                    f"The {part} handed to load does not fit the numbers in {path}: {' '.join(str(error).split())}. "
                    "Construct it as it was when the model was made."
                ) from error
        return encoder, kernel

    # ------------------------------------------------------------------------------------------------ attributes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [self.dtype]
        return tags

    @property
    def n_components_(self) -> int:
        """Dimensions of the latent space."""
        return self._n_features_out

    @property
    def relevance_(self) -> Array:
        """How much of each latent dimension the decoder uses, [Q]: the spread of the latents, in lengthscales."""
        return np.array(kernels.relevance(self.kernel_, self.embedding_))

    @property
    def kernel_(self) -> Kernel:
        """The trained kernel."""
        return self.model_.kernel

    @property
    def noise_(self) -> float | Array:
        """The trained noise variance, or with noise="feature" that of every feature, [D]."""
        noise = self.model_.feature_noise.numpy(force=True)
        return noise if self.noise == "feature" else float(noise[0])

    @property
    def _dtype(self) -> torch.dtype:
        return {"float32": torch.float32, "float64": torch.float64}[self.dtype]

    @property
    def _device(self) -> torch.device:
        return self.torch_device()

    @property
    def _by_row(self) -> bool:
        """Whether there is a parameter for every row."""
        return isinstance(self.encoder, str) and self.encoder == "table"

    def _rows(self, X: Any) -> ArrayRows:
        return ArrayRows(check_rows(self, X, reset=False), self._dtype, self._device)


def _keeper(checkpoint: str | Path | Keeper | None) -> Keeper:
    if isinstance(checkpoint, Keeper):
        return checkpoint
    return Keeper(None if checkpoint is None else resolve(checkpoint))


def seed_of(random_state: Any) -> int:
    """A seed from what scikit-learn takes for one. None is fresh entropy: numpy's global state stays as it is."""
    if random_state is None:
        return secrets.randbelow(2**31)
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError as error:
        raise InputError(
            f"random_state must be a whole number from 0 to 2³² − 1, a RandomState or None. Got {random_state!r}."
        ) from error


def _class_name(instance: object) -> str:
    return f"{type(instance).__module__}.{type(instance).__qualname__}"


def _subclasses(cls: type[T]) -> list[type[T]]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]
