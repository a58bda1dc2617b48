"""All studies by group and name. Nothing heavy is imported before a study is run.

A study of `questions` or `benchmarks` is a module. The first line of its docstring says what it is about, and it has

    runs(seed, quick)    its runs, the most important first; those that do not depend on the seed are the same for all.
                         Without it, the study is one run of its own name, whose one setting is `quick`
    execute(run)         do one of them and return what was measured; under "arrays" what goes into a .npz file
    table(records)       what the records say, in Markdown

and, where they are not the usual ones, SEEDS. The studies of `paper` are the functions in `paper/listing.py`.
"""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from studies import records
from studies.records import Record, Run

__all__ = ["GROUPS", "Study", "finished", "names", "study", "summary"]

GROUPS = {
    "paper": "the paper's tables and figures, and what goes beyond them",
    "questions": "smaller questions that the docs answer",
    "benchmarks": "how fast, as ratios measured side by side",
}
MODULES = {
    "questions": (
        *("encoder-noise", "encoder-noise-rows", "feature-noise", "oil-flow", "dimensions", "scores", "anomalies"),
        *("evidence-digits", "refine", "positions", "lengthscales", "nearest-rows", "inits", "layout-encoders"),
        *("late-active-sets", "last-stage", "robustness", "two-ranks", "kill-test", "infinite-mnist", "imputation"),
        *("not-at-random", "missing-pixels", "missing-memory", "tables", "tables-settings", "geodesics"),
        *("regression", "hyperparameters", "neighbours", "classification", "precision", "mutants"),
        "short-runs",
    ),
    "benchmarks": (
        *("floor", "autograd", "peers", "scaling", "growth", "quality", "decoder", "inference", "startup", "shares"),
        *("weight", "scale"),
    ),
}
SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Study:
    """A list of runs, and the module that can do them."""

    group: str
    name: str
    seeds: Sequence[int]
    runs: Callable[[int, bool], Sequence[Run]]
    executor: str

    def execute(self, run: Run) -> dict[str, Any]:
        """Do one of the runs and return what was measured."""
        found: dict[str, Any] = import_module(self.executor).execute(run)
        return found


def names(group: str) -> tuple[str, ...]:
    """The studies of a group, in the order in which they are run."""
    if group == "paper":
        from studies.paper.listing import STUDIES

        return tuple(STUDIES)
    return MODULES[group]


def study(group: str, name: str) -> Study:
    """A study by its name."""
    if group == "paper":
        from studies.paper import listing

        return Study(group, name, SEEDS, partial(listing.runs, name), "studies.paper.training")
    path = _module(group, name)
    module = import_module(path)
    runs = getattr(module, "runs", lambda seed, quick: [Run(name, {"quick": quick})])
    return Study(group, name, getattr(module, "SEEDS", SEEDS), runs, path)


def summary(group: str, name: str) -> str:
    """One line about a study, read without importing it."""
    if group == "paper":
        from studies.paper.listing import STUDIES

        text = STUDIES[name].__doc__
    else:
        path = Path(__file__).parents[1].joinpath(*_module(group, name).split(".")).with_suffix(".py")
        text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (text or "").partition("\n")[0]


def finished(one: Study, out: Path, quick: bool) -> list[Record]:
    """The records of a study's finished runs, for whatever seeds there are."""
    runs = {run.title: run for seed in records.seeds(out) or [0] for run in one.runs(seed, quick)}
    return [found for run in runs.values() if (found := records.finished(run, out)) is not None]


def _module(group: str, name: str) -> str:
    return f"studies.{group}.{name.replace('-', '_')}"
