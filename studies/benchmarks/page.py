"""Tables and figures of the benchmarks, made from records: what docs/performance.md shows."""

import math
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatter, NullFormatter

from sasgp.plots.style import INK, OTHERS, PALETTE, plain
from studies.catalogue import finished, names, study
from studies.records import ROOT, Record

__all__ = ["PAGE", "contents", "pictures", "tables"]

PAGE = ROOT / "docs" / "performance.md"
NAVY, BLUE, GREEN, ROSE = PALETTE[0], PALETTE[1], PALETTE[2], PALETTE[4]


def floor(result: dict[str, Any]) -> Figure:
    """Step against floor, a bar for every size with its quartiles, and a diamond for mixed precision."""
    rows = result["rows"]
    widths = sorted({row["D"] for row in rows})
    shown = {D: [row for row in rows if row["D"] == D and row["latents"] == "point"] for D in widths}
    figure = Figure(figsize=(11, 3.2), layout="constrained")
    ratios: dict[str, Any] = {"width_ratios": [len(part) for part in shown.values()]}
    for axes, D in zip(figure.subplots(1, len(widths), sharey=True, squeeze=False, **ratios)[0], widths, strict=True):
        for shift, latents, colour in ((-0.2, "point", BLUE), (0.2, "bayesian", NAVY)):
            part = [row for row in rows if row["D"] == D and row["latents"] == latents]
            x = [i + shift for i in range(len(part))]
            _bars(axes, x, [row["step / floor"] for row in part], colour, latents)
            mixed = [row["mixed / floor"]["median"] for row in part]
            label = "mixed precision" if latents == "point" else None
            axes.plot(x, mixed, "D", color=ROSE, mec="white", ms=5, label=label)
        axes.axhline(1, color=INK, lw=0.8)
        ticks = [f"A = {row['A']}" + (f"\nB = {row['B']}" if row["B"] != 1024 else "") for row in shown[D]]
        axes.set_xticks(range(len(ticks)), ticks)
        axes.set_title(f"D = {D}", color=INK, fontsize=10)
        plain(axes)
    figure.axes[0].set_ylabel("time of a step / its float32 products")
    handles, names = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, names, frameon=False, fontsize=8, labelcolor=INK, loc="outside right upper")
    return figure


def _bars(axes: Axes, x: list[float], ratios: list[dict[str, Any]], colour: str, label: str) -> None:
    """Bars of medians with their quartiles and numbers."""
    medians = [ratio["median"] for ratio in ratios]
    low, high = zip(*(ratio["quartiles"] for ratio in ratios), strict=True)
    errors = [
        [m - x for m, x in zip(medians, low, strict=True)],
        [x - m for m, x in zip(medians, high, strict=True)],
    ]
    axes.bar(x, medians, 0.36, yerr=errors, color=colour, label=label, error_kw={"ecolor": INK, "lw": 0.8})
    for place, median, top in zip(x, medians, high, strict=True):
        axes.text(place, top + 0.03, f"{median:.2f}", ha="center", color=INK, fontsize=8)


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
    several = [run for run in result["runs"] if run["epochs"] > 1]  # one epoch is a point
    for run, colour in zip(several, (BLUE, GREEN, ROSE, NAVY), strict=False):
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


def _records(name: str, out: Path, quick: bool) -> list[Record]:
    return finished(study("benchmarks", name), out, quick)


def tables(studies: Iterable[str], out: Path, quick: bool) -> dict[str, str]:
    """The tables of benchmarks, as far as there are records."""
    found = {name: _records(name, out, quick) for name in studies}
    return {name: _table(name, records) for name, records in found.items() if records}


def _table(name: str, records: list[Record]) -> str:
    text: str = import_module(f"studies.benchmarks.{name}").table(records)
    return text


def contents(out: Path, quick: bool) -> dict[str, str]:
    """The parts of the page: a table, where its numbers are from, and a figure."""
    return {name: _part(name, _records(name, out, quick)) for name in names("benchmarks")}


def _part(name: str, records: list[Record]) -> str:
    command = f"`python -m studies benchmarks {name}`"
    if not records:
        return f"Not measured yet: {command}."
    date, machine = records[0]["date"], records[0]["machine"]
    threads = machine.get("threads")
    made = [command, f"{machine['cores']} cores", f"{threads} thread{'s' * (threads > 1)}" if threads else ""]
    made += [machine.get("processor") or "", date[:10] if date else ""]
    text = [_table(name, records), f"{', '.join(filter(None, made))}; studies/results/benchmarks/{name}.json."]
    if name in FIGURES:
        text.append(f"![{FIGURES[name].__doc__}](images/performance-{name}.png)")
    return "\n\n".join(text)


def pictures(out: Path, quick: bool) -> dict[str, Callable[[], Figure]]:
    """The figures that there are records for, by the names of their files."""
    found = {name: _records(name, out, quick) for name in FIGURES}
    return {
        f"performance-{name}.png": partial(FIGURES[name], records[0]["results"])
        for name, records in found.items()
        if records
    }
