"""Where numpy meets torch: an array of rows, in memory or on disk, as batches of the model's dtype on its device."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasgp.errors import InputError

__all__ = ["ArrayRows", "check_finite", "moments"]

BLOCK_ELEMENTS = 4_000_000  # read at a time when an array is walked through: 32 MB in float64


class ArrayRows:
    """Rows of an array. What is in memory is converted once; a memory map stays on disk and is converted by batch.

    Parameters
    ----------
    array : ndarray [N, D]
        Any real dtype.
    dtype, device
        What `gather` returns.
    indices : Tensor, optional
        The rows to use, where not all.
    """

    def __init__(
        self, array: NDArray[Any], dtype: torch.dtype, device: torch.device, indices: Tensor | None = None
    ) -> None:
        self.array, self.dtype, self.device, self.indices = array, dtype, device, indices
        self.tensor: Tensor | None = None
        if not isinstance(array, np.memmap):
            array = array if array.flags.writeable else array.copy()  # torch has no read-only tensors
            self.tensor = torch.from_numpy(array).to(device, dtype)

    def __len__(self) -> int:
        return len(self.array) if self.indices is None else len(self.indices)

    def subset(self, indices: Tensor) -> "ArrayRows":
        """The same array through other rows: nothing is copied."""
        rows = object.__new__(ArrayRows)
        rows.__dict__ = {**self.__dict__, "indices": indices if self.indices is None else self.indices[indices]}
        return rows

    def gather(self, rows: Tensor) -> Tensor:
        """Rows by index, [B] → [B, D]."""
        rows = rows if self.indices is None else self.indices[rows]
        if self.tensor is not None:
            return self.tensor[rows.to(self.device)]
        return torch.from_numpy(np.asarray(self.array[rows.numpy()])).to(self.device, self.dtype)

    def blocks(self, size: int) -> Iterator[Tensor]:
        """All rows in order, `size` at a time."""
        for start in range(0, len(self), size):
            yield self.gather(torch.arange(start, min(start + size, len(self))))


def row_blocks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    """An array's rows in blocks that fit in memory, each with the index of its first row."""
    size = max(1, BLOCK_ELEMENTS // max(1, array.shape[1]))
    for start in range(0, len(array), size):
        yield start, array[start : start + size]


def check_finite(array: NDArray[Any]) -> None:
    """Raise InputError where a value is NaN or infinite, saying how many and which came first."""
    if array.dtype.kind != "f":
        return
    count, first = 0, (-1, -1)
    for start, block in row_blocks(array):
        # The sum is finite only where every value is; values are looked at one by one only where it is not
        if np.isfinite(np.sum(block, dtype=np.float64)):
            continue
        bad = np.argwhere(~np.isfinite(block))
        if len(bad) and not count:
            first = (start + int(bad[0, 0]), int(bad[0, 1]))
        count += len(bad)
    if count:
        value = "NaN" if np.isnan(array[first]) else "inf"
        raise InputError(
            f"Expected finite numbers. Input X contains {count} NaN or infinite value{'s' * (count > 1)}, the first "
            f"({value}) in row {first[0]}, column {first[1]}, both counted from 0. Remove those rows or fill them in, "
            "for example with sklearn.impute."
        )


def moments(array: NDArray[Any]) -> tuple[NDArray[np.float64], float]:
    """Mean of every column and the variance averaged over columns, in one walk through the rows."""
    first = np.asarray(array[0], np.float64)  # shifting by any row keeps Σx² − N m² from cancelling
    total, squares = np.zeros(array.shape[1]), np.zeros(array.shape[1])
    for _, block in row_blocks(array):
        shifted = block - first
        total += shifted.sum(0)
        squares += np.square(shifted, out=shifted).sum(0)
    shift = total / len(array)
    return first + shift, float(np.maximum(squares / len(array) - shift**2, 0).mean())
