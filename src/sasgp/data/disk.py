"""Reading rows from a file on disk: some rows, or chunks of neighbouring rows through a cache, or ahead in a thread.

Files are read with `preadv` and not through their memory map. Mapped pages count as resident memory, and a page fault
stops the whole interpreter, while training goes on during a read.
"""

import os
import queue
import threading
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasgp.errors import InputError

__all__ = ["Chunks", "FileReader", "file_reader", "read_ahead"]


class FileReader:
    """Reads rows of a memory map from its file. Raises ValueError if the rows are not contiguous in the file."""

    def __init__(self, array: "np.memmap[Any, Any]") -> None:
        root: Any = array
        while isinstance(root.base, np.ndarray):
            root = root.base
        start, row_bytes = array.__array_interface__["data"][0], array.dtype.itemsize * array.shape[1]
        in_order = array.ndim == 2 and array.strides == (row_bytes, array.dtype.itemsize)
        if not in_order or not isinstance(root, np.memmap) or root.filename is None or root.mode == "c":
            raise ValueError("the rows are not contiguous in a file")
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
                raise InputError("The file with the data became shorter while it was read. Start again with all of it.")
            done += read

    def slice(self, start: int, stop: int) -> NDArray[Any]:
        """The rows from `start` up to `stop`, or to the end if that comes first."""
        out = np.empty((max(min(stop, len(self.array)) - start, 0), self.array.shape[1]), self.array.dtype)
        self.into(out, start)
        return out

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by index. They are read one at a time in the order of the file."""
        out = np.empty((len(rows), self.array.shape[1]), self.array.dtype)
        for place in np.argsort(rows, kind="stable"):
            self.into(out[place : place + 1], int(rows[place]))
        return out


def file_reader(array: Any) -> FileReader | None:
    """A reader for an array, or None if it is not the map of a file, or not one that can be read row by row."""
    if not hasattr(os, "preadv"):  # Windows: only through the map
        return None
    try:
        return FileReader(array) if isinstance(array, np.memmap) else None
    except (ValueError, OSError):  # OSError: the file was deleted, but its map still works
        return None


class Chunks:
    """A cache of chunks, which are neighbouring rows of a file. It keeps those used last, up to two pools of them.

    Parameters
    ----------
    reader : FileReader
    indices : array, optional
        The rows to use. None uses all.
    chunk_bytes : int
        Bytes that are read at once.
    pool_bytes : int
        Bytes of the chunks whose rows are shuffled together.
    """

    def __init__(
        self, reader: FileReader, indices: NDArray[np.int64] | None, chunk_bytes: int, pool_bytes: int
    ) -> None:
        N = len(reader.array) if indices is None else len(indices)
        self.reader, self.indices, self.n_rows = reader, indices, N
        self.rows_each = max(1, chunk_bytes // reader.row_bytes)
        self.per_pool = max(1, pool_bytes // (self.rows_each * reader.row_bytes))
        self.n_chunks = -(-N // self.rows_each)
        slots = min(2 * self.per_pool, self.n_chunks)
        self.buffer = np.empty((slots, self.rows_each, reader.array.shape[1]), reader.array.dtype)
        self.slot_of = np.full(self.n_chunks, -1)
        self.chunk_in, self.used = np.full(slots, -1), np.full(slots, -1)
        self.clock = 0

    def segments(self, draw: torch.Generator) -> Iterator[Tensor]:
        """All row indices in random order, one pool of chunks at a time."""
        order = torch.randperm(self.n_chunks, generator=draw)
        for start in range(0, self.n_chunks, self.per_pool):
            pool = order[start : start + self.per_pool]
            rows = (pool[:, None] * self.rows_each + torch.arange(self.rows_each)).reshape(-1)
            rows = rows[rows < self.n_rows]  # the last chunk may be shorter
            yield rows[torch.randperm(len(rows), generator=draw)]

    def take(self, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Rows by index. Chunks that are not in the cache are read."""
        self.clock += 1
        chunk, place = np.divmod(rows, self.rows_each)
        wanted = np.unique(chunk)
        if len(wanted) > len(self.buffer):  # more than the cache can hold
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
        if stop - start <= 4 * count:  # one read of everything in between is faster than one per row
            out[:count] = self.reader.slice(start, stop)[rows - start]
        else:
            out[:count] = self.reader.take(rows)


def read_ahead(items: Iterable[Any]) -> Iterator[Any]:
    """Iterate in another thread, up to two items ahead of the caller."""
    ready: queue.Queue[tuple[str, Any]] = queue.Queue(2)
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
        except BaseException as error:  # it is raised again in the thread of the caller
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
