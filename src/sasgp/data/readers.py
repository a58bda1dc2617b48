"""Files as data: arrays, tables and single cells by path, with the labels that belong to them.

There is one reader per file type. A reader takes the path, and the labels and columns that the caller wants. It returns
X as it is in the file, y, the names of the columns, and where it found the labels.
"""

import csv
import difflib
import math
import os
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.files import at_home
from sasgp.data.folders import IMAGE_SUFFIXES, SUBFOLDERS, image_files, read_folder
from sasgp.data.h5ad import read_h5ad
from sasgp.data.labels import parse_labels
from sasgp.data.memory import amount, available
from sasgp.data.metadata import column_values, split_names, table_metadata
from sasgp.data.named import NAMES, Dataset, load_named
from sasgp.data.tables import LABEL_NAMES, TABLE_SUFFIXES, DiskTable, is_frame, is_number, read_table, table_suffix
from sasgp.errors import InputError

__all__ = ["NAMES", "Dataset", "load"]

LABEL_SUFFIXES = (".npy", ".csv", ".tsv", ".txt")


def load(
    source: str | Path,
    *,
    labels: str | Path | None = None,
    columns: Sequence[str] | None = None,
    table: bool | None = None,
    missing: Sequence[str] = (),
    metadata: Sequence[str] = (),
) -> Dataset:
    """Load a data set by name, from a file, or from a folder of images.

    Parameters
    ----------
    source
        One of `NAMES`, or a .npy, .npz or .h5ad file, or a table: .csv, .tsv or .txt, also with .gz, .parquet,
        .feather, .arrow, .jsonl, .ndjson or .xlsx. A Path is always a file. An array with more than two axes is
        flattened to [N, D]. From a .npz file, the array `X` is read, or the only array with two or more axes. A folder
        holds images, whose subfolders are their labels; pixels are float32 from 0 to 1.
    labels
        The column that holds the labels: its name, or its place counted from 0 if the file has no header. For .npz
        it is the name of an array, and for .h5ad a column of obs. It can also be a .npy, .csv, .tsv or .txt file with
        one label per row. With None, the labels are a column of text or integers called label, labels, class, target
        or y. For .npz they are then an array `y` or `labels`, and for x.npy the file x.labels.npy beside it.
    columns
        Features to read, in this order. They are ignored unless the file names all of them; a .h5ad file that has only
        some of them is an error. None reads all features, or from a .h5ad file the genes marked as highly variable.

    table
        True: a table stays one, with columns of any type. False: it must hold numbers, and becomes an array. None: it
        becomes an array if it holds numbers of one unit, such as pixels.
    missing
        Codes of missing values in a table besides the usual ones, such as "-999".
    metadata
        What else is known about the rows: columns of the file, which are not features then, or columns of `obs`. A
        table file with one line per row gives all its columns.

    Returns
    -------
    Dataset
        The data. Missing values are NaN in an array and null in a table.
    """
    if isinstance(source, str) and source in NAMES:
        return _load_named(source, labels, metadata)
    path = at_home(source)
    if path.is_dir() and image_files(path):
        return _with_files(_load_folder(path, None if labels is None else str(labels)), metadata, path)
    _check_file(path, (*_READERS, ".h5ad", *TABLE_SUFFIXES), names=NAMES)
    wanted = None if labels is None else str(labels)
    try:
        path.open("rb").close()  # a missing permission is reported here for all types
        if table_suffix(path) in TABLE_SUFFIXES:
            return _dataset(path, *_read_columns(path, wanted, columns, table, missing, metadata))
        if path.suffix.lower() == ".h5ad":
            return _dataset(path, *_read_cells(path, wanted, columns, metadata))
        return _with_files(_dataset(path, *_READERS[path.suffix.lower()](path, wanted)), metadata, path)
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error


def _load_named(name: str, labels: str | Path | None, metadata: Sequence[str]) -> Dataset:
    if labels is not None:
        raise InputError(f"'{name}' has its own labels. Leave out labels='{labels}'.", argument="labels")
    if metadata:
        raise InputError(f"'{name}' has no columns besides its features. Leave them out.", argument="metadata")
    return load_named(name)


