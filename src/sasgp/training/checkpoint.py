"""Checkpoints: a file to go on from, whole at every moment.

A checkpoint is written to a temporary name in the same folder, synced, and renamed over the previous one, which stays
until then. Reading is `weights_only`: a file never runs code. What it holds besides the state of training is a
fingerprint of data and settings, so that going on with others is an error that says which differ.

Where a checkpoint cannot be written (disk full, folder read-only) training goes on: there is one warning, the last good
checkpoint stays, and the next one is tried when it is due.
"""

import hashlib
import io
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp.errors import InputError

__all__ = ["CheckpointWarning", "Interrupted", "Keeper", "Signals", "differences", "fingerprint", "read", "write"]

NAME = "checkpoint.pt"  # where a folder is given
FORMAT = 1
EVERY = 180.0  # seconds, within an epoch
SHARE = 0.05  # of the time that saving may take after short epochs
SAMPLED_ROWS = 256


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written. Training goes on; the last good one stays."""


class Interrupted(KeyboardInterrupt):
    """Training was asked to stop, and did after a step. `path` is the checkpoint, None where none could be written."""

    def __init__(self, signal_number: int, path: Path | None, step: int) -> None:
        saved = "no checkpoint could be written" if path is None else f"go on with fit(X, resume={str(path)!r})"
        super().__init__(f"training was interrupted after step {step}; {saved}")
        self.signal_number, self.path, self.step = signal_number, path, step


# ---------------------------------------------------------------------------------------------------- files


def resolve(path: str | os.PathLike[str]) -> Path:
    """The file that a path means: a folder's is its checkpoint.pt."""
    path = Path(os.path.realpath(Path(path).expanduser()))
    return path / NAME if path.is_dir() else path


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Replace a checkpoint in one step: at any moment the path holds a whole one. Raises OSError."""
    content = io.BytesIO()
    torch.save({"sasgp checkpoint": FORMAT, **state}, content)  # torch's own file writer hides why a disk refuses
    temporary = path.with_name(f".{path.name}.tmp")  # one writer, one name: what a kill leaves is overwritten
    try:
        with temporary.open("wb") as file:
            file.write(content.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError:
        with suppress(OSError):
            temporary.unlink()  # a full disk needs the space
        raise
    with suppress(OSError):  # make the new name survive a loss of power; Windows cannot open a folder
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read(path: Path) -> dict[str, Any]:
    """A checkpoint's contents, on the CPU. Raises InputError where there is none to read."""
    if not path.is_file():
        raise InputError(f"resume must name a checkpoint, or a folder with {NAME}. Got {path}, which is no file.")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        if state["sasgp checkpoint"] > FORMAT:
            raise InputError(f"{path} was written by a newer sasgp: upgrade sasgp.")
    except InputError:
        raise
    except Exception as error:  # whatever torch raises of a damaged or foreign file
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"resume must name a checkpoint that sasgp wrote. Got {path}, which cannot be read as one: {reason}. "
            "Start again without resume."
        ) from error
    return dict(state)


# ---------------------------------------------------------------------------------------------------- fingerprints


def sampled(n_rows: int) -> NDArray[np.int64]:
    """The rows whose values are part of a fingerprint."""
    return np.unique(np.linspace(0, n_rows - 1, SAMPLED_ROWS).astype(np.int64))


def fingerprint(n_rows: int, sample: NDArray[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same to go on: shape, type and some rows of the data, and the settings."""
    return {
        "rows of data": n_rows,
        "features": sample.shape[1],
        "type of data": str(sample.dtype),
        "values of data": hashlib.blake2b(np.ascontiguousarray(sample).tobytes(), digest_size=8).hexdigest(),
        **{name: described(value) for name, value in settings.items()},
    }


def described(value: object) -> Any:
    """A setting as JSON would have it; modules by their structure, arrays by a hash."""
    if isinstance(value, np.generic):  # first, as numpy's float64 is a float, too
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and all(isinstance(size, int | np.integer) for size in value):
        return [int(size) for size in value]
    if isinstance(value, torch.nn.Module):
        shapes = [(name, tuple(tensor.shape)) for name, tensor in value.state_dict().items()]
        return f"{type(value).__name__} {hashlib.blake2b(repr(shapes).encode(), digest_size=4).hexdigest()}"
    if isinstance(value, np.random.RandomState):
        return "RandomState"
    if hasattr(value, "fit_transform"):
        settings = value.get_params(deep=False) if hasattr(value, "get_params") else {}
        plain = {k: v for k, v in sorted(settings.items()) if v is None or isinstance(v, bool | int | float | str)}
        return f"{type(value).__name__} {hashlib.blake2b(repr(plain).encode(), digest_size=4).hexdigest()}"
    array = np.ascontiguousarray(value)
    return f"array {array.shape} {hashlib.blake2b(array.tobytes(), digest_size=8).hexdigest()}"


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """In words, what is not the same; nothing where all is."""
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return "; ".join(f"{name}: {then.get(name)!r} in the checkpoint, {now.get(name)!r} now" for name in names)


# ---------------------------------------------------------------------------------------------------- in training


class Keeper:
    """Decides when to save, and saves.

    A checkpoint is due after every epoch and after `EVERY` seconds within one. Where epochs are so short that saving
    would take more than a twentieth of the time, some epochs are passed over.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.warned, self.written = path, False, False
        self.last, self.cost = time.monotonic(), 0.0

    def due(self) -> bool:
        """Within an epoch."""
        return self.path is not None and time.monotonic() - self.last > EVERY

    def due_after_epoch(self) -> bool:
        return self.path is not None and SHARE * (time.monotonic() - self.last) >= self.cost

    def save(self, state: Mapping[str, Any]) -> bool:
        """Write a checkpoint, or warn once where that fails. Returns whether it was written."""
        assert self.path is not None
        started = time.monotonic()
        try:
            write(self.path, state)
            self.written = True
        except OSError as error:
            if not self.warned:
                kept = "the last one stays" if self.path.exists() else "there is none yet"
                warnings.warn(
                    f"No checkpoint could be written to {self.path}: {error.strerror or error}. Training goes on and "
                    f"will try again; {kept}.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            self.warned = True
            return False
        finally:
            self.last = time.monotonic()
            self.cost = self.last - started
        return True


class Signals:
    """What Ctrl-C and SIGTERM asked for while training: `caught` is the signal's number, 0 for none."""

    def __init__(self) -> None:
        self.caught = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.caught and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice
        self.caught = self.caught or number

    @contextmanager
    def watched(self, wanted: bool = True) -> Iterator["Signals"]:
        """Catch them inside of the block, in the main thread: Python delivers signals to no other."""
        if not wanted or threading.current_thread() is not threading.main_thread():
            yield self
            return
        before: dict[signal.Signals, Callable[..., Any] | int | None] = {}
        for number in (signal.SIGINT, signal.SIGTERM):
            before[number] = signal.signal(number, self._handle)
        try:
            yield self
        finally:
            for caught, handler in before.items():
                signal.signal(caught, handler if handler is not None else signal.SIG_DFL)
