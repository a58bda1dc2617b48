"""Tables in Markdown, made of the files that runs left: the same text for the terminal and for the page.

A page has a pair of markers for every block, and what stands between them is written by `sasgp reproduce`:

    <!-- table1: written by sasgp reproduce -->
    <!-- end of table1 -->
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, stdev

from sasgp.cli import files
from sasgp.errors import InputError
from sasgp.reproduction import figures, published
from sasgp.reproduction.experiments import EPOCHS, EXPERIMENTS, SIZES
from sasgp.reproduction.results import NAMES, Results, model_name, place
from sasgp.reproduction.running import FEWER, Record

__all__ = ["blocks", "filled", "table", "tables", "write"]

STRUCTURE = (
    ("trust", "trustworthiness"),
    ("continuity", "continuity"),
    ("recall", "neighbour_recall"),
    ("triplets", "triplets"),
    ("silhouette", "silhouette"),
)
NOTHING = "–"
DPI = 110


# ---------------------------------------------------------------------------------------------------- numbers


def value(records: Sequence[Record], metric: str, digits: int = 4) -> str:
    """Mean ± standard deviation over seeds; of one seed the number."""
    found = [record["metrics"][metric] for record in records if metric in record["metrics"]]
    if not found:
        return NOTHING
    spread = f" ± {stdev(found):.{digits}f}" if len(found) > 1 else ""
    return f"{mean(found):.{digits}f}{spread}".replace("-", "−")


def _seconds(records: Sequence[Record]) -> str:
    found = [record["cpu_seconds"] for record in records if "cpu_seconds" in record]
    return f"{mean(found):.0f}" if found else NOTHING


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table whose columns are also straight in a terminal."""
    lines = [list(header), *map(list, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    text = ["| " + " | ".join(f"{cell:<{w}}" for cell, w in zip(line, widths, strict=True)) + " |" for line in lines]
    text.insert(1, "|" + "|".join("-" * (w + 2) for w in widths) + "|")
    return "\n".join(text)


# ---------------------------------------------------------------------------------------------------- tables


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
                        cells, better = cells + 1, better + (mean(r["metrics"][metric] for r in records) < paper)
                rows.append([*line, str(len(records))])
    header = ["", "latents", "A", "RMSE, paper", "RMSE", "MAE, paper", "MAE", "NLPD, paper", "NLPD", "seeds"]
    return f"{table(header, rows)}\n\nOurs is below the paper's in {better} of {cells} cells."


def support(results: Results) -> str:
    """The same models with as many support points as the paper's largest active set; nearest neighbours."""
    rows = []
    for name, records in results.of("table1").items():
        data, latents, A = name.removeprefix("table1-").rsplit("-", 2)
        pairs = [value(records, f"{metric}{more}") for metric in ("rmse", "nlpd") for more in (f"_{FEWER}", "")]
        neighbours = [value(records, "knn_1"), value(records, "knn_15")]
        rows.append([NAMES[data], latents, A[1:], *pairs, *neighbours, _seconds(records), str(len(records))])
    names = [f"{metric}, {size}" for metric in ("RMSE", "NLPD") for size in (FEWER, 2000)]
    return table(["", "latents", "A", *names, "1-NN", "15-NN", "CPU s", "seeds"], rows)


def table2(results: Results) -> str:
    """Nearest neighbours in the latent space, beside other models."""
    rows = []
    for run in sorted(EXPERIMENTS["table2"](0), key=place):
        records = results.records(run.name)
        point = run.settings.get("latents") == "point"
        paper = None if point else published.ONE_NN.get(run.data, {}).get(run.estimator)
        accuracy = NOTHING if paper is None else f"{paper:.2f}"
        ours = [value(records, metric) for metric in ("knn_1", "knn_15", "rmse", "nlpd")]
        rows.append([NAMES[run.data], model_name(run), accuracy, *ours, _seconds(records), str(len(records))])
    return table(["", "model", "1-NN, paper", "1-NN", "15-NN", "RMSE", "NLPD", "CPU s", "seeds"], rows)


def _compared(results: Results, lines: Iterable[tuple[str, str]], first: str) -> str:
    rows = []
    for title, name in lines:
        records = results.records(name)
        metrics = [value(records, metric) for metric in ("rmse", "mae", "nlpd", "knn_1")]
        rows.append([title, *metrics, str(len(records))])
    return table([first, "RMSE", "MAE", "NLPD", "1-NN", "seeds"], rows)


def ablation(results: Results) -> str:
    """Eq. 6 with one of its terms."""
    runs = EXPERIMENTS["ablation"](0)
    lines = [("both terms" if run.estimator == "SASGP" else model_name(run), run.name) for run in runs]
    return _compared(results, lines, "objective")


def appendix(results: Results) -> str:
    """More latent dimensions."""
    lines = [("2", "table1-mnist-bayesian-A400")]
    lines += [(str(run.settings["n_components"]), run.name) for run in EXPERIMENTS["appendix"](0)]
    return _compared(results, lines, "dimensions")


def evidence(results: Results) -> str:
    """SAS_A beside the exact evidence."""
    rows, notes = [], []
    for record in (record for records in results.of("fig5").values() for record in records):
        if "exact" in record["metrics"]:
            notes += [record["note"]] if "note" in record else []
            for name, found in record["metrics"].items():
                error = f" ± {found['standard_error_per_value']:.4f}" if found["n_estimates"] > 1 else ""
                rows.append(
                    [name, f"{found['per_value']:.4f}{error}", f"{found['seconds'] / found['n_estimates']:.1f}"]
                )
    return "\n\n".join([table(["", "nats for each value", "seconds"], rows), *notes])


def neighbours(results: Results) -> str:
    """Neighbourhoods, densities and times of one model, beside what people use for either."""
    first, last = ["", "model", "1-NN", "15-NN", "RMSE", "NLPD"], ["fit, CPU s", "transform, CPU s", "seeds"]
    rows = []
    for run in sorted(EXPERIMENTS["layouts"](0), key=place):
        records = results.records(run.name)
        if not records:
            continue
        parts = {"": "", "refined_": ", refined"} if "refined_knn_1" in records[0]["metrics"] else {"": ""}
        for prefix, words in parts.items():
            metrics = [value(records, f"{prefix}{metric}") for metric in ("knn_1", "knn_15", "rmse", "nlpd")]
            metrics += [value(records, f"{prefix}{metric}", 3) for _, metric in STRUCTURE]
            seconds = [_seconds(records), value(records, f"{prefix}transform_seconds", 1).partition(" ")[0]]
            rows.append([NAMES[run.data], f"{model_name(run)}{words}", *metrics, *seconds, str(len(records))])
    return table([*first, *(name for name, _ in STRUCTURE), *last], rows)


def weights(results: Results) -> str:
    """What the weight of staying near the layout buys, and what it costs."""
    rows = []
    for weight, records in results.by_weight():
        metrics = [value(records, metric) for metric in ("knn_1", "knn_15", "rmse", "nlpd")]
        rows.append([f"{weight:g}", *metrics, value(records, "trustworthiness"), value(records, "triplets")])
    return table(["neighbours", "1-NN", "15-NN", "RMSE", "NLPD", "trustworthiness", "triplets"], rows)


# ---------------------------------------------------------------------------------------------------- the page

TABLES = {
    "table1": (table1, support),
    "table2": (table2,),
    "ablation": (ablation,),
    "appendix": (appendix,),
    "fig5": (evidence,),
    "layouts": (neighbours,),
    "tradeoff": (weights,),
}


def tables(results: Results, experiments: Iterable[str]) -> dict[str, str]:
    """The tables of experiments by the names of their blocks, as far as there are results."""
    return {make.__name__: make(results) for name in experiments if results.of(name) for make in TABLES.get(name, ())}


def blocks(results: Results) -> dict[str, str]:
    """All that `sasgp reproduce` writes into a page: tables, figures, and what has not been run."""
    missing = {
        make.__name__: f"Not run yet: `sasgp reproduce {name}`." for name, makers in TABLES.items() for make in makers
    }
    pictures = {
        name: f"![{figures.CAPTIONS[name]}.](images/reproduction-{name}.png)\n\n{figures.caption(name, results)}"
        if figures.CAN_DRAW[name](results)
        else f"Not run yet: `sasgp reproduce {name}`."
        for name in figures.CAPTIONS
    }
    return missing | tables(results, TABLES) | pictures


def filled(page: str, contents: Mapping[str, str]) -> str:
    """A page with its blocks written anew."""
    for name, content in contents.items():
        marked = re.compile(rf"(<!-- {name}: [^\n]*-->\n).*?(<!-- end of {name} -->)", re.DOTALL)
        found = list(marked.finditer(page))
        if len(found) != 1:
            raise InputError(
                f"--report needs a page with the marker <!-- {name}: … --> once, and <!-- end of {name} --> after it. "
                f"Got {len(found)} of them; add what is missing, or name a file that does not exist."
            )
        page = f"{page[: found[0].end(1)]}{content}\n{page[found[0].start(2) :]}"
    return page


def write(results: Results, page: Path) -> list[Path]:
    """Write tables into a page, which is made where there is none, and figures into its folder images."""
    contents = blocks(results)
    if not page.exists():
        marks = (f"<!-- {name}: written by sasgp reproduce -->\n<!-- end of {name} -->\n" for name in contents)
        text = "\n".join(["# The paper's experiments\n", *marks])
    else:
        text = page.read_text(encoding="utf-8")
    text = filled(text, contents)
    folder = page.parent / "images"
    with files.writable(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = [page]
    for name, draw in figures.DRAW.items():
        if figures.CAN_DRAW[name](results):
            written.append(folder / f"reproduction-{name}.png")
            with files.replacing(written[-1]) as file:
                draw(results).savefig(file, dpi=DPI)
    with files.replacing(page) as file:
        file.write_text(text, encoding="utf-8")
    return written
