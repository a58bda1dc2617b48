"""Figures made from records."""

from collections.abc import Callable
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure, FigureBase
from matplotlib.lines import Line2D

from sasgp.plots.style import INK, PALETTE, UNCERTAINTY, plain
from studies.paper.listing import FIG5_BATCHES, STUDIES, Training
from studies.paper.results import NAMES, Results, model_name, place
from studies.records import Record

__all__ = ["CAN_DRAW", "CAPTIONS", "DRAW", "caption"]

CAPTIONS = {
    "fig2": "The objective against the time of training for several sizes of the active set, MNIST",
    "fig3": "Latent spaces of MNIST: training rows above, test rows below, grey where the decoder is uncertain",
    "fig4": "Latent spaces of Fashion-MNIST, in the same way",
    "layouts": (
        "Test rows of MNIST and Fashion-MNIST, grey where the decoder is uncertain. Methods with one variance for all "
        "places, or none, have no grey. SASGP from t-SNE was run on Fashion-MNIST only"
    ),
    "tradeoff": "MNIST by the weight of staying near the layout: accuracy of neighbours, and the density of test rows",
    "fig5": (
        "Left: the objective against the time of training, active sets and inducing points, for several sizes of the "
        "batch. Right: SAS_A and the exact log p(X|Z) of one model"
    ),
}


CLASSES = {
    "fashion-mnist": (
        *("T-shirt", "trousers", "pullover", "dress", "coat"),
        *("sandal", "shirt", "sneaker", "bag", "ankle boot"),
    ),
}


def caption(name: str, results: Results) -> str:
    """What a figure shows, and whether its times can be compared."""
    text = f"{CAPTIONS[name]}."
    if name not in ("fig2", "fig5"):
        return text
    threads = {record["machine"]["threads"] for _, record in _curves(results, name)}
    if len(threads) > 1:
        return f"{text} Runs had different numbers of threads: their times are not comparable."
    return f"{text} Threads of every run: {threads.pop()}." if threads else text


# ---------------------------------------------------------------------------------------------------- curves


def _curves(results: Results, name: str) -> list[tuple[Training, Record]]:
    """Runs whose times are known, with the record of their first seed."""
    runs = [(run, results.records(run.name)) for run in STUDIES[name](0) if "quality" in run.measures]
    return [(run, records[0]) for run, records in runs if records and "cpu_seconds" in records[0]["results"]]


def _draw_curve(axes: Axes, record: Record, **style: Any) -> None:
    results = record["results"]
    seconds, loss = ([epoch[key] for epoch in results["curve"]] for key in ("seconds", "loss"))
    at_work = results["cpu_seconds"] / results["seconds"]  # the share of the time, with others on the machine
    x, y = [at_work * value for value in seconds], [-value for value in loss]
    axes.plot(x, y, marker="o" if len(loss) < 2 else None, **style)


def _finish(axes: Axes, x: str, y: str = "objective (nats per value)") -> None:
    axes.set(xlabel=x, ylabel=y)
    plain(axes)
    axes.grid(color="#e5e5e5", lw=0.8)
    axes.set_axisbelow(True)
    if axes.get_legend_handles_labels()[1]:
        axes.legend(frameon=False, fontsize=8, loc="lower right")


def _colour(size: int) -> str:
    return PALETTE[{100: 1, 200: 2, 400: 0, 800: 4}[size]]


