"""The command line.

    sasgp fit digits --out runs/digits
    sasgp embed runs/digits new.csv --out latents.csv
    sasgp decode runs/digits latents.csv --out decoded.npz
    sasgp sample runs/digits -n 25 --out samples.png
    sasgp evaluate runs/digits new.csv --labels species --json
    sasgp evidence runs/digits --method exact
    sasgp explore runs/digits --open
    sasgp plot runs/digits --relevance --out figures

Results go to standard output, progress and errors to standard error. What the user can put right is one line and exit
code 2; arithmetic that fails is 1; anything else is a bug and shows its traceback. What is heavy is imported inside of
the commands, so that help appears at once.
"""

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import App, CycloptsError, Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from sasgp import __version__
from sasgp.errors import InputError
from sasgp.progress import progress_bar, rank_of_process
from sasgp.settings import Settings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from sasgp.datasets import Dataset
    from sasgp.estimators import SASGP
    from sasgp.evaluation import Split
    from sasgp.explorer import Explorer
    from sasgp.runs import Embedding, Run
    from sasgp.unfinished import Work

__all__ = ["app", "main"]

LINE: list[str] = []  # what was typed after `sasgp`
DPI = 150
PLOTTED = 60_000  # points of a picture at the most
SHOWN_ROWS = 12  # reconstructed in a picture

THROUGH = "through the latent space, z = encoder(x)"
METRICS = {
    "rmse": ("RMSE", ""),
    "mae": ("MAE", ""),
    "nlpd": ("NLPD", "signed; lower is better"),
    "coverage_50": ("50 % intervals", "share of values in them: .50 is calibrated"),
    "coverage_90": ("90 % intervals", ""),
    "coverage_99": ("99 % intervals", ""),
    "knn_1": ("1-NN accuracy", ""),
    "knn_15": ("15-NN accuracy", ""),
    "trustworthiness": ("trustworthiness", "neighbours in z are neighbours in x: 1 at best, .5 by chance"),
    "continuity": ("continuity", "neighbours in x are neighbours in z"),
    "neighbour_recall": ("15-NN recall", "share of the neighbours in x that are neighbours in z"),
    "triplets": ("triplets in order", "arrangement as a whole: 1 at best, .5 by chance"),
    "silhouette": ("silhouette", "of the labels in z: −1 to 1"),
}
AT_LENGTH = ("continuity", "neighbour_recall", "silhouette")  # of `evaluate`; `fit` is brief

app = App(
    name="sasgp",
    version=__version__,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
    help="Gaussian-process decoders: latent spaces with honest uncertainty, trained with stochastic active sets.",
)


@dataclass(eq=False, repr=False)
class Options(Settings):
    __doc__ = Settings.__doc__

    latents: Literal["bayesian", "point"] | None = None  # type: ignore[assignment]  # the model's own default
    random_state: int | None = 0  # a command gives the same result again unless asked not to
    verbose: bool = True


def _of_the_command_line(kind: Any) -> Any:
    """A setting's type without what only Python can pass: of `Literal["pca", "random"] | Any`, the names."""
    return next((part for part in get_args(kind) if Any in get_args(kind) and part is not Any), kind)


Options.__annotations__ = {field.name: _of_the_command_line(field.type) for field in fields(Options)}
DEFAULTS = Options()

Data = Annotated[str, Parameter(help="A data set (digits, mnist, fashion-mnist, cifar10, oil-flow) or a file.")]
Model = Annotated[Path, Parameter(help="The folder of a run, or a .safetensors file.")]
Labels = Annotated[
    str | None,
    Parameter(help="The labels: a column of the file, an array of a .npz file, or a file with one label a row."),
]
Flag = Parameter(negative=())
Open = Annotated[bool, Parameter(name="--open", negative=(), help="Open it in the browser.")]


