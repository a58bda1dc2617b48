"""Named data sets: where files are looked for, checked and downloaded. Mirrors are HTTP servers on this machine."""

import gzip
import hashlib
import io
import struct
import sys
import tarfile
import threading
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from sasgp.data import load, progress
from sasgp.data.downloads import IDX, SOURCES
from sasgp.data.named import NAMES, read_cifar, read_idx
from sasgp.errors import InputError


def md5(raw):
    return hashlib.md5(raw).hexdigest()


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


rng = np.random.default_rng(0)
IMAGES, IMAGES_TEST = (rng.integers(0, 256, (n, 28, 28), dtype=np.uint8) for n in (5, 3))
LABELS, LABELS_TEST = (rng.integers(0, 10, n, dtype=np.uint8) for n in (5, 3))
MNIST = dict(zip(IDX, map(idx, (IMAGES, LABELS, IMAGES_TEST, LABELS_TEST)), strict=True))
CIFAR = {name: rng.integers(0, 256, (2, 3073), dtype=np.uint8).tobytes() for name in SOURCES["cifar10"].md5}


@pytest.fixture(autouse=True)
def empty_machine(tmp_path, monkeypatch):
    """No data anywhere, tiny data sets in place of the real ones, and mirrors that refuse every connection."""
    cache = tmp_path / "cache"
    monkeypatch.delenv("SASGP_DATA", raising=False)
    monkeypatch.setattr("pooch.os_cache", lambda project: cache / project)
    for name, files in (("mnist", MNIST), ("fashion-mnist", MNIST), ("cifar10", CIFAR)):
        sums = {file: md5(raw) for file, raw in files.items()}
        archive = None if files is MNIST else "all.tar.gz"
        small = replace(SOURCES[name], md5=sums, urls=("http://127.0.0.1:9/",), archive=archive, system=())
        monkeypatch.setitem(SOURCES, name, small)
    return cache / "sasgp"


@pytest.fixture
def serve():
    """Serves folders over HTTP; returns a URL for each, and collects what was asked for in `serve.log`."""
    servers, log = [], []

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, *args):
            log.append(self.path)

    def serve(folder):
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        servers.append((server, thread))
        return f"http://127.0.0.1:{server.server_port}/"

    serve.log = log  # type: ignore[attr-defined]
    yield serve
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def mirrors(monkeypatch, name, *urls):
    monkeypatch.setitem(SOURCES, name, replace(SOURCES[name], urls=urls))


def put(folder, files, packed=True):
    folder.mkdir(parents=True, exist_ok=True)
    for name, raw in files.items():
        (folder / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(raw) if packed else raw)
    return folder


def message(name):
    with pytest.raises(InputError) as caught:
        load(name)
    return str(caught.value)


def assert_is_mnist(data):
    np.testing.assert_allclose(data.X.reshape(5, 28, 28) * 255, IMAGES, rtol=1e-6)
    np.testing.assert_allclose(data.X_test.reshape(3, 28, 28) * 255, IMAGES_TEST, rtol=1e-6)
    np.testing.assert_array_equal(data.y, LABELS)
    np.testing.assert_array_equal(data.y_test, LABELS_TEST)
    assert data.X.dtype == data.X_test.dtype == np.float32
    assert data.image_shape == (28, 28)
    assert data.columns[::783] == ("pixel0", "pixel783")


# The data sets


def test_digits_has_a_fixed_stratified_split():
    data = load("digits")
    from sklearn.datasets import load_digits

    whole = load_digits()
    assert (len(data.X), len(data.X_test)) == (1437, 360)
    assert data.X.dtype == np.float32
    assert data.image_shape == (8, 8)
    # The two parts are the whole: no row lost, none twice.
    both = np.vstack([data.X, data.X_test]) * 16
    np.testing.assert_array_equal(both[np.lexsort(both.T)], whole.data[np.lexsort(whole.data.T)])
    # Stratified: each class has a fifth of its rows in the test part, up to rounding.
    np.testing.assert_allclose(np.bincount(data.y_test), np.bincount(whole.target) / 5, atol=1)
    np.testing.assert_array_equal(load("digits").X, data.X)


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_from_the_users_folder(tmp_path, monkeypatch, packed):
    put(tmp_path / "mine" / "mnist", MNIST, packed)
    monkeypatch.setenv("SASGP_DATA", str(tmp_path / "mine"))
    assert_is_mnist(load("mnist"))


