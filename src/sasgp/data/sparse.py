"""Sparse matrices as arrays: whatever rows are asked for become dense, and never the matrix as a whole."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, issparse

__all__ = ["SparseArray"]


class SparseArray:
    """A sparse matrix of scipy as an array [N, D]. Rows by slice or by index are dense."""

    def __init__(self, matrix: Any) -> None:
        assert issparse(matrix)
        self.matrix = csr_array(matrix)  # the one format with fast rows; nothing is copied if it is that already
        if self.matrix.dtype.kind == "f" and self.matrix.dtype.itemsize > 8:  # torch has no such numbers
            self.matrix = self.matrix.astype(np.float64)
        self.shape, self.dtype = self.matrix.shape, self.matrix.dtype

    @property
    def stored(self) -> NDArray[Any]:
        """The values that are not zero, or not known to be."""
        return np.asarray(self.matrix.data)

    @property
    def nbytes(self) -> int:
        """Bytes of all values as a dense array."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def __len__(self) -> int:
        return int(self.shape[0])

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, tuple):
            return self[rows[0]][rows[1]]
        if isinstance(rows, int | np.integer):
            return self.matrix[[rows]].toarray()[0]
        return self.matrix[rows].toarray()
