"""Where the time of `sasgp fit` goes, from the start of its process to its end, as shares.

Each run is a new process. `sampled` says how it was found out which part of a run is at work.
"""

import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies import records
from studies.benchmarks.measure import spread
from studies.benchmarks.sampled import PARTS, REST
from studies.benchmarks.startup import compiled
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["execute", "table", "watched"]

ROUNDS = {"digits": 3, "mnist": 1}
QUICK = ("--max-epochs", "2")


def watched(tokens: Sequence[str]) -> dict[str, float]:
    """Seconds of each part of a command in a new process, and of all of it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "seconds.json"
        line = [sys.executable, "-m", "studies.benchmarks.sampled", str(path), *tokens, "--out", f"{folder}/run"]
        started = time.perf_counter()
        subprocess.run(line, check=True, stdout=subprocess.DEVNULL, env=compiled())
        total = time.perf_counter() - started
        found = records.read(path)
    parts = {part: float(found.get(part, 0.0)) for part in PARTS}
    return parts | {REST: total - sum(parts.values()), "total": total}


def execute(run: Run) -> dict[str, Any]:
    """The rounds of each data set."""
    quick = run.settings["quick"]
    found: dict[str, Any] = {}
    for data in ("digits",) if quick else tuple(ROUNDS):
        rounds = [watched(["fit", data, *(QUICK if quick else ())]) for _ in range(1 if quick else ROUNDS[data])]
        found[data] = {part: spread([seconds[part] for seconds in rounds]) for part in rounds[0]}
    return {"seconds": found}


def table(found: Sequence[Record]) -> str:
    """One line per part."""
    seconds = found[0]["results"]["seconds"]
    rows = []
    for part in [*PARTS, REST, "total"]:
        row: dict[str, Any] = {"part": part}
        for data, parts in seconds.items():
            row[f"`sasgp fit {data}`, s"] = parts[part]["median"]
            row["share" if data == "digits" else "its share"] = (
                f"{parts[part]['median'] / parts['total']['median']:.3f}"
            )
        rows.append(row)
    return of_rows(rows)
