"""The training loop: batches, Adam, schedule. It knows nothing about Gaussian processes.

`train` is a generator that yields a record after every epoch, so that its caller decides what to show, when to save
and when to stop. All randomness is an argument: batches come from a generator made from (seed, epoch), a step's noise
from one made from (seed, rank, step). Nothing draws from torch's global state.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn

__all__ = ["Epoch", "Rows", "generator", "one_cycle", "train"]


class Rows(Protocol):
    """The training data as the loop sees it: a number of rows, any of which can be asked for."""

    def __len__(self) -> int: ...

    def gather(self, rows: Tensor) -> Tensor:
        """Rows by index, [B] → [B, D], in the model's dtype and on its device."""
        ...


@dataclass(frozen=True)
class Epoch:
    """What one epoch did. `loss` is its mean over the steps; `monitored` is what the model reports of itself."""

    epoch: int
    step: int
    loss: float
    learning_rate: float
    seconds: float
    monitored: Mapping[str, float] = field(default_factory=dict)


def generator(*key: int | str) -> torch.Generator:
    """A CPU random generator that depends on the key alone, so that step 1000 can be drawn without steps 0 to 999."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def one_cycle(progress: float, warm_up: float = 0.3, start: float = 0.04, end: float = 1e-4) -> float:
    """Factor on the learning rate at a point of training, 0 to 1: cosine up to 1, then cosine down (Smith, 2018)."""
    if progress < warm_up:
        low, high, t = start, 1.0, progress / warm_up
    else:
        low, high, t = 1.0, end, (progress - warm_up) / (1 - warm_up)
    return low + (high - low) * 0.5 * (1 - math.cos(math.pi * t))


def batches(n_rows: int, batch_size: int, seed: int, epoch: int) -> Iterator[Tensor]:
    """Row indices of an epoch's batches: every row at least once, every batch of full size and a uniform draw.

    The last batch of an epoch is filled up from the start of the same permutation, whose rows it cannot hold yet. With
    fewer rows than batch_size a batch is all of them.
    """
    batch_size = min(batch_size, n_rows)
    order = torch.randperm(n_rows, generator=generator(seed, "epoch", epoch))
    order = torch.cat([order, order[: -n_rows % batch_size]])
    for start in range(0, len(order), batch_size):
        yield order[start : start + batch_size]


def train(
    model: nn.Module,
    data: Rows,
    groups: Sequence[Mapping[str, Any]],
    *,
    batch_size: int,
    max_epochs: int,
    seed: int,
    schedule: Callable[[float], float] = one_cycle,
    on_step: Callable[[int, int, float], None] | None = None,
) -> Iterator[Epoch]:
    """Train `model`, yielding after every epoch.

    Parameters
    ----------
    model : Module
        `model(X, rows, n_total, generator)` returns the loss of a batch. A method `monitor()`, where there is one,
        returns numbers for the record.
    data : Rows
        Where the rows come from.
    groups : sequence of mappings
        Parameter groups for Adam, each with its `lr`: the peak of the schedule.
    batch_size, max_epochs, seed : int
        A batch holds at most as many rows as there are.
    schedule : callable
        Maps the progress of training, 0 to 1, to a factor on every group's learning rate.
    on_step : callable, optional
        Called with (step, total steps, loss) after each step.
    """
    n_total = len(data)
    total = max_epochs * math.ceil(n_total / batch_size)
    optimiser = torch.optim.Adam([dict(group) for group in groups], fused=True)
    peaks = [group["lr"] for group in optimiser.param_groups]
    monitor: Callable[[], Mapping[str, float]] = getattr(model, "monitor", dict)
    started, step = time.monotonic(), 0
    model.train()
    for epoch in range(max_epochs):
        sum_of_losses, n_steps = 0.0, 0
        for rows in batches(n_total, batch_size, seed, epoch):
            factor = schedule(step / max(total - 1, 1))
            for group, peak in zip(optimiser.param_groups, peaks, strict=True):
                group["lr"] = peak * factor
            optimiser.zero_grad(set_to_none=True)
            loss = model(data.gather(rows), rows, n_total, generator(seed, 0, step))
            loss.backward()
            optimiser.step()
            step, n_steps = step + 1, n_steps + 1
            sum_of_losses += loss.item()
            if on_step is not None:
                on_step(step, total, sum_of_losses / n_steps)
        model.eval()
        yield Epoch(
            epoch=epoch + 1,
            step=step,
            loss=sum_of_losses / n_steps,
            learning_rate=peaks[0] * factor,
            seconds=time.monotonic() - started,
            monitored=dict(monitor()),
        )
        model.train()
    model.eval()
