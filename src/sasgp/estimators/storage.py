"""The file format of trained models: one safetensors file, with everything but tensors as JSON in its header.

**The file of a SASGP or GPLVM model holds the support set: up to `support_size` rows of the training data themselves.**
Whoever gets the file gets those rows. Do not share the file where the data may not be shared.

There is no pickle anywhere, so reading a file never runs code from it. A checksum of the whole file detects damage. It
is no signature: it says nothing about who wrote the file.
"""

import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from sasgp.data.files import real_path, replacing
from sasgp.errors import InputError

__all__ = ["read", "write"]

VERSION = 3  # of the file's layout
MAX_HEADER = 100_000_000  # bytes: safetensors' own limit

# The checksum is taken while these digits stand in its place. In the header's bytes the name with bare quotes occurs
# once: inside of a JSON string, such as our own header, every quote has a backslash before it.
NO_CHECKSUM = "0" * 64

# What people hand over instead, by its first bytes
OTHER_FILES = {b"PK": "a zip archive (torch.save, .npz)", b"\x80": "a pickle", b"\x93NUMPY": "a NumPy array"}


def write(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a model file. An existing file is replaced in one step: at any moment the path holds a whole file.

    Parameters
    ----------
    path : path
    header : mapping
        JSON values; no NaN or infinity.
    tensors : mapping of str to Tensor
        On any device; they may share memory.
    """
    path = real_path(path)
    content = _serialise(header, tensors)
    try:
        _check_target(path)
        with replacing(path) as temporary, temporary.open("wb") as file:
            file.writelines(content)
    except OSError as error:
        raise InputError(
            f"The model could not be saved to {path}: {error.strerror or error}. Choose another path, or see to its "
            "permissions and its free space."
        ) from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors that `write` was given. Raises InputError for anything but a whole, intact file."""
    path = Path(path)
    try:
        if not path.is_file():
            got = "a folder" if path.is_dir() else "not a regular file" if path.exists() else "which does not exist"
            raise InputError(f"A model file must be a file that sasgp wrote. Got {path}, {got}. Check the path.")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            # Before anything of that size is read: damage here may ask for 2⁶⁴ bytes
            if len(prefix) < 8 or length > min(size - 8, MAX_HEADER):
                # A file of ours that was cut short has a small length; the first bytes of these others make a giant one
                kinds = [
                    kind for start, kind in OTHER_FILES.items() if prefix.startswith(start) and length > MAX_HEADER
                ]
                raise _damaged(path, f"it looks like {kinds[0]}" if kinds else "its first bytes do not fit its size")
            head = prefix + file.read(length)
            metadata = _metadata(path, head)
            content = head + file.read()
    except OSError as error:
        raise InputError(
            f"A model file must be readable. Got {path}: {error.strerror or error}. Check its permissions and its disk."
        ) from error

    checksum = metadata.get("checksum", "")
    start = _checksum_start(head, checksum)
    digest = hashlib.sha256(content[:start])
    digest.update(NO_CHECKSUM.encode())
    digest.update(memoryview(content)[start + len(NO_CHECKSUM) :])
    if digest.hexdigest() != checksum:
        raise _damaged(path, "its bytes do not match its checksum")
    try:
        header = _strict_json(metadata["header"])
        if not isinstance(header, dict):
            raise TypeError("its settings are not a mapping")
        return header, safetensors.torch.load(content)
    except (KeyError, RuntimeError, TypeError, ValueError, safetensors.SafetensorError) as error:
        # Intact by its checksum, and yet not as `write` leaves it: somebody else made it so
        raise _damaged(path, str(error)) from error


def _serialise(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """The file's bytes, in pieces: what stands before the checksum, the checksum, and the rest."""
    try:
        text = json.dumps(dict(header), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"The header of a model file must hold JSON values, all finite. Got one that is not: {error}. "
            "Change that setting before saving."
        ) from error
    metadata = {"format": "sasgp", "version": str(VERSION), "header": text, "checksum": NO_CHECKSUM}
    content = safetensors.torch.save(_independent(tensors), metadata)
    start = _checksum_start(content, NO_CHECKSUM)
    digest = hashlib.sha256(content).hexdigest().encode()
    view = memoryview(content)
    return [view[:start], memoryview(digest), view[start + len(digest) :]]


def _check_target(path: Path) -> None:
    wrong = None
    if not path.parent.is_dir():
        wrong = f"but there is no folder {path.parent}. Create it first."
    elif path.is_dir():
        wrong = f"a folder. Name a file in it, such as {path / 'model.safetensors'}."
    elif path.exists() and not os.access(path, os.W_OK):
        # Renaming over it would succeed, but somebody protected it
        wrong = "which is write-protected. Choose another path, or allow writing to it."
    if wrong:
        raise InputError(f"The model must be saved to a file in an existing folder. Got {path}, {wrong}")


def _independent(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, and no two on the same memory, which safetensors refuses."""
    result: dict[str, Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        if tensor.untyped_storage().data_ptr() in taken:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        result[name] = tensor
    return result


def _checksum_start(content: bytes, checksum: str) -> int:
    """Where the checksum's digits start: the first such place is in the header, before any tensor's bytes.

    Where there is none, the place is a wrong one, and the sum does not match.
    """
    key = b'"checksum":"'
    return content.find(key + checksum.encode(errors="replace")) + len(key)


def _metadata(path: Path, head: bytes) -> dict[str, str]:
    """The metadata of a safetensors header that is ours and of a version that we know."""
    try:
        metadata = _strict_json(head[8:].decode())["__metadata__"]
        ours = metadata["format"] == "sasgp"
    except (KeyError, RecursionError, TypeError, ValueError) as error:
        raise _damaged(path, "its header is not one of sasgp's") from error
    if not ours or not all(isinstance(value, str) for value in metadata.values()):
        raise _damaged(path, "its header is not one of sasgp's")
    version = metadata.get("version", "")
    if not re.fullmatch("[1-9][0-9]{0,5}", version):
        raise _damaged(path, "it names no version")
    if int(version) > VERSION:
        raise InputError(
            f"{path} was written by a newer sasgp (format {version}, this one reads {VERSION}). Upgrade sasgp."
        )
    if int(version) < VERSION:
        raise InputError(
            f"{path} was written by a development version of sasgp (format {version}, this one reads {VERSION}). Train "
            "the model again."
        )
    return dict(metadata)


def _strict_json(text: str) -> Any:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    return json.loads(text, parse_constant=refuse)


def _damaged(path: Path, reason: str) -> InputError:
    return InputError(
        f"A model file must be one that sasgp wrote, whole and unchanged. Got {path}: {reason}. "
        "It is of another kind, cut short or damaged: copy it again from its source, or save the model again."
    )