def test_cifar_has_its_planes_first(tmp_path, monkeypatch):
    put(tmp_path / "cifar-10-batches-bin", CIFAR, packed=False)
    monkeypatch.setenv("SASGP_DATA", str(tmp_path))
    data = load("cifar10")
    assert data.X.shape == (10, 3072)  # five batches of two
    assert data.image_shape == (3, 32, 32)
    # Row 3 is the second of batch 2. Byte 0 is its label, red at (row 1, column 2) byte 1 + 32 + 2, blue 2·1024 later.
    row = CIFAR["data_batch_2.bin"][3073:]
    image = data.X[3].reshape(data.image_shape)
    assert data.y[3] == row[0]
    assert (image[0, 1, 2], image[2, 1, 2]) == pytest.approx((row[35] / 255, row[35 + 2048] / 255))
    assert data.y_test.tolist() == [CIFAR["test_batch.bin"][0], CIFAR["test_batch.bin"][3073]]


@pytest.mark.parametrize("folder", ["oil_flow", "oil-flow"])
def test_oil_flow(tmp_path, monkeypatch, folder):
    files = {
        "DataTrn.txt": b"  1.0e+00  2.5e+00\n -3.0e+00  4.0e+00\n  0.0e+00  1.0e+00\n",
        "DataTrnLbls.txt": b"  0 1 0\n  0 0 1\n  1 0 0\n",
        "DataTst.txt": b"  5.0e+00  6.0e+00\n  7.0e+00  8.0e+00\n",
        "DataTstLbls.txt": b"  1 0 0\n  0 0 1\n",
    }
    monkeypatch.setitem(
        SOURCES, "oil-flow", replace(SOURCES["oil-flow"], md5={f: md5(raw) for f, raw in files.items()})
    )
    put(tmp_path / folder, files, packed=False)
    monkeypatch.setenv("SASGP_DATA", str(tmp_path))
    data = load("oil-flow")
    np.testing.assert_array_equal(data.X, [[1, 2.5], [-3, 4], [0, 1]])
    np.testing.assert_array_equal(data.X_test, [[5, 6], [7, 8]])
    assert data.y.tolist() == [1, 2, 0]
    assert data.y_test.tolist() == [0, 2]


# Readers


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b"", "start with 00 00 08"),
        (b"\x1f\x8b\x08\x00", "not 1f 8b 08 00"),
        (b"\0\0\x0d\x01\0\0\0\x01\0\0\0\0", "00 00 0d 01"),  # floats
        (idx(LABELS)[:-1], r"shape \(5,\) according to its header, but has 4"),
        (idx(LABELS) + b"\0", "but has 6"),
        (b"\0\0\x08\x03\0\0", "3 axes need a header of 16 bytes, but it has 6"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "but has 0"),  # sizes whose product overflows 64 bits
    ],
)
def test_idx_that_is_none(raw, expected):
    with pytest.raises(InputError, match=expected):
        read_idx(raw, "file")


@pytest.mark.parametrize("size", [0, 3072, 3074])
def test_cifar_that_is_none(size):
    with pytest.raises(InputError, match=f"rows of 3073 bytes, but its length is {size}"):
        read_cifar(bytes(size), "file")


# Where files are


