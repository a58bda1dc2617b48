"""How good a model of a table is, column by column, on rows that training did not see.

Errors of numbers are in standard deviations of their column, so that grams and millimetres can be averaged. Levels have
an accuracy and a log loss. The density of a row is that of its cells in the table's own units, so that models of the
same table can be compared. As everywhere, z = encoder(x): this measures reconstruction through the latent space.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from sasgp import metrics
from sasgp.data.blocks import slices
from sasgp.data.columns import Category, Column, Columns, Discrete, Number
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder

__all__ = ["TableSums", "standardised", "table_pca_rmse", "table_pit", "table_sums"]

Array = NDArray[Any]
LEVELS = (50, 90, 99)  # of the intervals, in per cent
CRPS_QUANTILES = 20


@dataclass(frozen=True)
class TableSums:
    """Sums over rows, one line per column: what the metrics are made from. The sums of parts of the data can be added.

    Parameters
    ----------
    columns : Columns
    sums : array [C, 9]
        The number of cells that are not missing, then sums over them of `FIELDS`.
    """

    columns: Columns
    sums: NDArray[np.float64]

    FIELDS: ClassVar[tuple[str, ...]] = (
        *("cells", "squares", "absolute", "density", "hits", "crps"),
        *(f"coverage_{level}" for level in LEVELS),
    )

    @classmethod
    def empty(cls, columns: Columns) -> Self:
        return cls(columns, np.zeros((len(columns), len(cls.FIELDS))))

    def __add__(self, other: Self) -> Self:
        return type(self)(self.columns, self.sums + other.sums)

    def as_vector(self) -> NDArray[np.float64]:
        """All sums as one vector, which several processes can add."""
        return self.sums.ravel()

    @classmethod
    def from_vector(cls, columns: Columns, vector: NDArray[np.float64]) -> Self:
        return cls(columns, vector.reshape(len(columns), -1))

    def by_column(self) -> list[dict[str, Any]]:
        """The metrics of each column that has cells: numbers or levels, whichever it holds."""
        return [
            {"column": column.name, "kind": column.kind, **_named(column, dict(zip(self.FIELDS, line, strict=True)))}
            for column, line in zip(self.columns.columns, self.sums.tolist(), strict=True)
            if line[0]
        ]

    def metrics(self) -> dict[str, Any]:
        """The metrics over all cells of numbers, and over all cells of levels."""
        found: dict[str, Any] = {"nlpd": self._mean("density")}
        numbers = np.array([_is_number(column) for column in self.columns.columns])
        if numbers.any():
            found |= {
                "rmse": float(np.sqrt(self._mean("squares", numbers))),
                "mae": self._mean("absolute", numbers),
                "crps": self._mean("crps", numbers),
                **{f"coverage_{level}": self._mean(f"coverage_{level}", numbers) for level in LEVELS},
                "units": "standard deviations",
            }
        if not numbers.all():
            found |= {"accuracy": self._mean("hits", ~numbers), "log_loss": self._mean("density", ~numbers)}
        return found

    def _mean(self, name: str, which: Any = slice(None)) -> float:
        lines = self.sums[which]
        return float(lines[:, self.FIELDS.index(name)].sum() / max(lines[:, 0].sum(), 1))


def _named(column: Column, sums: dict[str, float]) -> dict[str, float]:
    n = sums["cells"]
    if not _is_number(column):
        return {"cells": n, "accuracy": sums["hits"] / n, "log_loss": sums["density"] / n}
    return {
        "cells": n,
        "rmse": float(np.sqrt(sums["squares"] / n)),
        "mae": sums["absolute"] / n,
        "crps": sums["crps"] / n,
        "nlpd": sums["density"] / n,
        **{f"coverage_{level}": sums[f"coverage_{level}"] / n for level in LEVELS},
    }


def _is_number(column: Column) -> bool:
    return isinstance(column, Number) or (isinstance(column, Discrete) and column.numeric)


def table_sums(model: "Decoder", values: Array, Z: Array, predict: Any = None) -> TableSums:
    """The sums over rows with numbers [N, C] (`Columns.values`) and latents Z [N, Q].

    `predict` may take the place of the model's `predict_scores`.
    """
    columns: Columns = model.columns_
    total = TableSums.empty(columns)
    for rows in slices(len(Z), model.n_scores_ * CRPS_QUANTILES):
        mean, std = (predict or model.predict_scores)(Z[rows], return_std=True)
        m, c = mean.astype(np.float64), np.square(std, dtype=np.float64)
        lines = [_sums(column, values[rows, place], m[:, part], c[:, part]) for place, column, part in columns.parts()]
        total += TableSums(columns, np.array(lines))
    return total


def _sums(column: Column, x: Array, mean: Array, var: Array) -> list[float]:
    """The sums of `TableSums.FIELDS` over the cells of one column."""
    here = ~np.isnan(x)
    x, mean, var = x[here], mean[here], var[here]
    if not len(x):
        return [0.0] * len(TableSums.FIELDS)
    density = -float(column.log_density(x, mean, var).sum())
    guess = column.predict(mean, var)
    if not _is_number(column):
        return [len(x), 0.0, 0.0, density, float((guess == x).sum()), 0.0, *[0.0] * len(LEVELS)]
    sd = column.sd or 1.0
    error = (guess - x) / sd
    inside = []
    for level in LEVELS:
        low, high = (column.quantile(mean, var, 0.5 + sign * level / 200) for sign in (-1, 1))
        inside.append(float(((low <= x) & (x <= high)).sum()))
    return [
        *(len(x), float((error**2).sum()), float(np.abs(error).sum()), density, 0.0, _crps(column, x, mean, var) / sd),
        *inside,
    ]


def _crps(column: Column, x: Array, mean: Array, var: Array) -> float:
    """The sum of the continuous ranked probability score, in units of the column, from quantiles."""
    # CRPS = 2 ∫ (1{x < q_τ} − τ) (q_τ − x) dτ
    shares = (np.arange(CRPS_QUANTILES) + 0.5) / CRPS_QUANTILES
    quantiles = (column.quantile(mean, var, float(share)) for share in shares)
    pinball = (((x < q) - share) * (q - x) for q, share in zip(quantiles, shares, strict=True))
    return float(2 / CRPS_QUANTILES * sum(part.sum() for part in pinball))


def standardised(columns: Columns, values: Array) -> Array:
    """Numbers in standard deviations, and one indicator for each level: what distances between rows are taken of.

    Missing cells are 0, the mean.
    """
    parts: list[Array] = []
    for place, column, _ in columns.parts():
        x = values[:, place]
        if isinstance(column, Category):
            parts.append((x[:, None] == np.arange(len(column.levels))) / np.sqrt(2))
        else:
            x = column.numbers[np.nan_to_num(x).astype(int)] + 0 * x if isinstance(column, Discrete) else x
            parts.append(x[:, None])
    found = np.concatenate(parts, axis=1).astype(np.float64)
    mean, spread = np.nanmean(found, axis=0), np.nanstd(found, axis=0)
    return np.nan_to_num((found - mean) / np.where(spread > 0, spread, 1))


def table_pca_rmse(columns: Columns, train: Array, test: Array, n_components: int) -> float | None:
    """RMSE of the numbers of test rows, in standard deviations, through principal components of all columns.

    `train` and `test` are numbers [N, C] and [M, C]. None if the table has no numbers.
    """
    both = standardised(columns, np.concatenate([train, test]))
    numbers = np.concatenate(
        [[_is_number(c)] * (len(c.levels) if isinstance(c, Category) else 1) for c in columns.columns]
    )
    if not numbers.any():
        return None
    X, X_test = both[: len(train)], both[len(train) :]
    mean = X.mean(0)
    axes = np.linalg.svd(X - mean, full_matrices=False)[2][:n_components]
    error = (X_test - mean) - (X_test - mean) @ axes.T @ axes
    return float(np.sqrt((error[:, numbers] ** 2).mean()))


def table_pit(model: "Decoder", values: Array, Z: Array) -> NDArray[np.int64]:
    """What `metrics.pit_counts` says about the columns of numbers, of cells [N, C] and latents Z [N, Q].

    Counts and levels are left out: few values have few different u, however good the predictions are.
    """
    columns: Columns = model.columns_
    mean, std = model.predict_scores(Z, return_std=True)
    counts = np.zeros(metrics.PIT_BINS, np.int64)
    for place, column, part in columns.parts():
        here = ~np.isnan(values[:, place])
        if isinstance(column, Number) and here.any():
            # u = Φ((g(x) − m) / √c)
            scores = column.scores(values[here, place])
            counts += metrics.pit_counts(scores, mean[here, part], np.square(std[here, part], dtype=np.float64))
    if not counts.any():
        raise InputError("Calibration is measured on columns of numbers, and the table has none.")
    return counts
