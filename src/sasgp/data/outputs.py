"""Where results go as they are computed: a new array, one that the caller has, or a .npy file, block by block."""

import os
import secrets
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from sasgp.errors import InputError

__all__ = ["Out", "Sink"]

Out = str | os.PathLike[str] | NDArray[Any]


class Sink:
    """Takes the rows of a result one block after the other; `result` is the whole of it when the block is left.

    Parameters
    ----------
    out : path, array or None
        A path is written under a temporary name and renamed at the end: it holds all of the result or nothing. Its
        result is a memory map. Writing through a map instead would count as resident memory.
    shape, dtype
        Of the result.
    """

    def __init__(self, out: Out | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.array: NDArray[Any] | None = None
        self.path: Path | None = None
        self.done, self.shape, self.dtype = 0, shape, dtype
        if out is None:
            self.array = np.empty(shape, dtype)
        elif isinstance(out, np.ndarray):
            if out.shape != shape or not np.can_cast(dtype, out.dtype, "same_kind") or not out.flags.writeable:
                raise InputError(
                    f"out must be a writable array of shape {shape} and a floating type. Got shape {out.shape}, type "
                    f"{out.dtype}{'' if out.flags.writeable else ', read-only'}."
                )
            self.array = out
        else:
            self.path = Path(os.path.realpath(Path(out).expanduser()))
            if self.path.suffix != ".npy" or not self.path.parent.is_dir():
                raise InputError(f"out must be a .npy file in a folder that exists, or an array. Got {self.path}.")

    def __enter__(self) -> Self:
        if self.path is not None:
            self.temporary = self.path.with_name(f".{self.path.stem}.{secrets.token_hex(4)}.npy")
            self.file: BinaryIO = self.temporary.open("xb")
            header = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
            npy.write_array_header_1_0(self.file, header)
        return self

    def add(self, block: NDArray[Any]) -> None:
        if self.array is not None:
            self.array[self.done : self.done + len(block)] = block
        else:
            self.file.write(np.ascontiguousarray(block, self.dtype).data)
        self.done += len(block)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.path is None:
            return
        try:
            self.file.close()
            if kind is None:
                self.temporary.replace(self.path)
        finally:
            with suppress(OSError):  # after success there is none
                self.temporary.unlink()

    @property
    def result(self) -> NDArray[Any]:
        if self.array is not None:
            return self.array
        assert self.path is not None
        loaded: NDArray[Any] = np.load(self.path, mmap_mode="r")
        return loaded
