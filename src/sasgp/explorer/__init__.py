"""The latent explorer: a self-contained page that decodes in the browser wherever the pointer is.

A method of a fitted model makes it::

    model.explorer(X, labels=y)                         # shows itself in a notebook
    model.explorer(X, labels=y).save("explorer.html")
"""

# `packed_decoder` packs the decoder, `content` the points and rows, and `page` puts them into one file. `assets` holds
# the style and the scripts of the page, which run as they are written.

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.palette import MAX_CLASSES
from sasgp.data.rows import take_rows
from sasgp.errors import InputError
from sasgp.evaluation import mean_filled, shown_latents
from sasgp.explorer import content, tables
from sasgp.explorer.packed_decoder import Box, pack_background, pack_decoder
from sasgp.explorer.packing import Packed, pack
from sasgp.explorer.page import Explorer

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder

__all__ = ["Explorer", "explore"]

Array = NDArray[Any]

SAMPLE_ROWS = 2000  # from which the ranges of the features are taken


def explore(
    model: "Decoder",
    X: Any = None,
    *,
    Z: Array | None = None,
    labels: Any = None,
    columns: Any = None,
    rows: Array | None = None,
    ids: Iterable[Any] | None = None,
    feature_names: Sequence[str] | None = None,
    image_shape: Sequence[int] | None = None,
    title: str = "latent space",
) -> Explorer:
    """A page with the latent space of a model, which decodes any point of it.

    Parameters
    ----------
    model
        A fitted model.
    X : array-like [N, D] or DataFrame, optional
        Rows [N, D] of the points: an array, or a DataFrame if the model is one of a table. Some of them are shown
        beside what is decoded. None shows no rows.
    Z
        Latents [N, Q] of X. None takes those of the training rows; X must then be these rows.
    labels : array-like [N], optional
        N labels to colour by. Each of up to 30 classes has its own colour or shape. Other numbers have a scale.
    columns : mapping or DataFrame, optional
        More about the rows: a mapping or a DataFrame with N values per column, to show, to search and to colour by:
        numbers on a scale, text as classes. The columns of X can be chosen as well, unless they are pixels.
    rows
        N row numbers, for the page and its exports. None counts from 0.
    ids
        N names of the rows, such as barcodes or file names, to search for.
    feature_names
        D names. None takes x0, x1, … Columns of a table have their own names.
    image_shape
        (H, W), (C, H, W) or (H, W, C), where C is 1, 3 or 4. None recognises square images, unless features have
        names. () always shows a table.
    title
        Title of the page.
    """
    points = shown_latents(model, Z)
    shown, box = content.shown_rows(len(points)), Box.around(points)
    coloured = content.columns_of(labels, columns, shown, len(points))
    if model.columns_ is not None:
        found = _table_content(model, X, points, shown, coloured, box)
    else:
        found = _array_content(model, X, points, shown, coloured, box, feature_names, image_shape)
    about = {
        "title": title,
        "model": type(model).__name__,
        "n_components": model.n_components_,
        "n_points": len(points),
        "Z": pack(points[shown], "float32"),
        "rows": pack(shown if rows is None else np.asarray(rows)[shown], "int32"),
        "ids": content.ids_of(ids, shown, len(points)),
        "palette": content.PALETTE,
        "background": pack_background(model, box),
    }
    return Explorer(about | found)


def _array_content(
    model: "Decoder",
    X: Array | None,
    points: Array,
    shown: Array,
    coloured: dict[str, Array],
    box: Box,
    feature_names: Sequence[str] | None,
    image_shape: Sequence[int] | None,
) -> Packed:
    """What the page of a model of arrays or images holds besides the points."""
    _check_shape(X, (len(points), model.n_scores_))
    sample = _sample(model, X, points[shown])
    names = content.feature_names(feature_names, model.n_scores_)
    image = content.image_of(sample, image_shape, guess=feature_names is None)
    own = {} if X is None or image is not None else content.feature_columns(X, shown, names)
    return {
        **content.pack_features(sample, names, image),
        "table": None,
        "columns": content.pack_columns(coloured, own),
        "n_columns_left_out": len(names) - len(own) if own else 0,
        "observed": _pack_observed(model, X, points, shown, image),
        "decoder": pack_decoder(model, box, content.ranges(sample, image)),
    }


def _table_content(
    model: "Decoder", X: Any, points: Array, shown: Array, coloured: dict[str, Array], box: Box
) -> Packed:
    """What the page of a model of a table holds besides the points."""
    C, D = len(model.columns_), model.n_scores_
    own: dict[str, Packed] = {}
    if X is None:
        sample = tables.decoded_cells(model, points[shown][:SAMPLE_ROWS])
        observed = content.Observed(np.empty((0, C)), np.empty((0, model.n_components_)), np.empty(0, np.int64))
    else:
        sample = tables.cells(model, X, len(points))
        own = tables.colours(model.columns_, sample[shown], content.COLUMN_BYTES, MAX_CLASSES)
        observed = content.Observed.some(sample, points, shown, 8)
    return {
        "n_features": C,
        "features": [*model.columns_.names],
        "image": None,
        "table": tables.describe(model.columns_, sample),
        "columns": content.pack_columns(coloured, own),
        "n_columns_left_out": C - len(own) if own else 0,
        "observed": content.pack_observed(observed, None, "float64"),
        "decoder": pack_decoder(model, box, np.ones(D), tables.TOLERANCE),  # scores have a variance of about 1
    }


def _check_shape(X: Array | None, expected: tuple[int, int]) -> None:
    """Raise InputError if X has not one row for each latent."""
    if X is not None and X.shape != expected:
        raise InputError(
            f"X must have shape [{expected[0]}, {expected[1]}], one row for each latent. Got {X.shape}. Pass the "
            "latents of these rows as Z.",
            argument="X",
        )


def _sample(model: "Decoder", X: Array | None, points: Array) -> Array:
    """About 2000 rows from all parts of the data, which may be on disk; without rows, what is decoded at the points."""
    if X is None:
        return np.asarray(model.predict_scores(points[:SAMPLE_ROWS]))
    return mean_filled(take_rows(X, np.arange(0, len(X), max(1, len(X) // SAMPLE_ROWS))))


def _pack_observed(
    model: "Decoder", X: Array | None, points: Array, shown: Array, image: dict[str, Any] | None
) -> dict[str, Any]:
    """Rows to show beside what is decoded: some of X."""
    if X is not None:
        observed = content.Observed.some(X, points, shown, 4 if image is None else 1)
        if observed.X.dtype.kind == "f" and (missing := np.isnan(observed.X)).any():  # shown as they are decoded
            observed = replace(observed, X=np.where(missing, model.predict_scores(observed.Z), observed.X))
    else:
        empty = np.empty((0, model.n_scores_)), np.empty((0, model.n_components_))
        observed = content.Observed(*empty, np.empty(0, np.int64))
    return content.pack_observed(observed, image)
