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

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # mallopt's names for them
KEPT = 1 << 30  # bytes: freed blocks up to this size are kept
AFTERWARDS = 32 << 20  # where glibc's own adaptive threshold ends, which any mallopt switches off


@contextmanager
def keep_freed_memory() -> Iterator[None]:
    """Keep freed memory inside of the block, then return what is free. Does nothing without glibc."""
    library = _glibc()
    if library is None:
        yield
        return
    if not library.mallopt(MMAP_THRESHOLD, KEPT):  # older ones have 32 MiB for a limit
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
    return library if hasattr(library, "gnu_get_libc_version") else None  # other libraries have no mallopt, or a stub
