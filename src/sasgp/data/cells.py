"""Single cells in memory: AnnData objects, of which anndata itself is never imported here.

As in a .h5ad file (`sasgp.data.h5ad`), the genes are the highly variable ones if `var` marks any, and whole numbers are
counts unless a layer "counts" says that X holds something else.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from sasgp.data.counts import are_counts
from sasgp.data.tables import first_repeated
from sasgp.errors import InputError

__all__ = ["COUNTS", "MARK", "Cells", "chosen_genes", "is_anndata", "read_anndata"]

MARK = "highly_variable"  # the column of var that scanpy marks genes in
COUNTS = "counts"  # the layer that keeps counts if X holds something else


@dataclass(frozen=True)
class Cells:
    """Values X [N, D], dense or sparse, the names of the D genes and, if X holds counts, totals [N] over all genes."""

    X: Any
    genes: tuple[str, ...]
    totals: NDArray[np.float64] | None


def is_anndata(data: object) -> bool:
    """Whether this is an AnnData object. If anndata was never imported, it is none."""
    module = sys.modules.get("anndata")
    return module is not None and isinstance(data, module.AnnData)


def read_anndata(adata: Any, only: Sequence[str] | None = None) -> Cells:
    """The cells of an AnnData object: `only` these genes, in this order, or those that are marked, or all."""
    if adata.X is None:
        raise InputError("The AnnData object has no X. Set adata.X to the values of its cells.", argument="X")
    adata = adata.to_memory() if adata.isbacked else adata
    X = adata.X
    if not issparse(X):
        X = np.asarray(X)
    genes = tuple(map(str, adata.var_names))
    if (twice := first_repeated(genes)) is not None:
        raise InputError(
            f"Several genes of the AnnData object are called '{twice}'. Call var_names_make_unique().", argument="X"
        )
    marks = None
    if MARK in adata.var:
        marked = adata.var[MARK]
        marks = marked.where(marked.notna(), other=False).to_numpy(dtype=object)
    chosen = chosen_genes("The AnnData object", genes, only, marks)
    counted = COUNTS not in adata.layers and are_counts(X.data if issparse(X) else X)
    totals = np.asarray(X.sum(axis=1), np.float64).reshape(-1) if counted else None
    whole = len(chosen) == len(genes) and (chosen == np.arange(len(genes))).all()
    return Cells(X if whole else (X.tocsr() if issparse(X) else X)[:, chosen], tuple(genes[d] for d in chosen), totals)


def chosen_genes(
    source: str, genes: Sequence[str], only: Sequence[str] | None, marks: NDArray[Any] | None
) -> NDArray[np.int64]:
    """Places of the genes to read: `only` these if the source has any of them, or the marked ones, or all."""
    place = {name: d for d, name in enumerate(genes)}
    lacking = [name for name in only or () if name not in place]
    if only is not None and 0 < len(lacking) < len(only):
        raise InputError(
            f"{source} lacks {len(lacking)} of the {len(only)} genes that are needed: "
            f"{', '.join(lacking[:5])}{', …' * (len(lacking) > 5)}. Add them, or train on genes in both files."
        )
    if only is not None and not lacking:
        return np.array([place[name] for name in only])
    if marks is None:
        return np.arange(len(genes))
    if odd := [mark for mark in marks.tolist() if mark not in (True, False, None)]:
        raise InputError(
            f"{source}: {MARK} of var must be true or false for each gene, but holds {odd[0]!r}. Correct it."
        )
    if not marks.any():
        raise InputError(f"{source} marks no gene as {MARK}. Mark some, or drop that column of var.")
    return np.flatnonzero(marks)
