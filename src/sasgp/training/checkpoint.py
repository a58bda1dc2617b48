"""Checkpoints: files from which training can go on. A checkpoint is complete at every moment.

A file is one line with the format's number, a checksum, and the state of training as JSON and safetensors. Nothing is
pickled, so reading a file never runs code, and takes no more memory than the file is large. A checkpoint also holds a
fingerprint of data and settings. Resuming with others is an error that says which differ.

If a checkpoint cannot be written (disk full, folder read-only), training goes on. There is one warning, the last good
checkpoint stays, and the next one is tried when it is due.
"""

import hashlib
import json
import os
import re
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import safetensors.torch
import torch
from torch import Tensor

from sasgp.data.files import real_path, remove_leftovers, replacing
from sasgp.errors import InputError

__all__ = [
    "CheckpointWarning",
    "Checkpointer",
    "Interrupted",
    "Signals",
    "read",
    "resolve",
    "write",
]

NAME = "checkpoint.pt"  # of the file, if a folder is given
FORMAT = 2
START = b"sasgp checkpoint "  # of the file; the format's number and a line feed follow, then the checksum
CHECKSUM_BYTES = hashlib.sha256().digest_size
EVERY = 180.0  # seconds between checkpoints within an epoch
SHARE = 0.02  # of the time at most goes into saving, if epochs are short


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
    content = _pack(state)
    remove_leftovers(path)
    with replacing(path) as temporary, temporary.open("wb") as file:
        file.write(START + f"{FORMAT}\n".encode())
        file.write(hashlib.sha256(content).digest())
        file.write(content)


def read(path: Path) -> dict[str, Any]:
    """A checkpoint's contents, on the CPU. Raises InputError if there is none to read."""
    if not path.is_file():
        raise InputError(
            f"resume must name a checkpoint, or a folder with {NAME}. There is no file {path}.", argument="resume"
        )
    try:
        with path.open("rb") as file:
            line, checksum, content = file.readline(len(START) + 8), file.read(CHECKSUM_BYTES), file.read()
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    if not (found := re.fullmatch(START + rb"([1-9][0-9]{0,5})\n", line)):
        raise _unreadable(path, "it does not start as one")
    if int(found[1]) > FORMAT:
        raise InputError(f"{path} was written by a newer sasgp. Upgrade sasgp to go on from it.", argument="resume")
    if int(found[1]) < FORMAT:
        raise InputError(
            f"{path} was written by a development version of sasgp that this one cannot read. Start again without "
            "resume.",
            argument="resume",
        )
    if hashlib.sha256(content).digest() != checksum:
        raise _unreadable(path, "it is damaged, because its bytes do not match its checksum")
    try:
        return _unpack(content)
    except Exception as error:  # the checksum is right, but sasgp did not write this; there are many ways to be wrong
        raise _unreadable(path, (str(error) or type(error).__name__).splitlines()[0]) from error


def _unreadable(path: Path, reason: str) -> InputError:
    return InputError(
        f"resume must name a checkpoint that sasgp wrote. {path} cannot be read as one: {reason.rstrip('.')}. Start "
        "again without resume.",
        argument="resume",
    )


def _pack(state: Mapping[str, Any]) -> bytes:
    """The length of the outline, the outline as JSON, and the tensors."""
    tensors: dict[str, Tensor] = {}
    outline = json.dumps(_outline(state, tensors)).encode()
    return len(outline).to_bytes(8, "little") + outline + safetensors.torch.save(tensors)


def _unpack(content: bytes) -> dict[str, Any]:
    end = 8 + int.from_bytes(content[:8], "little")
    state = _filled(json.loads(content[8:end]), safetensors.torch.load(content[end:]))
    if not isinstance(state, dict):
        raise TypeError("it holds no state of training")
    return state


def _outline(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON. Tensors are put into `tensors`, and the outline has their names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Tensor):
        name = str(len(tensors))
        tensors[name] = value.detach().cpu().clone(memory_format=torch.contiguous_format)  # none may share memory
        return {"tensor": name}
    if isinstance(value, Mapping):  # keys may be numbers
        return {"mapping": [[key, _outline(entry, tensors)] for key, entry in value.items()]}
    if isinstance(value, tuple | list):
        entries = [_outline(entry, tensors) for entry in value]
        return {"tuple": entries} if isinstance(value, tuple) else entries
    raise TypeError(f"A checkpoint cannot hold {type(value).__name__}.")


def _filled(outline: Any, tensors: Mapping[str, Tensor]) -> Any:
    """The value of an outline."""
    if isinstance(outline, list):
        return [_filled(entry, tensors) for entry in outline]
    if not isinstance(outline, dict):
        return outline
    ((kind, content),) = outline.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "tuple":
        return tuple(_filled(entry, tensors) for entry in content)
    if kind == "mapping":
        return {key: _filled(entry, tensors) for key, entry in content}
    raise ValueError(f"it has a part of the kind {kind!r}")


# ---------------------------------------------------------------------------------------------------- in training


class Checkpointer:
    """Decides when to save, and saves.

    A checkpoint is due after every epoch, and every three minutes within one. If epochs are so short that saving would
    take more than a fiftieth of the time, some are skipped.

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
