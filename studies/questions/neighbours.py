"""Nearest rows of a regression: what the search in cells misses, how cost grows with the rows, and a million from disk.

Inputs are ten standard normal numbers, unless said otherwise, and the target is a draw of a Gaussian process with a
Matérn-3/2 kernel by random Fourier features, with noise variance .01.

    recall     a million rows: the share of the 256 nearest rows that the cells find, and the error of predictions from
               them beside those of an exact search. The kernel is known, nothing is trained. "alike": all inputs have
               one lengthscale, the worst case; "unlike": lengthscales rise from 2 to 20
    scaling    CPU time of training, of the index and of predictions, for 10⁴ to 10⁶ rows of "unlike", all by default
    memory     the peak of a process that fits a million rows × 20 inputs from a .npy file, and predicts 1000

Seconds are CPU time of one thread, so that they mean something on a shared machine.
"""

import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import torch
from torch import Tensor

from sasgp import SASGPRegressor
from sasgp.data.rows import ArrayRows
from sasgp.estimators import supervised
from sasgp.gp.nearest import NearestRows
from sasgp.gp.neighbours import Neighbours
from sasgp.training.run import TrainingRun
from studies.records import Record, Run
from studies.tables import NOTHING, number
from studies.tables import table as markdown

SEEDS = (0,)
NOISE = 0.01
FEATURES = 500  # of the random function
K = 256


def runs(seed: int, quick: bool) -> list[Run]:
    """Scaling, recall, memory."""
    if quick:
        return [Run("neighbours-scaling-3000", {"rows": 3000, "inputs": 10, "queries": 50, "max_epochs": 1}, seed)]
    scaling = [
        Run(f"neighbours-scaling-{rows}", {"rows": rows, "inputs": 10, "queries": 2000, "max_epochs": None}, seed)
        for rows in (10**4, 10**5, 10**6)
    ]
    recall = [
        Run(
            f"neighbours-recall-{inputs}-{which}",
            {"rows": 10**6, "inputs": inputs, "queries": 1000, "inputs are": which},
        )
        for inputs, which in ((3, "alike"), (10, "alike"), (20, "alike"), (10, "unlike"))
    ]
    return [*scaling, *recall, Run("neighbours-memory", {"rows": 10**6, "inputs": 20, "queries": 1000})]


# ---- data ----


def lengthscales(inputs: int, which: str = "unlike") -> Tensor:
    """Of the kernel that targets are drawn with, [P]."""
    if which == "alike":
        return torch.full((inputs,), 2 * math.sqrt(inputs))
    return torch.logspace(math.log10(2), math.log10(20), inputs)


class Drawn:
    """A function drawn from a Gaussian process with a Matérn-3/2 kernel: a sum of cosines."""

    def __init__(self, scales: Tensor, draw: torch.Generator) -> None:
        # The spectral density is Student's t with 3 degrees of freedom: w = u √(3/χ²₃) / ℓ
        u, normal = torch.randn(FEATURES, len(scales), generator=draw), torch.randn(FEATURES, 3, generator=draw)
        self.w = u * (3 / normal.square().sum(1, keepdim=True)).sqrt() / scales
        self.shift = 2 * math.pi * torch.rand(FEATURES, generator=draw)

    def __call__(self, X: Tensor) -> Tensor:
        parts = [torch.cos(part @ self.w.T + self.shift).sum(1) for part in X.split(50_000)]
        return math.sqrt(2 / FEATURES) * torch.cat(parts)


