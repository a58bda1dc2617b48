"""Data sets by name: where their files may lie, how they are checked, and how they are read.

Files are looked for in the folder that the environment variable SASGP_DATA names, then in pooch's cache, then where
Debian puts them, and are downloaded into the cache when they are nowhere. Wherever a file comes from, the md5 of its
*decompressed* bytes is checked every time it is read: copies of the same data differ in their gzip headers.
"""

import gzip
import hashlib
import io
import math
import os
import struct
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sasgp.errors import InputError

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

__all__ = ["NAMES", "Dataset", "load_named"]

NAMES = ("digits", "mnist", "fashion-mnist", "cifar10", "oil-flow")


@dataclass(frozen=True)
class Dataset:
    """Observations, with what is known about them.

    Parameters
    ----------
    name
        The data set's name, or the file's without its suffix.
    X
        Observations [N, D] of any real dtype. From a .npy file an np.memmap, left on disk.
    y
        Labels [N] of any dtype, text included. None where there are none.
    columns
        D feature names.
    image_shape
        Shape of one row of X as an image: (8, 8), or (3, 32, 32) with the colour planes first. None: not an image.
        Rows of a file's [N, ...] array have the shape that they have there.
    X_test, y_test
        The official test split of a named data set.
    labels
        What y is in a file: the name of a column or an array, or another file. None of a named data set.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any] | None
    columns: tuple[str, ...]
    image_shape: tuple[int, ...] | None
    X_test: NDArray[Any] | None = None
    y_test: NDArray[Any] | None = None
    labels: str | None = None


@dataclass(frozen=True)
class Source:
    """Where a data set's files come from.

    `folders` are the names that their folder may have; the cache uses the first. `md5` is of the decompressed bytes.
    A URL that ends in "/" has the files beside each other, each with .gz at its end; any other is a tar archive that
    holds them. URLs are tried in order.
    """

    folders: tuple[str, ...]
    md5: Mapping[str, str]
    urls: tuple[str, ...]
    system: tuple[str, ...] = ()

    @property
    def is_archive(self) -> bool:
        return not self.urls[0].endswith("/")


IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")

SOURCES = {
    "mnist": Source(
        folders=("mnist",),
        md5={
            "train-images-idx3-ubyte": "6bbc9ace898e44ae57da46a324031adb",
            "train-labels-idx1-ubyte": "a25bea736e30d166cdddb491f175f624",
            "t10k-images-idx3-ubyte": "2646ac647ad5339dbf082846283269ea",
            "t10k-labels-idx1-ubyte": "27ae3e4e09519cfbb04c329615203637",
        },
        urls=(
            "https://ossci-datasets.s3.amazonaws.com/mnist/",
            "https://storage.googleapis.com/cvdf-datasets/mnist/",
        ),
    ),
    "fashion-mnist": Source(
        folders=("fashion-mnist",),
        md5={
            "train-images-idx3-ubyte": "f4a8712d7a061bf5bd6d2ca38dc4d50a",
            "train-labels-idx1-ubyte": "9018921c3c673c538a1fc5bad174d6f9",
            "t10k-images-idx3-ubyte": "8181f5470baa50b63fa0f6fddb340f0a",
            "t10k-labels-idx1-ubyte": "15d484375f8d13e6eb1aabb0c3f46965",
        },
        urls=(
            "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
        ),
        system=("/usr/share/datasets/fashion-mnist",),  # Debian's package dataset-fashion-mnist
    ),
    "cifar10": Source(
        folders=("cifar-10-batches-bin",),
        md5={
            "data_batch_1.bin": "5dd7e06a14cb22eb9f671a540d1b7c25",
            "data_batch_2.bin": "5ea93a67294ea407fff1d09f752e9692",
            "data_batch_3.bin": "942cd6a4bcdd0dd3c604fbe906cb4421",
            "data_batch_4.bin": "ae636b3ba5c66a11e91e8cb52e771fcb",
            "data_batch_5.bin": "53f37980c15c3d472c316c40844f3f0d",
            "test_batch.bin": "803d5f7f4d78ea53de84dbe85f74fb6d",
        },
        urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    ),
    # Bishop & James (1993). DataVdn, the validation split, is not used: nothing here tunes on it.
    "oil-flow": Source(
        folders=("oil_flow", "oil-flow"),
        md5={
            "DataTrn.txt": "4178a6fcea186ada799dc77c6f5f9a84",
            "DataTrnLbls.txt": "66fbef69fc064bdb0671fc93befb4f61",
            "DataTst.txt": "af68a2a3680481ba24984d8d77a43a93",
            "DataTstLbls.txt": "a603fe0b07ce1c8f499fb1285fe1535a",
        },
        urls=("http://staffwww.dcs.shef.ac.uk/people/N.Lawrence/resources/3PhData.tar.gz",),
    ),
}


def load_named(name: str) -> Dataset:
    """One of `NAMES`, with its official split; pixels are float32 in [0, 1]."""
    if name == "digits":
        return _digits()
    files = fetch(name)
    if name == "oil-flow":
        X, X_test = (np.loadtxt(io.BytesIO(files[f])) for f in ("DataTrn.txt", "DataTst.txt"))
        y, y_test = (np.loadtxt(io.BytesIO(files[f])).argmax(1) for f in ("DataTrnLbls.txt", "DataTstLbls.txt"))
        columns = tuple(f"x{d}" for d in range(X.shape[1]))
        return Dataset(name, X, y, columns, None, X_test, y_test)
    if name == "cifar10":
        batches = [
            read_cifar(raw, file) for file, raw in files.items()
        ]  # in the order of the table: the test batch last
        images, labels = (np.concatenate(part) for part in zip(*batches[:-1], strict=True))
        images_test, labels_test = batches[-1]
    else:
        images, labels, images_test, labels_test = (read_idx(files[f], f) for f in IDX)
    return _image_set(name, images, labels, images_test, labels_test, white=255)


def _digits() -> Dataset:
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    bunch = load_digits()
    # There is no official split. This one is ours and fixed: stratified, 80/20.
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
    """An IDX file: two zero bytes, type code, number of axes, each axis as a big-endian uint32, then the values."""
    if len(raw) < 4 or raw[:3] != b"\0\0\x08":  # 8: unsigned bytes, the only type that these data sets use
        raise InputError(f"{name}: expected an IDX file of bytes, which starts with 00 00 08. Got {raw[:4].hex(' ')}.")
    start = 4 + 4 * raw[3]
    if len(raw) < start:
        raise InputError(f"{name}: expected a header of {start} bytes for {raw[3]} axes. Got {len(raw)} bytes.")
    shape = struct.unpack(f">{raw[3]}I", raw[4:start])
    values = np.frombuffer(raw, np.uint8)[start:]
    if values.size != math.prod(shape):
        raise InputError(f"{name}: expected values of shape {shape} as its header says. Got {values.size} bytes.")
    return values.reshape(shape)


def read_cifar(raw: bytes, name: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """A batch of CIFAR-10's binary version: a row is its label and the planes R, G, B of 32×32 bytes."""
    size = 1 + 3 * 32 * 32
    if not raw or len(raw) % size:
        raise InputError(f"{name}: expected rows of {size} bytes. Got {len(raw)} bytes.")
    rows = np.frombuffer(raw, np.uint8).reshape(-1, size)
    return rows[:, 1:].reshape(-1, 3, 32, 32), rows[:, 0]


