"""The scikit-learn face: SASGP and GPLVM.

    model = SASGP(random_state=0).fit(X)
    Z = model.transform(X_new)
    mean, std = model.predict(Z, return_std=True)

Arrays go in and come out; tensors stay inside.
"""

import copy
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import Dataset

from sasgp import __version__, kernels, latents, layouts, start, storage
from sasgp.checkpoint import Keeper, differences, fingerprint, resolve, sampled
from sasgp.checkpoint import read as read_checkpoint
from sasgp.checks import check_latents, check_rows, check_settings
from sasgp.encoders import Custom, Encoder, Table
from sasgp.errors import InputError
from sasgp.explorer import Explorer, explore
from sasgp.fitting import Callback, fit_model
from sasgp.models.sas import SASDecoder
from sasgp.outputs import Out, Sink
from sasgp.posterior import Posterior
from sasgp.progress import progress_bar
from sasgp.ranks import agreed, joined
from sasgp.rows import ArrayRows, moments, take_rows
from sasgp.settings import Settings
from sasgp.train import Ranks, generator

__all__ = ["GPLVM", "SASGP"]

T = TypeVar("T")
Array = NDArray[np.floating[Any]]

ENCODE_ROWS = 4096  # encoded at a time
VALIDATION_SUPPORT = 400  # rows that held-out rows are predicted from