@app.command
def fit(
    data: Data | None = None,
    /,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    labels: Labels = None,
    model: Literal["sasgp", "gplvm"] = "sasgp",
    test_fraction: float | None = None,
    overwrite: Annotated[bool, Flag] = False,
    open_: Open = False,
    tensorboard: Annotated[bool, Flag] = False,
    options: Annotated[Options, Parameter(name="*")] = DEFAULTS,
) -> None:
    """Train a decoder.

    Leaves model.safetensors (with up to --support-size rows of the data in it), embedding.csv, history.jsonl, run.json,
    latent.png, loss.png and explorer.html in the folder OUT. Files may be .npy (which stays on disk), .npz, .csv, .tsv
    and .parquet.

    While it trains, OUT/unfinished has a checkpoint and the history so far. Ctrl-C and SIGTERM finish the step, save
    and stop; so interrupted, or killed, a run goes on with `sasgp fit --resume OUT` to the same result. Under torchrun
    all processes train one model, each with batches of its own.

    Parameters
    ----------
    out
        The folder to write.
    resume
        The folder of a run that was interrupted: goes on with it. Needs no other argument.
    model
        "sasgp": stochastic active sets. "gplvm": the exact GP-LVM, whose latents are points by default.
    test_fraction
        Share of a file's rows to hold out for the metrics. By default 0.1, but at most 10 000 rows, and nothing of
        fewer than 50; 0 trains on everything. Rows are drawn at random; of a .npy file above 64 MB the last ones.
        Named data sets have a test split of their own.
    overwrite
        Replace the files of a run that is already there.
    tensorboard
        Write event files to OUT/tensorboard. Needs the extra: pip install 'sasgp[tensorboard]'.
    """
    from sasgp import files, runs, unfinished
    from sasgp.data import load

    asked = _asked(data, labels, model, test_fraction, overwrite, tensorboard, options)
    if resume is not None:
        if out is not None:
            raise InputError("--resume names the folder of the run itself. Got --out besides; leave one out.")
        # --data-like options count where they were typed, also at the value that they have by default
        options_typed = (token[2:].partition("=")[0] for token in LINE if token.startswith("--"))
        typed = {name.removeprefix("no-").replace("-", "_") for name in options_typed}
        given = {name: value for name, value in asked.items() if name in typed or (name == "data" and value)}
        out, asked = resume, unfinished.request(resume, given)
        data, labels, model, test_fraction = (asked[key] for key in ("data", "labels", "model", "test_fraction"))
        overwrite, tensorboard = True, asked["tensorboard"]
        options = Options(**{field.name: asked.get(field.name, field.default) for field in fields(Settings)})
    if data is None or out is None:
        raise InputError("fit needs DATA and --out RUN, or --resume RUN. Try `sasgp fit --help`.")
    first = not rank_of_process()
    if resume is None and first:
        runs.check_new(out, overwrite=overwrite)
    dataset = load(data, labels=labels)

    from sasgp.evaluation import hold_out  # torch comes with these: a wrong path should not wait for it
    from sasgp.rows import check_finite

    estimator = _estimator(model, options)
    check_finite(dataset.X)  # before rows are shuffled: they are named by their place in the file
    seed = _seed(options.random_state)
    split = hold_out(dataset, test_fraction, seed)
    with unfinished.begun(out, asked, resumed=resume is not None) as work:
        start = perf_counter()
        watch = _watch(work, split, tensorboard=tensorboard) if first else None
        estimator.fit(split.train.X, checkpoint=work.keeper, resume=work.resume, callback=watch)
        if first:
            seconds = work.seconds_before + perf_counter() - start
            run, info, embedding = _write(data, dataset, split, estimator, seconds, seed, out, asked)
    if first:
        # From here on the run is safe, whatever happens to a picture
        _draw(estimator, embedding, dataset, run)
        with files.replacing(run / runs.EXPLORER) as file:
            _explorer(estimator, embedding, dataset, dataset.name).save(file)
        _show(_summary(info, out))
        if open_:
            _open(run / runs.EXPLORER)


def _seed(random_state: int | None) -> int:
    if random_state is not None and not 0 <= random_state < 2**32:
        raise InputError(f"--random-state must be from 0 to 2³² − 1. Got {random_state}; choose another.")
    return random_state or 0


def _asked(
    data: str | None,
    labels: str | None,
    model: str,
    test_fraction: float | None,
    overwrite: bool,
    tensorboard: bool,
    options: Options,
) -> dict[str, Any]:
    """What `fit` was asked for, as JSON: paths are absolute, so that it can be asked again from anywhere."""
    from sasgp.datasets import NAMES

    def absolute(path: str | None) -> str | None:
        return (
            str(Path(path).expanduser().resolve()) if path is not None and Path(path).expanduser().is_file() else path
        )

    return {
        "data": data if data in NAMES else absolute(data),
        "labels": absolute(labels),
        "model": model,
        "test_fraction": test_fraction,
        "overwrite": overwrite,
        "tensorboard": tensorboard,
        "command": shlex.join(["sasgp", *LINE]),
        **{field.name: getattr(options, field.name) for field in fields(Settings)},
    }


