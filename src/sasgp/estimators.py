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
from typing import Any, ClassVar, Literal, Self, TypeVar, overload

import numpy as np
import torch
from gpytorch.kernels import Kernel
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.utils.data import Dataset

from sasgp import __version__, kernels, latents, layouts, neighbours, start, storage, supports
from sasgp.checkpoint import Keeper, differences, fingerprint, resolve, sampled
from sasgp.checkpoint import read as read_checkpoint
from sasgp.checks import check_count, check_curve, check_evidence, check_latents, check_rows, check_settings
from sasgp.encoders import Custom, Encoder, Table
from sasgp.errors import InputError
from sasgp.evidence import Evidence, EvidenceCurve, curve, doublings, exact, sas, unbiased
from sasgp.explorer import Explorer, explore
from sasgp.factor import GP, amount, memory_needed
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
SCORE_SAMPLES = 16  # the median row of digits is then within .01 nats of the integral
MAX_COMPONENTS, LEAST_RELEVANCE = 12, 0.1  # of n_components="auto": to start with, and the share of the largest to keep
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
    noise_ : float or ndarray [D]
        The trained noise variance; one for every feature with noise="feature".
    n_components_ : int
        Dimensions of the latent space, also where n_components="auto" chose them.
    relevance_ : ndarray [Q]
        How much of each dimension the decoder uses: the spread of the latents there, in lengthscales of the kernel.
    active_set_size_, batch_size_ : int
        The sizes used, where the data were too few for those asked for.
    model_ : torch.nn.Module
        Encoder, kernel and noise as trained.
    posterior_ : Posterior
        The decoder conditioned on its support set.
    support_rows_ : ndarray
        Which training rows are in the support sets.
    supports_ : list of Posterior
        The same for further support sets, after `add_supports`.
    neighbours_ : Neighbours
        Rows to start refinement from, after `build_index`.

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
        for name in ("neighbours_", "supports_"):  # those of another fit
            self.__dict__.pop(name, None)
        if self.n_components == "auto":
            Q = min(MAX_COMPONENTS, array.shape[1])
            wide = clone(self).set_params(n_components=Q, kernel="rbf-ard", random_state=self.random_state)
            return self._adopt(wide.fit(X, checkpoint=checkpoint, resume=resume, callback=callback))
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
        chosen = self._choose_support(rows)
        self.support_rows_ = (chosen if rows.indices is None else rows.indices[chosen]).numpy()
        self.posterior_ = self._condition(rows, chosen)
        self.embedding_ = self._encode(everything)

    def _start(self, array: Any, rows: ArrayRows, *, resumed: bool) -> SASDecoder:
        """The model as training finds it. One that is resumed needs its structure alone: a file has its numbers."""
        dtype, device = self._dtype, self._device
        if resumed:
            mean, variances, ranges = np.zeros(array.shape[1]), *np.ones((2, array.shape[1]))
        else:
            mean, variances, ranges = moments(array)
        variance = float(variances.mean()) or 1.0  # constant data have no scale of their own
        centre = torch.as_tensor(mean, dtype=dtype, device=device)
        scales = start.scales(torch.as_tensor(variances / variance), torch.as_tensor(ranges / variance**0.5))
        units = variance**0.5 * (scales[1] if self.noise == "feature" else torch.ones(()))
        units = units.to(device, dtype)
        layout: start.Layout | None
        if resumed:
            layout = start.Layout(torch.zeros(len(rows), self.n_components_, dtype=dtype, device=device))
        else:
            layout = self._layout(array, rows, units)
        with progress_bar("encoder", start.fit_steps(layout), show=self.verbose) as update:
            encoder = start.encoder(self, rows, centre, units, layout, self.seed_, update, fitted=not resumed)
        kernel = start.kernel(self, encoder, rows, variance)
        model = SASDecoder(
            encoder,
            kernel,
            noise=start.noise(self.n_features_in_, self.n_components_) * variance,
            mean=centre,
            active_set_size=None if self.active_set_size is None else self.active_set_size_,
            encoder_noise=self.encoder_noise * start.noise_share(self.n_features_in_, self.n_components_),
            scales=scales if self.noise == "feature" else None,
        ).to(device, dtype)
        if layout is not None and not resumed:
            with progress_bar("kernel and noise", start.SETTLE_STEPS, show=self.verbose) as update:
                start.settle(model, rows, self.batch_size_, self.seed_, update)
        return model

    def _layout(self, array: Any, rows: ArrayRows, units: Tensor) -> start.Layout | None:
        """Where rows start, all or a subset of them; None where that is a projection, which needs no layout."""
        if isinstance(self.init, str) and self.init not in layouts.NAMES:
            return None
        among, chosen = np.arange(len(array)) if rows.indices is None else rows.indices.numpy(), None
        if hasattr(self.init, "fit_transform") or isinstance(self.init, str):
            if len(among) > (most := layouts.max_rows(self.init, array.shape[1])):
                chosen = torch.randperm(len(among), generator=generator(self.seed_, "layout"))[:most].sort().values
                among = among[chosen.numpy()]
            X = take_rows(array, among).astype(self.dtype)
            X = X / units.numpy(force=True) if units.ndim else X
            name = self.init if isinstance(self.init, str) else type(self.init).__name__
            with progress_bar(f"layout of {len(X)} rows ({name})", None, show=self.verbose):
                Z = layouts.lay_out(self.init, X, self.n_components_, self.seed_)
        else:
            Z = np.asarray(self.init)[among]
        return start.Layout(torch.as_tensor(Z, dtype=self._dtype, device=self._device), chosen)

    def _adopt(self, wide: Self) -> Self:
        """Take over what another estimator has learnt, without the dimensions that its decoder does not use."""
        settings = self.get_params(deep=False)
        self.__dict__ |= {name: value for name, value in vars(wide).items() if name not in settings}
        relevance = np.array(kernels.relevance(wide.kernel_, wide.embedding_))
        dims = [int(q) for q in np.argsort(-relevance) if relevance[q] >= LEAST_RELEVANCE * relevance.max()]
        self._n_features_out = len(dims)
        self.model_.encoder.keep(dims)
        self.model_.kernel = kernels.with_dimensions(wide.kernel_, dims)
        self.embedding_ = wide.embedding_[:, dims]
        self.posterior_ = self.model_.condition(wide.posterior_.X, wide.posterior_.Z[:, dims])
        return self

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

    @torch.no_grad()
    def _choose_support(self, rows: ArrayRows) -> Tensor:
        """Indices of the rows to condition on. Any will do; random ones follow the data's density."""
        draw, size = generator(self.seed_, "support"), int(self.support_size)
        order = torch.randperm(len(rows), generator=draw)
        if self.support == "random" or len(rows) <= size:
            return order[:size]
        order = order[: supports.CANDIDATES * size]
        parts = order.split(ENCODE_ROWS)  # type: ignore[no-untyped-call]
        Z = torch.cat([self.model_.encoder(rows.gather(part), part.to(self._device))[0] for part in parts])
        return order[supports.kmeans_plus_plus(Z, size, draw)]

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
            than the encoder put it. 0: the encoder's answer. 20 is enough for most.
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
        rows, draw = self._rows(X), generator(_seed(random_state), "posterior")
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
        training rows, in their order. More than 200 000 rows need the extra `neighbours`.
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

    def predict(
        self, Z: Any, return_std: bool = False, *, n_supports: int = 1, out: Any = None
    ) -> Array | tuple[Array, Array]:
        """Decode latents Z [M, Q]: the mean [M, D] of an observation there and, if asked for, its standard deviation.

        The standard deviation is that of a new observation, noise included. It grows away from the support points.
        Rows with as many columns as the training data, rather than `n_components`, are encoded first: the result is
        their reconstruction.

        Parameters
        ----------
        Z : array-like [M, Q] or [M, D]
        return_std : bool
        n_supports : int
            Support sets to predict from, each by itself; the results are combined. `add_supports` makes more than one.
        out : path or array, optional
            As for `transform`; with return_std it is a pair.
        """
        check_is_fitted(self)
        check_count("n_supports", n_supports)
        posteriors = [self.posterior_, *getattr(self, "supports_", ())]
        if n_supports > len(posteriors):
            raise InputError(
                f"n_supports must be at most the number of support sets that the model has, {len(posteriors)}. Got "
                f"{n_supports}; call add_supports(X_train, {n_supports - len(posteriors)}) first."
            )
        latents = check_latents(self, Z)
        shape, dtype = (len(latents), self.n_features_in_), np.dtype(self.dtype)
        outs = out if return_std and out is not None else (out, None)
        with Sink(outs[0], shape, dtype) as mean, Sink(outs[1], shape if return_std else (0, 0), dtype) as std:
            for block in self.posterior_.blocks(len(latents)):
                predictions = [posterior.predict(latents[block]) for posterior in posteriors[:n_supports]]
                m, var = supports.combine(predictions, self.posterior_.feature_noise)
                mean.add(m.numpy(force=True))
                if return_std:
                    std.add(var.sqrt().expand_as(m).numpy(force=True))
        return (mean.result, std.result) if return_std else mean.result

    def add_supports(self, X: Any, n_supports: int = 1) -> Self:
        """Draw further support sets from the training rows X [N, D], for `predict(Z, n_supports=...)`.

        Each has as many rows as the first, at random and none of them twice. They become part of the model and of its
        file, which grows by as much. Only `predict` asks them; all else goes on with the first.
        """
        check_is_fitted(self)
        check_count("n_supports", n_supports)
        rows, size = self._rows(X), len(self.posterior_.Z)
        taken = 1 + len(getattr(self, "supports_", ()))
        if len(rows) < (taken + n_supports) * size or (self._by_row and len(rows) != len(self.embedding_)):
            raise InputError(
                f"{n_supports} more support sets of {size} rows must come from the training rows, without those of the "
                f"{taken} that there are. Got {len(rows)} rows; hand over all training rows, ask for fewer sets, or "
                "fit with a smaller support_size."
            )
        free = torch.ones(len(rows), dtype=torch.bool)
        free[torch.from_numpy(self.support_rows_)] = False
        left = free.nonzero()[:, 0]
        order = left[torch.randperm(len(left), generator=generator(self.seed_, "supports", taken))]
        parts = order[: n_supports * size].view(n_supports, size)
        self.supports_ = [*getattr(self, "supports_", ()), *(self._condition(rows, part) for part in parts)]
        self.support_rows_ = np.concatenate([self.support_rows_, parts.flatten().numpy()])
        return self

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
        seed = self.seed_ if random_state is None else _seed(random_state)
        epsilon = latents.normal_points(max(1, n_samples), self.n_components_, seed)
        steps = latents.SCORE_STEPS if n_samples else 0
        with Sink(out, (len(rows),), np.dtype(self.dtype)) as sink, torch.no_grad():
            for X_block, Z, F in self._located(rows, posterior.block_size, refine=steps, spread=bool(n_samples)):
                if F is None:
                    log_p = posterior.log_density(X_block, Z)
                else:
                    log_p = latents.log_evidence(posterior, X_block, Z, F, epsilon)
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
        if n_samples < 1:
            raise InputError(f"n_samples must be at least 1. Got {n_samples}.")
        draw = generator(_seed(random_state), "sample")
        Z = torch.randn(n_samples, self.n_components_, generator=draw, dtype=self._dtype).to(self._device)
        return self.posterior_.sample(Z, draw, noise=noise).numpy(force=True)

    # ------------------------------------------------------------------------------------------------ evidence

    def evidence(
        self,
        X: Any,
        *,
        method: Literal["exact", "sas", "unbiased"] = "exact",
        Z: Any = None,
        active_set_size: int | None = None,
        batch_size: int | None = None,
        n_estimates: int = 20,
        dtype: Literal["float64", "float32"] = "float64",
        random_state: Any = None,
    ) -> Evidence:
        """How probable rows are under the decoder, given their latents: log p(X|Z) in nats.

        Z are the latents that `transform` finds, of Bayesian latents their means: it is the likelihood at one Z. The
        objective of training is another number, an average over q(Z) less the divergence from the prior.

        Parameters
        ----------
        X : array-like [N, D]
            As a rule the rows that the model was trained on; none of the support set is used.
        method : str
            "exact": the number itself, in N³/3 operations and half of an N×N matrix.
            "sas": the mean of the training estimate (Eq. 6) over random active sets. It costs A²·N each; on average it
            is too low as long as larger active sets predict better.
            "unbiased": SAS and a random correction, whose mean is the exact number. An estimate costs about N³/12.
        Z : array-like [N, Q], optional
            Latents, where they are known: `embedding_` for the training rows of a model with encoder="table".
        active_set_size : int, optional
            A of "sas" and "unbiased". By default that of training.
        batch_size : int, optional
            Rows of one "sas" estimate, active ones included. By default all N.
        n_estimates : int
            Independent repetitions of "sas" and "unbiased".
        dtype : str
            Of the factor: "float32" takes half of the memory and of the time.
        random_state : int, RandomState or None
            None draws anew each time.

        Returns
        -------
        Evidence
            With `mean`, `standard_error`, `per_value`, and what it cost.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        A = self._active_rows(len(rows)) if active_set_size is None else active_set_size
        check_evidence(len(rows), method, A, batch_size, n_estimates, dtype)
        gp, draw = self._gp(rows, Z, dtype), generator(_seed(random_state), "evidence")
        memory = f", {amount(memory_needed(gp, len(rows)))}" if method == "exact" else ""
        with progress_bar(f"evidence{memory}", 1, show=self.verbose) as update:
            if method == "exact":
                return exact(gp, update)
            if method == "sas":
                return sas(gp, A, n_estimates, draw, B=batch_size, update=update)
            return unbiased(gp, A, n_estimates, draw, update=update)

    def evidence_curve(
        self,
        X: Any,
        *,
        sizes: Sequence[int] | None = None,
        Z: Any = None,
        n_estimates: int = 20,
        dtype: Literal["float64", "float32"] = "float64",
        random_state: Any = None,
    ) -> EvidenceCurve:
        """How well a row is predicted from `a` others drawn at random, against a: whether more would help.

        Where the curve is flat at `active_set_size`, they would not. `print` says it in words, and
        `plots.evidence_curve` draws it.

        Parameters
        ----------
        X : array-like [N, D]
        sizes : sequence of int, optional
            Sizes of the active set, each below N. By default that of the model, its halves and doubles.
        Z, dtype, random_state
            As of `evidence`.
        n_estimates : int
            Independent repetitions: active sets and rows that are predicted.

        Returns
        -------
        EvidenceCurve
            With `sizes`, and `mean` and `standard_error` in nats a row.
        """
        check_is_fitted(self)
        rows = self._rows(X)
        A = self._active_rows(len(rows))
        sizes = doublings(A, len(rows)) if sizes is None else sorted({*np.atleast_1d(sizes).tolist()})
        check_curve(len(rows), sizes, n_estimates, dtype)
        gp, draw = self._gp(rows, Z, dtype), generator(_seed(random_state), "evidence")
        with progress_bar("curve", 1, show=self.verbose) as update:
            return curve(gp, sizes, A, n_estimates, draw, update=update)

    def _active_rows(self, N: int) -> int:
        """A for the evidence of N rows: that of training, or its default where everything was active."""
        A = Settings.active_set_size if self.active_set_size is None else self.active_set_size_
        assert A is not None
        return min(A, N - 1)

    def _gp(self, rows: ArrayRows, Z: Any, dtype: str) -> GP:
        """Rows and their latents under the trained kernel, in float64 until they are factored."""
        if Z is None:
            Z = self._encode(rows, known=False)
        elif np.shape(Z) != (len(rows), self.n_components_):
            raise InputError(
                f"Z must have n_components_={self.n_components_} columns and a row for each of the {len(rows)} rows of "
                f"X. Got shape {np.shape(Z)}."
            )
        model, mean, scales = self.model_, self.model_.mean.double(), self.posterior_.scales
        return GP(
            model.kernel,
            float(self.posterior_.noise),
            torch.as_tensor(np.asarray(Z, np.float64), device=self._device),
            lambda index: (rows.gather(index.cpu()).double() - mean) / scales,
            self.n_features_in_,
            row_offset=-self.n_features_in_ * float(scales.log().mean()),
            dtype=getattr(torch, dtype),
        )

    def _located(
        self, rows: ArrayRows, size: int, *, known: bool = False, refine: int = 0, spread: bool = False
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Rows, their latents and the factors of their q(z|x), a block at a time; `known` rows are those of a Table."""
        check_count("refine", refine, 0)
        index = getattr(self, "neighbours_", None)
        locate = latents.Locator(
            self.model_.encoder,
            self.posterior_,
            steps=refine,
            starts=() if index is None else [index],
            known=known,
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
        if model.log_scales is not None and model.least_scales is not None:
            tensors["scales"] = torch.stack([model.least_scales, model.log_scales])
        tensors["embedding"] = torch.from_numpy(self.embedding_)
        tensors["support.rows"] = torch.from_numpy(self.support_rows_)
        for i, more in enumerate(getattr(self, "supports_", ()), 1):
            tensors |= {f"support.{i}.X": more.X, f"support.{i}.Z": more.Z}

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
        neighbours.write(path, getattr(self, "neighbours_", None), self.embedding_)

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
        self.support_rows_ = tensors.get("support.rows", torch.empty(0, dtype=torch.int64)).numpy()
        self._restore(header["kernel"], tensors, path)
        index = neighbours.read(path, self.embedding_, self._device)
        if index is not None:
            self.neighbours_ = index
        return self

    def _restore(self, fitted_kernel: dict[str, Any], tensors: dict[str, Tensor], path: str | Path) -> None:
        """Rebuild model and posterior from a file's tensors."""
        bayesian, mean = self.latents == "bayesian", tensors["mean"]
        encoder: Encoder
        if isinstance(self.encoder, nn.Module):
            encoder = Custom(copy.deepcopy(self.encoder), self.n_components_, variance=bayesian)
        elif self.encoder == "table":
            encoder = Table(tensors["embedding"], variance=bayesian)
        else:
            sized = copy.copy(self)
            sized.n_components = self.n_components_
            encoder = start.network(sized, mean, torch.ones_like(tensors["encoder.scale"]), self.seed_)
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
        scales = tensors.get("scales")
        if scales is not None:
            scales = torch.stack([scales[0], scales[1].exp()])
        model = SASDecoder(encoder, kernel, noise=1.0, mean=mean, active_set_size=size, scales=scales)
        with torch.no_grad():
            model.log_noise.copy_(tensors["log_noise"])
            if model.log_scales is not None:
                model.log_scales.copy_(tensors["scales"][1])
        self.model_ = model.to(self._device, self._dtype).eval()
        device = self._device
        self.posterior_ = self.model_.condition(tensors["support.X"].to(device), tensors["support.Z"].to(device))
        count = sum(name.startswith("support.") for name in tensors) // 2 - 1
        if count:
            pairs = [(tensors[f"support.{i}.X"], tensors[f"support.{i}.Z"]) for i in range(1, count + 1)]
            self.supports_ = [self.model_.condition(X.to(device), Z.to(device)) for X, Z in pairs]

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
