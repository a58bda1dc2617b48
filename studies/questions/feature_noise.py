"""One noise for all features, or units of its own for each: tables at their raw scale.

    SASGP_DATA=data python experiments/feature_noise.py

Test rows through the latent space. NLPD a value; RMSE of every feature in its own standard deviations, averaged as
squares; the share of values in 90 % intervals. Every run is a JSON in experiments/results; those that are there are
skipped. `--figure` draws docs/images/calibration.png from breast cancer's.
"""

import argparse
import json
from itertools import product
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.model_selection import train_test_split

from sasgp import SASGP, metrics, plots
from sasgp.data import load

RESULTS = Path(__file__).parent / "results"
FIGURE = Path(__file__).parents[1] / "docs" / "images" / "calibration.png"
TABLES = {"iris": load_iris, "wine": load_wine, "breast-cancer": load_breast_cancer, "digits": load_digits}


def rows(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Training and test rows, as they come."""
    if name == "oil-flow":
        data = load(name)
        return data.X, data.X_test
    train, test = train_test_split(TABLES[name]().data, test_size=0.2, random_state=seed)
    return train, test


def run(name: str, noise: str, seed: int) -> dict[str, object]:
    """Fit, reconstruct the test rows, and compare."""
    train, test = rows(name, seed)
    model = SASGP(noise=noise, random_state=seed).fit(train)
    mean, std = model.predict(model.transform(test), return_std=True)
    counts = metrics.pit_counts(test, mean, np.square(std, dtype=np.float64))
    units = np.where(train.std(0) > 0, train.std(0), 1)
    return {
        "data": name,
        "noise": noise,
        "seed": seed,
        "nlpd": metrics.nlpd(test, mean, np.square(std, dtype=np.float64)),
        "rmse": metrics.rmse(test / units, mean / units),
        "coverage": {level: metrics.coverage(counts, float(level)) for level in ("0.5", "0.9", "0.99")},
        "pit": counts.tolist(),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--figure", action="store_true")
    arguments = parser.parse_args()
    print("| data | noise | NLPD | RMSE | in 90 % intervals |\n|---|---|---|---|---|")
    for name, noise in product(("iris", "wine", "breast-cancer", "oil-flow", "digits"), ("shared", "feature")):
        found = []
        for seed in range(arguments.seeds):
            path = RESULTS / f"feature-noise-{name}-{noise}-seed{seed}.json"
            if not path.exists():
                path.write_text(json.dumps(run(name, noise, seed)) + "\n")
            found.append(json.loads(path.read_text()))
        nlpd, rmse = (np.array([one[key] for one in found]) for key in ("nlpd", "rmse"))
        covered = np.mean([one["coverage"]["0.9"] for one in found])
        cells = [f"{values.mean():.3f} ± {values.std(ddof=1):.3f}" for values in (nlpd, rmse)]
        print(f"| {name} | {noise} | {' | '.join(cells)} | {covered:.3f} |", flush=True)
        if arguments.figure and (name, noise) == ("breast-cancer", "feature"):
            counts = np.sum([one["pit"] for one in found], 0)
            plots.calibration(counts, title="breast cancer, noise='feature'").savefig(FIGURE, dpi=110)
