"""Damaged and malformed data files: each loads as a table or an array, or is refused in one sentence."""

import datetime
import gzip
import io

import h5py
import numpy as np
import polars as pl
import pytest
from mutation import attempt, damaged, generator, walls
from PIL import Image
from scipy.sparse import csc_matrix, csr_matrix

from sasgp.data import load
from sasgp.data.columns import Columns
from sasgp.data.tables import is_frame

FEW = 6
N = 12
NUMBERS = np.random.default_rng(0).poisson(2.0, size=(N, 5)).astype(np.float32)
TABLE = pl.DataFrame(
    {
        "length": np.linspace(0.5, 9.0, N),
        "count": np.arange(N) % 4,
        "island": ["Dream", "Biscoe", None] * (N // 3),
        "born": [datetime.date(1990, 1, 1 + i) for i in range(N)],
        "yes": [True, False] * (N // 2),
        "label": ["a", "b"] * (N // 2),
    }
)


def written(write):
    buffer = io.BytesIO()
    write(buffer)
    return buffer.getvalue()


def cells(kind=None):
    def write(buffer):
        with h5py.File(buffer, "w") as file:
            for part, n in (("obs", N), ("var", 5)):
                group = file.create_group(part)
                group.attrs["_index"] = "_index"
                group["_index"] = [f"{part}{i}" for i in range(n)]
            file["obs/label"] = np.arange(N) % 2
            if kind is None:
                file["X"] = NUMBERS
                return
            matrix, group = kind(NUMBERS), file.create_group("X")
            group.attrs["encoding-type"], group.attrs["shape"] = f"{matrix.format}_matrix", NUMBERS.shape
            for part in ("data", "indices", "indptr"):
                group[part] = getattr(matrix, part)

    return written(write)


FILES = {
    "t.csv": lambda: TABLE.write_csv().encode(),
    "t.tsv": lambda: TABLE.write_csv(separator="\t").encode(),
    "t.csv.gz": lambda: gzip.compress(TABLE.write_csv().encode(), mtime=0),
    "t.parquet": lambda: written(TABLE.write_parquet),
    "plain.parquet": lambda: written(lambda file: TABLE.write_parquet(file, compression="uncompressed")),
    "t.feather": lambda: written(TABLE.write_ipc),
    "stream.arrow": lambda: written(TABLE.write_ipc_stream),
    "t.jsonl": lambda: written(TABLE.write_ndjson),
    "t.xlsx": lambda: written(TABLE.write_excel),
    "a.npy": lambda: written(lambda file: np.save(file, NUMBERS)),
    "a.npz": lambda: written(lambda file: np.savez_compressed(file, X=NUMBERS, y=np.arange(N))),
    "dense.h5ad": lambda: cells(),
    "rows.h5ad": lambda: cells(csr_matrix),
    "columns.h5ad": lambda: cells(csc_matrix),
}


@pytest.fixture(scope="module", params=FILES)
def file(request):
    return request.param, FILES[request.param]()


def read(path):
    """Load a file and, if it is a table, ask what its columns hold. The parts of what was loaded must agree."""
    data = load(path)
    N, D = data.X.shape
    assert N > 0
    assert D > 0
    assert data.y is None or data.y.shape == (N,)
    assert len(data.columns) == D
    if is_frame(data.X):
        attempt(lambda: Columns.recognised(data.X, {}))
    else:
        assert np.asarray(data.X).dtype.kind in "biuf"
    return data


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of numbers that nobody wrote
def test_damaged_bytes(file, tmp_path, seed):
    name, content = file
    path = tmp_path / name
    path.write_bytes(damaged(content, generator(name, seed)))
    with walls():
        attempt(lambda: read(path))


def test_intact_files_pass(file, tmp_path):
    name, content = file
    path = tmp_path / name
    path.write_bytes(content)
    with walls():
        assert len(read(path).X) == N


CELLS = [
    *(
        "",
        " ",
        "1",
        "-2.5",
        "1e400",
        "-1e-400",
        "0x10",
        "1_000",
        "1,5",
        "1.234,5",
        "00123",
        "NaN",
        "inf",
        "-inf",
        "NA",
        "?",
    ),
    *(
        '"',
        '""',
        '"a',
        'a"b',
        '"a,b"',
        '"a\nb"',
        "'",
        "\\",
        "a;b",
        "a\tb",
        "a|b",
        "\x00",
        "\ufeff",
        "\u2028",
        "\x85",
        "\x1c",
    ),
    *(
        "2020-01-01",
        "31.12.2020",
        "99.99.9999",
        "2020-13-45",
        "24:00",
        "true",
        "FALSE",
        "=1+1",
        "é",
        "\U0001f600",
        "٣",
        "１",
    ),
    *("x" * 5000, "9" * 400, "\r", "\n", "e", "1e", "--5", "+", ".", ",", "#", "%", "$x_{$", "‮abc"),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_tables_of_odd_cells(tmp_path, separator, seed):
    draw = generator(f"cells {separator}", seed)
    width = draw.choice([1, 2, 3, 30])
    odd = draw.choice([CELLS, ["1", "2.5", draw.choice(CELLS)], [draw.choice(CELLS), "3"]])
    lines = [separator.join(draw.choices(odd, k=width)) for _ in range(draw.choice([1, 2, 5, 60]))]
    if draw.random() < 0.5:
        lines.insert(0, separator.join(draw.choice(["a", "b", "", *CELLS]) + str(i) for i in range(width)))
    if draw.random() < 0.3:
        lines.insert(draw.randrange(len(lines) + 1), draw.choice(["", "x", separator * 40, '"']))
    text = draw.choice(["\n", "\r\n", "\r", "\n\n"]).join(lines) + draw.choice(["", "\n", "\n\n\n"])
    path = tmp_path / draw.choice(["t.csv", "t.tsv", "t.txt"])
    path.write_bytes(text.encode(draw.choice(["utf-8", "utf-8-sig", "utf-16"])))
    with walls():
        attempt(lambda: read(path))


@pytest.mark.parametrize("form", ["PNG", "JPEG", "BMP", "TIFF", "WEBP"])
def test_damaged_images(tmp_path, form, seed):
    draw = generator(form, seed)
    for i in range(3):
        image = Image.fromarray((255 * np.random.default_rng(i).random((8, 8, 3))).astype(np.uint8))
        content = written(lambda file, image=image: image.save(file, form))
        (tmp_path / f"{i}.{form.lower()}").write_bytes(damaged(content, draw) if i == 1 else content)
    with walls():
        attempt(lambda: load(tmp_path))
