"""Files that commands read and write. What is written appears whole or not at all."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data import load
from sasgp.data.tables import TextError, read_table
from sasgp.errors import InputError

__all__ = ["check_place", "check_suffix", "folder", "read_latents", "real_path", "replacing", "writable", "write_csv"]


def check_suffix(out: Path, suffixes: tuple[str, ...], source: str | Path | None = None, option: str = "--out") -> None:
    """That --out, or another option, is of a kind that is written, and not the file that is read."""
    if out.suffix.lower() not in suffixes:
        kinds = " or ".join(filter(None, (", ".join(suffixes[:-1]), suffixes[-1])))
        raise InputError(f"{option} must end in {kinds}. Got {out}; rename it.")
    if source is not None and out.exists() and Path(source).exists() and out.samefile(source):
        raise InputError(f"{option} must be another file than the one that is read. Got {out} twice; rename it.")


def check_place(path: Path, option: str = "--out") -> None:
    """Raise InputError where a file cannot be written, before the work that it is to hold. Nothing is left behind."""
    _temporary(real_path(path), option).unlink()


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A temporary file beside `path`, with the same suffix, which takes its place when all went well."""
    path = real_path(path)
    temporary = _temporary(path)
    try:
        yield temporary
        temporary.replace(path)
    except OSError as error:
        raise InputError(
            f"{path} could not be written: {error.strerror or error}; free some space or choose another place."
        ) from error
    finally:
        with suppress(OSError):  # after success there is none
            temporary.unlink()


def _temporary(path: Path, option: str = "--out") -> Path:
    """An empty file beside `path`, if that can be written."""
    if path.is_dir():
        raise InputError(f"{option} must be a file. Got the folder {path}; name a file in it.")
    if not path.parent.is_dir():
        raise InputError(f"{option} must be in a folder that exists. Got {path}; create {path.parent} first.")
    temporary = path.with_name(f".{path.stem}.{secrets.token_hex(4)}{path.suffix}")
    with writable(path, option):
        if path.exists() and not os.access(path, os.W_OK):
            raise PermissionError(None, "it is write-protected")
        temporary.touch()
    return temporary


@contextmanager
def folder(path: Path) -> Iterator[None]:
    """A folder to write into, made where there is none; what stayed empty is removed when something fails."""
    path = real_path(path)
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    try:
        with writable(path):
            path.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for made in missing:
            with suppress(OSError):  # it holds something
                made.rmdir()
        raise


@contextmanager
def writable(path: Path, option: str = "--out") -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InputError(
            f"{option} must be where files can be written. Got {path}: {error.strerror or error}; choose another place."
        ) from error


def real_path(path: Path) -> Path:
    """With links followed: what they point to is replaced, not they."""
    return Path(os.path.realpath(path.expanduser()))


def write_csv(file: Path, columns: Sequence[str], X: NDArray[Any]) -> None:
    import polars as pl

    pl.DataFrame(X, schema=list(columns), orient="row").write_csv(file)


def read_latents(path: Path, n_components: int) -> NDArray[Any]:
    """Latents [N, Q] of a .csv or .npy file; an embedding.csv has further columns, which are left out."""
    path = path.expanduser()
    names = [f"z{q}" for q in range(n_components)]
    if path.exists() and path.suffix.lower() not in (".csv", ".npy"):
        raise InputError(f"LATENTS must be a .csv or .npy file. Got {path}; convert it.")
    expected = f"{path} must have {n_components} columns of latents ({', '.join(names)}) for this model."
    how = "find the latents of data with `sasgp embed`."
    try:
        is_table = path.suffix.lower() == ".csv" and path.is_file() and path.stat().st_size
        Z = read_table(path).numbers(without=None, only=names)[0] if is_table else load(path).X
    except TextError as error:
        raise InputError(f"{expected} Got others, with text in them; {how}") from error
    if Z.shape[1] != n_components:
        raise InputError(f"{expected} Got {Z.shape[1]}; {how}")
    Z = np.ascontiguousarray(Z)  # as any other array: sums in another order differ in their last digit
    if not np.isfinite(Z).all():
        row, column = np.argwhere(~np.isfinite(Z))[0]
        raise InputError(f"{path} must hold finite latents. Got {Z[row, column]} in row {row}, column {names[column]}.")
    return Z
