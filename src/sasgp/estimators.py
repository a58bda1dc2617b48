"""The scikit-learn face: SASGP and GPLVM.

    model = SASGP(random_state=0).fit(X)
    Z = model.transform(X_new)
    mean, std = model.predict(Z, return_std=True)

Arrays go in and come out; tensors stay inside.
"""

import copy
import math
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from sasgp import kernels, latents, layouts, storage
from sasgp.encoders import Custom, Encoder, Network, Table
from sasgp.errors import InputError
from sasgp.models.sas import SASDecoder
from sasgp.posterior import Posterior
from sasgp.progress import progress_bar
from sasgp.rows import ArrayRows, check_finite, moments
from sasgp.settings import Settings
from sasgp.train import Epoch, generator, train

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

        network = Network(
            centre, math.sqrt(variance), self.n_components, variance=bayesian, generator=generator(self.seed_, "network")
        ).to(self._device, self._dtype)
        with progress_bar("layout", layouts.FIT_STEPS, show=self.verbose) as update:
            layouts.fit_encoder(network, rows, layout, self.seed_, lambda step, total, loss: update(step))
        return network

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
                update(step, f"epoch {epoch}/{epochs}  objective {-loss:.4f}  noise {float(model.log_noise.exp()):.3g}")

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
