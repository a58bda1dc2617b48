"""How much memory there is, and how to say it."""

import os
import sys
from contextlib import suppress
from pathlib import Path

__all__ = ["amount", "available"]


def available() -> int:
    """Bytes of main memory that can be taken now."""
    limits = []
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # of a container; "max" where there is none
        folder = Path("/sys/fs/cgroup")
        most, now = (int((folder / f"memory.{part}").read_text(encoding="ascii")) for part in ("max", "current"))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        limits.append(max(0, most - now + int(stat.get("inactive_file", 0))))  # files that were read can go
    if not limits and not hasattr(os, "sysconf"):
        return sys.maxsize  # it cannot be known, so nothing is refused
    return min(limits) if limits else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def amount(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"
