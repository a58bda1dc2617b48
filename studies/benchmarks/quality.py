"""1-NN accuracy and held-out NLPD against wall time, from the start of a process, import included; UMAP beside it.

A run of E epochs has a learning rate that rises and falls within those E, so runs of different lengths are different
runs: each has its curve. The clock stands still while a point of a curve is evaluated. The short runs and UMAP take
turns, so that their ratios have medians.
"""

from collections.abc import Sequence
from statistics import median
from typing import Any

from sasgp.data.progress import progress_bar
from studies.benchmarks.embedding import embedded
from studies.benchmarks.step import DATA
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["execute", "table"]

SMALL = {"batch_size": 512, "active_set_size": 200}  # twice as many steps in an epoch as by default
RUNS: tuple[dict[str, int], ...] = (
    {"epochs": 1, **SMALL},
    *({"epochs": epochs} for epochs in (1, 2, 5, 10, 30)),
)
QUICK_RUNS = ({"epochs": 10},)
TURNS, LONG = 3, 10  # runs of so many epochs or more take only the first turn
AIMS = (("1-NN", 0.63), ("NLPD", -0.235))


def execute(run: Run) -> dict[str, Any]:
    """Every run with its curve, and UMAP: several times, with medians of the seconds and of their ratios."""
    quick = run.settings["quick"]
    data, settings = ("digits", QUICK_RUNS) if quick else (DATA, RUNS)
    plan = [(turn, how) for turn in range(1 if quick else TURNS) for how in (*settings, None)]
    plan = [(turn, how) for turn, how in plan if not (turn and how and how["epochs"] >= LONG)]
    found: list[tuple[int, dict[str, int] | None, dict[str, Any]]] = []
    with progress_bar(f"quality  {data}", len(plan)) as update:
        for i, (turn, how) in enumerate(plan):
            update(i, "UMAP" if how is None else _called(how))
            done = embedded("umap", data) if how is None else embedded("sasgp", data, curve=turn == 0, **how)
            found.append((turn, how, done))
    umaps = {turn: done for turn, how, done in found if how is None}
    runs = []
    for how in settings:
        mine = {turn: done for turn, other, done in found if other == how}
        ratios = [umaps[turn]["fit"] / done["fit"] for turn, done in mine.items()]
        seconds = {"fit": median(done["fit"] for done in mine.values()), "turns": len(mine)}
        runs.append({**mine[0], **how, **seconds, "UMAP's fit / this": median(ratios), "ratios": ratios})
    umap = {**umaps[0], "fit": median(done["fit"] for done in umaps.values())}
    return {"data": data, "runs": runs, "umap": umap, "aims": [_reached(runs, *aim) for aim in AIMS]}


def _reached(runs: Sequence[dict[str, Any]], measure: str, aim: float) -> dict[str, Any]:
    """The shortest run that reaches an aim at its end."""
    better = [run for run in runs if (run[measure] >= aim if measure == "1-NN" else run[measure] <= aim)]
    best = min(better, key=lambda run: run["fit"], default=None)
    return {"measure": measure, "aim": aim, "run": None if best is None else runs.index(best)}


def _on_the_way(result: dict[str, Any], measure: str, aim: float, run: int | None) -> float | str:
    """UMAP's seconds over those after which the latents of some run had reached an aim, at the end of an epoch.

    Latents need no more than the encoder. A density needs the pass over all rows, for which the clock stands still.
    """
    if measure != "1-NN":
        return "–"
    seconds = [point["seconds"] for one in result["runs"] for point in one["points"] if point[measure] >= aim]
    return result["umap"]["fit"] / min(seconds) if seconds else "–"


def _called(run: dict[str, int]) -> str:
    """A run in words."""
    name = f"{run['epochs']} epoch{'s' * (run['epochs'] > 1)}"
    return f"{name}, B = {run['batch_size']}, A = {run['active_set_size']}" if "batch_size" in run else name


def table(records: Sequence[Record]) -> str:
    """One line per run, at its end; then the shortest runs that reach the aims."""
    result = records[0]["results"]
    runs = [
        {
            f"on {result['data']}": f"SASGP, {_called(run)}",
            "seconds from start-up": run["fit"],
            "UMAP's seconds / these": run["UMAP's fit / this"],
            "turns": run["turns"],
            "1-NN": run["1-NN"],
            "NLPD": run["NLPD"],
        }
        for run in result["runs"]
    ]
    umap = result["umap"]
    turns = max(run["turns"] for run in result["runs"])
    last = dict(zip(runs[0], ("UMAP", umap["fit"], 1, turns, umap["1-NN"], "none"), strict=True))
    reached = []
    for aim in result["aims"]:
        best = None if aim["run"] is None else result["runs"][aim["run"]]
        line = ("none", "–") if best is None else (_called(best), best["UMAP's fit / this"])
        names = ("aim", "shortest run", "times as fast as UMAP's fit", "times as fast, on the way")
        name = f"{aim['measure']} of {aim['aim']:g}"
        reached.append(dict(zip(names, (name, *line, _on_the_way(result, **aim)), strict=True)))
    return of_rows([*runs, last]) + "\n\n" + of_rows(reached)
