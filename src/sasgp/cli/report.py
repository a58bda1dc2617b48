"""What `sasgp fit` says about a run: run.json, and the summary that it prints."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp import __version__
from sasgp.cli.loading import count_features
from sasgp.cli.printing import AT_LENGTH, THROUGH, Line, Section, metric_lines

if TYPE_CHECKING:
    from sasgp.cli.fit_options import Request
    from sasgp.data.columns import Columns
    from sasgp.data.named import Dataset
    from sasgp.estimators import SASGP
    from sasgp.evaluation import Split

__all__ = ["outcome_of_training", "pictures", "run_info", "start_of_info", "summary"]

PRECISION = {"float32": "", "mixed": "products of the encoder with bfloat16 in training; all else in float32 or better"}
SIZES = {"active_set_size": "active set", "n_inducing": "inducing points"}


def run_info(
    request: "Request",
    dataset: "Dataset",
    split: "Split",
    estimator: "SASGP",
    seconds: float,
    metrics: dict[str, Any],
) -> dict[str, Any]:
    """The contents of run.json."""
    return start_of_info(request, dataset, split, estimator) | {
        "training": {
            "model": type(estimator).__name__,
            "n_components": estimator.n_components_,
            "latents": estimator.latents,
            **{name: getattr(estimator, f"{name}_") for name in SIZES if hasattr(estimator, f"{name}_")},
            "batch_size": estimator.batch_size_,
            "support_size": getattr(estimator, "support_size_", None),
            "missed_share": getattr(estimator, "missed_share_", None),
            "encoder_noise": estimator.encoder_noise_,
            "noise_kind": estimator.noise_kind_,
            "precision": estimator.precision_,
            "dtype": estimator.dtype_,
            **outcome_of_training(estimator, seconds),
            "relevance": [round(float(share), 4) for share in getattr(estimator, "relevance_", ())],
        },
        "metrics": metrics,
    }


def outcome_of_training(estimator: Any, seconds: float) -> dict[str, Any]:
    """What run.json says about the training of any model."""
    return {
        "epochs": len(estimator.history_),
        "seconds": round(seconds, 2),
        "objective": -estimator.history_[-1]["loss"],
        "noise": estimator.model_.monitor()["noise"],
    }


def start_of_info(request: "Request", dataset: "Dataset", split: "Split", estimator: Any) -> dict[str, Any]:
    """What run.json says about any run: its command, versions and data."""
    from importlib.metadata import version
    from platform import python_version

    asked = request.as_json()
    packages = ("torch", "gpytorch", "numpy", "scikit-learn")
    return {
        "command": asked["command"],
        "request": {name: value for name, value in asked.items() if name != "command"},
        "sasgp": __version__,
        "versions": {"python": python_version()} | {name: version(name) for name in packages},
        "data": {
            "name": dataset.name,
            "source": asked["data"],
            "rows": len(split.train.X),
            "held_out": 0 if split.test is None else len(split.test.X),
            "how": split.how,
            "features": count_features(estimator),
            "image_shape": None if dataset.image_shape is None else list(dataset.image_shape),
            "columns": list(dataset.columns),
            "labels": asked["labels"],
            "metadata": asked["metadata"],
            "table": None if estimator.columns_ is None else _found(estimator.columns_),
        },
    }


def summary(info: dict[str, Any], dataset: "Dataset", run: Path) -> list[Section]:
    """What was trained, how good it is, and which files there are."""
    data, training, metrics = info["data"], info["training"], info["metrics"]
    which = f"{metrics['rows']} held-out rows" if data["held_out"] else f"{metrics['rows']} training rows"
    components = f"{training['n_components']} component{'s' * (training['n_components'] > 1)}"
    notes = {"rmse": f"PCA with {components}: {metrics['pca_rmse']:.4f}"} if "pca_rmse" in metrics else {}
    if not data["held_out"]:
        notes["knn_1"] = "5-fold cross-validation"
    brief = {name: value for name, value in metrics.items() if name not in AT_LENGTH}
    return [
        (f"Trained {training['model']} on {data['name']}", _training(data, training, dataset)),
        (f"On {which}, {THROUGH}", metric_lines(brief, notes)),
        ("Wrote", _files(run, data["rows"], training["support_size"])),
    ]


def _training(data: dict[str, Any], training: dict[str, Any], dataset: "Dataset") -> list[Line]:
    held_out = f"{data['held_out']} more held out: {data['how']}" if data["held_out"] else data["how"]
    lines: list[Line] = [
        ("rows", str(data["rows"]), held_out),
        ("features", str(data["features"]), ""),
        *_labels(data["labels"], dataset),
        *(("note", "", note) for note in dataset.notes),
        ("latents", str(training["n_components"]), f"dimensions, {training['latents']}"),
        *((label, str(training[name]), "") for name, label in SIZES.items() if name in training),
        ("batches", str(training["batch_size"]), "rows each"),
        ("encoder noise", f"{training['encoder_noise']:g}", "standard deviations of the decoder's noise"),
        ("precision", training["precision"], PRECISION[training["precision"]]),
        ("epochs", str(training["epochs"]), f"in {training['seconds']:.1f} seconds"),
        ("objective", f"{training['objective']:.4f}", "nats per value"),
        ("noise", f"{training['noise']:.4g}", _noise(training["noise_kind"], data["table"] is not None)),
    ]
    if training["support_size"] is not None:
        missed = f"stand for all rows, and miss {training['missed_share']:.2g} of the prior's variance there"
        lines.append(("positions", str(training["support_size"]), missed))
    if training["relevance"]:
        shares = " ".join(f"{share:.2f}" for share in training["relevance"])
        lines.append(("relevance", shares, "spread of the latents in lengthscales"))
    return lines


def _found(columns: "Columns") -> list[dict[str, Any]]:
    """What each column was taken for, for run.json."""
    found: list[dict[str, Any]] = columns.as_json()["findings"]
    return found


def _noise(kind: str, is_table: bool) -> str:
    if kind == "feature":
        return "variance, on average; a scale for each " + ("column" if is_table else "feature, which differ in units")
    return "variance" + (", far from the data" if kind == "local" else ", the same for all features")


def _labels(asked: str | None, dataset: "Dataset") -> list[Line]:
    """Which labels a file gave. Nothing is said of a named data set."""
    from sasgp.data.folders import SUBFOLDERS
    from sasgp.data.readers import LABEL_SUFFIXES

    if dataset.labels is None:
        return []
    if dataset.labels == SUBFOLDERS:
        return [("labels", dataset.labels, "the names of the folders that the images are in")]
    note = "from their own file" if Path(dataset.labels).suffix.lower() in LABEL_SUFFIXES else "from the data file"
    if asked is None:
        note += ", recognised by name; choose others with --labels"
    return [("labels", dataset.labels, note)]


def _files(run: Path, rows: int, positions: int | None) -> list[Line]:
    from sasgp.cli import runs
    from sasgp.estimators.all_rows import FEW_ROWS

    computable = positions is not None and (rows <= FEW_ROWS or positions >= rows)  # docs/model-files.md
    reveals = "; rows of the data can be computed from it" if computable else ", without rows of the data"
    about = {
        runs.MODEL: f"the trained model{reveals}",
        runs.EMBEDDING: "the latents, one line per row",
        runs.HISTORY: "the course of training, one line per epoch",
        runs.INFO: "data, command, versions and these numbers",
    }
    return [("", run / name, note) for name, note in about.items()]


def pictures(run: Path) -> Section:
    """The pictures of a run, which are written after its numbers are printed."""
    from sasgp.cli import runs

    about = {
        runs.EXPLORER: "explore the latent space in a browser",
        runs.LATENT: "the latent space",
        runs.LOSS: "the course of training",
    }
    return "\nOpen", [("", run / name, note) for name, note in about.items()]
