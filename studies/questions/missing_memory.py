"""Missing values at scale: peak memory of commands on 10⁶ rows with 20 % of their values missing.

A file of 10⁶ × 20 float32 numbers, made from three latent dimensions. Each command is a process of its own. `fit` has
one epoch, which is enough to see its memory. `impute` completes the first 250 000 rows, in two blocks; it takes about a
millisecond per row. SASGPImputer completes 20 000 rows in memory.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.records import Record, Run
from studies.tables import table as markdown

SEEDS = (0,)
ROWS, QUICK_ROWS = 10**6, 2000
IMPUTED, IMPUTER_ROWS, D, Q, RATE = 250_000, 20_000, 20, 3, 0.2
BLOCK = 50_000
IMPUTER = """import sys, numpy
from sasgp import SASGPImputer
SASGPImputer(random_state=0).fit_transform(numpy.load(sys.argv[1]))
"""


def runs(seed: int, quick: bool) -> list[Run]:
    """One."""
    return [Run("missing-memory", {"rows": QUICK_ROWS if quick else ROWS}, seed)]


def write_rows(path: Path, n_rows: int, seed: int) -> None:
    """Rows with holes, in blocks."""
    draw = np.random.default_rng(seed)
    W = draw.normal(size=(Q, D))
    X = np.lib.format.open_memmap(path, "w+", "float32", (n_rows, D))
    for start in range(0, n_rows, BLOCK):
        f = draw.normal(size=(min(BLOCK, n_rows - start), Q)) @ W
        block = f + 2 * np.sin(f) + 0.3 * draw.normal(size=f.shape)
        hidden = draw.random(f.shape) < RATE
        hidden[hidden.all(1), 0] = False
        X[start : start + BLOCK] = np.where(hidden, np.nan, block)
    X.flush()


def measured(words: Sequence[str]) -> dict[str, float]:
    """Peak resident memory in MB of a process, and its seconds."""
    started = time.monotonic()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert process.stderr is not None
    said = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(said.decode(errors="replace").strip().splitlines()[-1])
    return {"peak MB": usage.ru_maxrss / 1024, "seconds": time.monotonic() - started}


def execute(run: Run) -> dict[str, Any]:
    """Run the commands one after the other."""
    n = run.settings["rows"]
    with tempfile.TemporaryDirectory() as folder:
        rows, some, few, out = (str(Path(folder) / name) for name in ("rows.npy", "some.npy", "few.npy", "run"))
        write_rows(Path(rows), n, run.seed or 0)
        X = np.load(rows, mmap_mode="r")
        np.save(some, X[:IMPUTED])
        np.save(few, X[: min(IMPUTER_ROWS, n // 10)])
        commands = {
            "fit": ["fit", rows, "--max-epochs", "1", "--out", out],
            "embed": ["embed", out, rows, "--out", f"{folder}/latents.npy"],
            "evaluate": ["evaluate", out, rows],
            "impute to .npy": ["impute", out, some, "--out", f"{folder}/full.npy"],
        }
        used = {"fit": n, "embed": n, "evaluate": n, "impute to .npy": min(IMPUTED, n)}
        found = {name: measured(["-m", "sasgp", *words]) | {"rows": used[name]} for name, words in commands.items()}
        found["SASGPImputer"] = measured(["-c", IMPUTER, few]) | {"rows": len(np.load(few))}
    return found


def table(records: Sequence[Record]) -> str:
    """One line per command."""
    lines = [
        [name, f"{one['rows']:,}", f"{one['peak MB']:.0f} MB"]
        for record in records
        for name, one in record["results"].items()
    ]
    return markdown(["command", "rows", "peak resident memory"], lines)
