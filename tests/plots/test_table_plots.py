"""Figures of tables: what is drawn and written is what the model says, in the user's units."""

import io
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from matplotlib.colors import to_rgb
from matplotlib.patches import Rectangle

from sasgp import plots
from sasgp.data.columns import Number
from sasgp.evaluation.tables import table_pit
from sasgp.plots.style import PALETTE
from sasgp.plots.tables import DATA, DECODED, GRID


def words(axes, colour):
    """The words of a panel in this colour, from the top to the bottom."""
    found = [(text.get_position()[1], text.get_text()) for text in axes.texts if text.get_color() == colour]
    return [text for _, text in sorted(found)]


def test_each_row_has_a_panel_with_a_line_per_column(mixed):
    model, frame = mixed
    rows = frame[:3].with_columns(pl.when(pl.Series([False, True, True])).then(pl.col("mass")).alias("mass"))
    Z = model.embedding_[:3]
    figure = plots.reconstructions(model, rows, Z)
    figure.savefig(io.BytesIO(), format="png")
    panel = figure.axes[0]
    assert [tick.get_text() for tick in panel.get_yticklabels()] == frame.columns
    mean, low, high = model.predict(Z, return_interval=0.9)
    decoded = dict(zip(frame.columns, words(panel, DECODED), strict=True))
    assert float(decoded["length"]) == pytest.approx(mean["length"][0], abs=0.05)
    assert decoded["born"] == str(mean["born"][0])
    assert decoded["island"] == mean["island"][0]
    assert decoded["grade"] == str(mean["grade"][0])
    own = [name for name in frame.columns if name != "mass"]
    assert dict(zip(own, words(panel, DATA), strict=True))["visits"] == str(frame["visits"][0])
    assert "missing" in [text.get_text() for text in panel.texts]

    # The line of the lengths: where the values and the interval are, on one scale for all panels
    (band,) = (line for line in panel.lines if line.get_linewidth() == 4 and line.get_ydata()[0] == 0)
    ends = np.array([*low["length"], *high["length"], *rows["length"]])
    scale = (ends - ends.min()) / np.ptp(ends)
    np.testing.assert_allclose(band.get_xdata(), scale[[0, 3]], atol=1e-6)
    rings = [line.get_xdata()[0] for line in panel.lines if line.get_markeredgecolor() == DATA]
    assert rings[0] == pytest.approx(scale[6], abs=1e-6)

    # Bars of levels are as long as they are probable
    grade = model.probabilities(Z)[f"grade={mean['grade'][0]}"][0]
    line = frame.columns.index("grade")
    rectangles = [bar for bar in panel.patches if isinstance(bar, Rectangle)]
    bars = [bar.get_width() for bar in rectangles if round(bar.get_y() + 0.25) == line]
    assert bars == pytest.approx([1, grade])


def test_each_column_has_a_map_of_what_is_decoded(mixed):
    model, frame = mixed
    figure = plots.decoded_grid(model, title="maps")
    figure.savefig(io.BytesIO(), format="png")
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes if axes.get_title(loc="left")}
    assert list(panels) == frame.columns
    image = panels["island"].images[0]
    left, right, bottom, top = image.get_extent()
    x, y = (low + (high - low) * (np.arange(GRID) + 0.5) / GRID for low, high in ((left, right), (bottom, top)))
    Z = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    std = model.predict_scores(Z, return_std=True)[1].mean(1)
    certain = int(std.argmin())  # where nothing fades
    level = model.predict(Z[[certain]])["island"][0]
    levels = ("Biscoe", "Dream", "Torgersen")
    p = model.probabilities(Z[[certain]])[f"island={level}"][0]
    expected = p * np.array(to_rgb(PALETTE[levels.index(level)])) + 1 - p
    np.testing.assert_allclose(np.asarray(image.get_array()).reshape(-1, 3)[certain], expected, atol=2e-3)
    named = [text.get_text() for text in panels["island"].get_legend().get_texts()]
    assert set(named) == set(model.predict(Z)["island"])

    mass = model.predict(Z)["mass"].to_numpy()
    (scale,) = (child for child in panels["mass"].child_axes)
    ticks = [float(tick.get_text()) for tick in scale.get_xticklabels()]
    np.testing.assert_allclose([ticks[0], ticks[2]], [mass.min(), mass.max()], atol=1)


def test_names_of_columns_and_levels_are_no_formulas(mixed):
    model, _ = mixed
    text, old = "$x_{$\\frac \udcff", model.columns_
    named = {"length": {"name": text}, "island": {"levels": (text, text, text)}}
    try:
        model.columns_ = replace(old, columns=tuple(replace(one, **named.get(one.name, {})) for one in old.columns))
        figure = plots.decoded_grid(model)
        figure.savefig(io.BytesIO(), format="svg")
    finally:
        model.columns_ = old
    shown = text.replace("\udcff", "?").replace("$", r"\$")
    panels = {axes.get_title(loc="left"): axes for axes in figure.axes}
    assert shown in panels
    assert shown in {name.get_text() for name in panels["island"].get_legend().get_texts()}


def test_the_calibration_of_numbers_is_flat_where_rows_are_drawn_from_the_model(mixed):
    model, _ = mixed
    Z = np.repeat(model.embedding_[:40], 50, axis=0)
    mean, std = (part.astype(float) for part in model.predict_scores(Z, return_std=True))
    scores = mean + std * np.random.default_rng(0).normal(size=mean.shape)
    columns, values = model.columns_, np.full((len(Z), len(model.columns_)), np.nan)
    for place, column, part in columns.parts():
        if isinstance(column, Number):  # g⁻¹ of a score, without the limits of predictions
            values[:, place] = column.map.inverse(scores[:, part.start])
    values[::7, 0] = np.nan  # missing cells do not count
    counts = table_pit(model, values, Z)
    numbers = [column for column in columns.columns if isinstance(column, Number)]
    assert counts.sum() == len(Z) * len(numbers) - len(values[::7])
    # 12 000 draws in 10 parts: 1200 in each, with a standard deviation of √(1200 · 0.9) = 33
    parts = counts.reshape(10, -1).sum(1)
    np.testing.assert_allclose(parts, counts.sum() / 10, atol=5 * 33)
