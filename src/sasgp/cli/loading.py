"""From what was typed to a model, the data that it is asked about, and the latents of those data."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp import __version__
from sasgp.cli.cells import as_scores
from sasgp.cli.tables import load_table
from sasgp.cli.together import ALONE, Processes
from sasgp.data.files import at_home
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import Embedding, RunFolder
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP, SASGPClassifier, SASGPRegressor

__all__ = [
    "count_features",
    "embedded",
    "feature_names",
    "has_target",
    "is_source",
    "known_embedding",
    "load_data",
    "load_model",
    "load_supervised",
    "rows_to_evaluate",
    "training_rows",
]


SUPERVISED = ("SASGPRegressor", "SASGPClassifier")


def load_model(path: Path) -> "tuple[SASGP, RunFolder]":
    """The model with latents in a run or a file, which may be of any such class, and its run."""
    model, run = _load(path, supervised=False)
    return model, run


def load_supervised(path: Path) -> "tuple[SASGPRegressor | SASGPClassifier, RunFolder]":
    """The model with a target in a run or a file, and its run."""
    model, run = _load(path, supervised=True)
    return model, run


def has_target(path: Path) -> bool:
    """Whether a run or a file holds a model with a target."""
    from sasgp.cli import runs
    from sasgp.estimators import storage

    return storage.read(runs.find(path).model)[0].get("class") in SUPERVISED


def _load(path: Path, *, supervised: bool) -> "tuple[Any, RunFolder]":
    import sasgp
    from sasgp.cli import runs
    from sasgp.estimators import storage

    run = runs.find(path)
    header, _ = storage.read(run.model)
    for part in ("kernel", "encoder"):
        setting = header.get("settings", {}).get(part)
        if isinstance(setting, dict) and "custom" in setting:
            raise InputError(
                f"{run.model} has a {part} of the class {setting['custom']}, which the command line does not know. "
                f"Load it from Python with SASGP.load(path, {part}=...)."
            )
    name = header.get("class")
    if name not in sasgp.__all__:
        raise InputError(f"{run.model} holds a {name} model, which sasgp {__version__} does not know. Upgrade sasgp.")
    if supervised and name not in SUPERVISED:
        raise InputError(
            f"{run.model} is a {name}, which has latents and no target. Use `sasgp embed` to find the latents of rows, "
            "or `sasgp decode` to turn latents into rows; or train a model with `sasgp fit DATA --target COLUMN`."
        )
    if not supervised and name in SUPERVISED:
        raise InputError(
            f"{run.model} is a {name}, which predicts a target and has no latents. Use `sasgp predict`, `sasgp "
            "explain` or `sasgp plot`; or train a model with latents with `sasgp fit DATA`, without --target."
        )
    model = getattr(sasgp, name).load(run.model)
    model.verbose = True
    return model, run


def load_data(
    source: str, labels: str | None, model: "SASGP", run: "RunFolder", metadata: Sequence[str] = ()
) -> "Dataset":
    """Data with the columns that the model was trained on, in that order, and what else is known about their rows."""
    from sasgp.data import load
    from sasgp.data.rows import check_values

    if labels is None and is_source(run, source):
        labels = run.labels  # the same file has its labels in the same place
    if model.columns_ is not None:
        return load_table(source, labels, model, run, metadata)
    dataset = load(source, labels=labels, columns=run.columns, table=False, metadata=metadata)
    dataset = as_scores(dataset, model.size_factor_, source)
    D, expected = dataset.X.shape[1], model.n_features_in_
    known, there = set(run.columns or ()), set(dataset.columns)
    missing = [name for name in run.columns or () if name not in there]
    if expected != D:
        hint = f"It lacks {_few(missing)}." if missing else "Check that the model and the data belong together."
        raise InputError(f"{source} has {D} features, but the model was trained on {expected} features. {hint}")
    if missing and not (_made_up(run.columns or ()) or _made_up(dataset.columns)):
        others = [name for name in dataset.columns if name not in known]
        raise InputError(
            f"{source} must have the columns that the model was trained on. It lacks {_few(missing)}, and has "
            f"{_few(others)} instead. If they are the same, rename them."
        )
    if not _made_up(dataset.columns):  # without names, the estimator's own check says as much
        check_values(dataset.X, source, dataset.columns)
    return dataset


def is_source(run: "RunFolder", source: str) -> bool:
    """Whether the model was trained on this data set or file."""
    return run.source in (source, str(at_home(source).resolve()))


def _made_up(columns: Sequence[str]) -> bool:
    """Whether names only count the columns: those of a file without header, of pixels, or of pandas."""
    counted = list(columns) == [str(d) for d in range(len(columns))]
    return counted or all(re.fullmatch(r"(x|pixel)\d+", name) for name in columns)


def _few(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + ", …" * (len(names) > most)


def embedded(estimator: "SASGP", dataset: "Dataset", refine: int = 0, processes: Processes = ALONE) -> "Embedding":
    """The latents of a data set. If it has a test split, that follows the training rows."""
    import numpy as np

    from sasgp.cli.runs import Embedding
    from sasgp.evaluation import tidy_labels

    def part(X: Any, y: Any) -> Embedding:
        return Embedding(np.arange(len(X)), processes.transform(estimator, X, refine), tidy_labels(y))

    train = part(dataset.X, dataset.y).named(dataset.ids)
    return train if dataset.X_test is None else train.as_train(part(dataset.X_test, dataset.y_test))


def known_embedding(estimator: "SASGP", run: "RunFolder") -> "Embedding":
    """The latents in the run's embedding.csv, or without one those of the model's training rows."""
    import numpy as np

    from sasgp.cli.runs import Embedding
    from sasgp.data.labels import parse_labels

    known = run.embedding()
    if known is None:
        return Embedding(np.arange(len(estimator.embedding_)), estimator.embedding_, None)
    if known.labels is None:
        return known
    labels = ["no label" if label == "" else label for label in known.labels.tolist()]
    return replace(known, labels=parse_labels(labels))


def rows_to_evaluate(
    source: str, dataset: "Dataset", run: "RunFolder", known: "Embedding | None"
) -> tuple[Any, Any, str]:
    """Rows that the model was not trained on, as far as that is known: X, y, and in words which rows they are."""
    if dataset.X_test is not None:
        return dataset.X_test, dataset.y_test, f"the test split of {dataset.name}"
    place = str(at_home(source).resolve())
    if any(update["file"] == place for update in run.updates):
        return dataset.X, dataset.y, "the rows that `sasgp update` added"
    if known is None or run.source != place or len(known.rows) - run.n_added != len(dataset.X):
        return dataset.X, dataset.y, "all rows of the file"
    rows = known.only("test").rows
    if not len(rows):
        return dataset.X, dataset.y, "the training rows"
    neighbours = len(rows) == rows[-1] - rows[0] + 1 and (rows[1:] > rows[:-1]).all()
    some = slice(rows[0], rows[-1] + 1) if neighbours else rows  # the last rows of a large file stay on disk
    return dataset.X[some], None if dataset.y is None else dataset.y[some], "the rows that `sasgp fit` held out"


def training_rows(model: "SASGP", run: "RunFolder", source: str) -> Any:
    """The rows of a data set or file that the model was trained on, as far as the run says which they are."""
    import numpy as np

    from sasgp.data.rows import take_rows

    X, known, N = load_data(source, None, model, run).X, run.embedding(), len(model.embedding_)
    if len(X) == N or known is None:
        return X
    rows, n_added = known.only("train").rows, run.n_added
    if n_added and len(rows) == N and rows.max() >= len(X) and is_source(run, source):
        rows, N = rows[:-n_added], N - n_added
    else:
        n_added = 0
    if len(rows) != N or rows.max() >= len(X):
        return X  # the model's own check says what is wrong
    X = X[:N] if (rows == np.arange(N)).all() else take_rows(X, rows)  # no copy of what is on disk
    if not n_added:
        return X
    parts = [X, *(load_data(update["file"], None, model, run).X for update in run.updates)]
    if model.columns_ is None:
        return np.concatenate(parts)

    import polars as pl

    from sasgp.data.tables import read_frame

    return pl.concat([read_frame(part).frame[list(model.columns_.names)] for part in parts], how="vertical_relaxed")


def count_features(model: Any) -> int:
    """Columns that the model was trained on. n_features_in_ also counts those that it left out, such as an id."""
    return int(model.n_features_in_) if model.columns_ is None else len(model.columns_)


def feature_names(run: "RunFolder", model: "SASGP") -> list[str]:
    """The names of the columns that the model was trained on, or x0, x1, … if they are not known."""
    if model.columns_ is not None:
        return list(model.columns_.names)
    D = model.n_features_in_
    return list(run.columns) if run.columns is not None and len(run.columns) == D else [f"x{d}" for d in range(D)]
