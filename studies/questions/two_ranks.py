"""Whether two processes train as good a model as one: digits, default settings.

The number of steps is that of one process (`max_epochs` is chosen so), each with twice the rows.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(4)
METRICS = ("rmse", "nlpd", "knn_1")


def runs(seed: int, quick: bool) -> list[Run]:
    """One process, and two."""
    return [Run(f"two-ranks-{n}", {"world": n, "max_epochs": 2 if quick else None}, seed) for n in (1, 2)]


def execute(run: Run) -> dict[str, Any]:
    """Run the command line, and read what it measured on the rows held out."""
    max_epochs = run.settings["max_epochs"]
    with tempfile.TemporaryDirectory() as folder:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if run.settings["world"] == 2 else []
        command = [sys.executable, *launch, "-m", "sasgp", "fit", "digits", "--out", f"{folder}/run"]
        command += ["--random-state", str(run.seed), *(["--max-epochs", str(max_epochs)] if max_epochs else [])]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        info = json.loads(Path(folder, "run", "run.json").read_text())
        steps = json.loads(Path(folder, "run", "history.jsonl").read_text().splitlines()[-1])["step"]
    return {"steps": steps} | {name: info["metrics"][name] for name in METRICS}


def table(records: Sequence[Record]) -> str:
    """Both, and their difference in standard errors."""
    rows = []
    for name in METRICS:
        one, two = ([r["results"][name] for r in records if r["settings"]["world"] == world] for world in (1, 2))
        cells = [mean_and_deviation(one), mean_and_deviation(two)]
        if min(len(one), len(two)) > 1:
            error = np.sqrt(np.var(one, ddof=1) / len(one) + np.var(two, ddof=1) / len(two))
            cells.append(f"{(np.mean(two) - np.mean(one)) / error:+.1f}".replace("-", "−"))
        else:
            cells.append("–")
        rows.append([name, *cells])
    return markdown(["", "one process", "two", "difference, standard errors"], rows)
