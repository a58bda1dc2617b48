"""Rounds of interleaved stretches, their medians and quartiles, exponents of growth, and what a run was made on.

Things that are compared take turns, A B A B …, so that whatever else the machine does hits all alike, and a ratio is
taken within a round before the median is taken over rounds.
"""

import importlib.metadata
import json
import os
import platform
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch

from sasgp.training.malloc import kept_heap
from sasgp.training.progress import progress_bar

__all__ = ["compared", "exponent", "interleaved", "markdown", "spread", "timed", "turns", "write"]

PACKAGES = ("sasgp", "torch", "numpy", "scikit-learn", "gpytorch", "pyro-ppl", "umap-learn")

Seconds = dict[str, list[float]]


def timed(call: Callable[[], object], n: int = 1) -> float:
    """Seconds of a call, the mean over a stretch of n."""
    started = time.perf_counter()
    for _ in range(n):
        call()
    return (time.perf_counter() - started) / n


def turns(contenders: Mapping[str, Callable[[], float]], rounds: int, title: str) -> Seconds:
    """What contenders that time themselves return in every round."""
    seconds: Seconds = {name: [] for name in contenders}
    with progress_bar(title, rounds * len(contenders)) as update:
        for i in range(rounds):
            for j, (name, contender) in enumerate(contenders.items()):
                update(i * len(contenders) + j, f"{name}, {i + 1}/{rounds}")
                seconds[name].append(contender())
    return seconds


def interleaved(
    contenders: Mapping[str, Callable[[], object]],
    *,
    rounds: int,
    seconds: float,
    title: str,
    at_least: int = 1,
    bare: Collection[str] = (),
) -> Seconds:
    """Seconds of one call of each contender in every round. Freed memory stays with the process, as it does in `fit`.

    Parameters
    ----------
    contenders : mapping
        Calls to time, by name. Each is called twice before: that allocates, fills caches and says how long it takes.
    rounds : int
    seconds : float
        How long a stretch should take about; it has as many calls.
    title : str
        For the progress bar.
    at_least : int
        Calls of a stretch at the least, where work comes in lumps.
    bare : collection of names
        Contenders that leave freed memory to the C library, as programs do.
    """

    def stretch(name: str, call: Callable[[], object]) -> Callable[[], float]:
        def executed() -> float:
            with nullcontext() if name in bare else kept_heap():
                call()  # the first of a stretch asks for memory anew
                return timed(call, n)

        call()
        n = max(at_least, round(seconds / timed(call)))
        return executed

    return turns({name: stretch(name, call) for name, call in contenders.items()}, rounds, title)


def spread(values: Sequence[float]) -> dict[str, Any]:
    """Median and quartiles."""
    low, median, high = np.quantile(values, [0.25, 0.5, 0.75]).tolist()
    return {"median": median, "quartiles": [low, high]}


def compared(seconds: Seconds, a: str, b: str) -> dict[str, Any]:
    """Median and quartiles over the rounds of the ratio a / b."""
    return spread([x / y for x, y in zip(seconds[a], seconds[b], strict=True)])


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """The p of seconds ∝ sizeᵖ: the slope of a line through the logarithms, by least squares."""
    return float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0])


# ---- what is kept of a run, and how it is shown ----


def machine() -> dict[str, Any]:
    """What the numbers depend on besides the code."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if "model name" in line]
    return {
        "processor": models[0] if models else platform.processor(),
        "system": platform.platform(terse=True),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg(),
    }


def versions() -> dict[str, str]:
    installed = {dist.metadata["Name"]: dist.version for dist in importlib.metadata.distributions()}
    return {"python": platform.python_version()} | {name: installed[name] for name in PACKAGES if name in installed}


def write(
    path: Path, found: Mapping[str, Any], before: Mapping[str, Any], *, command: str, quick: bool
) -> dict[str, Any]:
    """Keep a benchmark's numbers, with all that they were made on; `before` is what `machine` said at the start."""
    result = {
        "benchmark": path.stem,
        "command": command,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "quick": quick,
        "machine": {**before, "load before": before["load"], "load after": os.getloadavg()},
        "versions": versions(),
        **found,
    }
    del result["machine"]["load"]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    return result


def number(value: Any, digits: int = 3) -> str:
    """A number, or the median and quartiles that `spread` made, as a table shows them: three digits, no exponents."""
    if isinstance(value, Mapping):
        low, high = (number(q, digits) for q in value["quartiles"])
        return f"{number(value['median'], digits)} ({low}–{high})"
    if isinstance(value, float):
        places = max(0, digits - 1 - int(np.floor(np.log10(abs(value))))) if value else 0
        return f"{value:.{places}f}"
    return str(value)


def markdown(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of rows with the same keys."""
    header = list(rows[0])
    lines = [header, ["---"] * len(header), *([number(row[name]) for name in header] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
