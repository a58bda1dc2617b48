"""`sasgp decode`: from latents to data."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sasgp.cli.arguments import TEXT, EscapeFormulas, Flag, Model, Out, Printed, command
from sasgp.cli.loading import feature_names, load_model
from sasgp.cli.printing import Result, show
from sasgp.cli.tables import decode_table
from sasgp.data.files import at_home
from sasgp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["decode"]


@command
def decode(
    model: Model,
    latents: Path,
    /,
    *,
    out: Out,
    std: Annotated[bool, Flag] = False,
    escape_formulas: EscapeFormulas = False,
    printed: Printed = TEXT,
) -> Result:
    """Decode positions in the latent space into data, with the uncertainty of each value.

    Parameters
    ----------
    latents
        A .csv or .npy file with one column per latent dimension. If a .csv file has columns z0, z1, …, only those are
        read.
    out
        The file to write: .csv, .npy with the means, or .npz with the arrays mean and std. The columns of a table go to
        a .csv or .parquet file.
    std
        Also write the standard deviation of each value to a .csv file, in columns called …_std. It includes the noise.
        Of a table also the ends of the 90 % interval of each number, in columns called …_low and …_high, and the
        probability of each level, in columns called column=level.
    """
    import numpy as np
    import polars as pl

    from sasgp.cli import files

    files.check_suffix(out, (".csv", ".npy", ".npz", ".parquet"), latents)
    if std and out.suffix.lower() == ".npy":
        raise InputError(
            "--std needs a file that can hold two arrays, and .npy holds one. Choose .npz or .csv for --out."
        )
    files.check_place(out)
    estimator, run = load_model(model)
    Z = _read_latents(latents, estimator.n_components_)
    if estimator.columns_ is not None:
        return decode_table(estimator, Z, out, std=std, escape_formulas=escape_formulas)
    mean, deviation = estimator.predict(Z, return_std=True)
    with files.replacing(out) as file:
        if out.suffix.lower() == ".npz":
            np.savez(file, mean=mean, std=deviation)
        elif out.suffix.lower() == ".npy":
            np.save(file, mean)
        else:
            columns = feature_names(run, estimator)
            if std:
                mean, columns = np.hstack([mean, deviation]), [*columns, *(f"{name}_std" for name in columns)]
            frame = pl.DataFrame(mean, schema=columns, orient="row")
            files.write_csv(frame, file, escape_formulas=escape_formulas)
    show([("", [("wrote", str(out), f"{len(Z)} rows, {estimator.n_features_in_} features")])])
    return {"wrote": out, "rows": len(Z), "features": estimator.n_features_in_}


def _read_latents(path: Path, n_components: int) -> "NDArray[Any]":
    """Latents [N, Q] from a .csv or .npy file. The further columns of an embedding.csv are ignored."""
    import numpy as np

    from sasgp.data import load
    from sasgp.data.tables import TextError, read_table

    path = at_home(path)
    names = [f"z{q}" for q in range(n_components)]
    if path.exists() and path.suffix.lower() not in (".csv", ".npy"):
        raise InputError(f"LATENTS must be a .csv or .npy file. Got {path}. Convert it.")
    expected = f"{path} must have {n_components} columns of latents ({', '.join(names)}) for this model"
    how = "Find the latents of data with `sasgp embed`."
    try:
        is_table = path.suffix.lower() == ".csv" and path.is_file() and path.stat().st_size
        Z = read_table(path).numbers(without=(), only=names)[0] if is_table else load(path).X
    except TextError as error:
        raise InputError(f"{expected}, but has others, with text in them. {how}") from error
    if Z.shape[1] != n_components:
        raise InputError(f"{expected}, but has {Z.shape[1]}. {how}")
    Z = np.ascontiguousarray(Z)  # as any other array: sums in another order differ in their last digit
    if not np.isfinite(Z).all():
        row, column = np.argwhere(~np.isfinite(Z))[0]
        raise InputError(
            f"{path} must hold finite latents, but has {Z[row, column]} in row {row}, column {names[column]}."
        )
    return Z
