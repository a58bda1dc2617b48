"""`sasgp fit`: train, and leave a folder with all that belongs to the run."""

import json
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args

from cyclopts import Parameter

from sasgp import __version__
from sasgp.cli.arguments import LINE, Data, Flag, Labels, Open, app, seed_of
from sasgp.cli.drawing import draw_run, explorer_page, open_page
from sasgp.cli.printing import AT_LENGTH, THROUGH, Line, Section, metric_lines, show
from sasgp.errors import InputError
from sasgp.models.settings import InducingSettings, NetworkSettings, Settings, documented
from sasgp.training.progress import rank_of_process

if TYPE_CHECKING:
    from sasgp.cli.runs import Embedding
    from sasgp.cli.unfinished import Work
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP
    from sasgp.evaluation import Split

__all__ = ["DEFAULTS", "Options", "fit"]


@dataclass(eq=False, repr=False)
class Options(NetworkSettings, InducingSettings, Settings):
    __doc__ = "What a user may choose.\n" + documented(Settings, InducingSettings, NetworkSettings)

    latents: Literal["bayesian", "point"] | None = None  # type: ignore[assignment]  # the model's own default
    random_state: int | None = 0  # a command gives the same result again unless asked not to
    verbose: bool = True
    image_shape: Annotated[tuple[int, ...] | None, Parameter(consume_multiple=True, negative=())] = None


def _of_the_command_line(kind: Any) -> Any:
    """A setting's type without what only Python can pass: of `Literal["pca", "random"] | Any`, the names."""
    return next((part for part in get_args(kind) if Any in get_args(kind) and part is not Any), kind)


Options.__annotations__ = {field.name: _of_the_command_line(field.type) for field in fields(Options)}
DEFAULTS = Options()
MODELS = {"sasgp": "SASGP", "gplvm": "GPLVM", "bayesian-gplvm": "BayesianGPLVM", "vae": "VAE"}
SIZES = {"active_set_size": "active set", "n_inducing": "inducing points"}


@app.command
def fit(
    data: Data | None = None,
    /,
    *,
    out: Path | None = None,
    resume: Path | None = None,
    labels: Labels = None,
    model: Literal["sasgp", "gplvm", "bayesian-gplvm", "vae"] = "sasgp",
    test_fraction: float | None = None,
    overwrite: Annotated[bool, Flag] = False,
    open_: Open = False,
    tensorboard: Annotated[bool, Flag] = False,
    options: Annotated[Options, Parameter(name="*")] = DEFAULTS,
) -> None:
    """Train a decoder.

    Leaves model.safetensors (of sasgp and gplvm with up to --support-size rows of the data in it), embedding.csv,
    history.jsonl, run.json, latent.png, loss.png and explorer.html in the folder OUT. Files may be .npy (which stays on
    disk), .npz, .csv, .tsv, .parquet and .h5ad.

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
        "bayesian-gplvm": inducing points. "vae": a variational autoencoder. An option that a model does not have is
        an error.
    test_fraction
        Share of a file's rows to hold out for the metrics. By default 0.1, but at most 10 000 rows, and nothing of
        fewer than 50; 0 trains on everything. Rows are drawn at random; of a .npy file above 64 MiB the last ones.
        Named data sets have a test split of their own.
    overwrite
        Replace the files of a run that is already there.
    tensorboard
        Write event files to OUT/tensorboard. Needs the package tensorboard.
    """
    from sasgp.cli import files, runs, unfinished
    from sasgp.data import load

    asked = _asked(data, labels, model, test_fraction, overwrite, tensorboard, options)
    if resume is not None:
        if out is not None:
            raise InputError("--resume names the folder of the run itself. Got --out besides; leave one out.")
        typed = _typed()
        given = {name: value for name, value in asked.items() if name in typed or (name == "data" and value)}
        out, asked = resume, unfinished.request(resume, given)
        data, labels, model, test_fraction = (asked[key] for key in ("data", "labels", "model", "test_fraction"))
        overwrite, tensorboard = True, asked["tensorboard"]
        options = Options(**{field.name: asked.get(field.name, field.default) for field in fields(Options)})
    if data is None or out is None:
        raise InputError("fit needs DATA and --out RUN, or --resume RUN. Try `sasgp fit --help`.")
    first = not rank_of_process()
    if resume is None and first:
        runs.check_new(out, overwrite=overwrite)
    dataset = load(data, labels=labels)

    from sasgp.data.images import check_shape
    from sasgp.data.rows import check_finite
    from sasgp.evaluation import hold_out  # torch comes with these: a wrong path should not wait for it

    if options.image_shape is not None:
        dataset = replace(dataset, image_shape=check_shape(options.image_shape, dataset.X.shape[1]))
    elif options.encoder == "conv":
        options = replace(options, image_shape=dataset.image_shape)  # a data set by name knows it
    estimator = _estimator(model, options)
    check_finite(dataset.X, data, dataset.columns)  # before rows are shuffled: it names them by their place in the file
    seed = seed_of(options.random_state)
    split = hold_out(dataset, test_fraction, seed)
    with unfinished.begun(out, asked, resumed=resume is not None) as work:
        start = perf_counter()
        watch = _watch(work, split, tensorboard=tensorboard) if first else None
        estimator.fit(split.train.X, checkpoint=work.keeper, resume=work.resume, callback=watch)
        if first:
            seconds = work.seconds_before + perf_counter() - start
            run, info, embedding = _write(data, dataset, split, estimator, seconds, seed, out, asked)
    if first:
        with _whole(out):
            show(_summary(info, _labels(asked["labels"], dataset), out))
            draw_run(estimator, embedding, dataset, run)
            with files.replacing(run / runs.EXPLORER) as file:
                explorer_page(estimator, embedding, dataset, dataset.name).save(file)
        show([_pictures(out)])
        if open_:
            open_page(run / runs.EXPLORER)


