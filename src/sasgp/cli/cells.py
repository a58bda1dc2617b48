"""Single cells on the command line: counts as scores, and latents in a copy of their file."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.data.files import at_home
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP
    from sasgp.evaluation import Split

__all__ = ["KEY", "as_scores", "check_cells", "held_out", "knows_genes", "write_latents"]

KEY = "X_sasgp"  # of the latents in obsm


def _is_cells(source: str | Path) -> bool:
    return Path(source).suffix.lower() == ".h5ad"


def held_out(dataset: "Dataset", test_fraction: float | None, seed: int) -> "tuple[Dataset, Split, float | None]":
    """The split of a data set. Counts become scores, and then the total that cells are scaled to is not None."""
    from sasgp.data.counts import SizeFactors
    from sasgp.evaluation import hold_out

    split = hold_out(dataset, test_fraction, seed)
    if dataset.totals is None:
        return dataset, split, None
    total = SizeFactors.from_totals(dataset.totals[split.train.rows]).median
    note = f"X holds counts x, and log(1 + x · {total:g} / total of the cell) is modelled"
    dataset = replace(as_scores(dataset, total, dataset.name), notes=(*dataset.notes, note))
    return dataset, hold_out(dataset, test_fraction, seed), total


def as_scores(dataset: "Dataset", size_factor: float | None, source: str) -> "Dataset":
    """The data for a model that was trained on counts, if it was. Files that are not .h5ad hold scores already."""
    from sasgp.data.counts import SizeFactors

    if size_factor is None:
        return dataset
    if dataset.totals is not None:
        X = SizeFactors(size_factor).scores(dataset.X, dataset.totals)
        return replace(dataset, X=X, totals=None)
    if _is_cells(source):
        raise InputError(
            f"The model was trained on counts, but {source} holds none in X, or has a layer 'counts'. Save the counts "
            "of its cells as X."
        )
    return dataset


def knows_genes(estimator: "SASGP", source: str, dataset: "Dataset", size_factor: float | None) -> None:
    """Give a model what it needs to find its genes in an AnnData object, and to read counts."""
    import numpy as np

    if _is_cells(source):
        estimator.feature_names_in_ = np.array(dataset.columns, dtype=object)
        estimator.size_factor_ = size_factor


def check_cells(out: Path, data: str) -> None:
    """Raise InputError if latents are to be added to something that is no .h5ad file."""
    if _is_cells(out) and not _is_cells(data):
        raise InputError(
            f"--out {out} is a copy of the data with latents in it, so DATA must be a .h5ad file, too. Got {data}. "
            "Write .csv or .npy instead."
        )


def write_latents(estimator: "SASGP", dataset: "Dataset", source: str, Z: Any, refine: int, file: Path) -> None:
    """Write a copy of a .h5ad file with latents Z and, for Bayesian latents, their standard deviations."""
    from sasgp.data.h5ad_latents import write_with_latents
    from sasgp.estimators.cells import provenance

    latents = {KEY: Z}
    if estimator.latents == "bayesian":
        latents[f"{KEY}_std"] = estimator.transform(dataset.X, refine=refine, return_std=True)[1]
    write_with_latents(at_home(source), file, KEY, latents, provenance(estimator))
