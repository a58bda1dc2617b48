"""The scikit-learn face: SASGP and GPLVM.

    model = SASGP(random_state=0).fit(X)
    Z = model.transform(X_new)
    mean, std = model.predict(Z, return_std=True)

Arrays go in and come out; tensors stay inside.
"""

import copy
import difflib
import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from sasgp import __version__, kernels, latents, layouts, storage
from sasgp.encoders import Custom, Encoder, Network, Table
from sasgp.errors import InputError
from sasgp.models.sas import SASDecoder
from sasgp.posterior import Posterior
from sasgp.progress import progress_bar
from sasgp.rows import ArrayRows, check_finite, moments, row_blocks
from sasgp.settings import Settings
from sasgp.train import generator, train

__all__ = ["GPLVM", "SASGP"]

Array = NDArray[np.floating[Any]]

ENCODE_ROWS = 8192  # encoded at a time
STEPS = 2000  # about as many as max_epochs=None takes on large data
MIN_EPOCHS, MAX_EPOCHS = 3, 300  # and the bounds it keeps to: more passes over few rows over-fit the encoder
# Training starts from "all is noise", several times the data's variance: structure then enters from the coarse to the
# fine. From a noise below the data's variance the encoder memorises small data (digits: test NLPD −.17 against −.28).
START_NOISE = 5.0
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
        learning_rate, seconds.
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

    def fit(self, X: Any, y: Any = None) -> Self:
        """Train the decoder.

        Parameters
        ----------
        X : array-like [N, D]
            Array, DataFrame, memory map or torch tensor of finite numbers. A memory map stays on disk.
        y : ignored
        """
        array = self._check_rows(X, reset=True)
        self._check_settings(len(array))
        self.seed_ = int(check_random_state(self.random_state).randint(2**31))
        self._n_features_out = self.n_components
        dtype, device = self._dtype, self._device
        mean, variance = moments(array)
        variance = variance or 1.0  # constant data have no scale of their own
        centre = torch.as_tensor(mean, dtype=dtype, device=device)

        rows = ArrayRows(array, dtype, device)
        everything = rows
        held_out = None
        if self.early_stopping is not None:
            order = torch.randperm(len(rows), generator=generator(self.seed_, "validation"))
            n_held_out = max(1, round(self.validation_fraction * len(rows)))
            held_out, rows = rows.subset(order[:n_held_out]), rows.subset(order[n_held_out:])
        self.batch_size_, self.active_set_size_ = self._sizes(len(rows))

        encoder = self._initial_encoder(rows, centre, variance)
        kernel = self._initial_kernel(encoder, rows, variance)
        self.model_ = SASDecoder(
            encoder,
            kernel,
            noise=START_NOISE * variance,
            mean=centre,
            active_set_size=None if self.active_set_size is None else self.active_set_size_,
        ).to(device, dtype)
        self._train(rows, held_out)

        # Any rows will do as support; random ones follow the data's density
        chosen = torch.randperm(len(rows), generator=generator(self.seed_, "support"))[: self.support_size]
        self.posterior_ = self._condition(rows, chosen)
        self.embedding_ = self._encode(everything)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Array:
        """Train the decoder on X and return the latents of its rows."""
        return self.fit(X, y, **fit_params).embedding_

    def _sizes(self, N: int) -> tuple[int, int]:
        """Batch and active set for N rows: as asked for, or what the data allow."""
        if self.active_set_size is None:
            return N, N
        batch = min(self.batch_size, N)
        return batch, self.active_set_size if batch == self.batch_size else min(self.active_set_size, (batch + 1) // 2)

    def _initial_encoder(self, rows: ArrayRows, centre: Tensor, variance: float) -> Encoder:
        """An encoder that reproduces the layout asked for by `init`."""
        bayesian = self.latents == "bayesian"
        if isinstance(self.encoder, nn.Module):
            return Custom(copy.deepcopy(self.encoder), self.n_components, variance=bayesian).to(self._device, self._dtype)

        if isinstance(self.init, str):
            some = torch.randperm(len(rows), generator=generator(self.seed_, "pca"))[: layouts.PCA_ROWS]
            X = rows.gather(some)
            axes = layouts.axes(self.init, X, centre, self.n_components, generator(self.seed_, "axes"))

            def layout(X: Tensor, rows: Tensor) -> Tensor:
                return (X - centre) @ axes

        else:
            Z = np.asarray(self.init, np.float64)
            Z = torch.as_tensor((Z - Z.mean(0)) / (Z.std() or 1.0), dtype=self._dtype)
            # Early stopping trains on a part of the rows
            Z = (Z if rows.indices is None else Z[rows.indices]).to(self._device)

            def layout(X: Tensor, rows: Tensor) -> Tensor:
                return Z[rows.to(Z.device)]

        if self.encoder == "table":
            with torch.no_grad():
                parts = [layout(rows.gather(part), part) for part in torch.arange(len(rows)).split(ENCODE_ROWS)]
            start = torch.cat(parts)
            jitter = torch.randn(start.shape, generator=generator(self.seed_, "table"), dtype=start.dtype)
            return Table(start + 1e-2 * jitter.to(start.device), variance=bayesian)

        network = self._network(centre, math.sqrt(variance))
        with progress_bar("layout", layouts.FIT_STEPS, show=self.verbose) as update:
            layouts.fit_encoder(network, rows, layout, self.seed_, lambda step, total, loss: update(step))
        return network

    def _network(self, centre: Tensor, scale: float) -> Network:
        return Network(
            centre,
            scale,
            self.n_components,
            variance=self.latents == "bayesian",
            input_noise=self.encoder_noise,
            generator=generator(self.seed_, "network"),
        )

    def _initial_kernel(self, encoder: Encoder, rows: ArrayRows, variance: float) -> Kernel:
        """The user's kernel as it is, or one by name started from the data's variance and the layout's spread."""
        some = torch.arange(min(len(rows), layouts.PCA_ROWS))
        with torch.no_grad():
            Z = encoder.eval()(rows.gather(some), some.to(self._device))[0]
        if isinstance(self.kernel, Kernel):
            kernel = copy.deepcopy(self.kernel).to(self._device, self._dtype)
            try:
                kernel(Z[:2], Z[:1]).to_dense()
            except (RuntimeError, ValueError, IndexError) as error:
                raise InputError(
                    f"Expected a kernel on a latent space of n_components={self.n_components} dimensions. Got "
                    f"{type(kernel).__name__}, which fails there: {error}. Make ard_num_dims and active_dims fit."
                ) from error
            return kernel
        kernel = kernels.make(self.kernel or "rbf", self.n_components).to(self._device, self._dtype)
        kernel.outputscale = variance
        kernel.base_kernel.lengthscale = float(Z.std(correction=0).clamp_min(1e-3))
        return kernel

    def _train(self, rows: ArrayRows, held_out: ArrayRows | None) -> None:
        model = self.model_
        steps_per_epoch = math.ceil(len(rows) / self.batch_size_)
        epochs = self.max_epochs or min(max(MIN_EPOCHS, math.ceil(STEPS / steps_per_epoch)), MAX_EPOCHS)
        self.history_: list[dict[str, float]] = []
        best, best_state, patience = math.inf, None, 0
        with progress_bar("training", epochs * steps_per_epoch, show=self.verbose) as update:

            def on_step(step: int, total: int, loss: float) -> None:
                epoch = math.ceil(step / steps_per_epoch)
                update(step, f"epoch {epoch}/{epochs}  objective {-loss:.4f}  noise {float(model.noise.detach()):.3g}")

            groups = model.parameter_groups(self.learning_rate, self.hyper_learning_rate)
            for epoch in train(
                model, rows, groups, batch_size=self.batch_size_, max_epochs=epochs, seed=self.seed_, on_step=on_step
            ):
                record = {name: value for name, value in asdict(epoch).items() if name != "monitored"}
                self.history_.append(record | dict(epoch.monitored))
                if held_out is None:
                    continue
                loss = self._held_out_loss(rows, held_out)
                self.history_[-1]["held_out_loss"] = loss
                best, patience = (loss, 0) if loss < best else (best, patience + 1)
                if patience == 0:
                    best_state = copy.deepcopy(model.state_dict())
                if patience == self.early_stopping:
                    break
        if best_state is not None:
            model.load_state_dict(best_state)
        model.eval()

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

    def transform(self, X: Any) -> Array:
        """Latents [M, Q] of rows X [M, D].

        With a network this is one forward pass, the mean of q(z|x). With encoder="table" every row's position is found
        by optimising its density under the decoder, from several starts.
        """
        check_is_fitted(self)
        return self._encode(self._rows(X), known=False)

    def predict(self, Z: Any, return_std: bool = False) -> Array | tuple[Array, Array]:
        """Decode latents Z [M, Q]: the mean [M, D] of an observation there and, if asked for, its standard deviation.

        The standard deviation is that of a new observation, noise included. It grows away from the support points.
        """
        check_is_fitted(self)
        mean, var = self.posterior_.predict(self._check_latents(Z))
        if not return_std:
            return mean.numpy(force=True)
        return mean.numpy(force=True), var.sqrt()[:, None].expand_as(mean).contiguous().numpy(force=True)

    def inverse_transform(self, X: Any) -> Array:
        """The decoder's mean [M, D] at latents [M, Q]: `predict` under scikit-learn's name."""
        mean = self.predict(X)
        assert isinstance(mean, np.ndarray)
        return mean

    def score_samples(self, X: Any) -> Array:
        """Log density [M] of each row under the decoder at its own latent position: low for anomalies.

        It measures reconstruction through the latent space, log N(x | m(z*), c(z*) I) with z* = transform(x), in nats
        summed over features.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        out = []
        with torch.no_grad():
            for X_block, Z_block in self._encoded_blocks(rows, self.posterior_.block_size, known=False):
                out.append(self.posterior_.log_density(X_block, Z_block))
        return torch.cat(out).numpy(force=True)

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
        draw = generator(int(check_random_state(random_state).randint(2**31)), "sample")
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
            for index in torch.arange(len(rows)).split(size):
                X = rows.gather(index)
                with torch.no_grad():
                    yield X, latents.infer(self.posterior_, X) if search else encoder(X, index.to(self._device))[0]
                done += len(index)
                update(done)

    def _encode(self, rows: ArrayRows, *, known: bool = True) -> Array:
        return torch.cat([Z for _, Z in self._encoded_blocks(rows, ENCODE_ROWS, known=known)]).numpy(force=True)

    # ------------------------------------------------------------------------------------------------ files

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one .safetensors file.

        The file holds the settings, the encoder's weights, kernel and noise, and the support set: up to
        `support_size` rows of the training data themselves. It holds no code, and loading it runs none.
        """
        check_is_fitted(self)
        model, posterior = self.model_, self.posterior_
        settings = {name: value for name, value in self.get_params(deep=False).items()}
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
        if not isinstance(self.init, str):
            settings["init"] = {"array": "init"}
            tensors["init"] = torch.as_tensor(np.asarray(self.init, np.float64))
        if not isinstance(self.random_state, int | None):
            settings["random_state"] = self.seed_

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
        known = {c.__name__: c for c in (cls, *_subclasses(cls))}
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
        if isinstance(settings["init"], dict):
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
            encoder = self._network(mean, 1.0)
        custom = "custom" in fitted_kernel
        kernel = copy.deepcopy(self.kernel) if custom else kernels.rebuild(fitted_kernel)
        for part, module in ("encoder", encoder), ("kernel", kernel):
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

    # ------------------------------------------------------------------------------------------------ checking

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
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)

    def _rows(self, X: Any) -> ArrayRows:
        return ArrayRows(self._check_rows(X, reset=False), self._dtype, self._device)

    def _check_rows(self, X: Any, *, reset: bool) -> NDArray[np.generic]:
        """X as a finite two-dimensional array of real numbers; arrays and memory maps are not copied."""
        if isinstance(X, Tensor):
            X = X.numpy(force=True)
        plain = isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "fiub"
        validate_data(self, X, reset=reset, skip_check_array=plain, **({} if plain else _NO_CONVERSION))
        if not plain:
            X = check_array(X, **_NO_CONVERSION, estimator=self)
        if plain and 0 in X.shape:
            check_array(X, estimator=self)  # scikit-learn's own words for an empty array
        if reset and len(X) < 2:
            raise InputError(f"Expected at least 2 rows to train on. Got n_samples = {len(X)}: 1 sample has no neighbours.")
        check_finite(X)
        if self.dtype == "float32" and X.dtype == np.float64:
            _check_range(X)
        return X

    def _check_latents(self, Z: Any) -> Tensor:
        Z = Z.numpy(force=True) if isinstance(Z, Tensor) else Z
        Z = check_array(Z, dtype=np.float64, ensure_min_samples=0, input_name="Z")
        if Z.shape[1] != self.n_components:
            raise InputError(
                f"Expected latents with n_components={self.n_components} columns. Got shape {Z.shape}. "
                "Encode data with transform(X) first."
            )
        return torch.as_tensor(Z, dtype=self._dtype, device=self._device)

    def _check_settings(self, N: int) -> None:
        """Every setting by itself, then those that must fit each other."""
        for name in ("n_components", "batch_size", "support_size"):
            _check_count(name, getattr(self, name))
        for name in ("active_set_size", "max_epochs", "early_stopping"):
            if getattr(self, name) is not None:
                _check_count(name, getattr(self, name))
        for name in ("learning_rate", "hyper_learning_rate"):
            value = getattr(self, name)
            if not (isinstance(value, int | float | np.number) and 0 < value < math.inf):
                raise InputError(f"{name} must be a positive number. Got {value!r}.")
        _check_choice("latents", self.latents, ("bayesian", "point"))
        _check_choice("noise", self.noise, ("shared",))
        _check_choice("dtype", self.dtype, ("float32", "float64"))
        if not isinstance(self.encoder, nn.Module):
            _check_choice("encoder", self.encoder, ("network", "table"), "or be a torch module")
        if self.kernel is not None and not isinstance(self.kernel, Kernel):
            _check_choice("kernel", self.kernel, kernels.NAMES, "or be a gpytorch.kernels.Kernel")
        if isinstance(self.init, str):
            _check_choice("init", self.init, ("pca", "random"), "or be an array [N, n_components]")
        elif np.shape(self.init) != (N, self.n_components) or not np.isfinite(self.init).all():
            raise InputError(
                f"An array as init must hold finite numbers, one row of n_components={self.n_components} for each of "
                f"the {N} rows of data. Got shape {np.shape(self.init)}."
            )
        if not (isinstance(self.encoder_noise, int | float | np.number) and 0 <= self.encoder_noise < math.inf):
            raise InputError(f"encoder_noise must be a number of at least 0. Got {self.encoder_noise!r}.")
        if not 0 < self.validation_fraction < 1:
            raise InputError(f"validation_fraction must lie between 0 and 1. Got {self.validation_fraction!r}.")
        if self.early_stopping is not None and self.encoder == "table":
            raise InputError(
                "early_stopping needs an encoder that can place held-out rows. Got encoder='table'. Use "
                "encoder='network', or set max_epochs instead."
            )
        if self.active_set_size is None:
            _check_memory(N, self._dtype)
        elif self.active_set_size >= self.batch_size:
            raise InputError(
                f"active_set_size must be smaller than batch_size. Got {self.active_set_size} with batch_size="
                f"{self.batch_size}: no point would be left to predict. Lower active_set_size or raise batch_size."
            )
        try:
            torch.empty(0, device=self._device)
        except (RuntimeError, AssertionError) as error:
            raise InputError(
                f"device must be 'auto', 'cpu' or a device that torch finds here. Got {self.device!r}: "
                f"{str(error).splitlines()[0]}"
            ) from error


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


