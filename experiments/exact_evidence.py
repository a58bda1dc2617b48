"""The exact evidence of a trained model at tens of thousands of rows, and SAS_A beside it. Trains nothing.

    SASGP_DATA=data python experiments/exact_evidence.py runs/mnist --rows 40000

The argument is a folder that `sasgp fit` left. Rows are drawn at random from its training rows, the same ones for every
number. Leaves experiments/results/exact-evidence-{data}-{rows}-{dtype}.json. 40 000 rows of MNIST in float32 take
2.4e13 operations and 4 GiB.
"""

import argparse
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path

import numpy as np
import torch

import sasgp
from sasgp import SASGP
from sasgp.data import load
from sasgp.evidence import Evidence

RESULTS = Path(__file__).parent / "results"
SIZES = (100, 200, 400, 800)


def record(found: Evidence) -> dict[str, object]:
    """An estimate as JSON, with the figures for each value."""
    return asdict(found) | {
        "per_value": found.per_value,
        "standard_error_per_value": found.standard_error_per_value,
    }


def run(folder: Path, n_rows: int, dtype: str, n_estimates: int, seed: int) -> dict[str, object]:
    """Exact evidence and SAS_A of the same rows."""
    model = SASGP.load(folder / "model.safetensors")
    model.verbose = True
    data = load(json.loads((folder / "run.json").read_text())["data"]["source"])
    X = data.X[np.sort(np.random.default_rng(seed).permutation(len(data.X))[:n_rows])]
    exact = model.evidence(X, method="exact", dtype=dtype)
    print(exact, flush=True)
    result = {"exact": record(exact)}
    for A in SIZES:
        estimate = model.evidence(
            X, method="sas", active_set_size=A, n_estimates=n_estimates, dtype=dtype, random_state=seed
        )
        print(estimate, flush=True)
        result[f"SAS, A = {A}"] = record(estimate)
    return {
        "data": data.name,
        "seed": seed,
        "evidence": result,
        "flops_per_second": exact.flops / exact.seconds,
        "versions": {"sasgp": sasgp.__version__, "torch": torch.__version__, "python": platform.python_version()},
        "machine": {"cores": os.cpu_count(), "threads": torch.get_num_threads()},
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--dtype", choices=["float32", "float64"], default="float32")
    parser.add_argument("--n-estimates", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    given = parser.parse_args()
    found = run(given.run, given.rows, given.dtype, given.n_estimates, given.seed)
    path = given.out / f"exact-evidence-{found['data']}-{given.rows}-{given.dtype}.json"
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(found, indent=1))
    partial.rename(path)
