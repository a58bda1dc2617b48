"""Where results go while they are computed block by block: a new array, an array of the caller, or a .npy file."""

import os
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from sasgp.data.files import real_path, replacing
from sasgp.errors import InputError

__all__ = ["Out", "Sink"]

Out = str | os.PathLike[str] | NDArray[Any]


class Sink:
    """Takes the rows of a result one block after the other, inside a `with` block. `result` is the whole of it.

    Parameters
    ----------
    out : path, array or None
        Where the result goes. None makes a new array. A file appears when the `with` block ends without an error, and
        its result is a memory map. It is not written through a map, because mapped pages count as resident memory.
    shape, dtype
        Shape and dtype of the result.
    """

    def __init__(self, out: Out | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.array: NDArray[Any] | None = None
        self.path: Path | None = None
        self.done, self.shape, self.dtype = 0, shape, dtype
        self._open_files = ExitStack()
        if out is None:
            self.array = np.empty(shape, dtype)
        elif isinstance(out, np.ndarray):
            if out.shape != shape or not np.can_cast(dtype, out.dtype, "same_kind") or not out.flags.writeable:
                raise InputError(
                    f"out must be a writable array of shape {shape} with a floating dtype. This one has shape "
                    f"{out.shape} and dtype {out.dtype}{'' if out.flags.writeable else ', and is read-only'}.",
                    argument="out",
                )
            self.array = out
        else:
            self.path = real_path(out)
            if self.path.suffix != ".npy" or not self.path.parent.is_dir():
                raise InputError(
                    f"out must be an array or a .npy file in a folder that exists. {self.path} is neither.",
                    argument="out",
                )

    def __enter__(self) -> Self:
        if self.path is not None:
            with ExitStack() as stack:
                temporary = stack.enter_context(replacing(self.path))
                self.file: BinaryIO = stack.enter_context(temporary.open("wb"))
                header = {"descr": npy.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
                npy.write_array_header_1_0(self.file, header)
                self._open_files = stack.pop_all()
        return self

    def add(self, block: NDArray[Any]) -> None:
        """Append the next rows of the result."""
        if self.array is not None:
            self.array[self.done : self.done + len(block)] = block
        else:
            self.file.write(np.ascontiguousarray(block, self.dtype).data)
        self.done += len(block)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open_files.__exit__(kind, error, at)

    @property
    def result(self) -> NDArray[Any]:
        if self.array is not None:
            return self.array
        assert self.path is not None
        loaded: NDArray[Any] = np.load(self.path, mmap_mode="r")
        return loaded