def _watch(work: "Work", split: "Split", *, tensorboard: bool) -> Any:
    import numpy as np

    from sasgp.rows import take_rows
    from sasgp.watching import History, TensorBoard, every

    history = History(work.history)
    if not tensorboard:
        return history
    some = np.arange(0, len(split.train.X), max(1, len(split.train.X) // 2000))
    labels = None if split.train.y is None else split.train.y[some]
    return every([history, TensorBoard(work.run / "tensorboard", take_rows(split.train.X, some), labels)])


def _write(
    source: str,
    dataset: "Dataset",
    split: "Split",
    estimator: "SASGP",
    seconds: float,
    seed: int,
    out: Path,
    asked: dict[str, Any],
) -> "tuple[Path, dict[str, Any], Embedding]":
    """The run's files; returns their folder, what run.json holds, and the embedding."""
    from sasgp import runs
    from sasgp.evaluation import quality

    train, test, Z_test = split.train, split.test, None
    embedding = runs.Embedding(train.rows, estimator.embedding_, train.y)
    if test is None:
        embedding = embedding.as_train()
    else:
        Z_test = estimator.transform(test.X)
        embedding = embedding.as_train(runs.Embedding(test.rows, Z_test, test.y), by_row=dataset.X_test is None)
    metrics = quality(estimator, split, Z_test, seed)
    info = {"command": asked["command"], **_info(source, dataset, split, estimator, seconds, metrics)}
    info["data"]["labels"] = asked["labels"]
    with runs.created(out) as (folder, run):
        estimator.save(folder / runs.MODEL)
        embedding.write(folder / runs.EMBEDDING)
        lines = "".join(json.dumps(record) + "\n" for record in estimator.history_)
        (folder / runs.HISTORY).write_text(lines, encoding="utf-8")
        (folder / runs.INFO).write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
    return run, info, embedding


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

    from sasgp import files
    from sasgp.evaluation import tidy_labels
    from sasgp.runs import Embedding

    files.check_suffix(out, (".csv", ".npy"), data)
    with files.replacing(out) as file:
        estimator, run = _load(model)
        dataset = _data(data, labels, estimator, run)
        Z = estimator.transform(dataset.X, refine=refine)
        embedding = Embedding(np.arange(len(Z)), Z, tidy_labels(dataset.y))
        if dataset.X_test is not None:
            Z = estimator.transform(dataset.X_test, refine=refine)
            embedding = embedding.as_train(Embedding(np.arange(len(Z)), Z, tidy_labels(dataset.y_test)))
        if out.suffix.lower() == ".npy":
            np.save(file, embedding.Z)
        else:
            embedding.write(file)
    _show([("", [("wrote", str(out), f"{len(embedding.Z)} rows, {estimator.n_components_} dimensions")])])


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

    from sasgp import files

    files.check_suffix(out, (".csv", ".npy", ".npz"), latents)
    if std and out.suffix.lower() == ".npy":
        raise InputError("a .npy file holds one array. Got --std with it; choose .npz or .csv for --out.")
    with files.replacing(out) as file:
        estimator, run = _load(model)
        Z = files.read_latents(latents, estimator.n_components_)
        mean, deviation = estimator.predict(Z, return_std=True)
        if out.suffix.lower() == ".npz":
            np.savez(file, mean=mean, std=deviation)
        elif out.suffix.lower() == ".npy":
            np.save(file, mean)
        else:
            columns = _columns(run, estimator)
            if std:
                mean, columns = np.hstack([mean, deviation]), [*columns, *(f"{name}_std" for name in columns)]
            files.write_csv(file, columns, mean)
    _show([("", [("wrote", str(out), f"{len(Z)} rows, {estimator.n_features_in_} features")])])


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

    from sasgp import files

    files.check_suffix(out, (".csv", ".npy", ".png"))
    with files.replacing(out) as file:
        estimator, run = _load(model)
        picture = out.suffix.lower() == ".png"
        if picture and run.image_shape is None:
            raise InputError(
                "a .png needs rows that are images, and MODEL a run whose run.json has their shape. "
                f"Got {model}, which has none; choose .csv or .npy for --out."
            )
        X = estimator.sample(n, noise=noise, random_state=random_state)
        if picture:
            from sasgp import plots

            assert run.image_shape is not None
            plots.contact_sheet(X, run.image_shape).savefig(file, dpi=DPI)
        elif out.suffix.lower() == ".npy":
            np.save(file, X)
        else:
            files.write_csv(file, _columns(run, estimator), X)
    _show([("", [("wrote", str(out), f"{n} rows, {estimator.n_features_in_} features")])])


@app.command
def evaluate(
    model: Model,
    data: Data,
    /,
    *,
    labels: Labels = None,
    refine: int = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Measure how well a model reconstructs data, and how well its latents keep labels together.

    Of a named data set its test rows are used; of the file that the run was trained on, those that were held out.

    Parameters
    ----------
    refine
        Steps by which the density of every row is climbed from the encoder's answer; 20 is enough for most.
    as_json
        Print one JSON object instead of a table.
    """
    from sasgp.evaluation import are_classes, knn, knn_cross_validated, reconstruction, structure, tidy_labels

    estimator, run = _load(model)
    dataset = _data(data, labels, estimator, run)
    known = run.embedding()
    X, y, which = _rows_to_evaluate(data, dataset, run, known)
    Z = estimator.transform(X, refine=refine)
    result: dict[str, Any] = {"rows": len(X), "which": which, **reconstruction(estimator, X, Z)}
    y, train = tidy_labels(y), None if known is None else known.only("train")
    if train is not None and are_classes(train.labels):
        neighbours, how = knn(train.Z, train.labels, Z, y), "neighbours among the run's training rows"
    else:
        neighbours, how = knn_cross_validated(Z, y), "neighbours among these rows, in 5-fold cross-validation"
    if neighbours:
        result |= neighbours | {"neighbours": how}
    result |= structure(X, Z, y)
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        through = f"through the latent space, z refined in {refine} steps" if refine else THROUGH
        _show([(f"{len(X)} rows ({which}), {through}", _metric_lines(result, {"knn_1": how}))])


@app.command
def evidence(
    model: Model,
    data: Data | None = None,
    /,
    *,
    method: Literal["exact", "sas", "unbiased"] | None = None,
    curve: Path | None = None,
    labels: Labels = None,
    rows: int | None = None,
    active_set_size: int | None = None,
    n_estimates: int = 20,
    dtype: Literal["float64", "float32"] = "float64",
    random_state: int | None = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Compute the evidence log p(X|Z): how probable the data are, given the latents that the encoder finds.

    Without DATA, and of the data that the run was trained on, the training rows are used; of others all rows.

    Parameters
    ----------
    method
        "exact" (the default): the number itself; time grows with the cube of the rows, memory with their square.
        "sas": the training estimate over random active sets. "unbiased": SAS with a random correction whose mean is
        exact; each estimate costs about a quarter of the exact number.
    curve
        A .png file to write: how well a row is predicted from more and more others, and whether more active points
        would help. Without --method nothing else is computed.
    rows
        Use as many rows, drawn at random, instead of all.
    active_set_size
        Of "sas" and "unbiased". By default that of training.
    n_estimates
        Independent repetitions.
    dtype
        "float32" takes half of the memory and of the time.
    random_state
        Seed. None draws a new one each time.
    as_json
        Print one JSON object instead of a table.
    """
    from dataclasses import asdict

    from sasgp import files

    if curve is not None:
        files.check_suffix(curve, (".png",), data, "--curve")
    estimator, run = _load(model)
    X, Z, which = _rows_of_evidence(estimator, run, data, labels, rows, random_state)
    options: dict[str, Any] = {"Z": Z, "n_estimates": n_estimates, "dtype": dtype, "random_state": random_state}
    result: dict[str, Any] = {"rows": len(X), "which": which}
    lines: list[Line] = []
    if method is not None or curve is None:
        found = estimator.evidence(X, method=method or "exact", active_set_size=active_set_size, **options)
        result |= asdict(found) | {"per_value": found.per_value}
        lines += found.lines()
    if curve is not None:
        from sasgp import plots

        with files.replacing(curve) as file:
            shape = estimator.evidence_curve(X, **options)
            plots.evidence_curve(shape, title=run.name).savefig(file, dpi=DPI)
        mean, error = (part.tolist() for part in (shape.mean, shape.standard_error))
        result["curve"] = {"sizes": shape.sizes.tolist(), "mean": mean, "standard_error": error, "says": str(shape)}
        lines.append(("wrote", curve, str(shape)))
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        _show([(f"{len(X)} rows ({which}), given the latents that the encoder finds", lines)])


@app.command
def explore(
    model: Model, /, *, data: Data | None = None, labels: Labels = None, out: Path | None = None, open_: Open = False
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

    from sasgp import files, runs
    from sasgp.evaluation import tidy_labels
    from sasgp.labels import parsed

    if labels is not None and data is None:
        raise InputError(f"--labels belong to the rows of --data. Got --labels {labels} alone; add --data.")
    run = runs.find(model)
    if out is None:
        out = run.model.with_suffix(".html") if run.folder is None else run.folder / runs.EXPLORER
    files.check_suffix(out, (".html", ".htm"), data)
    with files.replacing(out) as file:
        estimator, run = _load(model)
        dataset, name = None, run.name
        if data is not None:
            dataset = _data(data, labels, estimator, run)
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
                embedding = replace(embedding, labels=parsed(embedding.labels.tolist()))
        _explorer(estimator, embedding, dataset, name, run).save(file)
    _show([("", [("wrote", out, f"{len(embedding.Z)} points, {_size(out)}")])])
    if open_:
        _open(out)


@app.command
def plot(
    model: Model,
    /,
    *,
    out: Path,
    data: Data | None = None,
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
    from sasgp import files, plots
    from sasgp.evaluation import reconstruction

    if labels is not None and data is None:
        raise InputError(f"--labels belong to the rows of --data. Got --labels {labels} alone; add --data.")
    estimator, run = _load(model)
    X, embedding, shape, columns, name = _rows_to_draw(estimator, run, data, labels)
    Z, few = embedding.Z, slice(0, SHOWN_ROWS)
    figures: dict[str, Callable[[], Figure]] = {
        "latent": lambda: plots.latent_space(estimator, Z, embedding.labels, title=name),
        "grid": lambda: plots.decoded_grid(estimator, shape, Z=Z, title=name),
        "curve": lambda: plots.training_curve(estimator.history_, title=name),
        "reconstructions": lambda: plots.reconstructions(
            estimator, X[few], image_shape=shape, feature_names=columns, title=name
        ),
        "relevance": lambda: plots.relevance(estimator, title=name),
        "calibration": lambda: plots.calibration(held_out()["pit"], title=name),
    }

    def held_out() -> dict[str, Any]:
        if data is None:
            raise InputError("--calibration is judged by rows that the model was not trained on; add --data.")
        rows, _, _ = _rows_to_evaluate(data, _data(data, labels, estimator, run), run, run.embedding())
        return reconstruction(estimator, rows, estimator.transform(rows))

    asked = dict(zip(figures, (latent, grid, curve, reconstructions, relevance, calibration), strict=True))
    with files.writable(out):
        out.expanduser().mkdir(parents=True, exist_ok=True)
    lines: list[Line] = []
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
    _show([("", lines)])


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
    from sasgp.datasets import IDX, fetch, read_idx
    from sasgp.synthetic import write_infinite

    raw = fetch("mnist")
    images, labels = (read_idx(raw[name], name) for name in IDX[:2])
    with progress_bar("digits", rows) as update:
        label_path = write_infinite(images, labels, rows, out, seed=seed, update=update)
    _show([("", [("wrote", str(out), f"{rows} rows of 28×28"), ("wrote", str(label_path), "their labels")])])


# ---------------------------------------------------------------------------------------------------- fit


def _estimator(model: str, options: Options) -> "SASGP":
    from sasgp.estimators import GPLVM, SASGP

    chosen = {field.name: getattr(options, field.name) for field in fields(Settings)}
    if options.latents is None:
        del chosen["latents"]
    if model == "sasgp":
        return SASGP(**chosen)
    for name in ("active_set_size", "batch_size"):
        if chosen.pop(name) != getattr(DEFAULTS, name):
            raise InputError(
                f"--model gplvm makes every row active. Got --{name.replace('_', '-')}; leave it out, or use "
                "--model sasgp."
            )
    return GPLVM(**chosen)


def _info(
    source: str, dataset: "Dataset", split: "Split", estimator: "SASGP", seconds: float, metrics: dict[str, Any]
) -> dict[str, Any]:
    """What run.json holds."""
    from importlib.metadata import version
    from platform import python_version

    from sasgp.data import NAMES

    packages = ("torch", "gpytorch", "numpy", "scikit-learn")
    return {
        "sasgp": __version__,
        "versions": {"python": python_version()} | {name: version(name) for name in packages},
        "data": {
            "name": dataset.name,
            "source": source if source in NAMES else str(Path(source).expanduser().resolve()),
            "rows": len(split.train.X),
            "held_out": 0 if split.test is None else len(split.test.X),
            "how": split.how,
            "features": estimator.n_features_in_,
            "image_shape": None if dataset.image_shape is None else list(dataset.image_shape),
            "columns": list(dataset.columns),
        },
        "training": {
            "model": type(estimator).__name__,
            "n_components": estimator.n_components_,
            "latents": estimator.latents,
            "active_set_size": estimator.active_set_size_,
            "batch_size": estimator.batch_size_,
            "epochs": len(estimator.history_),
            "seconds": round(seconds, 2),
            "objective": -estimator.history_[-1]["loss"],
            "noise": estimator.model_.monitor()["noise"],
            "relevance": [round(float(share), 4) for share in estimator.relevance_],
        },
        "metrics": metrics,
    }


def _draw(estimator: "SASGP", embedding: "Embedding", dataset: "Dataset", run: Path) -> None:
    import numpy as np

    from sasgp import files, plots, runs
    from sasgp.images import is_image_shape

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


def _explorer(
    estimator: "SASGP", embedding: "Embedding", dataset: "Dataset | None", name: str, run: "Run | None" = None
) -> "Explorer":
    """The page of an embedding whose rows are those of a data set, its test rows after the others, or unknown."""
    import numpy as np

    from sasgp.explorer import explore
    from sasgp.images import is_image_shape

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


def _open(page: Path) -> None:
    import webbrowser

    if not webbrowser.open(page.resolve().as_uri()):
        raise InputError(f"--open needs a browser, and none was found. Open {page} by hand.")


def _size(path: Path) -> str:
    return f"{path.stat().st_size / 1e6:.1f} MB"


def _summary(info: dict[str, Any], run: Path) -> "list[Section]":
    from sasgp import runs

    data, training, metrics = info["data"], info["training"], info["metrics"]
    held_out = f"{data['held_out']} held out: {data['how']}" if data["held_out"] else data["how"]
    what: list[Line] = [
        ("rows", str(data["rows"]), held_out),
        ("features", str(data["features"]), ""),
        ("latents", str(training["n_components"]), f"dimensions, {training['latents']}"),
        ("active set", str(training["active_set_size"]), f"rows of batches of {training['batch_size']}"),
        ("epochs", str(training["epochs"]), f"in {training['seconds']:.1f} seconds"),
        ("objective", f"{training['objective']:.4f}", "nats for each value"),
        ("noise", f"{training['noise']:.4g}", "variance"),
        ("relevance", " ".join(f"{share:.2f}" for share in training["relevance"]), "spread of latents in lengthscales"),
    ]
    which = f"{metrics['rows']} rows that were held out" if data["held_out"] else f"{metrics['rows']} training rows"
    components = f"{training['n_components']} component{'s' * (training['n_components'] > 1)}"
    notes = {"rmse": f"PCA with {components} has {metrics['pca_rmse']:.4f}"}
    if not data["held_out"]:
        notes["knn_1"] = "5-fold cross-validation"
    brief = {name: value for name, value in metrics.items() if name not in AT_LENGTH}
    about = {
        runs.MODEL: "the trained model, with rows of the data",
        runs.EMBEDDING: "a line for every row",
        runs.HISTORY: "a line for every epoch",
        runs.INFO: "data, command, versions and these numbers",
    }
    to_open = {
        runs.EXPLORER: "look around in the latent space",
        runs.LATENT: "the latent space",
        runs.LOSS: "training",
    }
    files: list[Line] = [("", run / name, note) for name, note in about.items()]
    pictures: list[Line] = [("", run / name, note) for name, note in to_open.items()]
    return [
        (f"trained {training['model']} on {data['name']}", what),
        (f"on {which}, {THROUGH}", _metric_lines(brief, notes)),
        ("wrote", files),
        ("open", pictures),
    ]


# ---------------------------------------------------------------------------------------------------- models and data


def _load(path: Path) -> "tuple[SASGP, Run]":
    """A model of whatever class the file names."""
    import sasgp
    from sasgp import runs, storage

    run = runs.find(path)
    header, _ = storage.read(run.model)
    for part in ("kernel", "encoder"):
        setting = header.get("settings", {}).get(part)
        if isinstance(setting, dict) and "custom" in setting:
            raise InputError(
                f"{run.model} was made with a {part} of the class {setting['custom']}, which the command line cannot "
                f"have: load it from Python with SASGP.load(path, {part}=...)."
            )
    name = header.get("class")
    if name not in sasgp.__all__:
        raise InputError(f"{run.model} holds a {name} model, which sasgp {__version__} does not know; upgrade sasgp.")
    model = getattr(sasgp, name).load(run.model)
    model.verbose = True
    return model, run


def _data(source: str, labels: str | None, model: "SASGP", run: "Run") -> "Dataset":
    """Data whose columns are those that the model was trained on."""
    from sasgp.data import load

    if labels is None and run.source in (source, str(Path(source).expanduser().resolve())):
        labels = run.labels  # the same file has them where it had them
    dataset = load(source, labels=labels)
    D, expected = dataset.X.shape[1], model.n_features_in_
    if expected != D:
        hint = "check that they belong together"
        if run.columns is not None and (missing := [name for name in run.columns if name not in dataset.columns]):
            hint = f"it lacks {', '.join(missing[:5])}{', …' * (len(missing) > 5)}"
        raise InputError(f"{source} must have {expected} features as the model's training data had. Got {D}; {hint}.")
    if run.columns is not None and set(run.columns) == set(dataset.columns) and (*run.columns,) != dataset.columns:
        place = {name: d for d, name in enumerate(dataset.columns)}
        X = dataset.X[:, [place[name] for name in run.columns]]
        return replace(dataset, X=X, columns=(*run.columns,))
    return dataset


def _rows_to_evaluate(source: str, dataset: "Dataset", run: "Run", known: "Embedding | None") -> tuple[Any, Any, str]:
    """Rows that the model was not trained on, as far as can be known, their labels, and which they are."""
    if dataset.X_test is not None:
        return dataset.X_test, dataset.y_test, f"the test split of {dataset.name}"
    if known is None or run.source != str(Path(source).expanduser().resolve()) or len(known.rows) != len(dataset.X):
        return dataset.X, dataset.y, "all of the file"
    rows = known.only("test").rows
    if not len(rows):
        return dataset.X, dataset.y, "those that the model was trained on"
    return dataset.X[rows], None if dataset.y is None else dataset.y[rows], "those that `fit` held out"


def _rows_of_evidence(
    estimator: "SASGP", run: "Run", data: str | None, labels: str | None, rows: int | None, random_state: int | None
) -> tuple[Any, Any, str]:
    """Rows, their latents where those are parameters of the model, and which they are."""
    import numpy as np

    from sasgp.rows import take_rows

    source = data or run.source
    if source is None:
        raise InputError(f"evidence needs data. Got {run.model} alone, which does not say where its own are; add DATA.")
    dataset, known = _data(source, labels, estimator, run), run.embedding()
    X, which, chosen, Z = dataset.X, f"all of {dataset.name}", None, None
    if known is not None and run.source in (source, str(Path(source).expanduser().resolve())):
        train = known.only("train").rows
        if len(train) == len(estimator.embedding_) and train.max(initial=-1) < len(X):
            which, chosen = "those that the model was trained on", train
            Z = estimator.embedding_ if estimator.encoder == "table" else None  # a network finds them again
    if rows is not None:
        N = len(X) if chosen is None else len(chosen)
        if not 1 <= rows <= N:
            raise InputError(f"--rows must be at least 1 and at most {N}, which is all. Got {rows}.")
        some = np.sort(np.random.default_rng(_seed(random_state)).permutation(N)[:rows])
        which, Z = f"{rows} of {which}, drawn at random", None if Z is None else Z[some]
        chosen = some if chosen is None else chosen[some]
    if chosen is not None and (chosen == np.arange(len(chosen))).all():
        X, chosen = X[: len(chosen)], None  # no copy of what is on disk
    return X if chosen is None else take_rows(X, chosen), Z, which


def _rows_to_draw(
    estimator: "SASGP", run: "Run", data: str | None, labels: str | None
) -> "tuple[Any, Embedding, tuple[int, ...] | None, Sequence[str], str]":
    """A few rows, an embedding to draw, the shape of an image, names of features, and what to call it all."""
    import numpy as np

    from sasgp.evaluation import tidy_labels
    from sasgp.images import is_image_shape
    from sasgp.labels import parsed
    from sasgp.runs import Embedding

    known, shape, name = run.embedding(), run.image_shape, run.name
    X, embedding = estimator.posterior_.X.numpy(force=True), Embedding(np.empty(0), estimator.embedding_, None)
    if data is not None:
        dataset = _data(data, labels, estimator, run)
        X, shape, name = dataset.X, dataset.image_shape, dataset.name
        embedding = Embedding(np.arange(len(X)), estimator.transform(X), tidy_labels(dataset.y))
    elif known is not None:
        embedding = replace(known, labels=None if known.labels is None else parsed(known.labels.tolist()))
    some = np.sort(np.random.default_rng(0).permutation(len(embedding.Z))[:PLOTTED])
    drawn = Embedding(some, embedding.Z[some], None if embedding.labels is None else embedding.labels[some])
    return X, drawn, shape if shape is not None and is_image_shape(shape) else None, _columns(run, estimator), name


def _columns(run: "Run", model: "SASGP") -> list[str]:
    D = model.n_features_in_
    return list(run.columns) if run.columns is not None and len(run.columns) == D else [f"x{d}" for d in range(D)]


# ---------------------------------------------------------------------------------------------------- printing

Line = tuple[str, str | Path, str]  # name, value, note
Section = tuple[str, list[Line]]  # heading, lines


def _metric_lines(values: dict[str, Any], notes: Mapping[str, str | None]) -> list[Line]:
    return [
        (name, f"{values[key]:.4f}", notes.get(key) or note) for key, (name, note) in METRICS.items() if key in values
    ]


def _show(sections: list[Section]) -> None:
    """Tables with colours on a terminal; elsewhere plain lines that are never wrapped."""
    console = Console()
    for i, (heading, lines) in enumerate(sections):
        title = "\n" * (i > 0) + heading
        if console.is_terminal:
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
            table.add_column(style="cyan", no_wrap=True)
            table.add_column(overflow="fold", style="green")
            table.add_column(style="dim")
            for name, value, note in lines:
                # A path can be clicked in terminals that know how
                link = f"link {value.resolve().as_uri()}" if isinstance(value, Path) else ""
                table.add_row(Text(name), Text(str(value), style=link), Text(note))
            if title:
                console.print(Text(title, style="bold"))
            console.print(table)
        else:
            names, values = (max(len(str(line[part])) for line in lines) for part in (0, 1))
            text = [f"{name:<{names}}  {value!s:<{values}}  {note}".rstrip() for name, value, note in lines]
            sys.stdout.write("\n".join([*([title] if title else []), *text]) + "\n")


def main(tokens: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    # Threads of torch that wait for each other spin for milliseconds by default, which a machine that others use, too,
    # pays for twice. It has to be said before torch is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    try:
        LINE[:] = sys.argv[1:] if tokens is None else tokens
        app(LINE, exit_on_error=False, print_error=False, result_action="return_value")
        sys.stdout.flush()
    except CycloptsError as error:
        command = " ".join(["sasgp", *(error.command_chain or ())])
        return _fail(f"{error} Try `{command} --help`.", 2)
    except BrokenPipeError:
        # The reader has left. What is still buffered goes nowhere, or Python would complain as it exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # as of a program that SIGPIPE ended
    except InputError as error:
        return _fail(_with_notes(error), 2)
    except OSError as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        return _fail(f"{f'{error.filename}: {error.strerror}' if error.filename else error} {notes}", 2)
    except ArithmeticError as error:
        from sasgp.objective import NotPositiveDefiniteError
        from sasgp.train import DivergedError

        if not isinstance(error, NotPositiveDefiniteError | DivergedError):
            raise
        return _fail(_with_notes(error), 1)
    except RuntimeError as error:
        if type(error).__name__ != "RankError":  # whose module would bring torch with it
            raise
        return _fail(_with_notes(error), 1)
    except KeyboardInterrupt as error:
        number = getattr(error, "signal_number", 2)
        return _fail(str(error) or "interrupted; nothing half-written is left.", 128 + number)
    return 0


def _with_notes(error: BaseException) -> str:
    return " ".join([str(error), *getattr(error, "__notes__", ())])


def _fail(message: str, code: int) -> int:
    sys.stderr.write(f"sasgp: error: {' '.join(message.split())}\n")
    return code
