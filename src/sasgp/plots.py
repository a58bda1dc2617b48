"""Figures of a trained decoder: its latent space, what it decodes there, and how it was trained.

    from sasgp import plots

    plots.latent_space(model, labels=y).savefig("latent.png")
    plots.latent_with_images(model, (28, 28), labels=y).savefig("latent.png")
    plots.training_curve(model.history_).savefig("loss.png")

Every function returns a `matplotlib.figure.Figure` and leaves pyplot alone, so that nothing needs a display, and
nothing has to be closed.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap, Normalize, to_rgba_array
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator
from numpy.typing import ArrayLike, NDArray

from sasgp.errors import InputError
from sasgp.images import as_images
from sasgp.labels import Labels, shortened

__all__ = ["contact_sheet", "decoded_grid", "latent_space", "latent_with_images", "training_curve"]

Array = NDArray[Any]

# Paul Tol's "muted" scheme, safe for colour-blind eyes, with the orange of his "vibrant" one as the tenth. His grey is
# left to what has no label: the background is grey too.
PALETTE = (
    "#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#AA4499", "#44AA99", "#882255", "#999933", "#EE7733",
)  # fmt: skip
MARKERS = ("o", "^")  # classes 11 to 20 have the same colours again, and another marker
MAX_CLASSES = len(PALETTE) * len(MARKERS)
UNLABELLED = "#4477AA"
OTHERS = "#777777"
UNCERTAINTY = LinearSegmentedColormap.from_list("uncertainty", ["#ffffff", "#9a9a9a"])  # white is certain
INK = "#333333"
MARGIN = 0.1  # around a decoded image, of its height

GRID = 80  # points of the uncertainty along each axis
VALUES_AT_ONCE = 2_000_000  # decoded at a time: 8 MB in float32
PICTURE_SIZE = 5.2  # inches


class Decoder(Protocol):
    """What of a model is drawn."""

    n_components: int
    embedding_: Array

    @property
    def n_features_in_(self) -> int: ...

    def predict(self, Z: Any, return_std: bool = False) -> Any: ...


def latent_space(
    model: Decoder,
    Z: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    axes: tuple[int, int] = (0, 1),
    title: str | None = None,
) -> Figure:
    """Points of the latent space over the decoder's uncertainty there.

    Parameters
    ----------
    model
        A fitted model.
    Z
        Latents [N, Q]. None: those of the training rows.
    labels
        N labels. Up to 20 classes have colours and markers of their own; of more classes with names, the 19 most
        frequent have. Other numbers are shown by a colour scale.
    axes
        The two latent dimensions to show, where there are more. The uncertainty is that with the others at 0. A space
        of one dimension is drawn as a strip, with a line for every class, or against labels that are numbers.
    title
        Above the figure.

    Returns
    -------
    Figure
    """
    view = _view(model, Z, axes)
    known = _Coloured.of(labels, len(view.Z), MAX_CLASSES)
    size = (PICTURE_SIZE + known.legend_width, PICTURE_SIZE) if view.is_plane else (1.4 * PICTURE_SIZE, 3.2)
    figure = Figure(figsize=size, layout="constrained")
    _draw_latent(figure.subplots(), model, view, known)
    return _titled(figure, title)


def decoded_grid(
    model: Decoder,
    image_shape: Sequence[int],
    *,
    Z: ArrayLike | None = None,
    n: int = 12,
    axes: tuple[int, int] = (0, 1),
    title: str | None = None,
) -> Figure:
    """Images decoded at the points of a grid over the latent space; they fade where the decoder is uncertain.

    Parameters
    ----------
    model
        A fitted model.
    image_shape
        (H, W), (C, H, W) with the colour planes first, or (H, W, C), where C is 1, 3 or 4.
    Z
        Latents whose extent the grid covers. None: those of the training rows.
    n
        Images along each axis. A latent space of one dimension makes a single line of them.
    axes
        The two latent dimensions to walk through; others stay at 0.
    title
        Above the figure.

    Returns
    -------
    Figure
    """
    view = _view(model, Z, axes)
    height = PICTURE_SIZE if view.is_plane else PICTURE_SIZE / n + 0.8
    figure = Figure(figsize=(PICTURE_SIZE, height), layout="constrained")
    _draw_tiles(figure.subplots(), model, view, image_shape, n)
    return _titled(figure, title)


def latent_with_images(
    model: Decoder,
    image_shape: Sequence[int],
    Z: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    n: int = 16,
    axes: tuple[int, int] = (0, 1),
    title: str | None = None,
) -> Figure:
    """`latent_space` and `decoded_grid` side by side, over the same part of the latent space.

    Parameters
    ----------
    model, image_shape, Z, labels, n, axes, title
        As for those two.

    Returns
    -------
    Figure
    """
    view = _view(model, Z, axes)
    known = _Coloured.of(labels, len(view.Z), MAX_CLASSES)
    if view.is_plane:
        figure = Figure(figsize=(2 * PICTURE_SIZE + known.legend_width, PICTURE_SIZE), layout="constrained")
        left, right = figure.subplots(1, 2)
    else:
        strip = 2 * PICTURE_SIZE / n  # inches, as high as an image is wide
        figure = Figure(figsize=(2 * PICTURE_SIZE, 3.6 + strip), layout="constrained")
        left, right = figure.subplots(2, 1, height_ratios=[2.2, strip])
    _draw_latent(left, model, view, known)
    _draw_tiles(right, model, view, image_shape, n)
    if not view.is_plane:
        right.set_box_aspect(None)  # as wide as the points above
    left.set_title("latent space, grey where the decoder is uncertain", loc="left", color=INK, fontsize=9)
    right.set_title("what it decodes there", loc="left", color=INK, fontsize=9)
    return _titled(figure, title)


def training_curve(history: Sequence[Mapping[str, float]], *, title: str | None = None) -> Figure:
    """Objective and noise against the epoch.

    Parameters
    ----------
    history
        `model.history_`: a record for every epoch, with its loss, and with noise and held_out_loss where there are.
    title
        Above the figure.

    Returns
    -------
    Figure
    """
    if not history:
        raise InputError("history must hold at least one epoch. Got none: fit the model first.")
    epochs = [record["epoch"] for record in history]
    with_noise = all("noise" in record for record in history)
    figure = Figure(figsize=(PICTURE_SIZE + 1.6, PICTURE_SIZE if with_noise else 3.4), layout="constrained")
    panels = figure.subplots(1 + with_noise, 1, sharex=True, squeeze=False, height_ratios=[1.6, 1][: 1 + with_noise])

    # A single epoch has no line
    style: dict[str, Any] = {"lw": 1.8, "marker": "o" if len(epochs) < 2 else None}
    top = panels[0, 0]
    top.plot(epochs, [-record["loss"] for record in history], color=PALETTE[0], label="training rows", **style)
    held_out = [(record["epoch"], -record["held_out_loss"]) for record in history if "held_out_loss" in record]
    if held_out:
        top.plot(*zip(*held_out, strict=True), color=PALETTE[9], label="held-out rows", **style)
        top.legend(frameon=False, loc="lower right")
    top.set_ylabel("objective\n(nats for each value)")
    if with_noise:
        panels[1, 0].plot(epochs, [record["noise"] for record in history], color=PALETTE[2], **style)
        panels[1, 0].set(ylabel="noise variance", yscale="log")
        panels[1, 0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panels[1, 0].yaxis.set_major_formatter("{x:g}")
        panels[1, 0].yaxis.set_minor_locator(NullLocator())
    for axes in panels[:, 0]:
        _plain(axes)
        axes.grid(color="#e5e5e5", lw=0.8)
        axes.set_axisbelow(True)
    panels[-1, 0].set_xlabel("epoch")
    panels[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return _titled(figure, title)


def contact_sheet(X: ArrayLike, image_shape: Sequence[int], *, title: str | None = None) -> Figure:
    """Rows as images, side by side.

    Parameters
    ----------
    X
        Rows [N, D], such as `model.sample(16)`.
    image_shape
        As for `decoded_grid`.
    title
        Above the figure.

    Returns
    -------
    Figure
    """
    images = as_images(np.asarray(X), image_shape)
    n, height, width = images.shape[:3]
    columns = math.ceil(math.sqrt(n * height / width))
    lines = math.ceil(n / columns)
    # White between them, as the paper that they lie on
    sheet = np.ones((lines, columns, height + 1, width + 1, images.shape[3]), images.dtype)
    sheet.reshape(-1, *sheet.shape[2:])[:n, :height, :width] = images
    mosaic = _mosaic(sheet)[:-1, :-1]
    figure = Figure(figsize=(PICTURE_SIZE, PICTURE_SIZE * mosaic.shape[0] / mosaic.shape[1]), layout="constrained")
    axes = figure.subplots()
    axes.imshow(mosaic, interpolation="nearest")
    axes.set_axis_off()
    return _titled(figure, title)


# ---------------------------------------------------------------------------------------------------- the plane


@dataclass(frozen=True)
class _View:
    """The part of the latent space that a figure shows.

    `Z` are the points [N, 1 or 2], `dims` the dimensions of the space that they are, and `centre` and `half` the
    square that holds them: the same length in both directions, so that distances can be compared.
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

    def grid(self, n: int) -> Array:
        """Points of the whole space, line by line from below: [n·n, Q], or [n, Q] where there is one dimension."""
        steps = [self.ticks(axis, n) for axis in range(len(self.dims))]
        points = np.stack(np.meshgrid(*steps, indexing="xy"), axis=-1).reshape(-1, len(steps))
        everywhere = np.zeros((len(points), self.n_components))
        everywhere[:, list(self.dims)] = points
        return everywhere