@dataclass(eq=False, repr=False)
class SASGP(Settings, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    __doc__ = (
        "A Gaussian-process decoder trained with stochastic active sets.\n"
        + (Settings.__doc__ or "").partition("\n")[2]
        + """
    Attributes
    ----------
    embedding_ : ndarray [N, Q]
        Latents of the training rows.
    history_ : list of dict
        A record for every epoch: epoch, step, loss (negative objective in nats for each entry of the data), noise,
        learning_rate, seconds, and how many steps were dropped because their numbers were not finite.
    kernel_ : gpytorch.kernels.Kernel
        The trained kernel.
    noise_ : float
        The trained noise variance.
    active_set_size_, batch_size_ : int
        The sizes used, where the data were too few for those asked for.
    model_ : torch.nn.Module
        Encoder, kernel and noise as trained.
    posterior_ : Posterior
        The decoder conditioned on its support set.

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

    # ------------------------------------------------------------------------------------------------ fitting

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
        keeper = _keeper(checkpoint if checkpoint is not None else resume)
        array = check_rows(self, X, reset=True)
        check_settings(self, len(array))
        saved = None if resume is None else read_checkpoint(resolve(resume))
        with joined(self._device) as ranks:
            self._fit(array, ranks, keeper, saved, callback)
        if not isinstance(checkpoint, Keeper) and keeper.path is not None and ranks.rank == 0:
            keeper.path.unlink(missing_ok=True)
        return self

    def _fit(
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
        if ranks.world > 1 and self.active_set_size is None:
            raise InputError(
                f"The exact GP-LVM has one batch, all rows. Got {ranks.world} processes for it; use one, or SASGP."
            )
        seed = _seed(self.random_state) if saved is None else saved["seed"]
        self.seed_ = int(agreed(ranks, seed, device))
        self._n_features_out = int(self.n_components)

        rows = everything = ArrayRows(array, dtype, device)
        held_out = None
        if self.early_stopping is not None:
            order = torch.randperm(len(rows), generator=generator(self.seed_, "validation"))
            n_held_out = max(1, round(self.validation_fraction * len(rows)))
            # In the order of the data, which is that of the disk
            held_out, rows = (rows.subset(part.sort().values) for part in (order[:n_held_out], order[n_held_out:]))
        # With a table every process has a share of the rows to itself
        self.batch_size_, self.active_set_size_ = self._sizes(len(rows) // (ranks.world if self._by_row else 1))
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
        rows.release()
        # Any rows will do as support; random ones follow the data's density
        chosen = torch.randperm(len(rows), generator=generator(self.seed_, "support"))[: self.support_size]
        self.posterior_ = self._condition(rows, chosen)
        self.embedding_ = self._encode(everything)

    def _start(self, array: Any, rows: ArrayRows, *, resumed: bool) -> SASDecoder:
        """The model as training finds it. One that is resumed needs its structure alone: a file has its numbers."""
        dtype, device = self._dtype, self._device
        if resumed:
            mean, variance = np.zeros(array.shape[1]), 1.0
        else:
            mean, variance = moments(array)
            variance = variance or 1.0  # constant data have no scale of their own
        centre = torch.as_tensor(mean, dtype=dtype, device=device)
        layout: start.Layout | None
        if resumed:
            layout = start.Layout(torch.zeros(len(rows), self.n_components, dtype=dtype, device=device))
        else:
            layout = self._layout(array, rows)
        with progress_bar("encoder", start.fit_steps(layout), show=self.verbose) as update:
            encoder = start.encoder(self, rows, centre, variance, layout, self.seed_, update, fitted=not resumed)
        kernel = start.kernel(self, encoder, rows, variance)
        model = SASDecoder(
            encoder,
            kernel,
            noise=start.NOISE * variance,
            mean=centre,
            active_set_size=None if self.active_set_size is None else self.active_set_size_,
            encoder_noise=self.encoder_noise * start.noise_share(self.n_features_in_, self.n_components),
        ).to(device, dtype)
        if layout is not None and not resumed:
            with progress_bar("kernel and noise", start.SETTLE_STEPS, show=self.verbose) as update:
                start.settle(model, rows, self.batch_size_, self.seed_, update)
        return model

    def _layout(self, array: Any, rows: ArrayRows) -> start.Layout | None:
        """Where rows start, all or a subset of them; None where that is a projection, which needs no layout."""
        if isinstance(self.init, str) and self.init not in layouts.NAMES:
            return None
        among, chosen = np.arange(len(array)) if rows.indices is None else rows.indices.numpy(), None
        if hasattr(self.init, "fit_transform") or isinstance(self.init, str):
            if len(among) > (most := layouts.max_rows(self.init, array.shape[1])):
                chosen = torch.randperm(len(among), generator=generator(self.seed_, "layout"))[:most].sort().values
                among = among[chosen.numpy()]
            X = take_rows(array, among).astype(self.dtype)
            name = self.init if isinstance(self.init, str) else type(self.init).__name__
            with progress_bar(f"layout of {len(X)} rows ({name})", None, show=self.verbose):
                Z = layouts.lay_out(self.init, X, self.n_components, self.seed_)
        else:
            Z = np.asarray(self.init)[among]
        return start.Layout(torch.as_tensor(Z, dtype=self._dtype, device=self._device), chosen)

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Array:
        """Train the decoder on X and return the latents of its rows."""
        return self.fit(X, y, **fit_params).embedding_

    def _sizes(self, N: int) -> tuple[int, int]:
        """Batch and active set for N rows: as asked for, or what the data allow."""
        if self.active_set_size is None:
            return N, N
        batch, active = min(int(self.batch_size), N), int(self.active_set_size)
        return batch, active if batch == self.batch_size else min(active, (batch + 1) // 2)

    @torch.no_grad()
    def _held_out_loss(self, rows: ArrayRows, held_out: ArrayRows) -> float:
        """Negative log density for each entry of rows that training does not see."""
        support = torch.randperm(len(rows), generator=generator(self.seed_, "early stopping"))[:VALIDATION_SUPPORT]
        posterior = self._condition(rows, support)
        total = 0.0
        for X in held_out.blocks(posterior.block_size):
            total -= float(posterior.log_density(X, self.model_.encoder(X)[0]).sum())
        return total / (len(held_out) * self.n_features_in_)

    @torch.no_grad()
    def _condition(self, rows: ArrayRows, chosen: Tensor) -> Posterior:
        X = rows.gather(chosen)
        return self.model_.condition(X, self.model_.encoder(X, chosen.to(self._device))[0])

    # ------------------------------------------------------------------------------------------------ using it

    def transform(self, X: Any, *, out: Out | None = None) -> Array:
        """Latents [M, Q] of rows X [M, D].

        With a network this is one forward pass, the mean of q(z|x). With encoder="table" every row's position is found
        by optimising its density under the decoder, from several starts.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes. Memory maps and Datasets are read a block at a time.
        out : path or array, optional
            Where the result goes, a block at a time: the name of a .npy file, which then comes back as a memory map, or
            an array [M, Q].
        """
        check_is_fitted(self)
        return self._encode(self._rows(X), known=False, out=out)

    def predict(self, Z: Any, return_std: bool = False, *, out: Any = None) -> Array | tuple[Array, Array]:
        """Decode latents Z [M, Q]: the mean [M, D] of an observation there and, if asked for, its standard deviation.

        The standard deviation is that of a new observation, noise included. It grows away from the support points.
        Rows with as many columns as the training data, rather than `n_components`, are encoded first: the result is
        their reconstruction. `out` is as for `transform`; with return_std it is a pair.
        """
        check_is_fitted(self)
        latents = check_latents(self, Z)
        shape, dtype = (len(latents), self.n_features_in_), np.dtype(self.dtype)
        outs = out if return_std and out is not None else (out, None)
        with Sink(outs[0], shape, dtype) as mean, Sink(outs[1], shape if return_std else (0, 0), dtype) as std:
            for block in self.posterior_.blocks(len(latents)):
                m, var = self.posterior_.predict(latents[block])
                mean.add(m.numpy(force=True))
                if return_std:
                    std.add(var.sqrt()[:, None].expand_as(m).numpy(force=True))
        return (mean.result, std.result) if return_std else mean.result

    def inverse_transform(self, X: Any) -> Array:
        """The decoder's mean [M, D] at latents [M, Q]: `predict` under scikit-learn's name."""
        mean = self.predict(X)
        assert isinstance(mean, np.ndarray)
        return mean

    def score_samples(self, X: Any, *, out: Out | None = None) -> Array:
        """Log density [M] of each row under the decoder at its own latent position: low for anomalies.

        It measures reconstruction through the latent space, log N(x | m(z*), c(z*) I) with z* = transform(x), in nats
        summed over features. `out` is as for `transform`.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        with Sink(out, (len(rows),), np.dtype(self.dtype)) as sink, torch.no_grad():
            for X_block, Z_block in self._encoded_blocks(rows, self.posterior_.block_size, known=False):
                sink.add(self.posterior_.log_density(X_block, Z_block).numpy(force=True))
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
        if n_samples < 1:
            raise InputError(f"n_samples must be at least 1. Got {n_samples}.")
        draw = generator(_seed(random_state), "sample")
        Z = torch.randn(n_samples, self.n_components, generator=draw, dtype=self._dtype).to(self._device)
        return self.posterior_.sample(Z, draw, noise=noise).numpy(force=True)

    def _encoded_blocks(self, rows: ArrayRows, size: int, *, known: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Rows and their latents, a block at a time; `known` rows are those that a Table was trained on."""
        encoder = self.model_.encoder
        search = not (encoder.amortised or known)
        if search:
            size = min(size, max(1, self.posterior_.block_size // latents.N_STARTS))
        with progress_bar("latents", len(rows), show=self.verbose and (search or len(rows) > 50 * size)) as update:
            done = 0
            for X in rows.blocks(size):
                index = torch.arange(done, done + len(X), device=self._device)
                with torch.no_grad():
                    yield X, latents.infer(self.posterior_, X) if search else encoder(X, index)[0]
                done += len(X)
                update(done)

    def _encode(self, rows: ArrayRows, *, known: bool = True, out: Out | None = None) -> Array:
        with Sink(out, (len(rows), self.n_components), np.dtype(self.dtype)) as sink:
            for _, Z in self._encoded_blocks(rows, ENCODE_ROWS, known=known):
                sink.add(Z.numpy(force=True))
        return sink.result

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
        neither server nor network. It holds the support set, and rows of X.

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
            Shape of a row as an image: (H, W), (C, H, W) or (H, W, C). None: squares of pixels are recognised, unless
            X is a DataFrame. () is a table.
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
            image_shape=image_shape,
            title=title,
        )

    # ------------------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one .safetensors file.

        The file holds the settings, the encoder's weights, kernel and noise, and the support set: up to
        `support_size` rows of the training data themselves. It holds no code, and loading it runs none.
        """
        check_is_fitted(self)
        model, posterior = self.model_, self.posterior_
        settings = dict(self.get_params(deep=False))
        tensors = {"mean": model.mean, "log_noise": model.log_noise, "support.X": posterior.X, "support.Z": posterior.Z}
        tensors["embedding"] = torch.from_numpy(self.embedding_)

        fitted_kernel: dict[str, Any]
        try:
            fitted_kernel = kernels.describe(model.kernel)
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

    _SAVED: ClassVar = ("n_features_in_", "active_set_size_", "batch_size_", "seed_", "history_", "_n_features_out")

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
            custom = settings[part].get("custom") if isinstance(settings[part], dict) else None
            if custom and instance is None:
                raise InputError(
                    f"The model in {path} was made with a {part} of the class {custom}, which is not part of the file. "
                    f"Hand it over: load(path, {part}={custom.rpartition('.')[2]}(...))."
                )
            if instance is not None and not custom:
                raise InputError(f"The model in {path} has a {part} of its own. Got another: leave {part} out.")
            if custom:
                settings[part] = instance
        if isinstance(settings["kernel"], dict):
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
        self._restore(header["kernel"], tensors, path)
        return self

    def _restore(self, fitted_kernel: dict[str, Any], tensors: dict[str, Tensor], path: str | Path) -> None:
        """Rebuild model and posterior from a file's tensors."""
        bayesian, mean = self.latents == "bayesian", tensors["mean"]
        encoder: Encoder
        if isinstance(self.encoder, nn.Module):
            encoder = Custom(copy.deepcopy(self.encoder), self.n_components, variance=bayesian)
        elif self.encoder == "table":
            encoder = Table(tensors["embedding"], variance=bayesian)
        else:
            encoder = start.network(self, mean, 1.0, self.seed_)
        custom = "custom" in fitted_kernel
        kernel: Kernel = copy.deepcopy(self.kernel) if custom else kernels.rebuild(fitted_kernel)
        parts: list[tuple[str, nn.Module]] = [("encoder", encoder), ("kernel", kernel)]
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
        size = None if self.active_set_size is None else self.active_set_size_
        model = SASDecoder(encoder, kernel, noise=1.0, mean=mean, active_set_size=size)
        with torch.no_grad():
            model.log_noise.copy_(tensors["log_noise"])
        self.model_ = model.to(self._device, self._dtype).eval()
        device = self._device
        self.posterior_ = self.model_.condition(tensors["support.X"].to(device), tensors["support.Z"].to(device))

    # ------------------------------------------------------------------------------------------------ attributes

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = [self.dtype]
        return tags

    @property
    def kernel_(self) -> Kernel:
        """The trained kernel."""
        return self.model_.kernel

    @property
    def noise_(self) -> float:
        """The trained noise variance."""
        return self.model_.monitor()["noise"]

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


@dataclass(eq=False, repr=False)
class GPLVM(SASGP):
    """The exact GP-LVM: SASGP with everything active, trained on log p(X|Z) itself (Eq. 2).

    Memory grows with the square of the rows and time with their cube: for up to about ten thousand rows. Parameters,
    methods and attributes are those of :class:`SASGP`, without `active_set_size` and `batch_size`, and with
    `latents="point"` as the default.
    """

    latents: Literal["bayesian", "point"] = "point"
    active_set_size: None = field(init=False, default=None)
    batch_size: int = field(init=False, default=SASGP.batch_size)


def _keeper(checkpoint: str | Path | Keeper | None) -> Keeper:
    if isinstance(checkpoint, Keeper):
        return checkpoint
    return Keeper(None if checkpoint is None else resolve(checkpoint))


def _seed(random_state: Any) -> int:
    """A seed from what scikit-learn takes for one. None is fresh entropy: numpy's global state stays as it is."""
    return secrets.randbelow(2**31) if random_state is None else int(check_random_state(random_state).randint(2**31))


def _class_name(instance: object) -> str:
    return f"{type(instance).__module__}.{type(instance).__qualname__}"


def _subclasses(cls: type[T]) -> list[type[T]]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]
