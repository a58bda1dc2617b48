"""Do two processes train as good a model as one? digits, default settings, several seeds each.

    python experiments/two_ranks.py --seeds 5

The number of steps is that of one process (`max_epochs` is chosen so), each with twice the rows. Every run is a line of
experiments/results/two-ranks.jsonl; those that are there are skipped.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

RESULT = Path(__file__).parent / "results" / "two-ranks.jsonl"
METRICS = ("rmse", "nlpd", "knn_1")


def run(world: int, seed: int) -> dict[str, object]:
    """A run of the command line, and what it measured on the rows held out."""
    with tempfile.TemporaryDirectory() as folder:
        launch = ["-m", "torch.distributed.run", "--nproc-per-node", "2"] if world == 2 else []
        command = [sys.executable, *launch, "-m", "sasgp", "fit", "digits", "--out", f"{folder}/run"]
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        subprocess.run([*command, "--random-state", str(seed)], check=True, capture_output=True, env=environment)
        info = json.loads(Path(folder, "run", "run.json").read_text())
        steps = json.loads(Path(folder, "run", "history.jsonl").read_text().splitlines()[-1])["step"]
    return {"world": world, "seed": seed, "steps": steps} | {name: info["metrics"][name] for name in METRICS}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    results = [json.loads(line) for line in RESULT.read_text().splitlines()] if RESULT.exists() else []
    done = {(result["world"], result["seed"]) for result in results}
    for seed in range(seeds):
        for world in (1, 2):
            if (world, seed) not in done:
                results.append(run(world, seed))
                with RESULT.open("a") as file:
                    file.write(json.dumps(results[-1]) + "\n")
    for name in METRICS:
        one, two = (np.array([r[name] for r in results if r["world"] == world]) for world in (1, 2))
        error = np.sqrt(one.var(ddof=1) / len(one) + two.var(ddof=1) / len(two))
        print(
            f"{name:6} one process {one.mean():.4f} ± {one.std(ddof=1):.4f}   two {two.mean():.4f} ± "
            f"{two.std(ddof=1):.4f}   difference {(two.mean() - one.mean()) / error:+.1f} standard errors"
        )
