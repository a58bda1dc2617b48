"""Checkpoints: files from which training can go on. A checkpoint is complete at every moment.

Files are read with `weights_only`, so they never run code. Besides the state of training, a checkpoint holds a
fingerprint of data and settings. Resuming with others is an error that says which differ.

If a checkpoint cannot be written (disk full, folder read-only), training goes on. There is one warning, the last good
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
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp.data.files import real_path, remove_leftovers, replacing
from sasgp.errors import InputError

__all__ = [
    "CheckpointWarning",
    "Checkpointer",
    "Interrupted",
    "Signals",
    "differences",
    "fingerprint",
    "read",
    "resolve",
    "sampled",
    "values_fingerprint",
    "write",
]

NAME = "checkpoint.pt"  # of the file, if a folder is given
FORMAT = 2
EVERY = 180.0  # seconds between checkpoints within an epoch
SHARE = 0.05  # of the time at most goes into saving, if epochs are short


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written. Training goes on, and the last good checkpoint stays."""


class Interrupted(KeyboardInterrupt):
    """A signal stopped training after a step. `path` is the checkpoint, or None if none could be written."""

    def __init__(self, signal_number: int, path: Path | None, step: int) -> None:
        saved = "no checkpoint could be written" if path is None else f"go on with fit(X, resume={str(path)!r})"
        super().__init__(f"training was interrupted after step {step}; {saved}")
        self.signal_number, self.path, self.step = signal_number, path, step


# ---------------------------------------------------------------------------------------------------- files


def resolve(path: str | os.PathLike[str]) -> Path:
    """The file that a path means: for a folder, checkpoint.pt in it."""
    path = real_path(path)
    return path / NAME if path.is_dir() else path


def write(path: Path, state: Mapping[str, Any]) -> None:
    """Replace a checkpoint in one step. Raises OSError."""
    content = io.BytesIO()
    torch.save({"sasgp checkpoint": FORMAT, **state}, content)  # torch's own writer hides why writing to a disk fails
    remove_leftovers(path)
    with replacing(path) as temporary:
        temporary.write_bytes(content.getbuffer())


def read(path: Path) -> dict[str, Any]:
    """A checkpoint's contents, on the CPU. Raises InputError if there is none to read."""
    if not path.is_file():
        raise InputError(
            f"resume must name a checkpoint, or a folder with {NAME}. There is no file {path}.", argument="resume"
        )
    try:
        state = dict(torch.load(path, map_location="cpu", weights_only=True))
        version = int(state["sasgp checkpoint"])
    except Exception as error:  # torch raises many kinds for damaged or foreign files
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise InputError(
            f"resume must name a checkpoint that sasgp wrote. {path} cannot be read as one: {reason}. "
            "Start again without resume.",
            argument="resume",
        ) from error
    if version > FORMAT:
        raise InputError(f"{path} was written by a newer sasgp. Upgrade sasgp to go on from it.", argument="resume")
    if version < FORMAT:
        raise InputError(
            f"{path} was written by a development version of sasgp that this one cannot read. Start again without "
            "resume.",
            argument="resume",
        )
    return state


# ---------------------------------------------------------------------------------------------------- fingerprints


def sampled(n_rows: int) -> NDArray[np.int64]:
    """Indices of the rows whose values are part of a fingerprint."""
    return np.unique(np.linspace(0, n_rows - 1, 256).astype(np.int64))


def fingerprint(n_rows: int, sample: NDArray[Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """What must be the same to resume: shape, type and some rows of the data, and the settings."""
    return {
        "rows of data": n_rows,
        "features": sample.shape[1],
        "type of data": str(sample.dtype),
        "values of data": hashlib.blake2b(np.ascontiguousarray(sample).tobytes(), digest_size=8).hexdigest(),
        **{name: described(value) for name, value in settings.items()},
    }


def values_fingerprint(sample: NDArray[Any], dtype: str) -> str:
    """A hash of sampled rows, as a model of this dtype sees them. It does not depend on the type they are stored in."""
    values = np.ascontiguousarray(sample, dtype=dtype) + 0.0  # −0 is 0
    return hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()


def described(value: object) -> Any:
    """A setting as a JSON value: modules by their structure, arrays by a hash."""
    if isinstance(value, np.generic):  # first, because NumPy's float64 is also a float
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
    """What differs, in words; an empty string if nothing does."""
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return "; ".join(f"{name}: {then.get(name)!r} in the checkpoint, {now.get(name)!r} now" for name in names)


# ---------------------------------------------------------------------------------------------------- in training


class Checkpointer:
    """Decides when to save, and saves.

    A checkpoint is due after every epoch, and every three minutes within one. If epochs are so short that saving would
    take more than a twentieth of the time, some are skipped.

    Parameters
    ----------
    path : Path or None
        The file to write; None writes nothing.
    """

    def __init__(self, path: Path | None) -> None:
        self.path, self.warned, self.written = path, False, False
        self.last, self.cost = time.monotonic(), 0.0

    def due(self) -> bool:
        """Whether to save now, within an epoch."""
        return self.path is not None and time.monotonic() - self.last > EVERY

    def due_after_epoch(self) -> bool:
        """Whether to save now, at the end of an epoch."""
        return self.path is not None and SHARE * (time.monotonic() - self.last) >= self.cost

    def save(self, state: Mapping[str, Any]) -> bool:
        """Write a checkpoint, or warn once if that fails. Returns whether it was written."""
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
    """Ctrl-C and SIGTERM during training: `caught` is the number of the signal that came, or 0."""

    def __init__(self) -> None:
        self.caught = 0

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.caught and number == signal.SIGINT:
            raise KeyboardInterrupt  # asked twice
        self.caught = self.caught or number

    @contextmanager
    def watched(self, wanted: bool = True) -> Iterator["Signals"]:
        """Catch signals inside the block, if this is the main thread: Python delivers them to no other thread."""
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
