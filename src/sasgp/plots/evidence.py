"""The evidence against the size of the active set, which shows whether more active points would help."""

from typing import TYPE_CHECKING

from matplotlib.ticker import NullLocator

from sasgp.plots.style import INK, PALETTE, PICTURE_SIZE, Figure, gridded, titled

if TYPE_CHECKING:
    from sasgp.gp.evidence import EvidenceCurve

__all__ = ["evidence_curve"]


def evidence_curve(curve: "EvidenceCurve", *, title: str | None = None) -> Figure:
    """Draw the mean log density of a row given `a` other rows, against `a`.

    A sentence says what doubling `a` would bring.

    Error bars are ±2 standard errors of each size alone. All sizes share their active sets and rows, so the steps
    between sizes, and the gain in the sentence, are known much more precisely.

    Parameters
    ----------
    curve
        What `model.evidence_curve(X)` returns.
    title
        Title of the figure.

    Returns
    -------
    Figure
    """
    figure = Figure(figsize=(PICTURE_SIZE + 1.6, PICTURE_SIZE - 1), layout="constrained")
    axes = figure.subplots()
    D, A = curve.n_features, curve.active_set_size
    axes.errorbar(
        curve.sizes,
        curve.mean / D,
        2 * curve.standard_error / D,
        color=PALETTE[0],
        lw=1.8,
        marker="o",
        ms=4,
        elinewidth=1,
    )
    # Doublings are equally far apart, and 0 lies to the left of 1
    axes.set_xscale("symlog", base=2, linthresh=1, linscale=1)
    axes.axvline(A, color=PALETTE[9], lw=1.2, ls="--")
    axes.annotate(
        f"A = {A}",
        (A, 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4, 0),
        textcoords="offset points",
        color=INK,
        fontsize=9,
    )
    axes.set_xticks(curve.sizes, [str(size) for size in curve.sizes])
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set(xlabel="size of the active set, a", ylabel="s(a): log density of a row\n(nats per value)")
    axes.set_title(str(curve), color=INK, fontsize=9, loc="left")
    gridded(axes)
    return titled(figure, title)
