"""What a page shows besides the decoder: points, what they are coloured by, and some of the rows themselves."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.labels import Labels
from sasgp.data.rows import take_rows
from sasgp.errors import InputError
from sasgp.explorer.packing import Packed, pack

__all__ = ["Observed", "columns_of", "packed_columns", "packed_observed", "shown_rows"]

Array = NDArray[Any]

MAX_POINTS = 100_000
MAX_CLASSES = 30  # ten colours in three shapes
OBSERVED_BYTES = 4_000_000  # of rows to show beside what is decoded, before compression: 5102 of MNIST's
COLUMN_BYTES = 4_000_000  # of columns to colour by: 16 of 60 000 rows


def shown_rows(n: int) -> Array:
    """The rows that are drawn: all, or a random 100 000 of them in order."""
    if n <= MAX_POINTS:
        return np.arange(n)
    return np.sort(np.random.default_rng(0).choice(n, MAX_POINTS, replace=False))


def columns_of(labels: Any, columns: Any, n: int) -> dict[str, Array]:
    """What to colour by, by name: labels, and the columns of a mapping or DataFrame."""
    found = {} if labels is None else {"label": np.asarray(labels)}
    if columns is not None:
        names = list(columns) if isinstance(columns, Mapping) else list(columns.columns)
        found |= {str(name): np.asarray(columns[name]) for name in names}
    for name, values in found.items():
        if values.shape != (n,):
            raise InputError(
                f"labels and columns must be a value for each of the {n} points. Got shape {values.shape} for {name!r}."
            )
    return found


def packed_columns(columns: Mapping[str, Array]) -> list[Packed]:
    return [_packed_column(name, values) for name, values in columns.items()]


def _packed_column(name: str, values: Array) -> Packed:
    labels = Labels.from_array(values, len(values), MAX_CLASSES)
    if labels.values is None:
        packed = {"name": name, "classes": list(labels.names), "others": labels.has_others}
        return packed | {"codes": pack(labels.index, "uint8")}
    finite = np.where(np.isfinite(labels.values), labels.values, np.nan)
    known = finite[~np.isnan(finite)]
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 0.0)
    return {"name": name, "low": low, "high": high, "values": pack(finite, "float32")}


@dataclass(frozen=True)
class Observed:
    """Real rows: their values [M, D], latents [M, Q], and places among the points shown, -1 where they are not."""

    X: Array
    Z: Array
    places: Array

    @classmethod
    def some(cls, X: Array, Z: Array, rows: Array, bytes_a_value: int) -> "Observed":
        """As many of the rows shown as there is room for, at random. `X` may be on disk."""
        most = max(1, OBSERVED_BYTES // (bytes_a_value * X.shape[1]))
        places = np.sort(np.random.default_rng(0).permutation(len(rows))[:most])
        return cls(take_rows(X, rows[places]), Z[rows[places]], places)


def packed_observed(observed: Observed, shades: Any) -> Packed:
    """Images in 256 shades, everything else as it is, in float32."""
    X = observed.X.astype(np.float64)
    if shades is None:
        values = pack(X, "float32") | {"low": 0.0, "step": 1.0}
    else:
        low, high = (float(X.min()), float(X.max())) if X.size else (0.0, 1.0)
        step = (high - low) / 255 or 1.0
        values = pack(np.rint((X - low) / step), "uint8") | {"low": low, "step": step}
    return {"X": values, "Z": pack(observed.Z, "float32"), "places": pack(observed.places, "int32")}


def feature_columns(X: Array, rows: Array, names: Sequence[str]) -> dict[str, Array]:
    """The data's own columns to colour by, of those rows, as many as there is room for."""
    most = COLUMN_BYTES // (4 * len(rows))
    values = take_rows(X, rows)[:, :most].astype(np.float64)
    return {name: values[:, d] for d, name in enumerate(names[:most])}
