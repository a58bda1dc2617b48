"""Where the files of named data sets are found or downloaded, and how they are checked.

A file is looked for in the folder that the environment variable SASGP_DATA names, then in pooch's cache, then where
Debian installs it. A file that is nowhere is downloaded into the cache. The md5 of the *decompressed* bytes is checked
on every read, because copies of the same data differ in their gzip headers.
"""

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sasgp.data.progress import Update, progress_bar
from sasgp.errors import InputError

__all__ = ["IDX", "SOURCES", "Source", "fetch"]


@dataclass(frozen=True)
class Source:
    """Where the files of a data set come from.

    `folders` are the names that the folder with the files may have; the cache uses the first. `md5` names the files and
    gives the md5 of their decompressed bytes. `urls` are mirrors, tried in order. A mirror has each file with .gz at
    its end, or one tar `archive` of all files. `system` are folders where an operating system may install them.
    """

    folders: tuple[str, ...]
    md5: Mapping[str, str]
    urls: tuple[str, ...]
    archive: str | None = None
    system: tuple[str, ...] = ()


# Files of MNIST and of all that imitate it: training images and labels, then those of the test split
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
        urls=("https://www.cs.toronto.edu/~kriz/",),
        archive="cifar-10-binary.tar.gz",
    ),
    # Bishop & James (1993). The validation split, DataVdn, is left out: nothing here tunes on it.
    "oil-flow": Source(
        folders=("oil_flow", "oil-flow"),
        md5={
            "DataTrn.txt": "4178a6fcea186ada799dc77c6f5f9a84",
            "DataTrnLbls.txt": "66fbef69fc064bdb0671fc93befb4f61",
            "DataTst.txt": "af68a2a3680481ba24984d8d77a43a93",
            "DataTstLbls.txt": "a603fe0b07ce1c8f499fb1285fe1535a",
        },
        urls=("http://staffwww.dcs.shef.ac.uk/people/N.Lawrence/resources/",),
        archive="3PhData.tar.gz",
    ),
}


def fetch(name: str) -> dict[str, bytes]:
    """The files of a data set, decompressed and checked. Files that are not on this machine are downloaded."""
    source = SOURCES[name]
    if _missing(source):
        _download(name, source)
    found = {file: _find(source, file) for file in source.md5}
    return {file: _read(path, source.md5[file]) for file, path in found.items() if path is not None}


def _cache_folder(source: Source) -> Path:
    import pooch

    return Path(pooch.os_cache("sasgp")) / source.folders[0]


def _find(source: Source, file: str) -> Path | None:
    """The first copy of a file, compressed or not."""
    folders = [_cache_folder(source), *map(Path, source.system)]
    if root := os.environ.get("SASGP_DATA"):
        if not Path(root).is_dir():
            raise InputError(f"SASGP_DATA must name a folder, but '{root}' is not one. Create it or unset SASGP_DATA.")
        folders = [Path(root) / folder for folder in source.folders] + folders
    paths = (folder / f"{file}{suffix}" for folder in folders for suffix in ("", ".gz"))
    return next((path for path in paths if path.is_file()), None)


def _missing(source: Source) -> list[str]:
    return [file for file in source.md5 if _find(source, file) is None]


def _read(path: Path, md5: str) -> bytes:
    """The contents of a file, decompressed and checked."""
    cure = "Replace it with the publisher's file, or delete it so that it is downloaded again."
    try:
        raw = path.read_bytes()
        if path.suffix == ".gz":
            raw = gzip.decompress(raw)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise InputError(f"{path} is damaged: it is not a whole gzip file ({error}). {cure}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from error
    found = hashlib.md5(raw, usedforsecurity=False).hexdigest()
    if found != md5:
        raise InputError(
            f"{path} is damaged: the md5 of the decompressed bytes should be {md5}, but is {found}. {cure}"
        )
    return raw


def _download(name: str, source: Source) -> None:
    """Put the missing files into the cache. A mirror that fails halfway leaves only the rest to the next one."""
    reasons = []
    for url in source.urls:
        try:
            with _quiet_pooch():
                _download_from(url, source)
            return
        except (OSError, ValueError, EOFError, zlib.error, tarfile.TarError) as error:
            # Errors of requests are OSErrors. The text of a lost connection lists every retry; its type says enough.
            clear = not isinstance(error, OSError) or getattr(error, "response", None) is not None
            reasons.append(f"{url}: {str(error).rstrip('.') if clear else type(error).__name__}")
    names = ", ".join(file if source.archive else f"{file}.gz" for file in _missing(source))
    raise InputError(
        f"{name} is not on this machine and could not be downloaded ({'; '.join(reasons)}). "
        f"Put {names} into a folder {source.folders[0]}/, and set SASGP_DATA to the folder that contains it."
    )


@contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Turn off the line that pooch logs to standard error for each file."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")
    try:
        yield
    finally:
        logger.setLevel(level)


def _download_from(url: str, source: Source) -> None:
    """Download what is missing from one mirror. pooch checks each file and puts only whole ones into the cache."""
    import pooch

    files = _missing(source)
    # These are hashes of decompressed files, so files are unpacked by the downloader: pooch's processors come too late.
    registry = pooch.create(
        _cache_folder(source), base_url=url, registry={file: f"md5:{source.md5[file]}" for file in files}
    )

    @cache
    def download(name: str) -> bytes:  # an archive is downloaded once for all its files
        packed = io.BytesIO()
        with _watched(name) as bar:
            pooch.HTTPDownloader(progressbar=bar, chunk_size=1 << 16)(url + name, packed, registry)
        return packed.getvalue()

    def unpack(file_url: str, output: str, _: Any) -> None:
        file = file_url.removeprefix(url)
        raw = _extract(download(source.archive), file) if source.archive else gzip.decompress(download(f"{file}.gz"))
        Path(output).write_bytes(raw)

    for file in files:
        registry.fetch(file, downloader=unpack)


def _extract(packed: bytes, file: str) -> bytes:
    """One file of a tar archive. The folder that the archive gives it is ignored: it may point anywhere."""
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            if Path(member.name).name == file and (stream := archive.extractfile(member)):
                return stream.read()
    raise InputError(f"the archive does not contain {file}")


@contextmanager
def _watched(label: str) -> Iterator[SimpleNamespace]:
    """Progress of a download, with what pooch sets and calls. pooch knows the total when the first bytes arrive."""
    with ExitStack() as stack:

        @cache
        def shown() -> Update:
            return stack.enter_context(progress_bar(label, bar.total or None))

        def update(n: int) -> None:
            bar.done = min(bar.done + n, bar.total or bar.done + n)  # the last n is often more than came
            of = f" of {bar.total / 1e6:.1f}" if bar.total else ""
            shown()(bar.done, f"{bar.done / 1e6:.1f}{of} MB")

        bar = SimpleNamespace(total=0, done=0, update=update, reset=lambda: None, close=lambda: None)
        yield bar