def _view(model: Decoder, Z: ArrayLike | None, axes: tuple[int, int]) -> _View:
    Q = model.n_components
    points = np.asarray(model.embedding_ if Z is None else Z, dtype=np.float64)
    if points.ndim != 2 or points.shape[1] != Q or not len(points) or not np.isfinite(points).all():
        raise InputError(f"Z must hold finite latents [N, {Q}], at least one. Got shape {points.shape}.")
    dims = (0,) if Q == 1 else tuple(int(axis) for axis in axes)
    if Q > 1 and not (len(dims) == 2 and dims[0] != dims[1] and all(0 <= axis < Q for axis in dims)):
        raise InputError(f"axes must be two different dimensions from 0 to {Q - 1}. Got {axes}.")
    points = points[:, list(dims)]
    low, high = points.min(0), points.max(0)
    half = 0.54 * float((high - low).max()) or 1.0  # a margin of 4 % on either side
    return _View(points, dims, Q, (low + high) / 2, half)


def _draw_latent(axes: Axes, model: Decoder, view: _View, labels: "_Coloured") -> None:
    points, vertical = view.Z, view.limits(1) if view.is_plane else (0.0, 0.0)
    if not view.is_plane:
        height, vertical = labels.heights()
        points = np.column_stack([points, height])

    std = np.concatenate([std for _, std in _decoded(model, view.grid(GRID))])
    shades = Normalize(std.min(), std.min() + _range(std))
    background = axes.imshow(
        std.reshape(-1, GRID),  # a single line where there is one dimension
        extent=(*view.limits(0), *vertical),
        origin="lower",
        aspect="equal" if view.is_plane else "auto",
        cmap=UNCERTAINTY,
        norm=shades,
        interpolation="bilinear",
        zorder=0,
    )
    _draw_points(axes, points, labels)
    axes.set(xlim=view.limits(0), ylim=vertical, xlabel=_axis_name(view, 0))
    _plain(axes)
    # Small and below the left corner, where it takes no room from the picture
    below = -0.115 if view.is_plane else -0.3
    _colour_bar(axes, background, "predictive standard deviation", (0, below, 0.3, 0.018 if view.is_plane else 0.045))
    if view.is_plane:
        axes.set_ylabel(_axis_name(view, 1))
        if labels.values is not None:
            _colour_bar(axes, labels.scale, "label", (1.03, 0.55, 0.025, 0.45))
        elif labels.names:
            _legend(axes, labels)
    elif labels.values is not None:
        axes.set_ylabel("label")
    else:
        axes.set_yticks(range(len(labels.names)), [shortened(name) for name in labels.names])


