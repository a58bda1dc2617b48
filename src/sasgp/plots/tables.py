"""Models of tables in figures: rows beside what is decoded from them, and maps of the columns over the latent space.

Everything is in the user's units: numbers, dates, and levels by name with their probability. Numbers are placed on a
linear or logarithmic scale, as the column was modelled.
"""

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from numpy.typing import NDArray

from sasgp.data.columns import Category, Column, Discrete, Number
from sasgp.data.columns.cells import cells
from sasgp.data.labels import shorten
from sasgp.evaluation import table_numbers
from sasgp.plots.style import INK, PALETTE, Figure, literal, plain

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder
    from sasgp.plots.latent import View

__all__ = ["column_maps", "row_panels"]

Array = NDArray[Any]

INTERVAL = 0.9  # the share of new values that the intervals hold
MOST_COLUMNS = 40  # lines of a panel
MOST_MAPS = 24
GRID = 60  # points along each axis of a map
LEGEND = 6  # levels that are named below a map
DECODED, BAND, DATA, FAINT = PALETTE[0], PALETTE[1], "#B34700", "#777777"


# ---------------------------------------------------------------------------------------------------- rows


def row_panels(model: "Decoder", X: Any, Z: Any) -> Figure:
    """One panel per row of a table: a line per column, with what is decoded and, in another colour, the row's cell."""
    columns, values = model.columns_, table_numbers(model, X)
    mean, var = _moments(model, model.transform(X) if Z is None else Z)
    shown = [*columns.parts()][:MOST_COLUMNS]
    beside = math.ceil(math.sqrt(len(values) / 2))
    lines = math.ceil(len(values) / beside)
    height = 0.19 * len(shown) + 0.35
    figure = Figure(figsize=(1.0 + 3.5 * beside, height * lines + 0.6), layout="constrained")
    panels = figure.subplots(lines, beside, squeeze=False, sharey=True)
    for i, axes in enumerate(panels.flat):
        if i >= len(values):
            axes.set_axis_off()
            continue
        axes.set(xlim=(-0.04, 2.3), ylim=(len(shown) - 0.4, -0.6), xticks=[])
        axes.set_yticks(range(len(shown)), [literal(shorten(column.name, 20)) for _, column, _ in shown])
        axes.set_title(f"row {i}", loc="left", fontsize=8, color=INK, pad=2)
        plain(axes)
        axes.tick_params(labelsize=7)
    for line, (place, column, part) in enumerate(shown):
        draw = _draw_number if _is_number(column) else _draw_level
        draw(panels.flat, line, column, values[:, place], mean[:, part], var[:, part])
    _row_legend(figure, len(columns) - len(shown))
    return figure


def _draw_number(panels: Any, line: int, column: Any, values: Array, mean: Array, var: Array) -> None:
    """The mean as a dot on its interval, and the row's value as a ring, on a scale that holds them all."""
    tail = (1 - INTERVAL) / 2
    decoded, low, high = column.predict(mean, var), *(column.quantile(mean, var, share) for share in (tail, 1 - tail))
    text = _writer(column, np.concatenate([values, decoded]))
    least, most = _bounded(column, values, low), _bounded(column, values, high)
    first, last = float(np.nanmin(least)), float(np.nanmax(most))
    share = [(_scaled(column, part) - first) / (last - first or 1) for part in (decoded, low, high, values)]
    for i, axes in zip(range(len(values)), panels, strict=False):
        axes.plot([0, 1], [line, line], color="#e5e5e5", lw=0.8, zorder=0)
        axes.plot([share[1][i], share[2][i]], [line, line], color=BAND, lw=4, solid_capstyle="butt", zorder=1)
        axes.plot(share[0][i], line, "o", color=DECODED, ms=4, zorder=3)
        if not np.isnan(values[i]):
            axes.plot(share[3][i], line, "o", mfc="none", mec=DATA, mew=1.2, ms=5.5, zorder=4)
        _words(axes, line, text(decoded[i]), _own(values[i], text))


def _bounded(column: Column, values: Array, ends: Array) -> Array:
    """Values and ends of intervals on the column's scale."""
    return _scaled(column, np.concatenate([values, ends]))


