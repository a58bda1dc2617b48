"""Tables in files of every type: one table in all of them, odd text files, and large files in blocks."""

import gzip
import io
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from sklearn.datasets import load_iris, load_wine

from sasgp.data import load
from sasgp.data.tables import TABLE_SUFFIXES, delimited, excel, file, read_table, table_suffix
from sasgp.errors import InputError

FRAME = pl.DataFrame(
    {
        "n": [1, None, 3],
        "x": [0.5, 2.25, None],
        "yes": [True, None, False],
        "word": ["red", None, "a, b"],
        "zip": ["00123", "99999", None],
        "when": [date(2020, 1, 31), None, date(1999, 12, 1)],
    }
)


def save(frame, name):
    """Write a frame to a file of the type that its name says."""
    content = io.BytesIO()
    match table_suffix(Path(name)).removesuffix(".gz"):
        case ".csv":
            frame.write_csv(content)
        case ".tsv" | ".txt":
            frame.write_csv(content, separator="\t" if ".tsv" in name else "|")
        case ".parquet":
            frame.write_parquet(content)
        case ".feather" | ".arrow":
            frame.write_ipc(content)
        case ".jsonl" | ".ndjson":
            frame.write_ndjson(content)
        case ".xlsx":
            pytest.importorskip("fastexcel")
            pytest.importorskip("xlsxwriter")
            frame.write_excel(content)
    data = content.getvalue()
    Path(name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return Path(name)


def refused(path, **options):
    with pytest.raises(InputError) as caught:
        read_table(Path(path), **options).frame  # noqa: B018 (it is read when asked for)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    return str(caught.value)


# ---- every type of file ----


@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
def test_one_table_in_all_types_of_files(write, suffix):
    table = read_table(save(FRAME, f"table{suffix}"))
    assert table.notes == ()
    assert table.n_rows == 3
    assert list(table.schema.items()) == list(FRAME.schema.items())
    assert_frame_equal(table.frame, FRAME)
    assert_frame_equal(pl.concat(table.blocks(size=2)), FRAME)
    assert [block.rows() for block in table.blocks(["x", "n"], size=2)] == [[(0.5, 1), (2.25, None)], [(None, 3)]]
    with pytest.raises(InputError, match="has no column 'z'"):
        next(table.blocks(["z"]))


@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
@pytest.mark.parametrize("name", ["data[1]", "run*", "run?", "{a,b}"])
def test_names_of_files_are_literal(write, name, suffix):
    for stem, value in (("data1", 1.5), ("run1", 1.5), ("run2", 1.5), ("a", 1.5), (name, 7.5)):
        path = save(pl.DataFrame({"a": [value], "b": [0.5]}), stem + suffix)
    table = read_table(path)
    assert table.n_rows == 1
    assert table.frame.rows() == [(7.5, 0.5)]
    assert [block.rows() for block in table.blocks(["a"])] == [[(7.5,)]]


@pytest.mark.skipif(os.name == "nt", reason="names of files are text on Windows")
@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
def test_names_of_files_that_are_not_utf8(write, suffix):
    table = read_table(save(FRAME, os.fsdecode(b"caf\xe9") + suffix))
    assert_frame_equal(pl.concat(table.blocks(size=1)), FRAME)


@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
@pytest.mark.parametrize("seed", range(6))
def test_damaged_files_are_read_or_refused(write, suffix, seed):
    draw = np.random.default_rng(seed)
    whole = save(pl.concat([FRAME] * 50), f"table{suffix}").read_bytes()
    damaged = bytearray(whole[: draw.integers(1, len(whole))] if seed % 2 else whole)
    for place in draw.integers(len(damaged), size=5 * (seed > 1)):
        damaged[place] = draw.integers(256)
    path = Path(write(bytes(damaged), f"damaged{suffix}"))
    try:
        read_table(path).frame  # noqa: B018
    except InputError:
        refused(path)


@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
def test_no_table_at_all(write, suffix):
    for content in (b"", b"\n", b"\0\1\2", b"PK\3\4", b"ARROW1", b"PAR1", b"{", b"[1]\n", gzip.compress(b"")[:8]):
        refused(write(content, f"nothing{suffix}"))
    refused(save(FRAME.clear(), f"nothing{suffix}"))


def test_types_of_files(write):
    assert [table_suffix(Path(name)) for name in ("a.b.CSV", "a.csv.gz", "a.GZ", "csv", ".csv")] == [
        *(".csv", ".csv.gz", ".gz", "", "")
    ]
    assert "must be a table (.csv, " in refused(write("{}", "a.json"))


# ---- text ----


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("a;b\n1,5;2,5\n3;4,5\n", [(1.5, 2.5), (3, 4.5)]),
        ("1,5;2,5\n3,5;4,5\n", [(1.5, 2.5), (3.5, 4.5)]),  # without a header commas would do as well
        ("a,b\nx;y,1\nz;w,2\n", [("x;y", 1), ("z;w", 2)]),
        ("a|b\n1,000|2\n3,000|4\n5,000|0.5\n", [(1000, 2), (3000, 4), (5000, 0.5)]),
        ("a\tb\n1;2\t3\n4;5\t6\n", [("1;2", 3), ("4;5", 6)]),
        ("id,genres\n1,Drama|War\n2,Drama\n", [(1, "Drama|War"), (2, "Drama")]),
        ('"a;x",b\n"1;2",3\n', [("1;2", 3)]),
        ('a,b\n"1,234",5\n"2,000",6\n', [(1234, 5), (2000, 6)]),
        ('"a\nb",c\n1,2\n', [(1, 2)]),
        ("a,b,\n1,2,\n3,4,\n", [(1, 2), (3, 4)]),  # a separator at the end of each line
    ],
)
@pytest.mark.parametrize("name", ["a.csv", "a.txt", "a.txt.gz"])
def test_separators_are_those_of_the_first_lines(write, text, rows, name):
    write(gzip.compress(text.encode()) if name.endswith(".gz") else text, name)
    assert read_table(Path(name)).frame.rows() == rows


