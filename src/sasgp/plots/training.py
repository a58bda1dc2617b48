"""How a decoder was trained, and what it made of its latent dimensions."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from sasgp.errors import InputError
from sasgp.gp import kernels
from sasgp.plots.style import PALETTE, PICTURE_SIZE, Decoder, plain, titled

__all__ = ["relevance", "training_curve"]


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
        plain(axes)
        axes.grid(color="#e5e5e5", lw=0.8)
        axes.set_axisbelow(True)
    panels[-1, 0].set_xlabel("epoch")
    panels[-1, 0].xaxis.set_major_locator(MaxNLocator(integer=True))
    return titled(figure, title)


def relevance(model: Decoder, *, title: str | None = None) -> Figure:
    """How much of each latent dimension the decoder uses.

    A bar is the standard deviation of the latents in a dimension, in lengthscales of the kernel there: sd(z_q) / ℓ_q.
    The decoder hardly changes along a dimension in which the data span but a small part of a lengthscale. A kernel with
    a lengthscale for every dimension ("rbf-ard") can switch dimensions off; where several parts of a kernel have one,
    the shortest counts.

    Parameters
    ----------
    model
        A fitted model.
    title
        Above the figure.

    Returns
    -------
    Figure
    """
    spread = kernels.relevance(getattr(model, "kernel_", None), model.embedding_)
    if not any(spread):
        raise InputError(
            "relevance needs a kernel with lengthscales. Got one without any; fit with kernel='rbf-ard', for example."
        )
    figure = Figure(figsize=(PICTURE_SIZE, 1.2 + 0.34 * len(spread)), layout="constrained")
    axes = figure.subplots()
    axes.barh(range(len(spread)), spread, color=PALETTE[0], height=0.6)
    axes.set_yticks(range(len(spread)), [f"$z_{{{q}}}$" for q in range(len(spread))])
    axes.set(ylim=(len(spread) - 0.5, -0.5), xlabel="spread of the latents, in lengthscales")
    plain(axes)
    axes.grid(axis="x", color="#e5e5e5", lw=0.8)
    axes.set_axisbelow(True)
    return titled(figure, title)
