"""Tables in and tables out: where an estimator meets the columns of `sasgp.data.columns`.

A table becomes an array of scores before anything else looks at it (`table_scores`), and means and variances of scores
become a table of the user's kind at the end (`as_user_frame`). In between, the decoder does not know.
"""

import os
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import validate_data
from torch import Tensor

from sasgp.data.blocks import slices
from sasgp.data.columns import Columns
from sasgp.data.outputs import Sink
from sasgp.data.progress import progress_bar
from sasgp.data.rows import unmasked
from sasgp.data.tables import DiskTable, is_frame, read_frame
from sasgp.data.units import is_array
from sasgp.errors import InputError
from sasgp.gp.posterior import Predictive

__all__ = ["ColumnDensity", "as_user_frame", "input_names", "table_frame", "table_scores"]

Array = NDArray[Any]
RECOGNISED = 100_000  # rows of a table on disk that its columns are recognised by


def input_names(estimator: Any) -> list[str]:
    """The names of the inputs that the `relevance_` of a regressor or classifier has a value for."""
    if estimator.columns_ is not None:
        return list(estimator.columns_.names)
    names = getattr(estimator, "feature_names_in_", None)
    return [f"x{p}" for p in range(estimator.n_features_in_)] if names is None else [str(name) for name in names]


def table_scores(estimator: Any, X: Any, *, reset: bool) -> Array | None:
    """The scores [N, D] of a table, with NaN for missing cells. None if X is taken as an array.

    With `reset`, columns are recognised and stored in `columns_`. Otherwise those stored before are looked up by name.
    """
    if not reset:
        return None if estimator.columns_ is None else _scores(estimator, table_frame(estimator, X))
    estimator.columns_, estimator.frame_kind_ = None, None
    asked = estimator.columns
    if isinstance(asked, str) and asked != "auto":
        raise InputError(f"columns must be 'auto', a mapping or None. Got {asked!r}.", argument="columns")
    if asked is None or not (is_frame(X) or isinstance(asked, Mapping)):
        return None
    ordered: frozenset[str]
    if isinstance(X, DiskTable):
        frame, ordered = X.sample(RECOGNISED), frozenset()
    elif is_frame(X):
        found = read_frame(X)
        frame, ordered = found.frame, found.ordered
    else:
        frame, ordered = _named(np.asarray(X)), frozenset()
    if asked == "auto" and is_array(frame):
        return None
    if is_frame(X) and not isinstance(X, DiskTable):
        validate_data(estimator, X, reset=True, skip_check_array=True)
    estimator.n_features_in_ = frame.width
    estimator.feature_names_in_ = np.asarray(frame.columns, dtype=object)
    estimator.columns_ = Columns.recognised(frame, {} if asked == "auto" else asked, ordered)
    estimator.frame_kind_ = "pandas" if type(X).__module__.startswith("pandas") else "polars"
    return _scores(estimator, X if isinstance(X, DiskTable) else frame)


def table_frame(estimator: Any, X: Any) -> Any:
    """A table as a polars frame. An array gets the names that the model was trained with."""
    if isinstance(X, DiskTable):
        return X
    if is_frame(X):
        return read_frame(X).frame
    array = np.asarray(unmasked(X))
    if array.ndim != 2 or array.shape[1] != estimator.n_features_in_:
        raise InputError(
            f"The model was trained on a table with {estimator.n_features_in_} columns. Got "
            f"{type(X).__name__} of shape {array.shape}. Pass a DataFrame with these columns.",
            argument="X",
        )
    return _named(array, [str(name) for name in estimator.feature_names_in_])


def _named(array: Array, names: list[str] | None = None) -> Any:
    import polars as pl

    names = [f"x{d}" for d in range(array.shape[1])] if names is None else names
    return pl.DataFrame({name: array[:, d] for d, name in enumerate(names)}, nan_to_null=True)


def _scores(estimator: Any, frame: Any) -> Array:
    """The scores [N, D] of a table. Those of a table on disk go to a file as well, which is removed after its use."""
    columns, dtype = estimator.columns_, np.dtype(estimator.dtype)
    shape = (len(frame), columns.n_scores)
    if not isinstance(frame, DiskTable):
        found = np.empty(shape, dtype)
        for block in slices(*shape):
            found[block] = columns.scores(columns.values(frame[block]))
        return found
    descriptor, name = tempfile.mkstemp(prefix="sasgp-scores-", suffix=".npy")
    os.close(descriptor)
    path = Path(name)
    try:
        with Sink(path, shape, dtype) as sink, progress_bar("scores", shape[0], show=estimator.verbose) as update:
            for part in frame.blocks():
                sink.add(columns.scores(columns.values(part)))
                update(sink.done)
    except BaseException:
        path.unlink()
        raise
    on_disk = sink.result
    weakref.finalize(on_disk, path.unlink)
    return on_disk


def as_user_frame(estimator: Any, frame: Any) -> Any:
    """A polars frame as the kind of frame that the model was trained on."""
    if estimator.frame_kind_ != "pandas":
        return frame
    import pandas as pd

    return pd.DataFrame({name: frame[name].to_numpy() for name in frame.columns})


class ColumnDensity(Predictive):
    """The density of some rows of a table in the user's own units, in the place of that of their scores.

    Parameters
    ----------
    posterior : Predictive
        The decoder of scores.
    columns : Columns
    values : array [M, C]
        The numbers of these rows, as `Columns.values` returns them.
    """

    def __init__(self, posterior: Predictive, columns: Columns, values: Array) -> None:
        self.posterior, self.columns, self.of = posterior, columns, values
        self.Z, self.mean = posterior.Z, posterior.mean

    def by_column(self, Z: Tensor) -> Array:
        """Log p(value | z) [M, C] of each row at its z. NaN where a cell is missing."""
        mean, var = self.posterior.predict(Z)
        m = mean.numpy(force=True).astype(np.float64)
        return self.columns.log_densities(self.of, m, var.expand_as(mean).numpy(force=True).astype(np.float64))

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        return torch.from_numpy(np.nansum(self.by_column(Z), axis=1)).to(Z)
