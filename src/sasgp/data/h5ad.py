"""AnnData's .h5ad files, in which single cells are kept: a row for every cell, a column for every gene. Read by h5py.

X may be dense or sparse, and is made dense. Where `var` marks genes as highly variable, those are taken, as scanpy
does. A column of `obs` may be the labels. Nothing is ever unpickled.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import util
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.memory import amount, available
from sasgp.data.tables import LABEL_NAMES
from sasgp.errors import InputError

__all__ = ["Cells", "read_h5ad"]

BLOCK = 1 << 24  # values that are made dense at a time
MARK = "highly_variable"


@dataclass(frozen=True)
class Cells:
    """A file's cells and what is known about them, with the methods of `Table`. X is read when it is asked for."""

    path: Path
    annotations: tuple[str, ...]
    genes: tuple[str, ...]
    n_rows: int

    def find(self, label: str) -> str | None:
        """The column of `obs` called `label`."""
        return label if label in self.annotations else None

    def guess(self, _: Sequence[str] = ()) -> str | None:
        """A column of `obs` with text or integers that is called exactly like one of `LABEL_NAMES`."""
        named = [name for name in self.annotations if name in LABEL_NAMES and self.labels(name).dtype.kind in "Uiu"]
        if len(named) > 1:
            raise InputError(
                f"{self.path}: {', '.join(named)} of obs may all hold the labels. Choose one with labels={named[0]!r}.",
                argument="labels",
            )
        return named[0] if named else None

    def labels(self, column: str) -> NDArray[Any]:
        """A column of `obs`, text as text."""
        with _opened(self.path) as file:
            values = _values(file["obs"][column], self.path)
        if values.dtype.kind not in "OUS":
            return values
        if missing := [row for row, value in enumerate(values) if value is None]:
            raise InputError(
                f"{self.path}: cell {missing[0] + 1} has no label in obs column '{column}'; fill it or drop the cell."
            )
        return values.astype(np.str_)

    def numbers(self, *, without: str | None, only: Sequence[str] | None) -> tuple[NDArray[Any], tuple[str, ...]]:
        """X as float32 [N, D] and the names of its genes: `only` these, if it has any, or the highly variable."""
        del without  # labels are not among the genes
        place = {name: d for d, name in enumerate(self.genes)}
        lacking = [name for name in only or () if name not in place]
        if only is not None and 0 < len(lacking) < len(only):
            raise InputError(
                f"{self.path} must have all {len(only)} genes that are asked for. It lacks {len(lacking)} of them: "
                f"{', '.join(lacking[:5])}{', …' * (len(lacking) > 5)}; add them, or train on genes that both have."
            )
        with _opened(self.path) as file:
            if only is not None and not lacking:
                chosen = np.array([place[name] for name in only])
            elif MARK in file["var"]:
                chosen = np.flatnonzero(_values(file["var"][MARK], self.path))
            else:
                chosen = np.arange(len(self.genes))
            if not len(chosen):
                raise InputError(f"{self.path} marks no gene as {MARK}; mark some, or drop that column of var.")
            X = _dense(file, self.path, (self.n_rows, len(self.genes)), chosen)
        return X, tuple(self.genes[d] for d in chosen)


def read_h5ad(path: Path) -> Cells:
    """What a file holds, without its X."""
    if util.find_spec("h5py") is None:
        raise InputError(
            f"{path}: .h5ad files need the package h5py. Got an installation without it: pip install h5py, or save X "
            "as .npy."
        )
    with _opened(path) as file:
        for part in ("X", "obs", "var"):
            if part not in file:
                raise InputError(f"{path} must have X, obs and var as AnnData writes them. It lacks {part}.")
        names = {part: _index(file[part], path) for part in ("obs", "var")}
        hidden = file["obs"].attrs["_index"]
        annotations = tuple(name for name in file["obs"] if name not in (hidden, "__categories"))
    genes = tuple(map(str, names["var"]))
    if not len(names["obs"]) or not genes:
        raise InputError(f"{path} must hold cells and genes. Got {len(names['obs'])} and {len(genes)}.")
    if len(genes) > len(set(genes)):
        twice = next(name for name in genes if genes.count(name) > 1)
        raise InputError(
            f"{path}: genes must have different names. Got '{twice}' more than once; call var_names_make_unique() and "
            "write it again."
        )
    return Cells(path, annotations, genes, len(names["obs"]))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    import h5py

    if not h5py.is_hdf5(path):
        raise InputError(f"{path} is damaged or no .h5ad file, which is HDF5; save it again with AnnData.write_h5ad.")
    try:
        with h5py.File(path) as file:
            yield file
    except (OSError, KeyError, RuntimeError) as error:  # in parts that it is read in
        raise InputError(f"{path} is damaged ({str(error).splitlines()[0]}); copy it or save it again.") from error


