"""Single cells in .h5ad files of AnnData, one row per cell and one column per gene, read by h5py.

X may be dense or sparse, and becomes dense. If `var` marks genes as highly variable, only those are read, as in scanpy.
A column of `obs` may hold the labels. Nothing is ever unpickled.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.blocks import slices
from sasgp.data.memory import amount, available
from sasgp.data.tables import LABEL_NAMES
from sasgp.errors import InputError

__all__ = ["CellFile", "read_h5ad"]

MARK = "highly_variable"


@dataclass(frozen=True)
class CellFile:
    """A file, its genes and the columns of `obs`, with the methods of `TableFile`. X is read by `numbers`."""

    path: Path
    label_candidates: tuple[str, ...]
    genes: tuple[str, ...]
    n_rows: int

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
        with _opened(self.path) as file:
            values = _values(file["obs"][column], self.path)
        if values.dtype.kind not in "OUS":
            return values
        if missing := [row for row, value in enumerate(values) if value is None]:
            raise InputError(
                f"{self.path}: cell {missing[0] + 1} has no label in column '{column}' of obs. Add it or drop the cell."
            )
        return values.astype(np.str_)

    def numbers(self, *, without: str | None, only: Sequence[str] | None) -> tuple[NDArray[Any], tuple[str, ...]]:
        """X as float32 [N, D] and the names of its genes: `only` those if it has any, or the highly variable ones."""
        del without  # labels are not among the genes
        place = {name: d for d, name in enumerate(self.genes)}
        lacking = [name for name in only or () if name not in place]
        if only is not None and 0 < len(lacking) < len(only):
            raise InputError(
                f"{self.path} lacks {len(lacking)} of the {len(only)} genes that are needed: "
                f"{', '.join(lacking[:5])}{', …' * (len(lacking) > 5)}. Add them, or train on genes in both files."
            )
        with _opened(self.path) as file:
            if only is not None and not lacking:
                chosen = np.array([place[name] for name in only])
            elif MARK in file["var"]:
                chosen = np.flatnonzero(_values(file["var"][MARK], self.path))
            else:
                chosen = np.arange(len(self.genes))
            if not len(chosen):
                raise InputError(f"{self.path} marks no gene as {MARK}. Mark some, or drop that column of var.")
            X = _dense(file, self.path, (self.n_rows, len(self.genes)), chosen)
        return X, tuple(self.genes[d] for d in chosen)


def read_h5ad(path: Path) -> CellFile:
    """Read a .h5ad file, except its X."""
    if util.find_spec("h5py") is None:
        raise InputError(
            f"{path}: reading .h5ad files needs the package h5py, which is not installed. Run pip install h5py, or "
            "save X as .npy."
        )
    with _opened(path) as file:
        for part in ("X", "obs", "var"):
            if part not in file:
                raise InputError(f"{path} has no {part}. A file written by AnnData has X, obs and var.")
        names = {part: _index(file[part], path) for part in ("obs", "var")}
        hidden = file["obs"].attrs["_index"]
        candidates = tuple(name for name in file["obs"] if name not in (hidden, "__categories"))
    genes = tuple(map(str, names["var"]))
    if not len(names["obs"]) or not genes:
        raise InputError(f"{path} must hold cells and genes, but has {len(names['obs'])} cells and {len(genes)} genes.")
    if len(genes) > len(set(genes)):
        twice = next(name for name in genes if genes.count(name) > 1)
        raise InputError(
            f"{path}: several genes are called '{twice}'. Call var_names_make_unique() in AnnData and write it again."
        )
    return CellFile(path, candidates, genes, len(names["obs"]))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import h5py

    if not h5py.is_hdf5(path):
        raise InputError(f"{path} is damaged or not a .h5ad file (HDF5). Save it again with AnnData.write_h5ad.")
    try:
        with h5py.File(path) as file:
            yield file
    except (OSError, KeyError, RuntimeError) as error:  # in the part that is being read
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0]}). Copy it or save it again.") from error


def _index(frame: Any, path: Path) -> NDArray[Any]:
    if "_index" not in frame.attrs:
        raise InputError(f"{path} was written by anndata before 0.7. Read it with a newer anndata and write it again.")
    return _values(frame[frame.attrs["_index"]], path)


def _values(column: Any, path: Path) -> NDArray[Any]:
    """The values of a column of obs or var. Text becomes objects, and missing values None."""
    import h5py

    if isinstance(column, h5py.Group):
        kind = column.attrs.get("encoding-type", "")
        if kind == "categorical":
            return _coded(column["codes"][:], _values(column["categories"], path))
        if kind.startswith("nullable"):
            values, missing = _values(column["values"], path).astype(object), column["mask"][:]
            values[missing] = None
            return values if missing.any() else np.array(values.tolist())
        raise InputError(f"{path}: column {column.name} has the encoding '{kind}', which cannot be read. Drop it.")
    if "categories" in column.attrs:  # how anndata 0.7 refers to categories
        return _coded(column[:], _values(column.file[column.attrs["categories"]], path))
    return column.asstr()[:] if h5py.check_string_dtype(column.dtype) else column[:]


def _coded(codes: NDArray[Any], categories: NDArray[Any]) -> NDArray[Any]:
    values = np.array([*categories, None], dtype=object)[codes]  # the code of a missing value is −1
    return values if categories.dtype.kind == "O" or (codes < 0).any() else values.astype(categories.dtype)


def _dense(file: Any, path: Path, shape: tuple[int, int], chosen: NDArray[Any]) -> NDArray[np.float32]:
    """The chosen columns of X as one array."""
    N = shape[0]
    need, have = 4 * N * len(chosen), available()
    if need > have:
        raise InputError(
            f"{path}: {N} cells × {len(chosen)} genes need {amount(need)} of memory, but only {amount(have)} are free. "
            f"Mark fewer genes as {MARK}, or save X as a .npy file, which stays on disk."
        )
    dense = np.empty((N, len(chosen)), dtype=np.float32)
    for place, block in _blocks(file["X"], path, shape, chosen):
        dense[place] = block
    return dense


def _blocks(X: Any, path: Path, shape: tuple[int, int], chosen: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
    """The chosen columns of X in blocks, each with its place in the result."""
    import h5py
    from scipy.sparse import csc_matrix, csr_matrix

    N, D = shape
    if isinstance(X, h5py.Dataset):
        for rows in slices(N, D):
            yield rows, X[rows][:, chosen]
        return
    kind = X.attrs.get("encoding-type", X.attrs.get("h5sparse_format", ""))
    if not kind.startswith(("csr", "csc")):
        raise InputError(
            f"{path}: X has the encoding '{kind}', which cannot be read. Save it as a dense or sparse matrix."
        )

    def part(some: slice) -> tuple[NDArray[Any], ...]:
        """Values, indices and index pointers of some rows of a csr matrix, or columns of a csc matrix."""
        stored = slice(ends[some.start], ends[some.stop])
        return (
            X["data"][stored].astype(np.float32),
            X["indices"][stored],
            ends[some.start : some.stop + 1] - stored.start,
        )

    ends = X["indptr"][:]
    if kind.startswith("csr"):
        for rows in slices(N, D):
            yield rows, csr_matrix(part(rows), shape=(rows.stop - rows.start, D))[:, chosen].toarray()
        return
    for columns in slices(D, N):
        here = np.flatnonzero((chosen >= columns.start) & (chosen < columns.stop))
        block = csc_matrix(part(columns), shape=(N, columns.stop - columns.start))
        yield (slice(None), here), block[:, chosen[here] - columns.start].toarray()
