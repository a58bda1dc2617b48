"""Tables that stay on disk: rows of a .parquet or .feather file, read in blocks."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sasgp.data.tables.file import TableFile

if TYPE_CHECKING:
    import polars as pl

__all__ = ["DiskTable"]

BLOCK = 1 << 16  # rows read at a time


@dataclass(frozen=True)
class DiskTable:
    """Neighbouring rows of a table in a file, and some of its columns.

    Parameters
    ----------
    file : TableFile
    columns : tuple of str
    start, stop : int
        The rows.
    """

    file: TableFile
    columns: tuple[str, ...]
    start: int
    stop: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.stop - self.start, len(self.columns)

    def __len__(self) -> int:
        return self.stop - self.start

    def __getitem__(self, rows: Any) -> "Self | pl.DataFrame":
        """A range of rows stays on disk; rows by their numbers are read."""
        if isinstance(rows, slice):
            first, end, step = rows.indices(len(self))
            if step == 1:
                return type(self)(self.file, self.columns, self.start + first, self.start + max(first, end))
            rows = np.arange(first, end, step)
        return self.take(np.asarray(rows))

    def blocks(self) -> Iterator["pl.DataFrame"]:
        """All rows in order, some at a time."""
        done = 0
        for block in self.file.blocks(self.columns, BLOCK):
            low, high = max(self.start - done, 0), min(self.stop - done, block.height)
            if low < high:
                yield block[low:high]
            done += block.height
            if done >= self.stop:
                return

    def take(self, rows: NDArray[np.int64]) -> "pl.DataFrame":
        """Rows by their numbers, in that order."""
        import polars as pl

        order, found, done = np.argsort(rows, kind="stable"), [], 0
        wanted = rows[order]
        for block in self.blocks():
            low, high = np.searchsorted(wanted, [done, done + block.height])
            found.append(block[wanted[low:high] - done])
            done += block.height
        return pl.concat(found)[np.argsort(order)]

    def sample(self, n: int) -> "pl.DataFrame":
        """At most n rows from all parts of the table."""
        N = len(self)
        return self.take(np.linspace(0, N - 1, min(n, N)).astype(np.int64))
