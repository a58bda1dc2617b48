"""How many dimensions has oil flow? n_components="auto" on DataTrn, several seeds.

    SASGP_DATA=data python experiments/dimensions.py

Leaves experiments/results/dimensions.jsonl, a line for every seed: the relevance of all twelve dimensions, how many are
kept, and the RMSE of the rows of DataTst through them.
"""

import json
from pathlib import Path

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import rmse

RESULT = Path(__file__).parent / "results" / "dimensions.jsonl"

if __name__ == "__main__":
    data = load("oil-flow")
    done = len(RESULT.read_text().splitlines()) if RESULT.exists() else 0
    for seed in range(done, 3):
        settings = {"noise": "feature", "max_epochs": 400, "random_state": seed}
        wide = SASGP(n_components=12, kernel="rbf-ard", **settings).fit(data.X)
        kept = SASGP(n_components="auto", **settings).fit(data.X)
        found = {"seed": seed, "relevance": wide.relevance_.round(3).tolist(), "kept": kept.n_components_}
        for name, model in (("rmse, 12", wide), ("rmse, kept", kept)):
            found[name] = rmse(data.X_test, model.predict(model.transform(data.X_test)))
        with RESULT.open("a") as file:
            file.write(json.dumps(found) + "\n")
    print(RESULT.read_text())
