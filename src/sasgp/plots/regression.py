"""Figures of a regressor or classifier: its predictions, its inputs, and how predictions depend on them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator
from numpy.typing import ArrayLike, NDArray

from sasgp.data.labels import shorten
from sasgp.errors import InputError
from sasgp.plots.style import INK, PALETTE, PICTURE_SIZE, Figure, gridded, literal, plain, titled

__all__ = ["confusion", "input_relevance", "predicted", "reliability"]

Array = NDArray[Any]

MOST_BARS = 2000  # intervals in a picture: more hide each other
MOST_INPUTS = 30  # bars of relevance
MOST_NAMED = 12  # classes whose cells have numbers
PARTS = 10  # of a reliability diagram
DASHED: dict[str, Any] = {"color": "#555555", "lw": 1, "ls": "--"}


def predicted(
    observed: ArrayLike,
    mean: ArrayLike,
    low: ArrayLike | None = None,
    high: ArrayLike | None = None,
    *,
    name: str = "",
    level: float = 0.9,
    title: str | None = None,
) -> Figure:
    """Draw predictions against observations, with their intervals. Points on the diagonal are predicted exactly.

    Parameters
    ----------
    observed, mean
        Targets [N], and their predictions [N].
    low, high
        Ends of the intervals [N]. Of many, only some are drawn.
    name
        Name of the target.
    level
        Share of new observations that the intervals should hold.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    y, m = np.asarray(observed, np.float64), np.asarray(mean, np.float64)
    if y.shape != m.shape or y.ndim != 1 or not len(y):
        raise InputError(f"observed and mean must have one number per row. Got shapes {y.shape} and {m.shape}.")
    figure = Figure(figsize=(PICTURE_SIZE + 0.6, PICTURE_SIZE + 0.4), layout="constrained")
    axes = figure.subplots()
    some = np.sort(np.random.default_rng(0).permutation(len(y))[:MOST_BARS])
    ends = [y, m]
    if low is not None and high is not None:
        low, high = (np.asarray(end, np.float64) for end in (low, high))
        inside = float(np.mean((y >= low) & (y <= high)))
        word = f"{100 * level:g} % intervals: {100 * inside:.1f} % of the observations are inside"
        axes.vlines(y[some], low[some], high[some], color=PALETTE[0], lw=0.8, alpha=0.3, label=word)
        ends += [low[some], high[some]]
    axes.plot(y, m, "o", ms=3.5, mec="white", mew=0.3, color=PALETTE[0], alpha=0.8)
    limits = _limits(np.concatenate(ends))
    axes.plot(limits, limits, **DASHED)
    axes.set(xlim=limits, ylim=limits, xlabel=f"observed {literal(name)}", ylabel=f"predicted {literal(name)}")
    axes.set_aspect("equal")
    gridded(axes)
    if low is not None:
        axes.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), fontsize=9, labelcolor=INK)
    return titled(figure, title)


def _limits(values: Array) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    margin = 0.03 * (high - low) or 1.0
    return low - margin, high + margin


