"""kill -9 at random moments, resume after each, and compare the end with that of an undisturbed run, bit for bit.

Most kills come a random moment after the first checkpoint of a process, so that training gets on; every fifth comes at
any time since the process was started, also while it loads or writes. After each the checkpoint must be readable.
"""

import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sasgp import SASGP
from sasgp.training import checkpoint
from studies.records import Record, Run
from studies.tables import table as markdown

OPTIONS = ("--latents", "point", "--batch-size", "64", "--active-set-size", "20", "--support-size", "50")


def runs(seed: int, quick: bool) -> list[Run]:
    """One."""
    return [Run("kill-test", {"kills": 2, "max_epochs": 300} if quick else {"kills": 50, "max_epochs": 3000})]


def fit(*tokens: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sasgp", "fit", *map(str, tokens)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def wait(process: "subprocess.Popen[str]", path: Path, any_time: bool, draw: random.Random) -> None:
    """Until the moment of the next kill."""
    begun = time.time()
    if any_time:
        time.sleep(draw.uniform(0, 12))
        return
    while process.poll() is None and not (path.exists() and path.stat().st_mtime > begun):
        time.sleep(0.002)
    time.sleep(draw.uniform(0, 0.3))


def same(one: Path, other: Path) -> bool:
    """Whether two runs left the same model, embedding and losses."""
    models = [SASGP.load(folder / "model.safetensors") for folder in (one, other)]
    pairs = zip(*(model.model_.state_dict().values() for model in models), strict=True)
    losses = [[record["loss"] for record in model.history_] for model in models]
    embeddings = [(folder / "embedding.csv").read_bytes() for folder in (one, other)]
    return all(torch.equal(a, b) for a, b in pairs) and losses[0] == losses[1] and embeddings[0] == embeddings[1]


def execute(run: Run) -> dict[str, Any]:
    """Run both and compare."""
    kills, epochs = run.settings["kills"], run.settings["max_epochs"]
    draw, started = random.Random(0), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        np.save(home / "x.npy", np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32))
        options = ("--max-epochs", epochs, *OPTIONS)
        whole = fit(home / "x.npy", "--out", home / "whole", *options)
        out = home / "run"
        path = out / "unfinished" / checkpoint.NAME
        process = fit(home / "x.npy", "--out", out, *options)
        done, in_writing, steps = 0, set[Path](), []
        while done < kills:
            wait(process, path, done % 5 == 4, draw)
            if process.poll() is not None:
                break  # finished before all kills were done: more epochs are needed
            process.kill()
            process.communicate()
            done += 1
            if path.exists():
                steps.append(checkpoint.read(path)["training"]["position"]["step"])  # raises if it is not readable
            in_writing |= set(path.parent.glob(f".{path.stem}.*"))  # temporary files that were left
            # Before it has written anything, a run is started rather than resumed
            resumable = (out / "unfinished" / "run.json").exists()
            process = fit("--resume", out) if resumable else fit(home / "x.npy", "--out", out, *options)
        error = process.communicate()[1]
        whole.communicate()
        assert process.returncode == whole.returncode == 0, error
        identical = same(out, home / "whole")
    if not identical or done < kills:
        raise RuntimeError(f"After {done} of {kills} kills the two runs were {'' if identical else 'not '}identical.")
    return {
        "kills": done,
        "while a checkpoint was being written": len(in_writing),
        "unreadable checkpoints": 0,
        "steps of the checkpoints found": steps,
        "identical": identical,
        "seconds": round(time.monotonic() - started),
    }


def table(records: Sequence[Record]) -> str:
    """All but the steps."""
    found = records[0]["results"]
    return markdown(["", ""], [[name, str(value)] for name, value in found.items() if not isinstance(value, list)])