# What scikit-learn's check_array is asked for: the shape, the dtype and sparse input are its business, NaN is ours
_NO_CONVERSION: dict[str, Any] = {"dtype": "numeric", "ensure_all_finite": False, "ensure_min_samples": 1}


def _class_name(instance: object) -> str:
    return f"{type(instance).__module__}.{type(instance).__qualname__}"


def _subclasses(cls: type) -> list[type]:
    return [found for sub in cls.__subclasses__() for found in (sub, *_subclasses(sub))]


def _check_count(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        raise InputError(f"{name} must be a whole number of at least 1. Got {value!r}.")


def _check_choice(name: str, value: object, choices: Sequence[str], also: str = "") -> None:
    if isinstance(value, str) and value in choices:
        return
    close = difflib.get_close_matches(str(value), choices, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    expected = ", ".join(map(repr, choices)) if len(choices) < 2 else f"one of {', '.join(map(repr, choices))}"
    raise InputError(f"{name} must be {expected}{', ' + also if also else ''}. Got {value!r}.{hint}")


def _check_range(X: NDArray[np.generic]) -> None:
    """Squares of the data must fit into float32."""
    largest = max(float(np.abs(block).max()) for _, block in row_blocks(X))
    if largest > 1e17:
        raise InputError(
            f"Expected values whose squares fit into float32. Got one of size {largest:.3g}. Rescale the data, or use "
            "dtype='float64'."
        )


def _check_memory(N: int, dtype: torch.dtype) -> None:
    """A step of the exact model holds about eight N×N matrices at once."""
    need = 8 * N * N * dtype.itemsize
    have = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if need > have:
        raise InputError(
            f"An exact GP-LVM of {N} rows needs about {need / 2**30:.0f} GiB of memory. Got a machine with "
            f"{have / 2**30:.0f} GiB. Use SASGP with an active_set_size, or fewer rows."
        )
