"""Tables, arrays and labels that are odd, or made to do harm: each loads right or is refused in one sentence."""

import base64
import io
import os
import time
import zipfile
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from test_readers import load, message

from sasgp.data import labels, readers
from sasgp.data.labels import parse_labels
from sasgp.data.tables import file
from sasgp.data.tables.headers import check_names

# Names of files


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("name", ["data[1]", "run*", "run?", "{a,b}"])
def test_names_of_files_are_literal(write, name, suffix):
    for stem, value in (("data1", 1.0), ("run1", 1.0), ("run2", 1.0), ("a", 1.0), (name, 7.0)):
        frame = pl.DataFrame({"a": [value], "b": [0.5]})
        content = io.BytesIO()
        frame.write_csv(content) if suffix == ".csv" else frame.write_parquet(content)
        write(content.getvalue(), stem + suffix)
    assert load(name + suffix).X.tolist() == [[7, 0.5]]


@pytest.mark.skipif(os.name == "nt", reason="names of files are text on Windows")
@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npy", ".npz"])
def test_names_of_files_that_are_not_utf8(write, suffix):
    name = os.fsdecode(b"caf\xe9") + suffix
    frame, content = pl.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}), io.BytesIO()
    if suffix == ".csv":
        frame.write_csv(content)
    elif suffix == ".parquet":
        frame.write_parquet(content)
    else:
        {".npy": np.save, ".npz": np.savez}[suffix](content, frame.to_numpy())
    data = load(write(content.getvalue(), name))
    assert data.X.tolist() == [[1, 3], [2, 4]]
    assert data.name == "caf�"  # which can be printed and drawn


# Labels


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (["00123", "7"], ["00123", "7"]),
        (["0", "-5", "12"], [0, -5, 12]),
        (["+5", "7"], ["+5", "7"]),
        (["1_000", "7"], ["1_000", "7"]),
        (["1E3", "2E5"], ["1E3", "2E5"]),  # rather wells of a plate
        (["007.5", "1"], ["007.5", "1"]),
        (["0.50", "8", "-.5"], [0.5, 8, -0.5]),
        (["1.000000e+00", "2.5E-03", "1e20"], [1, 0.0025, 1e20]),  # as numpy and polars write them
        (["٣", "1"], ["٣", "1"]),
        (["-0", "1"], [0, 1]),
        (["12345678901234567890", "1"], ["12345678901234567890", "1"]),
        (["infinity", "1"], ["infinity", "1"]),
    ],
)
def test_numbers_are_only_what_looks_the_same_as_a_number(text, expected):
    assert parse_labels(text).tolist() == expected


def test_codes_stay_text(write):
    table = "a,code\n.5,00123\n\n1.5, 00007\n2.5,12\n"
    data = load(write(table), labels="code")
    assert data.y.tolist() == ["00123", "00007", "12"]
    assert data.X.tolist() == [[0.5], [1.5], [2.5]]
    assert load(write(table.replace("code", "label"))).y.tolist() == ["00123", "00007", "12"]
    assert load(write(".5,00123\n1.5,7\n"), labels="1").y.tolist() == ["00123", "7"]
    assert load(write('\n\na;"co;de"\n\n.5;3\n1.5;4\n'), labels="co;de").y.tolist() == [3, 4]
    assert load(write("a\n.5\n1.5\n"), labels=write("00123\n7\n", "y.txt")).y.tolist() == ["00123", "7"]


def test_labels_that_are_not_utf8(write):
    np.savez("a.npz", X=np.ones((2, 2)), y=np.array(["a", "\udcff"]))
    assert "labels for a.npz hold text that is not UTF-8" in message("a.npz")
    np.savez("a.npz", X=np.ones((2, 2)), y=np.array([b"a", b"\xff"]))
    assert "labels for a.npz hold text that is not UTF-8" in message("a.npz")
    np.savez("a.npz", X=np.ones((2, 2)), y=np.array([b"a", "é".encode()]))
    assert load("a.npz").y.tolist() == ["a", "é"]


# Sizes


