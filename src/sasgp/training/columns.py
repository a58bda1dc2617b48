"""Trains the regressions of a table's columns (`sasgp.gp.column_regression`) with Eq. 6 and Adam.

Columns that have similar numbers of values are trained as one batch. The general loop (`loop.py`) is for epochs over
rows, checkpoints and several processes; here a few steps on random rows are enough.
"""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

from sasgp.gp.column_regression import ColumnKernels, column_estimate
from sasgp.training.loop import Adam, one_cycle

__all__ = ["groups_of_columns", "train_columns"]

ACTIVE, OTHERS = 200, 200
STEPS = 150
LEARNING_RATE = 0.1
AT_ONCE = 1_500_000  # entries of the kernel matrices of one group


def groups_of_columns(counts: Sequence[int]) -> Iterator[list[int]]:
    """Columns that are trained together: with up to twice the values of the first."""
    group: list[int] = []
    for d in sorted(range(len(counts)), key=lambda d: counts[d]):
        size = (len(group) + 1) * min(ACTIVE, counts[d]) * min(ACTIVE + OTHERS, counts[d])
        if group and (counts[d] > 2 * counts[group[0]] or size > AT_ONCE):
            yield group
            group = []
        group.append(d)
    if group:
        yield group


def train_columns(
    columns: Sequence[tuple[Tensor, Tensor, Tensor, Tensor]],
    generator: torch.Generator,
    on_step: Callable[[int], None],
) -> ColumnKernels:
    """Kernels of columns, each given as inputs, their variances [n, P], targets and their variances [n]."""
    counts = torch.tensor([len(t) for _, _, t, _ in columns])
    least = int(counts.min())
    A = min(ACTIVE, int(0.6 * least))
    B = min(A + OTHERS, least)
    variances = torch.stack([t.var(correction=0) for _, _, t, _ in columns]).clamp_min(1e-6)
    kernels = ColumnKernels(variances, columns[0][0].shape[1])
    optimiser = Adam(kernels.parameters(), lr=LEARNING_RATE)
    for step in range(STEPS):
        rows = [torch.randperm(len(t), generator=generator)[:B] for _, _, t, _ in columns]
        picked = ([part[i] for part in parts] for parts, i in zip(columns, rows, strict=True))
        u, s, t, c = (torch.stack(parts) for parts in zip(*picked, strict=True))
        optimiser.param_groups[0]["lr"] = LEARNING_RATE * one_cycle(step / STEPS)
        optimiser.zero_grad()
        (-column_estimate(kernels, u, s, t, c, A, counts)).sum().backward()  # type: ignore[no-untyped-call]
        if all(p.grad is None or p.grad.isfinite().all() for p in kernels.parameters()):
            optimiser.step()
        on_step(step)
    return kernels.requires_grad_(False)
