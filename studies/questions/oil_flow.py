"""Oil flow by the protocol of Lalchand et al. (2022): reconstruction of rows that were held out.

The 1000 rows of DataTrn at their raw scale, 950 to train on and 50 to test, 12 latent dimensions, five seeds. z* is
inferred from the test row: by the encoder, then by climbing the density. RMSE is over all values; NLPD is summed over
the 12 features.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sasgp import SASGP, metrics
from sasgp.data import load
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = range(5)
VARIANTS: dict[str, dict[str, Any]] = {
    "shared": {"noise": "shared"},
    "feature": {"noise": "feature"},
    "point": {"noise": "feature", "latents": "point"},
}
REFINE = (0, 100)  # steps


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each kind of noise and latents."""
    common = {"n_components": 12, "kernel": "rbf-ard", "max_epochs": 2 if quick else 400}
    return [Run(f"oil-flow-{name}", {**common, **own}, seed) for name, own in VARIANTS.items()]


def execute(run: Run) -> dict[str, Any]:
    """Split, fit, encode the test rows and refine them."""
    X = load("oil-flow").X
    order = np.random.default_rng(run.seed).permutation(len(X))
    train, test = X[order[50:]], X[order[:50]]
    model = SASGP(**run.settings, random_state=run.seed).fit(train)
    found: dict[str, Any] = {"epochs": len(model.history_)}
    for steps in REFINE:
        mean, std = model.predict(model.transform(test, refine=steps), return_std=True)
        nlpd = X.shape[1] * metrics.nlpd(test, mean, std**2)
        found[f"refine {steps}"] = {"rmse": metrics.rmse(test, mean), "nlpd": nlpd}
    return found


def table(records: Sequence[Record]) -> str:
    """Mean and deviation over seeds."""
    rows = []
    for variant in VARIANTS:
        found = [record["results"] for record in records if record["name"] == f"oil-flow-{variant}"]
        for steps in REFINE if found else ():
            parts = [one[f"refine {steps}"] for one in found]
            cells = [mean_and_deviation([p["rmse"] for p in parts]), mean_and_deviation([p["nlpd"] for p in parts], 2)]
            rows.append([variant, str(steps), *cells, str(len(found))])
    return markdown(["variant", "refine", "RMSE", "NLPD", "seeds"], rows)
