"""`sasgp sample`: new data from a model."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sasgp.cli.arguments import TEXT, EscapeFormulas, Model, Out, Printed, command
from sasgp.cli.loading import count_features, feature_names, load_model
from sasgp.cli.pictures import save_figure
from sasgp.cli.printing import Result, show
from sasgp.cli.tables import check_table_suffix, write_table
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.estimators import SASGP

__all__ = ["sample"]


@command
def sample(
    model: Model,
    /,
    *,
    out: Out,
    n: Annotated[int, Parameter(name=["--number", "-n"])] = 16,
    noise: bool = True,
    random_state: int | None = 0,
    escape_formulas: EscapeFormulas = False,
    printed: Printed = TEXT,
) -> Result:
    """Generate new rows: draw latents from the prior, and decode each into one draw.

    Parameters
    ----------
    out
        The file to write: .csv, .npy, or .png with one picture per row if the data are images. The columns of a table
        go to a .csv or .parquet file.
    n
        How many rows to generate.
    noise
        Add observation noise, as the data have it. Without it, draws are smooth.
    random_state
        Seed. None draws a new one each time.
    """
    import numpy as np
    import polars as pl

    from sasgp.cli import files

    if n < 1:
        raise InputError(f"-n must be at least 1. Got {n}.")
    files.check_suffix(out, (".csv", ".npy", ".png", ".parquet"))
    files.check_place(out)
    estimator, run = load_model(model)
    kind, shape = out.suffix.lower(), run.image_shape
    if kind == ".png" and shape is None:
        raise InputError(
            f"A .png needs rows that are images, with their shape in the run.json of the run. {model} has none. Choose "
            ".csv or .npy for --out."
        )
    if estimator.columns_ is not None:
        check_table_suffix(out)
    _check_memory(estimator, n)
    X = estimator.sample(n, noise=noise, random_state=random_state)
    if kind == ".png" and shape is not None:
        from sasgp import plots

        save_figure(plots.contact_sheet(X, shape), out)
    elif estimator.columns_ is not None:
        write_table(X, out, escape_formulas=escape_formulas)
    else:
        with files.replacing(out) as file:
            if kind == ".npy":
                np.save(file, X)
            else:
                frame = pl.DataFrame(X, schema=feature_names(run, estimator), orient="row")
                files.write_csv(frame, file, escape_formulas=escape_formulas)
    show([("", [("wrote", str(out), f"{n} rows, {count_features(estimator)} features")])])
    return {"wrote": out, "rows": n, "features": count_features(estimator)}


def _check_memory(estimator: "SASGP", n: int) -> None:
    import numpy as np

    from sasgp.data import memory

    D, Q = estimator.n_features_in_, estimator.n_components_
    needed, free = n * (2 * D + Q) * np.dtype(estimator.dtype_).itemsize, memory.available()  # in parts, and joined
    if needed > free:
        raise InputError(
            f"There is not enough memory for {n} rows of {D} features: they need {memory.amount(needed)}, and "
            f"{memory.amount(free)} are free. Lower -n."
        )