@contextmanager
def _whole(out: Path) -> Iterator[None]:
    """Say of what goes wrong with a picture that the run is whole without it."""
    run = shlex.quote(str(out))
    how = f"The run is whole: `sasgp explore {run}` and `sasgp plot {run} --out FOLDER` make its pictures."
    try:
        yield
    except KeyboardInterrupt as error:
        error.args = (f"interrupted while drawing. {how}",)
        raise
    except (InputError, OSError) as error:
        error.add_note(how)
        raise


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
    from sasgp.data.named import NAMES

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
        **{field.name: getattr(options, field.name) for field in fields(Options)},
        "image_shape": None if options.image_shape is None else list(options.image_shape),
    }


def _watch(work: "Work", split: "Split", *, tensorboard: bool) -> Any:
    import numpy as np

    from sasgp.data.rows import take_rows
    from sasgp.estimators.callbacks import History, TensorBoard, combined

    history = History(work.history)
    if not tensorboard:
        return history
    some = np.arange(0, len(split.train.X), max(1, len(split.train.X) // 2000))
    labels = None if split.train.y is None else split.train.y[some]
    return combined([history, TensorBoard(work.run / "tensorboard", take_rows(split.train.X, some), labels)])


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
    from sasgp.cli import runs
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
    try:
        with runs.created(out) as (folder, run):
            estimator.save(folder / runs.MODEL)
            embedding.write(folder / runs.EMBEDDING)
            lines = "".join(json.dumps(record) + "\n" for record in estimator.history_)
            (folder / runs.HISTORY).write_text(lines, encoding="utf-8")
            (folder / runs.INFO).write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
    except (OSError, InputError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        reason = cause.strerror or cause
        raise InputError(f"{out} could not be written: {reason}; {_rescued(estimator)}.") from error
    return run, info, embedding


def _rescued(estimator: "SASGP") -> str:
    """Save a model, whose training took time, where there may be room for it; says what became of it."""
    from sasgp.cli import runs

    try:
        folder = Path(tempfile.mkdtemp(prefix="sasgp-"))
        try:
            estimator.save(folder / runs.MODEL)
        except (OSError, InputError):
            folder.rmdir()
            raise
    except (OSError, InputError):
        return "free some space or choose another place"
    return f"the trained model is {folder / runs.MODEL} instead"


def _typed() -> set[str]:
    """Names of the options that were typed: they count also at the value that they have by default."""
    options = (token[2:].partition("=")[0] for token in LINE if token.startswith("--"))
    return {name.removeprefix("no-").replace("-", "_") for name in options}


def _estimator(model: str, options: Options) -> Any:
    """The estimator that was asked for. What was not typed is left to its own defaults."""
    from sasgp import estimators

    cls: Any = getattr(estimators, MODELS[model])
    own = {field.name for field in fields(cls) if field.init}
    values = {field.name: getattr(options, field.name) for field in fields(Options)}
    chosen = {name: value for name, value in values.items() if value != getattr(DEFAULTS, name)}
    for name in sorted((chosen.keys() | (_typed() & values.keys())) - own):
        makes = " makes every row active" if name in ("active_set_size", "batch_size") and model == "gplvm" else ""
        raise InputError(
            f"--model {model}{makes or ' has no such option'}. Got --{name.replace('_', '-')}; leave it out, or use "
            f"--model {next(other for other in MODELS if _has(other, name))}."
        )
    return cls(**chosen | {"random_state": options.random_state, "verbose": options.verbose})


def _has(model: str, name: str) -> bool:
    from sasgp import estimators

    return any(field.name == name and field.init for field in fields(getattr(estimators, MODELS[model])))


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
            **{name: getattr(estimator, f"{name}_") for name in SIZES if hasattr(estimator, f"{name}_")},
            "batch_size": estimator.batch_size_,
            "epochs": len(estimator.history_),
            "seconds": round(seconds, 2),
            "objective": -estimator.history_[-1]["loss"],
            "noise": estimator.model_.monitor()["noise"],
            "relevance": [round(float(share), 4) for share in getattr(estimator, "relevance_", ())],
        },
        "metrics": metrics,
    }


def _labels(asked: str | None, dataset: "Dataset") -> "list[Line]":
    """Which labels a file gave; nothing of a data set by name."""
    from sasgp.data.readers import LABEL_SUFFIXES

    if dataset.labels is None:
        return []
    note = "a file of its own" if Path(dataset.labels).suffix.lower() in LABEL_SUFFIXES else "of the data's file"
    if asked is None:
        note += ", taken for its name; --labels names another"
    return [("labels", dataset.labels, note)]


def _summary(info: dict[str, Any], labels: "list[Line]", run: Path) -> "list[Section]":
    from sasgp.cli import runs

    data, training, metrics = info["data"], info["training"], info["metrics"]
    held_out = f"{data['held_out']} held out: {data['how']}" if data["held_out"] else data["how"]
    what: list[Line] = [
        ("rows", str(data["rows"]), held_out),
        ("features", str(data["features"]), ""),
        *labels,
        ("latents", str(training["n_components"]), f"dimensions, {training['latents']}"),
        *((label, str(training[name]), "") for name, label in SIZES.items() if name in training),
        ("batches", str(training["batch_size"]), "rows each"),
        ("epochs", str(training["epochs"]), f"in {training['seconds']:.1f} seconds"),
        ("objective", f"{training['objective']:.4f}", "nats for each value"),
        ("noise", f"{training['noise']:.4g}", "variance"),
    ]
    if training["relevance"]:
        shares = " ".join(f"{share:.2f}" for share in training["relevance"])
        what.append(("relevance", shares, "spread of latents in lengthscales"))
    which = f"{metrics['rows']} rows that were held out" if data["held_out"] else f"{metrics['rows']} training rows"
    components = f"{training['n_components']} component{'s' * (training['n_components'] > 1)}"
    notes = {"rmse": f"PCA with {components} has {metrics['pca_rmse']:.4f}"}
    if not data["held_out"]:
        notes["knn_1"] = "5-fold cross-validation"
    brief = {name: value for name, value in metrics.items() if name not in AT_LENGTH}
    about = {
        runs.MODEL: f"the trained model, with{'out' * ('active_set_size' not in training)} rows of the data",
        runs.EMBEDDING: "a line for every row",
        runs.HISTORY: "a line for every epoch",
        runs.INFO: "data, command, versions and these numbers",
    }
    files: list[Line] = [("", run / name, note) for name, note in about.items()]
    return [
        (f"trained {training['model']} on {data['name']}", what),
        (f"on {which}, {THROUGH}", metric_lines(brief, notes)),
        ("wrote", files),
    ]


def _pictures(run: Path) -> "Section":
    from sasgp.cli import runs

    about = {
        runs.EXPLORER: "look around in the latent space",
        runs.LATENT: "the latent space",
        runs.LOSS: "training",
    }
    return "\nopen", [("", run / name, note) for name, note in about.items()]
