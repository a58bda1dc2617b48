"""How much memory is free, and how to print an amount of it."""

import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["amount", "available"]


def available() -> int:
    """Bytes of main memory that are free now."""
    limits = []
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # the limit of a container, which reads "max" if there is none
        folder = Path("/sys/fs/cgroup")
        most, now = (int((folder / f"memory.{part}").read_text(encoding="ascii")) for part in ("max", "current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        limits.append(max(0, most - now + int(stat.get("inactive_file", 0))))  # the cache of files can be dropped
    if not limits and not hasattr(os, "sysconf"):
        return sys.maxsize  # unknown, so nothing is refused
    return min(limits) if limits else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def amount(n_bytes: int) -> str:
    """Bytes as text, in MiB or GiB."""
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"
