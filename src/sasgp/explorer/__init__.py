"""The latent explorer: a self-contained page that decodes in the browser wherever the pointer is.

    model.explorer(X, labels=y)                         # shows itself in a notebook
    model.explorer(X, labels=y).save("explorer.html")
    sasgp explore RUN --open

`decoder` packs the decoder, `content` the points and rows, `page` puts them into one file; `assets` are the page's
own style and scripts, which run as they are written.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.images import Shades, check_shape, guess_shape, planes
from sasgp.data.rows import take_rows
from sasgp.errors import InputError
from sasgp.explorer import content
from sasgp.explorer.decoder import Box, Decoder, packed_decoder, packed_sd
from sasgp.explorer.packing import pack
from sasgp.explorer.page import Explorer

__all__ = ["Explorer", "explore"]

Array = NDArray[Any]


def explore(
    model: Decoder,
    X: Array | None = None,
    *,
    Z: Array | None = None,
    labels: Any = None,
    columns: Any = None,
    rows: Array | None = None,
    feature_names: Sequence[str] | None = None,
    image_shape: Sequence[int] | None = None,
    title: str = "latent space",
) -> Explorer:
    """A page with a model's latent space, and what its decoder says anywhere in it.

    Parameters
    ----------
    model
        A fitted model.
    X
        Rows [N, D] that the points stand for, some of which are shown beside what is decoded. None: the model's
        support set is shown instead.
    Z
        Latents [N, Q]. None: those of the training rows.
    labels
        N labels to colour by. Up to 30 classes have a colour and a shape of their own; numbers have a scale.
    columns
        More to colour by: a mapping or DataFrame of N values each. The columns of X itself are there as well, unless
        they are pixels.
    rows
        N numbers that the points are called by, in the page and in what it exports. None: 0, 1, 2, …
    feature_names
        D names. None: x0, x1, …
    image_shape
        (H, W), (C, H, W) or (H, W, C), where C is 1, 3 or 4. None: squares of pixels are recognised as such, unless
        features have names. () is a table, whatever it looks like.
    title
        Above the page.
    """
    points = np.asarray(model.embedding_ if Z is None else Z, dtype=np.float64)
    D, Q, N = model.n_features_in_, model.n_components_, len(points)
    if points.ndim != 2 or points.shape[1] != Q or not N or not np.isfinite(points).all():
        raise InputError(f"Z must hold finite latents [N, {Q}], at least one. Got shape {points.shape}.")
    if X is not None and X.shape != (N, D):
        raise InputError(f"X must hold the rows [{N}, {D}] of the latents. Got shape {X.shape}; pass Z with it.")
    numbers = np.arange(N) if rows is None else np.asarray(rows)
    named = feature_names is not None
    names = [str(name) for name in feature_names] if feature_names is not None else [f"x{d}" for d in range(D)]

    shown = content.shown_rows(N)
    posterior = getattr(model, "posterior_", None)
    support = None if posterior is None or not len(posterior.X) else posterior.X.numpy(force=True)
    known_rows = support if X is None else X
    sample = np.empty((0, D)) if known_rows is None else _spread(known_rows)
    if not len(sample):
        sample = np.asarray(model.predict(points[shown[:2000]]))
    if image_shape is None:
        shape = None if named else guess_shape(sample)
    else:
        shape = check_shape(image_shape, D) if len(image_shape) else None
    shades = None if shape is None else Shades.from_pixels(sample, planes(shape)[0][0])

    bytes_a_value = 4 if shades is None else 1
    if X is not None:
        observed = content.Observed.some(X, points, shown, bytes_a_value)
    elif posterior is not None and support is not None:
        support_Z = posterior.Z.numpy(force=True)
        all_support = np.arange(len(support_Z))
        observed = content.Observed.some(support, support_Z, all_support, bytes_a_value)
        observed = content.Observed(observed.X, observed.Z, np.full(len(observed.X), -1))
    else:
        observed = content.Observed(np.empty((0, D)), np.empty((0, Q)), np.empty(0, np.int64))

    coloured = {name: values[shown] for name, values in content.columns_of(labels, columns, N).items()}
    n_left_out = 0
    if shades is None and X is not None:
        own = content.feature_columns(X, shown, names)
        n_left_out = D - len(own)
        coloured |= {f"{name} (data)" if name in coloured else name: values for name, values in own.items()}

    box = Box.around(points)
    ranges = np.ptp(sample.astype(np.float64), axis=0)
    if shades is not None:
        ranges = np.full(D, ranges.max())  # pixels share a scale; columns of a table have one each
    return Explorer(
        {
            "title": title,
            "model": type(model).__name__,
            "n_components": Q,
            "n_points": N,
            "features": names if shades is None else [],
            "n_features": D,
            "low": [float(v) for v in sample.min(0)] if shades is None else [],
            "high": [float(v) for v in sample.max(0)] if shades is None else [],
            "image": None if shape is None or shades is None else _image(shape, shades),
            "Z": pack(points[shown], "float32"),
            "rows": pack(numbers[shown], "int32"),
            "columns": content.packed_columns(coloured),
            "n_columns_left_out": n_left_out,
            "observed": content.packed_observed(observed, shades) | {"support": X is None},
            "background": packed_sd(model, box),
            "decoder": packed_decoder(model, box, ranges),
        }
    )


def _image(shape: tuple[int, ...], shades: Shades) -> dict[str, Any]:
    """How the page draws rows: size, channels, and whether these are planes one after another."""
    (channels, height, width), last = planes(shape)
    return {
        "height": height,
        "width": width,
        "channels": channels,
        "planes": len(shape) == 3 and not last,
        "low": shades.low,
        "high": shades.high,
        "writing": shades.writing,
    }


def _spread(X: Array) -> Array:
    """About 2000 rows from all over X, which may be on disk."""
    return take_rows(X, np.arange(0, len(X), max(1, len(X) // 2000)))
