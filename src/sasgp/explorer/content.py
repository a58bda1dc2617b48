"""What a page shows besides the decoder: features, columns to colour the points by, and some of the rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.images import Shades, check_shape, guess_shape, planes
from sasgp.data.labels import Labels
from sasgp.data.palette import CLASSES, MAX_CLASSES, NUMBERS, ON_DARK
from sasgp.data.rows import take_rows
from sasgp.errors import InputError
from sasgp.explorer.packing import Kind, Packed, pack, pack_text, unpack, unpack_text

__all__ = [
    "PALETTE",
    "Observed",
    "columns_of",
    "feature_columns",
    "feature_names",
    "ids_of",
    "image_of",
    "lighter",
    "pack_columns",
    "pack_features",
    "pack_observed",
    "ranges",
    "shown_rows",
]

Array = NDArray[Any]

MAX_POINTS = 100_000
PALETTE = {"light": list(CLASSES), "dark": list(ON_DARK), "scale": list(NUMBERS)}
OBSERVED_BYTES = 4_000_000  # of the rows shown beside what is decoded, before compression
COLUMN_BYTES = 4_000_000  # of the data's columns to colour by


def shown_rows(n: int) -> Array:
    """The rows that are drawn, in order: all of them, or 100 000 at random."""
    if n <= MAX_POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, MAX_POINTS, replace=False))


def feature_names(names: Sequence[str] | None, D: int) -> list[str]:
    return [f"x{d}" for d in range(D)] if names is None else [str(name) for name in names]


def image_of(sample: Array, image_shape: Sequence[int] | None, *, guess: bool) -> Packed | None:
    """How the page draws rows as images: size, channels, their order, and shades. None for a table.

    Without an `image_shape` it is guessed from sample rows [M, D], if `guess` is set. An empty one means a table.
    """
    if image_shape is None:
        shape = guess_shape(sample) if guess else None
    else:
        shape = check_shape(image_shape, sample.shape[1]) if len(image_shape) else None
    if shape is None:
        return None
    (channels, height, width), last = planes(shape)
    shades = Shades.from_pixels(sample, channels)
    return {
        "height": height,
        "width": width,
        "channels": channels,
        "planes": len(shape) == 3 and not last,
        "low": shades.low,
        "high": shades.high,
        "writing": shades.writing,
    }


def pack_features(sample: Array, names: Sequence[str], image: Packed | None) -> Packed:
    """The features of a table by name with their ranges, or the image that they make."""
    table = image is None
    return {
        "n_features": len(names),
        "features": list(names) if table else [],
        "low": [float(v) for v in sample.min(0)] if table else [],
        "high": [float(v) for v in sample.max(0)] if table else [],
        "image": image,
    }


def ranges(sample: Array, image: Packed | None) -> Array:
    """Range of each feature [D]. Pixels share one scale, columns of a table do not."""
    found = np.ptp(sample.astype(np.float64), axis=0)
    return found if image is None else np.full(len(found), found.max())


def columns_of(labels: Any, columns: Any, shown: Array, n: int) -> dict[str, Array]:
    """Values of the shown points to colour by: labels, and the columns of a mapping or DataFrame."""
    found = {} if labels is None else {"label": np.asarray(labels)}
    if columns is not None:
        names = list(columns) if isinstance(columns, Mapping) else list(columns.columns)
        found |= {str(name): np.asarray(columns[name]) for name in names}
    for name, values in found.items():
        if values.shape != (n,):
            raise InputError(
                f"labels and columns must have one value for each of the {n} points. {name!r} has shape {values.shape}."
            )
    return {name: values[shown] for name, values in found.items()}


def ids_of(ids: Any, shown: Array, n: int) -> Packed | None:
    """Names of the shown points, if they have any."""
    if ids is None:
        return None
    names = list(ids)
    if len(names) != n:
        raise InputError(f"ids must have one name for each of the {n} points. Got {len(names)}.", argument="ids")
    return pack_text([str(names[i]) for i in shown])


def pack_columns(columns: Mapping[str, Array], own: Mapping[str, Packed]) -> list[Packed]:
    """Columns to colour by, and then the data's own, which are packed already. Names that both have are marked."""
    marked = [column | {"name": f"{name} (data)" if name in columns else name} for name, column in own.items()]
    return [*(_pack_column(name, values) for name, values in columns.items()), *marked]


