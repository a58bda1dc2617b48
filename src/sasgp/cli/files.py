"""Files that commands write. The command line adds to `sasgp.data.files` what a user of an option is told."""

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from sasgp.data import files as atomic
from sasgp.data.files import real_path
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "check_place",
    "check_suffix",
    "folder",
    "missing_folders",
    "remove_empty",
    "replacing",
    "same_file",
    "writable",
    "write_csv",
]

FORMULA = r"^[=+\-@\t\r]"  # how text begins that a spreadsheet runs


def check_suffix(out: Path, suffixes: tuple[str, ...], *sources: str | Path | None, option: str = "--out") -> None:
    """Raise InputError if the file has another suffix, or is one of the files that the command reads."""
    if out.suffix.lower() not in suffixes:
        kinds = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise InputError(f"{option} must end in {kinds}. Got {out}. Choose another name.")
    if any(source is not None and same_file(out, source) for source in sources):
        raise InputError(f"{option} would overwrite {out}, which the command reads. Choose another file.")


def same_file(one: str | Path, other: str | Path) -> bool:
    """Whether two paths name one file that exists, by whatever links."""
    try:
        return real_path(one).samefile(real_path(other))
    except (OSError, ValueError):  # one of them does not exist, or is no path but the name of a column
        return False


def check_place(path: Path, option: str = "--out") -> None:
    """Raise InputError if the file cannot be written, before the work that it is to hold. Leaves nothing behind."""
    path = real_path(path)
    if path.is_dir():
        raise InputError(f"{option} must be a file, but {path} is a folder. Name a file in it.")
    if not path.parent.is_dir():
        raise InputError(f"{option} must be in a folder that exists. Create {path.parent} first.")
    with writable(path, option):
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(None, "it is write-protected")
        tempfile.TemporaryFile(dir=path.parent).close()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, which replaces it when the block ends without an error. Raises InputError."""
    check_place(path)
    try:
        with atomic.replacing(path) as temporary:
            yield temporary
    except OSError as error:
        raise InputError(
            f"{path} could not be written: {error.strerror or error}. Free some space or choose another place."
        ) from error


@contextmanager
def folder(path: Path) -> Iterator[None]:
    """Create a folder to write into. If something fails, the folders that were created and stayed empty are removed."""
    path = real_path(path)
    missing = missing_folders(path)
    try:
        with writable(path):
            path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        remove_empty(missing)
        raise


@contextmanager
def writable(path: Path, option: str = "--out") -> Iterator[None]:
    """Turn an OSError into an InputError that names the option."""
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{option} cannot be written: {path}: {error.strerror or error}. Choose another place."
        ) from error


def missing_folders(path: Path) -> list[Path]:
    """Those of `path` and its parents that do not exist, the innermost first."""
    return [folder for folder in (path, *path.parents) if not folder.exists()]


def remove_empty(folders: Iterable[Path]) -> None:
    for folder in folders:
        with suppress(OSError):  # it holds something by now
            folder.rmdir()


def write_csv(
    frame: "pl.DataFrame", file: Path | IO[bytes], *, escape_formulas: bool = False, header: bool = True
) -> None:
    """Write a .csv file. Text and names that a spreadsheet would run get an apostrophe, if asked for."""
    import polars as pl

    if escape_formulas:
        text = (pl.selectors.string() | pl.selectors.categorical() | pl.selectors.enum()).cast(pl.String)
        frame = frame.with_columns(text.str.replace(FORMULA, "'${0}"))
        frame.columns = [re.sub(FORMULA, r"'\g<0>", name) for name in frame.columns]
    frame.write_csv(file, include_header=header)
