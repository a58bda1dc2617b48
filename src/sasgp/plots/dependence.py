"""Partial dependence: what a regressor or classifier predicts on average if one input has a given value."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.rows import take_rows
from sasgp.data.tables import is_frame, read_frame
from sasgp.errors import InputError
from sasgp.plots.style import INK, PALETTE, Figure, gridded, literal, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from sasgp.estimators import SASGPClassifier, SASGPRegressor

__all__ = ["partial_dependence"]

Array = NDArray[Any]

ROWS = 100  # that predictions are averaged over
STEPS = 25  # of a number between its 5 and 95 % quantiles
MOST_LEVELS = 15  # of a category that are shown
FEW = 8  # different numbers that are shown as they are
COLUMNS, PANEL = 3, 3.0  # panels side by side, and their size in inches
MOST_CLASSES = 5  # that have a line each


def partial_dependence(
    model: "SASGPRegressor | SASGPClassifier",
    X: Any,
    features: Sequence[int | str],
    *,
    n_rows: int = ROWS,
    title: str | None = None,
) -> Figure:
    """Draw the average prediction if an input has a given value and all others are as in rows of X.

    The lines are those of scikit-learn's PartialDependenceDisplay. A regressor's have a band of ± 2 standard deviations
    of its predictions, averaged over the rows. A classifier has a line for each class: its probability.

    Parameters
    ----------
    model
        A fitted SASGPRegressor with one target, or a SASGPClassifier.
    X : array-like [N, P] or DataFrame
        Rows as for `predict`.
    features
        The inputs to vary, one panel each: names of columns, or their places.
    n_rows
        At most this many random rows of X are used.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    rows = _Rows.of(model, X, n_rows)
    places = [rows.place(feature) for feature in features]
    if not places:
        raise InputError("features must name at least one input.", argument="features")
    classes = getattr(model, "classes_", None)
    found = [rows.dependence(model, place) for place in places]
    columns = min(COLUMNS, len(places))
    lines = -(-len(places) // columns)
    figure = Figure(figsize=(PANEL * columns + 0.6, (PANEL - 0.3) * lines + 0.5), layout="constrained")
    panels = list(figure.subplots(lines, columns, squeeze=False).flat)
    for axes in panels[len(places) :]:
        axes.set_axis_off()
    shown = [0] if classes is None else [1] if len(classes) == 2 else list(range(min(len(classes), MOST_CLASSES)))
    limits = _range(found, shown)
    for axes, place, one in zip(panels, places, found, strict=False):
        for i, target in enumerate(shown):
            _draw(axes, rows, place, one, target, PALETTE[i], alone=len(shown) == 1)
        axes.set(ylim=limits, xlabel=literal(rows.names[place]), ylabel="" if axes is not panels[0] else "prediction")
        gridded(axes)
    if classes is not None:
        panels[0].set_ylabel("probability" if len(shown) > 1 else f"probability of {literal(str(classes[1]))}")
    if len(shown) > 1:
        assert classes is not None
        handles = [panels[0].plot([], [], color=PALETTE[i], lw=1.8)[0] for i in range(len(shown))]
        words = [literal(str(classes[i])) for i in shown]
        figure.legend(handles, words, frameon=False, loc="outside lower center", ncols=len(shown), labelcolor=INK)
    return titled(figure, title)


class _Rows:
    """Rows of an array or a table in which one input can be set."""

    def __init__(self, data: Any, names: list[str]) -> None:
        self.data, self.names = data, names

    @classmethod
    def of(cls, model: Any, X: Any, n_rows: int) -> "_Rows":
        some = np.sort(np.random.default_rng(0).permutation(len(X))[:n_rows])
        if not len(some):
            raise InputError("X must have at least one row.", argument="X")
        known = [str(name) for name in getattr(model, "feature_names_in_", ())]
        if is_frame(X):
            frame = read_frame(X).frame[some]
            frame = frame.select(known) if known and set(known) <= set(frame.columns) else frame
            return cls(frame, list(frame.columns))
        array = take_rows(np.asarray(X), some)
        return cls(array, known or [f"x{p}" for p in range(array.shape[1])])

    def place(self, feature: int | str) -> int:
        """The place of an input that is named, or counted from 0."""
        names = self.names
        if isinstance(feature, str) and feature not in names:
            few = ", ".join(names[:10]) + ", …" * (len(names) > 10)
            raise InputError(f"There is no input '{feature}'. There are {few}.", argument="features")
        place = names.index(feature) if isinstance(feature, str) else int(feature)
        if not 0 <= place < len(names):
            raise InputError(f"features must be from 0 to {len(names) - 1}. Got {place}.", argument="features")
        return place

    def column(self, place: int) -> Array:
        """The values of an input that are not missing."""
        if not is_frame(self.data):
            values: Array = self.data[:, place].astype(np.float64)
            return values[~np.isnan(values)]
        series = self.data[self.names[place]].drop_nulls()
        return np.array(series.to_list(), dtype=object if not series.dtype.is_numeric() else np.float64)

    def grid(self, place: int) -> tuple[Array, bool]:
        """The values that an input is set to, and whether they are levels of a category."""
        values = self.column(place)
        if not len(values):
            raise InputError(f"Input '{self.names[place]}' has no value in these rows.", argument="features")
        if values.dtype == object:
            levels, counts = np.unique(values.astype(str), return_counts=True)
            top = np.sort(np.argsort(-counts, kind="stable")[:MOST_LEVELS])
            first = {str(value): value for value in values[::-1]}
            return np.array([first[level] for level in levels[top]], dtype=object), True
        different = np.unique(values)
        if len(different) <= FEW:
            return different, False
        low, high = np.quantile(values, [0.05, 0.95])
        return np.linspace(low, high, STEPS), False

    def at(self, place: int, value: Any) -> Any:
        """All rows, with one input set to a value."""
        if not is_frame(self.data):
            array = self.data.astype(np.result_type(self.data.dtype, np.float32))
            array[:, place] = value
            return array
        import polars as pl

        name = self.names[place]
        whole = self.data[name].dtype.is_integer() and float(value).is_integer()
        kind = self.data[name].dtype if whole or not self.data[name].dtype.is_numeric() else pl.Float64
        return self.data.with_columns(pl.lit(value, dtype=kind).alias(name))

    def dependence(self, model: Any, place: int) -> dict[str, Any]:
        """The grid of an input, the average prediction [T, G] there, and its standard deviation [G] of a regressor."""
        grid, is_category = self.grid(place)
        means, stds = [], []
        for value in grid:
            rows = self.at(place, value)
            if hasattr(model, "predict_proba"):
                means.append(model.predict_proba(rows).mean(0))
                continue
            mean, std = model.predict(rows, return_std=True)
            means.append([mean.mean()])
            stds.append(std.mean())
        return {"grid": grid, "category": is_category, "mean": np.array(means).T, "std": np.array(stds)}


def _range(found: list[dict[str, Any]], shown: list[int]) -> tuple[float, float]:
    """The limits of all panels, with room for the bands."""
    ends = []
    for one in found:
        band = 2 * one["std"] if len(one["std"]) else 0.0
        ends += [one["mean"][shown] - band, one["mean"][shown] + band]
    low, high = min(float(end.min()) for end in ends), max(float(end.max()) for end in ends)
    margin = 0.05 * (high - low) or 0.05
    return low - margin, high + margin


def _draw(
    axes: "Axes", rows: _Rows, place: int, found: dict[str, Any], target: int, colour: str, *, alone: bool
) -> None:
    """One panel: scikit-learn's line or bars, and the band. Bars of several classes would hide each other."""
    from sklearn.inspection import PartialDependenceDisplay
    from sklearn.utils import Bunch

    grid, mean, is_category = found["grid"], found["mean"], found["category"]
    words = np.array([str(value) for value in grid]) if is_category else grid
    if is_category and not alone:
        axes.plot(range(len(grid)), mean[target], "o", color=colour)
        axes.set_xticks(range(len(grid)), words, rotation=90)
        return
    display = PartialDependenceDisplay(
        [Bunch(grid_values=[words], average=mean, individual=None)],
        features=[(place,)],
        feature_names=rows.names,
        target_idx=target,
        deciles={} if is_category else {place: np.quantile(rows.column(place), np.linspace(0.1, 0.9, 9))},
        is_categorical=[(is_category,)],
    )
    display.plot(ax=[axes], line_kw={"color": colour, "lw": 1.8}, bar_kw={"color": colour, "alpha": 0.7})
    if not is_category and len(grid) <= FEW and (grid == grid.round()).all():
        axes.set_xticks(grid, [f"{value:g}" for value in grid])  # codes such as 1 and 2 have nothing in between
    if len(found["std"]):
        m, band = mean[target], 2 * found["std"]
        if is_category:
            axes.errorbar(range(len(m)), m, band, fmt="none", color=INK, lw=1, capsize=3)
        else:
            axes.fill_between(grid, m - band, m + band, color=colour, alpha=0.18, lw=0)
