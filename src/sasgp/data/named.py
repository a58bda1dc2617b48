"""Data sets by name, each with its official split: the 8×8 digits of scikit-learn, and files that are downloaded."""

import io
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.downloads import IDX, fetch
from sasgp.errors import InputError

__all__ = ["IDX", "NAMES", "Dataset", "fetch", "load_named", "read_cifar", "read_idx"]

#: The data sets that ``load`` knows by name: "digits", "mnist", "fashion-mnist", "cifar10" and "oil-flow".
NAMES = ("digits", "mnist", "fashion-mnist", "cifar10", "oil-flow")


@dataclass(frozen=True)
class Dataset:
    """Observations and what is known about them.

    Parameters
    ----------
    name
        Name of the data set, or of the file without its suffix.
    X
        Observations [N, D] of any real dtype. Data from a .npy file is an np.memmap and stays on disk. A table whose
        columns are not numbers of one unit is a polars.DataFrame.
    y
        Labels [N] of any dtype, including text. None if there are no labels.
    columns
        Names of the D features.
    image_shape
        Shape of one row of X as an image, such as (8, 8), or (3, 32, 32) with the colour planes first. Rows of an
        array [N, ...] from a file keep the shape that they have in the file. None if the rows are not images.
    X_test, y_test
        Official test split of a named data set. None if it has none.
    labels
        Where y comes from in a file: the name of a column or of an array, or another file. None for a named data set.
    ids
        Names of the rows [N], such as the barcodes of cells or the paths of images. None if they have none.
    metadata
        What else is known about the rows, [N] values by name: to show and to colour by.
    totals
        Total of each row over all genes of a .h5ad file, [N], if the file holds counts. X then holds these counts.
    notes
        What was changed while reading, one sentence each.
    """

    name: str
    X: Any
    y: NDArray[Any] | None
    columns: tuple[str, ...]
    image_shape: tuple[int, ...] | None
    X_test: Any = None
    y_test: NDArray[Any] | None = None
    labels: str | None = None
    ids: NDArray[Any] | None = None
    metadata: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    totals: NDArray[np.float64] | None = None
    notes: tuple[str, ...] = ()


def load_named(name: str) -> Dataset:
    """Load one of `NAMES` with its official split. Pixels are float32 in [0, 1]."""
    if name == "digits":
        return _digits()
    files = fetch(name)
    if name == "oil-flow":
        X, X_test = (np.loadtxt(io.BytesIO(files[f])) for f in ("DataTrn.txt", "DataTst.txt"))
        y, y_test = (np.loadtxt(io.BytesIO(files[f])).argmax(1) for f in ("DataTrnLbls.txt", "DataTstLbls.txt"))
        columns = tuple(f"x{d}" for d in range(X.shape[1]))
        return Dataset(name, X, y, columns, None, X_test, y_test)
    if name == "cifar10":
        batches = [read_cifar(raw, file) for file, raw in files.items()]  # in the order of SOURCES: the test batch last
        images, labels = (np.concatenate(part) for part in zip(*batches[:-1], strict=True))
        images_test, labels_test = batches[-1]
    else:
        images, labels, images_test, labels_test = (read_idx(files[f], f) for f in IDX)
    return _image_set(name, images, labels, images_test, labels_test, white=255)


def _digits() -> Dataset:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    # There is no official split. This one is our own and never changes: stratified, 80/20.
    images, images_test, y, y_test = train_test_split(
        bunch.images, bunch.target, test_size=0.2, random_state=0, stratify=bunch.target
    )
    return _image_set("digits", images, y, images_test, y_test, white=16)


def _image_set(
    name: str,
    images: NDArray[Any],
    labels: NDArray[Any],
    images_test: NDArray[Any],
    labels_test: NDArray[Any],
    white: int,
) -> Dataset:
    X, X_test = (
        np.divide(part.reshape(len(part), -1), white, dtype=np.float32, casting="same_kind")
        for part in (images, images_test)
    )
    columns = tuple(f"pixel{d}" for d in range(X.shape[1]))
    y, y_test = labels.astype(np.int64), labels_test.astype(np.int64)
    return Dataset(name, X, y, columns, images.shape[1:], X_test, y_test)


def read_idx(raw: bytes, name: str) -> NDArray[np.uint8]:
    """Parse an IDX file: two zero bytes, a type code, the number of axes, each axis as a big-endian uint32, values."""
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":  # 8: unsigned bytes, the only type that these data sets use
        raise InputError(f"{name} is not an IDX file of bytes: it should start with 00 00 08, not {raw[:4].hex(' ')}.")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise InputError(f"{name} is too short: {raw[3]} axes need a header of {start} bytes, but it has {len(raw)}.")
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    values = np.frombuffer(raw, np.uint8)[start:]
    if values.size != math.prod(shape):
        raise InputError(f"{name} must have values of shape {shape} according to its header, but has {values.size}.")
    return values.reshape(shape)


def read_cifar(raw: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Parse a binary batch of CIFAR-10: each row is a label and the planes R, G, B of 32×32 bytes."""
    size = 1 + 3 * 32 * 32
    if not raw or len(raw) % size:
        raise InputError(f"{name} must have rows of {size} bytes, but its length is {len(raw)}.")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, size)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]
