"""Cost against the number of rows, up to ten million: a step, the pass over all rows, memory; and what 10⁹ would cost.

    python -m studies.benchmarks.growth 1000000

Each size is a process of its own. Its rows are a sparse .npy file of bytes, [N, 64]: only the first of them are on
disk, but all are read, encoded and added as any others. The second table adds up a run on many machines from these
numbers. It is arithmetic, not a measurement.
"""

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from studies.benchmarks.measure import exponent
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["added_up", "execute", "table"]

SIZES, QUICK_SIZES = (10**4, 10**5, 10**6, 10**7), (10**4, 10**5)
D, Q, POSITIONS, FILLED, STEPS = 64, 2, 300, 10_000, 60
MACHINES, ROWS, EPOCHS, BATCH = 64, 10**9, 3, 1024
NETWORK = {"1 Gbit/s": 125e6, "10 Gbit/s": 1.25e9}  # bytes a second


def measured(N: int) -> dict[str, float]:
    """Seconds of a step and of the pass over N rows, and the peak of resident memory in MB."""
    import resource

    import numpy as np
    import torch

    from sasgp.data.rows import ArrayRows
    from sasgp.models.encoders import ENCODE_ROWS
    from studies.benchmarks.step import one_step, trainer

    with tempfile.TemporaryDirectory() as folder:
        X = np.lib.format.open_memmap(Path(folder) / "rows.npy", mode="w+", dtype=np.uint8, shape=(N, D))
        filled = min(N, FILLED)
        X[:filled] = np.random.default_rng(0).integers(0, 256, (filled, D), dtype=np.uint8)
        X.flush()
        X = np.load(Path(folder) / "rows.npy", mmap_mode="r")
        started = time.perf_counter()
        training = trainer(X)
        step = one_step(training)
        step()
        first = time.perf_counter() - started
        started = time.perf_counter()
        for _ in range(STEPS):
            step()
        seconds = (time.perf_counter() - started) / STEPS
        model: Any = training.model
        model.eval()
        sums = model.row_sums(torch.randn(POSITIONS, Q, generator=torch.Generator().manual_seed(0)))
        started = time.perf_counter()
        with torch.no_grad():
            for block in ArrayRows(X, torch.float32, torch.device("cpu")).blocks(ENCODE_ROWS):
                sums.add(model.centred(block), model.encoder.position(block))
        passed = time.perf_counter() - started
    parameters = sum(p.numel() for p in model.parameters())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"first step": first, "step": seconds, "pass": passed, "peak MB": peak, "parameters": parameters}


def execute(run: Run) -> dict[str, Any]:
    """One process per size."""
    found: dict[str, Any] = {}
    for N in QUICK_SIZES if run.settings["quick"] else SIZES:
        line = [sys.executable, "-m", "studies.benchmarks.growth", str(N)]
        found[str(N)] = json.loads(subprocess.run(line, check=True, stdout=subprocess.PIPE, text=True).stdout)
    return {"sizes": found}


def added_up(one: dict[str, float], N: int) -> list[dict[str, Any]]:
    """What 10⁹ rows on 64 machines would cost, from the costs of N rows on one."""
    steps = EPOCHS * ROWS / (MACHINES * BATCH)
    # A ring moves 2 (W−1)/W times the gradient through each machine, float32
    ring = 2 * (MACHINES - 1) / MACHINES * 4 * one["parameters"]
    through = {name: steps * ring / speed for name, speed in NETWORK.items()}
    hours, share = 3600.0, ROWS / MACHINES
    return [
        {"of 10⁹ rows on 64 machines": "steps of 3 epochs", "each machine": f"{steps:,.0f}"},
        {"of 10⁹ rows on 64 machines": "computing them, h", "each machine": steps * one["step"] / hours},
        {"of 10⁹ rows on 64 machines": "bytes through the network a step", "each machine": f"{ring / 1e6:.2f} MB"},
        *(
            {"of 10⁹ rows on 64 machines": f"sending them at {name}, h", "each machine": seconds / hours}
            for name, seconds in through.items()
        ),
        {"of 10⁹ rows on 64 machines": "the pass over its share, h", "each machine": share * one["pass"] / N / hours},
        {
            "of 10⁹ rows on 64 machines": "latents of all rows, as `fit` keeps them",
            "each machine": f"{ROWS * Q * 4 / 1e9:.0f} GB",
        },
        {
            "of 10⁹ rows on 64 machines": "the data, if each reads its own share",
            "each machine": f"{share * D / 1e9:.1f} GB",
        },
    ]


def table(records: Sequence[Record]) -> str:
    """One line per size, with exponents; and the sum."""
    found = records[0]["results"]["sizes"]
    sizes, costs = [int(N) for N in found], list(found.values())
    rows = [
        {
            "rows": f"{N:,}",
            "step, ms": 1e3 * one["step"],
            "start and first step, s": one["first step"],
            "pass over all rows, s": one["pass"],
            "peak memory, MB": f"{one['peak MB']:.0f}",
        }
        for N, one in zip(sizes, costs, strict=True)
    ]
    names = ("step", "first step", "pass", "peak MB")
    last = ["exponent", *(f"{exponent(sizes, [one[name] for one in costs]):.2f}" for name in names)]
    return f"{of_rows([*rows, dict(zip(rows[0], last, strict=True))])}\n\n{of_rows(added_up(costs[-1], sizes[-1]))}"


if __name__ == "__main__":
    print(json.dumps(measured(int(sys.argv[1]))))
