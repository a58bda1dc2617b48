"""Two choices in models of tables, on validation rows: the noise on levels, and when a number gets a map.

The rows of a table are split as in the question `tables`, its test rows are put away, and a quarter of the others is
the validation rows. `DITHER` is a share of the spread that a score has within the interval of a level. Maps of numbers
are a shift and a scale alone ("none"), also logarithms and inverse hyperbolic sines ("bases"), or also curves with
knots ("curved"), or these also where few values are different ("repeated"), which happens in diabetes and mpg.
Penguins, mpg and titanic are read from the folder of --file.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from typing import Any

import numpy as np

from sasgp import SASGP
from sasgp.data.columns import maps
from sasgp.data.columns import table as table_module
from sasgp.evaluation.tables import table_sums
from studies.questions.table_sets import rows, split
from studies.records import Record, Run
from studies.tables import count, mean_and_deviation
from studies.tables import table as markdown

SEEDS = (0, 1, 2)
MANY_SPLITS = ("diabetes", "mpg")  # three splits of the maps of these tables, and two of all else
DITHERS = (0.0, 0.2, 0.4, 0.6)
MAPS = ("none", "bases", "curved", "repeated")
CHOICES: dict[str, tuple[Sequence[Any], Sequence[str]]] = {
    "dither": (DITHERS, ("penguins", "mpg", "titanic")),
    "maps": (MAPS, ("wine", "breast-cancer", *MANY_SPLITS)),
}
SHOWN = {"nlpd": "NLPD", "rmse": "RMSE", "log_loss": "log loss", "accuracy": "accuracy"}


def runs(seed: int, quick: bool) -> list[Run]:
    """Every value of either choice, on three or four tables."""
    if quick:
        return [_run("maps", "wine", which, seed, 1) for which in MAPS[:2]]
    return [
        _run(choice, data, value, seed, None)
        for choice, (values, data_sets) in CHOICES.items()
        for data, value in product(data_sets, values)
        if (choice == "maps" and data in MANY_SPLITS) or (seed < 2 and value != "repeated")
    ]


def _run(choice: str, data: str, value: Any, seed: int, epochs: int | None) -> Run:
    settings = {"choice": choice, "data": data, "value": value, "max_epochs": epochs}
    return Run(f"tables-settings-{choice}-{data}-{value}", settings, seed)


def execute(run: Run) -> dict[str, Any]:
    """Fit with a choice, and measure the validation rows through the latent space."""
    chosen = dict(run.settings)
    train, valid = split(split(rows(chosen["data"], run.file), run.seed)[0], run.seed)
    with _set(chosen["choice"], chosen["value"]):
        # {} and not "auto", which takes diabetes for an array because its columns have one spread
        model = SASGP(columns={}, max_epochs=chosen["max_epochs"], random_state=run.seed).fit(train)
    columns = model.columns_
    assert columns is not None
    sums = table_sums(model, columns.values(valid), model.transform(valid))
    return {"metrics": sums.metrics(), "columns": sums.by_column()}


@contextmanager
def _set(choice: str, value: Any) -> Iterator[None]:
    """Give a constant of the package another value for a while."""
    before = table_module.DITHER, maps.GAIN, maps.CURVED_GAIN, maps.LEAST_DIFFERENT
    try:
        if choice == "dither":
            table_module.DITHER = value
        else:
            maps.GAIN = np.inf if value == "none" else before[1]
            maps.CURVED_GAIN = before[2] if value in ("curved", "repeated") else np.inf
            maps.LEAST_DIFFERENT = 0.0 if value == "repeated" else before[3]
        yield
    finally:
        table_module.DITHER, maps.GAIN, maps.CURVED_GAIN, maps.LEAST_DIFFERENT = before


def table(records: Sequence[Record]) -> str:
    """Mean and deviation over splits."""
    lines = []
    for choice, (values, data_sets) in CHOICES.items():
        for data, value in product(data_sets, values):
            asked = [
                r for r in records if [r["settings"][k] for k in ("choice", "data", "value")] == [choice, data, value]
            ]
            found = [record["results"]["metrics"] for record in asked]
            cells = [mean_and_deviation([one[key] for one in found if key in one], 3) for key in SHOWN]
            lines += [[choice, data, str(value), *cells, count(asked)]] if found else []
    return markdown(["choice", "data", "value", *SHOWN.values(), "splits"], lines)
