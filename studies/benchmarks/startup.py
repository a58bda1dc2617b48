"""How long until something is there: the help, the library, and what torch and Python alone take; new processes all."""

import os
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from studies.benchmarks.measure import compared, interleaved, spread
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["compiled", "execute", "table"]

COMMANDS = {
    "sasgp --help": ["-m", "sasgp", "--help"],
    "sasgp fit --help": ["-m", "sasgp", "fit", "--help"],
    'python -c "import sasgp"': ["-c", "import sasgp"],
    'python -c "from sasgp import SASGP"': ["-c", "from sasgp import SASGP"],
    'python -c "import torch"': ["-c", "import torch"],
    'python -c "import torch, sklearn.base"': ["-c", "import torch, sklearn.base"],
    'python -c "pass"': ["-c", "pass"],
}
AGAINST = 'python -c "import torch"'


def compiled() -> dict[str, str]:
    """The environment of a process that may keep what it compiles: an installed package is compiled once."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def execute(run: Run) -> dict[str, Any]:
    """Every command, in turns."""
    quick = run.settings["quick"]

    def process(arguments: list[str]) -> Any:
        line, environment = [sys.executable, *arguments], compiled()
        return lambda: subprocess.run(line, check=True, stdout=subprocess.DEVNULL, env=environment)

    calls = {name: process(arguments) for name, arguments in COMMANDS.items()}
    found = interleaved(calls, rounds=2 if quick else 15, seconds=0, title="startup")
    return {
        "rows": [
            {"command": name, "seconds": spread(found[name]), "ratio": compared(found, name, AGAINST)} for name in found
        ]
    }


def table(records: Sequence[Record]) -> str:
    """One line per command."""
    result = records[0]["results"]
    return of_rows(
        [
            {
                "process": f"`{row['command']}`",
                "seconds": row["seconds"]["median"],
                "of `import torch` (quartiles)": row["ratio"],
            }
            for row in result["rows"]
        ]
    )
