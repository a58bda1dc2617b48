"""What noise on the encoder's input does: digits and oil flow, default settings, encoder_noise 0 and 1.

    SASGP_DATA=data python experiments/encoder_noise.py

Each run leaves experiments/results/encoder-noise-{data}-{noise}-seed{S}.json; finished runs are skipped. Metrics are of
the test rows through the latent space.
"""

import json
from pathlib import Path

import numpy as np

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, rmse

RESULTS = Path(__file__).parent / "results"


def run(name: str, noise: float, seed: int) -> dict[str, object]:
    """Train once and measure."""
    data = load(name)
    model = SASGP(encoder_noise=noise, random_state=seed).fit(data.X)
    Z_test = model.transform(data.X_test)
    metrics = {
        "1-NN": knn_accuracy(model.embedding_, data.y, Z_test, data.y_test),
        "RMSE": rmse(data.X_test, model.predict(Z_test)),
        "NLPD, test": -model.score_samples(data.X_test, n_samples=0).mean() / data.X.shape[1],
        "NLPD, training": -model.score_samples(data.X, n_samples=0).mean() / data.X.shape[1],
    }
    return {"settings": model.get_params(), "metrics": metrics, "seconds": model.history_[-1]["seconds"]}


if __name__ == "__main__":
    RESULTS.mkdir(exist_ok=True)
    for name in ("digits", "oil-flow"):
        for noise in (0.0, 1.0):
            runs = []
            for seed in (0, 1, 2):
                path = RESULTS / f"encoder-noise-{name}-{noise:g}-seed{seed}.json"
                if not path.exists():
                    text = json.dumps(run(name, noise, seed), indent=1)
                    partial = path.with_suffix(".partial")
                    partial.write_text(text)
                    partial.rename(path)
                runs.append(json.loads(path.read_text())["metrics"])
            summary = {key: np.array([metrics[key] for metrics in runs]) for key in runs[0]}
            print(name, noise, {key: f"{v.mean():.4f} ± {v.std(ddof=1):.4f}" for key, v in summary.items()}, flush=True)
