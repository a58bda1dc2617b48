"""Tables and figures of the questions, made from records: for pages of the docs and the terminal."""

from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from studies.catalogue import finished, study
from studies.records import ROOT, Record
from studies.tables import footnotes

__all__ = ["OTHERS", "PAGE", "REGRESSION", "REGRESSION_PARTS", "contents", "others", "pictures", "tables"]

PAGE = ROOT / "docs" / "how-good.md"
PARTS = ("infinite-mnist", "robustness")  # modules with `part(records)`
OTHERS = {  # pages, and the questions whose tables they have
    ROOT / "docs" / "measurements.md": (
        *(
            "encoder-noise-rows",
            "precision",
            "short-runs",
            "last-stage",
            "nearest-rows",
            "tables",
            "tables-settings",
            "regression",
            "hyperparameters",
            "neighbours",
            "geodesics",
            "mutants",
        ),
    ),
    ROOT / "docs" / "how-good-imputation.md": ("imputation", "not-at-random", "missing-pixels", "missing-memory"),
}
REGRESSION = ROOT / "docs" / "how-good-prediction.md"
REGRESSION_PARTS = ("regression", "neighbours", "classification")  # modules with `part(records)`
PICTURES = {"infinite-mnist": "infinite-mnist.png", "feature-noise": "calibration.png"}  # with `figure(records)`


def _found(name: str, out: Path, quick: bool) -> tuple[Any, list[Record]]:
    one = study("questions", name)
    return import_module(one.executor), finished(one, out, quick)


def tables(studies: Iterable[str], out: Path, quick: bool) -> dict[str, str]:
    """The tables of questions, as far as there are records."""
    found = {name: _found(name, out, quick) for name in studies}
    return {name: footnotes(module.table(records)) for name, (module, records) in found.items() if records}


def contents(out: Path, quick: bool) -> dict[str, str]:
    """The parts of the page."""
    return _parts(PARTS, out, quick)


def _parts(names: Iterable[str], out: Path, quick: bool) -> dict[str, str]:
    found = {name: _found(name, out, quick) for name in names}
    return {
        name: footnotes(module.part(records)) if records else f"Not run yet: `python -m studies questions {name}`."
        for name, (module, records) in found.items()
    }


def others(out: Path, quick: bool) -> dict[Path, dict[str, str]]:
    """The parts of other pages."""
    found = {page: tables(names, out, quick) for page, names in OTHERS.items()}
    return found | {REGRESSION: _parts(REGRESSION_PARTS, out, quick)}


def pictures(out: Path, quick: bool) -> dict[str, Callable[[], Figure]]:
    """The figures that there are records for, by the names of their files."""
    found = {name: _found(name, out, quick) for name in PICTURES}
    return {PICTURES[name]: partial(module.figure, records) for name, (module, records) in found.items() if records}