def _pack_column(name: str, values: Array) -> Packed:
    if values.dtype.kind == "M":
        return _pack_dates(name, values)
    labels = Labels.from_array(values, len(values), MAX_CLASSES)
    if labels.values is None:
        packed: Packed = {"name": name, "classes": list(labels.names), "others": int(labels.has_others)}
        packed["codes"] = pack(labels.index, "uint8")
        if labels.has_others:  # for the search, tooltips and exports, where no value is one of many
            levels, cells = np.unique(values.astype(np.str_), return_inverse=True)
            packed |= {"levels": pack_text(levels.tolist()), "cells": pack(cells, "int32")}
        return packed
    finite = np.where(np.isfinite(labels.values), labels.values, np.nan)
    known = finite[~np.isnan(finite)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    return {"name": name, "low": low, "high": high, "values": pack(finite, "float32")}


def _pack_dates(name: str, values: Array) -> Packed:
    """Dates as seconds since 1970, which the page writes as dates again."""
    seconds = (values - np.datetime64(0, "s")) / np.timedelta64(1, "s")
    known = seconds[~np.isnan(seconds)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    unit = "date" if not (known % 86400).any() else "datetime"
    return {"name": name, "low": low, "high": high, "unit": unit, "values": pack(seconds, "float64")}


@dataclass(frozen=True)
class Observed:
    """Rows of the data: values [M, D], latents [M, Q], and places among the shown points, or -1."""

    X: Array
    Z: Array
    places: Array

    @classmethod
    def some(cls, X: Array, Z: Array, rows: Array, bytes_per_value: int) -> "Observed":
        """Random rows, as many as there is room for. `X` may be on disk."""
        most = max(1, OBSERVED_BYTES // (bytes_per_value * X.shape[1]))
        places = np.sort(np.random.default_rng(0).permutation(len(rows))[:most])
        return cls(take_rows(X, rows[places]), Z[rows[places]], places)


def pack_observed(observed: Observed, image: Packed | None, kind: Kind = "float32") -> Packed:
    """Images in 256 shades, other rows in numbers of this kind."""
    X = observed.X.astype(np.float64)
    if image is None:
        values = pack(X, kind) | {"low": 0.0, "step": 1.0}
    else:
        low, high = (float(X.min()), float(X.max())) if X.size else (0.0, 1.0)
        step = (high - low) / 255 or 1.0
        values = pack(np.rint((X - low) / step), "uint8") | {"low": low, "step": step}
    return {"X": values, "Z": pack(observed.Z, "float32"), "places": pack(observed.places, "int32")}


def feature_columns(X: Array, rows: Array, names: Sequence[str]) -> dict[str, Packed]:
    """Columns of the data to colour these rows by, as many as there is room for."""
    most = COLUMN_BYTES // (4 * len(rows))
    values = take_rows(X, rows)[:, :most].astype(np.float64)
    return {name: _pack_column(name, values[:, d]) for d, name in enumerate(names[:most])}


def lighter(page: Packed, n: int) -> Packed:
    """The content of a page with n of its points, and without rows."""
    count, Q = page["Z"]["shape"]
    some = np.sort(np.random.default_rng(0).permutation(count)[:n])

    def part(packed: Packed) -> Packed:
        return pack(unpack(packed)[some], packed["kind"])

    columns = [
        column | {name: part(column[name]) for name in ("codes", "values", "cells") if name in column}
        for column in page["columns"]
    ]
    ids = page["ids"] and pack_text([names[i] for names in [unpack_text(page["ids"])] for i in some])
    D = page["n_features"]
    nothing = Observed(np.empty((0, D)), np.empty((0, Q)), np.empty(0, np.int64))
    observed = pack_observed(nothing, page["image"])
    return page | {
        "Z": part(page["Z"]),
        "rows": part(page["rows"]),
        "ids": ids,
        "columns": columns,
        "observed": observed,
    }