def _draw_level(panels: Any, line: int, column: Any, values: Array, mean: Array, var: Array) -> None:
    """The predicted level with its probability as a bar, and the row's level."""
    p, codes = np.exp(column.log_probabilities(mean, var)), column.predict(mean, var).astype(np.int64)
    for i, axes in zip(range(len(values)), panels, strict=False):
        probability = float(p[i, codes[i]])
        axes.barh(line, 1, height=0.5, color="#eeeeee", zorder=0)
        axes.barh(line, probability, height=0.5, color=BAND, zorder=1)
        axes.text(0.03, line, _percent(probability), va="center", fontsize=6, color=INK, zorder=2)
        _words(axes, line, _level(column, codes[i]), _own(values[i], lambda code: _level(column, int(code))))


def _words(axes: Axes, line: int, decoded: str, own: str) -> None:
    axes.text(1.06, line, literal(shorten(decoded, 14)), va="center", fontsize=7, color=DECODED)
    colour, style = (FAINT, "italic") if own == "missing" else (DATA, "normal")
    axes.text(1.7, line, literal(shorten(own, 14)), va="center", fontsize=7, color=colour, style=style)


def _row_legend(figure: Figure, left_out: int) -> None:
    handles = [
        Line2D([], [], ls="", marker="o", color=DECODED, ms=4, label="decoded"),
        Line2D([], [], color=BAND, lw=4, label=f"{100 * INTERVAL:.0f} % interval, probability of a level"),
        Line2D([], [], ls="", marker="o", mfc="none", mec=DATA, mew=1.2, ms=5.5, label="data"),
    ]
    found = figure.legend(handles=handles, loc="outside upper right", ncols=3, frameon=False, fontsize=8)
    for text, colour in zip(found.get_texts(), (DECODED, INK, DATA), strict=True):
        text.set_color(colour)
    if left_out:
        figure.supxlabel(f"{left_out} more columns are not shown", fontsize=8, color=INK)


# ---------------------------------------------------------------------------------------------------- maps


