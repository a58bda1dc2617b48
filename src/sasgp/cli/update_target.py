"""`sasgp update` of a run with a target: predictions are then made from the new rows, too."""

import json
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.arguments import LINE
from sasgp.cli.loading import is_source, load_supervised
from sasgp.cli.predictions import Predictor, quality_lines
from sasgp.cli.printing import Result, Section, show
from sasgp.cli.target_rows import TargetRows, load_rows, name_of_target
from sasgp.data.files import at_home
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import RunFolder
    from sasgp.estimators import SASGPClassifier, SASGPRegressor

__all__ = ["update_target"]


def update_target(model: Path, source: str) -> Result:
    """Add the rows of a file that have a target, and say how well they were predicted before."""
    from sasgp.cli import runs, unfinished
    from sasgp.data.files import real_path

    run = runs.find(model)
    if run.folder is None:
        estimator, run = load_supervised(model)
        record, metrics = _add(estimator, run, source)
        with unfinished.kept(run.model):
            estimator.save(run.model)
    else:
        with unfinished.held(real_path(run.folder)) as new:
            estimator, run = load_supervised(model)
            record, metrics = _add(estimator, run, source)
            with unfinished.kept(model), unfinished.replaced(new):
                _write(estimator, run, record, new)
    show(_summary(estimator, record, metrics, model))
    return {"updated": model, "rows_in_all": len(estimator._targets), "metrics": metrics} | record


def _add(
    estimator: "SASGPRegressor | SASGPClassifier", run: "RunFolder", source: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Update the estimator. Returns what run.json says of it, and the metrics of the new rows before."""
    from datetime import UTC, datetime

    from sasgp.data import NAMES
    from sasgp.data.rows import take_rows

    if source in NAMES:
        raise InputError(f"New rows come in a file. Got the named data set {source}. Name a file that has the target.")
    twice = "so its rows would count twice. Put the new rows into a file of their own."
    if is_source(run, source):
        raise InputError(f"{source} is what the run was trained on, {twice}")
    rows, target = load_rows(source, estimator, run), name_of_target(estimator, run)
    known = _known(rows)
    if not len(known):
        raise InputError(f"{source} must have the target '{target}' in some rows, to learn from them. It has none.")
    predictor = Predictor(estimator, target)
    for number, X, ids, y in rows.blocks():
        predictor.frame(X, number, ids, y)
    X = _in_memory(rows.X, estimator)
    X = X if len(known) == len(X) else take_rows(X, known)
    y = _targets(rows, known, estimator)
    mark = _mark(estimator, X, y)
    if any(update.get("mark") == mark for update in run.updates):
        raise InputError(f"{source} has the rows of an earlier update of {run.folder}, {twice}")
    estimator.update(X, y)
    record = {
        "file": str(at_home(source).resolve()),
        "rows": len(known),
        "left_out": len(rows.X) - len(known),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "mark": mark,
        "command": shlex.join(["sasgp", *LINE]),
    }
    return record, predictor.metrics()


def _known(rows: TargetRows) -> Any:
    """The places of the rows that have a target."""
    import numpy as np

    if rows.y is None:
        return np.zeros(0, np.int64)
    return np.flatnonzero([one is not None and one == one for one in rows.y])  # NaN is not itself


def _in_memory(X: Any, estimator: "SASGPRegressor | SASGPClassifier") -> Any:
    """The rows. Of a large file, an estimator reads tables in blocks, but not numbers."""
    from sasgp.data.tables import DiskTable

    if isinstance(X, DiskTable) and estimator.columns_ is None:
        return X.file.frame.select(X.columns)
    return X


def _targets(rows: TargetRows, known: Any, estimator: "SASGPRegressor | SASGPClassifier") -> Any:
    """The targets of these rows, of the type that they had in training."""
    import numpy as np

    some = np.array([rows.y[row] for row in known])
    classes = getattr(estimator, "classes_", None)
    # A file may have 1 where training had "1"
    return some if classes is None or classes.dtype.kind == some.dtype.kind else some.astype(str).astype(classes.dtype)


def _mark(estimator: "SASGPRegressor | SASGPClassifier", X: Any, y: Any) -> str:
    """A hash by which the same rows are known again."""
    import hashlib

    from sasgp.estimators.validation import check_rows
    from sasgp.training.fingerprint import sample_fingerprint

    rows = check_rows(estimator, X, reset=False)
    return sample_fingerprint(rows, estimator.dtype_) + hashlib.blake2b(y.tobytes(), digest_size=8).hexdigest()


def _write(
    estimator: "SASGPRegressor | SASGPClassifier", run: "RunFolder", record: Mapping[str, Any], new: Path
) -> None:
    """Write the files of the run that change."""
    from sasgp.cli import runs
    from sasgp.data.files import replacing

    estimator.save(new / runs.MODEL)
    if run.info:
        with replacing(new / runs.INFO) as file:
            info = {**run.info, "updates": [*run.updates, record]}
            file.write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")


def _summary(
    estimator: "SASGPRegressor | SASGPClassifier", record: Mapping[str, Any], metrics: dict[str, Any], path: Path
) -> list[Section]:
    rows = f"new; predictions are made from {len(estimator._targets)} now"
    left_out = [("left out", str(record["left_out"]), "rows without a target")] if record["left_out"] else []
    return [
        (f"Updated {path} with {record['file']}", [("rows", str(record["rows"]), rows), *left_out]),
        ("On the new rows, before they were added", quality_lines(metrics)),
    ]
