"""`sasgp data`: make data to train on."""

from pathlib import Path

from cyclopts import App

from sasgp.cli.arguments import app
from sasgp.cli.printing import show
from sasgp.training.progress import progress_bar

__all__ = ["infinite_mnist"]

data_app = App(name="data", help="Make data to train on.")
app.command(data_app)


@data_app.command
def infinite_mnist(*, rows: int, out: Path, seed: int = 0) -> None:
    """Deform and shift the training digits of MNIST into as many new ones as asked for.

    Parameters
    ----------
    rows
        How many. The first rows are the same however many follow.
    out
        The .npy file to write, one byte a pixel. Its labels go beside it, into …labels.npy, where `fit` finds them.
    seed
        Of all that is random.
    """
    from sasgp.data.named import IDX, fetch, read_idx
    from sasgp.synthetic import check_request, write_infinite

    check_request(rows, out, seed)  # before anything is downloaded
    raw = fetch("mnist")
    images, labels = (read_idx(raw[name], name) for name in IDX[:2])
    with progress_bar("digits", rows) as update:
        label_path = write_infinite(images, labels, rows, out, seed=seed, update=update)
    show([("", [("wrote", str(out), f"{rows} rows of 28×28"), ("wrote", str(label_path), "their labels")])])
