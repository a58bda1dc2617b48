"""Three ways to the evidence of one trained model of digits.

The unbiased estimate improves on single terms of the sum; its standard error says by how much.
"""

from collections.abc import Sequence
from typing import Any

from sasgp import SASGP
from sasgp.data import load
from studies.records import Record, Run
from studies.tables import table as markdown

METHODS: tuple[Any, ...] = ("exact", "sas", "unbiased")


def execute(run: Run) -> dict[str, Any]:
    """Train once and estimate."""
    X = load("digits").X
    model = SASGP(random_state=0, max_epochs=1 if run.settings["quick"] else None).fit(X)
    found = {name: model.evidence(X, method=name, random_state=0) for name in METHODS}
    values = {
        name: {"per value": one.per_value, "standard error": one.standard_error / X.size} for name, one in found.items()
    }
    return {"rows": len(X), "A": model.active_set_size_, **values}


def table(records: Sequence[Record]) -> str:
    """One line per method."""
    found = records[0]["results"]
    rows = [[name, f"{found[name]['per value']:.4f}", f"{found[name]['standard error']:.4f}"] for name in METHODS]
    return markdown(["", "nats per value", "standard error"], rows)
