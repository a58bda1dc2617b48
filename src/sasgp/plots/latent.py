"""The latent space over the decoder's uncertainty, and what the decoder makes of it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.lines import Line2D
from numpy.typing import ArrayLike, NDArray

from sasgp.data.labels import shorten
from sasgp.data.palette import MAX_CLASSES
from sasgp.errors import InputError
from sasgp.evaluation import decode_grid, shown_latents
from sasgp.plots.style import (
    INK,
    MARKERS,
    PALETTE,
    PICTURE_SIZE,
    UNCERTAINTY,
    ColouredLabels,
    Figure,
    Pictures,
    colour_bar,
    literal,
    mosaic,
    plain,
    titled,
)
from sasgp.plots.tables import column_maps

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder

__all__ = [
    "GRID",
    "View",
    "axis_name",
    "decoded_grid",
    "draw_legend",
    "draw_points",
    "latent_space",
    "latent_with_images",
    "view_of",
]

Array = NDArray[Any]

GRID = 80  # points along each axis where the uncertainty is computed
TILE_MARGIN = 0.1  # around a decoded image, as a share of its height


def latent_space(
    model: "Decoder",
    Z: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    axes: tuple[int, int] = (0, 1),
    title: str | None = None,
) -> Figure:
    """Draw latents over the decoder's uncertainty.

    Parameters
    ----------
    model
        A fitted model.
    Z
        Latents [N, Q]. None draws those of the training rows.
    labels
        N labels. Each of up to 30 classes has its own colour or marker; with more named classes, only the 29 most
        frequent ones do. Other numbers are shown by a colour scale.
    axes
        The two latent dimensions to show. For the uncertainty, the other dimensions are 0. A one-dimensional space is
        drawn as a strip with one line per class, or against the labels if they are numbers.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    view = view_of(model, Z, axes)
    known = ColouredLabels.from_array(labels, len(view.Z), MAX_CLASSES)
    size = (PICTURE_SIZE + known.legend_width, PICTURE_SIZE) if view.is_plane else (1.4 * PICTURE_SIZE, 3.2)
    figure = Figure(figsize=size, layout="constrained")
    _draw_latent(figure.subplots(), model, view, known)
    return titled(figure, title)


def decoded_grid(
    model: "Decoder",
    image_shape: Sequence[int] | None = None,
    *,
    Z: ArrayLike | None = None,
    n: int = 12,
    axes: tuple[int, int] = (0, 1),
    title: str | None = None,
) -> Figure:
    """Draw what is decoded on a grid over the latent space. Pictures fade where the decoder is uncertain.

    Parameters
    ----------
    model
        A fitted model.
    image_shape
        (H, W), (C, H, W) with the colour planes first, or (H, W, C), where C is 1, 3 or 4. None draws a row as one bar
        per feature, which ranges from the lowest to the highest decoded value. A model of a table has no use for it:
        each column gets a map of the latent space, in its own units.
    Z
        Latents that the grid covers. None takes those of the training rows.
    n
        Number of pictures along each axis. A one-dimensional latent space gives a single line of them.
    axes
        The two latent dimensions of the grid. The other dimensions are 0.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    view = view_of(model, Z, axes)
    if model.columns_ is not None:
        return titled(column_maps(model, view), title)
    height = PICTURE_SIZE if view.is_plane else PICTURE_SIZE / n + 0.8
    figure = Figure(figsize=(PICTURE_SIZE, height), layout="constrained")
    _draw_tiles(figure.subplots(), model, view, image_shape, n)
    return titled(figure, title)


def latent_with_images(
    model: "Decoder",
    image_shape: Sequence[int],
    Z: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    n: int = 16,
    axes: tuple[int, int] = (0, 1),
    title: str | None = None,
) -> Figure:
    """Draw `latent_space` and `decoded_grid` side by side, for the same part of the latent space.

    Parameters
    ----------
    model
        A fitted model.
    image_shape
        As for `decoded_grid`.
    Z
        Latents [N, Q]. None draws those of the training rows.
    labels
        N labels, as for `latent_space`.
    n
        Number of pictures along each axis.
    axes
        The two latent dimensions to show.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    view = view_of(model, Z, axes)
    known = ColouredLabels.from_array(labels, len(view.Z), MAX_CLASSES)
    if view.is_plane:
        figure = Figure(figsize=(2 * PICTURE_SIZE + known.legend_width, PICTURE_SIZE), layout="constrained")
        left, right = figure.subplots(1, 2)
    else:
        strip = 2 * PICTURE_SIZE / n  # inches: as high as an image is wide
        figure = Figure(figsize=(2 * PICTURE_SIZE, 3.6 + strip), layout="constrained")
        left, right = figure.subplots(2, 1, height_ratios=[2.2, strip])
    _draw_latent(left, model, view, known)
    _draw_tiles(right, model, view, image_shape, n)
    if not view.is_plane:
        right.set_box_aspect(None)  # as wide as the panel above
    left.set_title("latent space, grey where the decoder is uncertain", loc="left", color=INK, fontsize=9)
    right.set_title("what is decoded there", loc="left", color=INK, fontsize=9)
    return titled(figure, title)


