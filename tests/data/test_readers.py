"""Files as data: what is read, what is guessed, and what is said about the rest."""

import gzip
import os
import pickle
import subprocess
import sys
from datetime import date
from functools import partial
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from sasgp import data
from sasgp.errors import InputError

load = partial(data.load, table=False)  # tables of numbers; test_mixed_tables.py has the others

IRIS = "sepal,petal,species\n5.1,1.4,setosa\n7.0,4.7,versicolor\n"


def message(source, **options):
    with pytest.raises(InputError) as caught:
        load(source, **options)
    text = str(caught.value)
    assert "\n" not in text
    return text


# Arrays


def test_npy_stays_on_disk(tmp_path):
    X = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
    np.save(tmp_path / "cells.npy", X)
    data = load(tmp_path / "cells.npy")
    assert isinstance(data.X, np.memmap)
    assert data.X.dtype == np.float32
    np.testing.assert_array_equal(data.X, X)
    assert (data.name, data.columns, data.y, data.image_shape) == ("cells", ("x0", "x1", "x2"), None, None)


def test_images_are_flattened_without_a_copy(tmp_path):
    images = np.arange(2 * 4 * 5, dtype=np.uint8).reshape(2, 4, 5)
    np.save(tmp_path / "x.npy", images)
    data = load(str(tmp_path / "x.npy"))
    assert data.image_shape == (4, 5)
    assert isinstance(data.X, np.memmap)
    assert not data.X.flags.owndata
    assert data.X.dtype == np.uint8
    np.testing.assert_array_equal(data.X.reshape(2, *data.image_shape), images)


def test_npz(tmp_path):
    X, y = np.arange(8.0).reshape(2, 2, 2), np.array(["a", "b"])
    np.savez(tmp_path / "one.npz", X=X, other=np.ones((3, 3)), y=y)
    np.savez(tmp_path / "two.npz", pixels=X, labels=y, weights=np.ones(2))
    for name in ("one.npz", "two.npz"):
        data = load(tmp_path / name)
        np.testing.assert_array_equal(data.X, X.reshape(2, 4))
        assert data.y.tolist() == ["a", "b"]
        assert data.image_shape == (2, 2)
    assert load(tmp_path / "two.npz", labels="weights").y.tolist() == [1, 1]


