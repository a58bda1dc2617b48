"""`sasgp plot`: a model in figures."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sasgp.cli.arguments import DATA, TEXT, FileName, Flag, Labels, Model, Out, Printed, check_labels, command
from sasgp.cli.loading import (
    feature_names,
    has_target,
    known_embedding,
    load_data,
    load_model,
    load_supervised,
    rows_to_evaluate,
)
from sasgp.cli.pictures import drawn, save_figure
from sasgp.cli.printing import Line, Result, show
from sasgp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["plot"]

SHOWN_ROWS = 12  # in the picture of reconstructions
IMAGES = (".png", ".jpg", ".jpeg", ".svg", ".pdf", ".gif", ".webp")  # suffixes of figures


@command
def plot(
    model: Model,
    /,
    *,
    out: Out,
    data: Annotated[FileName | None, Parameter(group=DATA)] = None,
    labels: Labels = None,
    latent: Annotated[bool, Flag] = False,
    grid: Annotated[bool, Flag] = False,
    curve: Annotated[bool, Flag] = False,
    reconstructions: Annotated[bool, Flag] = False,
    relevance: Annotated[bool, Flag] = False,
    calibration: Annotated[bool, Flag] = False,
    geometry: Annotated[bool, Flag] = False,
    predicted: Annotated[bool, Flag] = False,
    printed: Printed = TEXT,
) -> Result:
    """Draw figures of a model: those that are named, or all of them.

    A model with a target has the figures curve, relevance, calibration and predicted. Others have all but predicted.

    Parameters
    ----------
    out
        The folder for latent.png, grid.png, … It is created if it does not exist.
    data
        A named data set, or a file, with the rows to show. By default the points of the run's embedding.csv, and with a
        target the rows of its predictions.csv. Reconstructions need it, because a decoder keeps no rows.
    latent
        The latent space, and the decoder's uncertainty behind it.
    grid
        What the decoder makes of a grid over the latent space.
    curve
        The objective and the noise during training.
    reconstructions
        Some rows, and what is decoded from their latents.
    relevance
        How much the decoder uses each latent dimension.
    calibration
        Whether the decoder's intervals hold as many values as they should. Needs --data with rows that the model was
        not trained on. With a target, the held-out rows of the run are used by default.
    geometry
        How much the decoder stretches the latent space, and some shortest paths in it.
    predicted
        Predictions against observations, or which classes are taken for which.
    """
    check_labels(labels, data)
    if out.suffix.lower() in IMAGES and not out.is_dir():
        raise InputError(f"--out is a folder, for several figures. Got {out}. Leave out {out.suffix}.")
    flags = {"latent": latent, "grid": grid, "curve": curve, "reconstructions": reconstructions}
    flags |= {"relevance": relevance, "calibration": calibration, "geometry": geometry, "predicted": predicted}
    figures = _of_target(model, data, labels) if has_target(model) else _figures(model, data, labels)
    lines = _drawn(figures, flags, model, out)
    show([("", lines)])
    left_out = {str(name): why for what, name, why in lines if what != "wrote"}
    return {"wrote": [path for what, path, _ in lines if what == "wrote"], "left_out": left_out}


def _drawn(figures: "dict[str, Callable[[], Figure]]", flags: dict[str, bool], model: Path, out: Path) -> list[Line]:
    """Write the figures that were named, or all of them. Raises InputError if the model does not have one of them."""
    from sasgp.cli import files

    asked = {name for name, flag in flags.items() if flag}
    if wrong := [name for name in flags if name in asked and name not in figures]:
        there = ", ".join(f"--{name}" for name in flags if name in figures)
        raise InputError(f"{model} has no figure --{wrong[0]}. It has {there}.")
    with files.folder(out):
        return [
            _draw(draw, out / f"{name}.png", must=name in asked)
            for name, draw in figures.items()
            if name in asked or not asked
        ]


def _draw(draw: "Callable[[], Figure]", path: Path, *, must: bool) -> Line:
    """Write a figure. One that the model cannot have is left out, unless the user asked for it."""
    try:
        figure = draw()
    except InputError as error:
        if must:
            raise
        return "left out", path.stem, str(error)
    save_figure(figure, path)
    return "wrote", path, ""


def _of_target(model: Path, data: str | None, labels: str | None) -> "dict[str, Callable[[], Figure]]":
    """How to draw each figure of a model with a target."""
    import polars as pl

    from sasgp.cli import runs
    from sasgp.cli.predictions import Predictor
    from sasgp.cli.target_pictures import figures
    from sasgp.cli.target_rows import load_rows, name_of_target

    if labels is not None:
        raise InputError("--labels is for models with latents. The model knows the name of its target. Leave it out.")
    estimator, run = load_supervised(model)
    target, found = name_of_target(estimator, run), run.predictions()
    if data is not None:
        rows, predictor = load_rows(data, estimator, run), Predictor(estimator, target)
        found = pl.concat([predictor.frame(X, number, ids, y) for number, X, ids, y in rows.blocks()])
    drawn = figures(estimator, found, target, run.name)
    first = runs.CONFUSION if hasattr(estimator, "classes_") else runs.PREDICTED
    files = {"curve": runs.LOSS, "relevance": runs.RELEVANCE, "calibration": runs.CALIBRATION, "predicted": first}
    return {name: drawn[file] for name, file in files.items()}


def _figures(model: Path, data: str | None, labels: str | None) -> "dict[str, Callable[[], Figure]]":
    """How to draw each figure, in the order of the flags."""
    import numpy as np

    from sasgp import plots
    from sasgp.cli.runs import Embedding
    from sasgp.data.images import is_image_shape
    from sasgp.evaluation import reconstruction, table_numbers, tidy_labels
    from sasgp.evaluation.tables import table_pit

    estimator, run = load_model(model)
    if data is None:
        dataset, X, shape, name = None, None, run.image_shape, run.name
        embedding = known_embedding(estimator, run)
    else:
        dataset = load_data(data, labels, estimator, run)
        X, shape, name = dataset.X, dataset.image_shape, dataset.name
        embedding = Embedding(np.arange(len(X)), estimator.transform(X), tidy_labels(dataset.y))
    points = drawn(embedding)
    image_shape = shape if shape is not None and is_image_shape(shape) else None

    def some_rows() -> Any:
        if X is None:
            raise InputError("--reconstructions needs rows, and a model keeps none. Add --data.")
        return X[:SHOWN_ROWS]

    def calibration_counts() -> Any:
        if data is None or dataset is None:
            raise InputError("--calibration needs rows that the model was not trained on. Add --data.")
        rows, _, _ = rows_to_evaluate(data, dataset, run, run.embedding())
        if estimator.columns_ is not None:
            return table_pit(estimator, table_numbers(estimator, rows), estimator.transform(rows))
        return reconstruction(estimator, rows, estimator.transform(rows))["pit"]

    return {
        "latent": lambda: plots.latent_space(estimator, points.Z, points.labels, title=name),
        "grid": lambda: plots.decoded_grid(estimator, image_shape, Z=points.Z, title=name),
        "curve": lambda: plots.training_curve(estimator.history_, title=name),
        "reconstructions": lambda: plots.reconstructions(
            estimator, some_rows(), image_shape=image_shape, feature_names=feature_names(run, estimator), title=name
        ),
        "relevance": lambda: plots.relevance(estimator, title=name),
        "calibration": lambda: plots.calibration(calibration_counts(), title=name),
        "geometry": lambda: plots.geometry(estimator, points.Z, points.labels, title=name),
    }