# ---------------------------------------------------------------------------------------------------- the plane


@dataclass(frozen=True)
class View:
    """The part of the latent space that a figure shows.

    `Z` are the points [N, 1 or 2] in the dimensions `dims`. `centre` and `half` describe the square around them. It is
    as long in both directions, so that distances can be compared.
    """

    Z: Array
    dims: tuple[int, ...]
    n_components: int
    centre: Array
    half: float

    @property
    def is_plane(self) -> bool:
        return len(self.dims) == 2

    def limits(self, axis: int) -> tuple[float, float]:
        return float(self.centre[axis] - self.half), float(self.centre[axis] + self.half)

    def ticks(self, axis: int, n: int) -> Array:
        """Centres of n cells of equal width between the limits."""
        return self.centre[axis] + self.half * ((2 * np.arange(n) + 1) / n - 1)

    def decode(self, model: "Decoder", n: int) -> Iterator[tuple[Array, Array]]:
        """Blocks of means and standard deviations [B, D] on a grid of n·n points, or n points in one dimension."""
        return decode_grid(model, [self.ticks(axis, n) for axis in range(len(self.dims))], self.dims)


def view_of(model: "Decoder", Z: ArrayLike | None, axes: tuple[int, int]) -> View:
    """The part of the latent space around latents Z, or around those of the training rows."""
    Q = model.n_components_
    points = shown_latents(model, Z)
    dims = (0,) if Q == 1 else tuple(int(axis) for axis in axes)
    if Q > 1 and not (len(dims) == 2 and dims[0] != dims[1] and all(0 <= axis < Q for axis in dims)):
        raise InputError(f"axes must be two different dimensions from 0 to {Q - 1}. Got {axes}.", argument="axes")
    points = points[:, list(dims)]
    low, high = points.min(0), points.max(0)
    half = 0.54 * float((high - low).max()) or 1.0  # a margin of 4 % on either side
    return View(points, dims, Q, (low + high) / 2, half)


def _draw_latent(axes: Axes, model: "Decoder", view: View, labels: ColouredLabels) -> None:
    points, vertical = view.Z, view.limits(1) if view.is_plane else (0.0, 0.0)
    if not view.is_plane:
        height, vertical = labels.heights()
        points = np.column_stack([points, height])

    std = np.concatenate([std.mean(1) for _, std in view.decode(model, GRID)])
    shades = Normalize(std.min(), std.min() + _range(std))
    background = axes.imshow(
        std.reshape(-1, GRID),  # a single line in one dimension
        extent=(*view.limits(0), *vertical),
        origin="lower",
        aspect="equal" if view.is_plane else "auto",
        cmap=UNCERTAINTY,
        norm=shades,
        interpolation="bilinear",
        zorder=0,
    )
    draw_points(axes, points, labels)
    axes.set(xlim=view.limits(0), ylim=vertical, xlabel=axis_name(view, 0))
    plain(axes)
    # Small and below the left corner, where it does not take space from the picture
    below = -0.115 if view.is_plane else -0.3
    colour_bar(axes, background, "predictive standard deviation", (0, below, 0.3, 0.018 if view.is_plane else 0.045))
    if view.is_plane:
        axes.set_ylabel(axis_name(view, 1))
        if labels.values is not None:
            colour_bar(axes, labels.scale, "label", (1.03, 0.55, 0.025, 0.45))
        elif labels.names:
            draw_legend(axes, labels)
    elif labels.values is not None:
        axes.set_ylabel("label")
    else:
        axes.set_yticks(range(len(labels.names)), [literal(shorten(name)) for name in labels.names])


