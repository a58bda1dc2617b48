"""Rows that several processes share out: each works on its own part of them, and what they found is joined.

The share of a process is contiguous and consists of whole blocks, the last one excepted. A row is then computed in the
same block as in a single process, and has the same bits. All processes walk through their shares in rounds, and meet
after each: one that fails or dies is noticed soon, and the others never wait for much longer than a round takes.
"""

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp.data.progress import progress_bar
from sasgp.training.distributed import Group, meet
from sasgp.training.loop import Ranks

__all__ = ["rounds", "rows_of_all", "shares", "sum_of_all"]

ROUND_ROWS = 1 << 15  # of each process between two meetings: a second of encoding, about a minute of refinement


def shares(n_rows: int, world: int, block: int) -> list[slice]:
    """The rows of each process. Their numbers of blocks differ by one at most, so a process may have none."""
    n_blocks = -(-n_rows // block)
    bounds = [min(n_rows, block * (n_blocks * rank // world)) for rank in range(world + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def rounds(n_rows: int, world: int, block: int) -> Iterator[list[slice]]:
    """The rows that each process takes in each round. All processes have the same number of rounds."""
    own = shares(n_rows, world, block)
    step = block * max(1, ROUND_ROWS // block)
    for done in range(0, max(part.stop - part.start for part in own), step):
        yield [slice(min(part.start + done, part.stop), min(part.start + done + step, part.stop)) for part in own]


def rows_of_all(
    ranks: Ranks,
    compute: Callable[[slice], NDArray[Any]],
    shape: tuple[int, ...],
    dtype: np.dtype[Any] | str,
    *,
    block: int,
    show: bool = False,
) -> NDArray[Any]:
    """An array whose rows the processes share out. All of them get the whole.

    Parameters
    ----------
    ranks : Ranks
    compute : callable
        Returns some rows of the array: slice → [n, ...].
    shape, dtype
        Shape and dtype of the array.
    block : int
        Rows that `compute` takes at a time. Shares and rounds consist of whole blocks.
    show : bool
        Whether rank 0 shows its progress.
    """
    if not isinstance(ranks, Group):
        return compute(slice(0, shape[0]))
    whole = torch.from_numpy(np.empty(shape, dtype)).to(ranks.device)
    for mine, parts in _walk(ranks, shape[0], block, show):
        if mine.start < mine.stop:
            whole[mine] = torch.from_numpy(np.ascontiguousarray(compute(mine), dtype)).to(ranks.device)
        meet(ranks)
        for rank, part in enumerate(parts):
            if part.start < part.stop:
                ranks.from_(whole[part], rank)
    return whole.numpy(force=True)


def sum_of_all(
    ranks: Ranks, compute: Callable[[slice], NDArray[np.float64]], n_rows: int, length: int, *, show: bool = False
) -> NDArray[np.float64]:
    """The sum over all rows of a vector [length], of which `compute` returns the sum over some rows, a slice."""
    if not isinstance(ranks, Group):
        return compute(slice(0, n_rows))
    total = np.zeros(length)
    for mine, _ in _walk(ranks, n_rows, 1, show):
        if mine.start < mine.stop:
            total += compute(mine)
        meet(ranks)
    summed = torch.from_numpy(total).to(ranks.device)
    ranks.sum_(summed)
    return summed.numpy(force=True)


def _walk(ranks: Group, n_rows: int, block: int, show: bool) -> Iterator[tuple[slice, list[slice]]]:
    """The rows of this process in each round, and those of all."""
    own = shares(n_rows, ranks.world, block)[ranks.rank]
    meet(ranks)  # whoever failed before says so now and not after a round
    with progress_bar("rows of the first process", own.stop - own.start, show=show) as update:
        for parts in rounds(n_rows, ranks.world, block):
            yield parts[ranks.rank], parts
            update(parts[ranks.rank].stop - own.start)
