"""Where numpy meets torch: rows in memory, on disk or in a torch Dataset, as batches with the model's dtype and device.

Files of up to 64 MiB are read into memory, and an epoch permutes their rows uniformly. Larger files stay on disk and
are read in chunks of neighbouring rows. An epoch draws the chunks in random order, one pool at a time, and shuffles the
rows of each pool. Memory then holds two pools, however many rows there are. docs/large-data.md says what that means for
files that are sorted. A sparse matrix that would be larger than 64 MiB becomes dense one batch at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasgp.data.blocks import slices
from sasgp.data.disk import Chunks, file_reader, read_ahead
from sasgp.data.sparse import SparseArray
from sasgp.data.tables.frames import is_frame
from sasgp.errors import InputError

__all__ = ["ArrayRows", "DatasetArray", "check_values", "moments", "read_rows", "row_blocks", "take_rows", "unmasked"]

CHUNK_BYTES = 1 << 17  # smaller chunks slow down a disk; larger ones mix the rows of a sorted file less well
POOL_BYTES = 1 << 26  # shuffled together; memory holds two pools


class DatasetArray:
    """A map-style torch Dataset as an array [N, D]. Its items are x, or tuples that start with x."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        if not hasattr(dataset, "__len__") or not len(dataset):
            raise InputError(
                "A torch Dataset must be map-style, with a length of one or more. "
                f"{type(dataset).__name__} is not; write its rows to a .npy file."
            )
        first = self._item(0)
        if first.dtype.kind not in "buif":
            raise InputError(f"Items of a torch Dataset must be real numbers, not {first.dtype}. Convert them.")
        self.shape, self.dtype = (len(dataset), first.size), first.dtype

    def _item(self, row: int) -> NDArray[Any]:
        item = self.dataset[row]
        item = item[0] if isinstance(item, tuple | list) else item
        return (item.numpy(force=True) if isinstance(item, Tensor) else np.asarray(item)).reshape(-1)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: Any) -> NDArray[Any]:
        if isinstance(rows, tuple):
            return self._item(rows[0])[rows[1]]
        if isinstance(rows, int | np.integer):
            return self._item(int(rows))
        return np.stack([self._item(int(row)) for row in np.arange(len(self))[rows]])


