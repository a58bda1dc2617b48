"""The targets of a regression: from what the user passes to standardised numbers, and maps for those of odd shape.

A map is judged by what it is for: the density and the error of training rows, each predicted from its nearest other
rows. A prediction is a weighted sum of targets, so the weights of one fit serve all maps.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_array

from sasgp.data.columns import Columns, Finding, Number
from sasgp.data.columns.maps import GAIN, candidates, straight_map
from sasgp.data.rows import unmasked
from sasgp.errors import InputError

__all__ = ["as_columns", "better_map", "check_targets", "plain_columns"]

Array = NDArray[np.float64]

WORSE = 1.005  # factor by which a map may raise the error of predictions


def check_targets(y: Any) -> tuple[Array, bool]:
    """Targets as numbers [N, T], and whether the user passed a single column without a second dimension."""
    try:
        found = check_array(unmasked(y), ensure_2d=False, dtype=np.float64, input_name="y")  # of at most two dimensions
    except ValueError as error:
        raise InputError(f"y must hold finite numbers, one row for each row of X. {error}", argument="y") from error
    return (found[:, None], True) if found.ndim == 1 else (found, False)


def plain_columns(Y: Array, names: list[str]) -> Columns:
    """The targets [N, T] as columns that are shifted and scaled. Raises InputError for one that is constant."""
    constant = [name for name, values in zip(names, Y.T, strict=True) if values.std() <= 1e-12 * np.abs(values).max()]
    if constant:
        raise InputError(
            f"A target must vary, but {', '.join(constant)} is {Y[0, names.index(constant[0])]:g} in every row. There "
            "is nothing to learn: leave it out.",
            argument="y",
        )
    return as_columns(
        [
            Number(name=name, kind="real", sd=float(values.std()), map=straight_map(values))
            for name, values in zip(names, Y.T, strict=True)
        ]
    )


def as_columns(targets: Sequence[Number]) -> Columns:
    """Targets as the columns of a table."""
    return Columns(tuple(targets), tuple(Finding(one.name, one.kind, "target", 0, one) for one in targets))


def better_map(column: Number, y: Array, y_near: Array, weights: Array, var: Array) -> Number:
    """The column with the map under which targets are most likely, if that is clearly better than the present one.

    Parameters
    ----------
    column : Number
    y : array [M]
        Targets of some rows.
    y_near, weights : array [M, k]
        Targets of the rows that predict each of them, and their weights.
    var : array [M]
        Variance of the prediction, up to a factor.
    """
    known, error = _quality(column, y, y_near, weights, var)
    best = column
    for maps in candidates(y):
        for one in maps:
            other = replace(column, map=one, kind="skewed")
            density, other_error = _quality(other, y, y_near, weights, var)
            gain = density - known
            enough = max(GAIN, 2 * gain.std() / np.sqrt(len(y)))
            if gain.mean() > enough and other_error <= WORSE * error:
                best, known = other, density
    return best


def _quality(column: Number, y: Array, y_near: Array, weights: Array, var: Array) -> tuple[Array, float]:
    """The log density [M] of each target, and the root mean squared error of their predictions."""
    s, mean = column.scores(y)[:, 0], (weights * column.map(y_near)).sum(1)
    c = var * np.mean((s - mean) ** 2 / var)
    predicted = column.predict(mean[:, None], c[:, None])
    with np.errstate(over="ignore"):  # an error of that size is as bad as an infinite one
        error = float(np.sqrt(np.mean((predicted - y) ** 2)))
    return column.log_density(y, mean[:, None], c[:, None]), error