def test_places_are_searched_in_order(tmp_path, monkeypatch, empty_machine):
    """SASGP_DATA, the cache, Debian's folder: the first copy counts. A damaged one shows which was read."""
    monkeypatch.setenv("SASGP_DATA", str(tmp_path / "mine"))
    debian = put(tmp_path / "debian", MNIST)
    monkeypatch.setitem(SOURCES, "fashion-mnist", replace(SOURCES["fashion-mnist"], system=(str(debian),)))
    (tmp_path / "mine").mkdir()
    assert_is_mnist(load("fashion-mnist"))
    for folder in (empty_machine / "fashion-mnist", tmp_path / "mine" / "fashion-mnist"):
        put(folder, {IDX[0]: b"damaged"})
        assert str(folder) in message("fashion-mnist")
        put(folder, {IDX[0]: MNIST[IDX[0]]})
        assert_is_mnist(load("fashion-mnist"))  # the other three files still come from Debian


def test_damaged_file_says_what_was_expected(tmp_path, monkeypatch):
    folder = put(tmp_path / "mnist", MNIST)
    monkeypatch.setenv("SASGP_DATA", str(tmp_path))
    put(folder, {IDX[1]: b"other"})
    text = message("mnist")
    for part in (
        str(folder / f"{IDX[1]}.gz"),
        f"should be {md5(MNIST[IDX[1]])}",
        f"but is {md5(b'other')}",
        "delete it",
    ):
        assert part in text
    whole = gzip.compress(MNIST[IDX[1]])
    for raw in (whole[:-9], b"no gzip", whole[:14] + b"\xff\xff" + whole[16:]):
        (folder / f"{IDX[1]}.gz").write_bytes(raw)
        assert "is damaged: it is not a whole gzip file" in message("mnist")


def test_offline_one_sentence_says_what_to_put_where(monkeypatch):
    mirrors(monkeypatch, "mnist", "http://127.0.0.1:9/a/", "http://127.0.0.1:9/b/")
    assert message("mnist") == (
        "mnist is not on this machine and could not be downloaded "
        "(http://127.0.0.1:9/a/: ConnectionError; http://127.0.0.1:9/b/: ConnectionError). "
        "Put train-images-idx3-ubyte.gz, train-labels-idx1-ubyte.gz, t10k-images-idx3-ubyte.gz, "
        "t10k-labels-idx1-ubyte.gz into a folder mnist/, and set SASGP_DATA to the folder that contains it."
    )
    assert "Put data_batch_1.bin, " in message("cifar10")


def test_users_folder_must_exist(monkeypatch):
    monkeypatch.setenv("SASGP_DATA", "/no/such/folder")
    assert message("mnist").startswith("SASGP_DATA must name a folder, but '/no/such/folder'")
    load("digits")  # needs no folder


# Downloads


def test_download_once(tmp_path, monkeypatch, serve, empty_machine, capfd):
    mirrors(monkeypatch, "mnist", serve(put(tmp_path / "web", MNIST)))
    assert_is_mnist(load("mnist"))
    assert sorted(serve.log) == sorted(f"/{file}.gz" for file in IDX)
    assert sorted(path.name for path in (empty_machine / "mnist").iterdir()) == sorted(IDX)
    assert_is_mnist(load("mnist"))
    assert len(serve.log) == 4
    assert capfd.readouterr() == ("", "")  # no progress where there is no terminal


def test_next_mirror_takes_over_what_is_left(tmp_path, monkeypatch, serve, empty_machine):
    half = put(tmp_path / "half", {file: MNIST[file] for file in IDX[:2]})
    mirrors(monkeypatch, "mnist", "http://127.0.0.1:9/", serve(half), serve(put(tmp_path / "whole", MNIST)))
    assert_is_mnist(load("mnist"))
    assert serve.log.count(f"/{IDX[0]}.gz") == 1  # not asked for again after the third file was missing


