"""kill -9 at random moments, resume after each, and compare the end with that of an undisturbed run, bit for bit.

    python experiments/kill_test.py --kills 50

Most kills come a random moment after the first checkpoint of a process, so that training gets on; every fifth comes at
any time since the process was started, also while it loads or writes. After each the checkpoint must be readable.
Leaves experiments/results/kill-test.json.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from sasgp import SASGP
from sasgp.training import checkpoint

RESULT = Path(__file__).parent / "results" / "kill-test.json"
OPTIONS = ("--latents", "point", "--batch-size", "64", "--active-set-size", "20", "--support-size", "50")


def fit(*tokens: object) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "sasgp", "fit", *map(str, tokens)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


def main(kills: int, epochs: int, seed: int) -> dict[str, object]:
    """Run both and compare."""
    draw, started = random.Random(seed), time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        np.save(home / "x.npy", np.random.default_rng(0).normal(size=(300, 6)).astype(np.float32))
        whole = fit(home / "x.npy", "--out", home / "whole", "--max-epochs", epochs, *OPTIONS)
        run, path = home / "run", home / "run" / "unfinished" / checkpoint.NAME
        process = fit(home / "x.npy", "--out", run, "--max-epochs", epochs, *OPTIONS)
        done, in_writing, steps = 0, 0, []
        while done < kills:
            begun = time.time()
            if done % 5 == 4:
                time.sleep(draw.uniform(0, 12))
            else:
                while process.poll() is None and not (path.exists() and path.stat().st_mtime > begun):
                    time.sleep(0.002)
                time.sleep(draw.uniform(0, 0.3))
            if process.poll() is not None:
                break  # finished before all kills were done: more epochs are needed
            process.kill()
            process.communicate()
            done += 1
            if path.exists():
                steps.append(checkpoint.read(path)["training"]["position"]["step"])
            in_writing += path.with_name(f".{path.name}.tmp").exists()
            # Before it has written anything, a run is started rather than resumed
            again = ("--resume", run) if (run / "unfinished" / "run.json").exists() else (
                home / "x.npy", "--out", run, "--max-epochs", epochs, *OPTIONS
            )  # fmt: skip
            process = fit(*again)
        error = process.communicate()[1]
        whole.communicate()
        assert process.returncode == whole.returncode == 0, error
        one, other = (SASGP.load(folder / "model.safetensors") for folder in (run, home / "whole"))
        pairs = zip(one.model_.state_dict().values(), other.model_.state_dict().values(), strict=True)
        identical = all(torch.equal(a, b) for a, b in pairs)
        identical &= (run / "embedding.csv").read_bytes() == (home / "whole" / "embedding.csv").read_bytes()
        identical &= [r["loss"] for r in one.history_] == [r["loss"] for r in other.history_]
    return {
        "kills": done,
        "while a checkpoint was being written": in_writing,
        "unreadable checkpoints": 0,  # reading one raises
        "steps of the checkpoints found": steps,
        "identical": identical,
        "seconds": round(time.monotonic() - started),
        "machine": {"cores": os.cpu_count(), "load": os.getloadavg()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--epochs", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    result = main(arguments.kills, arguments.epochs, arguments.seed)
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result) + "\n")
    print({name: value for name, value in result.items() if name != "steps of the checkpoints found"})
    sys.exit(not (result["identical"] and result["kills"] >= arguments.kills))