def test_row_names_of_pandas_and_R(write):
    table = pd.DataFrame({"a": [1, 2], "row": [3, 4]}, index=["u", "v"])
    frame = read_table(Path(write(table.to_csv()))).frame
    assert frame.to_dict(as_series=False) == {"row_1": ["u", "v"], "a": [1, 2], "row": [3, 4]}
    # write.table of R leaves the cell out of the header; a line that ends in a separator is another thing
    frame = read_table(Path(write("a\tb\nu\t1\t2\nv\t3\t4\n", "r.tsv"))).frame
    assert frame.to_dict(as_series=False) == {"row": ["u", "v"], "a": [1, 3], "b": [2, 4]}
    assert "line 2 must have 2 cells like the first line, but has 3" in refused(write("a,b\n1,2,\n3,4,\n"))
    words = read_table(Path(write(",name,city\n0,Ann,Rome\n1,Bob,Paris\n"))).frame
    assert words.columns == ["row", "name", "city"]
    pl.DataFrame({"a": [1], "__index_level_0__": ["u"]}).write_parquet("p.parquet")
    assert read_table(Path("p.parquet")).frame.columns == ["a", "row"]
    pl.DataFrame({"": [1], "a": [2]}).write_parquet("p.parquet")
    assert read_table(Path("p.parquet")).frame.columns == ["row", "a"]


def test_all_wrong_names_are_in_one_message(write):
    text = refused(write("a,b,,a,c,b,\n1,2,3,4,5,6,7\n"))
    assert text == ("data.csv: columns 3, 7 have no name. Name them. Several columns are called 'a', 'b'. Rename them.")
    many = ",".join([f"c{i}" for i in range(30)] * 2)
    assert "'c19' and 10 more" in refused(write(many + "\n" + ",".join(["1"] * 60) + "\n"))


