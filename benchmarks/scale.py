"""What scale costs, as ratios measured side by side in one run.

    sasgp data infinite-mnist --rows 1000000 --out big.npy
    SASGP_DATA=data python benchmarks/scale.py big.npy

| ratio | bound |
|---|---|
| time of a training step from a file of 10⁶ rows / from 60 000 float32 rows in memory | 1.15 |
| peak resident memory, N = 10⁶ at D = 784 | 1.2 GB |
| time of an epoch of MNIST, 2 processes × 1 thread / 1 process × 2 threads | 1.15 |

Steps are timed in short interleaved stretches, and the median of the ratios of neighbouring stretches is taken: what
else runs on the machine then hits both alike. Leaves benchmarks/results/scale.json.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

RESULT = Path(__file__).parent / "results" / "scale.json"
CPU = torch.device("cpu")


def trainer(array: Any, ranks: Any = None) -> Any:
    """The default model on rows, as `fit` makes it, but for the layout that it starts from."""
    from sasgp import SASGP, start
    from sasgp.models.sas import SASDecoder
    from sasgp.rows import ArrayRows
    from sasgp.train import Training

    rows, settings = ArrayRows(array, torch.float32, CPU), SASGP()
    mean, variance = torch.full((array.shape[1],), 0.13 if array.dtype.kind == "f" else 33.0), 0.09
    variance = variance if array.dtype.kind == "f" else variance * 255**2
    encoder = start.network(settings, mean, torch.tensor(variance**0.5), 0)
    kernel = start.kernel(settings, encoder, rows, variance)
    model = SASDecoder(encoder, kernel, noise=variance, mean=mean, active_set_size=400, encoder_noise=1.0)
    groups = model.parameter_groups(2e-3, 2e-2)
    return Training(model, rows, groups, batch_size=1024, max_epochs=10**6, seed=0, pause=lambda: True, ranks=ranks)


def steps(training: Any) -> Iterator[None]:
    for epoch in training:
        if epoch is None:
            yield


def timed(stream: Iterator[None], n: int) -> float:
    started = time.perf_counter()
    for _ in range(n):
        next(stream)
    return (time.perf_counter() - started) / n


def from_disk(path: Path, repetitions: int, stretch: int) -> dict[str, Any]:
    """Cost of a row: a file of a million against 60 000 in memory."""
    from sasgp.data import load

    both = {"memory": steps(trainer(load("mnist").X)), "disk": steps(trainer(load(path).X))}
    for stream in both.values():
        timed(stream, 3)
    seconds: dict[str, list[float]] = {name: [] for name in both}
    for _ in range(repetitions):
        for name, stream in both.items():
            seconds[name].append(timed(stream, stretch))
    ratios = [disk / memory for disk, memory in zip(seconds["disk"], seconds["memory"], strict=True)]
    medians = {f"ms a step, {name}": 1e3 * statistics.median(values) for name, values in seconds.items()}
    return medians | {"ratio": statistics.median(ratios), "quartiles": statistics.quantiles(ratios, n=4)}


def peak(path: Path, n_rows: int) -> float:
    """Peak resident memory, in MB, of a process that trains 60 steps on a file and then encodes 50 000 rows of it."""
    code = (
        "import sys; sys.path.insert(0, sys.argv[3]); from scale import *; from sasgp import SASGP\n"
        "X = np.load(sys.argv[1], mmap_mode='r').reshape(-1, 784)[: int(sys.argv[2])]\n"
        "class Stop(Exception): pass\n"
        "count = [0]\n"
        "from sasgp.models.sas import SASDecoder\n"
        "forward = SASDecoder.forward\n"
        "def limited(self, *a):\n"
        "    count[0] += 1\n"
        "    if count[0] > 60: raise Stop\n"
        "    return forward(self, *a)\n"
        "SASDecoder.forward = limited\n"
        "model = SASGP(max_epochs=3, random_state=0)\n"
        "try: model.fit(X)\n"
        "except Stop: pass\n"
        "from sasgp.rows import ArrayRows\n"
        "rows = ArrayRows(X, torch.float32, CPU)\n"
        "for i, block in enumerate(rows.blocks(8192)):\n"
        "    with torch.no_grad(): model.model_.encoder(block)\n"
        "    if i == 5: break\n"
        "print([l for l in open('/proc/self/status') if 'VmHWM' in l][0].split()[1])\n"
    )
    arguments = [str(path), str(n_rows), str(Path(__file__).parent)]
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    return int(done.stdout.split()[-1]) / 1024


def worker() -> None:
    """A process that trains MNIST, a stretch of steps for every number of them on standard input."""
    from sasgp.data import load
    from sasgp.ranks import joined

    with joined(CPU) as ranks:
        stream = steps(trainer(load("mnist").X, ranks))
        timed(stream, 2)
        for line in sys.stdin:
            print(timed(stream, int(line)), flush=True)
            if line.strip() == "1":  # the last one
                break


def two_ranks(repetitions: int, stretch: int) -> dict[str, Any]:
    """Time of an epoch of 60 000 rows: 59 steps of one process with two threads, 30 of two with one each."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])

    def start(threads: int, **environment: str) -> "subprocess.Popen[str]":
        command = [sys.executable, __file__, "--worker"]
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

    epochs: dict[str, list[float]] = {"one": [], "two": []}
    for _ in range(repetitions):
        epochs["one"].append(59 * stretch_of(one, stretch))
        epochs["two"].append(30 * stretch_of(pair, stretch))
    for processes in (one, pair):
        stretch_of(processes, 1)
    for process in (*one, *pair):
        process.communicate()
    ratios = [two / alone for two, alone in zip(epochs["two"], epochs["one"], strict=True)]
    return {
        "seconds an epoch, 1 process × 2 threads": statistics.median(epochs["one"]),
        "seconds an epoch, 2 processes × 1 thread": statistics.median(epochs["two"]),
        "ratio": statistics.median(ratios),
        "quartiles": statistics.quantiles(ratios, n=4),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--repetitions", type=int, default=15)
    parser.add_argument("--stretch", type=int, default=10)
    parser.add_argument("--worker", action="store_true")
    arguments = parser.parse_args()
    if arguments.worker:
        worker()
        sys.exit()
    N = len(np.load(arguments.file, mmap_mode="r"))
    before = os.getloadavg()
    result: dict[str, Any] = {"disk": from_disk(arguments.file, arguments.repetitions, arguments.stretch)}
    result["peak resident memory, MB"] = {str(n): peak(arguments.file, n) for n in (60_000, N)}
    result["ranks"] = two_ranks(arguments.repetitions, arguments.stretch)
    result["machine"] = {"cores": os.cpu_count(), "load before": before, "load after": os.getloadavg()}
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))
    print(f"row from disk / in memory  {result['disk']['ratio']:.3f}  (bound 1.15)")
    print(f"peak memory at {N} rows  {result['peak resident memory, MB'][str(N)]:.0f} MB  (bound 1200)")
    print(f"epoch, 2 × 1 / 1 × 2 threads  {result['ranks']['ratio']:.3f}  (bound 1.15)")
