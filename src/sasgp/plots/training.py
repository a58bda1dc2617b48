"""The training curve, and how much each latent dimension is used."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from sasgp.errors import InputError
from sasgp.gp import kernels
from sasgp.plots.style import PALETTE, PICTURE_SIZE, Figure, gridded, titled

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder

__all__ = ["relevance", "training_curve"]


def training_curve(history: Sequence[Mapping[str, float]], *, title: str | None = None) -> Figure:
    """Draw the objective and the noise against the epoch.

    Parameters
    ----------
    history
        `model.history_`: one record per epoch, with its loss and, if known, noise and held_out_loss.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    if not history:
        raise InputError("history is empty, and must hold at least one epoch. Fit the model first.", argument="history")
    epochs = [record["epoch"] for record in history]
    with_noise = all("noise" in record for record in history)
    figure = Figure(figsize=(PICTURE_SIZE + 1.6, PICTURE_SIZE if with_noise else 3.4), layout="constrained")
    panels = figure.subplots(1 + with_noise, 1, sharex=True, squeeze=False, height_ratios=[1.6, 1][: 1 + with_noise])

    # A single epoch makes no line
    style: dict[str, Any] = {"lw": 1.8, "marker": "o" if len(epochs) < 2 else None}
    top = panels[0, 0]
    top.plot(epochs, [-record["loss"] for record in history], color=PALETTE[0], label="training rows", **style)
    held_out = [(record["epoch"], -record["held_out_loss"]) for record in history if "held_out_loss" in record]
    if held_out:
        top.plot(*zip(*held_out, strict=True), color=PALETTE[9], label="held-out rows", **style)
        top.legend(frameon=False, loc="lower right")
    top.set_ylabel("objective\n(nats per value)")
    if with_noise:
        panels[1, 0].plot(epochs, [record["noise"] for record in history], color=PALETTE[2], **style)
        panels[1, 0].set(ylabel="noise variance", yscale="log")
        panels[1, 0].yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        panels[1, 0].yaxis.set_major_formatter("{x:g}")
        panels[1, 0].yaxis.set_minor_locator(NullLocator())
    for axes in panels[:, 0]:
        gridded(axes)
    panels[-1, 0].set_xlabel("epoch")
    panels[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return titled(figure, title)


def relevance(model: "Decoder", *, title: str | None = None) -> Figure:
    """Draw how much the decoder uses each latent dimension.

    A bar is the standard deviation of the latents in a dimension, in units of the kernel's lengthscale: sd(z_q) / ℓ_q.
    The decoder hardly changes along a dimension in which the data span only a small part of a lengthscale. A kernel
    with one lengthscale per dimension ("rbf-ard") can switch dimensions off. If several parts of a kernel have a
    lengthscale, the shortest one counts.

    Parameters
    ----------
    model
        A fitted model.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    spread = kernels.relevance(getattr(model, "kernel_", None), model.embedding_)
    if not any(spread):
        raise InputError(
            "relevance needs a kernel with lengthscales, and this model has none. Fit one with kernel='rbf-ard'."
        )
    figure = Figure(figsize=(PICTURE_SIZE, 1.2 + 0.34 * len(spread)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(spread)), spread, color=PALETTE[0], height=0.6)
    axes.set_yticks(range(len(spread)), [f"$z_{{{q}}}$" for q in range(len(spread))])
    axes.set(ylim=(len(spread) - 0.5, -0.5), xlabel="spread of the latents, in lengthscales")
    gridded(axes, "x")
    return titled(figure, title)
