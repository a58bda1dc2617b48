"""Tables in Markdown, and the parts of pages that are made from records.

A page has a pair of markers for each part, and what stands between them is written by `python -m studies`:

    <!-- table1: made by python -m studies paper -->
    <!-- end of table1 -->
"""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from matplotlib.figure import Figure

from sasgp.data.files import replacing
from sasgp.errors import InputError

__all__ = [
    *(
        "NOTHING",
        "count",
        "filled",
        "footnotes",
        "mean_and_deviation",
        "number",
        "of_rows",
        "of_some",
        "parts",
        "publish",
    ),
    *("publish", "table"),
]

NOTHING = "–"
MIXED = "†"
DPI = 120
PART = re.compile(r"<!-- ([\w-]+): made by [^\n]*-->\n(.*?)<!-- end of \1 -->", re.DOTALL)

Figures = Mapping[str, Callable[[], Figure]]


# ---- numbers ----


def mean_and_deviation(values: Sequence[float], digits: int = 4) -> str:
    """Mean ± standard deviation over seeds; of one seed the number, of none a dash."""
    if not values:
        return NOTHING
    deviation = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{deviation}".replace("-", "−")


def number(value: Any, digits: int = 3) -> str:
    """A number, or a median with its quartiles, as a table shows them: three digits, no exponents."""
    if isinstance(value, Mapping):
        low, high = (number(q, digits) for q in value["quartiles"])
        return f"{number(value['median'], digits)} ({low}–{high})"
    if isinstance(value, float):
        places = max(0, digits - 1 - math.floor(math.log10(abs(value)))) if value else 0
        return f"{value:.{places}f}"
    return str(value)


def count(records: Sequence[Mapping[str, Any]]) -> str:
    """How many records a line of a table is of, marked if commits differ."""
    return f"{len(records)}{MIXED if len({record['commit'] for record in records}) > 1 else ''}"


def of_some(cell: str, values: Sequence[Any], records: Sequence[Any]) -> str:
    """A cell, with the number of records that it is of where that is not all of them."""
    return cell if not values or len(values) == len(records) else f"{cell} ({len(values)} of {len(records)})"


def footnotes(text: str) -> str:
    """A table with an explanation of what `count` and `of_some` wrote into it."""
    notes = []
    if MIXED in text:
        notes.append(f"{MIXED} Runs of several commits; each record names its own.")
    if few := re.search(r"\((\d+) of (\d+)\)", text):
        notes.append(f"({few[1]} of {few[2]}): {few[1]} of {few[2]} records have this number.")
    return "\n\n".join([text, " ".join(notes)]) if notes else text


# ---- tables ----


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns are also straight in a terminal."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = ["| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(text)


def of_rows(rows: Sequence[Mapping[str, Any]]) -> str:
    """A table of rows with the same keys, its numbers with three digits."""
    return table(list(rows[0]), [[number(value) for value in row.values()] for row in rows])


# ---- pages ----


def parts(page: str) -> dict[str, str]:
    """The parts of a page that are made from records, by name."""
    return {name: text.rstrip("\n") for name, text in PART.findall(page)}


def filled(page: str, contents: Mapping[str, str]) -> str:
    """A page with its parts written anew."""
    for name, content in contents.items():
        found = [match for match in PART.finditer(page) if match[1] == name]
        if len(found) != 1:
            raise InputError(
                f"The page has {len(found)} parts called {name}, and needs one: a line <!-- {name}: made by … --> and "
                f"a line <!-- end of {name} --> after it. Correct the page, or name a file that does not exist."
            )
        page = f"{page[: found[0].start(2)]}{content}\n{page[found[0].end(2) :]}"
    return page


def publish(page: Path, contents: Mapping[str, str], figures: Figures, group: str) -> list[Path]:
    """Write parts into a page, which is made if there is none, and figures into the folder images beside it."""
    if page.exists():
        text = page.read_text(encoding="utf-8")
    else:
        marks = (f"<!-- {name}: made by python -m studies {group} -->\n<!-- end of {name} -->\n" for name in contents)
        text = "\n".join([f"# Studies: {group}\n", *marks])
    text = filled(text, contents)
    written = [page]
    folder = page.parent / "images"
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in figures.items():
        written.append(folder / name)
        with replacing(written[-1]) as temporary:
            draw().savefig(temporary, dpi=DPI)
    with replacing(page) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return written