def fetch(name: str) -> dict[str, bytes]:
    """Decompressed and checked contents of a data set's files, which are downloaded if they are nowhere."""
    source = SOURCES[name]
    if missing := [file for file in source.md5 if _find(source, file) is None]:
        _download(name, missing)
    found = {file: _find(source, file) for file in source.md5}
    return {file: _read(path, source.md5[file]) for file, path in found.items() if path is not None}


def _cache(source: Source) -> Path:
    import pooch

    return Path(pooch.os_cache("sasgp")) / source.folders[0]


def _find(source: Source, file: str) -> Path | None:
    """The first copy of a file, packed or not."""
    folders = [_cache(source), *map(Path, source.system)]
    if root := os.environ.get("SASGP_DATA"):
        if not Path(root).is_dir():
            raise InputError(
                f"SASGP_DATA must name a folder. Got '{root}', which is none: create it or unset SASGP_DATA."
            )
        folders = [Path(root) / folder for folder in source.folders] + folders
    paths = (folder / f"{file}{suffix}" for folder in folders for suffix in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _read(path: Path, md5: str) -> bytes:
    """Contents of a file, decompressed and checked."""
    cure = "Replace it by the publisher's file, or delete it to have it downloaded again"
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(
            f"{path} is damaged: expected a whole gzip file, got one that fails with '{error}'. {cure}."
        ) from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    _check(raw, md5, f"{path} is damaged", cure)
    return raw


def _check(raw: bytes, md5: str, what: str, cure: str) -> None:
    got = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    if got != md5:
        raise InputError(f"{what}: expected md5 {md5} of the decompressed bytes, got {got}. {cure}.")


def _download(name: str, files: Sequence[str]) -> None:
    """Put files into the cache, from the first mirror that has them."""
    source = SOURCES[name]
    cache = _cache(source)
    reasons = []
    for url in source.urls:
        try:
            cache.mkdir(parents=True, exist_ok=True)
            # Files appear in the cache under their names only when whole and checked; the rest goes with this folder.
            with tempfile.TemporaryDirectory(dir=cache, prefix="download-") as temporary:
                get = _get_archive if source.is_archive else _get_files
                # A mirror that fails half-way leaves only the rest to the next one.
                get(url, {f: source.md5[f] for f in files if _find(source, f) is None}, Path(temporary), cache)
            return
        except (OSError, InputError) as error:  # requests' errors are OSErrors
            # A connection's error spells out every retry; its kind is enough.
            known = isinstance(error, InputError) or getattr(error, "response", None) is not None
            reasons.append(f"{url}: {str(error).rstrip('.') if known else type(error).__name__}")
    names = ", ".join(files if source.is_archive else [f"{file}.gz" for file in files])
    raise InputError(
        f"{name} is not on this machine and could not be downloaded ({'; '.join(reasons)}): "
        f"put {names} into a folder {source.folders[0]}/ of the folder that the environment variable SASGP_DATA names."
    )


def _get_files(url: str, md5: Mapping[str, str], temporary: Path, cache: Path) -> None:
    for file, expected in md5.items():
        path = temporary / f"{file}.gz"
        _retrieve(f"{url}{file}.gz", path)
        _read(path, expected)
        path.replace(cache / path.name)


def _get_archive(url: str, md5: Mapping[str, str], temporary: Path, cache: Path) -> None:
    path = temporary / "archive"
    _retrieve(url, path)
    try:
        with tarfile.open(path) as tar:
            members = {Path(member.name).name: member for member in tar if member.isfile()}
            for file, expected in md5.items():
                stream = tar.extractfile(members[file])
                assert stream is not None  # it is a regular file
                raw = stream.read()
                _check(raw, expected, f"its {file} is damaged", "Try again later")
                (temporary / file).write_bytes(raw)
                (temporary / file).replace(cache / file)
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise InputError(f"no whole tar archive ({error})") from error
    except KeyError as error:
        raise InputError(f"an archive without {error}") from error


def _retrieve(url: str, path: Path) -> None:
    import pooch

    with _progress(url.rsplit("/", 1)[-1]) as bar:
        pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)(url, str(path), None)


@contextmanager
def _progress(label: str) -> Iterator["_Bar | bool"]:
    """A progress bar on standard error, if that is a terminal."""
    if not sys.stderr.isatty():
        yield False
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield _Bar(progress, progress.add_task(label, total=None))


class _Bar:
    """A bar as pooch drives it (its own needs tqdm): it sets `total`, then calls these methods."""

    def __init__(self, progress: "Progress", task: "TaskID") -> None:
        self.total = 0
        self._progress, self._task = progress, task

    def update(self, n: int) -> None:
        self._progress.update(self._task, advance=n, total=self.total or None)

    def reset(self) -> None:
        self._progress.update(self._task, completed=0)

    def close(self) -> None:
        self._progress.refresh()
