"""Progress bars, on standard error and only in a terminal or a notebook."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sasgp.errors import InputError

__all__ = ["from_torchrun", "progress_bar", "rank_of_process"]


def rank_of_process() -> int:
    """The number that torchrun gave to this process; 0 without torchrun. Only process 0 shows and writes."""
    return from_torchrun("RANK", 0) if from_torchrun("WORLD_SIZE", 1) > 1 else 0


def from_torchrun(name: str, default: int) -> int:
    """A number from the environment, where torchrun puts it. Raise InputError if it is something else."""
    value = os.environ.get(name, str(default))
    if not (value.isascii() and value.isdecimal()):
        raise InputError(
            f"The environment variable {name} must be a whole number, as torchrun sets it. Got {value!r}. Unset it."
        )
    return int(value)


@contextmanager
def progress_bar(description: str, total: int | None, *, show: bool = True) -> Iterator[Callable[..., None]]:
    """A bar for `total` units of work. Yields `update(completed, note="")`, which does nothing with show=False.

    With total=None, the amount of work is unknown: the bar shows only that work goes on, and the time so far.
    """
    if rank_of_process() or not show:
        yield _nothing
        return
    from rich.console import Console  # it takes a while, and most progress is not shown
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    console = Console(stderr=True)
    if not (console.is_terminal or console.is_jupyter):
        yield _nothing
        return
    ends = (TimeElapsedColumn(),) if total is None else (TimeRemainingColumn(compact=True), TextColumn("left"))
    columns = (  # 80 characters in all, with the longest note of training
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[note]}"),
        *ends,
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(description, total=total, note="")
        yield lambda completed, note="": progress.update(task, completed=completed, note=note)


def _nothing(completed: int, note: str = "") -> None:
    pass
