"""Labels of points: named classes, values on a scale, or nothing. Figures and the explorer colour points by them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasgp.data.memory import amount, available
from sasgp.errors import InputError

__all__ = ["Labels", "parse_labels", "shorten", "text_array"]

Array = NDArray[Any]

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_NUMBER = re.compile(r"-?((0|[1-9][0-9]*)(\.[0-9]*)?|\.[0-9]+)(e[+-]?[0-9]+|E[+-][0-9]+)?|-?inf|[nN]a[nN]")


@dataclass(frozen=True)
class Labels:
    """The class of each of N points as an index into `names`, or its value on a scale, or neither.

    If there are too many classes, the last name stands for all the rare ones, and `has_others` is true.
    """

    index: Array
    names: tuple[str, ...] = ()
    values: Array | None = None
    has_others: bool = False

    @classmethod
    def from_array(cls, labels: ArrayLike | None, n: int, max_classes: int) -> Self:
        """Labels of n points. Numbers are values on a scale if they have fractions or too many different values."""
        nothing = np.zeros(n, dtype=np.int64)
        if labels is None:
            return cls(nothing)
        y = np.asarray(labels)
        if y.shape != (n,):
            raise InputError(
                f"labels must be a list, one for each of the {n} points. Got shape {y.shape}.", argument="labels"
            )
        if y.dtype.kind == "O":
            y = np.array([str(label) for label in y])
        classes, index, count = np.unique(y, return_inverse=True, return_counts=True)
        if y.dtype.kind in "iuf" and (len(classes) > max_classes or (classes % 1 != 0).any()):
            return cls(nothing, values=y.astype(np.float64))
        names = [f"{name:g}" if y.dtype.kind == "f" else str(name) for name in classes]
        if len(names) <= max_classes:
            return cls(index, tuple(names))
        common = np.sort(np.argsort(-count, kind="stable")[: max_classes - 1])
        place = np.full(len(names), max_classes - 1)
        place[common] = np.arange(len(common))
        kept = [*(names[i] for i in common), f"{len(names) - len(common)} others"]
        return cls(place[index], tuple(kept), has_others=True)


def shorten(name: str, max_length: int = 26) -> str:
    """Cut the middle out of a long name: names with the same beginning often differ at the end."""
    name = " ".join(name.split())
    return name if len(name) <= max_length else f"{name[: max_length - 10]}…{name[-9:]}"


def text_array(text: Sequence[str]) -> NDArray[np.str_]:
    """Text as an array, in which each label takes the space of the longest."""
    longest = max(map(len, text), default=0)
    need, have = 4 * len(text) * longest, available()
    if need > have:
        raise InputError(
            f"labels must be short: the longest has {longest} characters, so all {len(text)} need {amount(need)} of "
            f"memory, but only {amount(have)} are free. Shorten it.",
            argument="labels",
        )
    return np.array(text, dtype=np.str_)


def parse_labels(text: Sequence[str]) -> NDArray[Any]:
    """Convert labels to integers or floats if all of them are written as numbers are. Otherwise they stay text.

    Codes such as 00123, +5 or 1_000 are names, and would lose something as numbers.
    """
    labels = text_array(text)
    if all(map(_INTEGER.fullmatch, text)):
        try:
            return labels.astype(np.int64)
        except OverflowError:
            return labels
    return labels.astype(np.float64) if all(map(_NUMBER.fullmatch, text)) else labels
