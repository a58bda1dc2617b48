"""The pictures of a run, and its page: what `fit`, `explore` and `plot` share."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.arguments import DPI
from sasgp.errors import InputError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sasgp.cli.runs import Embedding, RunFolder
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP
    from sasgp.explorer import Explorer

__all__ = ["draw_latent", "draw_run", "drawn", "explorer_page", "open_page", "save_figure"]

MAX_POINTS = 60_000  # in a picture


def drawn(embedding: "Embedding") -> "Embedding":
    """The points of an embedding that a picture shows: all of them, or a random choice if there are too many."""
    import numpy as np

    from sasgp.cli.runs import Embedding

    some = np.sort(np.random.default_rng(0).permutation(len(embedding.Z))[:MAX_POINTS])
    return Embedding(some, embedding.Z[some], None if embedding.labels is None else embedding.labels[some])


def draw_run(estimator: "SASGP", embedding: "Embedding", dataset: "Dataset", run: Path) -> None:
    """Write latent.png and loss.png of a run."""
    from sasgp import plots
    from sasgp.cli import files, runs

    with files.replacing(run / runs.LATENT) as file:
        draw_latent(estimator, embedding, dataset.image_shape, dataset.name, file)
    save_figure(plots.training_curve(estimator.history_, title=dataset.name), run / runs.LOSS)


def draw_latent(
    estimator: "SASGP", embedding: "Embedding", shape: tuple[int, ...] | None, title: str, file: Path
) -> None:
    """Write the picture of the latent space, with decoded images in it if rows have the shape of images."""
    from sasgp import plots
    from sasgp.data.images import is_image_shape

    points = drawn(embedding)
    if shape is not None and is_image_shape(shape):
        figure = plots.latent_with_images(estimator, shape, points.Z, points.labels, title=title)
    else:
        figure = plots.latent_space(estimator, points.Z, points.labels, title=title)
    figure.savefig(file, dpi=DPI)


def save_figure(figure: "Figure", path: Path) -> None:
    from sasgp.cli import files

    with files.replacing(path) as file:
        figure.savefig(file, dpi=DPI)


def explorer_page(
    estimator: "SASGP", embedding: "Embedding", dataset: "Dataset | None", name: str, run: "RunFolder | None" = None
) -> "Explorer":
    """The page of an embedding. Its rows are those of the data set, training rows before test rows, if there is one."""
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
        columns=_coloured(embedding, dataset),
        rows=embedding.rows,
        ids=embedding.ids,
        feature_names=None if columns is None or columns[0] == "x0" else columns,  # made-up names say nothing
        image_shape=shape,
        title=name,
    )


def _coloured(embedding: "Embedding", dataset: "Dataset | None") -> "dict[str, Any] | None":
    """What else the points of a page can be coloured by: the split, and what the data say about their rows."""
    found = {} if embedding.split is None else {"split": embedding.split}
    for name, values in ({} if dataset is None else dataset.metadata).items():
        found[f"{name} (data)" if name in ("label", "split") else name] = values[embedding.rows]
    return found or None


def open_page(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        raise InputError(f"--open found no browser. Open {page} yourself.")
