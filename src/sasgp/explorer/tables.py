"""A table on a page: how the browser turns scores into columns, and the cells of rows in the user's own terms.

The browser decodes scores. `describe` gives it each column's map or cuts, with which `assets/columns.js` computes what
`Columns.predict`, `quantile` and `probabilities` say. Cells are numbers, as `Columns.values` returns them: of levels
the codes, of dates the seconds since 1970, of missing cells NaN.
"""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from sasgp.data.columns import Category, Columns, Discrete, Number
from sasgp.data.columns.column import NODES, WEIGHTS, Column
from sasgp.data.tables import DiskTable
from sasgp.errors import InputError
from sasgp.estimators.tables import table_frame
from sasgp.explorer.packing import Packed, pack

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder

__all__ = ["TOLERANCE", "cells", "colours", "decoded_cells", "describe"]

Array = NDArray[Any]

INTERVAL = 0.9  # the share of new values that the intervals of a page hold
TOLERANCE = 1e-5  # of a score: a probability of one in a thousand changes by about thirty times the error


def cells(model: "Decoder", X: Any, n: int) -> Array:
    """The cells [N, C] of a table, which must have n rows."""
    frame = table_frame(model, X)
    if len(frame) != n:
        raise InputError(
            f"X must have one row for each of the {n} latents. Got {len(frame)} rows. Pass the latents of these rows "
            "as Z.",
            argument="X",
        )
    if isinstance(frame, DiskTable):
        return np.concatenate([model.columns_.values(block).astype(np.float32) for block in frame.blocks()])
    return np.asarray(model.columns_.values(frame))


def decoded_cells(model: "Decoder", Z: Array) -> Array:
    """The cells [M, C] that are decoded at latents Z [M, Q]."""
    mean, std = model.predict_scores(Z, return_std=True)
    return np.asarray(model.columns_.predict(mean.astype(np.float64), np.square(std, dtype=np.float64)))


def describe(columns: Columns, values: Array) -> Packed:
    """The columns as the page knows them. Cells [M, C] of some rows give the ranges of the numbers."""
    described = [
        {"name": column.name, "kind": column.kind, "start": part.start} | _description(column, values[:, place])
        for place, column, part in columns.parts()
    ]
    return {
        "columns": described,
        "nodes": NODES.tolist(),
        "weights": WEIGHTS.tolist(),
        "interval": {"share": INTERVAL, "deviations": float(ndtri(0.5 + INTERVAL / 2))},
    }


def _description(column: Column, values: Array) -> Packed:
    if isinstance(column, Number):
        limits = {"least": _finite(column.low), "most": _finite(column.high)}
        return {"type": "number", "map": asdict(column.map), **limits, **_scale(column, values)}
    assert isinstance(column, Discrete | Category)
    cuts = {"cuts": list(column.cuts)}
    if isinstance(column, Category):
        return {"type": "category", "levels": _names(column), "other": column.other, **cuts}
    if column.numeric:
        return {"type": "count", **cuts, **_scale(column, values)}
    return {"type": "scale" if column.kind == "ordinal" else "choice", "levels": _names(column), **cuts}


def _scale(column: Column, values: Array) -> Packed:
    """How numbers are written, and their range. If all are missing, it is that of 95 % of the training values."""
    known = values[np.isfinite(values)]
    if not len(known):
        known = np.concatenate([column.quantile(np.zeros((1, 1)), np.ones((1, 1)), p) for p in (0.025, 0.975)])
    unit, whole = (column.unit, column.whole) if isinstance(column, Number) else ("", True)
    return {"low": float(known.min()), "high": float(known.max()), "unit": unit, "whole": whole}


def _finite(limit: float) -> float | None:
    return limit if np.isfinite(limit) else None


def _names(column: Discrete | Category) -> list[str]:
    return [f"{level:g}" if isinstance(level, float) else str(level) for level in column.levels]


def colours(columns: Columns, values: Array, most_bytes: int, most_classes: int) -> dict[str, Packed]:
    """The columns to colour rows by, given their cells [N, C], as many as there is room for."""
    most = most_bytes // (8 * max(1, len(values)))
    return {
        column.name: _colour(column, values[:, place], most_classes) for place, column, _ in [*columns.parts()][:most]
    }


def _colour(column: Column, values: Array, most_classes: int) -> Packed:
    if isinstance(column, Number) or (isinstance(column, Discrete) and column.numeric):
        return {"name": column.name, "values": pack(values, "float64"), **_scale(column, values)}
    assert isinstance(column, Discrete | Category)
    names = [*_names(column), "any other"] if isinstance(column, Category) else _names(column)
    missing = np.isnan(values)
    codes = np.where(missing, 0, values).astype(np.int64)
    count = np.bincount(codes[~missing], minlength=len(names))
    present = np.flatnonzero(count)
    others = 0
    if len(present) + missing.any() > most_classes:  # the most frequent ones, in their order
        kept = np.sort(present[np.argsort(-count[present], kind="stable")[: most_classes - 1 - missing.any()]])
        others = len(present) - len(kept)
        present = kept
    place = np.full(len(names), len(present))
    place[present] = np.arange(len(present))
    classes = [*(names[i] for i in present), *[f"{others} others"] * bool(others), *["missing"] * bool(missing.any())]
    codes = np.where(missing, len(classes) - 1, place[codes])
    return {
        "name": column.name,
        "classes": classes,
        "others": bool(others) + bool(missing.any()),
        "codes": pack(codes, "uint8"),
        "levels": names,
        "cells": pack(np.where(missing, -1, values), "int32"),  # for exports, where no level is one of many
    }
