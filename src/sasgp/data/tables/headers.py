"""Where a table of text begins: the names of its columns, or data.

The first line is a header in three cases: a cell that is not a number stands above a number, or no cell is a number, or
the cells count 0, 1, 2, … like the default column names of pandas. So `5.1,3.5,setosa` above `4.9,3.0,setosa` is data,
and `label,0,1` above `7,0,255` is a header. Without a header, columns are called x0, x1, … by their place in the file.

A first column without a name, as pandas and R write the names of rows, is called row. R also leaves its cell out of the
header.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sasgp.data.tables.cells import MISSING
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["check_names", "first_repeated", "header_names", "is_number", "name_columns", "name_rows"]

WITH_COMMAS = re.compile(r"[+-]?([0-9]{1,3}([,.][0-9]{3})*|[0-9]*)([.,][0-9]+)?")


def first_repeated(names: Iterable[str]) -> str | None:
    """The first name that occurred before, or None."""
    known: set[str] = set()
    for name in names:
        if name in known:
            return name
        known.add(name)
    return None


def is_number(cell: str) -> bool:
    """Whether a cell of a text file is a number or a missing value."""
    try:
        float(cell)
    except ValueError:
        return cell.strip() in MISSING
    return True


def header_names(first: Sequence[str], second: Sequence[str]) -> list[str] | None:
    """The names in the first row, as they are written, or None if it is data."""
    if not _is_header(first, second):
        return None
    names = [cell.strip() for cell in first]
    if len(second) == len(first) + 1 and second[-1].strip():  # not merely a separator at the end of each line
        return ["", *names]
    return names


def _is_header(first: Sequence[str], second: Sequence[str]) -> bool:
    named = first if first[0].strip() else first[1:]  # pandas leaves the name of its row index empty
    # Two columns are too few to distinguish counting from data.
    if len(named) > 2 and [cell.strip() for cell in named] == [str(i) for i in range(len(named))]:
        return True
    numeric = [_is_number(cell) for cell in first]
    below = second[1:] if len(second) == len(first) + 1 else second
    over_number = any(_is_number(cell) and not above for above, cell in zip(numeric, below, strict=False))
    return over_number or not any(numeric[1:] if not first[0].strip() and len(first) > 1 else numeric)


def _is_number(cell: str) -> bool:
    return is_number(cell) or WITH_COMMAS.fullmatch(cell.strip()) is not None


def name_columns(cells: "pl.DataFrame", names: Sequence[str], path: Path) -> tuple[dict[str, str], list[str]]:
    """Names for columns of text, by those that polars gave them, and notes about them.

    A column that has neither a name nor a value is left out: many programs end each line with a separator.
    """
    chosen = dict(zip(cells.columns, name_rows(names), strict=True))
    empty = [place for place, name in chosen.items() if not name and not cells[place].str.contains(r"\S").any()]
    notes = [f"{path}: {len(empty)} columns without names and values are left out."] if empty else []
    for place in empty:
        del chosen[place]
    check_names(list(chosen.values()), path)
    return chosen, notes


def name_rows(names: Sequence[str]) -> list[str]:
    """The names, with one for the first column if it has none: it holds the names of rows."""
    taken, row, i = set(names), "row", 0
    while row in taken:
        i += 1
        row = f"row_{i}"
    return [names[0] or row, *names[1:]] if names else []


def check_names(names: Sequence[str], what: object) -> None:
    """Raise one InputError about all columns without a name, names that occur twice, and names that are patterns."""
    problems = []
    if patterns := [f"'{name}'" for name in names if name.startswith("^") and name.endswith("$")]:
        problems.append(f"polars takes {_some(patterns)} for a pattern. Rename such columns.")
    if unnamed := [str(i) for i, name in enumerate(names, 1) if not name]:
        one = f"column {unnamed[0]} has no name. Name it."
        problems.append(one if len(unnamed) == 1 else f"columns {_some(unnamed)} have no name. Name them.")
    if twice := [f"'{name}'" for name, count in Counter(names).items() if count > 1 and name]:
        one = f"two columns are called {twice[0]}. Rename or drop one."
        problems.append(one if len(twice) == 1 else f"several columns are called {_some(twice)}. Rename them.")
    if problems:
        raise InputError(
            f"{what}: {' '.join([problems[0], *(f'{part[0].upper()}{part[1:]}' for part in problems[1:])])}"
        )


def _some(names: Sequence[str], most: int = 20) -> str:
    return ", ".join(names[:most]) + f" and {len(names) - most} more" * (len(names) > most)
