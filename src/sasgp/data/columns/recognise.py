"""What the columns of a table hold, by their types and values: one finding per column, with the reason.

The rules look at the whole column. They ask in turn: is there anything in it; what type has it; how many different
values; are these in an order. Numbers are real or skewed, whichever explains them better among the rows that are most
alike in the whole table (`sasgp.data.columns.maps`). A user may say for any column what it is instead.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from sasgp.data.columns import cells
from sasgp.data.columns import levels as intervals
from sasgp.data.columns.cells import column_values
from sasgp.data.columns.column import KINDS, LEFT_OUT, Category, Column, Discrete, Kind, Number
from sasgp.data.columns.maps import best_map, curved_map, straight_map
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Finding", "recognise"]

FEW = 12  # different whole numbers that may be an ordinal scale
MOST_LEVELS = 50  # of a category that are kept apart; all others are one
COMPARED = 1000  # rows by which maps are compared
NEIGHBOURS, COMPONENTS = 15, 3  # rows that are most alike in the rest of the row, and by how many components
WIDEST_COUNT = 300  # the largest count that has an interval of its own
ID_NAME = re.compile(r"(.*[_\s.-])?(id|uuid|guid|key|index|row|rowid|unnamed.*|barcode|ssn)$", re.IGNORECASE)


@dataclass(frozen=True)
class Finding:
    """What a column was taken for, why, and how many of its cells are missing. `column` is None if it is left out."""

    name: str
    kind: str
    why: str
    missing: int
    column: Column | None = None


def recognise(frame: "pl.DataFrame", kinds: Mapping[str, str], ordered: Collection[str] = ()) -> list[Finding]:
    """One finding for each column of a table.

    Parameters
    ----------
    frame : polars.DataFrame
    kinds : mapping
        What the user says about some columns: one of `KINDS`.
    ordered : collection of str
        Columns whose categories are in an order.
    """
    problems = [_unknown_kind(frame, name, kind) for name, kind in kinds.items()]
    if wrong := [problem for problem in problems if problem]:
        raise InputError(" ".join(wrong), argument="columns")
    found, problems = [], []
    for series in frame:
        try:
            found.append(_recognised(series, kinds.get(series.name), series.name in ordered))
        except InputError as error:
            problems.append(str(error))
    if problems:
        raise InputError(" ".join(problems), argument="columns")
    return _with_maps(frame, found, fixed=kinds)


def _with_maps(frame: "pl.DataFrame", found: list[Finding], fixed: Collection[str]) -> list[Finding]:
    """The findings, with the map that fits each column of numbers best, unless the user said what the column is."""
    free = {one.name for one in found if isinstance(one.column, Number) and one.name not in fixed}
    if not free:
        return found
    some = frame[np.sort(np.random.default_rng(0).permutation(frame.height)[:COMPARED])]
    columns = [one.column for one in found if one.column is not None]
    scores = [column.scores(cells.values(column, some[column.name])[0]) for column in columns]
    S = np.concatenate(scores, axis=1)
    spread = np.nanstd(S, axis=0)
    S = np.nan_to_num((S - np.nanmean(S, axis=0)) / np.where(spread > 0, spread, 1))
    axes = np.linalg.svd(S, full_matrices=False)[2][:COMPONENTS].T  # [D, components]
    P, chosen, start = S @ axes, {}, 0
    for one, column in zip((one for one in found if one.column is not None), columns, strict=True):
        part = slice(start, start + column.width)
        start = part.stop
        if one.name in free and isinstance(column, Number):
            chosen[one.name] = _mapped(one, column, some, P - S[:, part] @ axes[part])
    return [chosen.get(one.name, one) for one in found]


def _mapped(one: Finding, column: Number, some: "pl.DataFrame", rest: "np.ndarray[Any, Any]") -> Finding:
    """A finding with its best map, given what the rest of each row says: its place [N, components]."""
    from sklearn.neighbors import NearestNeighbors

    x = column_values(some[one.name])
    present = ~np.isnan(x)
    if present.sum() <= NEIGHBOURS:
        return one
    nearest = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(rest[present]).kneighbors(return_distance=False)
    best = best_map(x[present], nearest)
    straight = best.base == "identity" and not best.knots
    kind: Kind = "date" if one.kind == "date" else "real" if straight else "skewed"
    column = replace(column, map=best, kind=kind)
    return replace(one, kind=kind, why=one.why + _shape(column), column=column)


def _unknown_kind(frame: "pl.DataFrame", name: str, kind: str) -> str:
    if name not in frame.columns:
        return (
            f"There is no column '{name}'. The table has {', '.join(frame.columns[:10])}{', …' * (frame.width > 10)}."
        )
    return "" if kind in KINDS else f"'{kind}' is no kind of column, for '{name}'. Choose one of {', '.join(KINDS)}."


def _recognised(series: "pl.Series", kind: str | None, ordered: bool) -> Finding:
    missing = series.null_count() + (int(series.is_nan().sum()) if series.dtype.is_float() else 0)
    asked = "you said so" if kind else ""

    def out(what: str, why: str) -> Finding:
        return Finding(series.name, what, asked or why, missing)

    if kind in ("id", "drop"):
        return out(kind, "")
    if missing == len(series):
        return out("empty", "no cell is filled")
    present = series.drop_nulls().drop_nans() if series.dtype.is_float() else series.drop_nulls()
    if series.dtype.is_float() and not present.is_finite().all():
        raise InputError(f"Column '{series.name}' has infinite values. Replace them, or leave them empty.")
    n_unique = present.n_unique()
    if n_unique == 1 and kind is None:
        return out("constant", f"always {_brief(present[0])}")
    guess, why = _guess(present, n_unique, ordered) if kind is None else (kind, asked)
    if guess in LEFT_OUT:
        return out(guess, why)
    return Finding(series.name, guess, why, missing, _fitted(present, guess, ordered))


def _guess(present: "pl.Series", n_unique: int, ordered: bool) -> tuple[str, str]:
    """The kind and the reason. Whether numbers are skewed is decided later."""
    import polars as pl

    dtype, N = present.dtype, len(present)
    if dtype == pl.Boolean:
        return "binary", "true or false"
    if dtype.is_temporal():
        return "date", str(dtype).partition("(")[0].lower()
    if dtype in (pl.String, pl.Categorical, pl.Enum):
        return _text(present, n_unique, ordered)
    if not dtype.is_numeric():
        raise InputError(
            f"Column '{present.name}' holds {dtype}, which has no place in a table. Drop it or flatten it."
        )
    if n_unique == 2:
        low, high = sorted(present.unique().to_list())
        return "binary", f"{_brief(low)} or {_brief(high)}"
    whole = dtype.is_integer() or bool((present == present.round()).all())
    low, high = float(present.min()), float(present.max())  # type: ignore[arg-type]
    if whole:
        if n_unique == N and (ID_NAME.fullmatch(present.name) or _is_counting(present)):
            return "id", "a different number in each row"
        if low in (0, 1) and n_unique >= 5 and high <= WIDEST_COUNT and _looks_counted(present, n_unique, low):
            return "count", f"whole numbers from {low:g} to {high:g}"
        if n_unique <= FEW and high - low <= 2 * FEW:
            return "ordinal", f"{n_unique} whole numbers from {low:g} to {high:g}"
        return "real", "whole numbers"
    if n_unique <= FEW and 10 * n_unique <= N:
        return "ordinal", f"{n_unique} different numbers from {low:g} to {high:g}"
    return "real", "numbers"


def _is_counting(present: "pl.Series") -> bool:
    """Whether whole numbers go up by one from row to row."""
    return len(present) > FEW and bool((present.cast(float).diff().drop_nulls() == 1).all())


def _looks_counted(present: "pl.Series", n_unique: int, low: float) -> bool:
    """Whether whole numbers look like counts and not like a scale: their largest values are rare, or they are many."""
    if n_unique > FEW:
        return True
    return low == 0 and float((present == present.max()).mean()) < 0.02  # type: ignore[arg-type]


def _text(present: "pl.Series", n_unique: int, ordered: bool) -> tuple[str, str]:
    import polars as pl

    N = len(present)
    if ordered and n_unique <= MOST_LEVELS:
        return "ordinal", f"{n_unique} categories in an order"
    if n_unique == 2:
        low, high = sorted(present.cast(pl.String).unique().to_list())
        return "binary", f"{_brief(low)} or {_brief(high)}"
    if n_unique > max(20, N // 2) or n_unique == N > 3:
        spaces = float(present.cast(pl.String).str.contains(r"\s").mean() or 0)  # type: ignore[arg-type]
        what = "id" if n_unique == N and spaces < 0.5 else "text"
        return what, f"{n_unique} different texts in {N} rows"
    if n_unique > MOST_LEVELS:
        top = present.alias("value").value_counts(sort=True)["count"][: MOST_LEVELS - 1].sum()
        if top < N / 2:
            return "text", f"{n_unique} different texts, few of them frequent"
        return "category", f"{n_unique} levels, of which the {MOST_LEVELS - 1} most frequent are kept apart"
    return "category", f"{n_unique} levels"


def _shape(column: Number) -> str:
    shapes = {"log": ", on a logarithmic scale", "asinh": ", with long tails"}
    return shapes.get(column.map.base, ", not normal" if column.map.knots else "")


def _fitted(present: "pl.Series", kind: str, ordered: bool) -> Column:
    """The column of a kind, fitted to its values."""
    import polars as pl

    if kind in ("real", "skewed", "date"):
        if not (present.dtype.is_numeric() or present.dtype.is_temporal()):
            raise InputError(f"Column '{present.name}' cannot be {kind}: it holds text ({_brief(present[0])}).")
        return _number(present, kind)
    counted = present.alias("value").value_counts()  # a column may be called count
    found, counts = counted["value"], counted["count"].to_numpy()
    if kind == "count":
        return _count(present)
    as_text = present.dtype in (pl.String, pl.Categorical, pl.Enum)
    values = found.cast(pl.String).to_list() if as_text else found.to_list()
    if kind == "category":
        return _category(present.name, values, counts)
    if ordered and as_text:
        places = {level: i for i, level in enumerate(present.dtype.categories.to_list())}  # type: ignore[attr-defined]
        order = np.argsort([places[value] for value in values])
    else:
        order = np.array(sorted(range(len(values)), key=values.__getitem__))
    if kind == "binary" and len(values) != 2:
        raise InputError(f"Column '{present.name}' cannot be binary: it has {len(values)} different values.")
    numbers = not as_text and present.dtype != pl.Boolean
    return Discrete(
        name=present.name,
        kind=kind,  # type: ignore[arg-type]
        sd=float(present.cast(pl.Float64).std() or 1) if numbers else 0.0,  # type: ignore[arg-type]
        levels=tuple(values[i] for i in order),
        cuts=tuple(intervals.cuts(counts[order]).tolist()),
    )


def _number(present: "pl.Series", kind: str) -> Number:
    x = column_values(present)
    found = curved_map(x, "log" if x.min() > 0 else "asinh") if kind == "skewed" else straight_map(x)
    low, high, sd = float(x.min()), float(x.max()), float(x.std())
    temporal = present.dtype.is_temporal()
    # Predictions stay near what was seen. They are not negative if no value is, and shares stay below 1
    span = high - low
    least = max(low - span, 0.0) if low >= 0 and not temporal else low - span
    most = 1.0 if least == 0 and 0.9 < high <= 1 else high + span
    unit = str(present.dtype).partition("(")[0].lower() if temporal else ""
    whole = not temporal and bool((x == np.rint(x)).all())
    return Number(name=present.name, kind=kind, sd=sd, map=found, low=least, high=most, whole=whole, unit=unit)  # type: ignore[arg-type]


def _count(present: "pl.Series") -> Discrete:
    x = column_values(present)
    if (x < 0).any() or (x != np.rint(x)).any():
        raise InputError(
            f"Column '{present.name}' cannot be a count: it has values such as {x[(x < 0) | (x % 1 != 0)][0]:g}."
        )
    if x.max() > 20 * WIDEST_COUNT:
        raise InputError(
            f"Column '{present.name}' has counts up to {x.max():g}, too many to have a probability each. Call it "
            "skewed."
        )
    top = int(x.max() * 1.5) + 5
    counts = np.bincount(x.astype(np.int64), minlength=top + 1)
    return Discrete(
        name=present.name,
        kind="count",
        sd=float(x.std()) or 1.0,
        levels=tuple(range(top + 1)),
        cuts=tuple(intervals.extended_cuts(counts).tolist()),
    )


def _category(name: str, values: list[Any], counts: "np.ndarray[Any, Any]") -> Category:
    order = np.lexsort((np.array([str(value) for value in values]), -counts))
    order = order[: MOST_LEVELS - 1] if len(order) > MOST_LEVELS else order
    order = np.array(sorted(order, key=lambda i: str(values[i])))
    n, kept = int(counts.sum()), counts[order]
    cut = [float(intervals.cuts(np.array([n - count, count]))[0]) for count in kept]
    merged = n - int(kept.sum())
    return Category(
        name=name,
        kind="category",
        levels=tuple(values[i] for i in order),
        cuts=tuple(cut),
        other=float(np.log((merged + intervals.SMOOTHING) / (n + 2 * intervals.SMOOTHING))),
        merged=merged > 0,
    )


def _brief(value: object) -> str:
    text = f"{value:g}" if isinstance(value, float) else str(value)
    return text if len(text) <= 20 else f"{text[:19]}…"
