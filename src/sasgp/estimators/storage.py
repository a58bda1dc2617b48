"""The file format of trained models: one safetensors file, with everything but tensors as JSON in its header.

The file holds no rows of the data. It holds the latents of all training rows and, with SASGP and GPLVM, sums over all
rows: M positions and M × D numbers that each mix many rows. If every row is a position, as with few rows, the rows can
be computed from them. docs/model-files.md says what a file reveals.

Nothing is pickled, so reading a file never runs code from it. A checksum of the whole file detects damage. It is not a
signature: it says nothing about who wrote the file.
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

# The checksum is computed with these digits in its place. In the bytes of the header, the name with bare quotes occurs
# only once: inside a JSON string, such as our own header, each quote has a backslash before it.
NO_CHECKSUM = "0" * 64

# Other kinds of files that users may pass, by their first bytes
OTHER_FILES = {b"PK": "a zip archive (torch.save, .npz)", b"\x80": "a pickle", b"\x93NUMPY": "a NumPy array"}


def write(path: str | os.PathLike[str], header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write a model file. An existing file is replaced in one step, so the path holds a complete file at any moment.

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
            f"The model could not be saved to {path}: {error.strerror or error}. Choose another path, or check the "
            "permissions and the free space."
        ) from error


def read(path: str | os.PathLike[str]) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header and the tensors that `write` was given. Raises InputError if the file is not complete and intact."""
    path = Path(path)
    try:
        if not path.is_file():
            wrong = "is a folder" if path.is_dir() else "is not a regular file" if path.exists() else "does not exist"
            raise InputError(f"{path} {wrong}. Name a model file that sasgp wrote.")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            prefix = file.read(8)
            length = int.from_bytes(prefix, "little")
            # Checked before so many bytes are read: a damaged length may be up to 2⁶⁴
            if len(prefix) < 8 or length > min(size - 8, MAX_HEADER):
                # If one of our files was cut short, the length is small; the first bytes of other kinds make a huge one
                kinds = [
                    kind for start, kind in OTHER_FILES.items() if prefix.startswith(start) and length > MAX_HEADER
                ]
                raise _damaged(path, f"it looks like {kinds[0]}" if kinds else "its first bytes do not fit its size")
            head = prefix + file.read(length)
            metadata = _metadata(path, head)
            content = head + file.read()
    except OSError as error:
        raise InputError(
            f"The model file {path} cannot be read: {error.strerror or error}. Check its permissions and its disk."
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
        # The checksum is right, but `write` did not make this file
        raise _damaged(path, str(error)) from error


def _serialise(header: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> list[memoryview]:
    """The bytes of the file in three pieces: before the checksum, the checksum, and the rest."""
    try:
        text = json.dumps(dict(header), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"A setting cannot be saved, because the header of a model file holds only finite JSON values: {error}. "
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
        wrong = f"there is no folder {path.parent}. Create it first."
    elif path.is_dir():
        wrong = f"it is a folder. Name a file in it, such as {path / 'model.safetensors'}."
    elif path.exists() and not os.access(path, os.W_OK):
        # Renaming would replace it, but somebody protected it
        wrong = "it is write-protected. Choose another path, or allow writing to it."
    if wrong:
        raise InputError(f"The model cannot be saved to {path}: {wrong}")


def _independent(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors on the CPU, contiguous, and without shared memory, which safetensors refuses."""
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
    """Where the digits of the checksum start: the first match is in the header, before the bytes of any tensor.

    If there is no match, the position is wrong, and the checksum does not match.
    """
    key = b'"checksum":"'
    return content.find(key + checksum.encode(errors="replace")) + len(key)


def _metadata(path: Path, head: bytes) -> dict[str, str]:
    """The metadata of a safetensors header that sasgp wrote, in a version that this one reads."""
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
        f"{path} is not a model file that sasgp wrote, or it is damaged: {reason}. Copy it again from its source, or "
        "save the model again."
    )
