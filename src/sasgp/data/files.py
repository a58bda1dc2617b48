"""Files that appear whole or not at all.

    with replacing(path) as temporary:
        temporary.write_bytes(content)

The new file is written beside the old one and takes its place in one step. If the process is killed before that, the
old file stays as it was, and a hidden temporary file is left that nothing reads.
"""

import glob
import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sasgp.errors import InputError

__all__ = ["at_home", "real_path", "remove_leftovers", "replacing", "sync"]


def real_path(path: str | os.PathLike[str]) -> Path:
    """Resolve `~` and links, so that the target of a link is replaced and not the link."""
    return Path(os.path.realpath(at_home(path)))


def at_home(path: str | os.PathLike[str]) -> Path:
    """A path in which `~` and `~user` are replaced by the folder of the user."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        raise InputError(f"{path} starts with {Path(path).parts[0]}, but no user has that name. Correct it.") from error


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Make a temporary file beside `path`, with the same suffix, that replaces `path` if the block ends without error.

    By then the file has been synced to the disk. Raises OSError.
    """
    path = real_path(path)
    temporary = path.with_name(_temporary_name(path, secrets.token_hex(4)))
    try:
        temporary.touch(exist_ok=False)
        if path.exists():
            shutil.copymode(path, temporary)  # before the data is written: a private file stays private
        yield temporary
        sync(temporary)
        temporary.replace(path)
    finally:
        with suppress(OSError):  # after success it is gone
            temporary.unlink()
    with suppress(OSError):  # Windows cannot open a folder
        sync(path.parent)


def remove_leftovers(path: Path) -> None:
    """Delete the temporary files that killed processes left beside `path`."""
    abandoned = time.time() - 600  # no process pauses its writing for ten minutes
    token = "[0-9a-f]" * 8
    for leftover in path.parent.glob(glob.escape(_temporary_name(path, "TOKEN")).replace("TOKEN", token)):
        with suppress(OSError):
            if leftover.stat().st_mtime < abandoned:
                leftover.unlink()


def _temporary_name(path: Path, token: str) -> str:
    """A hidden name beside `path`, cut short so that it is no longer than file systems allow."""
    return f".{path.stem[:200]}.{token}{path.suffix[:40]}"


def sync(path: Path) -> None:
    """Make the contents of a file, or the names in a folder, survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
