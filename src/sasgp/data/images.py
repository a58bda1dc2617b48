"""Rows that are images: which shapes are, and how their values become shades."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sasgp.errors import InputError

__all__ = ["Shades", "as_images", "check_shape", "guess_shape", "is_image_shape", "planes"]

Array = NDArray[Any]

CHANNELS = (1, 3, 4)  # grey, red-green-blue, and with opacity
MIN_SIDE = 8  # pixels: a row with fewer values is a table until somebody says otherwise


def is_image_shape(shape: Sequence[int]) -> bool:
    """Whether rows of that shape can be shown as images: (H, W), (C, H, W) or (H, W, C) with C of 1, 3 or 4."""
    return len(shape) == 2 or (len(shape) == 3 and (shape[0] in CHANNELS or shape[2] in CHANNELS))


def guess_shape(X: Array) -> tuple[int, ...] | None:
    """The shape that rows X [N, D] may have as images: a square, grey or in three planes, of pixels that look like it.

    Pixels are never negative, are on one scale, bytes at the most, and reach far into it in many places. Where that is
    not so the row is a table: an image shown as a table is dull, a table shown as an image is wrong.
    """
    D = X.shape[1]
    sample = np.asarray(X[:: max(1, len(X) // 1000)], dtype=np.float64)
    high = float(sample.max(initial=0))
    if not sample.size or sample.min() < 0 or not 0 < high <= 255 or np.mean(sample.max(0) > high / 2) < 0.3:
        return None
    for planes in (1, 3):
        side = math.isqrt(D // planes)
        if planes * side**2 == D and side >= MIN_SIDE:
            return (side, side) if planes == 1 else (planes, side, side)
    return None


@dataclass(frozen=True)
class Shades:
    """The values that are black and white, and whether they are drawn the other way round: as ink on paper."""

    low: float
    high: float
    writing: bool

    @classmethod
    def of(cls, X: Array, n_channels: int) -> Self:
        # Pixels are in bytes or between 0 and 1, where decoded ones may lie a little outside; else they have no known
        # scale
        low, high = 0.0, 255.0 if X.max() > 2 else 1.0
        if n_channels == 1 and (X.max() > 2 or X.min() < -1):
            low, high = (float(value) for value in np.quantile(X, [0.001, 0.999]))
        # Mostly black is writing; photographs stay as they are
        writing = n_channels == 1 and float(np.median(X)) - low < 0.3 * (high - low)
        return cls(low, high, writing)


def planes(shape: Sequence[int]) -> tuple[tuple[int, int, int], bool]:
    """The (C, H, W) of images of that shape, and whether their channels come last."""
    if len(shape) == 2:
        return (1, shape[0], shape[1]), False
    last = shape[2] in CHANNELS
    C, H, W = (shape[2], shape[0], shape[1]) if last else shape
    return (C, H, W), last


def as_images(X: Array, shape: Sequence[int]) -> Array:
    """Rows [N, D] as images [N, H, W, 3 or 4] of values in [0, 1]; writing is ink on paper."""
    shape = check_shape(shape, X.shape[1])
    (C, H, W), last = planes(shape)
    images = X.reshape(len(X), *((H, W, C) if last else (C, H, W))).astype(np.float64)
    if not last:
        images = np.moveaxis(images, 1, -1)
    shades = Shades.of(images, images.shape[-1])
    images = np.clip((images - shades.low) / ((shades.high - shades.low) or 1.0), 0, 1)
    if images.shape[-1] > 1:
        return images
    return np.repeat(1 - images if shades.writing else images, 3, axis=-1)


def check_shape(shape: Sequence[int], D: int) -> tuple[int, ...]:
    sizes = tuple(shape) if isinstance(shape, Sequence | np.ndarray) else ()
    whole = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
    if not (whole and math.prod(sizes) == D and is_image_shape(sizes)):
        raise InputError(
            f"image_shape must be (H, W), (C, H, W) or (H, W, C) with C of 1, 3 or 4, and have {D} values in all. "
            f"Got {shape}; give the sides of one row."
        )
    return tuple(int(size) for size in sizes)
