"""The command line: `python -m benchmarks --help`."""

import argparse
import importlib
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import benchmarks
from benchmarks.measure import machine, write

NAMES = ("floor", "autograd", "peers", "scaling", "quality", "startup", "scale")
RESULTS = Path(__file__).parent / "results"


def main(line: Sequence[str]) -> None:
    """Run benchmarks, show their tables, keep their numbers; then the figures."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m benchmarks", description=benchmarks.__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"{', '.join(NAMES)} or figures; all by default")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: numbers that prove nothing")
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="for the JSONs; by default benchmarks/results")
    parser.add_argument("--file", type=Path, metavar="X.npy", help="rows for scale; by default random ones")
    given = parser.parse_args(line)
    if unknown := [name for name in given.names if name not in (*NAMES, "figures")]:
        parser.error(f"Expected names among {', '.join(NAMES)} and figures. Got {', '.join(unknown)}; correct them.")
    folder = given.out or (RESULTS / "quick" if given.quick else RESULTS)
    names = given.names or [*NAMES, "figures"]
    for name in names:
        if name == "figures":
            continue
        module = importlib.import_module(f"benchmarks.{name}")
        started, before = time.monotonic(), machine()
        found = module.run(quick=given.quick, **({"file": given.file} if name == "scale" else {}))
        path = folder / f"{name}.json"
        result = write(
            path, found, before, command=shlex.join(["python", "-m", "benchmarks", *line]), quick=given.quick
        )
        print(f"\n{name}\n\n{module.table(result)}")
        print(f"{name}: {time.monotonic() - started:.0f} s, {path}", file=sys.stderr)
    if "figures" in names:
        from benchmarks import figures

        for path in figures.publish(folder, docs=folder == RESULTS):
            print(path, file=sys.stderr)


if __name__ == "__main__":
    main(sys.argv[1:])
