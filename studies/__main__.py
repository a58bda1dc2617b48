"""The command line: `python -m studies --help`."""

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import studies
from sasgp.errors import InputError
from studies import catalogue, records
from studies.catalogue import GROUPS, Study
from studies.runner import Task, queue, work

SHOWN = {"rmse": "RMSE", "nlpd": "NLPD", "knn_1": "1-NN"}  # on the line of a run


def main(line: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    line = list(sys.argv[1:] if line is None else line)
    given = _parser().parse_args(line)
    try:
        if given.group == "list":
            print(_overview())
            return 0
        if given.group == "data":
            _make_data(given)
            return 0
        return _study(given, shlex.join(["python", "-m", "studies", *line]))
    except (InputError, OSError) as error:
        print(f"studies: error: {error}", file=sys.stderr)
        return 2


# ---- arguments ----


def _overview() -> str:
    """All studies, one line each."""
    width = max(len(name) for group in GROUPS for name in catalogue.names(group))
    parts = []
    for group, about in GROUPS.items():
        lines = [f"  {name:<{width}}  {catalogue.summary(group, name)}" for name in catalogue.names(group)]
        parts.append("\n".join([f"{group}: {about}", *lines]))
    return "\n\n".join(parts)


def _parser() -> argparse.ArgumentParser:
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        "python -m studies", description=studies.__doc__, epilog=_overview(), formatter_class=form
    )
    groups = parser.add_subparsers(dest="group", required=True, metavar="GROUP")
    for group, about in GROUPS.items():
        names = ["all", *catalogue.names(group)]
        part = groups.add_parser(group, help=about, description=about, formatter_class=form)
        part.add_argument("names", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
        _add_options(part, group)
    groups.add_parser("list", help="show all studies, one line each")
    data = groups.add_parser("data", help="make data for the studies").add_subparsers(dest="data", required=True)
    about = "Deform and shift the training digits of MNIST into as many new ones as asked for."
    digits = data.add_parser("infinite-mnist", help=about, description=about)
    digits.add_argument("--rows", type=int, required=True, help="how many; the first rows are always the same")
    digits.add_argument("--out", type=Path, required=True, help=".npy file to write, one byte per pixel")
    digits.add_argument("--seed", type=int, default=0)
    return parser


def _add_options(part: argparse.ArgumentParser, group: str) -> None:
    part.add_argument("--seeds", type=int, nargs="+", help="by default those of the study, or 0 with --quick")
    part.add_argument("--quick", action="store_true", help="rehearsal: small data, few epochs, meaningless numbers")
    part.add_argument("--out", type=Path, metavar="FOLDER", help=f"for the records; by default studies/results/{group}")
    part.add_argument("--report", type=Path, metavar="PAGE", help="page to write tables and figures into")
    part.add_argument("--file", help="file for a study that reads one; its docstring says which")
    part.add_argument("--again", action="store_true", help="also run what is finished")
    what = part.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="run nothing; show what is done and what is missing")
    what.add_argument("--tables", action="store_true", help="run nothing; make tables and pages from the records")
    if group != "benchmarks":  # which must not share the machine
        part.add_argument("--jobs", type=int, default=1, help="runs at the same time, each with its share of the cores")


# ---- commands ----


def _study(given: argparse.Namespace, command: str) -> int:
    group = given.group
    if group != "benchmarks":
        # As `sasgp fit` does: threads that wait for each other should not spin on a shared machine
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    if min(given.seeds or [0]) < 0:
        raise InputError(f"--seeds must not be negative. Got {min(given.seeds)}.")
    names = catalogue.names(group) if "all" in given.names else given.names
    some = [catalogue.study(group, name) for name in names]
    folder = given.out or records.RESULTS / group
    out = folder / "quick" if given.quick else folder
    tasks = queue(some, given.seeds, quick=given.quick, file=given.file)
    if given.list:
        print(_states(tasks, out))
        return 0
    failed = 0
    if not given.tables:
        failed = _work(tasks, out, command, getattr(given, "jobs", 1), given.again)
    _show(some, out, given)
    if failed:
        raise InputError(f"{failed} of {len(tasks)} runs failed. Correct what their lines say, and run it again.")
    return 0


def _work(tasks: list[Task], out: Path, command: str, jobs: int, again: bool) -> int:
    """Do what is missing, print one line per run, and return how many failed."""
    out.mkdir(parents=True, exist_ok=True)
    missing = [task for task in tasks if again or records.finished(task.run, out) is None]
    failed = 0
    for i, outcome in enumerate(work(missing, out, command=command, jobs=jobs, again=again), 1):
        ended = f"failed: {outcome.error}" if outcome.record is None else _brief(outcome.record)
        failed += outcome.record is None
        print(f"[{i}/{len(missing)}] {outcome.run.title}  {ended}", flush=True)
    return failed


def _show(some: Sequence[Study], out: Path, given: argparse.Namespace) -> None:
    """Print the tables of studies, and write the group's page."""
    page: Any = import_module(f"studies.{given.group}.page")
    for text in page.tables([one.name for one in some], out, given.quick).values():
        print(f"\n{text}")
    report = given.report
    if report is None and not given.quick and given.out is None:
        report = page.PAGE
    if report is not None:
        from studies.tables import publish

        written = publish(report, page.contents(out, given.quick), page.pictures(out, given.quick), given.group)
        if given.report is None and hasattr(page, "others"):
            for other, contents in page.others(out, given.quick).items():
                written += publish(other, contents, {}, given.group)
        print("\n" + "\n".join(f"wrote {path}" for path in written))


def _states(tasks: Sequence[Task], out: Path) -> str:
    width = max(len(task.run.title) for task in tasks)
    return "\n".join([f"{len(tasks)} runs in {out}", *(f"{t.run.title:<{width}}  {_state(t, out)}" for t in tasks)])


def _state(task: Task, out: Path) -> str:
    if (record := records.finished(task.run, out)) is not None:
        return f"done     {_brief(record)}".rstrip()
    there = (out / f"{task.run.title}.json").exists()
    return "missing  a record with other settings will be replaced" if there else "missing"


def _brief(record: records.Record) -> str:
    """What a record says, on one line."""
    results = record["results"]
    seconds, metrics = results.get("seconds"), results.get("metrics", {})
    values = [f"{label} {metrics[key]:.4f}" for key, label in SHOWN.items() if key in metrics]
    return "  ".join([*([f"{seconds:.0f} s"] if isinstance(seconds, float) else []), *values])


def _make_data(given: argparse.Namespace) -> None:
    from sasgp.data import named
    from sasgp.data.progress import progress_bar
    from studies.infinite_mnist import check_request, write_infinite

    check_request(given.rows, given.out, given.seed)  # before anything is downloaded
    raw = named.fetch("mnist")
    images, labels = (named.read_idx(raw[name], name) for name in named.IDX[:2])
    with progress_bar("digits", given.rows) as update:
        label_path = write_infinite(images, labels, given.rows, given.out, seed=given.seed, update=update)
    print(f"wrote {given.out}: {given.rows} rows of 28×28\nwrote {label_path}: their labels")


if __name__ == "__main__":
    sys.exit(main())
