"""Missing cells of a table, in the user's own columns and types, from draws of each row's z.

A number is averaged over the draws; a level is the one with the highest probability on average; a draw of a completed
table takes one z for each row and then its cells. Observed cells stay as they are, and so do columns that the model was
not trained on.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.columns import Category, Column, Columns, Discrete
from sasgp.data.columns.cells import cells
from sasgp.data.tables import is_frame, read_frame

__all__ = ["TableCompletion", "completed_frame"]

Array = NDArray[Any]
INTERVAL_DRAWS = 400  # of a cell, for the ends of its interval


@dataclass
class TableCompletion:
    """Collects what is known about the missing cells of a table, one block of rows after the other.

    Parameters
    ----------
    columns : Columns
    values : array [N, C]
        The table as `Columns.values` gives it. Missing cells are filled in place.
    n_samples : int
        Draws of completed tables.
    interval : float or None
        The share of draws between the ends of an interval, if these are asked for.
    draw : numpy.random.Generator
    """

    columns: Columns
    values: Array
    n_samples: int
    interval: float | None
    draw: np.random.Generator
    std: Array = field(init=False)
    samples: Array = field(init=False)
    ends: Array = field(init=False)

    def __post_init__(self) -> None:
        self.std = np.where(np.isnan(self.values), np.nan, 0.0)
        self.samples = np.repeat(self.values[None], self.n_samples, 0)
        self.ends = np.repeat(self.values[None], 2, 0)

    def add(self, rows: NDArray[np.int64], mean: Array, var: Array, weight: Array) -> None:
        """Fill in rows, given means and variances [K, B, D] of their scores at K draws of z, with weights [K, B]."""
        K = len(weight)
        total = np.cumsum(weight, axis=0)
        for place, column, part in self.columns.parts():
            b = np.flatnonzero(np.isnan(self.values[rows, place]))
            if not len(b):
                continue
            at, w = rows[b], weight[:, b]
            m, c = (moment[:, b, part].reshape(K * len(b), -1) for moment in (mean, var))
            self.values[at, place], self.std[at, place] = _average(column, m, c, w)
            n_draws = max(self.n_samples, INTERVAL_DRAWS if self.interval is not None else 0)
            drawn = np.empty((n_draws, len(b)))
            for i in range(n_draws):
                k = (self.draw.random(len(b)) > total[:, b]).sum(0).clip(max=K - 1)
                chosen = k * len(b) + np.arange(len(b))
                scores = m[chosen] + np.sqrt(c[chosen]) * self.draw.standard_normal(m[chosen].shape)
                drawn[i] = column.sample(scores, m[chosen], c[chosen], self.draw)
            self.samples[:, at, place] = drawn[: self.n_samples]
            if self.interval is not None and not isinstance(column, Category):
                shares = (0.5 - self.interval / 2, 0.5 + self.interval / 2)
                one_of_them = isinstance(column, Discrete)  # the average of two levels is none
                self.ends[:, at, place] = (
                    np.quantile(drawn, shares, axis=0, method="nearest")
                    if one_of_them
                    else np.quantile(drawn, shares, axis=0)
                )
            elif self.interval is not None:
                self.ends[:, at, place] = self.values[at, place]


def _average(column: Column, m: Array, c: Array, w: Array) -> tuple[Array, Array]:
    """The prediction [B] of a column's cells and their standard deviation, over K draws with weights w [K, B]."""
    K, B = w.shape
    if isinstance(column, Discrete | Category) and column.kind != "count":
        # P(v) = Σ_k w_k P(v | z_k)
        p = np.exp(column.log_probabilities(m, c)).reshape(K, B, -1)[:, :, : len(column.levels)]
        p = (w[:, :, None] * p).sum(0)
        p /= p.sum(1, keepdims=True)
        if column.kind == "ordinal":
            assert isinstance(column, Discrete)
            code = (np.cumsum(p, axis=1) < 0.5).sum(1).astype(np.float64)
            first = p @ column.numbers
            return code, np.sqrt(np.maximum(p @ column.numbers**2 - first**2, 0))
        return p.argmax(1).astype(np.float64), 1 - p.max(1)
    # E[x] = Σ_k w_k E[x|z_k]          Var[x] = Σ_k w_k (Var[x|z_k] + E[x|z_k]²) − E[x]²
    first, spread = column.predict(m, c).reshape(K, B), column.std(m, c).reshape(K, B)
    mean = (w * first).sum(0)
    return mean, np.sqrt((w * (spread**2 + (first - mean) ** 2)).sum(0))


def completed_frame(columns: Columns, X: Any, values: Array) -> Any:
    """The user's own table X with its missing cells filled in from numbers [N, C]."""
    if not is_frame(X):
        return columns.frame(values)
    frame = read_frame(X).frame
    filled = {}
    for place, column, _ in columns.parts():
        missing = frame[column.name].is_null().to_numpy()
        if missing.any():
            whole = getattr(column, "whole", False) or column.kind == "count"
            filled[column.name] = missing, cells(column, np.rint(values[:, place]) if whole else values[:, place])
    if type(X).__module__.startswith("pandas"):
        return _filled_pandas(X, filled)
    import polars as pl

    series = []
    for name, (missing, found) in filled.items():
        dtype = frame[name].dtype
        series.append(found.cast(dtype, strict=False).zip_with(pl.Series(missing), frame[name]).alias(name))
    return frame.with_columns(series)


def _filled_pandas(X: Any, filled: dict[str, tuple[Array, Any]]) -> Any:
    completed = X.copy()
    for place, name in enumerate(X.columns):
        if str(name) in filled:
            missing, found = filled[str(name)]
            own = completed.iloc[:, place].copy()
            own.iloc[np.flatnonzero(missing)] = [
                value for value, gap in zip(found.to_list(), missing, strict=True) if gap
            ]
            completed[name] = own
    return completed
