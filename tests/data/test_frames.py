"""Frames of pandas and polars: every type of column, and what a file of the same table gives."""

import datetime as dt
import io
import subprocess
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from sklearn.datasets import load_wine

from sasgp.data.tables import read_frame, read_table
from sasgp.errors import InputError

UTC = pl.Datetime("us", "UTC")
NOON = dt.datetime(2020, 1, 31, 12)


def column(values, **options):
    return read_frame(pd.DataFrame({"a": values}, index=[7] * len(values)), **options).frame["a"]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (np.array([1, 2]), pl.Int64, [1, 2]),
        (np.array([1, 2], np.uint8), pl.UInt8, [1, 2]),
        (np.array([0.5, np.nan]), pl.Float64, [0.5, None]),
        (np.array([0.5, np.nan], np.float16), pl.Float32, [0.5, None]),
        (np.array([True, False]), pl.Boolean, [True, False]),
        (np.array(["2020-01-31T12", "NaT"], "M8[ns]"), pl.Datetime("us"), [NOON, None]),
        (np.array(["2020-01-31T12", "NaT"], "M8[s]"), pl.Datetime("us"), [NOON, None]),
        (np.array([1, 2], "m8[s]"), pl.Duration("us"), [dt.timedelta(seconds=1), dt.timedelta(seconds=2)]),
        (pd.to_datetime(["2020-01-31 13:00+01:00", None]), UTC, [NOON.replace(tzinfo=dt.UTC), None]),
        (pd.array([1, None], dtype="Int64"), pl.Int64, [1, None]),
        (pd.array([2**53 + 1, None], dtype="Int64"), pl.Int64, [2**53 + 1, None]),  # float64 has no such number
        (pd.array([1, None], dtype="UInt8"), pl.UInt8, [1, None]),
        (pd.array([0.5, None], dtype="Float32"), pl.Float32, [0.5, None]),
        (pd.array([True, None], dtype="boolean"), pl.Boolean, [True, None]),
        (pd.array(["x", None], dtype="string"), pl.String, ["x", None]),
        (pd.array(["x", "NA"], dtype="str"), pl.String, ["x", None]),
        (pd.arrays.SparseArray([0.0, 1.5]), pl.Float64, [0, 1.5]),
        (pd.Categorical(["x", None, "y"]), pl.Categorical, ["x", None, "y"]),
        (pd.Categorical([3, 1, None]), pl.Categorical, ["3", "1", None]),
        (pd.Categorical(["lo", None], ["lo", "mid"], ordered=True), pl.Enum(["lo", "mid"]), ["lo", None]),
        (pd.Categorical([10, 2, 10], [2, 5, 10], ordered=True), pl.Enum(["2", "5", "10"]), ["10", "2", "10"]),
        (pd.cut([1, 3], [0, 2, 4]), pl.Enum(["(0, 2]", "(2, 4]"]), ["(0, 2]", "(2, 4]"]),
        (pd.PeriodIndex(["2020-01", "2020-02"], freq="M"), pl.String, ["2020-01", "2020-02"]),
    ],
)
def test_columns_of_pandas(values, dtype, expected):
    got = column(values)
    assert got.dtype == dtype
    assert got.to_list() == expected


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (["x", None, np.nan], pl.String, ["x", None, None]),
        (["12", "13"], pl.String, ["12", "13"]),  # text on purpose
        (["12", "?", "13.5"], pl.Float64, [12, None, 13.5]),  # numbers that a word made text
        (["00123", "?"], pl.String, ["00123", None]),
        ([1, "2", "NA"], pl.Int64, [1, 2, None]),
        ([1, "x"], pl.String, ["1", "x"]),
        ([True, False, None], pl.Boolean, [True, False, None]),
        ([True, "x"], pl.String, ["True", "x"]),
        ([1, None], pl.Int64, [1, None]),
        ([1, 2.5, Decimal("0.5"), pd.NA], pl.Float64, [1, 2.5, 0.5, None]),
        ([2**70, 1], pl.String, [str(2**70), "1"]),
        ([dt.date(2020, 1, 31), pd.NaT], pl.Date, [dt.date(2020, 1, 31), None]),
        ([NOON, pd.Timestamp(NOON), None], pl.Datetime("us"), [NOON, NOON, None]),
        ([NOON, NOON.replace(tzinfo=dt.UTC)], pl.String, ["2020-01-31 12:00:00", "2020-01-31 12:00:00+00:00"]),
        ([b"x", "y"], pl.String, ["x", "y"]),
        ([{"a": 1}, [2]], pl.String, ["{'a': 1}", "[2]"]),
        ([None, None], pl.Null, [None, None]),
    ],
)
def test_objects_of_pandas_and_polars(values, dtype, expected):
    got = column(pd.Series(values, dtype=object).to_numpy())
    assert got.dtype == dtype
    assert got.to_list() == expected
    if not any(value is pd.NaT or value is pd.NA or isinstance(value, float) for value in values):
        again = read_frame(pl.DataFrame({"a": pl.Series(values, dtype=pl.Object)})).frame["a"]
        assert (again.dtype, again.to_list()) == (dtype, expected)


