"""The latent space as the data see it: how much the decoder stretches it, and the shortest paths through it."""

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patheffects import Stroke, withStroke
from numpy.typing import ArrayLike, NDArray
from sklearn.cluster import KMeans

from sasgp.data.palette import MAX_CLASSES
from sasgp.errors import InputError
from sasgp.plots.latent import GRID, View, axis_name, draw_legend, draw_points, view_of
from sasgp.plots.style import INK, PICTURE_SIZE, UNCERTAINTY, ColouredLabels, Figure, colour_bar, plain, titled

__all__ = ["geometry"]

Array = NDArray[Any]

PATHS = 3  # drawn if none are given
SHOWN = (0.02, 0.98)  # quantiles of the volume element at which the colours end
LEAST = 0.3  # range of the colours, in powers of ten: small differences should look small
MOST = 2000  # latents whose clusters are the ends of these paths


def geometry(
    model: Any,
    Z: ArrayLike | None = None,
    labels: ArrayLike | None = None,
    *,
    paths: ArrayLike | None = None,
    axes: tuple[int, int] = (0, 1),
    title: str | None = None,
) -> Figure:
    """Draw the volume element of a decoder, latents, and geodesics beside straight lines, which are dashed.

    Parameters
    ----------
    model : estimator
        A fitted model whose decoder is a Gaussian process, with at least two latent dimensions.
    Z
        Latents [N, Q]. None draws those of the training rows.
    labels
        N labels, as in `latent_space`.
    paths
        Paths [R, n, Q] to draw, such as `model.geodesic(Z[:3], Z[3:6])`. None: three between
        clusters of latents.
    axes
        The two latent dimensions to show. For the volume element, the other dimensions are 0.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    if not hasattr(model, "volume"):
        raise InputError(
            "geometry needs a Gaussian process as the decoder, which knows where it is uncertain. "
            f"{type(model).__name__} has none. Use SASGP, GPLVM or BayesianGPLVM.",
            argument="model",
        )
    view = view_of(model, Z, axes)
    if not view.is_plane:
        raise InputError("geometry needs at least two latent dimensions, and this model has one.", argument="model")
    known = ColouredLabels.from_array(labels, len(view.Z), MAX_CLASSES)
    drawn = _far_apart(model, Z) if paths is None else _checked(paths, view)
    figure = Figure(figsize=(PICTURE_SIZE + known.legend_width, PICTURE_SIZE), layout="constrained")
    _draw(figure.subplots(), model, view, known, drawn[..., list(view.dims)])
    return titled(figure, title)


def _checked(paths: ArrayLike, view: View) -> Array:
    found = np.asarray(paths, dtype=np.float64)
    found = found[None] if found.ndim == 2 else found
    if found.ndim != 3 or found.shape[2] != view.n_components:
        raise InputError(
            f"paths must have shape [R, n, {view.n_components}]. Got {found.shape}. `model.geodesic` makes them.",
            argument="paths",
        )
    return found


def _far_apart(model: Any, Z: ArrayLike | None) -> Array:
    """Shortest paths between the middles of clusters of latents, each to one of those far from it."""
    points = np.asarray(model.embedding_ if Z is None else Z, dtype=np.float64)
    points = points[np.random.default_rng(0).permutation(len(points))[:MOST]]
    n = min(2 * PATHS, len(np.unique(points, axis=0)))
    middles = list(KMeans(n, n_init=1, random_state=0).fit(points).cluster_centers_)
    ends = []
    while len(middles) > 1:
        start = middles.pop(0)
        end = middles.pop(int(np.argmax([np.square(start - other).sum() for other in middles])))
        ends.append((start, end))
    found: Array = model.geodesic(*np.swapaxes(np.asarray(ends), 0, 1)) if ends else np.empty((0, 2, points.shape[1]))
    return found


def _draw(axes: Axes, model: Any, view: View, labels: ColouredLabels, paths: Array) -> None:
    grid = np.stack(np.meshgrid(view.ticks(0, GRID), view.ticks(1, GRID), indexing="xy"), -1).reshape(-1, 2)
    places = np.zeros((len(grid), view.n_components))
    places[:, list(view.dims)] = grid
    volume = np.log10(np.maximum(model.volume(places).astype(np.float64), np.finfo(np.float32).tiny))
    low, high = np.quantile(volume, SHOWN)
    background = axes.imshow(
        volume.reshape(GRID, GRID),
        extent=(*view.limits(0), *view.limits(1)),
        origin="lower",
        cmap=UNCERTAINTY,
        norm=Normalize(low, max(high, low + LEAST)),
        interpolation="bilinear",
        zorder=0,
    )
    draw_points(axes, view.Z, labels)
    outline = [withStroke(linewidth=3.4, foreground="white"), Stroke()]
    for path in paths:
        axes.plot(*path[[0, -1]].T, color=INK, lw=1.0, ls=(0, (4, 3)), zorder=3)
        axes.plot(*path.T, color=INK, lw=1.8, zorder=4, path_effects=outline, solid_capstyle="round")
        axes.plot(*path[[0, -1]].T, "o", color="white", mec=INK, ms=5, zorder=5)
    axes.set(xlim=view.limits(0), ylim=view.limits(1), xlabel=axis_name(view, 0), ylabel=axis_name(view, 1))
    plain(axes)
    colour_bar(axes, background, "log₁₀ of the volume element", (0, -0.115, 0.3, 0.018))
    if labels.values is not None:
        colour_bar(axes, labels.scale, "label", (1.03, 0.55, 0.025, 0.45))
    elif labels.names:
        draw_legend(axes, labels)
