"""`sasgp update`: rows that arrive after training."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.arguments import LINE, TEXT, Data, Labels, Model, Printed, command
from sasgp.cli.loading import has_target, is_source, known_embedding, load_data, load_model
from sasgp.cli.pictures import draw_latent, explorer_page
from sasgp.cli.printing import Line, Result, show
from sasgp.data.files import at_home
from sasgp.data.progress import rank_of_process
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import RunFolder
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP

__all__ = ["update"]


@command
def update(model: Model, data: Data, /, *, labels: Labels = None, printed: Printed = TEXT) -> Result:
    """Condition the model of a run also on new rows, without training again.

    Encoder, kernel and noise stay as they are. The run gets a new model.safetensors, embedding.csv, run.json,
    latent.png and explorer.html: all of them or, if something fails, none. In embedding.csv the new rows follow the
    others as training rows, and their numbers go on, as if DATA had been appended to the data of the run.

    Of a named data set, the training rows are added. If the run has labels from a column, the labels of the new rows
    are in the column of that name, unless --labels says otherwise.

    Of a run with a target, model.safetensors and run.json are new. How well the old model predicts the new rows is
    printed. The predictions and pictures of held-out rows stay as they are.
    """
    from sasgp.cli import runs, unfinished
    from sasgp.cli.update_target import update_target
    from sasgp.data.files import real_path

    if rank_of_process():
        return None  # one process is enough
    if has_target(model):
        if labels is not None:
            raise InputError(f"{model} predicts a target, and has no labels. Do without --labels.")
        return update_target(model, data)
    run = runs.find(model)
    if run.folder is None:
        estimator, run = load_model(model)
        record = _add(estimator, run, data, _load(data, labels, estimator, run))
        with unfinished.kept(run.model):
            estimator.save(run.model)
        show(_summary(estimator, record, None, run.model))
        return _result(estimator, record, run.model)
    with unfinished.held(real_path(run.folder)) as new:
        estimator, run = load_model(model)
        dataset = _load(data, labels, estimator, run)
        record = _add(estimator, run, data, dataset)
        with unfinished.kept(model), unfinished.replaced(new):
            labelled = _write(estimator, run, dataset, record, new)
    show(_summary(estimator, record, labelled, model))
    return _result(estimator, record, model)


def _result(estimator: "SASGP", record: Mapping[str, Any], path: Path) -> dict[str, Any]:
    about = {"updated": path, "rows_in_all": len(estimator.embedding_), "support_size": estimator.support_size_}
    return about | dict(record)


def _load(source: str, labels: str | None, estimator: "SASGP", run: "RunFolder") -> "Dataset":
    """The new rows, with labels from the column that the run has them from unless another place is named."""
    from sasgp.data.readers import LABEL_SUFFIXES

    if not hasattr(estimator, "update"):
        raise InputError(
            f"Only a Gaussian process that is conditioned on rows, SASGP or GPLVM, can be updated, and {run.model} is "
            f"a {type(estimator).__name__}. Train it again with all rows."
        )
    if labels is None and run.labels is not None and Path(run.labels).suffix.lower() not in LABEL_SUFFIXES:
        try:
            return load_data(source, run.labels, estimator, run)
        except InputError as error:
            if error.argument != "labels":  # otherwise the file has no such column
                raise
    return load_data(source, labels, estimator, run)


def _add(estimator: "SASGP", run: "RunFolder", source: str, dataset: "Dataset") -> dict[str, Any]:
    """Update the estimator, and return what run.json says of it."""
    from datetime import UTC, datetime

    from sasgp.data import NAMES
    from sasgp.estimators.validation import check_rows
    from sasgp.training.fingerprint import sample_fingerprint

    twice = "so its rows would count twice. Put the new rows into a file of their own."
    if is_source(run, source):
        raise InputError(f"{source} is what the run was trained on, {twice}")
    rows = check_rows(estimator, dataset.X, reset=False)
    if [len(rows), sample_fingerprint(rows, estimator.dtype_)] in estimator._data_parts:
        raise InputError(f"{source} has the rows of an earlier update of {run.folder or run.model}, {twice}")
    before = estimator.sums_
    estimator.update(dataset.X)
    sums = estimator.sums_
    return {
        "file": source if source in NAMES else str(at_home(source).resolve()),
        "rows": len(dataset.X),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "missed_share": float((sums.t - before.t) / (sums.k - before.k)),
        "command": shlex.join(["sasgp", *LINE]),
    }


def _write(
    estimator: "SASGP", run: "RunFolder", dataset: "Dataset", record: Mapping[str, Any], new: Path
) -> bool | None:
    """Write the files of the run that change. Returns whether the new rows have labels; None if the run has none."""
    from sasgp.cli import runs
    from sasgp.data.files import replacing
    from sasgp.evaluation import tidy_labels

    estimator.save(new / runs.MODEL)
    if run.info:
        info = {**run.info, "updates": [*run.updates, record]}
        with replacing(new / runs.INFO) as file:
            file.write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
        run = replace(run, info=info)
    known, y = run.embedding(), tidy_labels(dataset.y)
    if known is not None:
        N = len(dataset.X)
        # The file's numbers are text: they become what they were when it was written
        known = replace(known, Z=known.Z.astype(estimator.embedding_.dtype))
        with replacing(new / runs.EMBEDDING) as file:
            known.followed_by(estimator.embedding_[-N:], y, dataset.ids).write(file)
    embedding = known_embedding(estimator, replace(run, folder=new))
    with replacing(new / runs.LATENT) as file:
        draw_latent(estimator, embedding, run.image_shape, run.name, file)
    with replacing(new / runs.EXPLORER) as file:
        explorer_page(estimator, embedding, None, run.name, run).save(file)
    return None if known is None or known.labels is None else y is not None


def _summary(
    estimator: "SASGP", record: Mapping[str, Any], labelled: bool | None, path: Path
) -> list[tuple[str, list[Line]]]:
    missed = "of the prior's variance at the new rows is beyond the positions"
    labels: list[Line] = [] if labelled is not False else [("labels", "none", "for the new rows; the run has some")]
    return [
        (
            f"Updated {path} with {record['file']}",
            [
                ("rows", str(record["rows"]), f"new; the decoder is given {len(estimator.embedding_)} now"),
                *labels,
                ("positions", str(estimator.support_size_), "as before"),
                ("missed", f"{record['missed_share']:.2g}", missed),
            ],
        )
    ]
