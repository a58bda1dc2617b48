"""`sasgp embed`: from data to latents."""

from pathlib import Path

from sasgp.cli.arguments import Data, Labels, Model, Refine, app
from sasgp.cli.loading import embedded, load_data, load_model
from sasgp.cli.printing import show
from sasgp.cli.together import together

__all__ = ["embed"]


@app.command
def embed(model: Model, data: Data, /, *, out: Path, labels: Labels = None, refine: Refine = 0) -> None:
    """Find the position of each row of the data in the latent space.

    If a named data set has a test split, its training rows come first and its test rows follow. Under torchrun, each
    process takes a share of the rows, and the first writes the file.

    Parameters
    ----------
    out
        The file to write: .csv with the columns row, z0, z1, …, and label and split if there are any, or .npy with the
        latents alone.
    """
    import numpy as np

    from sasgp.cli import files

    with together() as processes:
        if processes.first:
            files.check_suffix(out, (".csv", ".npy"), data, labels)
            files.check_place(out)
        estimator, run = load_model(model)
        embedding = embedded(estimator, load_data(data, labels, estimator, run), refine, processes)
    if not processes.first:
        return
    with files.replacing(out) as file:
        if out.suffix.lower() == ".npy":
            np.save(file, embedding.Z)
        else:
            embedding.write(file)
    show([("", [("wrote", str(out), f"{len(embedding.Z)} rows, {estimator.n_components_} dimensions")])])
