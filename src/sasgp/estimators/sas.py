"""SASGP and GPLVM: decoders that are Gaussian processes conditioned on rows of the data.

What they have beyond `base` follows from that: support sets, the evidence log p(X|Z), and dimensions that can be left
out afterwards.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import torch
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.memory import amount
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators.base import ENCODE_ROWS, Array, BaseDecoder, seed_of
from sasgp.estimators.validation import check_count, check_curve, check_evidence
from sasgp.gp import kernels, supports
from sasgp.gp.evidence import Evidence, EvidenceCurve, curve, doublings, exact, sas, unbiased
from sasgp.gp.factor import GP, memory_needed
from sasgp.gp.posterior import Posterior
from sasgp.models.encoders import Encoder
from sasgp.models.sas import SASDecoder
from sasgp.models.settings import Settings
from sasgp.training import initialise
from sasgp.training.loop import generator
from sasgp.training.progress import progress_bar

__all__ = ["GPLVM", "SASGP"]

MAX_COMPONENTS, LEAST_RELEVANCE = 12, 0.1  # of n_components="auto": to start with, and the share of the largest to keep
VALIDATION_SUPPORT = 400  # rows that held-out rows are predicted from


@dataclass(eq=False, repr=False)
class SASGP(BaseDecoder):
    __doc__ = (
        "A Gaussian-process decoder trained with stochastic active sets.\n"
        + (Settings.__doc__ or "").partition("\n")[2]
        + """
    Attributes
    ----------
    embedding_ : ndarray [N, Q]
        Latents of the training rows.
    history_ : list of dict
        A record for every epoch: epoch, step, loss (negative objective in nats for each entry of the data; with
        `neighbours` it has the cost of leaving the layout in it), noise, learning_rate, seconds, how many steps were
        dropped because their numbers were not finite, and with `early_stopping` held_out_loss.
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

    def _fit(self, X: Any, array: Any, **how: Any) -> Self:
        if self.n_components != "auto":
            return super()._fit(X, array, **how)
        Q = min(MAX_COMPONENTS, array.shape[1])
        wide = clone(self).set_params(n_components=Q, kernel="rbf-ard", random_state=self.random_state)
        return self._adopt(wide.fit(X, **how))

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

    def _check_world(self, world: int) -> None:
        if world > 1 and self.active_set_size is None:
            raise InputError(
                f"The exact GP-LVM has one batch, all rows. Got {world} processes for it; use one, or SASGP."
            )

    def _set_sizes(self, N: int) -> None:
        if self.active_set_size is None:
            self.batch_size_ = self.active_set_size_ = N
            return
        batch, active = min(int(self.batch_size), N), int(self.active_set_size)
        self.batch_size_ = batch
        self.active_set_size_ = active if batch == self.batch_size else min(active, (batch + 1) // 2)

    def _model(self, encoder: Encoder, rows: ArrayRows, measured: initialise.Measured) -> SASDecoder:
        return SASDecoder(
            encoder,
            initialise.kernel(self, encoder, rows, measured.variance, self.seed_),
            noise=measured.noise,
            mean=measured.centre,
            active_set_size=None if self.active_set_size is None else self.active_set_size_,
            encoder_noise=measured.encoder_noise,
            scales=measured.scales if self.noise == "feature" else None,
        )

    def _interim(self, rows: ArrayRows) -> Posterior:
        support = torch.randperm(len(rows), generator=generator(self.seed_, "early stopping"))[:VALIDATION_SUPPORT]
        return self._condition(rows, support)

    def _final(self, rows: ArrayRows) -> Posterior:
        chosen = self._choose_support(rows)
        self.support_rows_ = (chosen if rows.indices is None else rows.indices[chosen]).numpy()
        return self._condition(rows, chosen)

    @torch.no_grad()
    def _condition(self, rows: ArrayRows, chosen: Tensor) -> Posterior:
        X = rows.gather(chosen)
        return self.model_.condition(X, self.model_.encoder.position(X, chosen.to(self._device)))

    @torch.no_grad()
    def _choose_support(self, rows: ArrayRows) -> Tensor:
        """Indices of the rows to condition on. Any will do; random ones follow the data's density."""
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
        return self._predict(Z, posteriors[:n_supports], return_std, out)

    def add_supports(self, X: Any, n_supports: int = 1) -> Self:
        """Draw further support sets from the training rows X [N, D], for `predict(Z, n_supports=...)`.

        Each has as many rows as the first, at random and none of them twice. They become part of the model and of its
        file, which grows by as much. Only `predict` asks them; all else goes on with the first.
        """
        check_is_fitted(self)
        check_count("n_supports", n_supports)
        rows, size = self._rows(X), len(self.posterior_.Z)
        taken = 1 + len(getattr(self, "supports_", ()))
        too_few = len(rows) < max((taken + n_supports) * size, 1 + self.support_rows_.max())
        if too_few or (self._by_row and len(rows) != len(self.embedding_)):
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
        gp, draw = self._gp(rows, Z, dtype), generator(seed_of(random_state), "evidence")
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
        gp, draw = self._gp(rows, Z, dtype), generator(seed_of(random_state), "evidence")
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

    # ------------------------------------------------------------------------------------------------ files

    _SAVED: ClassVar[tuple[str, ...]] = (*BaseDecoder._SAVED, "active_set_size_")

    def _tensors(self) -> dict[str, Tensor]:
        model, posterior = self.model_, self.posterior_
        tensors = {"mean": model.mean, "log_noise": model.log_noise, "support.X": posterior.X, "support.Z": posterior.Z}
        if model.log_scales is not None and model.least_scales is not None:
            tensors["scales"] = torch.stack([model.least_scales, model.log_scales])
        tensors["embedding"] = torch.from_numpy(self.embedding_)
        tensors["support.rows"] = torch.from_numpy(self.support_rows_)
        for i, more in enumerate(getattr(self, "supports_", ()), 1):
            tensors |= {f"support.{i}.X": more.X, f"support.{i}.Z": more.Z}
        return tensors

    def _restore(self, encoder: Encoder, kernel: Any, tensors: dict[str, Tensor]) -> None:
        self.support_rows_ = tensors.get("support.rows", torch.empty(0, dtype=torch.int64)).numpy()
        size = None if self.active_set_size is None else self.active_set_size_
        scales = tensors.get("scales")
        if scales is not None:
            scales = torch.stack([scales[0], scales[1].exp()])
        model = SASDecoder(encoder, kernel, noise=1.0, mean=tensors["mean"], active_set_size=size, scales=scales)
        with torch.no_grad():
            model.log_noise.copy_(tensors["log_noise"])
            if model.log_scales is not None:
                model.log_scales.copy_(tensors["scales"][1])
        device = self._device
        self.model_ = model.to(device, self._dtype).eval()
        self.posterior_ = self.model_.condition(tensors["support.X"].to(device), tensors["support.Z"].to(device))
        count = sum(name.startswith("support.") for name in tensors) // 2 - 1
        if count:
            pairs = [(tensors[f"support.{i}.X"], tensors[f"support.{i}.Z"]) for i in range(1, count + 1)]
            self.supports_ = [self.model_.condition(X.to(device), Z.to(device)) for X, Z in pairs]


@dataclass(eq=False, repr=False)
class GPLVM(SASGP):
    """The exact GP-LVM: SASGP with everything active, trained on log p(X|Z) itself (Eq. 2).

    Memory grows with the square of the rows and time with their cube: for up to a few thousand rows. Parameters,
    methods and attributes are those of :class:`SASGP`, without `active_set_size` and `batch_size`, and with
    `latents="point"` as the default.
    """

    latents: Literal["bayesian", "point"] = "point"
    active_set_size: None = field(init=False, default=None)
    batch_size: int = field(init=False, default=SASGP.batch_size)
