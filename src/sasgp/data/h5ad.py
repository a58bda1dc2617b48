"""Single cells in .h5ad files of AnnData, one row per cell and one column per gene, read by h5py.

X may be dense or sparse, and becomes dense. If `var` marks genes as highly variable, only those are read, as in scanpy.
A column of `obs` may hold the labels, and others are there to colour by. Nothing is ever unpickled, and the parts of a
file are compared with one another before they are used: scipy trusts the indices of a sparse matrix, and would write
outside its memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.blocks import slices
from sasgp.data.cells import COUNTS, MARK, Cells, chosen_genes
from sasgp.data.counts import are_counts
from sasgp.data.hdf5 import array, attribute, dataset, has, opened, part
from sasgp.data.labels import text_array
from sasgp.data.memory import amount, available
from sasgp.data.tables import LABEL_NAMES, first_repeated
from sasgp.errors import InputError

__all__ = ["CellFile", "read_h5ad"]

MOST_COLUMNS = 10  # of obs, to colour by: each is a part of the explorer's page
MOST_LOOKED_AT = 50
MOST_LEVELS = 100


@dataclass(frozen=True)
class CellFile:
    """A file, its cells and genes by name, and the columns of `obs`. X is read by `cells`."""

    path: Path
    label_candidates: tuple[str, ...]
    genes: tuple[str, ...]
    ids: NDArray[Any]

    @property
    def n_rows(self) -> int:
        return len(self.ids)

    def find_label_column(self, label: str) -> str | None:
        """The column of `obs` called `label`."""
        return label if label in self.label_candidates else None

    def guess_label_column(self, _: Sequence[str] = ()) -> str | None:
        """A column of `obs` with text or integers whose name is in `LABEL_NAMES`."""
        usual = [name for name in self.label_candidates if name in LABEL_NAMES]
        named = [name for name in usual if self.labels(name).dtype.kind in "Uiu"]
        if len(named) > 1:
            raise InputError(
                f"{self.path}: {', '.join(named)} of obs may all hold the labels. Choose one with labels={named[0]!r}.",
                argument="labels",
            )
        return named[0] if named else None

    def labels(self, column: str) -> NDArray[Any]:
        """The values of a column of `obs`. Text stays text."""
        with opened(self.path) as file:
            values = _values(part(file, f"obs/{column}", self.path), self.path, self.n_rows)
        if values.dtype.kind not in "OUS":
            return values
        if missing := [row for row, value in enumerate(values) if value is None]:
            raise InputError(
                f"{self.path}: cell {missing[0] + 1} has no label in column '{column}' of obs. Add it or drop the cell."
            )
        return text_array([str(value) for value in values])

    def metadata(self, names: Sequence[str] = (), without: str | None = None) -> dict[str, NDArray[Any]]:
        """Columns of `obs` by name, or up to ten of them: those with few different values, then those of numbers.

        Columns that cannot be read are left out if nobody asked for them.
        """
        if names:
            return {name: self._column(name) for name in names}
        classes, numbers = {}, {}
        for name in self.label_candidates[:MOST_LOOKED_AT]:
            with suppress(InputError):
                values = self._column(name)
                if name == without:
                    continue
                if values.dtype.kind == "f" or (values.dtype.kind in "iu" and np.ptp(values) >= MOST_LEVELS):
                    numbers[name] = values
                elif len(np.unique(values)) <= MOST_LEVELS:
                    classes[name] = values
        return dict([*classes.items(), *numbers.items()][:MOST_COLUMNS])

    def _column(self, name: str) -> NDArray[Any]:
        """A column of `obs`, in which missing text is called so."""
        with opened(self.path) as file:
            values = _values(part(file, f"obs/{name}", self.path), self.path, self.n_rows)
        if values.dtype.kind in "buif":
            return values
        return text_array(["missing" if value is None else str(value) for value in values])

    def cells(self, only: Sequence[str] | None) -> Cells:
        """X as float32 [N, D] and the names of its genes: `only` those if it has any, or the highly variable ones."""
        with opened(self.path) as file:
            var = part(file, "var", self.path)
            marks = _values(part(var, MARK, self.path), self.path, len(self.genes)) if has(var, MARK) else None
            chosen = chosen_genes(str(self.path), self.genes, only, marks)
            counted = not (has(file, "layers") and has(part(file, "layers", self.path), COUNTS))
            X, totals = _dense(file, self.path, (self.n_rows, len(self.genes)), chosen)
        return Cells(X, tuple(self.genes[d] for d in chosen), totals if counted else None)


def read_h5ad(path: Path) -> CellFile:
    """Read a .h5ad file, except its X."""
    if util.find_spec("h5py") is None:
        raise InputError(
            f"{path}: reading .h5ad files needs the package h5py, which is not installed. Run pip install h5py, or "
            "save X as .npy."
        )
    with opened(path) as file:
        for name in ("X", "obs", "var"):
            if not has(file, name):
                raise InputError(f"{path} has no {name}. A file written by AnnData has X, obs and var.")
        obs, var = part(file, "obs", path), part(file, "var", path)
        cells, names = _index(obs, path), _index(var, path)
        hidden = (obs.attrs["_index"], "__categories")
        candidates = tuple(name for name in obs if isinstance(name, str) and name not in hidden)
    genes = tuple(map(str, names))
    if not len(cells) or not genes:
        raise InputError(f"{path} must hold cells and genes, but has {len(cells)} cells and {len(genes)} genes.")
    if (twice := first_repeated(genes)) is not None:
        raise InputError(
            f"{path}: several genes are called '{twice}'. Call var_names_make_unique() in AnnData and write it again."
        )
    return CellFile(path, candidates, genes, np.array([str(cell) for cell in cells], dtype=object))


def _index(frame: Any, path: Path) -> NDArray[Any]:
    if not (name := attribute(frame, "_index", path)):
        raise InputError(f"{path} was written by anndata before 0.7. Read it with a newer anndata and write it again.")
    return _values(part(frame, name, path), path, None)


def _values(column: Any, path: Path, n: int | None) -> NDArray[Any]:
    """The n values of a column of obs or var (None: any number). Text becomes objects, and missing values None."""
    import h5py

    if isinstance(column, h5py.Group):
        kind = attribute(column, "encoding-type", path)
        if kind == "categorical":
            return _coded(part(column, "codes", path), part(column, "categories", path), path, n)
        if kind.startswith("nullable"):
            values = array(part(column, "values", path), path, (n,)).astype(object)
            missing = array(part(column, "mask", path), path, (len(values),))
            if missing.dtype.kind != "b":
                raise InputError(
                    f"{path}: {column.name}/mask must hold true or false, not {missing.dtype}. Correct it."
                )
            values[missing] = None
            return values if missing.any() else np.array(values.tolist())
        raise InputError(f"{path}: column {column.name} has the encoding '{kind}', which cannot be read. Drop it.")
    if "categories" in column.attrs:  # how anndata 0.7 refers to categories
        return _coded(column, column.file[column.attrs["categories"]], path, n)
    return array(column, path, (n,))


def _coded(codes: Any, categories: Any, path: Path, n: int | None) -> NDArray[Any]:
    import h5py

    index = array(codes, path, (n,), "iu")
    if isinstance(categories, h5py.Group):  # text that may be missing
        categories = part(categories, "values", path)
    known = array(categories, path, (None,))
    if len(index) and (index.min() < -1 or index.max() >= len(known)):
        raise InputError(
            f"{path}: {codes.name} must count the {len(known)} categories from 0, with -1 for a missing value, but "
            f"goes from {index.min()} to {index.max()}. Save the file again."
        )
    values = np.array([*known, None], dtype=object)[index]
    return values if known.dtype.kind == "O" or (index < 0).any() else values.astype(known.dtype)


def _dense(
    file: Any, path: Path, shape: tuple[int, int], chosen: NDArray[Any]
) -> tuple[NDArray[np.float32], NDArray[np.float64] | None]:
    """The chosen columns of X as one array and, if all of X are counts, the totals of its rows."""
    N = shape[0]
    need, have = 4 * N * len(chosen), available()
    if need > have:
        raise InputError(
            f"{path}: {N} cells × {len(chosen)} genes need {amount(need)} of memory, but only {amount(have)} are free. "
            f"Mark fewer genes as {MARK}, or save X as a .npy file, which stays on disk."
        )
    dense, totals, counted = np.empty((N, len(chosen)), dtype=np.float32), np.zeros(N), True
    for rows, columns, block in _blocks(part(file, "X", path), path, shape):
        here = np.flatnonzero((chosen >= columns.start) & (chosen < columns.stop))
        some = block[:, chosen[here] - columns.start]
        is_sparse = hasattr(block, "toarray")
        dense[rows, here if len(here) < len(chosen) else slice(None)] = some.toarray() if is_sparse else some
        counted = counted and are_counts(block.data if is_sparse else block)
        if counted:
            totals[rows] += np.asarray(block.sum(axis=1, dtype=np.float64)).reshape(-1)
    return dense, totals if counted else None


def _blocks(X: Any, path: Path, shape: tuple[int, int]) -> Iterator[tuple[slice, slice, Any]]:
    """X in blocks of rows or of columns, dense or sparse, each with its place."""
    import h5py
    from scipy.sparse import csc_array, csr_array

    N, D = shape
    if isinstance(X, h5py.Dataset):
        dataset(X, path, shape, "buif")
        for rows in slices(N, D):
            yield rows, slice(0, D), X[rows]
        return
    kind = attribute(X, "encoding-type", path) or attribute(X, "h5sparse_format", path)
    if not kind.startswith(("csr", "csc")):
        raise InputError(
            f"{path}: X has the encoding '{kind}', which cannot be read. Save it as a dense or sparse matrix."
        )
    stored = X.attrs.get("shape", X.attrs.get("h5sparse_shape", shape))
    if not np.array_equal(stored, shape):
        raise InputError(
            f"{path}: X must be {N} × {D} like obs and var, but has shape {np.asarray(stored).tolist()}. Save it again."
        )
    if kind.startswith("csr"):
        matrix = _Compressed(X, path, N, D)
        for rows in slices(N, D):
            yield rows, slice(0, D), csr_array(matrix.read(rows), shape=(rows.stop - rows.start, D))
        return
    matrix = _Compressed(X, path, D, N)
    for columns in slices(D, N):
        yield slice(0, N), columns, csc_array(matrix.read(columns), shape=(N, columns.stop - columns.start))


class _Compressed:
    """The `n_lines` rows of a csr matrix or columns of a csc matrix, each with up to `length` values."""

    def __init__(self, X: Any, path: Path, n_lines: int, length: int) -> None:
        self.path, self.length = path, length
        self.data = dataset(part(X, "data", path), path, (None,), "buif")
        self.indices = dataset(part(X, "indices", path), path, self.data.shape, "iu")
        ends = array(part(X, "indptr", path), path, (n_lines + 1,), "iu")
        # Compared before anything is subtracted, which could overflow
        rising = (ends[1:] >= ends[:-1]).all() and ends[0] == 0 and ends[-1] == len(self.data)
        self.ends = ends.astype(np.int64)
        if not rising or (np.diff(self.ends) > length).any():
            raise InputError(
                f"{path}: X is damaged: indptr must rise from 0 to the {len(self.data)} stored values, by at most "
                f"{length} at a time. Save the file again."
            )

    def read(self, lines: slice) -> tuple[NDArray[Any], ...]:
        """Values, indices and index pointers of some lines, as scipy takes them."""
        stored = slice(int(self.ends[lines.start]), int(self.ends[lines.stop]))
        indices = self.indices[stored]
        if len(indices) and (indices.min() < 0 or indices.max() >= self.length):
            raise InputError(
                f"{self.path}: X is damaged: its indices must be from 0 to {self.length - 1}, but go from "
                f"{indices.min()} to {indices.max()}. Save the file again."
            )
        data = self.data[stored].astype(np.float32)
        return data, indices.astype(np.int64), self.ends[lines.start : lines.stop + 1] - stored.start
