"""Text cells as typed columns: each column by example, and whole tables against the values they were written from."""

import io
from datetime import UTC, date, datetime

import numpy as np
import pandas as pd
import polars as pl
import pytest

from sasgp.data.tables.cells import MISSING, type_columns


def typed(cells, **options):
    columns, ambiguous = type_columns([pl.Series("a", cells, dtype=pl.String)], **options)
    assert columns[0].name == "a"
    return columns[0], ambiguous


@pytest.mark.parametrize(
    ("cells", "dtype", "values"),
    [
        (["1", "-2", "+3"], pl.Int64, [1, -2, 3]),
        (["1", "NA", None], pl.Int64, [1, None, None]),
        (["1", " 2 ", "?"], pl.Int64, [1, 2, None]),
        (["1", "2.5", ".5"], pl.Float64, [1, 2.5, 0.5]),
        (["1e3", "nan", "-inf"], pl.Float64, [1000, None, -np.inf]),
        (["0", "0.5", "-0"], pl.Float64, [0, 0.5, 0]),
        (["00123", "7", "NA"], pl.String, ["00123", "7", None]),  # postal codes
        (["01", "12"], pl.String, ["01", "12"]),
        ([" 007", "nan"], pl.String, ["007", None]),
        (["12345678901234567890", "1"], pl.String, ["12345678901234567890", "1"]),  # as float64 it would end in …000
        (["12345678901234567890", "0.5"], pl.Float64, [12345678901234567890.0, 0.5]),
        (["True", "False", ""], pl.Boolean, [True, False, None]),
        (["TRUE", "false", None], pl.Boolean, [True, False, None]),
        (["yes", "no"], pl.String, ["yes", "no"]),
        (["T", "F"], pl.String, ["T", "F"]),
        (["1", "true"], pl.String, ["1", "true"]),
        (["12%", "3%"], pl.String, ["12%", "3%"]),
        (["Na", "K", "none"], pl.String, ["Na", "K", "none"]),  # sodium is not missing
        (["NA", "", None], pl.Null, [None, None, None]),
        (["1_000", "2"], pl.String, ["1_000", "2"]),
        (["1", "x", "-"], pl.String, ["1", "x", None]),
        # Thousands
        (["1,234", "12", "NA"], pl.Int64, [1234, 12, None]),
        (["1,234,567.5", "12.25"], pl.Float64, [1234567.5, 12.25]),
        (["1,234", "12,34"], pl.String, ["1,234", "12,34"]),
        (["0,123", "1,234"], pl.String, ["0,123", "1,234"]),
        (["1,2,3", "4,5"], pl.String, ["1,2,3", "4,5"]),
        # Dates
        (["2020-01-31", "NaT"], pl.Date, [date(2020, 1, 31), None]),
        (["2020/1/31", "1999/12/1"], pl.Date, [date(2020, 1, 31), date(1999, 12, 1)]),
        (["31.1.2020", "01.02.2021"], pl.Date, [date(2020, 1, 31), date(2021, 2, 1)]),
        (["1/2/2020", "1/31/2020"], pl.Date, [date(2020, 1, 2), date(2020, 1, 31)]),
        (["1/2/2020", "31/1/2020"], pl.Date, [date(2020, 2, 1), date(2020, 1, 31)]),
        (["1/1/2020", "2/2/2020"], pl.Date, [date(2020, 1, 1), date(2020, 2, 2)]),  # either way
        (["1/31/2020", "31/1/2020"], pl.String, ["1/31/2020", "31/1/2020"]),
        (["2020-01-31", "2020-02-31"], pl.String, ["2020-01-31", "2020-02-31"]),
        (["2020-01-31", "soon"], pl.String, ["2020-01-31", "soon"]),
        (["2020-01-31", "31.1.2020"], pl.String, ["2020-01-31", "31.1.2020"]),
        (["1.2.20", "3.4.20"], pl.String, ["1.2.20", "3.4.20"]),
        (["20200131", "20200201"], pl.Int64, [20200131, 20200201]),
        (["2020-01-31 00:00:00", "2020-02-01 00:00:00.000"], pl.Date, [date(2020, 1, 31), date(2020, 2, 1)]),
        (
            ["2020-01-31T12:30", "2020-02-01 1:02:03.25", "2020-02-02"],
            pl.Datetime("us"),
            [datetime(2020, 1, 31, 12, 30), datetime(2020, 2, 1, 1, 2, 3, 250000), datetime(2020, 2, 2)],
        ),
        (["31.12.2020 23:59", ""], pl.Datetime("us"), [datetime(2020, 12, 31, 23, 59), None]),
        (
            ["2020-01-31T12:30:00Z", "2020-01-31T12:30:00+02:00"],
            pl.Datetime("us", "UTC"),
            [datetime(2020, 1, 31, 12, 30, tzinfo=UTC), datetime(2020, 1, 31, 10, 30, tzinfo=UTC)],
        ),
        (["2020-01-31T12:30:00Z", "2020-01-31T12:30"], pl.String, ["2020-01-31T12:30:00Z", "2020-01-31T12:30"]),
    ],
)
def test_columns_by_example(cells, dtype, values):
    column, ambiguous = typed(cells)
    assert column.dtype == dtype
    assert column.to_list() == values
    assert not ambiguous


