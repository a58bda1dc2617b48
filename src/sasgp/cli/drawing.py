"""`sasgp explore` and `plot`: the latent space as a page, a model in figures."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sasgp.cli.arguments import DPI, Flag, Labels, Model, Open, app
from sasgp.cli.models import PLOTTED, data_of, load, rows_to_draw, rows_to_evaluate
from sasgp.cli.printing import Line, show
from sasgp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sasgp.cli.runs import Embedding, Run
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP
    from sasgp.explorer import Explorer

__all__ = ["draw_run", "explore", "explorer_page", "open_page", "plot"]

SHOWN_ROWS = 12  # reconstructed in a picture
IMAGES = (".png", ".jpg", ".jpeg", ".svg", ".pdf", ".gif", ".webp")  # how the names of figures end


@app.command
def explore(
    model: Model, /, *, data: str | None = None, labels: Labels = None, out: Path | None = None, open_: Open = False
) -> None:
    """Write a page to look around in the latent space: it decodes wherever the pointer is.

    It is one file, which opens without a server and without a network. It holds the model's support set, and rows of
    DATA where that is given.

    Parameters
    ----------
    data
        A data set or a file with the rows to show. By default the points of the run's embedding.csv.
    out
        The .html file to write. By default explorer.html in the folder of the run, or beside the model.
    """
    import numpy as np

    from sasgp.cli import files, runs
    from sasgp.data.labels import parse_labels
    from sasgp.evaluation import tidy_labels

    if labels is not None and data is None:
        raise InputError(f"--labels belong to the rows of --data. Got --labels {labels} alone; add --data.")
    run = runs.find(model)
    if out is None:
        out = run.model.with_suffix(".html") if run.folder is None else run.folder / runs.EXPLORER
    files.check_suffix(out, (".html", ".htm"), data)
    files.check_place(out)
    estimator, run = load(model)
    dataset, name = None, run.name
    if data is not None:
        dataset = data_of(data, labels, estimator, run)
        name = dataset.name
        Z = estimator.transform(dataset.X)
        embedding = runs.Embedding(np.arange(len(Z)), Z, tidy_labels(dataset.y))
        if dataset.X_test is not None:
            Z = estimator.transform(dataset.X_test)
            embedding = embedding.as_train(runs.Embedding(np.arange(len(Z)), Z, tidy_labels(dataset.y_test)))
    else:
        known = run.embedding()
        Z = estimator.embedding_
        embedding = runs.Embedding(np.arange(len(Z)), Z, None) if known is None else known
        if embedding.labels is not None:
            embedding = replace(embedding, labels=parse_labels(embedding.labels.tolist()))
    page = explorer_page(estimator, embedding, dataset, name, run)
    with files.replacing(out) as file:
        page.save(file)
    show([("", [("wrote", out, f"{len(embedding.Z)} points, {_size(out)}")])])
    if open_:
        open_page(out)


@app.command
def plot(
    model: Model,
    /,
    *,
    out: Path,
    data: str | None = None,
    labels: Labels = None,
    latent: Annotated[bool, Flag] = False,
    grid: Annotated[bool, Flag] = False,
    curve: Annotated[bool, Flag] = False,
    reconstructions: Annotated[bool, Flag] = False,
    relevance: Annotated[bool, Flag] = False,
    calibration: Annotated[bool, Flag] = False,
) -> None:
    """Draw figures of a model. Without a flag that names one, all of them.

    Parameters
    ----------
    out
        The folder to write latent.png, grid.png, … into. It is made where there is none.
    data
        A data set or a file with the rows to show. By default the points of the run's embedding.csv, and for
        reconstructions the model's support set.
    latent
        The latent space, over the decoder's uncertainty.
    grid
        What is decoded on a grid over the latent space.
    curve
        Objective and noise in training.
    reconstructions
        Some rows, and what is decoded from their latents.
    relevance
        How much of each latent dimension the decoder uses.
    calibration
        Whether as many values fall into the decoder's intervals as should; for rows of --data that it was not trained
        on, so it needs them.
    """
    from sasgp import plots
    from sasgp.cli import files
    from sasgp.evaluation import reconstruction

    if labels is not None and data is None:
        raise InputError(f"--labels belong to the rows of --data. Got --labels {labels} alone; add --data.")
    if out.suffix.lower() in IMAGES and not out.is_dir():
        raise InputError(f"--out is a folder, for several figures. Got {out}; leave {out.suffix} out.")
    estimator, run = load(model)
    X, embedding, shape, columns, name = rows_to_draw(estimator, run, data, labels)
    Z, few = embedding.Z, slice(0, SHOWN_ROWS)
    figures: dict[str, Callable[[], Figure]] = {
        "latent": lambda: plots.latent_space(estimator, Z, embedding.labels, title=name),
        "grid": lambda: plots.decoded_grid(estimator, shape, Z=Z, title=name),
        "curve": lambda: plots.training_curve(estimator.history_, title=name),
        "reconstructions": lambda: plots.reconstructions(
            estimator, known_rows(), image_shape=shape, feature_names=columns, title=name
        ),
        "relevance": lambda: plots.relevance(estimator, title=name),
        "calibration": lambda: plots.calibration(held_out()["pit"], title=name),
    }

    def known_rows() -> Any:
        if not len(X):
            raise InputError(f"--reconstructions need rows, and {type(estimator).__name__} keeps none; add --data.")
        return X[few]

    def held_out() -> dict[str, Any]:
        if data is None:
            raise InputError("--calibration is judged by rows that the model was not trained on; add --data.")
        rows, _, _ = rows_to_evaluate(data, data_of(data, labels, estimator, run), run, run.embedding())
        return reconstruction(estimator, rows, estimator.transform(rows))

    asked = dict(zip(figures, (latent, grid, curve, reconstructions, relevance, calibration), strict=True))
    lines: list[Line] = []
    with files.folder(out):
        for figure, draw in figures.items():
            if not (asked[figure] or not any(asked.values())):
                continue
            try:
                drawn = draw()
            except InputError as error:
                if asked[figure]:
                    raise
                lines.append(("left out", figure, str(error)))  # not every kernel has a relevance to show
                continue
            path = out / f"{figure}.png"
            with files.replacing(path) as file:
                drawn.savefig(file, dpi=DPI)
            lines.append(("wrote", path, ""))
    show([("", lines)])


def draw_run(estimator: "SASGP", embedding: "Embedding", dataset: "Dataset", run: Path) -> None:
    import numpy as np

    from sasgp import plots
    from sasgp.cli import files, runs
    from sasgp.data.images import is_image_shape

    some = np.sort(np.random.default_rng(0).permutation(len(embedding.Z))[:PLOTTED])
    Z, labels = embedding.Z[some], None if embedding.labels is None else embedding.labels[some]
    shape = dataset.image_shape
    if shape is not None and is_image_shape(shape):
        latent = plots.latent_with_images(estimator, shape, Z, labels, title=dataset.name)
    else:
        latent = plots.latent_space(estimator, Z, labels, title=dataset.name)
    loss = plots.training_curve(estimator.history_, title=dataset.name)
    for name, figure in ((runs.LATENT, latent), (runs.LOSS, loss)):
        with files.replacing(run / name) as file:
            figure.savefig(file, dpi=DPI)


def explorer_page(
    estimator: "SASGP", embedding: "Embedding", dataset: "Dataset | None", name: str, run: "Run | None" = None
) -> "Explorer":
    """The page of an embedding whose rows are those of a data set, its test rows after the others, or unknown."""
    import numpy as np

    from sasgp.data.images import is_image_shape
    from sasgp.explorer import explore

    X, shape, columns = None, None if run is None else run.image_shape, None if run is None else run.columns
    if dataset is not None:
        X = dataset.X if dataset.X_test is None else np.concatenate([dataset.X, dataset.X_test])
        shape, columns = dataset.image_shape, dataset.columns
    if shape is not None and not is_image_shape(shape):
        shape = ()
    return explore(
        estimator,
        X,
        Z=embedding.Z,
        labels=embedding.labels,
        columns=None if embedding.split is None else {"split": embedding.split},
        rows=embedding.rows,
        # Names that were made up are none
        feature_names=None if columns is None or columns[0] == "x0" else columns,
        image_shape=shape,
        title=name,
    )


def open_page(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        raise InputError(f"--open needs a browser, and none was found. Open {page} by hand.")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"
