"""What noise on the encoder's input does, on digits and oil flow with default settings.

Metrics are of the test rows through the latent space.
"""

from collections.abc import Sequence
from typing import Any

from sasgp import SASGP
from sasgp.data import load
from sasgp.metrics import knn_accuracy, rmse
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

DATA, NOISES = ("digits", "oil-flow"), (0.0, 1.0)
METRICS = ("1-NN", "RMSE", "NLPD, test", "NLPD, training")


def runs(seed: int, quick: bool) -> list[Run]:
    """With and without noise."""
    return [
        Run(
            f"encoder-noise-{data}-{noise:g}",
            {"data": data, "encoder_noise": noise, "max_epochs": 1 if quick else None},
            seed,
        )
        for data in (DATA[:1] if quick else DATA)
        for noise in NOISES
    ]


def execute(run: Run) -> dict[str, Any]:
    """Train once and measure."""
    settings = dict(run.settings)
    data: Any = load(settings.pop("data"))
    model = SASGP(**settings, random_state=run.seed).fit(data.X)
    Z_test = model.transform(data.X_test)
    metrics = {
        "1-NN": knn_accuracy(model.embedding_, data.y, Z_test, data.y_test),
        "RMSE": rmse(data.X_test, model.predict(Z_test)),
        "NLPD, test": -model.score_samples(data.X_test, n_samples=0).mean() / data.X.shape[1],
        "NLPD, training": -model.score_samples(data.X, n_samples=0).mean() / data.X.shape[1],
    }
    return {"parameters": model.get_params(), "metrics": metrics, "seconds": model.history_[-1]["seconds"]}


def table(records: Sequence[Record]) -> str:
    """Mean and deviation over seeds."""
    rows = []
    for data in DATA:
        for noise in NOISES:
            asked = [r for r in records if (r["settings"]["data"], r["settings"]["encoder_noise"]) == (data, noise)]
            found = [record["results"]["metrics"] for record in asked]
            cells = [mean_and_deviation([metrics[name] for metrics in found]) for name in METRICS]
            rows += [[data, f"{noise:g}", *cells, str(len(found))]] if found else []
    return markdown(["", "encoder_noise", *METRICS, "seeds"], rows)
