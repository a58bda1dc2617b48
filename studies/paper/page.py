"""Tables of the paper's studies, made from records: the same text for the terminal and for docs/reproduction.md."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from statistics import mean

from matplotlib.figure import Figure

from studies.paper import figures, published
from studies.paper.listing import EPOCHS, SIZES, STUDIES
from studies.paper.results import NAMES, Results, model_name, place
from studies.records import ROOT, Record
from studies.tables import NOTHING, count, footnotes, mean_and_deviation, of_some, table

__all__ = ["PAGE", "contents", "pictures", "tables"]

PAGE = ROOT / "docs" / "reproduction.md"
FEWER, SOME = 400, 2000  # rows that the decoder is given, beside all rows in the other tables
STRUCTURE = (
    ("trust", "trustworthiness"),
    ("continuity", "continuity"),
    ("recall", "neighbour_recall"),
    ("triplets", "triplets"),
    ("silhouette", "silhouette"),
)


def value(records: Sequence[Record], metric: str, digits: int = 4) -> str:
    """A metric over seeds."""
    metrics = [record["results"]["metrics"] for record in records]
    found = [one[metric] for one in metrics if metric in one]
    return of_some(mean_and_deviation(found, digits), found, records)


def _seconds(records: Sequence[Record]) -> str:
    found = [record["results"]["cpu_seconds"] for record in records if "cpu_seconds" in record["results"]]
    return of_some(f"{mean(found):.0f}" if found else NOTHING, found, records)


# ---- tables ----


def table1(results: Results) -> str:
    """Reconstruction of test rows, the paper's numbers and ours."""
    rows, better, cells = [], 0, 0
    for data in EPOCHS:
        for latents in ("point", "bayesian"):
            for A in sorted(SIZES):
                records = results.records(f"table1-{data}-{latents}-A{A}")
                line = [NAMES[data], latents, str(A)]
                for metric in ("rmse", "mae", "nlpd"):
                    paper = published.reconstruction(data, latents, metric, A)
                    line += [f"{paper:.3f}", value(records, metric)]
                    if records:
                        ours = mean(record["results"]["metrics"][metric] for record in records)
                        cells, better = cells + 1, better + (ours < paper)
                rows.append([*line, count(records)])
    header = ["", "latents", "A", "RMSE, paper", "RMSE", "MAE, paper", "MAE", "NLPD, paper", "NLPD", "seeds"]
    return f"{table(header, rows)}\n\nOurs is below the paper's in {better} of {cells} cells."


def support(results: Results) -> str:
    """The same models with a decoder that is given some of the rows instead of all; nearest neighbours."""
    rows = []
    for name, records in results.of("table1").items():
        data, latents, A = name.removeprefix("table1-").rsplit("-", 2)
        sizes = (f"_{FEWER}", f"_{SOME}", "")
        given = [value(records, f"{metric}{size}") for metric in ("rmse", "nlpd") for size in sizes]
        others = [value(records, "knn_1"), value(records, "knn_15"), value(records, "positions", 0)]
        rows.append([NAMES[data], latents, A[1:], *given, *others, _seconds(records), count(records)])
    names = [f"{metric}, {size} rows" for metric in ("RMSE", "NLPD") for size in (FEWER, SOME, "all")]
    return table(["", "latents", "A", *names, "1-NN", "15-NN", "positions", "CPU s", "seeds"], rows)


def table2(results: Results) -> str:
    """Nearest neighbours in the latent space, beside other models."""
    rows = []
    for run in sorted(STUDIES["table2"](0), key=place):
        records = results.records(run.name)
        point = run.parameters.get("latents") == "point"
        paper = None if point else published.ONE_NN.get(run.data, {}).get(run.estimator)
        accuracy = NOTHING if paper is None else f"{paper:.2f}"
        ours = [value(records, metric) for metric in ("knn_1", "knn_15", "rmse", "nlpd")]
        rows.append([NAMES[run.data], model_name(run), accuracy, *ours, _seconds(records), count(records)])
    return table(["", "model", "1-NN, paper", "1-NN", "15-NN", "RMSE", "NLPD", "CPU s", "seeds"], rows)


def _compared(results: Results, lines: Iterable[tuple[str, str]], first: str) -> str:
    rows = []
    for title, name in lines:
        records = results.records(name)
        metrics = [value(records, metric) for metric in ("rmse", "mae", "nlpd", "knn_1")]
        rows.append([title, *metrics, count(records)])
    return table([first, "RMSE", "MAE", "NLPD", "1-NN", "seeds"], rows)


