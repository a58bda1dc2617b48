"""Cells in files that are damaged, or made to do harm: each loads right or is refused in one sentence."""

import os
from contextlib import suppress
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy.sparse import csc_matrix, csr_matrix
from test_readers import message

from sasgp.data import hdf5, load
from sasgp.errors import InputError

N, D = 6, 5
SEEDS = int(os.environ.get("SASGP_FUZZ_SEEDS", "60"))
X = np.random.default_rng(0).poisson(0.7, size=(N, D)).astype(np.float32)


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """Writes a file into an empty working folder, and returns it open for changes."""
    monkeypatch.chdir(tmp_path)

    def cells(kind=None, name="cells.h5ad"):
        file = h5py.File(name, "w")
        for part, n in (("obs", N), ("var", D)):
            group = file.create_group(part)
            group.attrs["_index"] = "_index"
            group["_index"] = [f"{part}{i}" for i in range(n)]
        file["obs/kind"] = np.arange(N) % 2
        if kind is None:
            file["X"] = X
            return file
        matrix, group = kind(X), file.create_group("X")
        group.attrs["encoding-type"], group.attrs["shape"] = f"{matrix.format}_matrix", (N, D)
        for part in ("data", "indices", "indptr"):
            group[part] = getattr(matrix, part)
        return file

    return cells


def replace(file, name, values):
    del file[name]
    file[name] = values


# Sparse matrices


@pytest.mark.parametrize("kind", [csr_matrix, csc_matrix])
@pytest.mark.parametrize(
    ("part", "place", "value", "expected"),
    [
        ("indices", 2, 10**9, "indices must be from 0 to"),
        ("indices", 2, -(10**6), "indices must be from 0 to"),
        ("indptr", 2, 10**9, "indptr must rise from 0"),
        ("indptr", 2, -(10**6), "indptr must rise from 0"),
        ("indptr", 0, 1, "indptr must rise from 0"),
        ("indptr", -1, 3, "indptr must rise from 0"),
    ],
)
def test_sparse_indices_out_of_range(cells, kind, part, place, value, expected):
    with cells(kind) as file:
        values = file["X"][part][:]
        values[place] = value
        replace(file["X"], part, values)
    assert expected in message("cells.h5ad")


def test_sparse_parts_that_disagree(cells):
    def broken(part, change):
        with cells(csr_matrix) as file:
            replace(file["X"], part, change(file["X"][part][:]))
        return message("cells.h5ad")

    stored = csr_matrix(X).nnz
    assert f"X/indices must hold {stored} values" in broken("indices", lambda indices: indices[:-1])
    assert f"X/indptr must hold {N + 1} values" in broken("indptr", lambda ends: ends[:-1])
    assert "X/indices must hold whole numbers, not float64" in broken("indices", lambda indices: indices.astype(float))
    assert "X/indptr must hold whole numbers, not float64" in broken("indptr", lambda ends: ends.astype(float))
    assert "X/data must hold real numbers, not complex128" in broken("data", lambda data: data.astype(complex))
    assert "by at most 5 at a time" in broken("indptr", lambda ends: np.array([0, *[stored] * N]))
    # As signed numbers these would seem to rise: the differences overflow
    high = np.array([0, 2**63 - 1, 2**64 - 2, *[stored] * (N - 2)], dtype=np.uint64)
    assert "indptr must rise from 0" in broken("indptr", lambda ends: high)
    with cells(csr_matrix) as file:
        file["X"].attrs["shape"] = (N, D + 1)
    assert "X must be 6 × 5 like obs and var, but has shape [6, 6]" in message("cells.h5ad")
    with cells(csr_matrix) as file:
        del file["X/indices"]
    assert "has no 'indices'" in message("cells.h5ad")


def damaged(values, draw):
    """The values with some bytes changed, or fewer or more of them, or of another type or shape."""
    match draw.integers(6):
        case 0:
            return values[: draw.integers(len(values))]
        case 1:
            return np.concatenate([values, values])
        case 2:
            return values.astype(draw.choice(["i1", "u8", "f8", "c16", "S2", "?"]))
        case 3:
            return values[None]
    content = np.frombuffer(values.tobytes(), np.uint8).copy()
    content[draw.integers(len(content), size=draw.integers(1, 5))] = draw.integers(256)
    return content.view(values.dtype).reshape(values.shape)


@pytest.mark.parametrize("kind", [None, csr_matrix, csc_matrix])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_damaged_values_load_or_are_refused(cells, seed, kind):
    draw = np.random.default_rng(seed)
    with cells(kind) as file:
        name = draw.choice(["obs/kind", "X"] if kind is None else ["obs/kind", "X/data", "X/indices", "X/indptr"])
        replace(file, name, damaged(file[name][:], draw))
    with suppress(InputError):
        data = load("cells.h5ad", labels="kind")
        assert data.X.shape == (N, D)
        assert data.y.shape == (N,)


# Other files


@pytest.fixture
def secret(tmp_path):
    """A file with other people's data, in HDF5 and as bytes."""
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["X"] = X
        file["obs"] = np.arange(N)
    (tmp_path / "secret.bin").write_bytes(X.tobytes())