def _with_files(dataset: Dataset, metadata: Sequence[str], path: Path) -> Dataset:
    """A data set without named columns, with the columns of tables beside it."""
    _, files = split_names(metadata, (), str(path))
    return replace(dataset, metadata=table_metadata(files, len(dataset.X), str(path)))


def _dataset(
    path: Path, X: Any, y: NDArray[Any] | None, names: tuple[str, ...], labels: str | None, more: dict[str, Any]
) -> Dataset:
    image_shape = None
    if not is_frame(X):
        image_shape = X.shape[1:] if X.ndim > 2 else None
        X = _flat(X, path)
    y = None if y is None else _check_labels(y, len(X), path)
    name = os.fsencode(path.name[: -len(table_suffix(path))]).decode("utf-8", "replace")  # it is printed and drawn
    names = names or tuple(f"x{d}" for d in range(X.shape[1]))
    return Dataset(name, X, y, names, image_shape, labels=labels, **more)


# X, y, the names of the columns, where the labels are, and other fields of a Dataset
_Read = tuple[Any, NDArray[Any] | None, tuple[str, ...], str | None, dict[str, Any]]


def _read_npy(path: Path, labels: str | None) -> _Read:
    X = _load_npy(path)
    beside = path.with_suffix(".labels.npy")
    labels = str(beside) if labels is None and beside.is_file() else labels
    y = None if labels is None else _label_file(labels, len(X) if X.ndim else 0, path, [])
    return X, y, (), labels, {}


def _read_npz(path: Path, labels: str | None) -> _Read:
    if not zipfile.is_zipfile(path):
        raise InputError(f"{path} is damaged or not a .npz file (a zip archive). Save it again with np.savez.")
    try:
        with zipfile.ZipFile(path) as archive:
            names = [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]
            wide = ["X"] if "X" in names else [name for name in names if len(_member(archive, name)[0]) > 1]
            if len(wide) != 1:
                raise InputError(
                    f"{path} must have an array 'X', or only one array with two or more axes. "
                    f"It has {', '.join(names) or 'nothing'}. Save the data under the name X."
                )
            X = _unpacked(archive, wide[0], path)
            if labels is None:
                labels = next((name for name in ("y", "labels") if name in names and name not in wide), None)
            y = _unpacked(archive, labels, path) if labels in names else None
    except (InputError, OSError):
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    if y is None and labels is not None:
        y = _label_file(labels, len(X) if X.ndim else 0, path, names)
    return X, y, (), labels, {}


