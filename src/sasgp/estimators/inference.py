"""Latents of new rows: transform, posterior samples, and scores.

`Locator` finds the z* of a row: the encoder's answer, or a refined one that climbs the row's density from there
(`sasgp.gp.refine`).
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import TransformerMixin
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.data.columns import Columns
from sasgp.data.outputs import Out, Sink
from sasgp.data.progress import progress_bar
from sasgp.data.rows import ArrayRows
from sasgp.data.tables import read_frame
from sasgp.errors import InputError
from sasgp.estimators.cells import log_factors
from sasgp.estimators.tables import ColumnDensity, table_frame
from sasgp.estimators.validation import check_count, check_rows, seed_of
from sasgp.gp.objective import LOG_2PI
from sasgp.gp.posterior import Predictive
from sasgp.gp.refine import N_STARTS, PositionStarts, climb, laplace, log_evidence, normal_points, refine
from sasgp.gp.row_density import row_density
from sasgp.models.anchor import distance_cost
from sasgp.models.encoders import ENCODE_ROWS, Encoder
from sasgp.models.settings import Settings
from sasgp.training.loop import Ranks, generator
from sasgp.training.shares import rows_of_all

__all__ = ["Inference", "Locator", "sinks", "transform_together"]

Array = NDArray[np.floating[Any]]

HELD = 0.25  # cost of leaving the encoder's answer in refinement, relative to the cost of leaving the layout
SCORE_SAMPLES = 16  # of the integral over z, for each row


class Locator:
    """Finds the latents of rows, for all kinds of encoder.

    Parameters
    ----------
    encoder : Encoder
        Its answer is the latent or, if there are steps, the first start.
    posterior : Predictive
        It is not used if the encoder's answer is all that is asked for.
    steps : int
        Steps of refinement. A table cannot encode new rows, so a search of 80 steps finds their latents first.
    known : bool
        Whether the rows are the training rows of a table.
    weight : float
        If it is not 0, rows climb only from the encoder's answer, if it has one. Leaving that answer then costs as much
        as leaving a layout (`sasgp.models.anchor`) with this weight, so rows stay in its neighbourhood.
    """

    def __init__(
        self,
        encoder: Encoder,
        posterior: Predictive,
        *,
        steps: int = 0,
        known: bool = False,
        weight: float = 0.0,
    ) -> None:
        self.encoder, self.posterior = encoder, posterior.search
        self.encodes = encoder.amortised or known
        self.steps, self.searches = steps, steps > 0 or not self.encodes
        self.weight = weight if self.encodes else 0.0
        everywhere = self.searches and not self.weight
        self.starts = PositionStarts(self.posterior) if everywhere else None

    @staticmethod
    def rows_at_once(posterior: Predictive) -> int:
        """Rows refined at a time."""
        return max(1, posterior.block_size // N_STARTS)

    @torch.no_grad()
    def __call__(self, X: Tensor, index: Tensor, *, spread: bool = False) -> tuple[Tensor, Tensor | None]:
        """Latents [M, Q] of rows X [M, D] with the numbers `index` and, if asked for, F [M, Q, Q] of z ~ N(z*, F Fᵀ).

        F comes from the encoder if z* does. Otherwise it comes from the curvature at z*, because the encoder's variance
        belongs to another place.
        """
        starts = [] if self.starts is None else [self.starts(X)]
        if self.encodes:
            if not self.steps and spread:
                Z, var = self.encoder(X, index)
                return Z, None if var is None else torch.diag_embed(var.sqrt())
            Z = self.encoder.position(X, index)
        else:
            Z = refine(self.posterior, X, torch.cat(starts, 1), 80)
        if self.steps and self.weight:
            density = row_density(self.posterior, X)
            Z = climb(density, Z, self.steps, lambda at: self.weight * distance_cost(at, Z))[0]
        elif self.steps:
            Z = refine(self.posterior, X, torch.cat([Z[:, None], *starts], 1), self.steps)
        return Z, laplace(self.posterior, X, Z) if spread else None


class Inference(Settings, TransformerMixin):
    """The methods of an estimator that find latents."""

    model_: Any  # a LatentModel, of the class that `_MODEL` names
    posterior_: Any
    embedding_: Array
    n_features_in_: int
    dtype_: Literal["float32", "float64"]
    size_factor_: float | None
    seed_: int
    columns_: Columns | None
    _n_features_out: int

    @property
    def n_scores_(self) -> int:
        """D, the numbers per row that the decoder sees: the features of an array, or the scores of a table."""
        return self.n_features_in_ if self.columns_ is None else self.columns_.n_scores

    @property
    def n_components_(self) -> int:
        """Dimensions of the latent space, also if n_components="auto" chose them."""
        return self._n_features_out

    @overload
    def transform(self, X: Any, *, refine: int = 0, return_std: Literal[False] = False, out: Any = None) -> Array: ...

    @overload
    def transform(self, X: Any, *, refine: int = 0, return_std: bool, out: Any = None) -> Any: ...

    def transform(self, X: Any, *, refine: int = 0, return_std: bool = False, out: Any = None) -> Any:
        """Latents [M, Q] of rows X [M, D].

        With a network, this is one forward pass: the mean of q(z|x). With encoder="table", the latent of each row is
        found by optimising the row's density under the decoder.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes. Memory maps and Datasets are read one block at a time.
        refine : int
            Gradient steps that refine the encoder's z for each row: they climb log p(x|z) + log p(z) from the encoder's
            answer and from the decoder's positions that explain the row best. No row ends lower than the encoder put
            it. 0 is the encoder's answer; 20 is enough for most rows. With `layout_weight`, a network's answer is the
            only start and leaving it has a cost, because a better explanation far away would lie among other
            neighbours.
        return_std : bool
            Return also the standard deviation [M, Q] of each latent, for Bayesian latents. It is that of q(z|x) from
            the network. If z* was refined or searched for, it is that of the Gaussian with the curvature of p(z|x) at
            z* (Laplace's approximation).
        out : path or array, optional
            Where the result goes, one block at a time: the name of a .npy file, which is returned as a memory map, or
            an array [M, Q]. With return_std it is a pair.
        """
        check_is_fitted(self)
        self._check_bayesian("return_std", return_std)
        return self._encode(self._rows(X), refine=refine, return_std=return_std, out=out)

    def posterior_samples(self, X: Any, n_samples: int = 1, *, refine: int = 0, random_state: Any = None) -> Array:
        """Draw latents [n_samples, M, Q] of rows X [M, D], for Bayesian latents.

        The draws come from the Gaussian whose mean and standard deviation `transform(X, refine=..., return_std=True)`
        returns. With `refine` it also follows the correlation of the latents.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes.
        n_samples : int
            Draws for each row.
        refine : int
            As for `transform`.
        random_state : int, RandomState or None
            None: a new draw each time.
        """
        check_is_fitted(self)
        self._check_bayesian("posterior_samples", True)
        check_count("n_samples", n_samples)
        rows, draw = self._rows(X), generator(seed_of(random_state), "posterior")
        samples = np.empty((n_samples, len(rows), self.n_components_), self.dtype_)
        done = 0
        for _, Z, F in self._located(rows, ENCODE_ROWS, refine=refine, spread=True):
            assert F is not None
            epsilon = torch.randn(len(Z), self.n_components_, n_samples, generator=draw, dtype=F.dtype).to(F.device)
            # z = z* + F ε
            samples[:, done : done + len(Z)] = (Z[:, :, None] + F @ epsilon).permute(2, 0, 1).numpy(force=True)
            done += len(Z)
        return samples

    def score_samples(
        self, X: Any, *, n_samples: int | None = None, random_state: Any = None, out: Out | None = None
    ) -> Array:
        """Log density [M] of each row under the model, in nats summed over features: low for anomalies.

        For a table, it is in the units of its columns: the log density of numbers and the log probability of levels.

        With Bayesian latents it estimates log p(x) = log ∫ p(x|z) p(z) dz, by importance sampling around the row's
        refined latent and from the prior. The estimate's exponential is unbiased, so the logarithm is a lower bound on
        average, tighter with more samples. With point latents, or n_samples=0, it is log N(x | m(z*), c(z*) I) at
        z* = transform(x), which measures reconstruction through the latent space. The negative of its mean per feature
        is the paper's NLPD. If the model is one of counts and X an AnnData object, it is the log density of the counts.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes.
        n_samples : int, optional
            Latent points per row. None: 16 with Bayesian latents, 0 with point ones.
        random_state : int, RandomState or None
            Seed of these points, which are the same for all rows. None: the model's own seed, so that the result does
            not change between calls.
        out : path or array, optional
            As for `transform`.
        """
        check_is_fitted(self)
        n_samples = (SCORE_SAMPLES if self.latents == "bayesian" else 0) if n_samples is None else n_samples
        check_count("n_samples", n_samples, 0)
        self._check_bayesian("n_samples", bool(n_samples))
        posterior, factors = self.posterior_, log_factors(self, X)
        rows, density = self._rows_and_density(X, posterior)
        seed = self.seed_ if random_state is None else seed_of(random_state)
        epsilon = normal_points(max(1, n_samples), self.n_components_, seed)
        steps = 4 if n_samples else 0  # the Gaussian must be near the maximum; more steps gain nothing
        with Sink(out, (len(rows),), np.dtype(self.dtype_)) as sink, torch.no_grad():
            located = self._located(rows, posterior.block_size, refine=steps, spread=bool(n_samples), anywhere=True)
            for X_block, Z, F in located:
                of_block = density(len(X_block))
                if F is None:
                    log_p = of_block.log_density(X_block, Z)
                else:
                    log_p = log_evidence(of_block, X_block, Z, F, epsilon)
                sink.add(self._of_counts(log_p, X_block, factors, sink.done))
        return sink.result

    def score_features(self, X: Any, *, refine: int = 10) -> NDArray[np.float64]:
        """Log density [M, D] of each value given its row's latent: low for what is unusual about a row.

        For a table, it has one column for each column that the model was trained on, in the units of `score_samples`.
        A missing cell is NaN.

        Parameters
        ----------
        X : array-like [M, D]
            Whatever `fit` takes.
        refine : int
            As for `transform`. The encoder may not see what is wrong with an unusual row.
        """
        check_is_fitted(self)
        posterior = self.posterior_
        rows, density = self._rows_and_density(X, posterior)
        found: list[NDArray[np.float64]] = []
        with torch.no_grad():
            for X_block, Z, _ in self._located(rows, posterior.block_size, refine=refine, anywhere=True):
                of_block = density(len(X_block))
                if isinstance(of_block, ColumnDensity):
                    found.append(of_block.by_column(Z))
                    continue
                mean, var = (part.double() for part in posterior.predict(Z))
                log_p = -0.5 * (LOG_2PI + var.log() + (X_block.double() - mean).square() / var)
                found.append(log_p.numpy(force=True))
        return np.concatenate(found)

    def score(self, X: Any, y: Any = None) -> float:
        """The mean of `score_samples`, which a grid search maximises.

        Parameters
        ----------
        X : array-like [M, D], DataFrame or AnnData
            Whatever `fit` takes.
        y : ignored
        """
        return float(np.mean(self.score_samples(X), dtype=np.float64))

    # ------------------------------------------------------------------------------------------------ shared

    def _rows_and_density(self, X: Any, decoder: Predictive) -> tuple[ArrayRows, Callable[[int], Predictive]]:
        """Rows, and what gives the density of the next n of them: the decoder or, for a table, one in its units."""
        rows = self._rows(X)
        columns = self.columns_
        if columns is None:
            return rows, lambda n: decoder
        frame, done = table_frame(self, X), 0

        def following(n: int) -> Predictive:
            nonlocal done
            part, done = read_frame(frame[done : done + n]).frame, done + n
            return ColumnDensity(decoder, columns, columns.values(part))

        return rows, following

    def _of_counts(self, log_p: Tensor, X: Tensor, factors: NDArray[np.float64] | None, done: int) -> Array:
        """Log densities [B] of rows X as they were given: of the counts whose scores they are, if there are factors."""
        if factors is None:
            return log_p.to(self._dtype).numpy(force=True)
        jacobian = torch.as_tensor(factors[done : done + len(X)], device=X.device) - X.double().sum(1)
        return (log_p.double() + jacobian).to(self._dtype).numpy(force=True)

    def _located(
        self,
        rows: ArrayRows,
        size: int,
        *,
        part: slice = slice(None),
        known: bool = False,
        refine: int = 0,
        spread: bool = False,
        anywhere: bool = False,
    ) -> Iterator[tuple[Tensor, Tensor, Tensor | None]]:
        """Rows, or a part of them, their latents and the factors of their q(z|x), one block at a time.

        `known` rows are the training rows of a table. With `anywhere`, refinement may leave the neighbourhood of the
        encoder's answer, even if `layout_weight` keeps latents there otherwise.
        """
        check_count("refine", refine, 0)
        locate = Locator(
            self.model_.encoder,
            # `fit` encodes its rows before it has a decoder to condition on them
            self.posterior_ if hasattr(self, "posterior_") else Predictive(),
            steps=refine,
            known=known,
            weight=0.0 if anywhere else HELD * self.layout_weight * self.n_scores_,
        )
        size = min(size, locate.rows_at_once(self.posterior_)) if locate.searches else size
        done, stop, _ = part.indices(len(rows))
        first, count = done, stop - done
        long = locate.searches or count > 50 * size
        with progress_bar("latents", count, show=self.verbose, brief=not long) as update:
            for X in rows.blocks(size, part):
                yield X, *locate(X, torch.arange(done, done + len(X), device=self._device), spread=spread)
                done += len(X)
                update(done - first)

    def _encode(
        self,
        rows: ArrayRows,
        part: slice = slice(None),
        *,
        known: bool = False,
        refine: int = 0,
        return_std: bool = False,
        out: Any = None,
    ) -> Any:
        """Latents [N, Q] of rows, or of a part of them, and their standard deviations if asked for."""
        shape = (len(range(len(rows))[part]), self.n_components_)
        with sinks(out, return_std, shape, np.dtype(self.dtype_)) as (mean, *std):
            for _, Z, F in self._located(rows, ENCODE_ROWS, part=part, known=known, refine=refine, spread=return_std):
                mean.add(Z.numpy(force=True))
                if F is not None:
                    std[0].add(F.norm(dim=2).numpy(force=True))  # √ diag F Fᵀ
        return (mean.result, std[0].result) if return_std else mean.result

    def _encode_together(self, rows: ArrayRows, ranks: Ranks) -> Array:
        """Latents [N, Q] of the training rows: each process encodes its share, and all get the whole."""
        shape = (len(rows), self.n_components_)
        return rows_of_all(
            ranks,
            lambda part: self._encode(rows, part, known=True),
            shape,
            self.dtype_,
            block=ENCODE_ROWS,
            show=self.verbose,
        )

    def _rows_at_once(self, refine: int) -> int:
        """Rows whose latents `transform` finds at a time."""
        if not refine and self.model_.encoder.amortised:
            return ENCODE_ROWS
        return min(ENCODE_ROWS, Locator.rows_at_once(self.posterior_))

    def _check_bayesian(self, what: str, wanted: bool) -> None:
        if wanted and self.latents != "bayesian":
            raise InputError(
                f"{what} needs Bayesian latents, which have a distribution. This model has latents={self.latents!r}, "
                "one position per row. Fit it with latents='bayesian'.",
                argument="latents",
            )

    @property
    def _dtype(self) -> torch.dtype:
        return {"float32": torch.float32, "float64": torch.float64}[self.dtype_]

    @property
    def _device(self) -> torch.device:
        return self.torch_device()

    @property
    def _by_row(self) -> bool:
        """Whether each row has its own parameters."""
        return isinstance(self.encoder, str) and self.encoder == "table"

    def _rows(self, X: Any) -> ArrayRows:
        return ArrayRows(check_rows(self, X, reset=False), self._dtype, self._device)


def transform_together(model: Inference, X: NDArray[Any], ranks: Ranks, *, refine: int = 0) -> Array:
    """`model.transform(X, refine=refine)`, of which each process finds its share. All of them get the whole.

    No process reads more of X than its share. All must pass the same model and rows.
    """
    if ranks.world == 1:
        return model.transform(X, refine=refine)
    shape, block = (len(X), model.n_components_), model._rows_at_once(refine)
    verbose, model.verbose = model.verbose, False  # one bar for all rounds, instead of one for each
    try:
        return rows_of_all(
            ranks, lambda part: model.transform(X[part], refine=refine), shape, model.dtype_, block=block, show=verbose
        )
    finally:
        model.verbose = verbose


@contextmanager
def sinks(out: Any, pair: bool, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[list[Sink]]:
    """A sink for the result or, for a `pair`, sinks for the result and its standard deviation."""
    outs = out if pair and out is not None else (out, None)
    with ExitStack() as stack:
        yield [stack.enter_context(Sink(one, shape, dtype)) for one in outs[: 1 + pair]]
