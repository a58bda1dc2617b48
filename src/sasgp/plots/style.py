"""The style of the figures: colours, plain axes, and rows as small pictures."""

import io
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from cycler import cycler
from matplotlib import figure as matplotlib_figure
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgb, to_rgba_array
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from sasgp.data.images import as_images
from sasgp.data.labels import Labels, shorten
from sasgp.data.palette import CLASSES, N_SHAPES

__all__ = [
    "STYLE", "ColouredLabels", "Figure", "Pictures", "colour_bar", "gridded", "literal", "mosaic", "plain", "titled",
]  # fmt: skip

Array = NDArray[Any]

PALETTE = CLASSES
MARKERS = ("o", "^", "D")  # each repeats the colours
assert len(MARKERS) == N_SHAPES
UNLABELLED = "#4477AA"
OTHERS = "#777777"
UNCERTAINTY = LinearSegmentedColormap.from_list("uncertainty", ["#ffffff", "#9a9a9a"])  # white is certain
INK = "#333333"

#: For figures of your own: ``plt.style.use(plots.STYLE)``. The colours of the classes are then "C0", "C1", …
STYLE: dict[str, Any] = {
    "axes.prop_cycle": cycler(color=PALETTE),
    **{f"axes.spines.{side}": False for side in ("left", "right", "top", "bottom")},
    **{
        f"{axis}tick.{key}": value
        for axis in "xy"
        for key, value in (("major.size", 0), ("minor.size", 0), ("color", INK))
    },
    **{f"{axis}tick.labelsize": 8 for axis in "xy"},
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e5e5e5",
    "axes.labelcolor": INK,
    "axes.labelsize": 10,
    "axes.titlecolor": INK,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "text.color": INK,
    "legend.frameon": False,
    "legend.fontsize": 8,
    "figure.constrained_layout.use": True,
}
PICTURE_SIZE = 5.2  # inches
PROFILE = (24, 2, 64)  # height and width of a bar in pixels, and the largest number of bars


class Figure(matplotlib_figure.Figure):
    """A figure that a notebook shows as the value of a cell, with or without pyplot."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture, with more pixels for sharp screens, and the size that it is shown at."""
        buffer = io.BytesIO()
        self.savefig(buffer, format="png", dpi=1.5 * self.dpi)
        width, height = (round(self.dpi * inches) for inches in self.get_size_inches())
        return buffer.getvalue(), {"width": width, "height": height}


class ColouredLabels(Labels):
    """Labels with colours: one colour per class, or a colour scale."""

    @property
    def legend_width(self) -> float:
        """Width of the legend in inches."""
        if self.values is not None:
            return 0.7
        return 0.3 + 0.075 * max(len(shorten(name)) for name in self.names) if self.names else 0.0

    def colour(self, i: int) -> str:
        """Colour of class i."""
        if not self.names:
            return UNLABELLED
        return OTHERS if self.has_others and i == len(self.names) - 1 else PALETTE[i % len(PALETTE)]

    def colours(self) -> Array:
        """Colours of the points, RGBA [N, 4]."""
        if self.values is not None:
            return np.asarray(self.scale.to_rgba(self.values))
        palette = to_rgba_array([self.colour(i) for i in range(max(1, len(self.names)))])
        return np.asarray(palette[self.index])

    @property
    def scale(self) -> ScalarMappable:
        """The colour scale of labels that are numbers."""
        assert self.values is not None
        return ScalarMappable(Normalize(np.nanmin(self.values), np.nanmax(self.values)), "viridis")

    def heights(self) -> tuple[Array, tuple[float, float]]:
        """Heights, and their limits, of points in one dimension: the line of their class, or the label itself."""
        if self.values is not None:
            low, high = np.nanmin(self.values), np.nanmax(self.values)
            margin = 0.05 * (high - low) or 1.0
            return self.values, (float(low - margin), float(high + margin))
        spread = np.random.default_rng(0).uniform(-0.32, 0.32, len(self.index))
        return self.index + spread, (max(1, len(self.names)) - 0.5, -0.5)  # the first class is on top


class Pictures:
    """Rows as pictures: images if they have an image shape, otherwise one bar per feature.

    Parameters
    ----------
    image_shape
        (H, W), (C, H, W) with the colour planes first, or (H, W, C), where C is 1, 3 or 4. None for a table.
    X
        Rows [N, D]. The lowest and the highest value of each feature set the range of its bar.
    """

    def __init__(self, image_shape: Sequence[int] | None, X: Array) -> None:
        self.image_shape = image_shape
        self.low, self.high = X.min(0), X.max(0)

    def of(self, X: Array) -> Array:
        """Pictures [N, H, W, 3 or 4] of the rows, with values in [0, 1]."""
        if self.image_shape is not None:
            return as_images(X, self.image_shape)
        height, width, most = PROFILE
        share = np.clip((X - self.low) / np.where(self.high > self.low, self.high - self.low, 1), 0, 1)
        if share.shape[1] > most:  # neighbouring features share a bar
            share = np.stack([part.mean(1) for part in np.array_split(share, most, axis=1)], axis=1)
        filled = np.arange(height)[::-1, None] < 1 + np.round((height - 1) * share)[:, None]  # [N, H, D]
        filled = np.repeat(filled, width, axis=2)[..., None]
        return np.where(filled, to_rgb(UNLABELLED), 1.0)


def mosaic(tiles: Array) -> Array:
    """Images [lines, columns, H, W, C] as one image [lines·H, columns·W, C]."""
    lines, columns, height, width, channels = tiles.shape
    return tiles.swapaxes(1, 2).reshape(lines * height, columns * width, channels)


def plain(axes: Axes) -> None:
    """Remove the frame, the ticks and the grid, whatever the user's style is."""
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=INK, fontsize=10)


def gridded(axes: Axes, axis: Literal["both", "x", "y"] = "both") -> None:
    """Plain axes with faint grid lines behind the data."""
    plain(axes)
    axes.grid(axis=axis, color="#e5e5e5", lw=0.8)
    axes.set_axisbelow(True)


def colour_bar(axes: Axes, colours: ScalarMappable, name: str, place: tuple[float, float, float, float]) -> None:
    """A small colour bar at `place`: left, bottom, width and height in units of the axes."""
    inset = axes.inset_axes(place)
    upright = place[2] < place[3]
    figure = axes.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(colours, cax=inset, orientation="vertical" if upright else "horizontal")
    bar.locator = MaxNLocator(4 if upright else 2)  # labels side by side need more room than labels above each other
    inset.grid(visible=False)
    inset.tick_params(length=0, labelsize=7, labelcolor=INK, pad=2)
    inset.spines[:].set(color=INK, lw=0.4)
    if upright:
        bar.set_label(name, color=INK, fontsize=8)
    else:
        inset.text(1.06, 0.5, name, transform=inset.transAxes, va="center", color=INK, fontsize=8)


def literal(text: str) -> str:
    """Text of the user as matplotlib draws it unchanged: dollars do not start a formula, and no character is half."""
    return text.encode("utf-8", "replace").decode().replace("$", r"\$")


def titled(figure: Figure, title: str | None) -> Figure:
    """The figure, with a title if there is one."""
    if title:
        figure.suptitle(literal(title), color=INK, fontsize=12)
    return figure
