"""Rows that are images: which shapes count as images, and how values become shades."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from sasgp.errors import InputError

__all__ = [
    "Shades",
    "as_images",
    "check_shape",
    "flat_images",
    "guess_shape",
    "image_shape_of",
    "is_image_shape",
    "planes",
    "same_shape",
]

Array = NDArray[Any]

CHANNELS = (1, 3, 4)  # grey, RGB, and RGB with opacity


def is_image_shape(shape: Sequence[int]) -> bool:
    """Whether rows of this shape can be shown as images: (H, W), (C, H, W) or (H, W, C) with C = 1, 3 or 4."""
    return len(shape) == 2 or (len(shape) == 3 and (shape[0] in CHANNELS or shape[2] in CHANNELS))


def image_shape_of(X: Any) -> tuple[int, ...] | None:
    """The shape of one image of X [N, ...], an array or a torch tensor. None if X has two axes or no image's shape."""
    shape = tuple(int(size) for size in getattr(X, "shape", ()))
    return shape[1:] if len(shape) > 2 and is_image_shape(shape[1:]) else None


def flat_images(X: Any, known: Sequence[int] | None = None) -> Any:
    """An array [N, ...] as [N, D], and anything else as it is. Nothing is copied if its memory is in that order.

    Raises InputError if its images have another shape than the `known` one: their pixels would be in another order.
    """
    if not isinstance(X, np.ndarray) or X.ndim < 3:
        return X
    if known is not None and not same_shape(X.shape[1:], known):
        raise InputError(
            f"X has images of shape {X.shape[1:]}, but the model's images have shape {tuple(known)}. Put their axes in "
            "that order, or scale the images.",
            argument="X",
        )
    return X.reshape(len(X), math.prod(X.shape[1:]))


def same_shape(one: Sequence[int], other: Sequence[int]) -> bool:
    """Whether images of two shapes have their pixels in the same order. A single channel makes no difference."""
    return [size for size in one if size != 1] == [size for size in other if size != 1]


def guess_shape(X: Array) -> tuple[int, ...] | None:
    """Guess whether rows X [N, D] are square images, grey or in three colour planes, and of which shape.

    Pixels are never negative, none exceeds 255, and many of them reach the upper half of the scale. Rows for which that
    is not true are a table: showing an image as a table is dull, but showing a table as an image is wrong.
    """
    D = X.shape[1]
    sample = np.nan_to_num(np.asarray(X[:: max(1, len(X) // 1000)], dtype=np.float64))  # NaN is a missing value
    high = float(sample.max(initial=0))
    if not sample.size or sample.min() < 0 or not 0 < high <= 255 or np.mean(sample.max(0) > high / 2) < 0.3:
        return None
    for planes in (1, 3):
        side = math.isqrt(D // planes)
        if planes * side**2 == D and side >= 8:  # fewer values are more likely a table
            return (side, side) if planes == 1 else (planes, side, side)
    return None


@dataclass(frozen=True)
class Shades:
    """Which values are black and white, and whether images are drawn inverted, as ink on paper."""

    low: float
    high: float
    writing: bool

    @classmethod
    def from_pixels(cls, X: Array, n_channels: int) -> Self:
        """Choose the shades for images from their values."""
        # Pixels are bytes, or from 0 to 1 with decoded ones slightly outside. Other grey values have no known scale.
        low, high = 0.0, 255.0 if X.max() > 2 else 1.0
        if n_channels == 1 and (X.max() > 2 or X.min() < -1):
            low, high = (float(value) for value in np.quantile(X, [0.001, 0.999]))
        # Images that are mostly black are writing. Photographs are not inverted.
        writing = n_channels == 1 and float(np.median(X)) - low < 0.3 * (high - low)
        return cls(low, high, writing)


def planes(shape: Sequence[int]) -> tuple[tuple[int, int, int], bool]:
    """The (C, H, W) of images of this shape, and whether the channels come last."""
    if len(shape) == 2:
        return (1, shape[0], shape[1]), False
    last = shape[2] in CHANNELS
    C, H, W = (shape[2], shape[0], shape[1]) if last else shape
    return (C, H, W), last


def as_images(X: Array, shape: Sequence[int]) -> Array:
    """Rows [N, D] as images [N, H, W, 3 or 4] with values in [0, 1]. Writing becomes ink on paper."""
    shape = check_shape(shape, X.shape[1])
    (C, H, W), last = planes(shape)
    images = X.reshape(len(X), *((H, W, C) if last else (C, H, W))).astype(np.float64)
    if not last:
        images = np.moveaxis(images, 1, -1)
    shades = Shades.from_pixels(images, images.shape[-1])
    images = np.clip((images - shades.low) / ((shades.high - shades.low) or 1.0), 0, 1)
    if images.shape[-1] > 1:
        return images
    return np.repeat(1 - images if shades.writing else images, 3, axis=-1)


def check_shape(shape: Sequence[int], D: int) -> tuple[int, ...]:
    """The shape as a tuple. Raise InputError unless it is that of images with D values."""
    sizes = tuple(shape) if isinstance(shape, Sequence | np.ndarray) else ()
    whole = all(isinstance(size, int | np.integer) and size > 0 for size in sizes)
    if not (whole and math.prod(sizes) == D and is_image_shape(sizes)):
        raise InputError(
            f"image_shape must be (H, W), (C, H, W) or (H, W, C) with C = 1, 3 or 4, and have {D} values in all. "
            f"Got {shape}; give the sides of one row.",
            argument="image_shape",
        )
    return tuple(int(size) for size in sizes)