def _index(frame: Any, path: Path) -> NDArray[Any]:
    if "_index" not in frame.attrs:
        raise InputError(f"{path} was written by an anndata before 0.7; read it with anndata and write it again.")
    return _values(frame[frame.attrs["_index"]], path)


def _values(column: Any, path: Path) -> NDArray[Any]:
    """A column of obs or var; text as objects, None where it is missing."""
    import h5py

    if isinstance(column, h5py.Group):
        kind = column.attrs.get("encoding-type", "")
        if kind == "categorical":
            return _coded(column["codes"][:], _values(column["categories"], path))
        if kind.startswith("nullable"):
            values, missing = _values(column["values"], path).astype(object), column["mask"][:]
            values[missing] = None
            return values if missing.any() else np.array(values.tolist())
        raise InputError(f"{path}: column {column.name} is of kind '{kind}', which is not read; drop it.")
    if "categories" in column.attrs:  # a reference, up to anndata 0.7
        return _coded(column[:], _values(column.file[column.attrs["categories"]], path))
    return column.asstr()[:] if h5py.check_string_dtype(column.dtype) else column[:]


def _coded(codes: NDArray[Any], categories: NDArray[Any]) -> NDArray[Any]:
    values = np.array([*categories, None], dtype=object)[codes]  # code −1 is a missing value
    return values if categories.dtype.kind == "O" or (codes < 0).any() else values.astype(categories.dtype)


def _dense(file: Any, path: Path, shape: tuple[int, int], chosen: NDArray[Any]) -> NDArray[np.float32]:
    """The chosen columns of X."""
    N = shape[0]
    need, have = 4 * N * len(chosen), available()
    if need > have:
        raise InputError(
            f"{path}: {N} cells × {len(chosen)} genes need {amount(need)} of memory. Got {amount(have)} that are free. "
            f"Mark fewer genes as {MARK}, or save X as a .npy file, which stays on disk."
        )
    dense = np.empty((N, len(chosen)), dtype=np.float32)
    for place, block in _blocks(file["X"], path, shape, chosen):
        dense[place] = block
    return dense


def _blocks(X: Any, path: Path, shape: tuple[int, int], chosen: NDArray[Any]) -> Iterator[tuple[Any, NDArray[Any]]]:
    """Parts of the chosen columns of X, and where they belong."""
    import h5py
    from scipy.sparse import csc_matrix, csr_matrix

    N, D = shape
    if isinstance(X, h5py.Dataset):
        for rows in _slices(N, D):
            yield rows, X[rows][:, chosen]
        return
    kind = X.attrs.get("encoding-type", X.attrs.get("h5sparse_format", ""))
    if not kind.startswith(("csr", "csc")):
        raise InputError(f"{path}: X is of kind '{kind}', which is not read; make it an array or a sparse matrix.")

    def part(some: slice) -> tuple[NDArray[Any], ...]:
        """Values, indices and ends of some of its rows (or columns)."""
        stored = slice(ends[some.start], ends[some.stop])
        return (
            X["data"][stored].astype(np.float32),
            X["indices"][stored],
            ends[some.start : some.stop + 1] - stored.start,
        )

    ends = X["indptr"][:]
    if kind.startswith("csr"):
        for rows in _slices(N, D):
            yield rows, csr_matrix(part(rows), shape=(rows.stop - rows.start, D))[:, chosen].toarray()
        return
    for columns in _slices(D, N):
        here = np.flatnonzero((chosen >= columns.start) & (chosen < columns.stop))
        block = csc_matrix(part(columns), shape=(N, columns.stop - columns.start))
        yield (slice(None), here), block[:, chosen[here] - columns.start].toarray()


def _slices(n: int, across: int) -> Iterator[slice]:
    """All n rows, some at a time."""
    step = max(1, BLOCK // max(1, across))
    return (slice(i, min(n, i + step)) for i in range(0, n, step))
