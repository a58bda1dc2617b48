"""`sasgp embed`: from data to latents."""

from sasgp.cli.arguments import TEXT, Data, EscapeFormulas, Labels, Model, Out, Printed, Refine, command
from sasgp.cli.cells import check_cells, write_latents
from sasgp.cli.loading import embedded, load_data, load_model
from sasgp.cli.printing import Result, show
from sasgp.cli.together import together

__all__ = ["embed"]


@command
def embed(
    model: Model,
    data: Data,
    /,
    *,
    out: Out,
    labels: Labels = None,
    refine: Refine = 0,
    escape_formulas: EscapeFormulas = False,
    printed: Printed = TEXT,
) -> Result:
    """Find the position of each row of the data in the latent space.

    If a named data set has a test split, its training rows come first and its test rows follow. Under torchrun, each
    process takes a share of the rows, and the first writes the file.

    Parameters
    ----------
    out
        The file to write: .csv with the columns row, z0, z1, …, and id, label and split if there are any; .npy with the
        latents alone; or, if DATA is a .h5ad file, a .h5ad copy of it, with the latents in obsm["X_sasgp"] and the
        settings of the model in uns["X_sasgp"].
    """
    import numpy as np

    from sasgp.cli import files

    with together() as processes:
        if processes.first:
            files.check_suffix(out, (".csv", ".npy", ".h5ad"), data, labels)
            check_cells(out, data)
            files.check_place(out)
        estimator, run = load_model(model)
        dataset = load_data(data, labels, estimator, run)
        embedding = embedded(estimator, dataset, refine, processes)
    if not processes.first:
        return None
    with files.replacing(out) as file:
        if out.suffix.lower() == ".npy":
            np.save(file, embedding.Z)
        elif out.suffix.lower() == ".h5ad":
            write_latents(estimator, dataset, data, embedding.Z, refine, file)
        else:
            embedding.write(file, escape_formulas=escape_formulas)
    N, Q = embedding.Z.shape
    show([("", [("wrote", str(out), f"{N} rows, {Q} dimensions")])])
    return {"wrote": out, "rows": N, "dimensions": Q}
