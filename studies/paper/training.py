"""Runs, each one JSON file: settings, seed, versions, machine, seconds, metrics, curve. What is finished is skipped.

A file is written whole or not at all, so that an interruption costs the run under way and nothing else.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict, dataclass
from functools import lru_cache
from importlib import util
from importlib.metadata import version
from pathlib import Path
from typing import Any

from sasgp import __version__
from sasgp.cli import files
from sasgp.errors import InputError
from sasgp.reproduction.experiments import Run

__all__ = ["Outcome", "execute", "finished", "work"]

FEWER = 400  # support points, as many as the paper's largest active set
KEPT_ROWS = 5000  # training rows in a figure
REFINE = 20  # steps for the latents of new rows
GRID = 80  # points of the background along each axis
EVIDENCE_SIZES = (100, 200, 400, 800)
PACKAGES = ("torch", "gpytorch", "numpy", "scikit-learn", "umap-learn", "openTSNE")
MODULES = {"scikit-learn": "sklearn", "umap-learn": "umap"}  # by another name

Record = dict[str, Any]


def finished(run: Run, out: Path) -> Record | None:
    """The record of a run, where there is one that was asked for in the same words."""
    with suppress(OSError, ValueError):
        record: Record = json.loads((out / f"{run.title}.json").read_text(encoding="utf-8"))
        if record["run"] == _plain(run):
            return record
    return None


def _plain(run: Run) -> Record:
    return json.loads(json.dumps(asdict(run)))


# ---------------------------------------------------------------------------------------------------- one run


def execute(run: Run, out: Path, *, jobs: int = 1, verbose: bool = False) -> Record:
    """Train once, measure, and write OUT/title.json (and title.npz, where latents are kept)."""
    import numpy as np
    import torch

    data = _load(run.data)
    X = _some(data.X, run.rows, run.seed) if run.measures != ("evidence",) else data.X
    estimator = _estimator(run.estimator)
    names = estimator().get_params()
    shown = {"verbose": verbose} if "verbose" in names else {}
    model = estimator(**run.settings, random_state=run.seed, **shown)
    started, cpu = time.perf_counter(), time.process_time()
    model.fit(X)
    seconds, cpu = time.perf_counter() - started, time.process_time() - cpu
    record: Record = {
        "run": _plain(run),
        "settings": model.get_params(),
        "versions": {"sasgp": __version__, "commit": _commit(), "python": platform.python_version()}
        | {name: version(name) for name in PACKAGES if util.find_spec(MODULES.get(name, name))},
        "machine": {
            "system": platform.platform(),
            "cores": os.cpu_count(),
            "threads": torch.get_num_threads(),
            "jobs": jobs,  # that shared the cores
        },
        "seconds": seconds,
        "cpu_seconds": cpu,
        "rows": len(X),
        "metrics": {},
        "curve": model.history_,
    }
    arrays: dict[str, Any] = {}
    for measure in run.measures:
        found, kept = MEASURES[measure](model, data, run)
        record["metrics"] |= found
        arrays |= kept
    if arrays:
        with files.replacing(out / f"{run.title}.npz") as file:
            np.savez_compressed(file, **arrays)
    with files.replacing(out / f"{run.title}.json") as file:  # last: it says that the run is finished
        file.write_text(json.dumps(record, indent=1, default=str) + "\n", encoding="utf-8")
    return record


@lru_cache(maxsize=1)
def _load(name: str) -> Any:
    from sasgp.data import load

    return load(name)


def _estimator(name: str) -> Any:
    import sasgp
    from sasgp.reproduction import ablation, pca, peers

    homes = (home for home in (ablation, pca, peers) if name in home.__all__)
    return getattr(next(homes, sasgp), name)


def _some(X: Any, n: int | None, seed: int) -> Any:
    import numpy as np

    return X if n is None else X[np.sort(np.random.default_rng(seed).permutation(len(X))[:n])]


def _commit() -> str | None:
    """The commit that the package is of, with -dirty where files differ from it; None outside of a repository."""
    root = Path(__file__).parents[3]
    if not (root / ".git").exists():  # such as that of whatever project has this package installed
        return None
    command = ["git", "-C", str(root), "describe", "--always", "--abbrev=12", "--dirty", "--exclude=*"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


# ---------------------------------------------------------------------------------------------------- measures


def _quality(model: Any, data: Any, run: Run) -> tuple[Record, Record]:
    from sasgp.evaluation import knn, reconstruction

    # Neighbours among all training rows, also for a model that was trained on some of them
    Z, Z_test = model.transform(data.X), model.transform(data.X_test)
    found = reconstruction(model, data.X_test, Z_test)
    del found["pit"]
    return found | knn(Z, data.y, Z_test, data.y_test), {}


def _fewer(model: Any, data: Any, run: Run) -> tuple[Record, Record]:
    from sasgp.evaluation import reconstruction

    fewer, full = copy(model), model.posterior_
    fewer.posterior_ = model.model_.condition(full.X[:FEWER], full.Z[:FEWER])
    found = reconstruction(fewer, data.X_test, model.transform(data.X_test))
    return {f"{name}_{FEWER}": found[name] for name in ("rmse", "mae", "nlpd")}, {}


def _places(model: Any, data: Any, run: Run) -> tuple[Record, Record]:
    from sasgp.evaluation import knn, structure

    model.transform(data.X_test[:20])  # what compiles itself has done so
    started = time.process_time()
    Z_test = model.transform(data.X_test)
    seconds = time.process_time() - started
    found = knn(model.embedding_, _some(data.y, run.rows, run.seed), Z_test, data.y_test)
    found |= structure(data.X_test, Z_test, data.y_test, run.seed)
    return found | {"transform_seconds": seconds}, {}


def _refined(model: Any, data: Any, run: Run) -> tuple[Record, Record]:
    from sasgp.evaluation import knn, reconstruction, structure

    started = time.process_time()
    Z_test = model.transform(data.X_test, refine=REFINE)
    found = {"transform_seconds": time.process_time() - started}
    found |= reconstruction(model, data.X_test, Z_test)
    found |= knn(model.embedding_, _some(data.y, run.rows, run.seed), Z_test, data.y_test)
    found |= structure(data.X_test, Z_test, data.y_test, run.seed)
    del found["pit"]
    return {f"refined_{name}": value for name, value in found.items()}, {}


def _latents(model: Any, data: Any, run: Run) -> tuple[Record, Record]:
    import numpy as np

    Z, Z_test = model.transform(data.X[:KEPT_ROWS]), model.transform(data.X_test)
    both = np.concatenate([Z, Z_test])
    low, high = both.min(0), both.max(0)
    centre, half = (low + high) / 2, 0.54 * (high - low).max()  # a margin of 4 % on either side
    steps = [np.linspace(c - half, c + half, GRID) for c in centre]
    grid = np.stack(np.meshgrid(*steps, indexing="xy"), axis=-1).reshape(-1, 2).astype(Z.dtype)
    decodes = hasattr(model, "predict")
    std = model.predict(grid, return_std=True)[1].mean(1).reshape(GRID, GRID) if decodes else np.zeros((GRID, GRID))
    half_precision = {"Z": Z, "Z_test": Z_test, "std": std}  # three digits, which is more than a figure shows
    return {}, {
        **{name: values.astype(np.float16) for name, values in half_precision.items()},
        "y": data.y[:KEPT_ROWS].astype(np.uint8),
        "y_test": data.y_test.astype(np.uint8),
        "extent": np.array([steps[0][0], steps[0][-1], steps[1][0], steps[1][-1]]),
    }


def _evidence(model: Any, data: Any, run: Run) -> tuple[Record, Record]:
    X = _some(data.X, run.rows, run.seed)
    found = {"exact": model.evidence(X, method="exact", dtype="float32")}
    for A in EVIDENCE_SIZES:
        if len(X) > A:
            found[f"SAS, A = {A}"] = model.evidence(
                X, method="sas", active_set_size=A, n_estimates=10, dtype="float32", random_state=run.seed
            )
    per_value = ("per_value", "standard_error_per_value")
    return {
        name: asdict(estimate) | {key: getattr(estimate, key) for key in per_value} for name, estimate in found.items()
    }, {}


MEASURES: dict[str, Callable[[Any, Any, Run], tuple[Record, Record]]] = {
    "quality": _quality,
    "fewer": _fewer,
    "places": _places,
    "refined": _refined,
    "latents": _latents,
    "evidence": _evidence,
}


# ---------------------------------------------------------------------------------------------------- many runs


@dataclass(frozen=True)
class Outcome:
    """A run that has ended: its record, or what went wrong."""

    run: Run
    record: Record | None
    error: str = ""


def work(runs: Sequence[Run], out: Path, *, jobs: int = 1, verbose: bool = False) -> Iterator[Outcome]:
    """Do what is not finished, in order, and say of each run how it ended. One that fails does not stop the others.

    Parameters
    ----------
    runs, out
    jobs
        Processes at the same time, each with its share of the cores. 1: this process, with all of them.
    verbose
        Show the progress of each run, where there is one at a time.
    """
    if jobs < 1:
        raise InputError(f"--jobs must be at least 1. Got {jobs}.")
    waiting = deque(run for run in runs if finished(run, out) is None)
    if jobs > 1:
        yield from _in_processes(waiting, out, jobs)
        return
    for run in waiting:
        record = finished(run, out)  # by another process, meanwhile
        try:
            yield Outcome(run, record or execute(run, out, verbose=verbose))
        except Exception as error:
            yield Outcome(run, None, f"{type(error).__name__}: {error}")


def _reason(code: int, said: Sequence[str]) -> str:
    """Why a process has failed; nothing where it has not."""
    if code < 0:
        return f"killed by signal {-code}, as a rule for want of memory; use fewer --jobs"
    return (said[-1] if said else f"exit code {code}") if code else ""


def _in_processes(waiting: deque[Run], out: Path, jobs: int) -> Iterator[Outcome]:
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    working: dict[subprocess.Popen[bytes], tuple[Run, Any]] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                run = waiting.popleft()
                errors = tempfile.TemporaryFile()  # noqa: SIM115  a pipe that nobody reads would fill up
                command = [sys.executable, "-m", "sasgp.reproduction", json.dumps(_plain(run)), str(out), str(jobs)]
                working[subprocess.Popen(command, env=environment, stderr=errors)] = run, errors
            ended = [process for process in working if process.poll() is not None]
            for process in ended:
                run, errors = working.pop(process)
                with errors:
                    errors.seek(0)
                    said = errors.read().decode(errors="replace").strip().splitlines()
                yield Outcome(run, finished(run, out), _reason(process.returncode, said))
            if not ended:
                time.sleep(0.2)
    finally:
        for process, (_, errors) in working.items():
            process.terminate()
            process.wait()
            errors.close()