def _member(archive: zipfile.ZipFile, name: str) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """The shape and the type of an array in a .npz file, and how many bytes follow its header."""
    info = archive.getinfo(f"{name}.npy")
    with archive.open(info) as file:
        version = np.lib.format.read_magic(file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, _, dtype = read(file)
        return shape, dtype, info.file_size - file.tell()


def _unpacked(archive: zipfile.ZipFile, name: str, path: Path) -> NDArray[Any]:
    """An array in a .npz file. A small file may claim to hold much, so its size is checked first."""
    shape, dtype, stored = _member(archive, name)
    need, have = math.prod(shape) * dtype.itemsize, available()
    if not dtype.hasobject and need != stored:
        raise InputError(
            f"{path} is damaged: '{name}' has shape {shape}, but {stored} bytes are not {need}. Save it again."
        )
    if need > have:
        raise InputError(
            f"{path}: '{name}' needs {amount(need)} of memory, but only {amount(have)} are free. Save it as a .npy "
            "file, which stays on disk."
        )
    with archive.open(f"{name}.npy") as file:
        array: NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    return array


def _read_columns(
    path: Path,
    labels: str | None,
    columns: Sequence[str] | None,
    stays: bool | None,
    missing: Sequence[str],
    metadata: Sequence[str],
) -> _Read:
    table = read_table(path, missing=missing)
    own, files = split_names(metadata, list(table.schema), str(path))
    column = table.guess_label_column(columns or ()) if labels is None else table.find_label_column(labels)
    y = None
    if column is not None:
        y = table.labels(column)
    elif labels is not None:
        y = _label_file(labels, table.n_rows, path, table.label_candidates)
    about = column_values(table, own) | table_metadata(files, table.n_rows, str(path))
    notes = {"notes": table.notes, "metadata": about}
    left_out = {*own} - {*(columns or ())} | ({column} if column else set())
    kept = tuple(name for name in table.schema if name not in left_out)
    if not kept:
        raise InputError(f"{path} has no column besides the labels. Add columns to train on.")
    if stays is not False:
        from sasgp.data.units import is_array

        frame = DiskTable(table, kept, 0, table.n_rows) if table.stays_on_disk else table.frame[list(kept)]
        if stays or not is_array(frame):
            return frame, y, kept, column or labels, notes
    X, names = table.numbers(without=left_out, only=columns)
    return X, y, names, column or labels, notes


def _read_cells(path: Path, labels: str | None, columns: Sequence[str] | None, metadata: Sequence[str]) -> _Read:
    file = read_h5ad(path)
    own, files = split_names(metadata, file.label_candidates, str(path))
    column = file.guess_label_column() if labels is None else file.find_label_column(labels)
    y = None
    if column is not None:
        y = file.labels(column)
    elif labels is not None:
        y = _label_file(labels, file.n_rows, path, file.label_candidates)
    cells = file.cells(columns)
    about = file.metadata(own, without=column) | table_metadata(files, file.n_rows, str(path))
    more = {"ids": file.ids, "metadata": about, "totals": cells.totals}
    return cells.X, y, cells.genes, column or labels, more


def _load_folder(path: Path, labels: str | None) -> Dataset:
    images = read_folder(path)
    y, found = images.y, None if images.y is None else SUBFOLDERS
    if labels is not None:
        y, found = _label_file(labels, len(images.X), path, []), labels
    X, shape = images.X.reshape(len(images.X), -1), images.X.shape[1:]
    y = None if y is None else _check_labels(y, len(X), path)
    columns = tuple(f"pixel{d}" for d in range(X.shape[1]))
    name = os.fsencode(path.resolve().name).decode("utf-8", "replace")
    return Dataset(name, X, y, columns, shape, labels=found, ids=images.ids, notes=images.notes)


_READERS = {
    ".npy": _read_npy,
    ".npz": _read_npz,
}


def _load_npy(path: Path) -> NDArray[Any]:
    with path.open("rb") as file:
        if file.read(6) != b"\x93NUMPY":
            raise InputError(f"{path} is not a .npy file: its first bytes are wrong. Save it again with np.save.")
    try:
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:
        raise _damaged(path, error) from error
    return array


def _damaged(path: Path, error: Exception) -> InputError:
    """The error for a file that numpy cannot read. A damaged header makes it raise any error, even TokenError."""
    reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
    if "Python objects" in reason or "Object arrays" in reason:  # numpy's words with and without a memory map
        return InputError(
            f"{path} must hold numbers, but holds Python objects, which are never loaded because they could run code. "
            "Save np.asarray(X, dtype=float) instead."
        )
    return InputError(f"{path} is damaged ({reason}). Copy it or save it again.")


def _flat(X: NDArray[Any], path: Path) -> NDArray[Any]:
    """X as [N, D], without a copy if its memory is in that order."""
    if X.dtype.kind not in "buif":
        raise InputError(f"{path} must hold real numbers, not {X.dtype}. Convert it, for example to float32.")
    if X.ndim < 2:
        raise InputError(
            f"{path} must hold an array [N, D], not one of shape {X.shape}. One feature needs shape (N, 1)."
        )
    if not X.size:
        raise InputError(f"{path} is empty: its array has shape {X.shape}. Save it again with data.")
    return X.reshape(len(X), -1)


def _check_labels(y: NDArray[Any], n_rows: int, path: Path) -> NDArray[Any]:
    """Labels [N], from [N] or [N, 1]. Raise InputError if they do not fit the rows."""
    if y.shape == (n_rows, 1):
        y = y[:, 0]
    if y.shape != (n_rows,):
        raise InputError(
            f"labels must be one per row, {n_rows} for {path}. Got shape {y.shape}. Check that they belong together.",
            argument="labels",
        )
    if y.dtype.kind not in "buifUS":
        raise InputError(f"labels must be numbers or text. Got type {y.dtype} for {path}.", argument="labels")
    try:
        if y.dtype.kind == "U":
            np.strings.encode(y, "utf-8")
        return np.strings.decode(y, "utf-8") if y.dtype.kind == "S" else y
    except UnicodeError as error:
        raise InputError(
            f"labels for {path} hold text that is not UTF-8 ({error}). Correct them.", argument="labels"
        ) from error


def _label_file(labels: str, n_rows: int, data: Path, columns: Sequence[str]) -> NDArray[Any]:
    """Labels for `data` from a separate file. None of the columns of `data` is called `labels`."""
    path = at_home(labels)
    if not path.exists():
        if not columns:
            raise InputError(
                f"labels must be a file with one label per row of {data}. There is no file '{labels}'.",
                argument="labels",
            )
        hint = _suggest(labels, columns)
        raise InputError(
            f"labels must be a column of {data} ({_join(columns)}) or a file. Got '{labels}'.{hint}",
            argument="labels",
        )
    _check_file(path, LABEL_SUFFIXES)
    try:
        if path.suffix.lower() == ".npy":
            return np.array(_load_npy(path))
        text = path.read_text(encoding="utf-8-sig").rstrip().splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}.") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path} is not UTF-8 text ({error.reason}). Save it as UTF-8 with one label per line."
        ) from error
    if path.suffix.lower() != ".txt":  # in tables a label may be quoted
        rows = list(csv.reader(text, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
        if wide := next(((i, len(row)) for i, row in enumerate(rows, 1) if len(row) > 1), None):
            raise InputError(
                f"{path} must have one label per line, but line {wide[0]} has {wide[1]} cells. Drop the others."
            )
        text = ["".join(row) for row in rows]
    text = [line.strip() for line in text]
    if not text:
        raise InputError(
            f"{path} must have one label for each of the {n_rows} rows of {data}, but all its lines are blank."
        )
    # An extra line counts as a header only if it looks like one: labels off by one are worse than an error.
    header = text[0] in LABEL_NAMES or (not is_number(text[0]) and all(map(is_number, text[1:])))
    if len(text) == n_rows + 1 and header:
        text = text[1:]
    if len(text) != n_rows:
        raise InputError(f"{path} must have one label for each of the {n_rows} rows of {data}, but has {len(text)}.")
    if "" in text:
        raise InputError(f"{path} must have a label on each line, but line {text.index('') + 1} is blank.")
    return parse_labels(text)


def _check_file(path: Path, suffixes: tuple[str, ...], names: tuple[str, ...] = ()) -> None:
    """Raise InputError unless `path` is a file of a known type. The message suggests what else may have been meant."""
    shown = [suffix for suffix in suffixes if not suffix.endswith(".gz")]
    known = f"{', '.join(shown[:-1])} or {shown[-1]}"
    if path.is_dir():
        images = f" A folder is read only if most of its files are images ({', '.join(IMAGE_SUFFIXES)})." * bool(names)
        raise InputError(f"{path} is a folder. Name a file in it ({known}).{images}")
    if not path.exists():
        siblings = [str(path.with_name(other.name)) for other in _siblings(path) if table_suffix(other) in suffixes]
        hint = _suggest(str(path), [*names, *siblings])
        if names and not path.suffix:
            raise InputError(f"there is no data set or file '{path}'.{hint} Data sets: {', '.join(names)}.")
        raise InputError(f"there is no file '{path}'.{hint or ' Check the path.'}")
    if names and path.suffix.lower() in IMAGE_SUFFIXES:
        raise InputError(f"{path} is a single image. Name a folder of images, which may hold just this one.")
    if table_suffix(path) not in suffixes:
        raise InputError(f"{path} has an unknown type. Convert it to {known}.")
    if not path.stat().st_size:
        raise InputError(f"{path} is empty (0 bytes). Save it again.")


def _siblings(path: Path) -> list[Path]:
    try:
        return sorted(path.parent.iterdir())
    except OSError:
        return []


def _suggest(word: str, options: Iterable[str]) -> str:
    by_lower = {option.lower(): option for option in options}
    close = difflib.get_close_matches(word.lower(), by_lower, n=1)
    return f" Did you mean '{by_lower[close[0]]}'?" if close else ""


def _join(names: Sequence[str]) -> str:
    return ", ".join(names[:10]) + (", …" if len(names) > 10 else "")
