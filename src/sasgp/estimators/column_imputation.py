"""Missing values of a table of numbers by regression of each column on the others: what `SASGPImputer` does by default.

A Gaussian over all columns gives the first answer, and the inputs of the regressions (`sasgp.gp.masked_gaussian`). A
Gaussian process for each column, trained with Eq. 6, learns what is not linear (`sasgp.gp.column_regression`).
Predictions for observed values, each left out, say how far predictions are to be trusted, and how they spread
(`sasgp.gp.residuals`). Draws of several cells of a row are correlated as the Gaussian says.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri
from torch import Tensor

from sasgp.data.blocks import slices
from sasgp.data.progress import progress_bar
from sasgp.gp.column_regression import ColumnRegression
from sasgp.gp.linalg import cholesky_each
from sasgp.gp.masked_gaussian import MaskedGaussian
from sasgp.gp.objective import LOG_2PI
from sasgp.gp.residuals import Residuals
from sasgp.training.columns import STEPS, groups_of_columns, train_columns
from sasgp.training.loop import generator

__all__ = ["ColumnImputation", "Spread"]

Array = NDArray[np.float64]

MOST_ROWS, MOST_INPUTS = 20_000, 32  # that a regression uses
MOST_NUMBERS = 20_000_000  # in the inputs of all regressions
LEAST_VALUES = 20  # of a column that has a regression: others have the Gaussian alone
NEIGHBOURS = 128
LEFT_OUT = 1500  # values of each column that are left out to learn the spread of predictions


class Spread(NamedTuple):
    """Distributions of the missing values of some rows."""

    rows: NDArray[np.int64]  # [m]
    missing: NDArray[np.bool_]  # [m, D]
    mean: Array  # [m, D]
    scale: Array  # [m, D]
    correlation: Tensor  # [m, D, D], of the underlying normal values


class _Column(NamedTuple):
    inputs: Tensor  # [P]: which columns
    regression: ColumnRegression
    residuals: Residuals
    trust: float  # factor on predictions
    share: float  # 1, or 0 if the Gaussian alone predicts values that are left out better, as outliers can make it
    explained: float  # share of the variance that predictions of values left out one by one explain


class ColumnImputation:
    """Regressions of all columns.

    Parameters
    ----------
    X : ndarray [N, D]
        Standardised columns with NaN. Each row has a value.
    seed : int
    show : bool
        Whether to show progress.
    """

    def __init__(self, X: Array, seed: int, *, show: bool = False) -> None:
        (N, D), seen = X.shape, ~np.isnan(X)
        self.n_rows, self.missing_share = N, 1 - float(seen.mean())
        self.n_inputs = min(D - 1, MOST_INPUTS)
        draw = generator(seed, "columns")
        most = min(MOST_ROWS, MOST_NUMBERS // max(1, D * max(1, self.n_inputs)))
        rows = torch.as_tensor(X[torch.randperm(N, generator=draw)[:most].sort().values.numpy()])
        self.gaussian = MaskedGaussian(rows, draw)
        self.low = np.min(X, 0, initial=np.inf, where=seen)
        self.high = np.max(X, 0, initial=-np.inf, where=seen)
        self.low, self.high = np.minimum(self.low, self.high), np.maximum(self.low, self.high)  # no value: −∞ to ∞
        parts = self._parts(rows)
        self.columns: dict[int, _Column] = {}
        varies = (self.low < self.high) & (D > 1)
        used = [d for d, (_, _, t, _) in enumerate(parts) if len(t) >= LEAST_VALUES and varies[d]]
        # As in `_judged`: a Gaussian that was fitted to few values is too sure of them
        self.widening = np.where(varies, 1 + np.minimum(1.0, (D - 1) / np.maximum(1, seen.sum(0))), 1.0)
        self.widening[used] = 1.0  # which have residuals
        groups = list(groups_of_columns([len(parts[d][2]) for d in used]))
        with progress_bar("columns", len(groups) * STEPS, show=show) as update:
            for i, places in enumerate(groups):
                group = [used[j] for j in places]
                kernels = train_columns([parts[d] for d in group], draw, partial(_later, update, i * STEPS))
                for g, d in enumerate(group):
                    regression = ColumnRegression(kernels, g, *parts[d], NEIGHBOURS)
                    self.columns[d] = self._judged(d, regression, rows[:, d], draw)

    def _related(self) -> Tensor:
        """The columns [D, P] that each is regressed on: those with the largest partial correlations."""
        P = torch.linalg.inv(self.gaussian.covariance)
        scale = P.diagonal().sqrt()
        partial = (P / scale / scale[:, None]).abs().fill_diagonal_(-1)
        return partial.topk(self.n_inputs, 1).indices.sort(1).values

    def _parts(self, rows: Tensor) -> list[tuple[Tensor, Tensor, Tensor, Tensor]]:
        """Inputs, their variances, targets and their variances of each column, in float32."""
        D = rows.shape[1]
        self.related, self.left_out_mean = self._related(), torch.empty_like(rows)
        found: list[list[tuple[Tensor, ...]]] = [[] for _ in range(D)]
        for block in slices(len(rows), 8 * D * D):
            X = rows[block]
            left = self.gaussian.leave_one_out(X)
            self.left_out_mean[block] = left.mean
            for d, which in enumerate(self.related):
                has = ~X[:, d].isnan()
                u, s = left.inputs[has, d][:, which], left.variances[has, d][:, which]
                t, c = (X - left.mean)[has, d], left.var[has, d]
                found[d].append(tuple(part.float() for part in (u, s, t, c)))
        return [tuple(torch.cat(parts) for parts in zip(*blocks, strict=True)) for blocks in found]  # type: ignore[misc]

    def _judged(self, d: int, regression: ColumnRegression, x: Tensor, draw: torch.Generator) -> _Column:
        """A column with the spread of its predictions, from values that are left out one by one."""
        has = (~x.isnan()).nonzero()[:, 0]
        some = torch.randperm(len(has), generator=draw)[:LEFT_OUT]
        at, a = regression.u[some], regression.a[some]
        mean, var = regression.predict(at, a, regression.c[some], own=some)
        truth, gaussian = x[has[some]], self.left_out_mean[has[some], d]
        share = float((truth - gaussian - mean).square().mean() <= (truth - gaussian).square().mean())
        mean = gaussian + share * mean
        # The factor on predictions that suits the values that were left out best: 0 is the column's mean
        trust = float(((mean * truth).sum() / mean.square().sum().clamp_min(1e-12)).clamp(0, 1))
        # The Gaussian has seen all rows. p parameters that are fitted to n rows make residuals look 1 + p/n too small
        optimism = 1 + min(1.0, (len(self.low) - 1) / len(has))
        unexplained = float((truth - trust * mean).square().mean() / truth.var(correction=0).clamp_min(1e-12))
        residuals = Residuals(at, optimism * (truth - trust * mean) / var.sqrt())
        return _Column(self.related[d], regression, residuals, trust, share, max(0.0, 1 - unexplained))

    @property
    def deviations(self) -> Array:
        """Standard deviations [D] of values, in units of their scales."""
        found = np.ones(len(self.low))
        for d, column in self.columns.items():
            found[d] = column.residuals.deviation
        return found

    def spreads(self, X: Array, *, show: bool = False) -> Iterator[Spread]:
        """Distributions of what is missing in rows X [M, D], block by block."""
        rows = np.flatnonzero(np.isnan(X).any(1))
        with progress_bar("missing values", len(rows), show=show) as update:
            for block in slices(len(rows), 40 * X.shape[1] ** 2):
                yield self._spread(X, rows[block])
                update(block.stop)

    def _spread(self, X: Array, rows: NDArray[np.int64]) -> Spread:
        part = torch.as_tensor(X[rows])
        missing = part.isnan()
        filled, C = self.gaussian.conditional(part)
        var = C.diagonal(dim1=1, dim2=2).clamp_min(1e-12)
        mean, scale = filled.clone(), var.sqrt() * torch.as_tensor(self.widening)
        for d, (which, regression, residuals, trust, share, _) in self.columns.items():
            q = missing[:, d].nonzero()[:, 0]
            if not len(q):
                continue
            u, s = filled[q][:, which].float(), var[q][:, which].float()
            at, a = regression.places(u, torch.where(missing[q][:, which], s, 0.0))
            m, c = regression.predict(at, a, var[q, d].float())
            mean[q, d] = trust * (filled[q, d] + share * m)
            scale[q, d] = c.sqrt() * residuals.at(at)
        empty = missing.all(1)
        mean[empty], scale[empty] = 0.0, torch.as_tensor(1 / self.deviations)  # those of each column
        deviation = torch.where(missing, var, 1.0).sqrt()
        correlation = C / deviation[:, :, None] / deviation[:, None]
        correlation.diagonal(dim1=1, dim2=2).fill_(1.0 + 1e-6)
        held = np.clip(mean.numpy(), self.low, self.high)
        return Spread(rows, missing.numpy(), held, scale.numpy(), correlation)

    def quantiles(self, spread: Spread, p: float) -> Array:
        """The values [m, D] that missing cells exceed with probability 1 − p; the others have no meaning."""
        found = np.full(len(self.low), ndtri(p))
        for d, column in self.columns.items():
            found[d] = float(column.residuals.quantile(torch.tensor(p)))
        values: Array = spread.mean + spread.scale * found
        return values

    def draw(self, spread: Spread, draw: torch.Generator) -> Array:
        """Values [m, D] of the missing cells; the others have no meaning."""
        white = torch.randn(*spread.mean.shape, 1, generator=draw, dtype=torch.float64)
        normal = (cholesky_each(spread.correlation) @ white)[:, :, 0].numpy()
        # x = m + scale · Q(Φ(g)): normal values with their correlation, each with the quantiles of its own residuals
        for d, column in self.columns.items():
            normal[:, d] = column.residuals.quantile(torch.as_tensor(ndtr(normal[:, d])))
        values: Array = spread.mean + spread.scale * normal
        return values

    def log_density(self, spread: Spread, X: Array) -> Array:
        """Log densities [m, D] of values X [m, D]; those of observed cells have no meaning."""
        e = torch.as_tensor((X - spread.mean) / spread.scale)
        log_p = -0.5 * (LOG_2PI + e.square())
        for d, column in self.columns.items():
            log_p[:, d] = column.residuals.log_density(e[:, d])
        found: Array = log_p.numpy() - np.log(spread.scale)
        return found


def _later(update: Callable[[int], None], done: int, step: int) -> None:
    update(done + step)
