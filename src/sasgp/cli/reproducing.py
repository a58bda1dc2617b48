"""`sasgp reproduce`: the paper's tables and figures."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sasgp.cli.arguments import Flag, app
from sasgp.cli.printing import Line, show
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.reproduction.experiments import Run

__all__ = ["reproduce"]

Name = Literal["all", "table1", "table2", "ablation", "appendix", "fig2", "fig3", "fig4", "fig5", "layouts", "tradeoff"]
RESULTS, PAGE = Path("experiments/results"), Path("docs/reproduction.md")
SHOWN = {"rmse": "RMSE", "nlpd": "NLPD", "knn_1": "1-NN"}  # of a run, on its line


@app.command
def reproduce(
    name: Name,
    /,
    *,
    quick: Annotated[bool, Flag] = False,
    seeds: Annotated[list[int] | None, Parameter(consume_multiple=True, negative=())] = None,
    jobs: int = 1,
    out: Path = RESULTS,
    report: Path | None = None,
    list_: Annotated[bool, Parameter(name="--list", negative=())] = False,
) -> None:
    """Make the paper's tables and figures.

    Every run leaves a JSON file with its settings, metrics and training curve. Runs that are finished are skipped, so
    that a table can be completed in several sittings, and an interruption costs no more than the run under way.

    Parameters
    ----------
    name
        A table or a figure of the paper, or "all".
    quick
        A rehearsal in a minute or two: every data set is digits, and every model trains for one epoch. Its files go
        into the folder quick of OUT, and its numbers mean nothing.
    seeds
        By default 0 1 2, or 0 with --quick. Figures are of seed 0.
    jobs
        Runs at the same time, each with its share of the cores.
    out
        The folder for the files.
    report
        The page to write tables into, from all files in OUT, and figures into its folder images. By default
        docs/reproduction.md where there is one and OUT is not named, and none with --quick.
    list_
        Show what is done and what is missing, and run nothing. With --report the page is written all the same.
    """
    from sasgp.reproduction.experiments import EXPERIMENTS, queue

    if quick:
        out /= "quick"
    elif report is None and not list_ and out == RESULTS and PAGE.is_file():
        report = PAGE
    seeds = seeds or ([0] if quick else [0, 1, 2])
    if min(seeds) < 0:
        raise InputError(f"--seeds must not be negative. Got {min(seeds)}.")
    names = list(EXPERIMENTS) if name == "all" else [name]
    runs = queue(names, seeds, quick=quick)
    failed = 0
    if list_:
        show([(f"{name}: {len(runs)} runs in {out}", [_state(run, out) for run in runs])])
        if report is None:
            return
    else:
        failed = _work(runs, out, jobs)

    from sasgp.reproduction.report import tables, write  # matplotlib comes with these
    from sasgp.reproduction.results import Results

    results = Results(out, quick=quick)
    if not list_:
        for text in tables(results, names).values():
            sys.stdout.write(f"\n{text}\n")
    if report is not None:
        show([("", [("wrote", path, "") for path in write(results, report)])])
    if failed:
        raise InputError(f"{failed} of {len(runs)} runs failed. Put right what their lines say, and run it again.")


def _work(runs: "list[Run]", out: Path, jobs: int) -> int:
    """Do what is missing, with a line for each run, and return how many failed."""
    from sasgp.cli import files
    from sasgp.reproduction.running import finished, work

    with files.writable(out):
        out.mkdir(parents=True, exist_ok=True)
    missing = [run for run in runs if finished(run, out) is None]
    failed = 0
    for i, outcome in enumerate(work(missing, out, jobs=jobs, verbose=jobs == 1), 1):
        ended = f"failed: {outcome.error}" if outcome.record is None else _brief(outcome.record)
        failed += outcome.record is None
        sys.stdout.write(f"[{i}/{len(missing)}] {outcome.run.title}  {ended}\n")
        sys.stdout.flush()
    return failed


def _state(run: "Run", out: Path) -> Line:
    from sasgp.reproduction.running import finished

    record = finished(run, out)
    if record is not None:
        return run.title, "done", _brief(record)
    there = (out / f"{run.title}.json").exists()
    return run.title, "missing", "there is one with other settings; it will be replaced" if there else ""


def _brief(record: "dict[str, object]") -> str:
    seconds, metrics = record.get("seconds"), record["metrics"]
    assert isinstance(metrics, dict)
    values = [f"{label} {metrics[key]:.4f}" for key, label in SHOWN.items() if key in metrics]
    return "  ".join([*([f"{seconds:.0f} s"] if isinstance(seconds, float) else []), *values])