class ArrayRows:
    """Rows of an array, converted to the model's dtype: all at once, or batch by batch if that saves memory.

    Parameters
    ----------
    array : ndarray, DatasetArray or SparseArray [N, D]
        Any real dtype. A memory map above 64 MiB stays on disk, and a sparse matrix above 64 MiB stays sparse.
    dtype, device
        Dtype and device of the batches.
    indices : Tensor, optional
        The rows to use. None uses all.
    """

    def __init__(self, array: Any, dtype: torch.dtype, device: torch.device, indices: Tensor | None = None) -> None:
        self.array, self.dtype, self.device, self.indices = array, dtype, device, indices
        self.tensor: Tensor | None = None
        self._cache: Chunks | None = None
        self.reader = file_reader(array)
        if isinstance(array, np.memmap | SparseArray) and array.nbytes <= POOL_BYTES:
            self.reader, array = None, read_rows(array, slice(0, len(array)))
        if isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
            array = array if array.flags.writeable else array.copy()  # torch has no read-only tensors
            if not array.dtype.isnative:
                array = array.astype(array.dtype.newbyteorder("="))
            if any(stride < 0 or stride % array.itemsize for stride in array.strides):  # such as reversed rows
                array = np.ascontiguousarray(array)
            if array.dtype.kind == "u" and array.dtype.itemsize > 1:  # torch cannot index most of these
                array = array.astype(np.float32 if dtype == torch.float32 else np.float64)
            self.tensor = torch.from_numpy(array).to(device)
            if self.tensor.dtype.itemsize >= dtype.itemsize:  # smaller ones stay small to save memory
                self.tensor = self.tensor.to(dtype)

    def __len__(self) -> int:
        return len(self.array) if self.indices is None else len(self.indices)

    def subset(self, indices: Tensor) -> "ArrayRows":
        """Some of these rows. Nothing is copied."""
        rows = object.__new__(ArrayRows)
        rows.__dict__ = {
            **self.__dict__,
            "indices": indices if self.indices is None else self.indices[indices],
            "_cache": None,
        }
        return rows

    def gather(self, index: Tensor) -> Tensor:
        """Rows by index, [B] → [B, D]."""
        index = index if self.indices is None else self.indices[index]
        if self.tensor is not None:
            return self.tensor.index_select(0, index.to(self.device)).to(self.dtype)
        wanted = index.numpy()
        return self._converted(self.array[wanted] if self.reader is None else self.reader.take(wanted))

    def blocks(self, size: int, part: slice = slice(None)) -> Iterator[Tensor]:
        """All rows or a part of them in order, `size` at a time. Rows that are not in memory are read ahead."""
        first, end, _ = part.indices(len(self))
        bounds = [(start, min(start + size, end)) for start in range(first, end, size)]
        if self.tensor is not None:
            for start, stop in bounds:
                yield self.gather(torch.arange(start, stop))
        elif self.reader is not None and self.indices is None:
            reader = self.reader
            yield from read_ahead(self._converted(reader.slice(start, stop)) for start, stop in bounds)
        else:
            yield from read_ahead(self.gather(torch.arange(start, stop)) for start, stop in bounds)

    def segments(self, draw: torch.Generator) -> Iterator[Tensor]:
        """All row indices in random order. The docstring of this module says how they are shuffled."""
        if self.reader is None:
            return iter([torch.randperm(len(self), generator=draw)])
        return self._chunks().segments(draw)

    def stream(self, plan: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and rows of each batch of a plan. Rows that are not in memory are read ahead in a thread."""
        if self.tensor is not None:
            return ((rows, self.gather(rows)) for rows in plan)
        if self.reader is None:
            return read_ahead((rows, self.gather(rows)) for rows in plan)
        chunks = self._chunks()
        return read_ahead((rows, self._converted(chunks.take(rows.numpy()))) for rows in plan)

    def release(self) -> None:
        """Empty the cache after training."""
        self._cache = None

    def _chunks(self) -> Chunks:
        assert self.reader is not None
        if self._cache is None:
            indices = None if self.indices is None else self.indices.numpy()
            self._cache = Chunks(self.reader, indices, CHUNK_BYTES, POOL_BYTES)
        return self._cache

    def _converted(self, block: NDArray[Any]) -> Tensor:
        if (block.dtype.kind in "bif" and block.dtype.isnative) or block.dtype == np.uint8:
            return torch.from_numpy(block).to(self.device, self.dtype)
        wide = np.float32 if self.dtype == torch.float32 else np.float64
        return torch.from_numpy(block.astype(wide)).to(self.device)


def take_rows(array: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Some rows of an array or a table. Those of a file are read: a map would make more than the rows resident."""
    if is_frame(array):
        return array[rows]
    reader = file_reader(array)
    return np.asarray(array[rows]) if reader is None else reader.take(rows)


def read_rows(array: Any, part: slice) -> NDArray[Any]:
    """Neighbouring rows of an array, in memory. Those of a file are read, since mapped pages would stay resident."""
    reader = file_reader(array)
    return np.array(array[part]) if reader is None else reader.slice(*part.indices(len(array))[:2])


def row_blocks(array: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """The rows of an array in blocks that fit in memory, each with the index of its first row."""
    reader = file_reader(array)
    for block in slices(*array.shape):
        yield block.start, array[block] if reader is None else reader.slice(block.start, block.stop)


def unmasked(X: Any) -> Any:
    """A masked array of NumPy as an array with NaN where it is masked, and anything else as it is."""
    if not isinstance(X, np.ma.MaskedArray):
        return X
    if not np.ma.is_masked(X):
        return X.data
    wide = X.dtype if X.dtype.kind == "f" else np.float64  # integers have no NaN
    return np.where(np.ma.getmaskarray(X), np.nan, X.data).astype(wide)


def check_values(array: Any, name: str = "Input X", columns: Sequence[str] = (), *, first_row: int = 0) -> int:
    """The number of missing values, which are NaN. Raise InputError for infinite ones, and for a row without any value.

    The message says how many there are, and where the first is. `first_row` is the number of the array's first row in
    the data that the user knows.
    """
    if array.dtype.kind != "f" or (isinstance(array, SparseArray) and np.isfinite(array.stored).all()):
        return 0
    missing, infinite, empty, first = 0, 0, 0, (-1, -1)
    for start, block in row_blocks(array):
        # A finite sum has finite terms only, so single values are looked at only if the sum is not finite.
        if np.isfinite(np.sum(block, dtype=np.float64)):
            continue
        absent, bad = np.isnan(block), np.isinf(block)
        bare = absent.all(1)
        if not (infinite or empty) and (bad.any() or bare.any()):
            row = int((bad.any(1) | bare).argmax())
            first = (start + row, int(bad[row].argmax()))
        missing, infinite, empty = missing + int(absent.sum()), infinite + int(bad.sum()), empty + int(bare.sum())
    if infinite:
        called = f" ('{columns[first[1]]}')" if columns else ""
        raise InputError(
            f"{name} contains {infinite} infinite value{'s' * (infinite > 1)}, the first (inf) in row "
            f"{first_row + first[0]}, column {first[1]}{called}, counted from 0. All values must be finite, or NaN if "
            "they are missing: correct them, or set them to NaN."
        )
    if empty:
        raise InputError(
            f"{name} has {empty} row{'s' * (empty > 1)} without any value, the first is row {first_row + first[0]}, "
            "counted from 0. Each row must have at least one value that is not NaN: remove those that have none."
        )
    return missing


def moments(array: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, variance and range of each column, in one pass over the rows."""
    first = np.asarray(array[0], np.float64)  # subtracting any row keeps Σx² − N m² from cancelling
    total, squares, low, high = np.zeros((4, array.shape[1]))
    for _, block in row_blocks(array):
        shifted = block - first
        total += shifted.sum(0)
        low, high = np.minimum(low, shifted.min(0)), np.maximum(high, shifted.max(0))
        squares += np.square(shifted, out=shifted).sum(0)
    if np.isnan(total).any():
        return _observed_moments(array)
    shift = total / len(array)
    return first + shift, np.maximum(squares / len(array) - shift**2, 0), high - low


def _observed_moments(array: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """The same over the values that are there. A column without values has mean, variance and range 0."""
    D = array.shape[1]
    first = np.full(D, np.nan)  # of each column, the first value
    count, total, squares = np.zeros((3, D))
    low, high = np.full(D, np.inf), np.full(D, -np.inf)
    for _, block in row_blocks(array):
        seen = ~np.isnan(block)
        fresh = np.isnan(first) & seen.any(0)
        first[fresh] = block[seen.argmax(0), np.arange(D)][fresh]
        shifted = np.where(seen, block - np.nan_to_num(first), 0.0)
        count, total, squares = count + seen.sum(0), total + shifted.sum(0), squares + np.square(shifted).sum(0)
        low = np.minimum(low, np.where(seen, shifted, np.inf).min(0))
        high = np.maximum(high, np.where(seen, shifted, -np.inf).max(0))
    there = np.maximum(count, 1)
    shift = total / there
    ranges = np.where(count > 0, high, 0) - np.where(count > 0, low, 0)
    return np.nan_to_num(first) + shift, np.maximum(squares / there - shift**2, 0), ranges
