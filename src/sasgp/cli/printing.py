"""How commands print results: tables with colours on a terminal, plain lines elsewhere, or one JSON object.

A command shows text while it works, and returns what JSON has. `Printed` says which of both is printed.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from sasgp.cli.arguments import TEXT, Printed

__all__ = ["AT_LENGTH", "THROUGH", "Line", "Result", "Section", "as_json", "metric_lines", "printing", "show"]

Line = tuple[str, str | Path, str]  # name, value, note
Section = tuple[str, list[Line]]  # heading, lines
Result = dict[str, Any] | None  # what a command prints with --json; None in all processes but the first

PRINTED: ContextVar[Printed] = ContextVar("PRINTED", default=TEXT)

THROUGH = "through the latent space, z = encoder(x)"
METRICS = {
    "rmse": ("RMSE", ""),
    "mae": ("MAE", ""),
    "crps": ("CRPS", "of numbers, in standard deviations; lower is better"),
    "accuracy": ("accuracy", "of levels: categories, scales, yes or no"),
    "log_loss": ("log loss", "of levels, nats per cell; lower is better"),
    "nlpd": ("NLPD", "nats per value, may be negative; lower is better"),
    "bits": ("bits per value", "mass of each 8-bit value under its prediction; lower is better"),
    "coverage_50": ("50 % intervals", "share of the values inside them; .50 is calibrated"),
    "coverage_90": ("90 % intervals", ""),
    "coverage_99": ("99 % intervals", ""),
    "knn_1": ("1-NN accuracy", ""),
    "knn_15": ("15-NN accuracy", ""),
    "knn_r2_15": ("15-NN R²", "of the labels, which are measurements; 1 at best"),
    "geodesic_knn_1": ("1-NN, geodesic", ""),
    "euclidean_knn_1": ("1-NN, Euclidean", "of the same rows"),
    "geodesic_knn_15": ("15-NN, geodesic", ""),
    "euclidean_knn_15": ("15-NN, Euclidean", ""),
    "geodesic_knn_r2_15": ("R², geodesic", ""),
    "euclidean_knn_r2_15": ("R², Euclidean", "of the same rows"),
    "trustworthiness": ("trustworthiness", "whether neighbours in z are neighbours in x; 1 at best, .5 by chance"),
    "continuity": ("continuity", "whether neighbours in x are neighbours in z"),
    "neighbour_recall": ("15-NN recall", "share of the neighbours in x that are neighbours in z"),
    "triplets": ("triplets in order", "the arrangement as a whole; 1 at best, .5 by chance"),
    "silhouette": ("silhouette", "how well z separates the labels; −1 to 1"),
}
AT_LENGTH = ("continuity", "neighbour_recall", "silhouette")  # printed by `evaluate` alone


def metric_lines(values: dict[str, Any], notes: Mapping[str, str | None]) -> list[Line]:
    """One line per metric. `notes` replace the usual ones."""
    units = f"in {values['units']} of each column" if "units" in values else ""
    own = {key: "; ".join(filter(None, (units, notes.get(key)))) for key in ("rmse", "mae")}
    return [
        (name, f"{values[key]:.4f}", own.get(key) or notes.get(key) or note)
        for key, (name, note) in METRICS.items()
        if key in values
    ]


def show(sections: list[Section]) -> None:
    """Print sections as tables with colours on a terminal, elsewhere as plain lines that are never wrapped.

    With --quiet and --json, nothing is printed.
    """
    if not PRINTED.get().as_text:
        return
    console = Console()
    for i, (heading, lines) in enumerate(sections):
        title = "\n" * (i > 0) + heading
        if console.is_terminal:
            table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
            table.add_column(style="cyan", no_wrap=True)
            table.add_column(overflow="fold", style="green")
            table.add_column(style="dim")
            for name, value, note in lines:
                # Some terminals make a path clickable
                link = f"link {value.resolve().as_uri()}" if isinstance(value, Path) else ""
                table.add_row(Text(name), Text(str(value), style=link), Text(note))
            if title:
                console.print(Text(title, style="bold"))
            console.print(table)
        else:
            names, values = (max((len(str(line[part])) for line in lines), default=0) for part in (0, 1))
            text = [f"{name:<{names}}  {value!s:<{values}}  {note}".rstrip() for name, value, note in lines]
            sys.stdout.write("\n".join([*([title] if title else []), *text]) + "\n")


@contextmanager
def printing(printed: Printed) -> Iterator[None]:
    """Let `show` print text, or nothing, in the block."""
    token = PRINTED.set(printed)
    try:
        yield
    finally:
        PRINTED.reset(token)


def as_json(result: Mapping[str, Any]) -> str:
    """One line of JSON. Numbers have all their digits. JSON has no NaN and no infinity: they become null."""
    return json.dumps(_plain(result), allow_nan=False, ensure_ascii=False)


def _plain(value: Any) -> Any:
    """A value as JSON knows it: arrays are lists, and paths are text."""
    if hasattr(value, "tolist"):  # of numpy, whose numbers are no numbers of JSON
        value = value.tolist()
    if isinstance(value, Mapping):
        return {str(name): _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if value is None or isinstance(value, bool | int | str) else str(value)
