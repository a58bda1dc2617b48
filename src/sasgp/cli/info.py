"""`sasgp info`: what a run, a model file or a checkpoint holds."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sasgp.cli.arguments import OUTPUT, TEXT, Flag, Printed, command
from sasgp.cli.config import as_toml
from sasgp.cli.fit_options import chosen
from sasgp.cli.loading import SUPERVISED
from sasgp.cli.predictions import quality_lines
from sasgp.cli.printing import Line, Result, Section, metric_lines, show
from sasgp.data.files import at_home
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import RunFolder

__all__ = ["info"]

MOST = 60  # columns that are listed; JSON has all
CHECKPOINT = b"sasgp checkpoint "  # what such a file starts with
Target = Annotated[
    Path, Parameter(name="RUN", help="The folder of a run, finished or not, a .safetensors file or a checkpoint.")
]


@command
def info(
    model: Target,
    /,
    *,
    config: Annotated[bool, Flag, Parameter(group=OUTPUT)] = False,
    printed: Printed = TEXT,
) -> Result:
    """Say what a run, a model file or a checkpoint holds: the model, its settings, data, numbers and files.

    Parameters
    ----------
    config
        Print the options of the run instead, as a .toml file for `sasgp fit --config`.
    """
    path = at_home(model)
    if config:
        if printed.as_json:
            raise InputError("--config prints TOML, and --json prints JSON. Leave one of them out.")
        sys.stdout.write(as_toml(chosen(_request(path))))
        return None
    if (path / "unfinished" / "run.json").is_file():
        found, sections = _unfinished(path)
    elif _is_checkpoint(path):
        found, sections = _checkpoint(path)
    else:
        found, sections = _model(path)
    show(sections)
    return found


def _is_checkpoint(path: Path) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(CHECKPOINT)) == CHECKPOINT


def _request(path: Path) -> dict[str, Any]:
    """What `sasgp fit` was asked for when it made a run."""
    from sasgp.cli import runs, unfinished

    if (path / unfinished.FOLDER / unfinished.INFO).is_file():
        return _begun_with(path)
    found = runs.find(path).info.get("request")
    if not isinstance(found, dict):
        raise InputError(
            f"--config needs a run whose {runs.INFO} says how it was trained. {path} has none that this sasgp wrote."
        )
    return found


# ---------------------------------------------------------------------------------------------------- a model


def _model(path: Path) -> tuple[dict[str, Any], list[Section]]:
    """A model file, and the run that it belongs to, if it is named."""
    from sasgp.cli import runs
    from sasgp.estimators import storage

    run = runs.find(path)
    header, _ = storage.read(run.model)
    if not all(isinstance(header.get(part), dict) for part in ("settings", "fitted")):
        raise InputError(f"{run.model} is not a model file that sasgp wrote. Name another file.")
    about: dict[str, Any] = {
        "path": path,
        "what": "model" if run.folder is None else "run",
        "model": header.get("class"),
        "settings": _changed(header),
        "data": _data(run, header),
        "fitted": _fitted(run.model, header),
        "metrics": run.info.get("metrics", {}),
        "updates": list(run.updates),
        "command": run.info.get("command"),
        "versions": {"sasgp": header.get("sasgp"), **run.info.get("versions", {})},
        "files": _sizes(run),
    }
    return about, _sections(about)


def _changed(header: dict[str, Any]) -> dict[str, Any]:
    """The settings that differ from the defaults of the class."""
    import dataclasses

    from sasgp import estimators

    cls: Any = getattr(estimators, str(header.get("class")), None)
    if cls is None:
        raise InputError(f"The file holds a {header.get('class')}, which this sasgp does not know. Upgrade sasgp.")
    usual = {field.name: field.default for field in dataclasses.fields(cls)}
    left_out = ("verbose", "device")
    settings = header["settings"]
    return {name: value for name, value in settings.items() if name not in left_out and value != usual.get(name)}


def _data(run: "RunFolder", header: dict[str, Any]) -> dict[str, Any]:
    """Rows and columns: what the run says and, for a file on its own, what the model knows."""
    known = {key: value for key, value in run.info.get("data", {}).items() if key != "table"}
    known.setdefault("features", header["fitted"].get("n_features_in_"))
    names = header.get("feature_names") or run.columns or []
    table = (header.get("columns") or {}).get("findings") or [{"name": name, "kind": "number"} for name in names]
    known["columns"] = [{"name": one["name"], "kind": one["kind"]} for one in table]
    return known


def _fitted(file: Path, header: dict[str, Any]) -> dict[str, Any]:
    """Numbers of the trained model; none if its kernel or encoder is a class of the user, which is not known here."""
    import sasgp

    settings = header["settings"]
    if any(isinstance(settings.get(part), dict) and "custom" in settings[part] for part in ("kernel", "encoder")):
        return {}
    model = getattr(sasgp, str(header["class"])).load(file)
    last = model.history_[-1]
    found: dict[str, Any] = {
        "rows": len(model._places if hasattr(model, "_places") else model.embedding_),
        "epochs": len(model.history_),
        "objective": None if last["loss"] is None else -last["loss"],
        "seconds": last["seconds"],
    }
    for name in ("n_components", "active_set_size", "batch_size", "support_size", "missed_share", "missing_share"):
        if (value := getattr(model, f"{name}_", None)) is not None:
            found[name] = value
    if hasattr(model, "classes_"):
        found["classes"] = model.classes_
    found["noise"] = model.model_.monitor().get("noise")
    found |= _lengthscales(model)
    return found


def _lengthscales(model: Any) -> dict[str, Any]:
    """The lengthscale of each dimension. A network has none, and a deep kernel none of the inputs."""
    from sasgp.gp import kernels

    kernel = getattr(model.model_, "kernel", None)
    if kernel is None or getattr(model.model_, "features", None) is not None:
        return {}
    width = model._places.shape[1] if hasattr(model, "_places") else model.n_components_
    found = kernels.lengthscales(kernel, width)
    return {"lengthscale": found[0] if len(set(found)) == 1 else found}


def _sizes(run: "RunFolder") -> dict[str, int]:
    """The bytes of each file."""
    from sasgp.cli import runs

    if run.folder is None:
        return {run.model.name: run.model.stat().st_size}
    files = [run.folder / name for name in (*runs.FILES, *runs.OF_TARGETS)]
    return {file.name: file.stat().st_size for file in files if file.is_file()}


# ---------------------------------------------------------------------------------------------------- unfinished


def _begun_with(run: Path) -> dict[str, Any]:
    from sasgp.cli import unfinished

    file = run / unfinished.FOLDER / unfinished.INFO
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
        chosen(found)
    except (ValueError, TypeError, AttributeError) as error:
        raise InputError(f"{file} is not the JSON that `sasgp fit` wrote ({error}). Start the run again.") from error
    return dict(found)


def _unfinished(path: Path) -> tuple[dict[str, Any], list[Section]]:
    """A run that was interrupted, or is training now."""
    import shlex

    from sasgp.cli import unfinished

    folder = path / unfinished.FOLDER
    request = _begun_with(path)
    settings = chosen(request)
    history = list(_history(folder / unfinished.HISTORY))
    about: dict[str, Any] = {
        "path": path,
        "what": "unfinished run",
        "settings": settings,
        "epochs": len(history),
        "last_epoch": history[-1] if history else None,
        "command": request.get("command"),
        "files": {file.name: file.stat().st_size for file in sorted(folder.iterdir()) if file.is_file()},
    }
    lines: list[Line] = [
        ("epochs", str(len(history)), "so far"),
        ("continue", f"sasgp fit --resume {shlex.quote(str(path))}", "unless it is training now"),
    ]
    if history and isinstance(history[-1].get("loss"), float):
        lines.insert(1, ("objective", f"{-history[-1]['loss']:.4f}", "nats per value"))
    return about, [(f"{path}: a run that is not finished", lines), _listed("Options", settings), _files(about)]


def _history(file: Path) -> Iterator[dict[str, Any]]:
    """The epochs so far. The last line may be incomplete."""
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            record = json.loads(line)
        except ValueError:
            return
        if isinstance(record, dict):
            yield record


def _checkpoint(path: Path) -> tuple[dict[str, Any], list[Section]]:
    from sasgp.training import checkpoint

    state = checkpoint.read(path)
    fingerprint, history = state.get("fingerprint"), state.get("history")
    if not (isinstance(fingerprint, dict) and isinstance(history, list)):
        raise InputError(f"{path} is not a checkpoint that sasgp wrote. Name another file.")
    about: dict[str, Any] = {
        "path": path,
        "what": "checkpoint",
        "epochs": len(history),
        "epochs_planned": state.get("epochs"),
        "seed": state.get("seed"),
        "last_epoch": history[-1] if history else None,
        "settings": fingerprint,
        "files": {path.name: path.stat().st_size},
    }
    lines: list[Line] = [
        ("epochs", f"{len(history)} of {state.get('epochs')}", ""),
        ("rows", str(fingerprint.get("rows of data")), f"of {fingerprint.get('features')} features"),
        ("continue", f"fit(X, resume={str(path)!r})", "in Python, with the same rows and settings"),
    ]
    return about, [(f"{path}: a checkpoint of training", lines), _listed("Settings", fingerprint), _files(about)]


# ---------------------------------------------------------------------------------------------------- text


def _sections(about: dict[str, Any]) -> list[Section]:
    data, metrics = about["data"], about["metrics"]
    name = f", trained on {data['name']}" if data.get("name") else ""
    columns: list[Line] = [(one["name"], one["kind"], "") for one in data["columns"][:MOST]]
    if len(data["columns"]) > MOST:
        columns.append(("…", "", f"{len(data['columns']) - MOST} more; --json has all"))
    measured = quality_lines(metrics) if about["model"] in SUPERVISED else metric_lines(metrics, {})
    sections: list[Section] = [
        (f"{about['path']}: {about['model']}{name}", _numbers(about)),
        _listed("Settings that differ from the defaults", about["settings"]),
        ("Columns", columns if any(one["kind"] != "number" for one in data["columns"]) else []),
        ("Metrics", measured),
        ("Versions", [(package, str(version), "") for package, version in about["versions"].items()]),
        _files(about),
    ]
    return [section for section in sections if section[1]]


def _numbers(about: dict[str, Any]) -> list[Line]:
    """What was trained, on what, and what came out."""
    data, fitted = about["data"], about["fitted"]
    names = {
        "n_components": ("latents", "dimensions"),
        "active_set_size": ("active set", ""),
        "batch_size": ("batches", "rows each"),
        "support_size": ("positions", "that stand for all rows"),
        "missed_share": ("missed", "share of the prior's variance that the positions cannot express"),
        "missing_share": ("missing", "share of the values"),
        "noise": ("noise", "variance"),
        "lengthscale": ("lengthscale", ""),
        "epochs": ("epochs", "" if fitted.get("seconds") is None else f"in {fitted['seconds']:.1f} seconds"),
        "objective": ("objective", "nats per value"),
        "classes": ("classes", ""),
    }
    held_out = f"{data['held_out']} more held out" if data.get("held_out") else ""
    rows = fitted.get("rows", data.get("rows"))
    lines: list[Line] = [] if rows is None else [("rows", str(rows), held_out)]
    lines.append(("features", str(data["features"]), ""))
    more = {"labels": "labels", "target_name": "target", "source": "data"}
    lines += [(label, "", str(data[key])) for key, label in more.items() if data.get(key)]
    lines += [(label, _short(fitted[key]), note) for key, (label, note) in names.items() if fitted.get(key) is not None]
    lines += [("update", str(one["rows"]), f"rows from {one['file']}") for one in about["updates"]]
    return [*lines, ("command", "", about["command"])] if about["command"] else lines


def _listed(heading: str, values: dict[str, Any]) -> Section:
    return heading, [(name, _short(value), "") for name, value in values.items()]


def _short(value: Any) -> str:
    """A value for people: numbers with four digits, and few of many."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, list | tuple):
        return ", ".join(map(_short, value[:8])) + ", …" * (len(value) > 8)
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _files(about: dict[str, Any]) -> Section:
    return "Files", [(name, _size(size), "") for name, size in about["files"].items()]


def _size(n_bytes: int) -> str:
    return f"{n_bytes / 1e6:.1f} MB" if n_bytes >= 1e5 else f"{n_bytes / 1e3:.1f} kB"