def fig2(results: Results) -> Figure:
    """The objective against time for several sizes of the active set."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = dict(zip(("point", "bayesian"), figure.subplots(1, 2, sharey=True), strict=True))
    for run, record in sorted(_curves(results, "fig2"), key=lambda found: found[0].parameters["active_set_size"]):
        A = run.parameters["active_set_size"]
        _draw_curve(panels[run.parameters["latents"]], record, color=_colour(A), lw=1.8, label=f"A = {A}")
    for latents, axes in panels.items():
        axes.set_title(f"{latents} latents", loc="left", color=INK, fontsize=10)
        axes.set_xscale("log")
        _finish(axes, "CPU seconds")
    return figure


def fig5(results: Results) -> Figure:
    """The objective against time for active sets and inducing points; SAS_A beside the exact evidence."""
    figure = Figure(figsize=(14, 3.8), layout="constrained")
    *left, right = figure.subplots(1, 4, width_ratios=[1, 1, 1, 1.3])
    panels = dict(zip(sorted(FIG5_BATCHES), left, strict=True))
    for axes in left[1:]:
        axes.sharex(left[0])
        axes.sharey(left[0])
    for run, record in _curves(results, "fig5"):
        sas = run.estimator == "SASGP"
        A = run.parameters["active_set_size" if sas else "n_inducing"]
        style = {"color": _colour(A), "lw": 1.8, "ls": "-" if sas else "--"}
        label = f"{'SAS, A' if sas else 'inducing, M'} = {A}"
        _draw_curve(panels[run.parameters["batch_size"]], record, label=label, **style)
    for B, axes in panels.items():
        axes.set_title(f"batches of {B}", loc="left", color=INK, fontsize=10)
        axes.set_xscale("log")
        _finish(axes, "CPU seconds")
        axes.label_outer()
    for found in _evidence(results):
        exact = found["exact"]
        right.axhline(exact["per_value"], color=INK, lw=1.2, label=f"exact, N = {exact['n_rows']}")
        estimates = [estimate for name, estimate in found.items() if name != "exact"]
        right.errorbar(
            [estimate["active_set_size"] for estimate in estimates],
            [estimate["per_value"] for estimate in estimates],
            [2 * estimate["standard_error_per_value"] for estimate in estimates],
            color=PALETTE[0],
            marker="o",
            ms=4,
            label="SAS$_A$, ± two standard errors",
        )
    right.set_title("one model, four estimates", loc="left", color=INK, fontsize=10)
    _finish(right, "size of the active set, A", "log p(X|Z) (nats per value)")
    return figure


def _evidence(results: Results) -> list[Record]:
    found = (record["results"]["metrics"] for records in results.of("fig5").values() for record in records)
    return [metrics for metrics in found if "exact" in metrics]


# ---------------------------------------------------------------------------------------------------- latent spaces


def _kept(results: Results, name: str) -> list[tuple[Training, dict[str, Any]]]:
    """Runs with the arrays that they kept; of models with inducing points the largest alone."""
    kept = {}
    for run in sorted(STUDIES[name](0), key=place):
        path = results.out / f"{run.title}.npz"
        if results.records(run.name) and path.exists():
            with np.load(path) as arrays:
                kept["inducing" if "n_inducing" in run.parameters else run.name] = run, dict(arrays)
    return list(kept.values())


def _latent_spaces(name: str) -> Callable[[Results], Figure]:
    def draw(results: Results) -> Figure:
        models = _kept(results, name)
        figure = Figure(figsize=(2.3 * len(models), 4.9), layout="constrained")
        panels = figure.subplots(2, len(models), squeeze=False)
        for (run, arrays), column in zip(models, panels.T, strict=True):
            column[0].set_title(model_name(run).replace(", ", "\n", 1), color=INK, fontsize=9)
            for axes, part in zip(column, ("", "_test"), strict=True):
                _draw_latents(axes, arrays["std"], arrays["extent"], arrays[f"Z{part}"], arrays[f"y{part}"])
        for axes, label in zip(panels[:, 0], ("training rows", "test rows"), strict=True):
            axes.set_ylabel(label)
        _name_classes(figure, models[0][0].data, loc="outside lower center", ncols=10)
        return figure

    return draw


def layouts(results: Results) -> Figure:
    """Test rows where each method puts them."""
    found = {(run.data, model_name(run)): arrays for run, arrays in _kept(results, "layouts")}
    runs = sorted(STUDIES["layouts"](0), key=lambda run: place(run)[1:])
    columns = [name for name in dict.fromkeys(map(model_name, runs)) if any(name == other for _, other in found)]
    sets = list(dict.fromkeys(data for data, _ in found))
    figure = Figure(figsize=(2.4 * len(columns) + 1, 2.7 * len(sets)), layout="constrained")
    for data, part in zip(sets, figure.subfigures(len(sets), 1, squeeze=False)[:, 0], strict=True):
        panels = part.subplots(1, len(columns), squeeze=False)[0]
        for name, axes in zip(columns, panels, strict=True):
            if (arrays := found.get((data, name))) is None:
                axes.set_axis_off()
                continue
            axes.set_title(name, color=INK, fontsize=9)
            _draw_latents(axes, arrays["std"], arrays["extent"], arrays["Z_test"], arrays["y_test"])
        panels[0].set_ylabel(NAMES[data])
        _name_classes(part, data, loc="outside right upper")
    return figure


def _name_classes(figure: FigureBase, data: str, **place_of: Any) -> None:
    handles = [
        Line2D([], [], ls="", marker="o", ms=5, color=colour, label=name)
        for colour, name in zip(PALETTE, CLASSES.get(data, map(str, range(10))), strict=False)
    ]
    figure.legend(handles=handles, frameon=False, fontsize=8, labelcolor=INK, handletextpad=0.2, **place_of)


def tradeoff(results: Results) -> Figure:
    """Neighbours against density, by the weight of staying near the layout."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    points = [(weight, records[0]["results"]["metrics"]) for weight, records in results.by_weight()]
    for metric, label, colour in (("knn_1", "1-NN", PALETTE[0]), ("knn_15", "15-NN", PALETTE[1])):
        found = [(metrics["nlpd"], metrics[metric]) for _, metrics in points]
        axes.plot(*zip(*found, strict=True), marker="o", ms=4, color=colour, label=label)
    for weight, metrics in points:
        at = (metrics["nlpd"], metrics["knn_1"])
        axes.annotate(f"λ = {weight:g}", at, xytext=(4, -11), textcoords="offset points", color=INK, fontsize=8)
    _finish(axes, "NLPD of test rows (nats per value; left is better)", "accuracy")
    return figure


