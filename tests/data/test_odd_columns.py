"""Columns with odd names and types: `*` is all columns to polars, `^a$` is a pattern, and 128 bits are many."""

import numpy as np
import polars as pl
import pytest

from sasgp.data import load
from sasgp.data.columns import Columns
from sasgp.data.tables import DiskTable, read_table
from sasgp.errors import InputError

FRAME = pl.DataFrame({"a": [1.5, 2.5, 4.0], "*": [30, 10, 20], "a*": [7.0, 8.0, 9.5], "kind": ["x", "y", "x"]})


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "jsonl"])
def test_columns_are_chosen_by_their_literal_names(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    write(FRAME, path)
    data = load(path, labels="kind", table=True)
    assert data.X.equals(FRAME[["a", "*", "a*"]])
    assert data.y.tolist() == ["x", "y", "x"]
    other = load(path, labels="*", table=True)
    assert other.y.tolist() == [30, 10, 20]
    assert other.X.equals(FRAME[["a", "a*", "kind"]])
    numbers = load(path, labels="kind", columns=["a*", "*"], table=False)
    assert numbers.columns == ("a*", "*")
    assert numbers.X.tolist() == [[7, 30], [8, 10], [9.5, 20]]
    table = read_table(path)
    assert DiskTable(table, ("*", "a"), 0, 3).take(np.array([2, 0])).rows() == [(20, 4.0), (30, 1.5)]


@pytest.mark.parametrize("suffix", ["csv", "parquet", "feather", "jsonl"])
def test_names_that_are_patterns_to_polars_are_refused(tmp_path, suffix):
    path = tmp_path / f"t.{suffix}"
    write(FRAME.rename({"a*": "^a$"}), path)
    with pytest.raises(InputError, match=r"takes '\^a\$' for a pattern. Rename such columns"):
        load(path)


def write(frame, path):
    forms = {".csv": frame.write_csv, ".parquet": frame.write_parquet}
    (forms | {".feather": frame.write_ipc, ".jsonl": frame.write_ndjson})[path.suffix](path)


def test_a_column_may_have_the_name_that_polars_gives_to_counts():
    frame = pl.DataFrame({"count": ["a", "b", "a", "b"] * 5, "value": [0, 1, 2, 2] * 5})
    columns = Columns.recognised(frame, {"value": "ordinal"})
    assert [one["levels"] for one in columns.as_json()["columns"]] == [["a", "b"], [0, 1, 2]]


def test_integers_of_128_bits(tmp_path):
    path = tmp_path / "t.parquet"
    wide = pl.Series("a", [3, -4, 2**100], dtype=pl.Int128)
    pl.DataFrame([wide, pl.Series("b", [0.5, 1.5, 2.5])]).write_parquet(path)
    assert load(path, table=False).X.tolist() == [[3, 0.5], [-4, 1.5], [2.0**100, 2.5]]
    assert load(path, table=True).X["a"].to_list() == [3, -4, 2.0**100]
    assert load(path, labels="a").y.tolist() == ["3", "-4", str(2**100)]


@pytest.mark.parametrize("dtype", [pl.Date, pl.Datetime("ms"), pl.Datetime("us")])
@pytest.mark.parametrize(
    ("days", "known"),
    # From 1970 back to 1 January of the year 1, and on to 31 December 9999: date.min and date.max. Then one day further
    [(-719162, True), (2932896, True), (-719163, False), (2932897, False)],
)
def test_dates_are_of_the_years_that_python_has(dtype, days, known):
    physical = days if dtype == pl.Date else days * 86_400_000 * (1000 if dtype == pl.Datetime("us") else 1)
    usual = [9000 + 17 * i for i in range(40)]
    days_each = pl.Series("born", usual, dtype=pl.Int32).cast(pl.Date).cast(dtype)
    odd = pl.Series("born", [physical, None]).cast(pl.Int32 if dtype == pl.Date else pl.Int64).cast(dtype)
    frame = pl.DataFrame({"born": pl.concat([days_each, odd]), "a": np.arange(42.0) ** 1.5})
    if known:
        assert [one.name for one in Columns.recognised(frame, {}).columns] == ["born", "a"]
        return
    with pytest.raises(InputError, match="Column 'born' has dates outside of the years 1 to 9999"):
        Columns.recognised(frame, {})


def test_line_breaks_in_names_do_not_break_a_message():
    assert str(InputError("Column 'a\r\nb\u2028c' is odd.")) == "Column 'a b c' is odd."