def test_dates_of_unclear_order_stay_text():
    column, ambiguous = typed(["1/2/2020", "3/4/2020", "NA"])
    assert column.to_list() == ["1/2/2020", "3/4/2020", None]
    assert ambiguous == ["a"]


@pytest.mark.parametrize("code", MISSING)
def test_codes_are_missing_in_every_kind_of_column(code):
    for cells in (
        ["1", "2"],
        ["0.5", "2"],
        ["true", "false"],
        ["2020-01-31", "2020-02-01"],
        ["x", "y"],
        ["1,234", "2"],
    ):
        without, _ = typed(cells)
        column, _ = typed([cells[0], code, f" {code} ", cells[1]])
        assert column.dtype == without.dtype
        assert column.to_list() == [without[0], None, None, without[1]]


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1", "-999"], [1, None]),
        (["1.5", "-999", "-999.0"], [1.5, None, None]),
        (["-999", "x"], [None, "x"]),
        (["-998", "n.k."], [-998, None]),
        (["-9990", "-99"], [-9990, -99]),
        (["1,999", "-999"], [1999, None]),
    ],
)
def test_sentinels_are_missing_if_the_caller_says_so(cells, values):
    assert typed(cells, missing=("-999", "n.k."))[0].to_list() == values
    assert typed(cells)[0].null_count() == 0


def decimal(**columns):
    series = [pl.Series(name, cells) for name, cells in columns.items()]
    return {column.name: column.to_list() for column in type_columns(series, decimal_commas=True)[0]}


def test_decimal_commas_are_decided_by_all_columns():
    assert decimal(a=["0,5", "12"]) == {"a": [0.5, 12]}
    assert decimal(a=["1.234,5", "1.234"]) == {"a": [1234.5, 1234]}
    assert decimal(a=["1,5e3", ",5"]) == {"a": [1500, 0.5]}
    # 1,234 alone is rather 1.234, unless another column has decimal points. 1.234 beside 0,5 is rather 1234.
    assert decimal(a=["1,234", "12"]) == {"a": [1.234, 12]}
    assert decimal(a=["1,234", "12"], b=["0.5", "2"]) == {"a": [1234, 12], "b": [0.5, 2]}
    assert decimal(a=["1.234", "12", "NA"], b=["0,5", "2", "3"]) == {"a": [1234, 12, None], "b": [0.5, 2, 3]}
    assert decimal(a=["1.234", "12"], b=["5", "2"]) == {"a": [1.234, 12], "b": [5, 2]}
    assert decimal(a=["1,2,3", "4"]) == {"a": ["1,2,3", "4"]}


def test_values_survive_text_exactly():
    # What pandas writes is read back to the last bit, and pandas finds the same missing values.
    draw = np.random.default_rng(0)
    frame = pd.DataFrame(
        {
            "x": draw.normal(size=400) * 10.0 ** draw.integers(-300, 300, 400),
            "n": draw.integers(-(2**63), 2**63 - 1, 400),
            "few": pd.array(draw.integers(0, 5, 400), dtype="Int64"),
            "yes": draw.random(400) < 0.5,
            "word": draw.choice(["red", "a, b", 'say "hi"', "two\nlines", "Grün"], 400),
            "when": pd.Timestamp("2000-01-01") + pd.to_timedelta(draw.integers(0, 10**9, 400), unit="s"),
        }
    )
    for name in ("x", "few", "word", "when"):
        frame.loc[draw.random(400) < 0.2, name] = None
    text = pl.read_csv(frame.to_csv(index=False).encode(), infer_schema=False)
    columns, _ = type_columns(text.get_columns())
    assert [column.dtype for column in columns] == [
        *(pl.Float64, pl.Int64, pl.Int64, pl.Boolean, pl.String, pl.Datetime("us"))
    ]
    for column in columns:
        missing = frame[column.name].isna().to_numpy()
        assert column.is_null().to_numpy().tolist() == missing.tolist()
        expected = frame[column.name][~missing].tolist()
        assert column.drop_nulls().to_list() == expected
    again = pd.read_csv(io.StringIO(frame.to_csv(index=False)))
    assert again.isna().sum().tolist() == [column.null_count() for column in columns]