class Bomb:
    """Writes a file when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("exploded"),))


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_pickles_are_never_run(write, suffix):
    bombs = np.array([[Bomb(), 1.0]], dtype=object)
    write(pickle.dumps(Bomb()), f"raw{suffix}")
    np.save("objects.npy", bombs)
    np.savez("objects.npz", X=bombs)
    assert "Python objects" in message(f"objects{suffix}")
    assert f"not a {suffix} file" in message(f"raw{suffix}")
    assert not Path("exploded").exists()
    np.load("objects.npy", allow_pickle=True)  # the bomb is a real one
    assert Path("exploded").exists()


@pytest.mark.parametrize(
    ("array", "expected"),
    [
        (np.ones(3), r"[N, D], not one of shape (3,)"),
        (np.float64(1), "not one of shape ()"),
        (np.ones((2, 2), complex), "real numbers, not complex128"),
        (np.array([["a", "b"]]), "not <U1"),
        (np.ones((0, 2)), "empty: its array has shape (0, 2)"),
        (np.ones((2, 0)), "empty: its array has shape (2, 0)"),
        (np.zeros(2, [("a", float)]), "real numbers"),
    ],
)
def test_arrays_that_are_no_data(write, array, expected):
    np.save("a.npy", array)
    np.savez("a.npz", X=array)
    assert expected in message("a.npy")
    assert expected in message("a.npz")


def test_damaged_arrays(write):
    np.save("a.npy", np.ones((10, 10)))
    np.savez("a.npz", np.ones((10, 10)))
    whole = Path("a.npy").read_bytes()
    assert "greater than file size" in message(write(whole[:-8], "short.npy"))
    assert "damaged" in message(write(whole[:9], "shorter.npy"))
    assert "damaged" in message(write(whole.replace(b"}", b" "), "open.npy"))  # makes numpy raise a TokenError
    assert "not a .npy file" in message(write(Path("a.npz").read_bytes(), "zip.npy"))
    assert "not a .npz file" in message(write(whole, "npy.npz"))
    archive = bytearray(Path("a.npz").read_bytes())
    archive[300] ^= 1
    assert "Bad CRC-32" in message(write(bytes(archive), "flipped.npz"))
    assert "not a .npz file" in message(write(bytes(archive[:-30]), "short.npz"))


def test_npz_must_say_which_array(write):
    np.savez("a.npz", train=np.ones((2, 2)), test=np.ones((2, 2)))
    assert "It has train, test. Save the data under the name X" in message("a.npz")


# Tables


def test_csv_with_labels(write):
    data = load(write(IRIS, "iris.csv"), labels="species")
    np.testing.assert_array_equal(data.X, [[5.1, 1.4], [7.0, 4.7]])
    assert data.X.dtype == np.float64
    assert data.X.flags.c_contiguous  # rows are what training gathers
    assert (data.name, data.columns) == ("iris", ("sepal", "petal"))
    assert data.y.tolist() == ["setosa", "versicolor"]


@pytest.mark.parametrize(
    ("text", "columns", "rows"),
    [
        ("1,2\n3,4\n", ("x0", "x1"), [[1, 2], [3, 4]]),
        ("a,b\n1,2\n", ("a", "b"), [[1, 2]]),
        ('"a, b",c\n1,2\n', ("a, b", "c"), [[1, 2]]),
        ("a,1\n1,2\n", ("a", "1"), [[1, 2]]),  # a name over a number makes a header, whatever the rest is
        ("0,1,2\n7,8,9\n", ("0", "1", "2"), [[7, 8, 9]]),  # pandas' names for an array's columns
        ("0,1\n7,8\n", ("x0", "x1"), [[0, 1], [7, 8]]),
        ("NA,2\n3,4\n", ("x0", "x1"), [[np.nan, 2], [3, 4]]),
        (",a,b\n7,1,2\n", ("row", "a", "b"), [[7, 1, 2]]),  # the index of pandas and R
        (",0,1,2\n0,1,2,3\n", ("row", "0", "1", "2"), [[0, 1, 2, 3]]),
        ("\ufeffa,b\r\n1,2\r\n", ("a", "b"), [[1, 2]]),  # Excel
        ("\ufeff1,2\n3,4\n", ("x0", "x1"), [[1, 2], [3, 4]]),
        ("a;b\n1;2\n", ("a", "b"), [[1, 2]]),
        ("\na,b\n\n1,2\n  \n3,4\n\n", ("a", "b"), [[1, 2], [3, 4]]),  # blank lines are no rows
        ("a,b\n1,\n,\n", ("a", "b"), [[1, np.nan], [np.nan, np.nan]]),  # a line of empty cells is one
        ("a,b\n1, 2\nnan,NA\n-inf,1e3\n", ("a", "b"), [[1, 2], [np.nan, np.nan], [-np.inf, 1000]]),
        ("a,b\n1,true\n2,false\n", ("a", "b"), [[1, 1], [2, 0]]),
        ("a;b\r1;2\r3;4\r", ("a", "b"), [[1, 2], [3, 4]]),  # Excel's "CSV (Macintosh)"
        ("5\n6", ("x0",), [[5], [6]]),
    ],
)
def test_csv_by_example(write, text, columns, rows):
    data = load(write(text))
    assert data.columns == columns
    np.testing.assert_array_equal(data.X, np.array(rows, dtype=float))
    assert data.y is None


def test_tsv(write):
    data = load(write("a,1\tb\n1\t2\n", "data.tsv"))
    assert data.columns == ("a,1", "b")


def test_compressed_tables(write):
    data = load(write(gzip.compress(IRIS.encode()), "my.iris.csv.gz"), labels="species")
    np.testing.assert_array_equal(data.X, [[5.1, 1.4], [7.0, 4.7]])
    assert data.name == "my.iris"


def test_types_are_those_of_the_whole_column(write):
    # polars looks at 100 rows unless told otherwise, and would stop at the first fraction below
    data = load(write("a\n" + "1\n" * 5000 + "0.5\n"))
    assert (len(data.X), data.X[-1, 0]) == (5001, 0.5)


def test_labels_by_place_in_a_file_without_header(write):
    name = write("5.1,setosa,1.4\n7.0,versicolor,4.7\n")
    for labels in ("1", "x1"):
        data = load(name, labels=labels)
        assert data.y.tolist() == ["setosa", "versicolor"]
        assert data.columns == ("x0", "x2")  # named by their place in the file
        np.testing.assert_array_equal(data.X, [[5.1, 1.4], [7.0, 4.7]])
    assert "'x1' holds text ('setosa' in row 1). If it holds the labels, say labels='1'. Otherwise drop it" in message(
        name
    )
    assert "(x0, x1, x2) or a file. Got '3'" in message(name, labels="3")


@pytest.mark.parametrize("name", ["label", "labels", "class", "target", "y"])
def test_labels_by_their_usual_names(write, name):
    assert load(write(f"a,{name}\n.5,3\n1.5,4\n")).y.tolist() == [3, 4]
    assert load(write(f"a,{name}\n.5, cat\n1.5, dog\n")).y.tolist() == ["cat", "dog"]
    # A target is one whether it is written 151 or 151.5
    fractions = load(write(f"a,{name}\n.5,3.5\n1.5,4.5\n"))
    assert fractions.y.tolist() == [3.5, 4.5]
    assert fractions.columns == ("a",)


def test_only_the_exact_names_are_taken(write):
    data = load(write("a,Label\n.5,3\n1.5,4\n"))
    assert data.y is None
    assert data.columns == ("a", "Label")


def test_named_labels_come_before_usual_ones(write):
    data = load(write("y,id\n1,7\n2,8\n"), labels="id")
    assert data.columns == ("y",)
    assert data.y.tolist() == [7, 8]


def test_parquet(write):
    frame = pl.DataFrame({"a": [1.5, None], "b": [1, 2], "kind": ["u", "v"]}).with_columns(
        pl.col("kind").cast(pl.Categorical)
    )
    frame.write_parquet("p.parquet")
    data = load("p.parquet", labels="kind")
    np.testing.assert_array_equal(data.X, [[1.5, 1], [np.nan, 2]])
    assert data.columns == ("a", "b")
    assert data.y.tolist() == ["u", "v"]
    assert "column 'kind' holds text ('u' in row 1)" in message("p.parquet")


def test_parquet_keeps_small_types(write):
    pl.DataFrame({"a": [1, 255], "b": [3, 4]}, schema={"a": pl.UInt8, "b": pl.UInt8}).write_parquet("p.parquet")
    assert load("p.parquet").X.dtype == np.uint8


def test_parquet_types_that_are_no_numbers(write):
    pl.DataFrame({"a": [1.0], "when": [date(2020, 1, 1)]}).write_parquet("p.parquet")
    assert "column 'when' must hold numbers, but has type Date" in message("p.parquet")
    assert "but 'when' has type Date" in message("p.parquet", labels="when")
    pl.DataFrame({"a": []}).write_parquet("p.parquet")
    assert "no rows" in message("p.parquet")
    assert "cannot be read as .parquet" in message(write(b"PAR1 no more", "q.parquet"))


def test_decimal_commas(write):
    data = load(write("a;b;c\n0,5;1,25;u\n2;3,5;v\n1,5;4;w\n"), labels="c")
    assert data.X.tolist() == [[0.5, 1.25], [2, 3.5], [1.5, 4]]
    # Between commas they may be anything, a pair of numbers for example.
    name = write('a,b\n"0,5",1\n"2,25",2\n')
    assert "'a' must hold numbers with decimal points, but line 2 has '0,5'. Save the file with decimal" in message(
        name
    )


def test_problems_of_all_columns_are_in_one_message(write):
    text = message(write("a,b,c,when,d\n1,2,u,2020-01-01,1\n3,4,v,2020-01-02,2\n5,oops,w,2020-01-03,hm\n"))
    for part in ("'b' must hold numbers, but line 4 has 'oops'", "'d' must hold numbers, but line 4 has 'hm'"):
        assert part in text
    assert "Column 'when' must hold numbers, but has type Date" in text
    assert "Column 'c' holds text ('u' in row 1). If it holds the labels, say labels='c'." in text


def test_text_is_not_guessed_to_be_labels(write):
    name = write(IRIS)
    what = "data.csv: column 'species' holds text ('setosa' in row 1)"
    assert message(name) == f"{what}. If it holds the labels, say labels='species'. Otherwise drop it."
    assert "Got 'speces'. Did you mean 'species'?" in message(name, labels="speces")
    two = message(write("a,b,c\n1,u,v\n"))
    assert "columns 'b', 'c' hold text ('u' in row 1). If one of them holds the labels, say labels='b'" in two
    assert "column 'c' holds text ('v' in row 1) where numbers are expected; drop it" in message("data.csv", labels="b")


def test_a_stray_word_is_shown_in_its_place(write):
    # With a blank line and a cell of two lines before it, it is row 3 of the data and line 6 of the file.
    text = 'a,b,label\n1,2,"one\ntwo"\n\n3,4,x\n5,oops,y\n'
    assert "column 'b' must hold numbers, but line 6 has 'oops'" in message(write(text))
    assert "line 6 has 'oops'" in message(write(text.replace("5,", "NA,")))


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "empty (0 bytes)"),
        (b"\n \n", "is empty. It must have a row of numbers"),
        (b"a,b\n", "header but no rows"),
        (b"a,b\n\n\n", "header but no rows"),
        (b"a,b\n1,2\n3\n4,5\n", "line 3 must have 2 cells like the first line, but has 1"),
        (b"a,b\n1,2\n3,4,5\n", "line 3 must have 2 cells like the first line, but has 3"),
        (b"1,2\n3,4,5\n", "line 2 must have 2 cells"),
        (b"a,b,a\n1,2,3\n", "two columns are called 'a'"),
        (b"a,b,a,b\n1,2,3,4\n", "several columns are called 'a', 'b'. Rename them."),
        (b"a,,b,,a\n1,2,3,4,5\n", "columns 2, 4 have no name. Name them. Two columns are called 'a'"),
        (b"a,label\n1,x\n2,\n", "line 3 has no label in column 'label'"),
        (b"label,y\n1,2\n", "'label', 'y' may all hold the labels"),
        (b"label\n1\n", "no column besides the labels"),
        (b"\0\1\2,\0", "not a text file"),
        (b"a,b\n1,\x81\n", "neither UTF-8 nor cp1252 text"),
        (b"\xff\xfe\x80\x81\n", "neither UTF-8 nor cp1252 text"),
        (b'a,b\n1,"2\n3,4\n', "cannot be read as .csv"),
    ],
)
def test_csv_that_is_no_table(write, content, expected):
    text = message(write(content))
    assert expected in text
    assert text.startswith("data.csv")


# Labels in a file of their own


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        ("7\n8\n", [7, 8]),
        ("0.5\n8", [0.5, 8]),
        ("cat\n8\n", ["cat", "8"]),
        ("a, b\nc", ["a, b", "c"]),
        ("label\ncat\ndog\n", ["cat", "dog"]),
        ("digit\n7\n8\n", [7, 8]),
    ],
)
def test_label_files(write, text, labels):
    np.save("x.npy", np.ones((2, 3)))
    y = load("x.npy", labels=write(text, "y.txt")).y
    assert y.tolist() == labels
    np.save("y.npy", y[:, None])
    assert load("x.npy", labels="y.npy").y.tolist() == labels


def test_label_file_for_a_table(write):
    write('"a, b"\nc\n', "y.csv")
    data = load(write("a,b\n1,2\n3,4\n"), labels="y.csv")
    assert data.y.tolist() == ["a, b", "c"]
    assert data.columns == ("a", "b")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1\n", "each of the 2 rows of x.npy, but has 1"),
        ("cat\ndog\nowl\n", "but has 3"),  # perhaps a header, perhaps not: labels off by one are worse than an error
        ("1\n2\n3\n", "but has 3"),
        ("\ncat\n", "line 1 is blank"),
        ("a,b\nc,d\n", "line 1 has 2 cells"),
        ("", "empty"),
    ],
)
def test_label_files_that_do_not_fit(write, text, expected):
    np.save("x.npy", np.ones((2, 3)))
    assert expected in message("x.npy", labels=write(text, "y.csv"))


def test_label_arrays_that_do_not_fit(write):
    np.save("x.npy", np.ones((2, 3)))
    for y in (np.ones(3), np.ones((2, 2))):
        np.save("y.npy", y)
        assert f"2 for x.npy. Got shape {y.shape}" in message("x.npy", labels="y.npy")
    assert "must be a file" in message("x.npy", labels="species")
    assert ".npy, .csv, .tsv or .txt" in message("x.npy", labels=write("x", "y.json"))
    assert "not a .npy file" in message("x.npy", labels=write(b"\xff", "y.npy"))
    assert "UTF-8" in message("x.npy", labels=write(b"\xff", "y.txt"))


# Paths


def test_what_is_no_file(write):
    write("1,2\n", "measurements.csv")
    Path("folder").mkdir()
    assert "Did you mean 'mnist'? Data sets: digits, mnist" in message("minst")
    assert "Did you mean 'mnist'?" in message("MNIST")
    assert message("measurement.csv") == "there is no file 'measurement.csv'. Did you mean 'measurements.csv'?"
    assert message("nowhere/x.npy") == "there is no file 'nowhere/x.npy'. Check the path."
    assert "folder is a folder. Name a file in it (.npy, " in message("folder")
    Path("folder/run.json").write_text("{}")
    Path("folder/0.png").write_bytes(b"")
    assert "folder is a folder. Name a file in it (.npy, " in message("folder")
    Path("folder/1.png").write_bytes(b"")
    assert "folder: 2 of 2 images cannot be read: 0.png, 1.png" in message("folder")
    assert ".npy, .npz, .h5ad, .csv, .tsv, .txt, .parquet, .feather, .arrow, .jsonl, .ndjson or .xlsx" in message(
        write("x", "x.docx")
    )
    assert "there is no data set or file" in message(
        Path("digits")
    )  # a Path is a file, also when a data set has its name


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_unreadable_file(write, suffix):
    Path(write("x", f"x{suffix}")).chmod(0)
    if os.access(f"x{suffix}", os.R_OK):
        pytest.skip("root reads everything")
    assert "Permission denied" in message(f"x{suffix}")


def test_named_data_sets_have_their_own_labels():
    assert "Leave out labels='y.csv'" in message("digits", labels="y.csv")


def test_import_is_light():
    code = "import sys, sasgp.data; print(*{'torch', 'polars', 'pooch', 'sklearn', 'rich'} & set(sys.modules))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == ""
