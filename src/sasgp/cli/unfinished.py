"""A run that is not finished: RUN/unfinished/, from the start of `sasgp fit` until the run's own files are written.

| file | holds |
|---|---|
| run.json | the command: data, labels, model and every option, so that `sasgp fit --resume RUN` needs nothing else |
| checkpoint.pt | where training stands; there is none before the first epoch (or three minutes) |
| history.jsonl | a line for every epoch so far |

The files of an older run that is to be overwritten stay where they are until the new ones take their place.
"""

import json
import shlex
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from sasgp.cli.files import real_path, writable
from sasgp.errors import InputError
from sasgp.training.progress import rank_of_process

__all__ = ["FOLDER", "Work", "begun", "check_finished", "check_no_other", "request"]

ANYWHERE = ("device", "verbose")  # options that change nothing that is learnt: they may be others now
FOLDER, INFO, HISTORY = "unfinished", "run.json", "history.jsonl"


class Work:
    """The folder of an unfinished run, and what training needs of it."""

    def __init__(self, run: Path, *, resumed: bool) -> None:
        from sasgp.training.checkpoint import NAME, Checkpointer

        self.run, self.folder = run, run / FOLDER
        self.history = self.folder / HISTORY
        self.keeper = Checkpointer(self.folder / NAME)
        # Killed before the first checkpoint, a run goes on from its start
        self.resume = self.keeper.path if resumed and self.has_checkpoint else None
        self.seconds_before = _seconds(self.history) if self.resume else 0.0  # in the processes that are no more

    @property
    def has_checkpoint(self) -> bool:
        return self.keeper.path is not None and self.keeper.path.is_file()

    @property
    def how(self) -> str:
        return f"go on with `sasgp fit --resume {shlex.quote(str(self.run))}`"


def _seconds(history: Path) -> float:
    """Time that training had taken at the last epoch of a history, whose last line may be half written."""
    for line in reversed(history.read_text(encoding="utf-8").splitlines() if history.exists() else []):
        with suppress(ValueError):
            return float(json.loads(line)["seconds"])
    return 0.0


def check_finished(run: Path) -> None:
    """Raise InputError where a run was begun that has no model yet."""
    if (run / FOLDER).is_dir():
        raise InputError(
            f"{run} is not finished, so there is no model yet; go on with `sasgp fit --resume {shlex.quote(str(run))}`."
        )


def check_no_other(out: Path, *, overwrite: bool) -> None:
    """Raise InputError where another run is under way, or was interrupted, in the folder."""
    path = real_path(out)
    if (path / FOLDER).is_dir() and not overwrite:
        raise InputError(
            f"{path} holds a run that is not finished; go on with `sasgp fit --resume {shlex.quote(str(path))}`, or "
            "add --overwrite to start again."
        )


def request(run: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """What `sasgp fit` was asked for when the run began. What is `given` now must be the same."""
    path = real_path(run) / FOLDER / INFO
    try:
        then = dict(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        finished = (real_path(run) / "model.safetensors").exists()
        raise InputError(
            f"--resume must name the folder of a run that is not finished. Got {run}, "
            f"{'which is' if finished else 'where none was begun'}; start one with `sasgp fit DATA --out`."
        ) from None
    except ValueError as error:
        raise InputError(f"{path} must be JSON as `sasgp fit` wrote it ({error}); start the run again.") from error
    other = [
        f"{name}: {then.get(name)!r} in the run, {value!r} now"
        for name, value in given.items()
        if name not in ANYWHERE and value != then.get(name)
    ]
    if other:
        raise InputError(
            f"--resume goes on with the data and the options of the run. Got others: {'; '.join(other)}. Leave them "
            "out, or start a new run."
        )
    return then | {name: given[name] for name in ANYWHERE if name in given}


@contextmanager
def begun(out: Path, asked: Mapping[str, Any], *, resumed: bool) -> Iterator[Work]:
    """The folder of an unfinished run: made here, removed at the end, or kept when there is a checkpoint to go on from.

    Only the first of several processes writes.
    """
    run = real_path(out)
    if rank_of_process():
        yield Work(run, resumed=resumed)
        return
    missing = [folder for folder in (run, *run.parents) if not folder.exists()]
    with writable(run):
        if not resumed:
            shutil.rmtree(run / FOLDER, ignore_errors=True)
        (run / FOLDER).mkdir(parents=True, exist_ok=True)
        partial = run / FOLDER / f".{INFO}"
        partial.write_text(json.dumps(dict(asked), indent=1) + "\n", encoding="utf-8")
        partial.replace(run / FOLDER / INFO)
    work = Work(run, resumed=resumed)
    try:
        yield work
    except BaseException as error:
        if not work.has_checkpoint:
            _discard(work, missing)
        elif isinstance(error, KeyboardInterrupt):
            step = getattr(error, "step", None)
            when = f"after step {step}" if step is not None else "at once; the last checkpoint is whole"
            error.args = (f"interrupted {when}; {work.how}.",)
        elif isinstance(error, Exception):
            error.add_note(f"The last checkpoint is whole: {work.how}.")
        raise
    _discard(work, [])


def _discard(work: Work, missing: list[Path]) -> None:
    shutil.rmtree(work.folder, ignore_errors=True)
    for folder in missing:
        with suppress(OSError):  # somebody else may use it by now
            folder.rmdir()
