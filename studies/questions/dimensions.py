"""How many dimensions oil flow has: n_components="auto" on DataTrn.

The relevance of all twelve dimensions, how many are kept, and the RMSE of the rows of DataTst through them.
"""

from collections.abc import Sequence
from typing import Any

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import rmse
from studies.records import Record, Run
from studies.tables import table as markdown


def runs(seed: int, quick: bool) -> list[Run]:
    """One per seed."""
    return [Run("dimensions", {"data": "oil-flow", "noise": "feature", "max_epochs": 2 if quick else 400}, seed)]


def execute(run: Run) -> dict[str, Any]:
    """Fit with all twelve, and with those that are kept."""
    settings = dict(run.settings)
    data: Any = load(settings.pop("data"))
    wide = SASGP(n_components=12, kernel="rbf-ard", **settings, random_state=run.seed).fit(data.X)
    kept = SASGP(n_components="auto", **settings, random_state=run.seed).fit(data.X)
    found: dict[str, Any] = {"relevance": wide.relevance_.round(3).tolist(), "kept": kept.n_components_}
    for name, model in (("rmse, 12", wide), ("rmse, kept", kept)):
        found[name] = rmse(data.X_test, model.predict(model.transform(data.X_test)))
    return found


def table(records: Sequence[Record]) -> str:
    """One line per seed."""
    rows = []
    for record in records:
        found = record["results"]
        relevance = ", ".join(f"{value:g}" for value in sorted(found["relevance"], reverse=True)[:4])
        numbers = (f"{found[name]:.4f}" for name in ("rmse, 12", "rmse, kept"))
        rows.append([str(record["seed"]), str(found["kept"]), *numbers, relevance])
    return markdown(["seed", "kept", "RMSE, 12", "RMSE, kept", "relevance of the first four"], rows)