def test_many_columns(write):
    n = 50_000
    names = [f"gene{d}" for d in range(n)]
    rows = "\n".join([",".join(names), *[",".join(["0.5", "1"] * (n // 2))] * 3])
    start = time.perf_counter()
    data = load(write(rows))
    assert data.X.shape == (3, n)
    assert data.columns == tuple(names)
    check_names(names, "data.csv")
    assert "two columns are called 'gene0'" in message(write(rows.replace(f"gene{n - 1}", "gene0")))
    assert time.perf_counter() - start < 60  # so that it ends at all: a quadratic search would go on


def test_npz_sizes_are_checked_before_anything_is_unpacked(write, monkeypatch):
    np.savez_compressed("bomb.npz", X=np.zeros((1000, 1000)))
    np.savez_compressed("labels.npz", X=np.ones((2, 2)), y=np.zeros(10**6))
    monkeypatch.setattr(readers, "available", lambda: 10**6)
    read = []
    monkeypatch.setattr(np.lib.format, "read_array", lambda *_, **__: read.append(1) or np.ones((2, 2)))
    assert "'X' needs 7.6 MiB of memory, but only 1.0 MiB are free" in message("bomb.npz")
    assert not read
    assert "'y' needs 7.6 MiB of memory" in message("labels.npz")


def test_parquet_sizes_are_checked_before_anything_is_read(write, monkeypatch):
    pl.DataFrame({"a": np.zeros(10**6), "b": ["x"] * 10**6}).write_parquet("bomb.parquet")
    assert Path("bomb.parquet").stat().st_size < 10**5
    monkeypatch.setattr(file, "available", lambda: 10**6)
    monkeypatch.setattr(pl, "read_parquet", None)
    assert "1000000 rows need 15.3 MiB of memory, but only 1.0 MiB are free" in message("bomb.parquet", labels="b")


# {"a": [0.5, 1.25, -3.0, 8.0], "b": ["x", "z", "y", "x"]} in Snappy, with checksums, which polars does not write:
# pyarrow.parquet.write_table(table, path, write_page_checksum=True, store_schema=False, write_statistics=False)
WITH_CHECKSUMS = base64.b85decode(
    "P(e~L6$BMP6*Lvw{fET`JQWBP01^NIAOHXb0R-Sb1qTEG^bH6k2*3aU00000AV3uW6%-X175&+m`~w^n2o(?&1{DSz0000ABmw{c00;pB1LOb|"
    "1Qi|?A{Exu_L~Ge6$TXm5&!@XH~|0v0C)ia004Rc0001a6#x|!6&Mws`?0(Q92E!^5ETX$1{?qY016}m000080RjUg02KroJT(9q26JO*Wo=;<"
    "1OOEZB?1@$VE`2jB?1@$VkH1f8~^|S76=&}87w9M92E)~H2?+>85jX!6#^Cr7OnvnrU52oCI~4k6$BLk6#@Vi02L4w0suTI1{o#*2mk;8CIB22"
    "3>h^51`rt-0b&&b76=xM0Tz@2Cinp+t^p}56$BLk6#@Vi02L4w0suS~2pI+$CIAQk000)c0u~4+2o|~m04N}EVRCVGWppiLaBwYQa&m8XAa-SP"
    "b7^mGATl;CFfK6}EF1s;8~^|S(*OVfP(e~L"
)


@pytest.mark.parametrize(("value", "page"), [(b"\x20\x40", 4), (b"y\x15", 87)])  # 8.0 ends in 20 40
def test_checksums_of_parquet_pages(write, value, page):
    write(WITH_CHECKSUMS, "t.parquet")
    data = load("t.parquet", labels="b")
    assert (data.X.tolist(), data.y.tolist()) == ([[0.5], [1.25], [-3.0], [8.0]], ["x", "z", "y", "x"])
    wrong = bytearray(WITH_CHECKSUMS)
    wrong[wrong.index(value)] ^= 2
    write(bytes(wrong), "t.parquet")
    assert not pl.read_parquet("t.parquet").equals(pl.read_parquet(io.BytesIO(WITH_CHECKSUMS)))
    assert f"t.parquet is damaged: the page at byte {page} does not have its checksum" in message("t.parquet")


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        (b"\x15\x19", "has a negative size"),  # polars would take 2^61 bytes for −13 values, which ends the process
        (b"\x15\xfe\xff\xff\xff\x0f", "would hold 2147483647 values, more than the whole column"),
    ],
)
def test_counts_of_parquet_pages(write, field, expected):
    content = io.BytesIO()
    pl.DataFrame({"a": [True, False] * 6, "b": np.arange(12.0)}).write_parquet(content, statistics=False)
    page = content.getvalue().index(b"\x2c\x15\x18")  # a field that is a struct, whose first is the number 12
    write(content.getvalue()[: page + 1] + field + content.getvalue()[page + 3 :], "t.parquet")
    assert expected in message("t.parquet")


@pytest.mark.parametrize("name", ["data.csv", "y.txt"])
def test_one_long_label_does_not_take_all_memory(write, monkeypatch, name):
    lines = ["x" * 10**5, *["y"] * 999]
    write("a,label\n" + "".join(f"{i},{line}\n" for i, line in enumerate(lines)))
    write("\n".join(lines), "y.txt")
    monkeypatch.setattr(labels, "available", lambda: 10**8)
    text = message("data.csv", labels="label" if name == "data.csv" else name)
    assert "the longest has 100000 characters, so all 1000 need 381.5 MiB of memory" in text


def test_npz_headers_must_agree_with_their_contents(write):
    def archive(shape, content):
        header = io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": shape})
        with zipfile.ZipFile("a.npz", "w") as file:
            file.writestr("X.npy", header.getvalue() + content)

    archive((10**7, 10**7), bytes(64))
    assert "a.npz is damaged: 'X' has shape (10000000, 10000000), but 64 bytes are not" in message("a.npz")
    archive((-4, -2), bytes(64))
    assert "damaged" in message("a.npz")
    archive((4, 1), bytes(64))
    assert "damaged" in message("a.npz")
    archive((4, 2), bytes(64))
    assert load("a.npz").X.shape == (4, 2)
    with zipfile.ZipFile("a.npz", "w") as file:
        file.writestr("X", b"no array")
    assert "must have an array 'X'" in message("a.npz")
    with zipfile.ZipFile("a.npz", "w") as file:
        file.writestr("X.npy", b"no array")
    assert "damaged" in message("a.npz")