def input_relevance(values: ArrayLike, names: Sequence[str], *, title: str | None = None) -> Figure:
    """Draw how much each input of a regressor or classifier matters, the most relevant on top.

    Parameters
    ----------
    values
        `model.relevance_` [P]: the spread of the training rows in each input, in lengthscales of the kernel.
    names
        Names of the inputs.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    found = np.asarray(values, np.float64)
    if found.shape != (len(names),) or not found.any():
        raise InputError(
            f"values must have one number for each of the {len(names)} names, and not only zeros. Got {found.shape}.",
            argument="values",
        )
    order = np.argsort(-found, kind="stable")[:MOST_INPUTS]
    figure = Figure(figsize=(PICTURE_SIZE + 1.2, 1.2 + 0.3 * len(order)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(order)), found[order], color=PALETTE[0], height=0.6)
    axes.set_yticks(range(len(order)), [literal(shorten(names[i])) for i in order])
    more = f" (the {MOST_INPUTS} largest of {len(found)})" if len(found) > MOST_INPUTS else ""
    axes.set(ylim=(len(order) - 0.5, -0.5), xlabel=f"spread of the rows, in lengthscales{more}")
    gridded(axes, "x")
    return titled(figure, title)


def confusion(observed: ArrayLike, guessed: ArrayLike, *, name: str = "class", title: str | None = None) -> Figure:
    """Draw how often each class is taken for each other: the shares of a line sum to 1.

    Parameters
    ----------
    observed, guessed
        Classes [N] of the rows, and those that were predicted.
    name
        Name of the target.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    y, found = np.asarray(observed), np.asarray(guessed)
    if y.shape != found.shape or y.ndim != 1 or not len(y):
        raise InputError(f"observed and guessed must have one class per row. Got {y.shape} and {found.shape}.")
    classes, codes = np.unique(np.concatenate([y, found]), return_inverse=True)
    C = len(classes)
    counts = np.bincount(codes[: len(y)] * C + codes[len(y) :], minlength=C * C).reshape(C, C)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    side = min(2.4 + 0.45 * C, 10.0)
    figure = Figure(figsize=(side + 0.9, side + 0.4), layout="constrained")
    axes = figure.subplots()
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    if C <= MOST_NAMED:
        for (i, j), count in np.ndenumerate(counts):
            if count:
                axes.text(j, i, f"{count}", ha="center", va="center", color="white" if shares[i, j] > 0.5 else INK)
    words = [literal(shorten(str(one))) for one in classes]
    axes.set_xticks(range(C), words, rotation=90 if max(map(len, words)) > 4 else 0)
    axes.set_yticks(range(C), words)
    axes.set(xlabel=f"predicted {literal(name)}", ylabel=f"observed {literal(name)}")
    plain(axes)
    return titled(figure, title)


def reliability(right: ArrayLike, confidence: ArrayLike, *, title: str | None = None) -> Figure:
    """Draw how often predicted classes are right, against how probable they were.

    Calibrated predictions lie on the diagonal.

    Parameters
    ----------
    right
        Whether each predicted class is the observed one, [N].
    confidence
        Its probability, [N].
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    hits, p = np.asarray(right, np.float64), np.asarray(confidence, np.float64)
    if hits.shape != p.shape or hits.ndim != 1 or not len(p) or p.min() < 0 or p.max() > 1 + 1e-9:
        raise InputError(f"right and confidence must have one value in [0, 1] per row. Got {hits.shape}, {p.shape}.")
    part = np.minimum((PARTS * p).astype(np.int64), PARTS - 1)
    counts = np.bincount(part, minlength=PARTS)
    there = counts > 0
    n = counts[there]
    x, share = (np.bincount(part, each, PARTS)[there] / n for each in (p, hits))
    figure = Figure(figsize=(PICTURE_SIZE, PICTURE_SIZE + 1.0), layout="constrained")
    top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    top.plot([0, 1], [0, 1], **DASHED, label="calibrated")
    error = np.sqrt(x * (1 - x) / n)  # of the share of n rows, if the model is calibrated
    top.errorbar(x, share, error, fmt="o-", color=PALETTE[0], lw=1.8, elinewidth=1, label="the model, ± standard error")
    top.set(xlim=(0, 1.02), ylim=(-0.04, 1.04), ylabel="share that is right")
    top.legend(frameon=False, loc="upper left")
    bottom.bar((np.arange(PARTS) + 0.5) / PARTS, counts, width=0.94 / PARTS, color=PALETTE[1])
    bottom.set(xlabel="probability of the predicted class", ylabel="rows")
    bottom.yaxis.set_major_locator(MaxNLocator(4, integer=True))
    for axes in (top, bottom):
        gridded(axes)
    gap = float(np.sum(n * np.abs(share - x)) / n.sum())
    top.text(0.98, 0.04, f"calibration error {gap:.3f}", transform=top.transAxes, ha="right", va="bottom", color=INK)
    return titled(figure, title)
