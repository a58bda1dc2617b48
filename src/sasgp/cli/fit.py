"""`sasgp fit`: train a model, and leave a folder with everything that belongs to the run."""

import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sasgp.cli import fit_target, report
from sasgp.cli.arguments import (
    DATA,
    LINE,
    OUTPUT,
    TEXT,
    Data,
    Flag,
    Labels,
    Open,
    OptionalOut,
    Printed,
    check_seed,
    command,
)
from sasgp.cli.cells import held_out, knows_genes
from sasgp.cli.fit_options import AS_FOUND, DEFAULTS, ModelName, Options, Request, TableOptions, Target
from sasgp.cli.pictures import draw_run, explorer_page, open_page
from sasgp.cli.printing import Result, show
from sasgp.cli.results import complete, write_run
from sasgp.cli.tables import as_table, show_columns
from sasgp.data.progress import rank_of_process
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import Embedding
    from sasgp.cli.unfinished import Work
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP
    from sasgp.evaluation import Split

__all__ = ["fit"]

PICTURES = "`sasgp explore {run}` and `sasgp plot {run} --out FOLDER` make its pictures."
N_WATCHED = 2000  # rows in the pictures of TensorBoard


@dataclass(frozen=True)
class Trained:
    """A run that has been written, but for its pictures. `info` is what run.json holds."""

    dataset: "Dataset"
    estimator: "SASGP"
    embedding: "Embedding"
    info: dict[str, Any]


@command
def fit(
    data: Data | None = None,
    /,
    *,
    out: OptionalOut = None,
    resume: Annotated[Path | None, Parameter(group=OUTPUT)] = None,
    config: Annotated[Path | None, Parameter(group=DATA)] = None,
    labels: Labels = None,
    target: Target = None,
    model: ModelName = "sasgp",
    test_fraction: Annotated[float | None, Parameter(group=DATA)] = None,
    overwrite: Annotated[bool, Flag, Parameter(group=OUTPUT)] = False,
    open_: Open = False,
    tensorboard: Annotated[bool, Flag, Parameter(group=OUTPUT)] = False,
    table: Annotated[TableOptions, Parameter(name="*")] = AS_FOUND,
    options: Annotated[Options, Parameter(name="*")] = DEFAULTS,
    printed: Printed = TEXT,
) -> Result:
    """Train a model on data, and write the model, the latents and pictures to a folder.

    DATA may be a table (.csv, .tsv, .txt, also .gz; .parquet, .feather, .jsonl or .xlsx), whose columns are recognised;
    a .npy (which stays on disk), .npz or .h5ad file; or a folder of images, whose subfolders are their labels. The
    folder OUT gets model.safetensors, embedding.csv, history.jsonl, run.json, latent.png, loss.png and explorer.html.

    With --target, a column is predicted from the others instead. OUT then gets model.safetensors, which holds the
    training rows, predictions.csv of the held-out rows, history.jsonl, run.json and pictures.

    Ctrl-C and SIGTERM finish the current step, save it and stop. A run that was interrupted or killed continues with
    `sasgp fit --resume OUT`, to the same result. Under torchrun, all processes train one model together.

    Parameters
    ----------
    out
        The folder to write.
    resume
        The folder of a run that was interrupted, to continue it. No other argument is needed.
    config
        A .toml file with options, such as `batch-size = 512`, or the folder of a run, to do the same fit again. What is
        typed beats what is in the file. `sasgp info RUN --config` writes such a file.
    model
        "sasgp": stochastic active sets. "gplvm": the exact GP-LVM, with point latents by default. "bayesian-gplvm":
        inducing points. "vae": a variational autoencoder, which has no kernel, noise, active set or positions.
    test_fraction
        Share of a file's rows to hold out for the metrics. By default 0.1, but at most 10 000 rows, and none if there
        are fewer than 50; 0 trains on all rows. Rows are drawn at random, except that a .npy file above 64 MiB gives
        its last rows. A named data set has its own test split.
    overwrite
        Replace the run that is in the folder.
    tensorboard
        Write event files to OUT/tensorboard. Needs the package tensorboard.
    """
    command = shlex.join(["sasgp", *LINE])
    request = Request(data, labels, target, model, test_fraction, overwrite, tensorboard, table, options, command)
    request = request.for_target()
    if resume is not None and out is not None:
        raise InputError("--resume already names the folder of the run. Leave out --out.")
    if resume is not None and not request.given() and _draw_again(resume, open_):
        return None if rank_of_process() else _result(resume)
    return _run(request if resume is None else request.resumed(resume), out or resume, resume is not None, open_)


def _run(request: Request, out: Path | None, resumed: bool, open_: bool) -> Result:
    """Train, and write the run. Of several processes, only the first writes and prints."""
    from sasgp.cli import runs
    from sasgp.data.files import real_path

    if request.data is None or out is None:
        raise InputError(_lacks(request.data, out))
    runs.check_inputs(out, request.data, request.labels, request.target)
    runs.check_outside(out, request.data)
    if not resumed and not rank_of_process():
        runs.check_new(out, overwrite=request.overwrite)
    if request.target is not None:
        first = fit_target.run(request, request.data, request.target, out, resumed)
        return _result(out) if first else None
    trained = _train(request, request.data, out, resumed)
    if trained is None:
        return None
    with complete(out, PICTURES):
        show(report.summary(trained.info, trained.dataset, out))
        _draw(trained.estimator, trained.embedding, trained.dataset, real_path(out))
    _show_pictures(out, open_)
    return _result(out)


