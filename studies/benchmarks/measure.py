"""Rounds of interleaved stretches, their medians and quartiles, and exponents of growth.

Things that are compared take turns, A B A B …, so that whatever else the machine does hits all alike, and a ratio is
taken within a round before the median is taken over rounds.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from sasgp.data.progress import progress_bar
from sasgp.training.malloc import keep_freed_memory

__all__ = ["compared", "exponent", "interleaved", "spread", "timed", "turns"]

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
            with nullcontext() if name in bare else keep_freed_memory():
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
