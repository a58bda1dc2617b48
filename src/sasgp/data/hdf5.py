"""Parts of an HDF5 file that nobody vouches for. Nothing outside the file is read, and sizes are checked first.

HDF5 can refer to other files: by external links, by virtual datasets and by external storage. A hostile file could
return any local file as data that way, so all three are refused.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.memory import amount, available
from sasgp.errors import InputError

__all__ = ["array", "attribute", "dataset", "has", "opened", "part"]

MAX_LINKS = 10  # soft links that lead to one another


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The file, open for reading. What h5py raises while it is open becomes an InputError."""
    import h5py

    if not h5py.is_hdf5(path):
        raise InputError(f"{path} is damaged or not a .h5ad file (HDF5). Save it again with AnnData.write_h5ad.")
    try:
        with h5py.File(path, "r") as file:
            yield file
    except InputError:
        raise
    except UnicodeDecodeError as error:
        raise InputError(f"{path} holds text that is not UTF-8 ({error.reason}). Save it again as UTF-8.") from error
    except (OSError, LookupError, RuntimeError, ValueError, TypeError, ArithmeticError) as error:
        # in the part that is being read
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise InputError(f"{path} is damaged ({reason}). Copy it or save it again.") from error


def has(group: Any, name: str) -> bool:
    """Whether a group has something with this name. A link is not followed, not even to see where it leads."""
    return group.get(name, getlink=True) is not None


def part(group: Any, name: str, path: Path, links: int = 0) -> Any:
    """What is called `name` in a group of the file. Raise InputError if it is in another file, or missing."""
    import h5py

    for step in name.split("/"):
        link = group.get(step, getlink=True) if isinstance(group, h5py.Group) and step else None
        if isinstance(link, h5py.ExternalLink):
            raise InputError(
                f"{path}: '{name}' is a link to another file, which is never followed. Save the data in one file."
            )
        if isinstance(link, h5py.SoftLink):
            if links == MAX_LINKS:
                raise InputError(f"{path}: '{name}' is a link that leads nowhere. Save the data in its place.")
            start = group.file if link.path.startswith("/") else group
            group = part(start, link.path.strip("/"), path, links + 1)
        elif isinstance(link, h5py.HardLink):
            group = group[step]
        else:
            raise InputError(f"{path} is damaged: it has no '{name}'. Copy it or save it again.")
    return group


def dataset(found: Any, path: Path, shape: tuple[int | None, ...], kinds: str = "") -> Any:
    """The dataset that was found, if it is in this file and has this shape (None: any length) and kind of type."""
    import h5py

    if not isinstance(found, h5py.Dataset):
        raise InputError(f"{path} is damaged: {_name(found)} is not an array. Save the file again.")
    if found.is_virtual or found.external:
        raise InputError(
            f"{path}: {_name(found)} is kept in another file, which is never read. Save the data in one file."
        )
    fits = found.shape is not None and len(found.shape) == len(shape)
    if not fits or any(want not in (None, have) for want, have in zip(shape, found.shape, strict=True)):
        expected = " × ".join("any number" if length is None else str(length) for length in shape)
        got = "nothing" if found.shape is None else " × ".join(map(str, found.shape)) or "a single value"
        raise InputError(
            f"{path}: {_name(found)} must hold {expected} values to agree with the rest of the file, but holds {got}. "
            "Save the file again."
        )
    if kinds and found.dtype.kind not in kinds:
        what = "whole" if kinds == "iu" else "real"
        raise InputError(f"{path}: {_name(found)} must hold {what} numbers, not {found.dtype}. Convert it.")
    chunk = math.prod(found.chunks) * found.dtype.itemsize if found.chunks else 0
    _check_memory(chunk, found, path)
    return found


def array(found: Any, path: Path, shape: tuple[int | None, ...], kinds: str = "") -> NDArray[Any]:
    """All values of a dataset that passes `dataset` and fits into memory. Text becomes objects."""
    import h5py

    checked = dataset(found, path, shape, kinds)
    _check_memory(checked.size * checked.dtype.itemsize, checked, path)
    text = h5py.check_string_dtype(checked.dtype)
    if text and text.length is None:
        _check_lengths(checked, path)
    values: NDArray[Any] = np.asarray(checked.asstr()[:] if text else checked[:])
    return values


def attribute(found: Any, name: str, path: Path) -> str:
    """An attribute that is text, or "" if there is none."""
    text = found.attrs.get(name, "")
    if not isinstance(text, str):
        raise InputError(f"{path} is damaged: the attribute '{name}' of {_name(found)} is not text. Save it again.")
    return text


def _check_lengths(found: Any, path: Path) -> None:
    """Refuse text that is longer than its file. HDF5 takes that much memory before it looks for the text.

    The lengths are in the file, before the place of each text. They are not found where they are in compressed chunks.
    """
    start = found.id.get_offset()
    if start is None or not found.size or found.file.userblock_size:
        return
    places = np.fromfile(path, [("length", "<u4"), ("place", "<u8"), ("number", "<u4")], found.size, offset=start)
    if places["length"].max(initial=0) > path.stat().st_size:
        raise InputError(f"{path} is damaged: text in {_name(found)} is longer than the file. Save it again.")
    _check_memory(int(places["length"].sum(dtype=np.uint64)), found, path)


def _check_memory(need: int, found: Any, path: Path) -> None:
    have = available()
    if need > have:
        raise InputError(
            f"{path}: {_name(found)} needs {amount(need)} of memory, but only {amount(have)} are free. "
            "Drop it from the file, or save fewer rows."
        )


def _name(found: Any) -> str:
    return str(found.name).lstrip("/")