def made(n: int, inputs: int, scales: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Inputs [n, P], what the function says there [n], and with noise [n]."""
    draw = torch.Generator().manual_seed(seed)
    f, X = Drawn(scales, draw), torch.randn(n, inputs, generator=draw)
    values = f(X)
    return X, values, values + math.sqrt(NOISE) * torch.randn(n, generator=draw)


# ---- measurements ----


def execute(run: Run) -> dict[str, Any]:
    """One of the three."""
    what = run.name.split("-")[1]
    return {"recall": recall, "scaling": scaling, "memory": memory}[what](dict(run.settings), run.seed or 0)


@torch.no_grad()
def recall(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """The search in cells beside the exact one."""
    n, inputs, queries = settings["rows"], settings["inputs"], settings["queries"]
    scales = lengthscales(inputs, settings["inputs are"])
    X, f, y = made(n + queries, inputs, scales, seed)
    Z, at, y = X[:n], X[n:], y[:n, None]
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=inputs))
    kernel.base_kernel.lengthscale, kernel.outputscale = scales, 1.0
    index = Neighbours(Z, scales)
    found: dict[str, Any] = {"cells": len(index.centres) if index.centres is not None else 0}
    near = {}
    for name in ("cells", "exact"):
        if name == "exact":
            index.centres = None  # without cells, it looks at all rows
        cpu = time.process_time()
        near[name] = index.nearest(at, K)
        found[f"search in {name}, ms per query"] = 1e3 * (time.process_time() - cpu) / queries
        posterior = NearestRows(
            kernel, torch.tensor(NOISE), Z, lambda rows: y[rows].double(), torch.zeros(1).double(), K, index=index
        )
        mean, var = posterior.predict(at)
        error = mean[:, 0] - f[n:]
        log_p = -0.5 * (torch.log(2 * math.pi * (var[:, 0] - NOISE)) + error.square() / (var[:, 0] - NOISE))
        found |= {f"rmse, {name}": float(error.square().mean().sqrt()), f"nll, {name}": float(-log_p.mean())}
    both = torch.cat([near["cells"], near["exact"]], 1).sort(1).values
    found["recall"] = float((both[:, 1:] == both[:, :-1]).sum() / near["exact"].numel())
    return found


@contextmanager
def clocks(*of: tuple[Any, str]) -> Iterator[dict[str, list[float]]]:
    """CPU seconds of each call of some functions, by name, while it is open."""
    spent: dict[str, list[float]] = {name: [] for _, name in of}
    before = [(owner, name, getattr(owner, name)) for owner, name in of]

    def timed(name: str, own: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            cpu = time.process_time()
            try:
                return own(*arguments, **options)
            finally:
                spent[name].append(time.process_time() - cpu)

        return call

    for owner, name, own in before:
        setattr(owner, name, timed(name, own))
    try:
        yield spent
    finally:
        for owner, name, own in before:
            setattr(owner, name, own)


def scaling(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """CPU time of what `fit` and `predict` do."""
    n, inputs, queries = settings["rows"], settings["inputs"], settings["queries"]
    X, f, y = (part.numpy() for part in made(n + queries, inputs, lengthscales(inputs), seed))
    with clocks((TrainingRun, "train"), (supervised, "sharpen"), (Neighbours, "__init__")) as spent:
        cpu = time.process_time()
        model = SASGPRegressor(max_epochs=settings["max_epochs"], random_state=seed).fit(X[:n], y[:n])
        cpu = time.process_time() - cpu
    builds = spent["__init__"]
    found = {
        "fit": cpu,
        "active sets": sum(spent["train"]),
        "last stage, with its index": sum(spent["sharpen"]),
        "one index": float(np.median(builds)),
        "indices": len(builds),
        "indices together": sum(builds),
    }
    cpu = time.process_time()
    mean = model.predict(X[n:])
    found["prediction, ms per query"] = 1e3 * (time.process_time() - cpu) / queries
    at = model._placed(ArrayRows(X[n:], torch.float32, torch.device("cpu")))
    cpu = time.process_time()
    model.posterior_.index.nearest(at, K)  # type: ignore[attr-defined]
    found["search, ms per query"] = 1e3 * (time.process_time() - cpu) / queries
    return found | {"rmse": float(np.sqrt(np.mean((mean - f[n:]) ** 2)))}


def memory(settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """The peak memory of a process that fits and predicts from a file."""
    n, inputs = settings["rows"], settings["inputs"]
    with tempfile.TemporaryDirectory() as folder:
        X, _, y = made(n + settings["queries"], inputs, lengthscales(inputs), seed)
        for name, values in (("X", X), ("y", y)):
            np.save(Path(folder) / f"{name}.npy", values.numpy())
        file = (Path(folder) / "X.npy").stat().st_size
        command = [sys.executable, "-m", "studies.questions.neighbours", folder, str(n)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {
        "file, MB": file / 2**20,
        **dict(zip(("imports, MB", "fit, MB", "peak, MB"), map(float, said), strict=True)),
    }


def in_its_own_process(folder: Path, n: int) -> None:
    """Fit and predict from files, and print the peak memory of the process on the way."""
    peaks = [_peak()]
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in "Xy")
    model = SASGPRegressor(random_state=0).fit(X[:n], y[:n])
    peaks.append(_peak())
    model.predict(X[n:], return_std=True)
    print(*peaks, _peak())


def _peak() -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


# ---- tables ----


def exponents(records: Sequence[Record], keys: Sequence[str]) -> dict[str, float]:
    """B of t ∝ N^b, by least squares of the logarithms, of what was measured for several N."""
    n = np.log([record["settings"]["rows"] for record in records])
    found = {key: [record["results"][key] for record in records] for key in keys}
    return {key: float(np.polyfit(n, np.log(values), 1)[0]) for key, values in found.items() if len(values) > 1}


def part(records: Sequence[Record]) -> str:
    """How CPU time grows with the number of rows."""
    found = [record for record in records if record["name"].startswith("neighbours-scaling")]
    found.sort(key=lambda record: record["settings"]["rows"])
    keys = [key for key in found[0]["results"] if key not in ("indices", "rmse")]
    grown = exponents(
        found, [key for key in keys if "ind" not in key]
    )  # up to 100 000 rows, an index is made of nothing
    lines = [
        [
            key if "ms" in key else f"{key}, s",
            *(number(record["results"][key], 2) for record in found),
            f"{grown[key]:.2f}".replace("-", "−") if key in grown else NOTHING,
        ]
        for key in keys
    ]
    return markdown(["CPU time", *(f"{r['settings']['rows']:,} rows" for r in found), "∝ N to the"], lines)


def table(records: Sequence[Record]) -> str:
    """One table for each of the three."""
    texts = [part(records)]
    if recalls := [record for record in records if record["name"].startswith("neighbours-recall")]:
        lines = [
            [
                f"{r['settings']['inputs']} {r['settings']['inputs are']}",
                *(number(value).replace("-", "−") for value in r["results"].values()),
            ]
            for r in recalls
        ]
        heads = (key.replace("rmse", "RMSE").replace("nll", "NLL") for key in recalls[0]["results"])
        texts.append(markdown(["inputs", *heads], lines))
    for record in records:
        if record["name"] == "neighbours-memory":
            found = record["results"]
            texts.append(markdown(list(found), [[f"{value:.0f}" for value in found.values()]]))
    return "\n\n".join(texts)


if __name__ == "__main__":
    in_its_own_process(Path(sys.argv[1]), int(sys.argv[2]))
