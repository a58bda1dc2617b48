"""Columns in the file of a model: as JSON, and back. What comes back is checked, because anybody can write JSON."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from itertools import pairwise
from typing import Any

from sasgp.data.columns.column import Category, Column, Discrete, Number
from sasgp.data.columns.maps import MonotoneMap

__all__ = ["described", "rebuilt"]

CLASSES: dict[str, type[Column]] = {cls.__name__: cls for cls in (Number, Discrete, Category)}
KINDS = {Number: ("real", "skewed", "date"), Discrete: ("binary", "ordinal", "count"), Category: ("category",)}
UNITS = ("", "date", "datetime", "duration", "time")


def described(column: Column) -> dict[str, Any]:
    """A column in values that JSON can hold."""
    found = {one.name: getattr(column, one.name) for one in fields(column) if one.init}
    found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
    for name in ("low", "high", "sd"):  # JSON has no infinity
        if name in found and not math.isfinite(found[name]):
            found[name] = str(found[name])
    map_ = {"map": asdict(column.map)} if isinstance(column, Number) else {}
    return {"class": type(column).__name__} | found | map_


def rebuilt(found: Mapping[str, Any]) -> Column:
    """The column that was described. Raises ValueError, TypeError or KeyError if none can have been."""
    own: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in found.items() if name != "class"
    }
    for name in ("low", "high", "sd"):
        if name in own:
            own[name] = float(own[name])
    if "map" in own:
        shape: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in own["map"].items()
        }
        own["map"] = MonotoneMap(**shape)
    column = CLASSES[found["class"]](**own)
    if not isinstance(column.name, str) or column.kind not in KINDS[type(column)] or not column.sd >= 0:
        raise ValueError("a column has no name, or a kind that it cannot have")
    if isinstance(column, Number):
        _check_number(column)
    elif isinstance(column, Discrete | Category):
        _check_levels(column)
    return column


def _check_number(column: Number) -> None:
    shape = column.map
    scales = (shape.centre, shape.width, shape.offset, shape.origin, shape.unit, *shape.knots, *shape.slopes)
    positive = (shape.width, shape.unit, *shape.slopes)
    if (
        shape.base not in ("identity", "log", "asinh")
        or not _all_finite(scales)
        or min(positive) <= 0
        or len(shape.knots) != len(shape.slopes)
        or len(shape.knots) == 1
        or not _rises(shape.knots)
    ):
        raise ValueError(f"the map of column {column.name!r} does not rise")
    if not column.low <= column.high or type(column.whole) is not bool or column.unit not in UNITS:
        raise ValueError(f"column {column.name!r} has no range")


def _check_levels(column: Discrete | Category) -> None:
    levels, cuts = column.levels, column.cuts
    kinds = {type(level) for level in levels}
    is_category = isinstance(column, Category)
    if (
        len(kinds) != 1
        or not kinds <= {str, bool, int, float}
        or len(set(levels)) != len(levels)
        or not (kinds == {str} or _all_finite(levels))
    ):
        raise ValueError(f"the levels of column {column.name!r} are none")
    if len(cuts) != len(levels) - (not is_category) or not _all_finite(cuts) or not (is_category or _rises(cuts)):
        raise ValueError(f"the cuts of column {column.name!r} are not between its levels")
    if isinstance(column, Category) and not (_all_finite([column.other]) and type(column.merged) is bool):
        raise ValueError(f"the other levels of column {column.name!r} have no probability")


def _all_finite(values: Sequence[Any]) -> bool:
    return all(isinstance(value, int | float) and math.isfinite(value) for value in values)


def _rises(values: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(values))
