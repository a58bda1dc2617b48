"""`sasgp embed`, `decode` and `sample`: data to latents, latents to data, and data from nothing."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sasgp.cli.arguments import DPI, Data, Flag, Labels, Model, app
from sasgp.cli.models import columns_of, data_of, load
from sasgp.cli.printing import show
from sasgp.errors import InputError

__all__ = ["decode", "embed", "sample"]


@app.command
def embed(model: Model, data: Data, /, *, out: Path, labels: Labels = None, refine: int = 0) -> None:
    """Find the latents of data.

    Of a named data set, its training rows come first and its test rows after them.

    Parameters
    ----------
    out
        .csv with the columns row, z0, z1, …, label and split (where there are), or .npy with the latents alone.
    refine
        Steps by which the density of every row is climbed from the encoder's answer; 20 is enough for most.
    """
    import numpy as np

    from sasgp.cli import files
    from sasgp.cli.runs import Embedding
    from sasgp.evaluation import tidy_labels

    files.check_suffix(out, (".csv", ".npy"), data)
    files.check_place(out)
    estimator, run = load(model)
    dataset = data_of(data, labels, estimator, run)
    Z = estimator.transform(dataset.X, refine=refine)
    embedding = Embedding(np.arange(len(Z)), Z, tidy_labels(dataset.y))
    if dataset.X_test is not None:
        Z = estimator.transform(dataset.X_test, refine=refine)
        embedding = embedding.as_train(Embedding(np.arange(len(Z)), Z, tidy_labels(dataset.y_test)))
    with files.replacing(out) as file:
        if out.suffix.lower() == ".npy":
            np.save(file, embedding.Z)
        else:
            embedding.write(file)
    show([("", [("wrote", str(out), f"{len(embedding.Z)} rows, {estimator.n_components_} dimensions")])])


@app.command
def decode(model: Model, latents: Path, /, *, out: Path, std: Annotated[bool, Flag] = False) -> None:
    """Decode latents into data, with the uncertainty of each value.

    Parameters
    ----------
    latents
        .csv or .npy with a column for every latent dimension. Of a .csv with columns z0, z1, … those are taken.
    out
        .csv, .npy with the means, or .npz with the arrays mean and std.
    std
        Write the standard deviation of every value too, in .csv as columns called …_std. It includes the noise.
    """
    import numpy as np

    from sasgp.cli import files

    files.check_suffix(out, (".csv", ".npy", ".npz"), latents)
    if std and out.suffix.lower() == ".npy":
        raise InputError("a .npy file holds one array. Got --std with it; choose .npz or .csv for --out.")
    files.check_place(out)
    estimator, run = load(model)
    Z = files.read_latents(latents, estimator.n_components_)
    mean, deviation = estimator.predict(Z, return_std=True)
    with files.replacing(out) as file:
        if out.suffix.lower() == ".npz":
            np.savez(file, mean=mean, std=deviation)
        elif out.suffix.lower() == ".npy":
            np.save(file, mean)
        else:
            columns = columns_of(run, estimator)
            if std:
                mean, columns = np.hstack([mean, deviation]), [*columns, *(f"{name}_std" for name in columns)]
            files.write_csv(file, columns, mean)
    show([("", [("wrote", str(out), f"{len(Z)} rows, {estimator.n_features_in_} features")])])


@app.command
def sample(
    model: Model,
    /,
    *,
    out: Path,
    n: Annotated[int, Parameter(name=["--number", "-n"])] = 16,
    noise: bool = True,
    random_state: int | None = 0,
) -> None:
    """Generate rows: latents from the prior, and one draw of the decoder there.

    Parameters
    ----------
    out
        .csv, .npy, or .png with a picture of every row if the data are images.
    n
        How many.
    noise
        Add observation noise, as it is in data. Without it draws are smooth.
    random_state
        Seed. None draws a new one each time.
    """
    import numpy as np

    from sasgp.cli import files
    from sasgp.data import memory

    files.check_suffix(out, (".csv", ".npy", ".png"))
    files.check_place(out)
    estimator, run = load(model)
    picture = out.suffix.lower() == ".png"
    if picture and run.image_shape is None:
        raise InputError(
            "a .png needs rows that are images, and MODEL a run whose run.json has their shape. "
            f"Got {model}, which has none; choose .csv or .npy for --out."
        )
    D, Q = estimator.n_features_in_, estimator.n_components_
    needed, free = n * (2 * D + Q) * np.dtype(estimator.dtype).itemsize, memory.available()  # in parts, and joined
    if needed > free:
        raise InputError(
            f"not enough memory for {n} rows of {D} features, which need {memory.amount(needed)}. "
            f"Got {memory.amount(free)}; lower -n."
        )
    X = estimator.sample(n, noise=noise, random_state=random_state)
    with files.replacing(out) as file:
        if picture:
            from sasgp import plots

            assert run.image_shape is not None
            plots.contact_sheet(X, run.image_shape).savefig(file, dpi=DPI)
        elif out.suffix.lower() == ".npy":
            np.save(file, X)
        else:
            files.write_csv(file, columns_of(run, estimator), X)
    show([("", [("wrote", str(out), f"{n} rows, {estimator.n_features_in_} features")])])