def draw_points(axes: Axes, points: Array, labels: ColouredLabels) -> None:
    """One scatter per marker. Points are drawn in random order, so that the last class does not cover the others."""
    n = len(points)
    order = np.random.default_rng(0).permutation(n)
    colours, markers = labels.colours(), labels.index // len(PALETTE)
    for marker in np.unique(markers):
        chosen = order[markers[order] == marker]
        axes.scatter(
            points[chosen, 0],
            points[chosen, 1],
            s=float(np.clip(60_000 / n, 2.0, 26.0)),
            c=colours[chosen],
            marker=MARKERS[marker],
            alpha=float(np.clip(3.2 * n**-0.2, 0.4, 0.9)),
            linewidths=0.3 if n <= 5000 else 0,
            edgecolors="white",
            rasterized=n > 5000,
            zorder=2,
        )


def draw_legend(axes: Axes, labels: ColouredLabels) -> None:
    """The classes, to the right of the axes."""
    entries = [
        Line2D([], [], ls="", ms=6, marker=MARKERS[i // len(PALETTE)], color=labels.colour(i), label=name)
        for i, name in enumerate(map(literal, map(shorten, labels.names)))
    ]
    axes.legend(
        handles=entries,
        loc="upper left",
        bbox_to_anchor=(1.01, 1.0),
        borderaxespad=0,
        borderpad=0,
        frameon=False,
        fontsize=8,
        labelcolor=INK,
        handletextpad=0.1,
        labelspacing=0.3,
    )


def _draw_tiles(axes: Axes, model: "Decoder", view: View, image_shape: Sequence[int] | None, n: int) -> None:
    if n < 1:
        raise InputError(f"n must be at least 1. Got {n}.", argument="n")
    blocks = [(mean, std.mean(1)) for mean, std in view.decode(model, n)]
    means = np.concatenate([mean for mean, _ in blocks])
    images = Pictures(image_shape, means).of(means)
    std = np.concatenate([std for _, std in blocks])
    doubt = ((std - std.min()) / _range(std))[:, None, None, None]
    images = np.minimum((1 - doubt) * images + doubt, 1)  # towards white
    margin = max(1, round(TILE_MARGIN * images.shape[1]))
    images = np.pad(images, [(0, 0), (margin, margin), (margin, margin), (0, 0)], constant_values=1)
    tiles = images.reshape(-1, n, *images.shape[1:])[::-1]  # the first line of an image is at the top
    axes.imshow(
        mosaic(tiles),
        extent=(*view.limits(0), *(view.limits(1) if view.is_plane else (0, tiles.shape[2] / tiles.shape[3]))),
        aspect="auto",
        interpolation="bilinear",
    )
    axes.set_box_aspect(tiles.shape[2] / tiles.shape[3] * len(tiles) / n)
    axes.set_xlabel(axis_name(view, 0))
    if view.is_plane:
        axes.set_ylabel(axis_name(view, 1))
    else:
        axes.set_yticks([])
    plain(axes)


def _range(std: Array) -> float:
    """Range of the uncertainty scale: at least a fifth of the maximum, so that small differences look small."""
    return max(float(np.ptp(std)), 0.2 * float(std.max()))


def axis_name(view: View, axis: int) -> str:
    """What is written at an axis: the latent dimension."""
    name = f"$z_{{{view.dims[axis]}}}$"
    return name + "   (other dimensions at 0)" * (axis == 0 and view.n_components > 2)
