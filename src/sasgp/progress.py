"""Progress bars, on standard error and only where it is a terminal (or a notebook)."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress_bar"]


@contextmanager
def progress_bar(description: str, total: int, *, show: bool = True) -> Iterator[Callable[..., None]]:
    """A bar for `total` units of work. Yields `update(completed, note="")`; with show=False it does nothing."""
    console = Console(stderr=True)
    if not (show and (console.is_terminal or console.is_jupyter)):
        yield lambda completed, note="": None
        return
    columns = (  # 80 characters in all, with the longest note that training has
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[note]}"),
        TimeRemainingColumn(compact=True),
        TextColumn("left"),
    )
    with Progress(*columns, console=console) as progress:
        task = progress.add_task(description, total=total, note="")
        yield lambda completed, note="": progress.update(task, completed=completed, note=note)
