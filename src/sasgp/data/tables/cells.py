"""Cells of text as typed columns: missing values, numbers, booleans and dates.

A column has a type if all its cells have it; otherwise it stays text. Integers are Int64 and other numbers Float64.
Codes with leading zeros, and integers too long for Int64, stay text: as numbers they would lose something. A column
without any value has the type Null.

Commas in numbers are thousands separators in `1,234,567` and decimal commas in `0,5`. `1,234` may be either. Decimal
commas are expected only where cells are not separated by commas, and then the other columns of the file decide.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl

__all__ = ["MISSING", "sentinels", "type_columns", "unclear_dates"]

MISSING = (
    *("", "NA", "N/A", "n/a", "N.A.", "n.a.", "<NA>", "#N/A", "#NA", "NaN", "nan", "NAN", "-nan", "-NaN", "NaT"),
    *("null", "NULL", "Null", "None", "?", "-", "--", ".", "missing", "Missing", "MISSING"),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"),  # errors in the cells of a spreadsheet
)

CODE = r"^\s*0[0-9]+\s*$"
INTEGER = r"^[+-]?[0-9]+$"
THOUSANDS = r"^[+-]?(0|[1-9][0-9]{0,2}(,[0-9]{3})*)(\.[0-9]+)?$"
THOUSANDS_BY_POINTS = r"^[+-]?(0|[1-9][0-9]{0,2}(\.[0-9]{3})*)$"
DECIMAL_COMMA = r"^[+-]?(([0-9]+|[1-9][0-9]{0,2}(\.[0-9]{3})+)(,[0-9]+)?|,[0-9]+)([eE][+-]?[0-9]+)?$"

DAY = r"([0-9]{4}-[0-9]{1,2}-[0-9]{1,2}|[0-9]{4}/[0-9]{1,2}/[0-9]{1,2}|[0-9]{1,2}([./-])[0-9]{1,2}[./-][0-9]{4})"
TIME = r"(?:[T ]([0-9]{1,2}:[0-9]{2})(:[0-9]{2}(?:\.[0-9]+)?)? ?(Z|[+-][0-9]{2}:?[0-9]{2})?)?"
DATE = f"^{DAY}{TIME}$"
DAY_FORMATS = ("%Y-%m-%d", "%Y/%m/%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%m-%d-%Y", "%d-%m-%Y")

BOOLEANS = ("true", "false", "True", "False", "TRUE", "FALSE")

Commas = Literal["decimal", "thousands", "either"]


def type_columns(
    columns: "list[pl.Series]", *, decimal_commas: bool = False, missing: Sequence[str] = ()
) -> "tuple[list[pl.Series], list[str]]":
    """Give columns of text their types.

    Numbers may have decimal commas if `decimal_commas`, and `missing` has codes besides `MISSING`. The columns are
    taken out of the list one by one, so that all text and all values are never in memory together.

    Returns
    -------
    columns
        In the same order.
    ambiguous
        Names of columns that stay text because day and month of their dates cannot be told apart.
    """
    import polars as pl

    if not columns:
        return [], []
    codes = (*MISSING, *missing)
    done: list[pl.Series] = []
    ambiguous: list[str] = []
    commas: dict[int, Commas] = {}
    by_points: dict[int, pl.Series] = {}
    is_code = pl.DataFrame(columns).select(pl.all().str.contains(CODE).any()).row(0)  # for all at once, which is faster
    columns.reverse()
    while columns:
        text = columns.pop()
        column = _text(text, codes) if is_code[len(done)] else _plain(text, codes)
        if column.dtype.is_float() and decimal_commas and _all(text := _text(text, codes), THOUSANDS_BY_POINTS):
            by_points[len(done)] = text
        if column.dtype.is_numeric():
            column = sentinels(column, missing)
        elif not is_code[len(done)] and (kind := _commas(column)) is not None:
            commas[len(done)] = kind
        else:
            column, unclear = _date_or_boolean(column)
            ambiguous += [column.name] * unclear
        done.append(column)

    # The decimal mark is a comma if some column is sure of it, or if none has decimal points.
    sure = decimal_commas and "decimal" in commas.values()
    mark_is_comma = sure or (decimal_commas and not any(column.dtype.is_float() for column in done))
    rewritten = {i: _with_points(text) for i, text in by_points.items()} if sure else {}
    for i, kind in commas.items():
        if kind == "thousands" or (kind == "either" and not mark_is_comma):
            rewritten[i] = done[i].str.replace_all(",", "", literal=True)
        elif decimal_commas:
            rewritten[i] = _with_points(done[i])
    for i, text in rewritten.items():
        if (numbers := _plain(text, codes)).dtype.is_numeric():
            done[i] = sentinels(numbers, missing)
    return done, ambiguous


def unclear_dates(path: Path, ambiguous: Sequence[str]) -> list[str]:
    """What is said about the second result of `type_columns`."""
    return [
        f"{path}: the dates of '{name}' may begin with the day or the month, and stay text. Write them as 2020-12-31."
        for name in ambiguous
    ]


def sentinels(column: "pl.Series", missing: Sequence[str]) -> "pl.Series":
    """A column of numbers without those that stand for a missing value."""
    values = [float(code) for code in missing if re.fullmatch(r"[+-]?[0-9]+(\.[0-9]+)?", code)]
    if not values:
        return column
    if column.dtype.is_integer():
        found = column.is_in([int(value) for value in values if value.is_integer()])
    else:
        found = column.is_in(values)
    return column.set(found, None) if found.any() else column


def _all(text: "pl.Series", pattern: str) -> bool:
    """Whether all cells match. Most columns of another kind show it in their first cells."""
    return bool(text.head(100).str.contains(pattern).all() and text.str.contains(pattern).all())


def _plain(column: "pl.Series", codes: Sequence[str]) -> "pl.Series":
    """Numbers as most programs write them, or nothing at all, or else the text without blanks and missing codes."""
    import polars as pl

    text, numbers = column, column.cast(pl.Int64, strict=False)
    if not _complete(numbers, column):
        numbers = column.cast(pl.Float64, strict=False)
        if not _complete(numbers, column) or numbers.is_nan().any():
            text = _text(column, codes)
            integers, numbers = text.cast(pl.Int64, strict=False), text.cast(pl.Float64, strict=False)
            numbers = integers if _complete(integers, text) else numbers
    if text.null_count() == len(text):
        return pl.Series(column.name, [None] * len(text), dtype=pl.Null)
    if not _complete(numbers, text):
        return text
    return text if numbers.dtype.is_float() and text.str.contains(INTEGER).all() else numbers


def _text(column: "pl.Series", codes: Sequence[str]) -> "pl.Series":
    text = column.str.strip_chars()
    return text.set(text.is_in(codes), None)


def _commas(text: "pl.Series") -> Commas | None:
    """What the commas are if all cells are numbers with commas, or without."""
    import polars as pl

    if text.dtype != pl.String or not text.str.contains(",", literal=True).any():
        return None
    thousands, decimal = _all(text, THOUSANDS), _all(text, DECIMAL_COMMA)
    if thousands and decimal:
        return "either"
    return "thousands" if thousands else "decimal" if decimal else None


def _with_points(text: "pl.Series") -> "pl.Series":
    return text.str.replace_all(".", "", literal=True).str.replace(",", ".", literal=True)


def _date_or_boolean(text: "pl.Series") -> "tuple[pl.Series, bool]":
    """The column as booleans or dates if all its cells are, and whether they are dates of an unclear order."""
    import polars as pl

    if text.dtype != pl.String:
        return text, False
    if text.head(100).is_in(BOOLEANS).all() and text.is_in(BOOLEANS).all():
        return text.str.to_lowercase() == "true", False
    if not _all(text, DATE):
        return text, False
    parts = text.str.extract_groups(DATE).struct.unnest()
    day, _, minutes, seconds, zone = parts
    days = [parsed for form in DAY_FORMATS if _complete(parsed := day.str.to_date(form, strict=False), text)]
    if not days or not all(other.equals(days[0]) for other in days):
        return text, len(days) > 1
    if minutes.null_count() == len(minutes):
        return days[0].alias(text.name), False
    times = minutes.fill_null("00:00") + seconds.fill_null(":00")
    has_zones = zone.null_count() < len(zone)  # then all must have one, or the format does not fit
    written = days[0].dt.to_string("%Y-%m-%dT") + times + zone.fill_null("")
    form = "%Y-%m-%dT%H:%M:%S%.f" + "%#z" * has_zones
    moments = written.str.to_datetime(form, time_unit="us", strict=False).alias(text.name)
    if not _complete(moments, text):
        return text, False
    # Databases and spreadsheets write days as midnights.
    midnight = not has_zones and (moments.dt.truncate("1d") == moments).all()
    return (moments.dt.date() if midnight else moments), False


def _complete(parsed: "pl.Series", text: "pl.Series") -> bool:
    return parsed.null_count() == text.null_count()
