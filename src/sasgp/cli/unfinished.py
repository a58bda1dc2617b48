"""An unfinished run: the folder RUN/unfinished, which exists from the start of `sasgp fit` until the run is written.

| file | holds |
|---|---|
| run.json | the command: data, labels, model and every option, so that `sasgp fit --resume RUN` needs nothing else |
| checkpoint.pt | the state of training; the first one is written after an epoch or three minutes |
| history.jsonl | one line per epoch so far |
| lock | nothing; the process that trains holds a lock on it, which ends with the process |

If the new run is to overwrite an older one, the older files stay in RUN until the new ones replace them.
"""

import json
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from sasgp.cli.files import missing_folders, remove_empty, writable
from sasgp.data.files import real_path, replacing, sync
from sasgp.data.progress import rank_of_process
from sasgp.errors import InputError

__all__ = [
    "FOLDER",
    "Work",
    "begun",
    "check_finished",
    "check_not_begun",
    "check_replaceable",
    "complete",
    "held",
    "kept",
    "replaced",
    "request",
]

LISTS = ("kind", "drop", "only", "missing", "metadata")  # options that take several values
FREE = ("device", "verbose")  # options that do not change the result, so that a resumed run may have others
FOLDER, INFO, HISTORY, LOCK = "unfinished", "run.json", "history.jsonl", "lock"
NEW, READY = "update.new", "update"  # folders for the new files of a finished run, while they are written and whole


class Work:
    """The folder of an unfinished run, and what training needs from it."""

    def __init__(self, run: Path, *, resumed: bool) -> None:
        from sasgp.training.checkpoint import NAME, Checkpointer

        self.run, self.folder = run, run / FOLDER
        self.history = self.folder / HISTORY
        self.checkpointer = Checkpointer(self.folder / NAME)
        # A run that was killed before its first checkpoint starts again
        self.resume = self.checkpointer.path if resumed and self.has_checkpoint else None
        self.seconds_before = _seconds(self.history) if self.resume else 0.0  # in earlier processes

    @property
    def has_checkpoint(self) -> bool:
        return self.checkpointer.path is not None and self.checkpointer.path.is_file()

    @property
    def how(self) -> str:
        return _how(self.run)


def _how(run: Path) -> str:
    return f"Continue it with `sasgp fit --resume {shlex.quote(str(run))}`"


def _seconds(history: Path) -> float:
    """How long training had taken at the last epoch of a history, whose last line may be incomplete."""
    for line in reversed(history.read_text(encoding="utf-8").splitlines() if history.exists() else []):
        with suppress(ValueError):
            return float(json.loads(line)["seconds"])
    return 0.0


def check_finished(run: Path) -> None:
    """Raise InputError if the run was begun but has no model yet."""
    if (run / FOLDER).is_dir():
        raise InputError(f"{run} is not finished, so there is no model yet. {_how(run)}.")


def check_not_begun(out: Path) -> None:
    """Raise InputError if another run in the folder is training or was interrupted."""
    path = real_path(out)
    if (path / FOLDER).is_dir() and not (path / FOLDER / NEW).is_dir() and _is_ours(path / FOLDER):
        raise InputError(f"{path} holds a run that is not finished. {_how(path)}, or add --overwrite to start again.")


def check_replaceable(out: Path) -> None:
    """Raise InputError if the folder of an unfinished run is needed, but something else has its name."""
    folder = real_path(out) / FOLDER
    if os.path.lexists(folder) and not (folder.is_dir() and not folder.is_symlink() and _is_ours(folder)):
        raise InputError(
            f"{folder} is not from sasgp, which needs this name for its own folder. Rename it, or choose another --out."
        )


def _is_ours(folder: Path) -> bool:
    """Whether a folder called `unfinished` is one that `begun` made, and not the user's own."""
    try:
        info = json.loads((folder / INFO).read_text(encoding="utf-8"))
    except FileNotFoundError:  # its process was killed before it wrote anything else
        ours = (LOCK, NEW, READY)
        return all(file.name in ours or file.name.startswith(f".{Path(INFO).stem}.") for file in folder.iterdir())
    except (OSError, ValueError):
        return False
    return isinstance(info, dict) and {"data", "model", "command"} <= info.keys()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of an unfinished run. The kernel ends it with the process, so a dead process is not in the way."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"Another process is training or updating the run in {folder.parent}. Wait until it ends, or stop it "
                "first."
            ) from None
        except OSError:  # some network file systems have no locks
            pass
        yield
    finally:
        os.close(descriptor)


