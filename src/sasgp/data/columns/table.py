"""A table as the decoder sees it: which columns it has, and their way to scores and back.

`Columns` is made from a table once (`Columns.recognised`) and kept with the model. `values` turns a table with the same
columns into numbers [N, C], where levels are codes and missing cells NaN; `scores` turns these into what the decoder is
trained on, [N, D]. The other methods turn the decoder's means and variances of scores into predictions, and back into a
table of the kind that the user had.
"""

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from sasgp.data.columns import cells, stored
from sasgp.data.columns.column import LEFT_OUT, Category, Column, Discrete
from sasgp.data.columns.recognise import Finding, recognise
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl

__all__ = ["Columns"]

Array = NDArray[np.float64]
# Without noise, the decoder learns that the scores of levels are exact, and is certain of levels that are wrong. With
# the whole spread of the intervals it is never certain. docs/measurements.md has the table that this was chosen by
DITHER = 0.2


@dataclass(frozen=True)
class Columns:
    """The columns that the decoder sees, in the table's order, and what was found about all columns.

    Parameters
    ----------
    columns : tuple of Column
    findings : tuple of Finding
        One per column of the table, also for those that are left out.
    """

    columns: tuple[Column, ...]
    findings: tuple[Finding, ...]

    @classmethod
    def recognised(cls, frame: "pl.DataFrame", kinds: Mapping[str, str], ordered: Collection[str] = ()) -> Self:
        """Look at a table, and fit the maps of its columns."""
        found = recognise(frame, kinds, ordered)
        columns = tuple(finding.column for finding in found if finding.column is not None)
        if not columns:
            what = ", ".join(f"'{one.name}' ({one.kind}: {one.why})" for one in found[:10])
            raise InputError(
                f"No column of the table is left to train on: {what}. Add columns, or say that one of these is of "
                "another kind.",
                argument="columns",
            )
        return cls(columns, tuple(found))

    def __len__(self) -> int:
        return len(self.columns)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the columns that the decoder sees."""
        return tuple(column.name for column in self.columns)

    @property
    def n_scores(self) -> int:
        """D, the number of scores of a row."""
        return sum(column.width for column in self.columns)

    def parts(self) -> Iterator[tuple[int, Column, slice]]:
        """Each column with its place and that of its scores."""
        start = 0
        for place, column in enumerate(self.columns):
            yield place, column, slice(start, start + column.width)
            start += column.width

    # ------------------------------------------------------------------------------------------------ table → numbers

    def values(self, frame: "pl.DataFrame") -> Array:
        """Numbers [N, C]: of levels the codes, of a missing cell NaN. Columns are found by name."""
        if absent := [name for name in self.names if name not in frame.columns]:
            raise InputError(
                f"The table has no column {_listed(absent)}, which the model was trained on. It has "
                f"{_listed(frame.columns[:10])}{', …' * (frame.width > 10)}.",
                argument="X",
            )
        found, problems, unseen = np.empty((frame.height, len(self))), [], []
        for place, column, _ in self.parts():
            try:
                found[:, place], new = cells.values(column, frame[column.name])
                unseen += [f"'{column.name}' ({', '.join(new[:3])}{', …' * (len(new) > 3)})"] if new else []
            except InputError as error:
                problems.append(str(error))
        if problems:
            raise InputError(" ".join(problems), argument="X")
        if unseen:
            warnings.warn(
                f"Columns have values that training did not see: {', '.join(unseen)}. They count as 'other' in a "
                "category, as the nearest level in a scale of numbers, and as missing in a scale of words or where "
                "there are two levels.",
                UserWarning,
                stacklevel=2,
            )
        return found

    def scores(self, values: Array) -> Array:
        """Scores [N, D] of numbers [N, C]."""
        return np.concatenate([column.scores(values[:, place]) for place, column, _ in self.parts()], axis=1)

    def dither(self) -> Array:
        """Standard deviations [D] of the noise on scores in training: a share of what is unknown within an interval."""
        return DITHER * np.concatenate([column.unknown() for column in self.columns])

    # ------------------------------------------------------------------------------------------------ scores → numbers

    def log_densities(self, values: Array, mean: Array, var: Array) -> Array:
        """Log p(value | z) [N, C] given means and variances [N, D] of the scores. NaN where a cell is missing."""
        return self._by_column(
            lambda column, part, place: column.log_density(values[:, place], mean[:, part], var[:, part])
        )

    def predict(self, mean: Array, var: Array) -> Array:
        """Predictions [N, C]: numbers, and codes of levels."""
        return self._by_column(lambda column, part, _: column.predict(mean[:, part], var[:, part]))

    def std(self, mean: Array, var: Array) -> Array:
        """Standard deviations [N, C] of numbers and scales; of other levels, the probability that another is right."""
        return self._by_column(lambda column, part, _: column.std(mean[:, part], var[:, part]))

    def quantile(self, mean: Array, var: Array, share: float) -> Array:
        """Quantiles [N, C] of numbers and ordered levels; the most probable level of a category."""

        def one(column: Column, part: slice, _: int) -> Array:
            if isinstance(column, Category):
                return column.predict(mean[:, part], var[:, part])
            return column.quantile(mean[:, part], var[:, part], share)

        return self._by_column(one)

    def probabilities(self, mean: Array, var: Array) -> dict[str, Array]:
        """Probabilities [N] of the levels of each column that has some, by the names column=level."""
        found: dict[str, Array] = {}
        for _, column, part in self.parts():
            if isinstance(column, Discrete | Category):
                p = np.exp(column.log_probabilities(mean[:, part], var[:, part]))
                found |= {f"{column.name}={level}": p[:, i] for i, level in enumerate(column.levels)}
        return found

    def sample(self, scores: Array, mean: Array, var: Array, draw: np.random.Generator) -> Array:
        """Numbers [N, C] of scores [N, D] that were drawn where they have these means and variances."""
        return self._by_column(
            lambda column, part, _: column.sample(scores[:, part], mean[:, part], var[:, part], draw)
        )

    def _by_column(self, one: Any) -> Array:
        return np.stack([one(column, part, place) for place, column, part in self.parts()], axis=1)

    # ------------------------------------------------------------------------------------------------ numbers → table

    def frame(self, values: Array) -> "pl.DataFrame":
        """A table in the user's own terms, from numbers [N, C]."""
        import polars as pl

        return pl.DataFrame([cells.cells(column, values[:, place]) for place, column, _ in self.parts()])

    # ------------------------------------------------------------------------------------------------ storage

    def as_json(self) -> dict[str, Any]:
        """All of it in values that JSON can hold."""
        return {
            "columns": list(map(stored.described, self.columns)),
            "findings": [_described(o) for o in self.findings],
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """What `as_json` returned. Raises ValueError or TypeError if it cannot have returned this."""
        columns = tuple(map(stored.rebuilt, found["columns"]))
        by_name = {column.name: column for column in columns}
        findings = tuple(Finding(**one, column=by_name.get(one["name"])) for one in found["findings"])
        known = [one.name for one in findings]
        if not by_name.keys() <= set(known) or len(by_name) != len(columns) or len(set(known)) != len(known):
            raise ValueError("its columns have no names of their own")
        if any(type(one.missing) is not int or not isinstance(one.kind + one.why + one.name, str) for one in findings):
            raise ValueError("its columns are not described")
        return cls(columns, findings)

    # ------------------------------------------------------------------------------------------------ words

    def report(self) -> list[tuple[str, str, str]]:
        """One line per column of the table: its name, its kind, and why; what is left out comes last."""
        lines = []
        for one in sorted(self.findings, key=lambda one: one.kind in LEFT_OUT):
            kind = f"left out: {one.kind}" if one.kind in LEFT_OUT else one.kind
            missing = f"; {one.missing} missing" if one.missing and one.kind not in LEFT_OUT else ""
            lines.append((one.name, kind, one.why + missing))
        return lines


def _described(one: Finding) -> dict[str, Any]:
    return {"name": one.name, "kind": one.kind, "why": one.why, "missing": one.missing}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)
