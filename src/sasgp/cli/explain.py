"""`sasgp explain`: how predictions depend on each input."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sasgp.cli.arguments import TEXT, Data, Model, OptionalOut, Printed, command
from sasgp.cli.fit_options import hint
from sasgp.cli.loading import load_supervised
from sasgp.cli.pictures import save_figure
from sasgp.cli.printing import Line, Result, show
from sasgp.cli.target_rows import load_rows, name_of_target
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.estimators import SASGPClassifier, SASGPRegressor

__all__ = ["explain"]

MOST = 6  # inputs that are shown if none is named


@command
def explain(
    model: Model,
    data: Data,
    /,
    *,
    features: Annotated[tuple[str, ...], Parameter(consume_multiple=True, negative=())] = (),
    out: OptionalOut = None,
    printed: Printed = TEXT,
) -> Result:
    """Show how the predictions of a model with a target depend on its inputs, averaged over rows of the data.

    Writes partial_dependence.png: the average prediction if one input has a given value, with a band of ± 2 standard
    deviations; and relevance.csv: how much each input matters, its spread in lengthscales of the kernel.

    Parameters
    ----------
    features
        The inputs to show, such as --features age,income. By default the six most relevant ones.
    out
        The folder to write to. By default that of the run, or that of the model's file.
    """
    import polars as pl

    from sasgp import plots
    from sasgp.cli import files, runs
    from sasgp.estimators.tables import input_names

    run = runs.find(model)
    folder = out or run.folder or run.model.parent
    if folder.exists() and not folder.is_dir():
        raise InputError(f"--out must be a folder, but {folder} is a file. Choose another name.")
    estimator, run = load_supervised(model)
    rows, names = load_rows(data, estimator, run), input_names(estimator)
    relevance = _relevance(estimator, names)
    asked = [name for one in features for name in ([one] if one in names else one.split(","))]
    if absent := [name for name in asked if name not in names]:
        raise InputError(f"The model has no input {absent[0]}. {hint(absent[0], names)}")
    chosen = asked or list(relevance)[:MOST]
    estimator.verbose = False
    title = f"{run.name}: {name_of_target(estimator, run)}"
    places = [names.index(name) for name in chosen]
    shown = chosen if hasattr(rows.X, "columns") else places
    lines: list[Line] = []
    with files.folder(folder):
        figure = plots.partial_dependence(estimator, rows.X, shown, title=title)
        save_figure(figure, folder / runs.DEPENDENCE)
        lines.append(("wrote", folder / runs.DEPENDENCE, ", ".join(chosen)))
        if any(relevance.values()):
            with files.replacing(folder / runs.RELEVANCES) as file:
                files.write_csv(pl.DataFrame({"input": [*relevance], "relevance": [*relevance.values()]}), file)
            lines.append(("wrote", folder / runs.RELEVANCES, "the spread of each input, in lengthscales"))
        else:
            lines.append(("left out", runs.RELEVANCES, "the kernel has no lengthscale for each input"))
    show([("", lines)])
    known = relevance if any(relevance.values()) else None
    return {"wrote": [path for what, path, _ in lines if what == "wrote"], "features": chosen, "relevance": known}


def _relevance(estimator: "SASGPRegressor | SASGPClassifier", names: list[str]) -> dict[str, float]:
    """The relevance of each input, the largest first; zeros if the kernel knows none."""
    try:
        values = [float(value) for value in estimator.relevance_]
    except AttributeError:  # a deep kernel
        values = [0.0] * len(names)
    return dict(sorted(zip(names, values, strict=True), key=lambda one: -one[1]))
