"""Rows that a regressor or classifier is asked about, read with the columns that it was trained on."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.loading import is_source
from sasgp.cli.targets import is_table, target_array
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from sasgp.cli.runs import RunFolder
    from sasgp.estimators import SASGPClassifier, SASGPRegressor

__all__ = ["TargetRows", "load_rows", "name_of_target"]

BLOCK = 1 << 14  # rows that are predicted at a time


@dataclass(frozen=True)
class TargetRows:
    """Rows X, and their targets and names as far as they are known.

    `y` are numbers with NaN where they are missing, or a list of classes with None. `seen` says whether the model was
    trained on some of these rows, as far as that is known.
    """

    X: Any
    y: Any
    ids: "NDArray[Any] | None"
    seen: bool

    def blocks(self) -> "Iterator[tuple[NDArray[Any], Any, Any, Any]]":
        """Row numbers, X, ids and y of some rows at a time."""
        import numpy as np

        from sasgp.data.tables import DiskTable

        parts = self.X.blocks() if isinstance(self.X, DiskTable) else [self.X]
        done = 0
        for part in parts:
            for start in range(0, len(part), BLOCK):
                X = part[start : start + BLOCK]
                here = slice(done, done + len(X))
                ids, y = (None if known is None else known[here] for known in (self.ids, self.y))
                yield np.arange(here.start, here.stop), X, ids, y
                done = here.stop


def name_of_target(estimator: "SASGPRegressor | SASGPClassifier", run: "RunFolder") -> str:
    """The name of the target. The file of a classifier alone does not know it."""
    targets = getattr(estimator, "targets_", None)
    return str(run.info.get("data", {}).get("target_name") or ("class" if targets is None else targets.names[0]))


def load_rows(source: str, estimator: "SASGPRegressor | SASGPClassifier", run: "RunFolder") -> TargetRows:
    """The rows of a file or data set. If it has a test split, those."""
    if is_table(source):
        return _from_table(source, estimator, run)

    import polars as pl

    from sasgp.data import load

    labels = run.target if is_source(run, source) and run.target and Path(run.target).is_file() else None
    dataset = load(source, labels=labels)
    X, y = (dataset.X, dataset.y) if dataset.X_test is None else (dataset.X_test, dataset.y_test)
    if X.shape[1] != estimator.n_features_in_:
        raise InputError(
            f"{source} has {X.shape[1]} columns, but the model was trained on {estimator.n_features_in_}. Check that "
            "the model and the data belong together."
        )
    known = None if y is None else _targets(pl.Series(y, nan_to_null=True), estimator, source)
    return TargetRows(X, known, dataset.ids, is_source(run, source) and dataset.X_test is None)


def _from_table(source: str, estimator: "SASGPRegressor | SASGPClassifier", run: "RunFolder") -> TargetRows:
    from sasgp.data.tables import DiskTable, read_table

    path = Path(source).expanduser()
    table = read_table(path, missing=tuple(run.info.get("data", {}).get("missing") or ()))
    target, there = name_of_target(estimator, run), table.schema.names()
    needed = _needed(estimator, [name for name in there if name != target])
    if lacking := [name for name in needed if name not in there]:
        raise InputError(
            f"{source} must have the columns that the model was trained on. It lacks {', '.join(lacking[:5])}"
            f"{', …' * (len(lacking) > 5)}, and has {', '.join(there[:5])}{', …' * (len(there) > 5)}. If some are the "
            "same, rename them."
        )
    X: Any = table.frame.select(needed) if not table.stays_on_disk else DiskTable(table, needed, 0, table.n_rows)
    if estimator.columns_ is None and not hasattr(estimator, "feature_names_in_"):
        X = table.numbers(without=[name for name in there if name == target], only=needed)[0]
    named = next((one["name"] for one in run.findings if one["kind"] == "id" and one["why"] == "you said so"), None)
    ids = _column(table, named) if named in there else None
    y = _targets(_column(table, target), estimator, source) if target in there and target not in needed else None
    return TargetRows(X, y, None if ids is None else ids.to_numpy(), is_source(run, source))


def _needed(estimator: "SASGPRegressor | SASGPClassifier", others: list[str]) -> tuple[str, ...]:
    """The columns that the model was trained on. Without names, it takes all but the target."""
    if estimator.columns_ is not None:
        return tuple(estimator.columns_.names)
    return tuple(str(name) for name in getattr(estimator, "feature_names_in_", others))


def _column(table: Any, name: Any) -> "pl.Series":
    import polars as pl

    return pl.concat(list(table.blocks([name])))[name]


def _targets(series: "pl.Series", estimator: "SASGPRegressor | SASGPClassifier", source: str) -> Any:
    """Targets as `TargetRows` has them. None if all are missing."""
    import numpy as np

    if series.null_count() == len(series):
        return None
    classes = hasattr(estimator, "classes_")
    if not classes and not series.dtype.is_numeric():
        raise InputError(
            f"{source}: column '{series.name}' is the target, which the model knows as a number, but it holds text. "
            "Correct it, or drop the column to predict without."
        )
    if not classes:
        return target_array(series.fill_null(float("nan")), classes=False)
    found = np.full(len(series), None, dtype=object)
    found[series.is_not_null().to_numpy()] = target_array(series.drop_nulls(), classes=True)
    return found.tolist()