def request(run: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """What `sasgp fit` was asked for when the run began. Raises InputError if `given` differs from it."""
    path = real_path(run) / FOLDER / INFO
    try:
        then = json.loads(path.read_text(encoding="utf-8"))
        _check_request(then)
    except FileNotFoundError:
        is_finished = (real_path(run) / "model.safetensors").exists()
        state = "has already finished" if is_finished else "holds no run that was interrupted"
        raise InputError(f"{run} {state}. Start a new run with `sasgp fit DATA --out RUN`.") from None
    except ValueError as error:
        raise InputError(f"{path} is not the JSON that `sasgp fit` wrote ({error}). Start the run again.") from error
    other = [
        f"{name}: {then.get(name)!r} in the run, {value!r} now"
        for name, value in given.items()
        if name not in FREE and value != then.get(name)
    ]
    if other:
        raise InputError(
            f"--resume continues a run with its own data and options, but these differ: {'; '.join(other)}. Leave them "
            "out, or start a new run."
        )
    if not rank_of_process():
        with _locked(path.parent):  # a run that is under way is refused before its data are read
            pass
    return then | {name: given[name] for name in FREE if name in given}


def _check_request(then: Any) -> None:
    """Raise ValueError if this is no request: each entry must have a type that the option can have."""
    from sasgp.cli.fit_options import MODELS

    if not isinstance(then, dict):
        raise ValueError("it is no mapping")
    number, text = int | float, str
    kinds: dict[str, Any] = {"data": text, "command": text, "overwrite": bool, "tensorboard": bool, "model": text}
    then.setdefault("target", None)  # of runs that sasgp began before it knew targets
    kinds |= {"labels": text | None, "target": text | None, "test_fraction": number | None, "random_state": int | None}
    kinds |= {"image_shape": list | None, "device": text, "verbose": bool, "id": text | None}
    kinds |= dict.fromkeys(LISTS, list)
    wrong = [name for name, kind in kinds.items() if name not in then or not isinstance(then[name], kind)]
    plain = bool | int | float | str | None
    wrong += [name for name, value in then.items() if name not in kinds and not isinstance(value, plain)]
    if not wrong and then["model"] not in MODELS:
        wrong = ["model"]
    if not wrong and not all(type(size) is int for size in then["image_shape"] or ()):
        wrong = ["image_shape"]
    if not wrong and not all(type(entry) is str for name in LISTS for entry in then[name]):
        wrong = list(LISTS)
    if wrong:
        raise ValueError(f"{', '.join(wrong)} cannot be read")


@contextmanager
def begun(out: Path, asked: Mapping[str, Any], *, resumed: bool) -> Iterator[Work]:
    """Create the folder of an unfinished run. It is removed at the end, unless training fails after a checkpoint.

    Of several processes only the first writes.
    """
    run = real_path(out)
    if rank_of_process():
        yield Work(run, resumed=resumed)
        return
    missing = missing_folders(run)
    with ExitStack() as stack:
        check_replaceable(run)
        with writable(run):
            (run / FOLDER).mkdir(parents=True, exist_ok=True)
            stack.enter_context(_locked(run / FOLDER))
            if not resumed:
                _clear(run / FOLDER)
            with replacing(run / FOLDER / INFO) as file:
                file.write_text(json.dumps(dict(asked), indent=1) + "\n", encoding="utf-8")
        work = Work(run, resumed=resumed)
        try:
            yield work
        except BaseException as error:
            if not work.has_checkpoint:
                _discard(work, missing)
            elif isinstance(error, KeyboardInterrupt):
                step = getattr(error, "step", None)
                when = f"after step {step}." if step is not None else "at once. The last checkpoint is complete."
                error.args = (f"interrupted {when} {work.how}.",)
            elif isinstance(error, Exception):
                error.add_note(f"The last checkpoint is complete. {work.how}.")
            raise
        _discard(work, [])


# ---------------------------------------------------------------------------------------------------- updates


@contextmanager
def held(run: Path) -> Iterator[Path]:
    """Lock a finished run, as training does, and make a folder for the files that are to replace its own.

    Whatever the moment that a process is killed at, a run is the old one or the new one: see `replaced`.
    """
    complete(run)
    check_replaceable(run)
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    with _locked(folder):
        if (folder / INFO).exists():
            raise InputError(f"{run} holds a run that is not finished. {_how(run)} first.")
        if (folder / READY).is_dir():  # its process was killed after `complete` looked
            _move(run)
        _clear(folder)
        try:
            (folder / NEW).mkdir()
            yield folder / NEW
        finally:
            if not (folder / READY).is_dir():  # otherwise `complete` goes on
                shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def replaced(new: Path) -> Iterator[None]:
    """Let the files in the folder of `held` replace those of the run, if the block ends without an error.

    One rename of the folder decides: before it the run is the old one, after it the new one. Then the files are moved
    to their places. If the process is killed meanwhile, the next command that reads the run moves the rest.
    """
    yield
    run = new.parents[1]
    for file in new.iterdir():
        if (run / file.name).exists():
            shutil.copymode(run / file.name, file)
    new.rename(new.with_name(READY))
    with suppress(OSError):  # Windows cannot open a folder
        sync(new.parent)
    _move(run)


def complete(run: Path) -> None:
    """Finish an update whose process was killed while it moved its files."""
    ready = run / FOLDER / READY
    for wait in (0.1, 0.3, 1.0, 3.0, None):  # the moves take no time, if another process is at it
        if not ready.is_dir():
            return
        try:
            with _locked(ready.parent):
                _move(run)
                shutil.rmtree(ready.parent, ignore_errors=True)
        except InputError:
            if wait is None:
                raise
            time.sleep(wait)
        except OSError as error:
            if not ready.is_dir():  # another process has finished it
                return
            raise InputError(
                f"{run} was updated by a process that was killed in its last moment, and its files cannot be moved to "
                f"their places: {error.strerror or error}. Make the folder writable."
            ) from error


def _move(run: Path) -> None:
    """Move the files of an update to their places."""
    ready = run / FOLDER / READY
    for file in sorted(ready.iterdir()):
        file.replace(run / file.name)
    ready.rmdir()


def _clear(folder: Path) -> None:
    """Delete what an earlier run left in its folder, except the lock."""
    for file in folder.iterdir():
        if file.is_dir() and not file.is_symlink():
            shutil.rmtree(file, ignore_errors=True)
        elif file.name != LOCK:
            file.unlink(missing_ok=True)


def _discard(work: Work, missing: list[Path]) -> None:
    shutil.rmtree(work.folder, ignore_errors=True)
    remove_empty(missing)


@contextmanager
def kept(path: Path) -> Iterator[None]:
    """Say of an error in writing that nothing has changed."""
    try:
        yield
    except (OSError, InputError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise InputError(
            f"{path} could not be updated: {cause.strerror or cause}. It is as it was before. Free some space, or make "
            "its folder writable."
        ) from error
