"""What `sasgp fit --target` says about a run: run.json, and the summary that it prints."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.predictions import INTERVAL, quality_lines
from sasgp.cli.printing import Line, Section
from sasgp.cli.report import outcome_of_training, start_of_info

if TYPE_CHECKING:
    from sasgp.cli.fit_options import Request
    from sasgp.cli.targets import Problem
    from sasgp.evaluation import Split

__all__ = ["pictures", "problem", "run_info", "summary"]

MOST_INPUTS = 5  # that the summary names


def problem(found: "Problem") -> Section:
    """Which kind of problem was chosen, and why; said before training, so that it can be stopped."""
    what, other, kind = "regression", "classification", "category"
    if found.classes:
        what, other, kind = other, what, "real"
    assert found.dataset.y is not None
    is_text = found.dataset.y.dtype.kind not in "iuf"
    how = "" if is_text else f"; --kind {found.target}={kind} makes it a {other}"
    lines: list[Line] = [(found.target, what, found.why + how)]
    if found.left_out:
        lines.append(("", str(found.left_out), f"rows without {found.target} are left out"))
    return "\nTarget", lines


def run_info(
    request: "Request", found: "Problem", split: "Split", estimator: Any, seconds: float, metrics: dict[str, Any]
) -> dict[str, Any]:
    """The contents of run.json."""
    from sasgp.cli.target_pictures import names_of_pictures
    from sasgp.estimators.tables import input_names

    relevance = _relevance(estimator)
    info = start_of_info(request, found.dataset, split, estimator)
    info["data"] |= {"target": request.as_json()["target"], "target_name": found.target, "left_out": found.left_out}
    info["data"]["missing"] = list(request.table.missing)
    names = input_names(estimator)
    kernel = estimator.kernel
    info["training"] = {
        "model": type(estimator).__name__,
        "why": found.why,
        "kernel": kernel if isinstance(kernel, str) else type(kernel).__name__,
        "prediction": estimator.prediction_,
        "neighbours": estimator.neighbours,
        "active_set_size": estimator.active_set_size_,
        "batch_size": estimator.batch_size_,
        **outcome_of_training(estimator, seconds),
        "relevance": None if relevance is None else dict(zip(names, relevance, strict=True)),
        "classes": [str(one) for one in estimator.classes_] if found.classes else None,
    }
    if not found.classes:
        info["training"]["target_map"] = estimator.targets_.columns[0].kind
    info["metrics"] = metrics
    info["pictures"] = names_of_pictures(estimator, held_out=split.test is not None)
    return info


def _relevance(estimator: Any) -> list[float] | None:
    """The relevance of each input. A deep kernel has none."""
    try:
        return [round(float(value), 6) for value in estimator.relevance_]
    except AttributeError:
        return None


def summary(info: dict[str, Any], run: Path) -> list[Section]:
    """What was trained, how good it is, and which files there are."""
    data, training, metrics = info["data"], info["training"], info["metrics"]
    sections: list[Section] = [
        (
            f"\nTrained {training['model']} on {data['name']}, to predict {data['target_name']}",
            _training(data, training),
        )
    ]
    if metrics:
        others = metrics["baselines"]
        fewer = others["rows"] < data["rows"]
        note = f"; simple models trained on {others['rows']} random rows" if fewer else ""
        sections.append((f"On {metrics['rows']} held-out rows{note}", quality_lines(metrics)))
    else:
        why = "hold rows out with --test-fraction 0.2"
        sections.append(("Not measured", [("", "nothing was held out", why)]))
    return [*sections, ("Wrote", _files(info, run))]


def _training(data: dict[str, Any], training: dict[str, Any]) -> list[Line]:
    held_out = f"{data['held_out']} more held out: {data['how']}" if data["held_out"] else data["how"]
    how = {
        "exact": "conditioned on all rows",
        "nearest": f"each conditioned on its {training['neighbours']} nearest rows",
        "all-rows": "conditioned on all rows, through some positions",
    }
    lines: list[Line] = [("rows", str(data["rows"]), held_out)]
    if data["left_out"]:
        lines.append(("left out", str(data["left_out"]), f"rows without {data['target_name']}"))
    lines += [
        ("inputs", str(data["features"]), ""),
        ("kernel", training["kernel"], ""),
        ("predictions", training["prediction"], how[training["prediction"]]),
        ("active set", str(training["active_set_size"]), ""),
        ("batches", str(training["batch_size"]), "rows each"),
        ("epochs", str(training["epochs"]), f"in {training['seconds']:.1f} seconds"),
        ("objective", f"{training['objective']:.4f}", "nats per standardised target"),
        ("noise", f"{training['noise']:.4g}", "variance of the standardised target that inputs do not explain"),
    ]
    if training.get("target_map") == "skewed":
        lines.append(("target", "mapped", "through a monotone map; --target-map plain does without"))
    if training["relevance"]:
        top = sorted(training["relevance"].items(), key=lambda one: -one[1])[:MOST_INPUTS]
        lines.append(("relevance", "", f"{', '.join(name for name, _ in top)}: what matters most comes first"))
    return lines


def _files(info: dict[str, Any], run: Path) -> list[Line]:
    from sasgp.cli import runs

    about = {
        runs.MODEL: "the trained model, with its training rows",
        runs.PREDICTIONS: f"the held-out rows, with their {100 * INTERVAL:g} % intervals",
        runs.HISTORY: "the course of training, one line per epoch",
        runs.INFO: "data, command, versions and these numbers",
    }
    if info["training"]["classes"] is not None:
        about[runs.PREDICTIONS] = "the held-out rows, with the probabilities of their classes"
    if not info["data"]["held_out"]:
        del about[runs.PREDICTIONS]
    return [("", run / name, note) for name, note in about.items()]


def pictures(info: dict[str, Any], run: Path) -> Section:
    """The pictures of a run, which are written after its numbers are printed."""
    from sasgp.cli import runs

    about = {
        runs.PREDICTED: "predictions against observations",
        runs.CONFUSION: "which classes are taken for which",
        runs.CALIBRATION: "whether predictions are as certain as they should be",
        runs.RELEVANCE: "how much each input matters",
        runs.LOSS: "the course of training",
    }
    return "\nOpen", [("", run / name, about[name]) for name in info["pictures"]]
