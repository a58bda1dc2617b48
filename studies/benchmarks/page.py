"""Figures and tables from the JSONs: what docs/performance.md shows is made here, so that its numbers cannot drift.

python -m benchmarks figures
"""

import json
import math
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullFormatter

from sasgp.plots.style import INK, OTHERS, PALETTE, plain

__all__ = ["FIGURES", "blocks", "publish", "rendered"]

ROOT = Path(__file__).parents[1]
PAGE, IMAGES = ROOT / "docs" / "performance.md", ROOT / "docs" / "images"
DPI = 130
NAVY, BLUE, GREEN, ROSE = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[4]
NOT_MEASURED = "Not measured yet."
BLOCK = re.compile(r"<!-- (?!end)(\w+) -->\n(.*?)<!-- end -->", re.DOTALL)


def floor(result: dict[str, Any]) -> Figure:
    """Step against floor, a bar for every size, and how far its quartiles go."""
    rows = result["rows"]
    widths = sorted({row["D"] for row in rows})
    figure = Figure(figsize=(9, 3), layout="constrained")
    for axes, D in zip(figure.subplots(1, len(widths), sharey=True, squeeze=False)[0], widths, strict=True):
        for shift, latents, colour in ((-0.2, "point", BLUE), (0.2, "bayesian", NAVY)):
            part = [row for row in rows if row["D"] == D and row["latents"] == latents]
            ratios = [row["step / floor"] for row in part]
            medians = [ratio["median"] for ratio in ratios]
            low, high = zip(*(ratio["quartiles"] for ratio in ratios), strict=True)
            errors = [
                [m - x for m, x in zip(medians, low, strict=True)],
                [x - m for m, x in zip(medians, high, strict=True)],
            ]
            x = [i + shift for i in range(len(part))]
            axes.bar(x, medians, 0.36, yerr=errors, color=colour, label=latents, error_kw={"ecolor": INK, "lw": 0.8})
            for place, median, top in zip(x, medians, high, strict=True):
                axes.text(place, top + 0.03, f"{median:.2f}", ha="center", color=INK, fontsize=8)
        axes.axhline(1, color=INK, lw=0.8)
        axes.set_xticks(range(len(part)), [f"A = {row['A']}" for row in part])
        axes.set_title(f"D = {D}", color=INK, fontsize=10)
        plain(axes)
    figure.axes[0].set_ylabel("time of a step / its matrix products")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=8, labelcolor=INK, loc="outside right upper")
    return figure


def scaling(result: dict[str, Any]) -> Figure:
    """Cost against every size, on logarithmic axes: medians in a band of their quartiles, and the fitted exponent."""
    sweeps = result["sweeps"]
    figure = Figure(figsize=(9, 4.6), layout="constrained")
    panels = figure.subplots(2, 3).ravel()
    for axes, (name, sweep) in zip(panels, sweeps.items(), strict=False):
        x, y = sweep["sizes"], [cost["median"] for cost in sweep["cost"]]
        low, high = zip(*(cost["quartiles"] for cost in sweep["cost"]), strict=True)
        axes.loglog(x, y, "o-", color=NAVY, ms=4, lw=1.2)
        axes.fill_between(x, low, high, color=BLUE, alpha=0.5, lw=0)
        axes.set(xlabel=name, ylabel=sweep["unit"])
        axes.set_title(f"∝ {name}$^{{{sweep['exponent']:.2f}}}$", color=INK, fontsize=10)
        middle = math.sqrt(min(low) * max(high))
        axes.set_ylim(
            min(0.8 * min(low), middle / 3), max(1.25 * max(high), 3 * middle)
        )  # noise must not look like growth
        axes.set_xticks(x, [f"{tick:,}" if tick < 10**5 else f"$10^{len(str(tick)) - 1}$" for tick in x])
        axes.xaxis.set_minor_formatter(NullFormatter())
        _plain_logarithmic(axes, axes.yaxis)
    for axes in panels[len(sweeps) :]:
        axes.set_visible(False)
    return figure