def test_corrupt_mirror(tmp_path, monkeypatch, serve, empty_machine):
    bad = serve(put(tmp_path / "bad", MNIST | {IDX[2]: b"corrupt"}))
    mirrors(monkeypatch, "mnist", bad)
    text = message("mnist")
    assert (
        f"({IDX[2]}) does not match the known hash: expected md5:{md5(MNIST[IDX[2]])} but got {md5(b'corrupt')}" in text
    )
    # What was whole is kept, what was not has left no trace.
    assert sorted(path.name for path in (empty_machine / "mnist").iterdir()) == sorted(IDX[:2])
    mirrors(monkeypatch, "mnist", bad, serve(put(tmp_path / "good", MNIST)))
    assert_is_mnist(load("mnist"))


def test_missing_file_on_the_mirror(tmp_path, monkeypatch, serve):
    (tmp_path / "empty").mkdir()
    mirrors(monkeypatch, "mnist", serve(tmp_path / "empty"))
    assert "404 Client Error" in message("mnist")


def tar(files, folder="cifar-10-batches-bin/"):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, raw in files.items():
            member = tarfile.TarInfo(f"{folder}{name}")
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return packed.getvalue()


def test_archive(tmp_path, monkeypatch, serve, empty_machine):
    # An archive's paths are not followed: only the names of its files count.
    (tmp_path / "all.tar.gz").write_bytes(tar(CIFAR | {"readme.html": b"hello"}, folder="../../../"))
    mirrors(monkeypatch, "cifar10", serve(tmp_path))
    assert len(load("cifar10").X) == 10
    assert serve.log == ["/all.tar.gz"]  # once, for all its files
    assert sorted(path.name for path in (empty_machine / "cifar-10-batches-bin").iterdir()) == sorted(CIFAR)
    assert not (tmp_path / "readme.html").exists()


def test_archives_that_are_damaged(tmp_path, monkeypatch, serve, empty_machine):
    url = serve(tmp_path)
    mirrors(monkeypatch, "cifar10", url)
    damaged = {
        "ended before the end-of-stream marker": tar(CIFAR)[:-2000],
        "not a gzip file": b"hello",
        "does not contain test_batch.bin": tar({file: raw for file, raw in CIFAR.items() if file != "test_batch.bin"}),
        "(data_batch_1.bin) does not match the known hash: expected md5:": tar(
            CIFAR | {"data_batch_1.bin": b"corrupt"}
        ),
    }
    for expected, raw in damaged.items():
        (tmp_path / "all.tar.gz").write_bytes(raw)
        assert expected in message("cifar10")
        for path in (empty_machine / "cifar-10-batches-bin").iterdir():
            assert md5(path.read_bytes()) == md5(CIFAR[path.name])
            path.unlink()


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal(tmp_path, monkeypatch, serve):
    mirrors(monkeypatch, "mnist", serve(put(tmp_path / "web", MNIST)))
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    assert_is_mnist(load("mnist"))
    assert f"{IDX[0]}.gz" in sys.stderr.getvalue()
    assert "MB" in sys.stderr.getvalue()


def test_progress_of_a_download_ends_at_its_total(tmp_path, monkeypatch, serve):
    """As in a notebook, where there is no terminal. pooch counts whole chunks of 64 KiB, which are more than came."""
    calls = {}

    @contextmanager
    def record(description, total):
        calls[description] = []
        yield lambda completed, note="": calls[description].append((completed, total, note))

    mirrors(monkeypatch, "mnist", serve(put(tmp_path / "web", MNIST)))
    monkeypatch.setattr(progress, "_surface", lambda: record)
    assert_is_mnist(load("mnist"))
    assert list(calls) == [f"{file}.gz" for file in IDX]
    for name, steps in calls.items():
        size = (tmp_path / "web" / name).stat().st_size
        assert {(done, total) for done, total, _ in steps} == {(size, size)}
        assert steps[-1][2] == f"{size / 1e6:.1f} of {size / 1e6:.1f} MB"


def test_every_name_is_known():
    assert set(NAMES) == {"digits", *SOURCES}
    for source in SOURCES.values():
        assert all(len(digest) == 32 for digest in source.md5.values())
        assert all(Path(file).name == file for file in source.md5)
