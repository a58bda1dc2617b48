"""Progress on standard error: a bar in a terminal, text that updates in a notebook, and elsewhere lines of a log.

Lines go to the logger `sasgp`. If a program has not set up logging, they are written to standard error, because
verbose=True asks for them. `logging.getLogger("sasgp").setLevel("ERROR")` turns all progress off, bars included.
"""

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import copy_context
from time import monotonic
from typing import Any, ClassVar

from sasgp.errors import InputError

__all__ = ["LOG", "Update", "alive", "from_torchrun", "progress_bar", "rank_of_process"]

Update = Callable[..., None]  # update(completed, note="")

LOG = logging.getLogger("sasgp")
LOG.addHandler(logging.NullHandler())

PATIENCE = 2.0  # seconds that work may take before the log speaks of it
SHORTEST, LONGEST = 5.0, 60.0  # seconds between two lines
SHARE = 0.02  # of the time so far; the next line comes after it, within these bounds
NOTEBOOK_PATIENCE, NOTEBOOK_PACE = 0.5, 0.25  # seconds before the first text in a notebook, and between two
BAR_WIDTH = 16  # characters


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
def progress_bar(description: str, total: int | None, *, show: bool = True, brief: bool = False) -> Iterator[Update]:
    """Progress of `total` units of work. Yields `update(completed, note="")`, which does nothing with show=False.

    With total=None, the amount of work is unknown: only that work goes on is shown, and the time so far. `brief` work
    is expected to take no time. It has no bar, and the log speaks of it only if it does take time.
    """
    surface = _surface() if show and not rank_of_process() else None
    if surface is None or (brief and surface is not _in_lines):
        yield lambda completed, note="": None
        return
    with surface(description, total) as update:
        yield update


@contextmanager
def alive(description: str, *, show: bool = True) -> Iterator[None]:
    """Let the log speak of work while nothing inside of it does, as there is reading and drawing beside training."""
    if not show or rank_of_process() or _surface() is not _in_lines:
        yield
        return
    lines = _Lines(description, None, SHORTEST)
    lines.start()
    try:
        yield
    finally:
        lines.end()


def _surface() -> Callable[[str, int | None], AbstractContextManager[Update]] | None:
    """Where progress is shown. None if the program has turned off what the logger says."""
    from rich.console import Console

    console = Console(stderr=True)
    if LOG.level > logging.INFO:
        return None
    if console.is_jupyter:
        return _in_notebook
    terminal = sys.stderr is not None and sys.stderr.isatty() and not console.is_dumb_terminal
    return _in_terminal if terminal else _in_lines


@contextmanager
def _in_terminal(description: str, total: int | None) -> Iterator[Update]:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    ends = (TimeElapsedColumn(),) if total is None else (TimeRemainingColumn(compact=True), TextColumn("left"))
    columns = (  # 80 characters in all, with the longest note of training
        TextColumn("{task.description}"),
        BarColumn(bar_width=12),
        TextColumn("{task.fields[note]}"),
        *ends,
    )
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task(description, total=total, note="")
        yield lambda completed, note="": progress.update(task, completed=completed, note=note)
        progress.live.transient = not progress.tasks[0].fields["note"]  # what is over and has nothing to say, goes


# ---------------------------------------------------------------------------------------------------- lines of a log


@contextmanager
def _in_lines(description: str, total: int | None) -> Iterator[Update]:
    lines = _Lines(description, total, PATIENCE)
    lines.start()
    try:
        yield lines.update
    except BaseException:
        lines.end()
        raise
    lines.end()
    if lines.spoke:
        _log(f"{description}: done in {_clock(lines.elapsed)}{lines.note and f'  {lines.note}'}")


class _Lines(threading.Thread):
    """Writes a line now and then, whether or not `update` is called meanwhile. Of nested work, the innermost does."""

    under_way: ClassVar["list[_Lines]"] = []  # the innermost is the last

    def __init__(self, description: str, total: int | None, patience: float) -> None:
        super().__init__(name="sasgp progress", daemon=True)
        self.description, self.total, self.patience = description, total, patience
        self.completed: float = 0
        self.note, self.spoke = "", False
        self._began, self._over = monotonic(), threading.Event()
        self._first: tuple[float, float] | None = None  # time and work of the first update: a resumed run has done some

    @property
    def elapsed(self) -> float:
        return monotonic() - self._began

    def update(self, completed: float, note: str = "") -> None:
        self.completed, self.note = completed, note
        if self._first is None:
            self._first = monotonic(), completed

    def start(self) -> None:
        self.under_way.append(self)
        super().start()

    def run(self) -> None:
        wait = self.patience
        while not self._over.wait(wait):
            if self.under_way[-1] is self:
                _log(self._line())
                self.spoke = True
            wait = min(max(SHARE * self.elapsed, SHORTEST), LONGEST)

    def end(self) -> None:
        self._over.set()
        self.join()
        self.under_way.remove(self)

    def _line(self) -> str:
        parts = [f"{self.description}:", self.note, f"{_clock(self.elapsed)} elapsed"]
        if self.total:
            parts.insert(1, f"{100 * self.completed / self.total:.0f} %")
        if self.total and self._first is not None and self.completed > self._first[1]:
            pace = (monotonic() - self._first[0]) / (self.completed - self._first[1])  # seconds per unit of work
            parts.append(f"{_clock(pace * (self.total - self.completed))} left")
        return "  ".join(filter(None, parts))


# ---------------------------------------------------------------------------------------------------- a notebook


@contextmanager
def _in_notebook(description: str, total: int | None) -> Iterator[Update]:
    text = _Text(description, total)
    text.start()
    how = "stopped after"
    try:
        yield text.update
        how = "done in"
    finally:
        text.end()
        if text.spoke:  # the last state stays on the page
            text.show(f"{description}: {how} {_clock(text.elapsed)}{text.note and f'  {text.note}'}")


class _Text(_Lines):
    """A line below the cell, replaced several times a second. It is plain text, so it needs no widgets."""

    def __init__(self, description: str, total: int | None) -> None:
        super().__init__(description, total, NOTEBOOK_PATIENCE)
        self._handle: Any = None
        self._context = copy_context()  # it says to which cell the text belongs, and a thread does not inherit it

    def run(self) -> None:
        self._context.run(self._watch)

    def _watch(self) -> None:
        wait = self.patience
        while not self._over.wait(wait):
            self.show(self._line())
            self.spoke = True
            wait = NOTEBOOK_PACE

    def show(self, line: str) -> None:
        """Put a line, after a bar, where the last one was."""
        from IPython.display import display

        if self.total:
            done = min(max(round(BAR_WIDTH * self.completed / self.total), 0), BAR_WIDTH)
            line = f"{'━' * done}{'─' * (BAR_WIDTH - done)}  {line}"
        if self._handle is None:
            self._handle = display({"text/plain": line}, raw=True, display_id=True)
        else:
            self._handle.update({"text/plain": line}, raw=True)


# ---------------------------------------------------------------------------------------------------- text


def _log(line: str) -> None:
    """Give a line to the logger, or to standard error if nobody has set up logging."""
    handlers = [*LOG.handlers, *(logging.getLogger().handlers if LOG.propagate else ())]
    if not all(isinstance(handler, logging.NullHandler) for handler in handlers):
        LOG.info(line)
    elif sys.stderr is not None:  # it may have been closed
        sys.stderr.write(f"sasgp: {line}\n")
        sys.stderr.flush()


def _clock(seconds: float) -> str:
    """A time as 0:35, 12:04 or 1:02:33."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
