"""The card of a fitted estimator in a notebook: its numbers and a small picture, as HTML without a script.

Text and lines have the colour of the page's own text, so that the card can be read on light and on dark pages. Text of
the user is escaped.
"""

import html
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.labels import shorten

__all__ = ["bars", "card", "latent_picture", "number", "percent", "several", "time_of"]

Array = NDArray[np.floating[Any]]
Line = tuple[str, str]  # name, value

SIDE, MARGIN = 220, 22  # of the picture of the latents, in pixels
MOST_POINTS = 2000
N_BINS = 40  # of one latent dimension
MOST_BARS, BAR_HEIGHT, NAME_WIDTH, BAR_WIDTH = 8, 20, 150, 130
INK = "#4A90C2"  # of points and bars: a contrast of at least 3 to white and to black
FAINT = "currentColor"

FONT = "font: 13px/1.5 system-ui, sans-serif"
PLAIN = "margin: 0; padding: 0; width: auto; float: none"  # notebooks have a style of their own for lists


def card(title: str, lines: Sequence[Line], picture: str) -> str:
    """A card. `picture` is HTML; all else is text."""
    names = "".join(
        f'<dt style="{PLAIN}; font-weight: normal; white-space: nowrap; opacity: 0.7">{_text(name)}</dt>'
        f'<dd style="{PLAIN}; font-variant-numeric: tabular-nums">{_text(value)}</dd>'
        for name, value in lines
    )
    return (
        f'<div class="sasgp-card" style="{FONT}; color: inherit; margin: 0 0 0.8em">'
        f'<div style="font-weight: 600; margin: 0 0 0.4em">{_text(title)}</div>'
        '<div style="display: flex; flex-wrap: wrap; gap: 0.8em 2em; align-items: flex-start">'
        f"{picture}"
        f'<dl style="{PLAIN}; display: grid; grid-template-columns: max-content auto; gap: 0 1em; '
        f'align-content: start">{names}</dl></div></div>'
    )


def latent_picture(Z: Array, dims: Sequence[int]) -> str:
    """Latents Z [N, 1 or 2] of dimensions `dims`: points, or the bars of a histogram in one dimension."""
    content = _points(Z) if Z.shape[1] == 2 else _histogram(Z[:, 0])
    end, low = SIDE - 4, SIDE - MARGIN
    frame = f'<rect x="{MARGIN}" y="4" width="{end - MARGIN}" height="{low - 4}" fill="none" stroke="{FAINT}" '
    frame += 'stroke-opacity="0.3"/>' + _written((MARGIN + end) / 2, SIDE - 6, f"z{dims[0]}", "middle")
    if len(dims) == 2:
        frame += _written(MARGIN - 5, (4 + low) / 2 + 4, f"z{dims[1]}", "end")
    some = f", {MOST_POINTS} of {len(Z)} points" if Z.shape[1] == 2 and len(Z) > MOST_POINTS else ""
    return _svg(SIDE, SIDE, f"the latent space{some}", content + frame)


def bars(values: Array, names: Sequence[str], title: str) -> str:
    """The largest values as horizontal bars, each with its name and its number."""
    order = np.argsort(-values, kind="stable")[:MOST_BARS]
    unit = BAR_WIDTH / max(float(np.max(values, initial=0.0)), 1e-300)
    content = _written(0, 14, title)
    for line, i in enumerate(order):
        y, length = BAR_HEIGHT * (line + 1), max(unit * float(values[i]), 0.5)
        content += _written(NAME_WIDTH - 6, y + 14, shorten(names[i], 20), "end")
        content += f'<rect x="{NAME_WIDTH}" y="{y + 4}" width="{length:.1f}" height="{BAR_HEIGHT - 8}" fill="{INK}"/>'
        content += _written(NAME_WIDTH + length + 5, y + 14, number(float(values[i])))
    height = BAR_HEIGHT * (len(order) + 1) + 4
    if len(values) > MOST_BARS:
        content += _written(NAME_WIDTH - 6, height + 12, f"… and {len(values) - MOST_BARS} more", "end")
        height += BAR_HEIGHT
    return _svg(NAME_WIDTH + BAR_WIDTH + 60, height, title, content)


def number(value: float | None) -> str:
    """Three digits, with a minus sign; a dash if there is no number."""
    return "–" if value is None else f"{value:.3g}".replace("-", "−")


def percent(share: float) -> str:
    """A share in percent."""
    return "less than 0.001 %" if 0 < share < 1e-5 else f"{100 * share:.3g} %"


def several(values: Sequence[float]) -> str:
    """Up to four numbers one by one, one number if all are the same, or the range of more."""
    written = [number(float(value)) for value in values]
    if len(set(written)) == 1:
        return written[0]
    return ", ".join(written) if len(written) <= 4 else f"{number(min(values))} to {number(max(values))}"


def time_of(seconds: float) -> str:
    """Seconds as a person says them."""
    if seconds < 99.5:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 100 else f"{minutes // 60} h {minutes % 60} min"


# ---------------------------------------------------------------------------------------------------- the pictures


def _points(Z: Array) -> str:
    """Points as the round ends of lines without length: one element holds all of them."""
    low, high = Z.min(0), Z.max(0)
    some = np.random.default_rng(0).permutation(len(Z))[:MOST_POINTS]
    inner = SIDE - MARGIN - 4
    unit = 0.92 * inner / (float((high - low).max()) or 1.0)  # the same in both directions, as distances need it
    x, y = (unit * (Z[some] - (low + high) / 2) * (1, -1) + inner / 2 + (MARGIN, 4)).T
    size = float(np.clip(40 * len(some) ** -0.4, 2, 5))
    path = "".join(f"M{a:.1f} {b:.1f}h0" for a, b in zip(x, y, strict=True))
    return (
        f'<path d="{path}" fill="none" stroke="{INK}" stroke-width="{size:.1f}" stroke-linecap="round" '
        'stroke-opacity="0.85"/>'
    )


def _histogram(z: Array) -> str:
    counts, _ = np.histogram(z, N_BINS)
    width, inner = (SIDE - MARGIN - 4) / N_BINS, SIDE - MARGIN - 12
    heights = inner * counts / counts.max()
    path = "".join(
        f"M{MARGIN + width * i:.1f} {SIDE - MARGIN}v{-h:.1f}h{width:.1f}v{h:.1f}z" for i, h in enumerate(heights)
    )
    return f'<path d="{path}" fill="{INK}"/>'


def _svg(width: float, height: float, title: str, content: str) -> str:
    return (
        f'<svg role="img" width="{width:g}" height="{height:g}" viewBox="0 0 {width:g} {height:g}" '
        f'style="max-width: 100%"><title>{_text(title)}</title>{content}</svg>'
    )


def _written(x: float, y: float, text: str, anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="12" fill="currentColor">{_text(text)}</text>'
    )


def _text(text: str) -> str:
    """Text as HTML. A lone surrogate, which UTF-8 does not have, becomes "?"."""
    return html.escape(text.encode("utf-8", "replace").decode())
