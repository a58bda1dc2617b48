"""What scale costs: rows from disk, memory, and two processes.

| ratio | bound |
|---|---|
| time of a training step from a file of 10⁶ rows / from 60 000 float32 rows in memory | 1.15 |
| peak resident memory, N = 10⁶ at D = 784 | 1.2 GB |
| time of an epoch of 60 000 rows, 2 processes × 1 thread / 1 process × 2 threads | 1.15 |

The file is one of your own (`python -m studies data infinite-mnist --rows 1000000 --out big.npy`, then
`--file big.npy`), or random bytes that are written for the purpose.
"""

import argparse
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import torch

from studies.benchmarks.measure import compared, interleaved, spread, timed, turns
from studies.benchmarks.step import one_step, random_file, random_rows, trainer
from studies.records import EARLIER, Record, Run
from studies.tables import of_rows

__all__ = ["execute", "table"]

N, D, IN_MEMORY = 10**6, 784, 60_000
QUICK_N = 10**5
BATCH = 1024


def from_disk(path: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Cost of a row: a file of a million against 60 000 in memory."""
    steps = {
        "memory": one_step(trainer(random_rows(IN_MEMORY, D))),
        "disk": one_step(trainer(np.load(path, mmap_mode="r").reshape(-1, D))),
    }
    found = interleaved(steps, rounds=rounds, seconds=seconds, title="scale  disk")
    ratio = compared(found, "disk", "memory")
    medians = {f"ms a step, {name}": 1e3 * spread(values)["median"] for name, values in found.items()}
    return medians | {"ratio": ratio["median"], "quartiles": ratio["quartiles"]}


def peak(path: Path, n_rows: int) -> float:
    """Peak resident memory in MB of a process that trains 60 steps on rows of a file and encodes 50 000 of them."""
    command = [sys.executable, "-m", "studies.benchmarks.scale", "--peak", str(n_rows), "--file", str(path)]
    return float(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()[-1])


def memory_of_fit(path: Path, n_rows: int, steps: int = 60) -> float:
    """In this process: `fit` as it is, left in the middle of an epoch."""
    from sasgp import SASGP
    from sasgp.data.rows import ArrayRows
    from sasgp.models.sas import SASModel

    forward, X = SASModel.forward, np.load(path, mmap_mode="r").reshape(-1, D)[:n_rows]
    left = iter(range(steps))

    class EnoughError(Exception):
        pass

    def limited(self: Any, *arguments: Any) -> Any:
        if next(left, None) is None:
            raise EnoughError
        return forward(self, *arguments)

    SASModel.forward = limited  # type: ignore[method-assign, assignment]
    model = SASGP(max_epochs=3, random_state=0, **EARLIER)
    with suppress(EnoughError):
        model.fit(X)
    with torch.no_grad():
        for block, _ in zip(ArrayRows(X, torch.float32, torch.device("cpu")).blocks(8192), range(6), strict=False):
            model.model_.encoder(block)
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if "VmHWM" in line).split()[1]) / 1024


def worker() -> None:
    """A process that trains, a stretch of steps for every number of them on standard input."""
    from sasgp.training.distributed import joined

    with joined(torch.device("cpu")) as ranks:
        step = one_step(trainer(random_rows(IN_MEMORY, D), ranks=ranks))
        timed(step, 2)
        for line in sys.stdin:
            print(timed(step, int(line)), flush=True)
            if line.strip() == "1":  # the last one
                break


def two_ranks(rounds: int, stretch: int) -> dict[str, Any]:
    """Time of an epoch of 60 000 rows: 59 steps of one process with two threads, 30 of two with one each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def start(threads: int, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "studies.benchmarks.scale", "--worker"]
        environment = os.environ | {"OMP_NUM_THREADS": str(threads)} | environment
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    one, pair = [start(2)], [start(1, RANK=str(rank), **group) for rank in range(2)]

    def stretch_of(processes: "list[subprocess.Popen[str]]", n: int) -> float:
        for process in processes:
            assert process.stdin is not None
            process.stdin.write(f"{n}\n")
            process.stdin.flush()
        return max(float(process.stdout.readline()) for process in processes if process.stdout is not None)

    batches = -(-IN_MEMORY // BATCH)
    epochs = {
        "one": lambda: batches * stretch_of(one, stretch),
        "two": lambda: -(-batches // 2) * stretch_of(pair, stretch),
    }
    found = turns(epochs, rounds, "scale  two processes")
    for processes in (one, pair):
        stretch_of(processes, 1)
    for process in (*one, *pair):
        process.communicate()
    ratio = compared(found, "two", "one")
    return {
        "seconds an epoch, 1 process × 2 threads": spread(found["one"])["median"],
        "seconds an epoch, 2 processes × 1 thread": spread(found["two"])["median"],
        "ratio": ratio["median"],
        "quartiles": ratio["quartiles"],
    }


def execute(run: Run) -> dict[str, Any]:
    """All three."""
    quick = run.settings["quick"]
    rounds, seconds, stretch = (2, 0.2, 2) if quick else (15, 0.8, 10)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(run.file) if run.file else random_file(Path(folder) / "rows.npy", QUICK_N if quick else N, D)
        n_rows = len(np.load(path, mmap_mode="r"))
        return {
            "disk": from_disk(path, rounds, seconds),
            "peak resident memory, MB": {str(n): peak(path, n) for n in (IN_MEMORY, n_rows)[quick:]},
            "ranks": two_ranks(rounds, stretch),
        }


def table(records: Sequence[Record]) -> str:
    """One line per ratio."""
    result = records[0]["results"]
    disk, ranks, peaks = result["disk"], result["ranks"], list(result["peak resident memory, MB"].items())

    def ratio(part: dict[str, Any]) -> dict[str, Any]:
        return {"median": part["ratio"], "quartiles": [part["quartiles"][0], part["quartiles"][-1]]}

    rows = f"{int(peaks[-1][0]):,}"
    named = {
        f"step from a file of {rows} rows / from 60,000 rows in memory": (ratio(disk), 1.15),
        "epoch, 2 processes × 1 thread / 1 process × 2 threads": (ratio(ranks), 1.15),
        f"peak memory at {rows} rows / at 60,000 rows, {peaks[-1][1]:.0f} MB": (peaks[-1][1] / peaks[0][1], "1200 MB"),
    }
    return of_rows(
        [{"ratio": name, "measured (quartiles)": value, "bound": bound} for name, (value, bound) in named.items()]
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", action="store_true")
    parser.add_argument("--peak", type=int)
    parser.add_argument("--file", type=Path)
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
    else:
        print(memory_of_fit(arguments.file, arguments.peak))
