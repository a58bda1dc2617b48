"""One record per run: a JSON file that says what was asked for, where it ran, and what came out.

    name, seed      the file is called NAME-seedN.json, or NAME.json where the run has no seed
    settings        what was asked for; a record with other settings does not count as this run
    command         what was typed
    commit, date    of the code, with -dirty where files differed from it; of the end of the run
    versions        of Python and the libraries
    machine         processor, cores, threads, how many jobs shared the cores, the load before and after
    results         what the study measured

Where an old record did not keep one of these, it is null. The commit is then the first one that holds the result, with
the words "or before", and versions are those that it pins.
"""

import json
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from sasgp import __version__
from sasgp.data.files import replacing

__all__ = [
    *("EARLIER", "FIELDS", "RESULTS", "ROOT", "Record", "Run", "commit", "finished", "machine", "read", "record"),
    "write",
]

ROOT = Path(__file__).parents[1]
RESULTS = Path(__file__).parent / "results"
FIELDS = ("name", "seed", "settings", "command", "commit", "date", "versions", "machine", "results")
PACKAGES = ("torch", "gpytorch", "numpy", "scikit-learn", "umap-learn", "openTSNE", "pyro-ppl", "gcimpute")

# The default of `encoder_noise` when most records were made. It depends on the number of rows now, so studies of large
# data whose settings do not name it pass this one, and what they make is still what their records say
EARLIER: dict[str, Any] = {"encoder_noise": 1.0}

Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One unit of work, which leaves one record.

    Parameters
    ----------
    name
        Of the record, without the seed.
    settings
        All that decides the result but the seed: values that JSON can hold.
    seed
        Of all that is random; None where the run has none.
    file
        A file that the user gave, for studies that read one. It does not tell one run from another.
    """

    name: str
    settings: Mapping[str, Any]
    seed: int | None = None
    file: str | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """What the record's file is called."""
        return self.name if self.seed is None else f"{self.name}-seed{self.seed}"


def finished(run: Run, out: Path) -> Record | None:
    """The record of a run, if there is one with the same settings and seed."""
    with suppress(OSError, ValueError, KeyError):
        found = read(out / f"{run.title}.json")
        if found["settings"] == json.loads(json.dumps(dict(run.settings))) and found["seed"] == run.seed:
            return found
    return None


def seeds(out: Path) -> list[int]:
    """The seeds that records in a folder have, by their names."""
    names = (re.search(r"-seed(\d+)\.json$", path.name) for path in out.glob("*.json"))
    return sorted({int(found[1]) for found in names if found})


def record(run: Run, results: Mapping[str, Any], *, command: str, machine: Mapping[str, Any]) -> Record:
    """The record of a run that has just ended."""
    return {
        "name": run.name,
        "seed": run.seed,
        "settings": dict(run.settings),
        "command": command,
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "machine": {**machine, "load after": os.getloadavg()},
        "results": dict(results),
    }


def read(path: Path) -> Record:
    """Read a record."""
    found: Record = json.loads(path.read_text(encoding="utf-8"))
    return found


def write(found: Record, path: Path) -> None:
    """Write a record, whole or not at all."""
    text = json.dumps(found, indent=1, ensure_ascii=False, default=_plain) + "\n"
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _plain(value: Any) -> Any:
    """NumPy's numbers as Python's; whatever else JSON does not know as text."""
    return value.item() if hasattr(value, "item") else str(value)


def machine(jobs: int = 1) -> dict[str, Any]:
    """What numbers depend on besides the code, before a run starts."""
    import torch

    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return {
        "processor": models[0] if models else platform.processor(),
        "system": platform.platform(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "jobs": jobs,  # that shared the cores
        "load before": os.getloadavg(),
    }


def versions() -> dict[str, str]:
    """Python, sasgp, and what of the other libraries is installed."""
    found = {"python": platform.python_version(), "sasgp": __version__}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def commit() -> str | None:
    """The commit of the project, with -dirty where files differ from it; None outside of a repository.

    Records do not count: runs that replace older ones would make each other dirty.
    """
    try:
        name = _git("rev-parse", "--short=12", "HEAD")
        changed = _git("diff", "--name-only", "HEAD", "--", ":/", ":(exclude,top)studies/results")
    except (OSError, subprocess.CalledProcessError):
        return None
    return f"{name}-dirty" if changed else name


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
