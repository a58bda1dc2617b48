"""Latents in a copy of a .h5ad file, written by h5py as anndata writes them: arrays in obsm, their origin in uns."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from sasgp.data.hdf5 import has, part
from sasgp.errors import InputError

__all__ = ["write_with_latents"]

DICT, ARRAY = ("dict", "0.1.0"), ("array", "0.2.0")  # encodings of anndata, with their versions
TEXT, NUMBER = ("string", "0.2.0"), ("numeric-scalar", "0.2.0")


def write_with_latents(
    source: Path, target: Path, key: str, latents: Mapping[str, NDArray[Any]], about: Mapping[str, Any]
) -> None:
    """Copy a .h5ad file, and add arrays to its obsm and a mapping, called `key`, to its uns. They replace older ones.

    Raises OSError if the target cannot be written.
    """
    import h5py

    shutil.copyfile(source, target)
    with h5py.File(target, "r+") as file:
        obsm, uns = (_group(file, name, source) for name in ("obsm", "uns"))
        for name, values in latents.items():
            _set(obsm, name, values, ARRAY)
        _set_mapping(uns, key, about)


def _group(file: Any, name: str, path: Path) -> Any:
    """The group of this name, which is made if there is none. One in another file is refused, and never written to."""
    import h5py

    if not has(file, name):
        return _encoded(file.create_group(name), DICT)
    group = part(file, name, path)
    if not isinstance(group, h5py.Group):
        raise InputError(f"{path} is damaged: {name} is not a group. Save the file again.")
    return group


def _set_mapping(group: Any, name: str, mapping: Mapping[str, Any]) -> None:
    if has(group, name):
        del group[name]
    inner = _encoded(group.create_group(name), DICT)
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            _set_mapping(inner, key, value)
        else:
            _set(inner, key, value, TEXT if isinstance(value, str) else NUMBER)


def _set(group: Any, name: str, value: Any, encoding: tuple[str, str]) -> None:
    if has(group, name):
        del group[name]
    group[name] = value
    _encoded(group[name], encoding)


def _encoded(item: Any, encoding: tuple[str, str]) -> Any:
    item.attrs["encoding-type"], item.attrs["encoding-version"] = encoding
    return item