def _lacks(data: str | None, out: Path | None) -> str:
    """What `fit` needs besides what was typed, with a line to type."""
    go_on = "To continue a run: `sasgp fit --resume RUN`."
    if data is None:
        return f"fit needs data: `sasgp fit DATA --out {out or 'RUN'}`. {go_on}"
    line = shlex.join(["sasgp", *LINE, "--out", f"runs/{Path(data).stem or 'run'}"])
    return f"fit needs a folder to write to: `{line}`. {go_on}"


def _result(out: Path) -> Result:
    """What run.json says about a run, and the files that it has."""
    from sasgp.cli import runs

    files = [out / name for name in (*runs.FILES, *runs.OF_TARGETS) if (out / name).is_file()]
    return {"run": out, **runs.find(out).info, "wrote": files}


def _draw(estimator: "SASGP", embedding: "Embedding", dataset: "Dataset", run: Path, *, with_rows: bool = True) -> None:
    """Write the pictures of a run and its page, which shows rows if the data set has all of them."""
    from sasgp.cli import files, runs

    draw_run(estimator, embedding, dataset, run)
    with files.replacing(run / runs.EXPLORER) as file:
        about = None if with_rows else runs.find(run)
        explorer_page(estimator, embedding, dataset if with_rows else None, dataset.name, about).save(file)


def _draw_again(out: Path, open_: bool) -> bool:
    """Draw a run whose process was killed while it drew. Returns whether there was anything to draw."""
    from sasgp.cli import runs

    if not runs.lacks_pictures(out):
        return False
    if rank_of_process():
        return True
    if runs.find(out).target is not None:
        fit_target.draw_again(out)
        return True

    from sasgp.cli.loading import known_embedding, load_data, load_model

    with complete(out, PICTURES):
        estimator, run = load_model(out)
        if run.folder is None or run.source is None:
            return False
        dataset = replace(load_data(run.source, None, estimator, run, run.metadata), image_shape=run.image_shape)
        embedding = known_embedding(estimator, run)
        embedding = replace(embedding, Z=embedding.Z.astype(estimator.embedding_.dtype))  # as when it was written
        _draw(estimator, embedding, dataset, run.folder, with_rows=not run.updates)
    _show_pictures(out, open_)
    return True


def _show_pictures(out: Path, open_: bool) -> None:
    from sasgp.cli import runs
    from sasgp.data.files import real_path

    show([report.pictures(out)])
    if open_:
        open_page(real_path(out) / runs.EXPLORER)


def _train(request: Request, source: str, out: Path, resumed: bool) -> Trained | None:
    """Load the data, train and write the files of the run. None in all processes but the first."""
    from sasgp.cli import unfinished
    from sasgp.data import load

    asked, options = request.table, request.options
    dataset = load(source, labels=request.labels, missing=asked.missing, metadata=asked.metadata)

    # These import torch, and a wrong path should not have to wait for it
    from sasgp.data.images import check_shape
    from sasgp.data.rows import check_values
    from sasgp.data.tables import is_frame

    if options.image_shape is not None:
        dataset = replace(dataset, image_shape=check_shape(options.image_shape, dataset.X.shape[1]))
    elif options.encoder == "conv":
        options = replace(options, image_shape=dataset.image_shape)
    dataset, columns = as_table(dataset, request.table)
    estimator = request.estimator(replace(options, columns=columns))
    if not is_frame(dataset.X):
        check_values(dataset.X, source, dataset.columns)  # before the shuffle, because it names rows by their place
    seed = check_seed(options.random_state)
    dataset, split, size_factor = held_out(dataset, request.test_fraction, seed)
    first = not rank_of_process()
    if first:
        show_columns(split.train.X, columns)
    with unfinished.begun(out, request.as_json(), resumed=resumed) as work:
        start = perf_counter()
        callback = _callback(work, split, tensorboard=request.tensorboard) if first else None
        estimator.fit(split.train.X, checkpoint=work.checkpointer, resume=work.resume, callback=callback)
        knows_genes(estimator, source, dataset, size_factor)
        if not first:
            return None
        seconds = work.seconds_before + perf_counter() - start
        return _write(request, dataset, split, estimator, seconds, seed, out)


def _callback(work: "Work", split: "Split", *, tensorboard: bool) -> Any:
    """What is written after each epoch."""
    import numpy as np

    from sasgp.data.rows import take_rows
    from sasgp.estimators.callbacks import History, TensorBoard, combined

    history = History(work.history)
    if not tensorboard:
        return history
    some = np.arange(0, len(split.train.X), max(1, len(split.train.X) // N_WATCHED))
    labels = None if split.train.y is None else split.train.y[some]
    return combined([history, TensorBoard(work.run / "tensorboard", take_rows(split.train.X, some), labels)])


def _write(
    request: Request,
    dataset: "Dataset",
    split: "Split",
    estimator: "SASGP",
    seconds: float,
    seed: int,
    out: Path,
) -> Trained:
    """Evaluate the model, and write the files of the run except its pictures."""
    from sasgp.cli import runs
    from sasgp.evaluation import quality

    train, test, Z_test = split.train, split.test, None
    embedding = runs.Embedding(train.rows, estimator.embedding_, train.y)
    if test is None:
        embedding = embedding.as_train()
    else:
        Z_test = estimator.transform(test.X)
        embedding = embedding.as_train(runs.Embedding(test.rows, Z_test, test.y), by_row=dataset.X_test is None)
    embedding = embedding.named(dataset.ids)
    metrics = quality(estimator, split, Z_test, seed)
    info = report.run_info(request, dataset, split, estimator, seconds, metrics)
    write_run(out, estimator, info, lambda folder: embedding.write(folder / runs.EMBEDDING))
    return Trained(dataset, estimator, embedding, info)
