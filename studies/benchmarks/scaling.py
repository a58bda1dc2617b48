"""What a step costs against A, B, D, Q and threads, and an epoch against N, with the exponents of a power law.

One size varies at a time, the others are the defaults at MNIST's D: A = 400, B = 1024, D = 784, Q = 2. Rows for N are
bytes in a .npy file that `fit` would leave on disk (up to 64 MiB it reads them into memory, and so does this).
"""

import math
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sasgp.data.rows import POOL_BYTES
from studies.benchmarks.measure import exponent, interleaved, spread
from studies.benchmarks.step import one_step, random_file, random_rows, trainer
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["execute", "table"]

BASE: dict[str, Any] = {"active_set_size": 400, "batch_size": 1024, "n_components": 2}
NAMES = {"A": "active_set_size", "B": "batch_size", "Q": "n_components"}
D, ROWS = 784, 8192  # of the rows in memory
SWEEPS = {"A": (100, 200, 400, 800), "B": (512, 1024, 2048, 4096), "D": (64, 256, 784, 3072), "Q": (2, 4, 8, 16)}
QUICK_SWEEPS = {"A": (100, 400), "B": (512, 1024), "D": (64, 784), "Q": (2, 8)}
N_SIZES, QUICK_N_SIZES = (10**4, 10**5, 10**6), (10**4, 10**5)
POOL_STEPS = POOL_BYTES // (BASE["batch_size"] * D)  # a file is read a pool at a time: a stretch has one


def with_threads(n: int, step: Callable[[], object]) -> Callable[[], object]:
    """The same step on n threads."""

    def call() -> None:
        torch.set_num_threads(n)
        step()

    return call


def execute(run: Run) -> dict[str, Any]:
    """One sweep after the other; within a sweep the sizes take turns."""
    quick = run.settings["quick"]
    rounds, seconds = (3, 0.1) if quick else (7, 0.5)
    threads = torch.get_num_threads()
    sweeps: dict[str, Any] = {}

    def sweep(
        name: str, unit: str, steps: dict[int, Callable[[], object]], each: dict[int, int], **options: Any
    ) -> None:
        contenders = {str(size): step for size, step in steps.items()}
        found = interleaved(contenders, rounds=rounds, seconds=seconds, title=f"scaling  {name}", **options)
        costs = {size: [each.get(size, 1000) * s for s in found[str(size)]] for size in steps}
        medians = [spread(cost)["median"] for cost in costs.values()]
        sweeps[name] = {
            "unit": unit,
            "sizes": list(steps),
            "cost": [spread(cost) for cost in costs.values()],
            "exponent": exponent(list(steps), medians) if len(steps) > 1 else math.nan,
        }

    for name, sizes in (QUICK_SWEEPS if quick else SWEEPS).items():
        X = random_rows(ROWS, max(sizes) if name == "D" else D)
        steps = {}
        for size in sizes:
            settings = BASE | ({NAMES[name]: size} if name in NAMES else {})
            steps[size] = one_step(trainer(np.ascontiguousarray(X[:, :size]) if name == "D" else X, **settings))
        sweep(name, "ms a step", steps, {})

    X = random_rows(ROWS, D)
    counts = [2**i for i in range((os.cpu_count() or 1).bit_length())]
    steps = {n: with_threads(n, one_step(trainer(X, **BASE))) for n in counts}
    sweep("threads", "ms a step", steps, {})
    torch.set_num_threads(threads)

    with tempfile.TemporaryDirectory() as folder:
        n_sizes = QUICK_N_SIZES if quick else N_SIZES
        path = random_file(Path(folder) / "rows.npy", max(n_sizes), D)
        X = np.load(path, mmap_mode="r")
        steps = {N: one_step(trainer(X[:N], **BASE)) for N in n_sizes}
        batches = {N: math.ceil(N / BASE["batch_size"]) for N in n_sizes}
        sweep("N", "s an epoch", steps, batches, at_least=5 if quick else POOL_STEPS)
    return {"base": BASE | {"D": D}, "sweeps": sweeps}


def table(records: Sequence[Record]) -> str:
    """One line per size that varies."""
    result = records[0]["results"]
    return of_rows(
        [
            {
                "varies": name,
                "over": ", ".join(f"{size:,}" for size in sweep["sizes"]),
                "cost": ", ".join(f"{cost['median']:.3g}" for cost in sweep["cost"]) + f" {sweep['unit']}",
                "exponent": f"{sweep['exponent']:.2f}",
            }
            for name, sweep in result["sweeps"].items()
        ]
    )