@pytest.mark.parametrize(
    ("encoding", "note"), [("utf-8", ()), ("utf-8-sig", ()), ("cp1252", ("cp1252",)), ("utf-16", ("utf-16",))]
)
@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_encodings(write, encoding, note, name):
    content = "größe;ort\n1,5;Zürich\n2,5;Genève\n".encode(encoding)
    table = read_table(Path(write(gzip.compress(content) if name.endswith(".gz") else content, name)))
    assert table.frame.to_dict(as_series=False) == {"größe": [1.5, 2.5], "ort": ["Zürich", "Genève"]}
    assert table.notes == tuple(f"{name} is not UTF-8 text, and is read as {encoding}." for encoding in note)
    assert table.labels("ort").tolist() == ["Zürich", "Genève"]
    assert table.labels("größe").tolist() == ["1,5", "2,5"]  # a label is what is written
    assert table.numbers(without="ort")[0].tolist() == [[1.5], [2.5]]


def test_labels_are_as_written(write):
    table = read_table(Path(write("row,x,y\n1,2,2020-01-01\n2,3,2020-01-02\n")))
    assert table.guess_label_column() == "y"
    assert table.labels("y").tolist() == ["2020-01-01", "2020-01-02"]
    assert load("data.csv").y.tolist() == ["2020-01-01", "2020-01-02"]
    dropped = read_table(Path(write("a,,b\n1,,1.50\n2,,2.50\n")))
    assert dropped.notes == ("data.csv: 1 columns without names and values are left out.",)
    assert dropped.labels("b").tolist() == [1.5, 2.5]


def test_notes_about_dates(write):
    (note,) = read_table(Path(write("a,when\n1,1/2/2020\n2,3/4/2020\n"))).notes
    assert note.startswith("data.csv: the dates of 'when' may begin with the day or the month")


def test_a_compressed_file_may_not_fill_the_memory(write, monkeypatch):
    write(gzip.compress(b"a,b\n" + b"1,2\n" * 10**6), "bomb.csv.gz")
    write(gzip.compress(b'{"a": 1}\n' * 10**6), "bomb.jsonl.gz")
    monkeypatch.setattr(delimited, "available", lambda: 10**6)
    for name in ("bomb.csv.gz", "bomb.jsonl.gz"):
        assert f"{name} holds more than 1.0 MiB, which is all the memory that is free" in refused(name)


@pytest.mark.parametrize("bunch", [load_iris, load_wine])
@pytest.mark.parametrize("suffix", TABLE_SUFFIXES)
def test_tables_of_scikit_learn(write, bunch, suffix):
    X, y = bunch(return_X_y=True)
    names = bunch().feature_names
    frame = pl.DataFrame(X, schema=names).with_columns(kind=pl.Series(bunch().target_names[y].tolist()))
    table = read_table(save(frame, f"table{suffix}"))
    got, columns = table.numbers(without="kind")
    assert columns == tuple(names)
    np.testing.assert_array_equal(got, X)
    assert table.labels("kind").tolist() == bunch().target_names[y].tolist()


# ---- files with types ----


def test_types_of_parquet_are_kept(write):
    frame = pl.DataFrame(
        {
            "small": pl.Series([1, 2, None], dtype=pl.UInt8),
            "single": pl.Series([0.5, float("nan"), -999], dtype=pl.Float32),
            "digits": ["12", "NA", "?"],  # text on purpose
            "kind": pl.Series(["u", "NA", None], dtype=pl.Categorical),
            "size": pl.Series(["big", None, "small"], dtype=pl.Enum(["small", "big"])),
        }
    )
    for suffix in (".parquet", ".feather"):
        table = read_table(save(frame, f"t{suffix}"), missing=("-999", "2"))
        assert table.schema == frame.schema
        assert table.frame.rows() == [
            (1, 0.5, "12", "u", "big"),
            (None, None, None, "NA", None),  # a category was chosen by somebody
            (None, None, None, None, "small"),
        ]


