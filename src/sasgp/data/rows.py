"""Where numpy meets torch: rows in memory, on disk or in a torch Dataset, as batches of the model's dtype and device.

Rows on disk are read in chunks of neighbours, and an epoch shuffles in two steps: chunks are drawn in random order, a
pool of about 500 of them at a time, and the rows of a pool are shuffled. So the disk is asked for 128 KiB at a time
instead of single rows, and memory holds two pools whatever N is. Every row comes once an epoch and is equally likely at
every place; what is not as in a uniform permutation is the company: rows of a chunk share a batch more often. In a file
whose order says nothing that has no effect at all. In a sorted one the share of a class in a batch varies as if the
batch were about a third as large: shuffle such a file once if you can. Data of up to 64 MiB are read into memory, and
permuted uniformly.

Files are read with `pread` and not through their memory map: mapped pages count as resident memory, and a page fault
stops the whole interpreter while a read lets the training thread go on.
"""

import os
import queue
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasgp.errors import InputError

__all__ = ["ArrayRows", "DatasetArray", "check_finite", "moments", "row_blocks", "take_rows"]

BLOCK_ELEMENTS = 4_000_000  # read at a time when an array is walked through: 32 MB in float64
CHUNK_BYTES = 1 << 17  # read at once; smaller ones cost a disk its speed, larger ones a sorted file its shuffle
POOL_BYTES = 1 << 26  # shuffled at once; memory holds two of them
AHEAD = 2  # batches that are read before they are needed


class DatasetArray:
    """A map-style torch Dataset with the face of an array [N, D]: items are x, or tuples that start with x."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        if not hasattr(dataset, "__len__") or not len(dataset):
            raise InputError(
                "A torch Dataset must be map-style, with a length and rows to read. Got "
                f"{type(dataset).__name__}, which has none; write its rows to a .npy file."
            )
        first = self._item(0)
        if first.dtype.kind not in "buif":
            raise InputError(f"Items of a torch Dataset must be real numbers. Got type {first.dtype}; convert them.")
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


class FileReader:
    """Rows of a memory map, read from its file. Raises ValueError where the rows do not lie one after the other."""

    def __init__(self, array: "np.memmap[Any, Any]") -> None:
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        start, row_bytes = array.__array_interface__["data"][0], array.dtype.itemsize * array.shape[1]
        in_order = array.ndim == 2 and array.strides == (row_bytes, array.dtype.itemsize)
        if not in_order or not isinstance(root, np.memmap) or root.filename is None or root.mode == "c":
            raise ValueError("not the rows of a file, one after the other")
        self.offset = root.offset + start - root.__array_interface__["data"][0]
        self.array, self.row_bytes, self.file = array, row_bytes, os.open(root.filename, os.O_RDONLY)

    def __del__(self) -> None:
        if hasattr(self, "file"):
            os.close(self.file)

    def into(self, out: NDArray[Any], start: int) -> None:
        """Fill `out` [n, D] with the rows from `start` on."""
        view, done = memoryview(out.data).cast("B"), 0
        while done < len(view):
            read = os.preadv(self.file, [view[done:]], self.offset + start * self.row_bytes + done)
            if not read:
                raise InputError("The file of the training data must stay as it is. Got one that became shorter.")
            done += read

    def slice(self, start: int, stop: int) -> NDArray[Any]:
        out = np.empty((max(min(stop, len(self.array)) - start, 0), self.array.shape[1]), self.array.dtype)
        self.into(out, start)
        return out

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Any rows, one at a time in the order of the file."""
        out = np.empty((len(rows), self.array.shape[1]), self.array.dtype)
        for place in np.argsort(rows, kind="stable"):
            self.into(out[place : place + 1], int(rows[place]))
        return out


def _reader(array: Any) -> FileReader | None:
    if not hasattr(os, "preadv"):  # Windows: through the map
        return None
    try:
        return FileReader(array) if isinstance(array, np.memmap) else None
    except (ValueError, OSError):  # OSError: the file has gone, but its map lives
        return None