def quality(result: dict[str, Any]) -> Figure:
    """1-NN accuracy and NLPD against wall time, with UMAP's."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    accuracy, density = figure.subplots(1, 2)
    colours = (BLUE, GREEN, ROSE, NAVY)
    for run, colour in zip(result["runs"], colours, strict=False):
        seconds = [point["seconds"] for point in run["points"]] + [run["fit"]]
        for axes, name in ((accuracy, "1-NN"), (density, "NLPD")):
            values = [point[name] for point in run["points"]] + [run[name]]
            axes.plot(seconds, values, "-", color=colour, lw=1.4, label=f"SASGP, {run['epochs']} epochs")
            axes.plot(seconds[-1], values[-1], "o", color=colour, ms=5)
    umap = result["umap"]
    accuracy.plot(umap["fit"], umap["1-NN"], "s", color=OTHERS, ms=6)
    accuracy.annotate(
        "UMAP", (umap["fit"], umap["1-NN"]), (-8, -4), textcoords="offset points", ha="right", color=INK, fontsize=8
    )
    density.axvline(umap["fit"], color=OTHERS, lw=1, ls=":")
    density.text(
        umap["fit"],
        0.98,
        "UMAP, no density ",
        transform=density.get_xaxis_transform(),
        ha="right",
        va="top",
        color=INK,
        fontsize=8,
    )
    accuracy.set_ylabel("1-NN accuracy, test rows")
    density.set_ylabel("NLPD, nats a value; lower is better")
    for axes in (accuracy, density):
        axes.set(xscale="log", xlabel="seconds from the start of the process")
        _plain_logarithmic(axes, axes.xaxis)
    accuracy.legend(frameon=False, fontsize=8, labelcolor=INK, loc="lower right")
    return figure


class Plain(LogFormatter):
    """Ticks of a logarithmic axis that LogFormatter would label, without its powers of ten."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""


def _plain_logarithmic(axes: Axes, axis: Axis) -> None:
    """Numbers, not powers of ten, along a logarithmic axis."""
    plain(axes)
    axis.set_major_formatter(Plain())
    axis.set_minor_formatter(Plain(minor_thresholds=(2, 0.5)))
    axes.tick_params(which="minor", length=0, labelsize=7, labelcolor=INK)


FIGURES = {"floor": floor, "scaling": scaling, "quality": quality}


def rendered(name: str, folder: Path) -> str:
    """A benchmark's part of the page, from its JSON: where the numbers are from, the table, the figure."""
    path = folder / f"{name}.json"
    if not path.exists():
        return f"{NOT_MEASURED} `python -m benchmarks {name}`"
    result = json.loads(path.read_text())
    machine = result["machine"]
    made = [f"`{result['command']}`" if "command" in result else "", f"{machine['cores']} cores"]
    made += [f"{machine['threads']} threads" if "threads" in machine else "", machine.get("processor", "")]
    made += [result["date"][:10] if "date" in result else ""]
    parts = [
        import_module(f"benchmarks.{name}").table(result),
        f"{', '.join(filter(None, made))}; benchmarks/results/{path.name}.",
    ]
    if name in FIGURES:
        parts.append(f"![{FIGURES[name].__doc__}](images/performance-{name}.png)")
    return "\n\n".join(parts)


def blocks(page: str) -> dict[str, str]:
    """The parts of a page that are made, by name."""
    return {name: text.rstrip("\n") for name, text in BLOCK.findall(page)}


def publish(folder: Path, *, docs: bool) -> list[Path]:
    """Draw what there is a JSON for, into the docs and with the page filled in, or beside the JSONs."""
    written = []
    for name, draw in FIGURES.items():
        source = folder / f"{name}.json"
        if source.exists():
            written.append(IMAGES / f"performance-{name}.png" if docs else source.with_suffix(".png"))
            draw(json.loads(source.read_text())).savefig(written[-1], dpi=DPI)
    if docs:

        def filled(mark: re.Match[str]) -> str:
            return f"<!-- {mark[1]} -->\n{rendered(mark[1], folder)}\n<!-- end -->"

        PAGE.write_text(BLOCK.sub(filled, PAGE.read_text()))
        written.append(PAGE)
    return written