def ablation(results: Results) -> str:
    """Eq. 6 with one of its terms."""
    runs = STUDIES["ablation"](0)
    lines = [("both terms" if run.estimator == "SASGP" else model_name(run), run.name) for run in runs]
    return _compared(results, lines, "objective")


def appendix(results: Results) -> str:
    """More latent dimensions."""
    lines = [("2", "table1-mnist-bayesian-A400")]
    lines += [(str(run.parameters["n_components"]), run.name) for run in STUDIES["appendix"](0)]
    return _compared(results, lines, "dimensions")


def evidence(all_results: Results) -> str:
    """SAS_A beside the exact evidence."""
    rows, notes = [], []
    for record in (record for records in all_results.of("fig5").values() for record in records):
        results = record["results"]
        if "exact" in results["metrics"]:
            notes += [results["note"]] if "note" in results else []
            for name, found in results["metrics"].items():
                error = f" ± {found['standard_error_per_value']:.4f}" if found["n_estimates"] > 1 else ""
                rows.append(
                    [name, f"{found['per_value']:.4f}{error}", f"{found['seconds'] / found['n_estimates']:.1f}"]
                )
    return "\n\n".join([table(["", "nats per value", "seconds"], rows), *notes])


def neighbours(results: Results) -> str:
    """Neighbourhoods, densities and times of one model, beside what people use for either."""
    first, last = ["", "model", "1-NN", "15-NN", "RMSE", "NLPD"], ["fit, CPU s", "transform, CPU s", "seeds"]
    rows = []
    for run in sorted(STUDIES["layouts"](0), key=place):
        records = results.records(run.name)
        if not records:
            continue
        parts = {"": "", "refined_": ", refined"} if "refined_knn_1" in records[0]["results"]["metrics"] else {"": ""}
        for prefix, words in parts.items():
            metrics = [value(records, f"{prefix}{metric}") for metric in ("knn_1", "knn_15", "rmse", "nlpd")]
            metrics += [value(records, f"{prefix}{metric}", 3) for _, metric in STRUCTURE]
            seconds = [_seconds(records), value(records, f"{prefix}transform_seconds", 1).partition(" ±")[0]]
            rows.append([NAMES[run.data], f"{model_name(run)}{words}", *metrics, *seconds, count(records)])
    return table([*first, *(name for name, _ in STRUCTURE), *last], rows)


def weights(results: Results) -> str:
    """What the layout weight buys, and what it costs."""
    rows = []
    for weight, records in results.by_weight():
        metrics = [value(records, metric) for metric in ("knn_1", "knn_15", "rmse", "nlpd")]
        rows.append([f"{weight:g}", *metrics, value(records, "trustworthiness"), value(records, "triplets")])
    return table(["layout_weight", "1-NN", "15-NN", "RMSE", "NLPD", "trustworthiness", "triplets"], rows)


# ---- the page ----

TABLES = {
    "table1": (table1, support),
    "table2": (table2,),
    "ablation": (ablation,),
    "appendix": (appendix,),
    "fig5": (evidence,),
    "layouts": (neighbours,),
    "tradeoff": (weights,),
}


def tables(studies: Iterable[str], out: Path, quick: bool) -> dict[str, str]:
    """The tables of studies by the names of their parts, as far as there are records."""
    return _tables(Results(out, quick=quick), studies)


def _tables(results: Results, studies: Iterable[str]) -> dict[str, str]:
    makers = (make for name in studies if results.of(name) for make in TABLES.get(name, ()))
    return {make.__name__: footnotes(make(results)) for make in makers}


def contents(out: Path, quick: bool) -> dict[str, str]:
    """The parts of the page: tables, figures, and what has not been run."""
    results = Results(out, quick=quick)
    missing = {make.__name__: _not_run(name) for name, makers in TABLES.items() for make in makers}
    shown = {
        name: f"![{figures.CAPTIONS[name]}.](images/reproduction-{name}.png)\n\n{figures.caption(name, results)}"
        if figures.CAN_DRAW[name](results)
        else _not_run(name)
        for name in figures.CAPTIONS
    }
    return missing | _tables(results, TABLES) | shown


def _not_run(name: str) -> str:
    return f"Not run yet: `python -m studies paper {name}`."


def pictures(out: Path, quick: bool) -> dict[str, Callable[[], Figure]]:
    """The figures that there are records for, by the names of their files."""
    results = Results(out, quick=quick)
    return {
        f"reproduction-{name}.png": partial(draw, results)
        for name, draw in figures.DRAW.items()
        if figures.CAN_DRAW[name](results)
    }
