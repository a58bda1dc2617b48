"""1-NN accuracy and held-out NLPD against wall time, from the start of a process, import included; UMAP beside it.

A run of E epochs has a learning rate that rises and falls within those E, so runs of different lengths are different
runs: each has its curve. The clock stands still while a point of a curve is evaluated.
"""

from collections.abc import Sequence
from typing import Any

from sasgp.data.progress import progress_bar
from studies.benchmarks.embedding import embedded
from studies.benchmarks.step import DATA
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["execute", "table"]

EPOCHS, QUICK_EPOCHS = (2, 5, 10, 30), (10,)


def execute(run: Run) -> dict[str, Any]:
    """A curve for every number of epochs, and UMAP."""
    quick = run.settings["quick"]
    data, lengths = ("digits", QUICK_EPOCHS) if quick else (DATA, EPOCHS)
    runs = []
    with progress_bar(f"quality  {data}", len(lengths) + 1) as update:
        for i, epochs in enumerate(lengths):
            update(i, f"{epochs} epochs")
            runs.append(embedded("sasgp", data, epochs, curve=True))
        update(len(lengths), "UMAP")
        umap = embedded("umap", data)
    ratios = [umap["fit"] / run["fit"] for run in runs]
    return {"data": data, "runs": runs, "umap": umap, "UMAP's fit / ours": ratios}


def table(records: Sequence[Record]) -> str:
    """One line per run, at its end."""
    result = records[0]["results"]
    runs = [
        {
            f"on {result['data']}": f"SASGP, {run['epochs']} epochs",
            "seconds from start-up": run["fit"],
            "UMAP's seconds / these": ratio,
            "1-NN": run["1-NN"],
            "NLPD": run["NLPD"],
        }
        for run, ratio in zip(result["runs"], result["UMAP's fit / ours"], strict=True)
    ]
    umap = result["umap"]
    return of_rows([*runs, dict(zip(runs[0], ("UMAP", umap["fit"], 1, umap["1-NN"], "none"), strict=True))])
