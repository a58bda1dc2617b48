"""AnnData objects as rows of an estimator: genes by name, and counts as scores (`sasgp.data.counts`).

Counts are recognised in AnnData objects alone. An array is taken as it is: for a model of counts, it holds scores.
"""

import json
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp import __version__
from sasgp.data.cells import Cells, is_anndata, read_anndata
from sasgp.data.counts import SizeFactors
from sasgp.errors import InputError

__all__ = ["log_factors", "provenance", "rows_of_cells"]


def rows_of_cells(estimator: Any, adata: Any, *, reset: bool) -> Any:
    """The rows of an AnnData object, an array or a sparse matrix. With `reset`, genes and size factors are stored."""
    cells = _read(estimator, adata, reset=reset)
    if reset:
        if cells.totals is not None:
            estimator.size_factor_ = SizeFactors.from_totals(cells.totals).median
        estimator.n_features_in_ = len(cells.genes)
        estimator.feature_names_in_ = np.array(cells.genes, dtype=object)
    if estimator.size_factor_ is None:
        return cells.X
    if cells.totals is None:
        raise InputError(
            "The model was trained on counts, but X of the AnnData object does not hold counts, or its layer 'counts' "
            "says that it holds something else. Pass an object whose X are counts.",
            argument="X",
        )
    return SizeFactors(estimator.size_factor_).scores(cells.X, cells.totals)


def log_factors(estimator: Any, X: Any) -> NDArray[np.float64] | None:
    """D log(m / n) of each cell, if X is an AnnData object and the model is one of counts.

    Less the sum of a cell's scores, it is what turns log p(scores) into log p(counts).
    """
    if estimator.size_factor_ is None or not is_anndata(X):
        return None
    totals = np.asarray(X.to_memory().X.sum(axis=1) if X.isbacked else X.X.sum(axis=1), np.float64).reshape(-1)
    return SizeFactors(estimator.size_factor_).log_jacobian(np.zeros(len(totals)), estimator.n_features_in_, totals)


def provenance(estimator: Any) -> dict[str, Any]:
    """Where latents come from, in types that a .h5ad file has: version, class, settings, and what `fit` decided."""
    settings, _ = estimator._described_settings()
    plain = {name: _plain(value) for name, value in settings.items() if name not in ("device", "verbose")}
    fitted = {name: getattr(estimator, name) for name in ("n_features_in_", "size_factor_")}
    return {
        "sasgp": __version__,
        "class": type(estimator).__name__,
        "n_components": estimator.n_components_,
        "params": {name: value for name, value in plain.items() if value is not None},
        **{name.rstrip("_"): value for name, value in fitted.items() if value is not None},
    }


def _plain(value: Any) -> Any:
    """A setting as a number or as text. None stays None, which a file leaves out."""
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value)


def _read(estimator: Any, adata: Any, *, reset: bool) -> Cells:
    if reset:
        return read_anndata(adata)
    names, D = getattr(estimator, "feature_names_in_", None), estimator.n_features_in_
    if names is None and adata.n_vars != D:
        raise InputError(
            f"The model was fitted without gene names, so it cannot choose its {D} features among the {adata.n_vars} "
            "genes of the AnnData object. Pass an object with these genes alone.",
            argument="X",
        )
    only = [str(name) for name in (adata.var_names if names is None else names)]
    cells = read_anndata(adata, only)
    if list(cells.genes) != only:
        raise InputError(
            f"The AnnData object has none of the {D} genes that the model was trained on: {', '.join(only[:5])}"
            f"{', …' * (D > 5)}. Check that var_names are of the same kind.",
            argument="X",
        )
    return cells
