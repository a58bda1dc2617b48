"""Oil flow by the protocol of Lalchand et al. (2022): reconstruction of rows that nobody has seen.

    SASGP_DATA=data python experiments/oil_flow.py

The 1000 rows of DataTrn at their raw scale, 950 to train on and 50 to test, 12 latent dimensions, five seeds. z* is
inferred from the test row: by the encoder, then by climbing the density. RMSE over all values; NLPD summed over the 12
features. Every run is a JSON in experiments/results; those that are there are skipped.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from sasgp import SASGP, metrics
from sasgp.data import load

RESULTS = Path(__file__).parent / "results"
VARIANTS = {
    "shared": {"noise": "shared"},
    "feature": {"noise": "feature"},
    "point": {"noise": "feature", "latents": "point"},
}
REFINE = (0, 100)  # steps


def run(variant: str, seed: int, epochs: int | None) -> dict[str, object]:
    """A split, a fit, and its test rows encoded and refined."""
    X = load("oil-flow").X
    order = np.random.default_rng(seed).permutation(len(X))
    train, test = X[order[50:]], X[order[:50]]
    model = SASGP(n_components=12, kernel="rbf-ard", max_epochs=epochs, random_state=seed, **VARIANTS[variant])
    model.fit(train)
    found: dict[str, object] = {"variant": variant, "seed": seed, "epochs": len(model.history_)}
    for steps in REFINE:
        mean, std = model.predict(model.transform(test, refine=steps), return_std=True)
        nlpd = X.shape[1] * metrics.nlpd(test, mean, std**2)
        found[f"refine {steps}"] = {"rmse": metrics.rmse(test, mean), "nlpd": nlpd}
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--variants", nargs="+", default=list(VARIANTS), choices=VARIANTS)
    arguments = parser.parse_args()
    for variant in arguments.variants:
        results = []
        for seed in range(arguments.seeds):
            path = RESULTS / f"oil-flow-protocol-{variant}-seed{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(run(variant, seed, arguments.epochs)) + "\n")
            results.append(json.loads(path.read_text()))
        for steps in REFINE:
            rmse, nlpd = (np.array([r[f"refine {steps}"][name] for r in results]) for name in ("rmse", "nlpd"))
            print(
                f"{variant:8} {steps:3} steps   RMSE {rmse.mean():.4f} ± {rmse.std(ddof=1):.4f}   "
                f"NLPD {nlpd.mean():.2f} ± {nlpd.std(ddof=1):.2f}"
            )
