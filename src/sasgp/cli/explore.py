"""`sasgp explore`: the latent space as a page."""

from typing import Annotated

from cyclopts import Parameter

from sasgp.cli.arguments import (
    DATA,
    TEXT,
    FileName,
    Labels,
    Metadata,
    Model,
    Open,
    OptionalOut,
    Printed,
    check_labels,
    command,
)
from sasgp.cli.loading import embedded, is_source, known_embedding, load_data, load_model
from sasgp.cli.pictures import explorer_page, open_page
from sasgp.cli.printing import Result, show
from sasgp.errors import InputError

__all__ = ["explore"]


@command
def explore(
    model: Model,
    /,
    *,
    data: Annotated[FileName | None, Parameter(group=DATA)] = None,
    labels: Labels = None,
    metadata: Metadata = (),
    out: OptionalOut = None,
    open_: Open = False,
    printed: Printed = TEXT,
) -> Result:
    """Write a web page to explore the latent space: it decodes wherever the pointer is.

    The page is one file, which opens without a server or a network. It holds the rows of
    --data if there are any.

    Parameters
    ----------
    data
        A named data set, or a file, with the rows to show. By default the points of the run's embedding.csv.
    out
        The .html file to write. By default explorer.html in the folder of the run, or beside the model.
    """
    from sasgp.cli import files, runs

    check_labels(labels, data)
    if metadata and data is None:
        raise InputError(f"--columns {metadata[0]} needs rows that the columns belong to. Name them with --data.")
    run = runs.find(model)
    if out is None:
        out = run.model.with_suffix(".html") if run.folder is None else run.folder / runs.EXPLORER
    files.check_suffix(out, (".html", ".htm"), data, labels)
    files.check_place(out)
    estimator, run = load_model(model)
    if data is None:
        dataset, name, embedding = None, run.name, known_embedding(estimator, run)
    else:
        known = run.metadata if is_source(run, data) else ()
        dataset = load_data(data, labels, estimator, run, metadata or known)
        name, embedding = dataset.name, embedded(estimator, dataset)
    page = explorer_page(estimator, embedding, dataset, name, run)
    with files.replacing(out) as file:
        page.save(file)
    size = out.stat().st_size
    show([("", [("wrote", out, f"{len(embedding.Z)} points, {size / 1e6:.1f} MB")])])
    if open_:
        open_page(out)
    return {"wrote": out, "points": len(embedding.Z), "bytes": size}