def test_order_is_told(write):
    size = pd.Categorical(["s", "l"], ["s", "m", "l"], ordered=True)
    frame = read_frame(pd.DataFrame({"size": size, "kind": pd.Categorical(["u", "v"]), "x": [1, 2]}))
    assert frame.ordered == {"size"}
    assert frame.frame["size"].to_physical().to_list() == [0, 2]


def test_names_are_text_and_differ():
    assert read_frame(pd.DataFrame([[1, 2]])).frame.columns == ["0", "1"]
    levels = pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([("a", "mean"), ("a", "")]))
    assert read_frame(levels).frame.columns == ["a_mean", "a"]
    twice = pd.DataFrame([[1, 2, 3, 4]], columns=["a", "a", 1, "1"])
    with pytest.raises(InputError, match="X: several columns are called 'a', '1'"):
        read_frame(twice)


def test_sentinels_are_missing_if_the_caller_says_so():
    frame = pd.DataFrame({"n": [1, -999], "x": [0.5, -999.0], "w": ["u", "-999"]})
    assert read_frame(frame, missing=("-999",)).frame.rows() == [(1, 0.5, "u"), (None, None, None)]
    assert read_frame(pl.DataFrame(frame.to_dict("list")), missing=("-999",)).frame.rows()[1] == (None, None, None)
    assert read_frame(frame).frame.null_count().sum_horizontal().item() == 0


def test_a_polars_frame_keeps_its_types():
    frame = pl.DataFrame({"a": [1.5, float("nan")], "b": ["x", "NA"], "c": pl.Series(["u", "v"], dtype=pl.Categorical)})
    for given in (frame, frame.lazy()):
        read = read_frame(given)
        assert read.frame.schema == frame.schema
        assert read.frame.rows() == [(1.5, "x", "u"), (None, None, "v")]
        assert not read.ordered
    assert frame["b"].to_list() == ["x", "NA"], "the frame that was given is not changed"


def test_frame_and_file_give_the_same(write):
    # A frame that pandas read, and the file that it writes: the names of rows are in the file alone.
    frame = load_wine(as_frame=True).frame.assign(kind=lambda table: np.array(["u", "v", "w"])[table.target])
    frame.loc[::7, ["ash", "kind"]] = None
    read = read_table(Path(write(frame.to_csv()))).frame
    assert_frame_equal(read.drop("row"), read_frame(frame).frame)
    text = io.StringIO(frame.to_csv(index=False, na_rep="?"))
    assert_frame_equal(read.drop("row"), read_frame(pd.read_csv(text)).frame)  # pandas keeps "?" as text


def test_other_things_are_refused():
    for X in (np.ones((2, 2)), [[1]], {"a": [1]}, pd.Series([1])):
        with pytest.raises(InputError, match="X must be a DataFrame of pandas or polars"):
            read_frame(X)


def test_pandas_is_not_imported():
    code = """
import sys, polars
from sasgp.data.tables import read_frame
read_frame(polars.DataFrame({"a": [1]}))
print("pandas" in sys.modules)
"""
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.strip() == "False"


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (pd.DataFrame({"a": [1.0, 2.0], "\ud800": [1, 2]}), r"The name of column '\\ud800' contains '\\ud800'"),
        (pd.DataFrame({"a": ["x", "y\ud800z"]}, dtype=object), r"'y\\ud800z' in column 'a' contains '\\ud800'"),
        (pd.DataFrame({"a": pd.Categorical(["x", "\udfff"])}), r"'\\udfff' in column 'a' contains '\\udfff'"),
        (pl.DataFrame({"a": pl.Series(["\ud800", 1], dtype=pl.Object)}), r"in column 'a' contains '\\ud800'"),
    ],
)
def test_half_a_character_is_refused(table, says):
    """Python text may hold half of a surrogate pair, for which UTF-8 has no bytes: no file could hold it."""
    with pytest.raises(InputError, match=says) as refused:
        read_frame(table)
    str(refused.value).encode()  # the message itself can be printed
