"""From what was typed to a model and the rows it is asked about."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp import __version__
from sasgp.cli.arguments import seed_of
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import Embedding, Run
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP

__all__ = ["PLOTTED", "columns_of", "data_of", "load", "rows_of_evidence", "rows_to_draw", "rows_to_evaluate"]

PLOTTED = 60_000  # points of a picture at the most


def load(path: Path) -> "tuple[SASGP, Run]":
    """A model of whatever class the file names."""
    import sasgp
    from sasgp.cli import runs
    from sasgp.estimators import storage

    run = runs.find(path)
    header, _ = storage.read(run.model)
    for part in ("kernel", "encoder"):
        setting = header.get("settings", {}).get(part)
        if isinstance(setting, dict) and "custom" in setting:
            raise InputError(
                f"{run.model} was made with a {part} of the class {setting['custom']}, which the command line cannot "
                f"have: load it from Python with SASGP.load(path, {part}=...)."
            )
    name = header.get("class")
    if name not in sasgp.__all__:
        raise InputError(f"{run.model} holds a {name} model, which sasgp {__version__} does not know; upgrade sasgp.")
    model = getattr(sasgp, name).load(run.model)
    model.verbose = True
    return model, run


def data_of(source: str, labels: str | None, model: "SASGP", run: "Run") -> "Dataset":
    """Data whose columns are those that the model was trained on."""
    from sasgp.data import load
    from sasgp.data.rows import check_finite

    if labels is None and run.source in (source, str(Path(source).expanduser().resolve())):
        labels = run.labels  # the same file has them where it had them
    dataset = load(source, labels=labels, columns=run.columns)
    D, expected = dataset.X.shape[1], model.n_features_in_
    known, there = set(run.columns or ()), set(dataset.columns)
    missing = [name for name in run.columns or () if name not in there]
    if expected != D:
        hint = f"it lacks {_few(missing)}" if missing else "check that they belong together"
        raise InputError(f"{source} must have {expected} features as the model's training data had. Got {D}; {hint}.")
    if missing and not (_made_up(run.columns or ()) or _made_up(dataset.columns)):
        others = [name for name in dataset.columns if name not in known]
        raise InputError(
            f"{source} must have the columns that the model was trained on. It lacks {_few(missing)}, and has "
            f"{_few(others)} instead; rename them if they are the same."
        )
    if not _made_up(dataset.columns):  # elsewhere there is no better name than the place, by which all input is checked
        check_finite(dataset.X, source, dataset.columns)
    return dataset


def _made_up(columns: Sequence[str]) -> bool:
    """Whether names only count: of files without header, of pixels, or as pandas names columns."""
    counted = list(columns) == [str(d) for d in range(len(columns))]
    return counted or all(re.fullmatch(r"(x|pixel)\d+", name) for name in columns)


def _few(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + ", …" * (len(names) > most)


def rows_to_evaluate(source: str, dataset: "Dataset", run: "Run", known: "Embedding | None") -> tuple[Any, Any, str]:
    """Rows that the model was not trained on, as far as can be known, their labels, and which they are."""
    if dataset.X_test is not None:
        return dataset.X_test, dataset.y_test, f"the test split of {dataset.name}"
    if known is None or run.source != str(Path(source).expanduser().resolve()) or len(known.rows) != len(dataset.X):
        return dataset.X, dataset.y, "all of the file"
    rows = known.only("test").rows
    if not len(rows):
        return dataset.X, dataset.y, "those that the model was trained on"
    return dataset.X[rows], None if dataset.y is None else dataset.y[rows], "those that `fit` held out"


def rows_of_evidence(
    estimator: "SASGP", run: "Run", data: str | None, labels: str | None, rows: int | None, random_state: int | None
) -> tuple[Any, Any, str]:
    """Rows, their latents where those are parameters of the model, and which they are."""
    import numpy as np

    from sasgp.data.rows import take_rows

    source = data or run.source
    if source is None:
        raise InputError(f"evidence needs data. Got {run.model} alone, which does not say where its own are; add DATA.")
    dataset, known = data_of(source, labels, estimator, run), run.embedding()
    X, which, chosen, Z = dataset.X, f"all of {dataset.name}", None, None
    if known is not None and run.source in (source, str(Path(source).expanduser().resolve())):
        train = known.only("train").rows
        if len(train) == len(estimator.embedding_) and train.max(initial=-1) < len(X):
            which, chosen = "those that the model was trained on", train
            Z = estimator.embedding_ if estimator.encoder == "table" else None  # a network finds them again
    if rows is not None:
        N = len(X) if chosen is None else len(chosen)
        if not 1 <= rows <= N:
            raise InputError(f"--rows must be at least 1 and at most {N}, which is all. Got {rows}.")
        some = np.sort(np.random.default_rng(seed_of(random_state)).permutation(N)[:rows])
        which, Z = f"{rows} of {which}, drawn at random", None if Z is None else Z[some]
        chosen = some if chosen is None else chosen[some]
    if chosen is not None and (chosen == np.arange(len(chosen))).all():
        X, chosen = X[: len(chosen)], None  # no copy of what is on disk
    return X if chosen is None else take_rows(X, chosen), Z, which


def rows_to_draw(
    estimator: "SASGP", run: "Run", data: str | None, labels: str | None
) -> "tuple[Any, Embedding, tuple[int, ...] | None, Sequence[str], str]":
    """A few rows, an embedding to draw, the shape of an image, names of features, and what to call it all."""
    import numpy as np

    from sasgp.cli.runs import Embedding
    from sasgp.data.images import is_image_shape
    from sasgp.data.labels import parse_labels
    from sasgp.evaluation import tidy_labels

    known, shape, name = run.embedding(), run.image_shape, run.name
    X, embedding = estimator.posterior_.X.numpy(force=True), Embedding(np.empty(0), estimator.embedding_, None)
    if data is not None:
        dataset = data_of(data, labels, estimator, run)
        X, shape, name = dataset.X, dataset.image_shape, dataset.name
        embedding = Embedding(np.arange(len(X)), estimator.transform(X), tidy_labels(dataset.y))
    elif known is not None:
        embedding = replace(known, labels=None if known.labels is None else parse_labels(known.labels.tolist()))
    some = np.sort(np.random.default_rng(0).permutation(len(embedding.Z))[:PLOTTED])
    drawn = Embedding(some, embedding.Z[some], None if embedding.labels is None else embedding.labels[some])
    return X, drawn, shape if shape is not None and is_image_shape(shape) else None, columns_of(run, estimator), name


def columns_of(run: "Run", model: "SASGP") -> list[str]:
    D = model.n_features_in_
    return list(run.columns) if run.columns is not None and len(run.columns) == D else [f"x{d}" for d in range(D)]
