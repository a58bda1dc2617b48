"""Eight latent dimensions of MNIST: the decoder given all rows through positions, or for each query its nearest rows.

Test rows, z = encoder(x). The Bayesian GP-LVM has its 400 inducing points, and the nearest rows, too.
"""

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

import sasgp
from sasgp.data import load
from sasgp.evaluation import reconstruction
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

NEIGHBOURS = (128,)
MODELS: dict[str, dict[str, Any]] = {"sas": {"estimator": "SASGP"}, "inducing": {"estimator": "BayesianGPLVM"}}
NAMES = {"SASGP": "SAS", "BayesianGPLVM": "Bayesian GP-LVM, M = 400"}


def runs(seed: int, quick: bool) -> list[Run]:
    """One per model; the baseline for the first seed."""
    chosen = {"data": "digits" if quick else "mnist", "n_components": 8, "max_epochs": 1 if quick else 12}
    return [
        Run(f"nearest-rows-{name}", {**chosen, **model}, seed)
        for name, model in MODELS.items()
        if name == "sas" or seed == 0
    ]


def execute(run: Run) -> dict[str, Any]:
    """Train one model, and decode the test rows by each decoder."""
    data: Any = load(run.settings["data"])
    settings = {name: run.settings[name] for name in ("n_components", "max_epochs")}
    model = getattr(sasgp, run.settings["estimator"])(
        **settings, encoder_noise=0.0, random_state=run.seed, verbose=True
    )
    cpu = time.process_time()
    model.fit(data.X)
    found: dict[str, Any] = {"training": {"cpu_seconds": time.process_time() - cpu}}
    found["training"] |= {"missed_share": getattr(model, "missed_share_", None)}
    Z = model.transform(data.X_test)
    decoders = {"own decoder": model.predict}
    decoders |= {f"{k} nearest rows": partial(model.predict, neighbours=k, data=data.X) for k in NEIGHBOURS}
    for name, predict in decoders.items():
        cpu = time.process_time()
        quality = reconstruction(model, np.asarray(data.X_test), Z, predict)
        found[name] = {key: quality[key] for key in ("rmse", "nlpd", "coverage_90", "coverage_99")}
        found[name]["ms per row"] = 1e3 * (time.process_time() - cpu) / len(Z)
    return found


def table(records: Sequence[Record]) -> str:
    """One line per model and decoder."""
    rows = []
    for estimator, name in NAMES.items():
        mine = [record["results"] for record in records if record["settings"]["estimator"] == estimator]
        for decoder in [key for key in (mine[0] if mine else {}) if key != "training"]:
            values = [
                mean_and_deviation([found[decoder][key] for found in mine], digits)
                for key, digits in {"rmse": 4, "nlpd": 4, "coverage_90": 3, "coverage_99": 3, "ms per row": 2}.items()
            ]
            seconds = mean_and_deviation([found["training"]["cpu_seconds"] for found in mine], 0)
            rows.append([name, decoder, *values, seconds, str(len(mine))])
    return markdown(["", "decoder", "RMSE", "NLPD", "in 90 %", "in 99 %", "ms per row", "CPU s", "seeds"], rows)
