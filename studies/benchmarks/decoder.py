"""The trained decoder: predict, refine and score through positions that stand for all rows, and given 2000 rows.

Both decoders belong to one model, and take turns. The share of the pass over all rows is that of a training of 30
epochs, computed from the seconds of those that were trained.
"""

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.data.rows import ArrayRows
from sasgp.gp.row_sums import condition
from sasgp.training.loop import Alone
from studies.benchmarks.measure import compared, interleaved, spread, timed
from studies.benchmarks.step import DATA
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["execute", "table"]

EPOCHS, FULL = 2, 30
GIVEN = 2000  # rows of the other decoder, as many as `support_size` was before all rows counted
NEW, REFINED, SCORED = 10_000, 40, 40  # new rows that are decoded, refined and scored
ALL, SOME = "all rows", f"{GIVEN} rows"


def execute(run: Run) -> dict[str, Any]:
    """One training, and both decoders in turns."""
    quick = run.settings["quick"]
    data: Any = load("digits" if quick else DATA)
    X, X_new = (np.asarray(part, np.float32) for part in (data.X, data.X_test))
    model = SASGP(max_epochs=EPOCHS, random_state=0, encoder_noise=0.0).fit(X)
    other, some = copy(model), torch.randperm(len(X), generator=torch.Generator().manual_seed(0))[:GIVEN]
    trained = model.model_
    rows, Z = torch.from_numpy(X)[some], torch.from_numpy(model.embedding_)[some]
    other.posterior_ = condition(trained.kernel, trained.noise, Z, rows, trained.mean, trained.scales)
    Z_new = model.transform(X_new)[:NEW]
    calls = {
        "predict": lambda one: one.predict(Z_new, return_std=True),
        "transform(refine=20)": lambda one: one.transform(X_new[:REFINED], refine=20),
        "score_samples": lambda one: one.score_samples(X_new[:SCORED]),
    }
    table = []
    for name, call in calls.items():
        contenders = {ALL: lambda call=call: call(model), SOME: lambda call=call: call(other)}
        found = interleaved(contenders, rounds=1 if quick else 3, seconds=0, title=name)
        n = {"predict": len(Z_new), "transform(refine=20)": REFINED, "score_samples": SCORED}[name]
        table.append(
            {
                "": name,
                "rows": n,
                f"ms per row, {ALL}": spread([1e3 * s / n for s in found[ALL]]),
                f"ms per row, {SOME}": spread([1e3 * s / n for s in found[SOME]]),
                "times as fast": compared(found, SOME, ALL),
            }
        )
    source = ArrayRows(X, torch.float32, torch.device("cpu"))
    seconds = [timed(lambda: model._final_posterior(source, Alone())) for _ in range(1 if quick else 3)]
    epoch = model.history_[-1]["seconds"] / len(model.history_)
    return {
        "positions": model.support_size_,
        "missed share": model.missed_share_,
        "rows": table,
        "pass": spread(seconds),
        "pass / training": spread([s / (FULL * epoch) for s in seconds]),
    }


def table(records: Sequence[Record]) -> str:
    """One line per method, and the pass."""
    result = records[0]["results"]
    share = result["pass / training"]["median"]
    return (
        f"{of_rows(result['rows'])}\n\n{result['positions']} positions stand for all rows, and miss "
        f"{result['missed share']:.1e} of the prior's variance there. The pass over all rows takes "
        f"{result['pass']['median']:.2f} s: {share:.3f} of the time of {FULL} epochs."
    )
