"""Calibration: whether prediction intervals hold as many values as they should."""

import numpy as np
from numpy.typing import ArrayLike

from sasgp.errors import InputError
from sasgp.metrics import coverage
from sasgp.plots.style import PALETTE, PICTURE_SIZE, Figure, plain, titled

__all__ = ["calibration"]

BARS = 20
LEVELS = (0.5, 0.9, 0.99)


def calibration(counts: ArrayLike, *, title: str | None = None) -> Figure:
    """Draw the histogram of u = Φ((x − m) / sd), which is flat if predictions are calibrated, and interval coverage.

    Parameters
    ----------
    counts
        What `sasgp.metrics.pit_counts` returns for rows that the model was not trained on.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    counts = np.asarray(counts)
    if counts.ndim != 1 or len(counts) % BARS or not counts.sum():
        raise InputError(
            f"counts must come from metrics.pit_counts. Got an array of shape {counts.shape}.", argument="counts"
        )
    figure = Figure(figsize=(2 * PICTURE_SIZE, PICTURE_SIZE), layout="constrained")
    left, right = figure.subplots(1, 2)

    heights = counts.reshape(BARS, -1).sum(1) * BARS / counts.sum()
    left.bar((np.arange(BARS) + 0.5) / BARS, heights, width=0.94 / BARS, color=PALETTE[0])
    left.axhline(1, color="#555555", lw=1, ls="--")
    left.set(xlim=(0, 1), xlabel="u: where values fall in their predictions", ylabel="density (calibrated: 1)")

    levels = np.arange(0, len(counts) // 2 + 1) * 2 / len(counts)
    right.plot([0, 1], [0, 1], color="#555555", lw=1, ls="--", label="calibrated")
    right.plot(levels, [coverage(counts, level) for level in levels], color=PALETTE[0], lw=1.8, label="the model")
    found = [coverage(counts, level) for level in LEVELS]
    right.plot(LEVELS, found, "o", color=PALETTE[0])
    words = [
        f"{100 * share:.1f} % in {100 * level:.0f} % intervals" for level, share in zip(LEVELS, found, strict=True)
    ]
    right.text(0.98, 0.04, "\n".join(words), transform=right.transAxes, ha="right", va="bottom", linespacing=1.5)
    right.set(xlim=(0, 1.02), ylim=(0, 1.02), xlabel="central interval", ylabel="share of values in it")
    right.legend(frameon=False, loc="upper left")
    for axes in (left, right):
        plain(axes)
    return titled(figure, title)