class Chunks:
    """A cache of chunks of a file's rows: those that were used last, up to two pools."""

    def __init__(self, reader: FileReader, indices: NDArray[np.int64] | None) -> None:
        N = len(reader.array) if indices is None else len(indices)
        self.reader, self.indices, self.n_rows = reader, indices, N
        self.rows_each = max(1, CHUNK_BYTES // reader.row_bytes)
        self.per_pool = max(1, POOL_BYTES // (self.rows_each * reader.row_bytes))
        self.n_chunks = -(-N // self.rows_each)
        slots = min(2 * self.per_pool, self.n_chunks)
        self.buffer = np.empty((slots, self.rows_each, reader.array.shape[1]), reader.array.dtype)
        self.slot_of = np.full(self.n_chunks, -1)
        self.chunk_in, self.used = np.full(slots, -1), np.full(slots, -1)
        self.clock = 0

    def segments(self, draw: torch.Generator) -> Iterator[Tensor]:
        """All rows in random order, a pool of chunks at a time."""
        order = torch.randperm(self.n_chunks, generator=draw)
        for start in range(0, self.n_chunks, self.per_pool):
            pool = order[start : start + self.per_pool]
            rows = (pool[:, None] * self.rows_each + torch.arange(self.rows_each)).reshape(-1)
            rows = rows[rows < self.n_rows]  # the last chunk may be shorter
            yield rows[torch.randperm(len(rows), generator=draw)]

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by index; chunks that are not in memory are read."""
        self.clock += 1
        chunk, place = np.divmod(rows, self.rows_each)
        wanted = np.unique(chunk)
        if len(wanted) > len(self.buffer):  # more than there is room for
            return self.reader.take(rows if self.indices is None else self.indices[rows])
        here = self.slot_of[wanted]
        self.used[here[here >= 0]] = self.clock
        missing = wanted[here < 0]
        for new, slot in zip(missing, np.argsort(self.used, kind="stable"), strict=False):
            if self.chunk_in[slot] >= 0:
                self.slot_of[self.chunk_in[slot]] = -1
            self._read(int(new), self.buffer[slot])
            self.slot_of[new], self.chunk_in[slot], self.used[slot] = slot, new, self.clock
        return self.buffer[self.slot_of[chunk], place]

    def _read(self, chunk: int, out: NDArray[Any]) -> None:
        first = chunk * self.rows_each
        count = min(self.rows_each, self.n_rows - first)
        if self.indices is None:
            self.reader.into(out[:count], first)
            return
        rows = self.indices[first : first + count]
        start, stop = int(rows.min()), int(rows.max()) + 1
        if stop - start <= 4 * count:  # most of what lies between is wanted
            out[:count] = self.reader.slice(start, stop)[rows - start]
        else:
            out[:count] = self.reader.take(rows)


class ArrayRows:
    """Rows of an array, converted to the model's dtype batch by batch where that saves memory, else once.

    Parameters
    ----------
    array : ndarray or DatasetArray [N, D]
        Any real dtype. A memory map above 64 MiB stays on disk.
    dtype, device
        What `gather` returns.
    indices : Tensor, optional
        The rows to use, where not all.
    """

    def __init__(self, array: Any, dtype: torch.dtype, device: torch.device, indices: Tensor | None = None) -> None:
        self.array, self.dtype, self.device, self.indices = array, dtype, device, indices
        self.tensor: Tensor | None = None
        self._cache: Chunks | None = None
        self.reader = _reader(array)
        if isinstance(array, np.memmap) and array.nbytes <= POOL_BYTES:
            self.reader, array = None, np.array(array)
        if isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
            array = array if array.flags.writeable else array.copy()  # torch has no read-only tensors
            if not array.dtype.isnative:
                array = array.astype(array.dtype.newbyteorder("="))
            if any(stride < 0 or stride % array.itemsize for stride in array.strides):  # rows in reverse, for example
                array = np.ascontiguousarray(array)
            if array.dtype.kind == "u" and array.dtype.itemsize > 1:  # torch can hardly index these
                array = array.astype(np.float32 if dtype == torch.float32 else np.float64)
            self.tensor = torch.from_numpy(array).to(device)
            if self.tensor.dtype.itemsize >= dtype.itemsize:  # smaller ones stay small: uint8 is a quarter of float32
                self.tensor = self.tensor.to(dtype)

    def __len__(self) -> int:
        return len(self.array) if self.indices is None else len(self.indices)

    def subset(self, indices: Tensor) -> "ArrayRows":
        """The same array through other rows: nothing is copied."""
        rows = object.__new__(ArrayRows)
        rows.__dict__ = {
            **self.__dict__,
            "indices": indices if self.indices is None else self.indices[indices],
            "_cache": None,
        }
        return rows

    def gather(self, rows: Tensor) -> Tensor:
        """Rows by index, [B] → [B, D]."""
        rows = rows if self.indices is None else self.indices[rows]
        if self.tensor is not None:
            return self.tensor.index_select(0, rows.to(self.device)).to(self.dtype)
        index = rows.numpy()
        return self._converted(self.array[index] if self.reader is None else self.reader.take(index))

    def blocks(self, size: int) -> Iterator[Tensor]:
        """All rows in order, `size` at a time; what is not in memory is read ahead."""
        starts = range(0, len(self), size)
        if self.tensor is not None:
            for start in starts:
                yield self.gather(torch.arange(start, min(start + size, len(self))))
        elif self.reader is not None and self.indices is None:
            reader = self.reader
            yield from _ahead(self._converted(reader.slice(start, start + size)) for start in starts)
        else:
            indices = (torch.arange(start, min(start + size, len(self))) for start in starts)
            yield from _ahead(self.gather(index) for index in indices)

    def segments(self, draw: torch.Generator) -> Iterator[Tensor]:
        """All indices in random order; the module's docstring says which."""
        if self.reader is None:
            return iter([torch.randperm(len(self), generator=draw)])
        return self._chunks().segments(draw)

    def stream(self, plan: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and rows of one batch after the other; what is not in memory is read ahead, by one thread."""
        if self.tensor is not None:
            return ((rows, self.gather(rows)) for rows in plan)
        if self.reader is None:
            return _ahead((rows, self.gather(rows)) for rows in plan)
        chunks = self._chunks()
        return _ahead((rows, self._converted(chunks.take(rows.numpy()))) for rows in plan)

    def release(self) -> None:
        """Forget what was read: training is over."""
        self._cache = None

    def _chunks(self) -> Chunks:
        assert self.reader is not None
        if self._cache is None:
            self._cache = Chunks(self.reader, None if self.indices is None else self.indices.numpy())
        return self._cache

    def _converted(self, block: NDArray[Any]) -> Tensor:
        if (block.dtype.kind in "bif" and block.dtype.isnative) or block.dtype == np.uint8:
            return torch.from_numpy(block).to(self.device, self.dtype)
        wide = np.float32 if self.dtype == torch.float32 else np.float64
        return torch.from_numpy(block.astype(wide)).to(self.device)


def _ahead(items: Iterable[Any]) -> Iterator[Any]:
    """The items of an iterator that another thread advances, up to `AHEAD` of them before they are asked for."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(AHEAD)
    left = threading.Event()

    def put(kind: str, item: Any) -> bool:
        while not left.is_set():
            try:
                ready.put((kind, item), timeout=0.1)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put("item", item):
                    return
            put("end", None)
        except BaseException as error:  # it is raised again where the items are used
            put("error", error)

    thread = threading.Thread(target=work, name="sasgp reader", daemon=True)
    thread.start()
    try:
        while True:
            kind, item = ready.get()
            if kind == "end":
                return
            if kind == "error":
                raise item
            yield item
    finally:
        left.set()
        thread.join()


def take_rows(array: Any, rows: NDArray[np.int64]) -> NDArray[Any]:
    """Some rows of an array. Of a file they are read: a map makes up to a megabyte resident for each."""
    reader = _reader(array)
    return np.asarray(array[rows]) if reader is None else reader.take(rows)


def row_blocks(array: Any) -> Iterator[tuple[int, NDArray[Any]]]:
    """An array's rows in blocks that fit in memory, each with the index of its first row."""
    size = max(1, BLOCK_ELEMENTS // max(1, array.shape[1]))
    reader = _reader(array)
    for start in range(0, len(array), size):
        yield start, array[start : start + size] if reader is None else reader.slice(start, start + size)


def check_finite(array: Any, name: str = "Input X", columns: Sequence[str] = ()) -> None:
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
        called = f" ('{columns[first[1]]}')" if columns else ""
        raise InputError(
            f"Expected finite numbers. {name} contains {count} NaN or infinite value{'s' * (count > 1)}, the first "
            f"({value}) in row {first[0]}, column {first[1]}{called}, both counted from 0. Remove those rows or fill "
            "them in, for example with sklearn.impute."
        )


def moments(array: Any) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """Mean, variance and range of every column, in one walk through the rows."""
    first = np.asarray(array[0], np.float64)  # shifting by any row keeps Σx² − N m² from cancelling
    total, squares, low, high = np.zeros((4, array.shape[1]))
    for _, block in row_blocks(array):
        shifted = block - first
        total += shifted.sum(0)
        low, high = np.minimum(low, shifted.min(0)), np.maximum(high, shifted.max(0))
        squares += np.square(shifted, out=shifted).sum(0)
    shift = total / len(array)
    return first + shift, np.maximum(squares / len(array) - shift**2, 0), high - low