def _draw_latents(axes: Axes, std: Any, extent: Any, Z: Any, y: Any) -> None:
    std = std.astype(np.float64)
    # A decoder equally certain everywhere looks so: shades span at least a fifth of the largest
    top = max(std.max(), std.min() + 0.2 * std.max())
    axes.imshow(std, extent=tuple(extent), origin="lower", cmap=UNCERTAINTY, vmin=std.min(), vmax=top, zorder=0)
    order = np.random.default_rng(0).permutation(len(Z))[:5000]  # as many of either, in no order of classes
    colours = np.array(PALETTE)[y[order] % len(PALETTE)]
    z0, z1 = Z[order].T.astype(np.float64)
    axes.scatter(z0, z1, s=1.5, c=colours, linewidths=0, rasterized=True, zorder=2)
    axes.set(xlim=extent[:2], ylim=extent[2:], xticks=[], yticks=[])
    plain(axes)


DRAW: dict[str, Callable[[Results], Figure]] = {
    "fig2": fig2,
    "fig3": _latent_spaces("fig3"),
    "fig4": _latent_spaces("fig4"),
    "fig5": fig5,
    "layouts": layouts,
    "tradeoff": tradeoff,
}
CAN_DRAW: dict[str, Callable[[Results], bool]] = {
    "fig2": lambda results: bool(_curves(results, "fig2")),
    "fig3": lambda results: bool(_kept(results, "fig3")),
    "fig4": lambda results: bool(_kept(results, "fig4")),
    "fig5": lambda results: bool(_curves(results, "fig5") or _evidence(results)),
    "layouts": lambda results: bool(_kept(results, "layouts")),
    "tradeoff": lambda results: len(results.by_weight()) > 1,
}
