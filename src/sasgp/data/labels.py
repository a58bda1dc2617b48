"""What is known of points besides their place: classes with names, values on a scale, or nothing.

Figures and the explorer colour by it, and agree because both ask here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasgp.errors import InputError

__all__ = ["Labels", "parsed", "shortened"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Labels:
    """The class of each of N points as an index into `names`, or its value on a scale, or neither.

    Of names that are too many, the last stands for all that are rare, and `has_others` says so.
    """

    index: Array
    names: tuple[str, ...] = ()
    values: Array | None = None
    has_others: bool = False

    @classmethod
    def of(cls, labels: ArrayLike | None, n: int, most: int) -> Self:
        """Labels of n points in at most so many classes. Numbers that are no classes are values on a scale."""
        nothing = np.zeros(n, dtype=np.int64)
        if labels is None:
            return cls(nothing)
        y = np.asarray(labels)
        if y.shape != (n,):
            raise InputError(f"labels must be one for each of the {n} points. Got shape {y.shape}.")
        if y.dtype.kind == "O":
            y = np.array([str(label) for label in y])
        classes, index, count = np.unique(y, return_inverse=True, return_counts=True)
        if y.dtype.kind in "iuf" and (len(classes) > most or (classes % 1 != 0).any()):
            return cls(nothing, values=y.astype(np.float64))
        names = [f"{name:g}" if y.dtype.kind == "f" else str(name) for name in classes]
        if len(names) <= most:
            return cls(index, tuple(names))
        common = np.sort(np.argsort(-count, kind="stable")[: most - 1])
        place = np.full(len(names), most - 1)
        place[common] = np.arange(len(common))
        kept = [*(names[i] for i in common), f"{len(names) - len(common)} others"]
        return cls(place[index], tuple(kept), has_others=True)


def shortened(name: str, most: int = 26) -> str:
    """Both ends of a long name: names that begin alike often differ at their end."""
    name = " ".join(name.split())
    return name if len(name) <= most else f"{name[: most - 10]}…{name[-9:]}"


def parsed(text: Sequence[str]) -> NDArray[Any]:
    """Labels as integers or floats if all of them are, otherwise as text."""
    for kind in (np.int64, np.float64):
        try:
            return np.array(text).astype(kind)
        except (ValueError, OverflowError):
            continue
    return np.array(text)