def test_streams_of_arrow_and_old_feather(write):
    content = io.BytesIO()
    FRAME.write_ipc_stream(content)
    assert_frame_equal(read_table(Path(write(content.getvalue(), "s.arrow"))).frame, FRAME)
    assert "version 1" in refused(write(b"FEA1....", "old.feather"))


def test_json_lines_of_mixed_things(write):
    lines = '{"b": 1, "a": "x"}\n\n{"b": "NA", "a": null, "when": "2020-01-31"}\n{"b": 2.5, "c": [1]}\n'
    frame = read_table(Path(write(lines, "a.jsonl"))).frame
    assert frame.columns == ["b", "a", "when", "c"]
    assert frame["b"].to_list() == [1, None, 2.5]
    assert frame["when"].dtype == pl.Date
    assert "cannot be read as .jsonl" in refused(write('{"a": 1}\n{"a":\n', "b.jsonl"))


def test_excel(write, monkeypatch):
    pytest.importorskip("fastexcel")
    xlsxwriter = pytest.importorskip("xlsxwriter")
    with xlsxwriter.Workbook("book.xlsx") as book:
        sheet = book.add_worksheet("first")
        book.add_worksheet("second").write(0, 0, "other")
        rows = [["", "n", "mixed", "word"], ["u", 1, 0.5, "x"], [], ["v", 2, "NA", "y"], ["w", 3, 2.25, "#N/A"]]
        for i, row in enumerate(rows):
            sheet.write_row(i + 2, 1, row)
    table = read_table(Path("book.xlsx"))
    assert table.frame.columns == ["row", "n", "mixed", "word"]
    assert table.frame.rows() == [("u", 1, 0.5, "x"), ("v", 2, None, "y"), ("w", 3, 2.25, None)]
    assert table.notes == ("book.xlsx has 2 sheets. Only the first, 'first', is read.",)
    monkeypatch.setattr(excel, "available", lambda: 100)
    assert "of memory, but only" in refused("book.xlsx")


def test_excel_needs_an_extra(write, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    assert "pip install 'sasgp[excel]'" in refused(write(b"PK", "a.xlsx"))


# ---- large files ----


def test_rows_and_types_are_known_without_reading(write, monkeypatch):
    for suffix in (".parquet", ".feather"):
        table = read_table(save(FRAME, f"t{suffix}"))
        monkeypatch.setattr(file, "available", lambda: 1)
        assert table.n_rows == 3
        assert table.find_label_column("word") == "word"
        assert table.schema["when"] == pl.Date
        assert len(list(table.blocks(size=1))) == 3
        with pytest.raises(InputError, match="3 rows need"):
            table.frame  # noqa: B018
        monkeypatch.setattr(file, "available", lambda: 1000)
        assert table.frame.height == 3


# The peak of getrusage is inherited from the process that ran the tests; that of /proc begins anew.
WALK = """
import sys
from pathlib import Path
from sasgp.data.tables import read_table
def peak():
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM")).split()[1])
table = read_table(Path(sys.argv[1]))
table.schema
before = peak()
total = sum(block["c0"].sum() for block in table.blocks())
print(total, (peak() - before) / 1024)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux says how much memory was used")
@pytest.mark.parametrize("suffix", [".parquet", ".feather"])
def test_a_large_file_is_never_in_memory_whole(tmp_path, suffix):
    # A million rows of 50 columns are 400 MB in float64. A block of 32 MB is decoded, copied and tidied.
    column = pl.Series(np.arange(10**6) % 997 + 0.5)
    frame = pl.DataFrame([column.alias(f"c{i}") for i in range(50)])
    frame.write_parquet(tmp_path / "t.parquet") if suffix == ".parquet" else frame.write_ipc(tmp_path / "t.feather")
    command = [sys.executable, "-c", WALK, str(tmp_path / f"t{suffix}")]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    total, megabytes = (float(part) for part in out.split())
    assert total == column.sum()
    assert megabytes < {".parquet": 150, ".feather": 280}[suffix]  # polars maps an uncompressed Feather file
