"""Files that appear whole or not at all.

    with replacing(path) as temporary:
        temporary.write_bytes(content)

The new file is written beside the old one and takes its place in one step. A process that is killed in between leaves
the old file as it was, and a hidden temporary file that nothing reads.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["real_path", "remove_leftovers", "replacing"]

TOKEN = "[0-9a-f]" * 8
ABANDONED = 600.0  # seconds without a write: whoever wrote this temporary file is gone


def real_path(path: str | os.PathLike[str]) -> Path:
    """The path with `~` and links resolved, so that a link's target is replaced and not the link."""
    return Path(os.path.realpath(Path(path).expanduser()))


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A new file with the same suffix beside `path`, which replaces it when the block ends without an error.

    The file is on the disk, and not only in a cache, when the block has ended. Raises OSError.
    """
    path = real_path(path)
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    try:
        temporary.touch(exist_ok=False)
        if path.exists():
            shutil.copymode(path, temporary)  # before the data: who kept the old file private wants the new one so, too
        yield temporary
        _sync(temporary)
        temporary.replace(path)
    finally:
        with suppress(OSError):  # after success there is none
            temporary.unlink()
    with suppress(OSError):  # Windows cannot open a folder
        _sync(path.parent)


def remove_leftovers(path: Path) -> None:
    """Delete the temporary files that killed processes left beside `path`."""
    for leftover in path.parent.glob(f".{path.stem}.{TOKEN}{path.suffix}"):
        with suppress(OSError):
            if time.time() - leftover.stat().st_mtime > ABANDONED:
                leftover.unlink()


def _sync(path: Path) -> None:
    """Make a file's contents, or a folder's names, survive a loss of power."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
