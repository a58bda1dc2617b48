"""What refinement does for the latents of new rows: MNIST's test rows, and digits with and without a network.

RMSE and NLPD are through the latent space. "log joint" is the mean over rows of log p(x|z) + log p(z), which refinement
climbs. With --file RUNS, MNIST's model is RUNS/mnist/model.safetensors, which `sasgp fit mnist --out RUNS/mnist`
leaves.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import knn, reconstruction
from sasgp.gp import refine as gp_refine
from studies.questions.models import trained
from studies.records import Record, Run
from studies.tables import table as markdown

TEST_ROWS = 2000
DIGITS: dict[str, dict[str, Any]] = {
    "network, seed 0": {"random_state": 0},
    "network, seed 1": {"random_state": 1},
    "table, seed 0": {"encoder": "table", "random_state": 0},
    "table, learning_rate=.02, seed 0": {"encoder": "table", "learning_rate": 0.02, "random_state": 0},
}
SHOWN = {"rmse": "RMSE", "nlpd": "NLPD", "knn_1": "1-NN", "knn_15": "15-NN", "log joint": "log joint"}


def runs(seed: int, quick: bool) -> list[Run]:
    """One per data set."""
    names = ("digits",) if quick else ("digits", "mnist")
    return [Run(f"refine-{data}", {"data": data, "max_epochs": 1 if quick else None}) for data in names]


def measure(model: SASGP, data: Any, rows: Any, Z: Any) -> dict[str, float]:
    """Metrics of test rows at latents Z."""
    X = np.asarray(data.X_test[rows], np.float32)
    posterior = model.posterior_
    with torch.no_grad():
        joint = [
            gp_refine.log_joint(posterior, torch.from_numpy(X[block]), torch.as_tensor(Z[block])).mean() * len(X[block])
            for block in posterior.blocks(len(X))
        ]
    found = reconstruction(model, X, Z) | knn(model.embedding_, data.y, Z, data.y_test[rows])
    found.pop("pit", None)
    return found | {"log joint": float(sum(joint)) / len(X)}


def best_start(model: SASGP, X: Any) -> Any:
    """The best of the starts by density: refinement before its first step."""
    rows, index = torch.as_tensor(X, dtype=torch.float32), getattr(model, "neighbours_", None)
    starts = [gp_refine.SupportStarts(model.posterior_), *([] if index is None else [index])]
    found = []
    for block in rows.split(500):
        places = [torch.as_tensor(model.transform(block.numpy()))[:, None], *(start(block) for start in starts)]
        found.append(gp_refine.refine(model.posterior_, block, torch.cat(places, 1), 0))
    return torch.cat(found).numpy()


def of_mnist(model: SASGP) -> dict[str, Any]:
    """From the encoder, from the support, and from all rows."""
    data: Any = load("mnist")
    rows = np.sort(np.random.default_rng(0).permutation(len(data.X_test))[:TEST_ROWS])
    X = data.X_test[rows]
    found = {"encoder": measure(model, data, rows, model.transform(X))}
    for words in ("support", "support and all rows"):
        if words != "support":
            model.build_index(data.X)
        found[f"best start, {words}"] = measure(model, data, rows, best_start(model, X))
        found[f"refine=10, {words}"] = measure(model, data, rows, model.transform(X, refine=10))
    return found


def of_digits(max_epochs: int | None) -> dict[str, Any]:
    """A network with and without refinement, and a table of latents, which always searches."""
    data: Any = load("digits")
    rows, found = np.arange(len(data.X_test)), {}
    for name, chosen in DIGITS.items():
        model = SASGP(**chosen, max_epochs=max_epochs).fit(data.X)
        for refine in (0,) if "encoder" in chosen else (0, 20):
            Z = model.transform(data.X_test, refine=refine)
            found[f"{name}, refine={refine}"] = measure(model, data, rows, Z)
    return found


def execute(run: Run) -> dict[str, Any]:
    """All variants of a data set."""
    if run.settings["data"] == "digits":
        return of_digits(run.settings["max_epochs"])
    return of_mnist(trained("mnist", run.file, quick=False))


def table(records: Sequence[Record]) -> str:
    """One line per variant."""
    rows = [
        [record["settings"]["data"], variant, *(f"{found[key]:.4f}".replace("-", "−") for key in SHOWN)]
        for record in records
        for variant, found in record["results"].items()
    ]
    return markdown(["", "latents", *SHOWN.values()], rows)