def test_nothing_is_read_from_other_files(cells, secret):
    with cells() as file:
        del file["X"]
        file["X"] = h5py.ExternalLink("secret.h5", "/X")
    assert "'X' is a link to another file, which is never followed" in message("cells.h5ad")
    with cells() as file:
        del file["X"]
        file["door"] = h5py.ExternalLink("secret.h5", "/")
        file["X"] = h5py.SoftLink("/door/X")
    assert "is a link to another file" in message("cells.h5ad")
    with cells() as file:
        file["obs/label"] = h5py.ExternalLink("secret.h5", "/obs")
    assert "'obs/label' is a link to another file" in message("cells.h5ad", labels="label")
    with cells() as file:
        file["door"] = h5py.ExternalLink("secret.h5", "/")
        file["obs"].attrs["_index"] = "/door/obs"
    assert "has no '/door/obs'" in message("cells.h5ad")
    with cells() as file:
        del file["X"]
        layout = h5py.VirtualLayout((N, D), dtype=np.float32)
        layout[:] = h5py.VirtualSource("secret.h5", "X", shape=(N, D))
        file.create_virtual_dataset("X", layout)
    assert "X is kept in another file, which is never read" in message("cells.h5ad")
    with cells() as file:
        del file["X"]
        file.create_dataset("X", (N, D), np.float32, external=[("secret.bin", 0, h5py.h5f.UNLIMITED)])
    assert "X is kept in another file" in message("cells.h5ad")


def test_links_within_the_file(cells):
    with cells() as file:
        file.move("X", "raw")
        file["X"] = h5py.SoftLink("/raw")
    np.testing.assert_array_equal(load("cells.h5ad").X, X)
    with cells() as file:
        del file["X"]
        file["X"] = h5py.SoftLink("/X")
    assert "is a link that leads nowhere" in message("cells.h5ad")


def test_sizes_are_checked_before_anything_is_read(cells, monkeypatch):
    monkeypatch.setattr(hdf5, "available", lambda: 10**6)
    with cells() as file:
        file.create_dataset("obs/label", (N,), "S1000000", compression="gzip", chunks=(1,))
    assert "obs/label needs 5.7 MiB of memory, but only 1.0 MiB are free" in message("cells.h5ad", labels="label")
    with cells() as file:
        del file["obs/_index"]
        file.create_dataset("obs/_index", (10**12,), "i8", chunks=(10**4,))
    assert "obs/_index needs 7450.6 GiB of memory" in message("cells.h5ad")
    with cells() as file:  # one value would unpack a whole chunk
        del file["X"]
        file.create_dataset("X", (N, D), "f4", maxshape=(None, None), chunks=(10**4, 10**4), compression="gzip")
    assert "X needs 381.5 MiB of memory" in message("cells.h5ad")


def test_text_that_is_longer_than_its_file(cells):
    with cells() as file:
        place = file["obs/_index"].id.get_offset()
    with Path("cells.h5ad").open("r+b") as file:
        file.seek(place)
        file.write((2 * 10**9).to_bytes(4, "little"))
    # HDF5 would take 2 GB first
    assert "text in obs/_index is longer than the file" in message("cells.h5ad")


# Parts that disagree


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (X[:1], "X must hold 6 × 5 values to agree with the rest of the file, but holds 1 × 5"),
        (np.concatenate([X, X]), "but holds 12 × 5"),
        (X[0], "but holds 5."),
        (np.float32(1), "but holds a single value"),
        (X + 1j, "X must hold real numbers, not complex64"),
        (X.astype("S1"), "real numbers, not |S1"),
    ],
)
def test_X_that_does_not_fit(cells, array, expected):
    with cells() as file:
        replace(file, "X", array)
    assert expected in message("cells.h5ad")


def test_columns_that_do_not_fit(cells):
    def broken(**parts):
        with cells() as file:
            column = file.create_group("obs/label")
            for name, values in parts.items():
                column[name] = values
            column.attrs["encoding-type"] = "categorical" if "codes" in parts else "nullable-integer"
        return message("cells.h5ad", labels="label")

    names = ["a", "b"]
    assert "must count the 2 categories from 0" in broken(codes=np.array([0, 1, -2, 0, 0, 0]), categories=names)
    assert "goes from 0 to 2" in broken(codes=np.array([0, 1, 2, 0, 0, 0]), categories=names)
    assert "obs/label/codes must hold 6 values" in broken(codes=np.zeros(4, int), categories=names)
    assert "must hold whole numbers, not float64" in broken(codes=np.zeros(N), categories=names)
    assert "obs/label/mask must hold 6 values" in broken(values=np.arange(N), mask=np.zeros(3, bool))
    assert "obs/label/values must hold 6 values" in broken(values=np.arange(N + 1), mask=np.zeros(N + 1, bool))
    assert "mask must hold true or false, not int64" in broken(values=np.arange(N), mask=np.arange(N))
    with cells() as file:
        file["obs/label"] = np.arange(N + 2)
    assert "obs/label must hold 6 values" in message("cells.h5ad", labels="label")


@pytest.mark.parametrize("marks", [["False"] * D, ["True", "", "", "", ""], np.full(D, np.nan), [True] * (D - 1)])
def test_marks_are_true_or_false(cells, marks):
    with cells() as file:
        file["var/highly_variable"] = marks
    text = message("cells.h5ad")
    assert "highly_variable of var must be true or false" in text or "highly_variable must hold 5 values" in text


def test_names_that_are_not_utf8(cells):
    with cells() as file:
        replace(file, "var/_index", np.array([b"\xff", b"b", b"c", b"d", b"e"]))
    assert "text that is not UTF-8" in message("cells.h5ad")
    with cells() as file:
        file[b"obs/\xff"] = np.arange(N)
        file["obs/label"] = np.array([b"\xff", *[b"a"] * (N - 1)])
    assert "text that is not UTF-8" in message("cells.h5ad", labels="label")
    assert load("cells.h5ad", labels="kind").y.tolist() == [0, 1] * (N // 2)