def _draw_points(axes: Axes, points: Array, labels: "_Coloured") -> None:
    """One scatter for each marker. Points lie in a random order, so that the last class does not cover the others."""
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


def _legend(axes: Axes, labels: "_Coloured") -> None:
    entries = [
        Line2D([], [], ls="", ms=6, marker=MARKERS[i // len(PALETTE)], color=labels.colour(i), label=shortened(name))
        for i, name in enumerate(labels.names)
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


def _draw_tiles(axes: Axes, model: Decoder, view: _View, image_shape: Sequence[int], n: int) -> None:
    if n < 1:
        raise InputError(f"n must be at least 1. Got {n}.")
    blocks = list(_decoded(model, view.grid(n)))
    images = as_images(np.concatenate([mean for mean, _ in blocks]), image_shape)
    std = np.concatenate([std for _, std in blocks])
    doubt = ((std - std.min()) / _range(std))[:, None, None, None]
    images = np.minimum((1 - doubt) * images + doubt, 1)  # towards white
    margin = max(1, round(MARGIN * images.shape[1]))
    images = np.pad(images, [(0, 0), (margin, margin), (margin, margin), (0, 0)], constant_values=1)
    tiles = images.reshape(-1, n, *images.shape[1:])[::-1]  # an image's first line is its upper one
    axes.imshow(
        _mosaic(tiles),
        extent=(*view.limits(0), *(view.limits(1) if view.is_plane else (0, tiles.shape[2] / tiles.shape[3]))),
        aspect="auto",
        interpolation="bilinear",
    )
    axes.set_box_aspect(tiles.shape[2] / tiles.shape[3] * len(tiles) / n)
    axes.set_xlabel(_axis_name(view, 0))
    if view.is_plane:
        axes.set_ylabel(_axis_name(view, 1))
    else:
        axes.set_yticks([])
    _plain(axes)


def _range(std: Array) -> float:
    """What the shades of uncertainty span: at least a fifth, so that a decoder equally certain everywhere looks so."""
    return max(float(np.ptp(std)), 0.2 * float(std.max()))


def _decoded(model: Decoder, Z: Array) -> Iterator[tuple[Array, Array]]:
    """Means [B, D] and standard deviations [B], averaged over features, a block of points at a time."""
    size = max(1, VALUES_AT_ONCE // model.n_features_in_)
    for start in range(0, len(Z), size):
        mean, std = model.predict(Z[start : start + size], return_std=True)
        yield mean, std.mean(1)


# ---------------------------------------------------------------------------------------------------- labels


class _Coloured(Labels):
    """Labels with colours: one for every class, or a scale."""

    @property
    def legend_width(self) -> float:
        """Inches."""
        if self.values is not None:
            return 0.7
        return 0.3 + 0.075 * max(len(shortened(name)) for name in self.names) if self.names else 0.0

    def colour(self, i: int) -> str:
        if not self.names:
            return UNLABELLED
        return OTHERS if self.has_others and i == len(self.names) - 1 else PALETTE[i % len(PALETTE)]

    def colours(self) -> Array:
        """RGBA [N, 4]."""
        if self.values is not None:
            return np.asarray(self.scale.to_rgba(self.values))
        palette = to_rgba_array([self.colour(i) for i in range(max(1, len(self.names)))])
        return np.asarray(palette[self.index])

    @property
    def scale(self) -> ScalarMappable:
        assert self.values is not None
        return ScalarMappable(Normalize(np.nanmin(self.values), np.nanmax(self.values)), "viridis")

    def heights(self) -> tuple[Array, tuple[float, float]]:
        """Where points of a one-dimensional space are drawn: on the line of their class, or at their label's value."""
        if self.values is not None:
            low, high = np.nanmin(self.values), np.nanmax(self.values)
            margin = 0.05 * (high - low) or 1.0
            return self.values, (float(low - margin), float(high + margin))
        spread = np.random.default_rng(0).uniform(-0.32, 0.32, len(self.index))
        return self.index + spread, (max(1, len(self.names)) - 0.5, -0.5)  # the first class on top


def _mosaic(tiles: Array) -> Array:
    """Images [lines, columns, H, W, C] as one, [lines·H, columns·W, C]."""
    lines, columns, height, width, channels = tiles.shape
    return tiles.swapaxes(1, 2).reshape(lines * height, columns * width, channels)


# ---------------------------------------------------------------------------------------------------- looks


def _axis_name(view: _View, axis: int) -> str:
    name = f"$z_{{{view.dims[axis]}}}$"
    return name + "   (other dimensions at 0)" * (axis == 0 and view.n_components > 2)


def _plain(axes: Axes) -> None:
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, labelsize=8, labelcolor=INK)
    for label in (axes.xaxis.label, axes.yaxis.label):
        label.set(color=INK, fontsize=10)


def _colour_bar(axes: Axes, colours: ScalarMappable, name: str, place: tuple[float, float, float, float]) -> None:
    inset = axes.inset_axes(place)
    upright = place[2] < place[3]
    figure = axes.get_figure(root=True)
    assert figure is not None
    bar = figure.colorbar(colours, cax=inset, orientation="vertical" if upright else "horizontal")
    bar.locator = MaxNLocator(4)
    inset.tick_params(length=0, labelsize=7, labelcolor=INK, pad=2)
    inset.spines[:].set(color=INK, lw=0.4)
    if upright:
        bar.set_label(name, color=INK, fontsize=8)
    else:
        inset.text(1.06, 0.5, name, transform=inset.transAxes, va="center", color=INK, fontsize=8)


def _titled(figure: Figure, title: str | None) -> Figure:
    if title:
        figure.suptitle(title, color=INK, fontsize=12)
    return figure
