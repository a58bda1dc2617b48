"""Keep freed memory with the process, because the next training step asks for it again.

A step's tensors are megabytes each. The C library returns such blocks to the system when they are freed and asks for
them again in the next step, where every page is cleared on first use. That costs a noticeable share of a step.
"""

import ctypes
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

__all__ = ["keep_freed_memory"]

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of mallopt
KEPT = 1 << 30  # bytes: freed blocks up to this size are kept
AFTERWARDS = 32 << 20  # largest value of glibc's adaptive threshold, which any call of mallopt turns off


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep freed memory inside the block, then return what is free. Does nothing without glibc."""
    library = _glibc()
    if library is None:
        yield
        return
    if not library.mallopt(MMAP_THRESHOLD, KEPT):  # older versions allow 32 MiB at most
        library.mallopt(MMAP_THRESHOLD, AFTERWARDS)
    library.mallopt(TRIM_THRESHOLD, KEPT)
    try:
        yield
    finally:
        library.mallopt(MMAP_THRESHOLD, AFTERWARDS)
        library.mallopt(TRIM_THRESHOLD, 2 * AFTERWARDS)
        library.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    library = ctypes.CDLL(None)
    return library if hasattr(library, "gnu_get_libc_version") else None  # others have no mallopt, or an empty one