def column_maps(model: "Decoder", view: "View") -> Figure:
    """One map of the latent space per column: what is decoded there. Colours fade where the decoder is uncertain."""
    columns = model.columns_
    blocks = [*view.decode(model, GRID)]
    mean, std = (np.concatenate([block[k] for block in blocks]).astype(np.float64) for k in (0, 1))
    doubt = std.mean(1) - std.mean(1).min()
    doubt = 0.85 * doubt / max(float(doubt.max()), 0.2 * float(std.mean(1).max()))  # small differences look small
    shown = [*columns.parts()][:MOST_MAPS]
    beside = min(4, math.ceil(math.sqrt(len(shown))))
    lines = math.ceil(len(shown) / beside)
    size = (2.5 * beside, (3.0 if view.is_plane else 1.3) * lines + 0.4)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(lines, beside, squeeze=False)
    for axes in panels.flat[len(shown) :]:
        axes.set_axis_off()
    for axes, (_, column, part) in zip(panels.flat, shown, strict=False):
        paint = _paint_number if _is_number(column) else _paint_levels
        colours = paint(axes, column, mean[:, part], np.square(std[:, part]))
        faded = (1 - doubt[:, None]) * colours + doubt[:, None]
        axes.imshow(
            faded.reshape(-1, GRID, 3),
            extent=(*view.limits(0), *(view.limits(1) if view.is_plane else (0, 1))),
            origin="lower",
            aspect="equal" if view.is_plane else "auto",
            interpolation="bilinear",
        )
        if view.is_plane:
            axes.scatter(*view.Z[:: max(1, len(view.Z) // 2000)].T, s=1.5, color=INK, alpha=0.25, linewidths=0)
            axes.set(xlim=view.limits(0), ylim=view.limits(1))
        axes.set(xticks=[], yticks=[])
        axes.set_title(literal(shorten(column.name, 30)), loc="left", fontsize=9, color=INK, pad=3)
        plain(axes)
    if len(shown) < len(columns):
        figure.supxlabel(f"{len(columns) - len(shown)} more columns are not shown", fontsize=8, color=INK)
    return figure


def _paint_number(axes: Axes, column: Any, mean: Array, var: Array) -> Array:
    """Colours [G, 3] of the decoded numbers, and a scale below the map."""
    import matplotlib

    values = column.predict(mean, var)
    text, scaled = _writer(column, values), _scaled(column, values)
    share = (scaled - scaled.min()) / (float(np.ptp(scaled)) or 1)
    viridis = matplotlib.colormaps["viridis"]
    bar = axes.inset_axes((0, -0.07, 1, 0.035))
    bar.imshow(np.linspace(0, 1, 256)[None], aspect="auto", cmap=viridis, extent=(0, 1, 0, 1))
    bar.set_yticks([])
    middle = values[np.abs(share - 0.5).argmin()]
    bar.set_xticks([0, 0.5, 1], [literal(text(v)) for v in (values.min(), middle, values.max())])
    bar.get_xticklabels()[0].set_horizontalalignment("left")
    bar.get_xticklabels()[2].set_horizontalalignment("right")
    plain(bar)
    bar.tick_params(labelsize=7, pad=2)
    return np.asarray(viridis(share)[:, :3])


def _paint_levels(axes: Axes, column: Any, mean: Array, var: Array) -> Array:
    """Colours [G, 3] of the most probable levels, as strong as they are probable, with their names below the map."""
    p, codes = np.exp(column.log_probabilities(mean, var)), column.predict(mean, var).astype(np.int64)
    palette = np.array([to_rgb(PALETTE[code % len(PALETTE)]) for code in range(len(column.levels))])
    strength = p[np.arange(len(p)), codes][:, None]
    present = np.bincount(codes, minlength=len(palette))
    common = np.sort(np.argsort(-present, kind="stable")[: min(LEGEND, int((present > 0).sum()))])
    handles = [Patch(color=palette[code], label=literal(shorten(_level(column, code), 16))) for code in common]
    if (present > 0).sum() > LEGEND:
        handles.append(Patch(color="white", label="…"))
    axes.legend(
        handles=handles,
        loc="upper left",
        bbox_to_anchor=(0, -0.01),
        borderaxespad=0,
        borderpad=0.2,
        ncols=3,
        frameon=False,
        fontsize=7,
        labelcolor=INK,
        handlelength=0.9,
        handletextpad=0.4,
        columnspacing=0.9,
    )
    return np.asarray(strength * palette[codes] + 1 - strength)


# ---------------------------------------------------------------------------------------------------- cells


def _moments(model: "Decoder", Z: Any) -> tuple[Array, Array]:
    """Means and variances [N, D] of the scores."""
    mean, std = model.predict_scores(Z, return_std=True)
    return mean.astype(np.float64), np.square(std, dtype=np.float64)


def _is_number(column: Column) -> bool:
    return isinstance(column, Number) or (isinstance(column, Discrete) and column.numeric)


def _scaled(column: Column, values: Array) -> Array:
    """Numbers on the scale of the column: linear, logarithmic, or in between."""
    if not isinstance(column, Number) or column.map.base == "identity":
        return values
    if column.map.base == "log":
        return np.asarray(np.log(np.maximum(values, np.finfo(np.float64).tiny)))
    return np.asarray(np.arcsinh((values - column.map.origin) / column.map.unit))


def _writer(column: Any, values: Array) -> Any:
    """A function that writes a number of the column, with the decimals that matter among these values."""
    if isinstance(column, Number) and column.unit:
        return lambda value: str(cells(column, np.array([value]))[0])[:16]
    known = values[np.isfinite(values)]
    spread = float(np.ptp(known)) if len(known) else 0.0
    decimals = max(0, -math.floor(math.log10(spread / 100))) if spread else 2
    whole = not isinstance(column, Number) or column.whole
    decimals = min(decimals, 1) if whole else decimals
    wide = isinstance(column, Number) and column.map.base != "identity" and known.max() > 100 * np.abs(known).min()

    def text(value: float) -> str:
        if whole and value % 1 == 0:
            return f"{value:.0f}"
        return f"{value:.3g}" if abs(value) >= 1e7 or decimals > 6 or wide else f"{value:.{decimals}f}"

    return text


def _own(value: float, text: Any) -> str:
    return "missing" if np.isnan(value) else str(text(value))


def _percent(probability: float) -> str:
    return ">99 %" if probability > 0.995 else f"{100 * probability:.0f} %"


def _level(column: Discrete | Category, code: int) -> str:
    return str(column.levels[code]) if code < len(column.levels) else "any other"
