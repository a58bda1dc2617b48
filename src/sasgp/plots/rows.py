"""Rows of data as images side by side, or together with their reconstructions."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from sasgp.data.images import as_images
from sasgp.data.labels import shorten
from sasgp.data.tables import is_frame
from sasgp.errors import InputError
from sasgp.plots.style import INK, PALETTE, PICTURE_SIZE, Figure, literal, mosaic, plain, titled
from sasgp.plots.tables import row_panels

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder

__all__ = ["contact_sheet", "reconstructions"]

Array = NDArray[Any]

MAX_NAMED = 24  # with more features, their names would not fit below the panels


def contact_sheet(X: ArrayLike, image_shape: Sequence[int], *, title: str | None = None) -> Figure:
    """Draw rows as images side by side.

    Parameters
    ----------
    X
        Rows [N, D], such as `model.sample(16)`.
    image_shape
        As in `decoded_grid`.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    images = as_images(np.asarray(X), image_shape)
    n, height, width = images.shape[:3]
    columns = math.ceil(math.sqrt(n * height / width))
    lines = math.ceil(n / columns)
    # White between the images
    sheet = np.ones((lines, columns, height + 1, width + 1, images.shape[3]), images.dtype)
    sheet.reshape(-1, *sheet.shape[2:])[:n, :height, :width] = images
    tiled = mosaic(sheet)[:-1, :-1]
    figure = Figure(figsize=(PICTURE_SIZE, PICTURE_SIZE * tiled.shape[0] / tiled.shape[1]), layout="constrained")
    axes = figure.subplots()
    axes.imshow(tiled, interpolation="nearest")
    axes.set_axis_off()
    return titled(figure, title)


def reconstructions(
    model: "Decoder",
    X: Any,
    Z: ArrayLike | None = None,
    *,
    image_shape: Sequence[int] | None = None,
    feature_names: Sequence[str] | None = None,
    title: str | None = None,
) -> Figure:
    """Draw rows and what is decoded from their latents: pairs of images, or values over the mean ±2 sd.

    Rows of a table are drawn with one line per column, in its own units and on its own scale.

    Parameters
    ----------
    model
        A fitted model.
    X : array-like [N, D] or DataFrame
        A few rows.
    Z
        Their latents [N, Q]. None takes `model.transform(X)`.
    image_shape
        As in `decoded_grid`. None if rows are not images.
    feature_names
        D names. None leaves them out.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    if model.columns_ is not None and is_frame(X) and len(X) > 0:
        return titled(row_panels(model, X, Z), title)
    rows = np.asarray(X)
    if rows.ndim != 2 or not len(rows):
        raise InputError(
            f"X must hold a few rows [N, {model.n_scores_}]. Got an array of shape {rows.shape}.", argument="X"
        )
    mean, std = model.predict_scores(model.transform(X) if Z is None else Z, return_std=True)
    if image_shape is not None:
        figure = _image_pairs(rows, mean, image_shape)
    else:
        figure = _profiles(rows, mean, std, feature_names)
    return titled(figure, title)


def _image_pairs(rows: Array, mean: Array, image_shape: Sequence[int]) -> Figure:
    """Each row as an image, above its reconstruction."""
    images = as_images(np.concatenate([rows, mean]), image_shape)  # together, so that a shade means the same in both
    pairs = images.reshape(2, len(rows), *images.shape[1:])
    sheet = np.pad(pairs, [(0, 0), (0, 0), (0, 1), (0, 1), (0, 0)], constant_values=1)
    tiled = mosaic(sheet)[:-1, :-1]
    width = max(PICTURE_SIZE, 0.55 * len(rows))
    figure = Figure(figsize=(width, width * tiled.shape[0] / tiled.shape[1] + 0.1), layout="constrained")
    axes = figure.subplots()
    axes.imshow(tiled, interpolation="nearest")
    height = tiled.shape[0] / 2
    axes.set_yticks([height / 2, 3 * height / 2], ["data", "decoded"])
    axes.set_xticks([])
    plain(axes)
    return figure


def _profiles(rows: Array, mean: Array, std: Array, feature_names: Sequence[str] | None) -> Figure:
    """One panel per row: its values over the decoded mean and the band of ±2 sd."""
    columns = math.ceil(math.sqrt(len(rows)))
    lines = math.ceil(len(rows) / columns)
    figure = Figure(figsize=(2.6 * columns, 1.7 * lines + 0.9), layout="constrained")
    panels = figure.subplots(lines, columns, sharex=True, sharey=True, squeeze=False)
    place = np.arange(rows.shape[1])
    few = len(place) <= MAX_NAMED
    for i, axes in enumerate(panels.flat):
        if i >= len(rows):
            axes.set_axis_off()
            continue
        low, high = mean[i] - 2 * std[i], mean[i] + 2 * std[i]
        axes.fill_between(place, low, high, color=PALETTE[1], alpha=0.45, lw=0, label="±2 sd")
        axes.plot(place, mean[i], color=PALETTE[0], lw=1.4, label="decoded")
        axes.plot(place, rows[i], "o" if few else "-", color=PALETTE[9], ms=3.5, lw=0.8, label="data")
        plain(axes)
        axes.tick_params(labelbottom=i + columns >= len(rows))
        if few and feature_names is not None:
            axes.set_xticks(place, [literal(shorten(name, 16)) for name in feature_names], rotation=90, fontsize=6)
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(),
        loc="outside upper right",
        ncols=3,
        frameon=False,
        labelcolor=INK,
        fontsize=8,
    )
    return figure
