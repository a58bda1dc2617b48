"""What the base install weighs: what every direct dependency adds to those above it."""

import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from studies.records import ROOT, Record, Run
from studies.tables import of_rows

__all__ = ["execute", "table"]

FIRST = ("numpy", "torch", "scikit-learn", "gpytorch", "safetensors", "matplotlib")  # what the model needs comes first
# Prints the packages that are loaded when an estimator is imported
IMPORTED = "from sasgp import SASGP; import sys; print(*{name.split('.')[0] for name in sys.modules})"


def execute(run: Run) -> dict[str, Any]:
    """Megabytes of files, without compiled copies of Python files, and whether an estimator imports the package."""
    direct = _names(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"])
    loaded = subprocess.run([sys.executable, "-c", IMPORTED], check=True, capture_output=True, text=True).stdout.split()
    owners = metadata.packages_distributions()
    imported = {canonicalize_name(owner) for name in loaded for owner in owners.get(name, ())}
    rows, counted = [], set[str]()
    for name in sorted(direct, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        new = _closure([name]) - counted
        counted |= new
        rows.append({"dependency": name, "adds": sum(map(_size, new)), "new": len(new), "imported": name in imported})
    return {"rows": rows, "packages": len(counted), "all": sum(map(_size, counted))}


def table(records: Sequence[Record]) -> str:
    """One line per direct dependency."""
    result = records[0]["results"]
    lines = of_rows(
        [
            {
                "dependency": row["dependency"],
                "adds, MB": row["adds"],
                "packages": row["new"],
                "loaded by `from sasgp import SASGP`": "yes" if row["imported"] else "no",
            }
            for row in result["rows"]
        ]
    )
    return f"{lines}\n\nAll {result['packages']} packages: {result['all']:.0f} MB, with a torch for CPUs."


def _names(requirements: Iterable[str]) -> list[str]:
    """The packages that requirements name, without those of extras."""
    parsed = map(Requirement, requirements)
    return [canonicalize_name(r.name) for r in parsed if r.marker is None or r.marker.evaluate({"extra": ""})]


def _closure(names: Iterable[str]) -> set[str]:
    """These packages and all that they depend on."""
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        if (name := waiting.pop()) not in found:
            found.add(name)
            waiting += _names(metadata.requires(name) or ())
    return found


def _size(name: str) -> float:
    """Megabytes of a package's files."""
    paths = [Path(file.locate()) for file in metadata.files(name) or () if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6
