"""What refinement does for the latents of new rows: MNIST's test rows, and digits with and without a network.

RMSE and NLPD are through the latent space. "log joint" is the mean over rows of log p(x|z) + log p(z), which refinement
climbs. With --file RUNS, MNIST's model is RUNS/mnist/model.safetensors, which `sasgp fit mnist --out RUNS/mnist`
leaves.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from sklearn.neighbors import NearestNeighbors

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import knn, reconstruction
from sasgp.gp import refine as gp_refine
from studies.questions.models import trained
from studies.records import Record, Run
from studies.tables import table as markdown

TEST_ROWS = 2000
NEAREST = 10  # training rows whose latents are further starts
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


def refined(model: SASGP, X: Any, steps: int, near: Callable[..., Any] | None = None) -> Any:
    """Latents after so many steps from the encoder's answer, the decoder's positions and, if asked for, `near` rows."""
    found = []
    starts = gp_refine.PositionStarts(model.posterior_)
    for block in torch.as_tensor(X, dtype=torch.float32).split(500):
        encoded = torch.as_tensor(model.transform(block.numpy()))
        places = [encoded[:, None], starts(block), *([] if near is None else [near(block)])]
        found.append(gp_refine.refine(model.posterior_, block, torch.cat(places, 1), steps))
    return torch.cat(found).numpy()


def of_mnist(model: SASGP) -> dict[str, Any]:
    """From the encoder, from the decoder's positions, and from the training rows nearest in the space of the data."""
    data: Any = load("mnist")
    rows = np.sort(np.random.default_rng(0).permutation(len(data.X_test))[:TEST_ROWS])
    X = data.X_test[rows]
    found = {"encoder": measure(model, data, rows, model.transform(X))}
    index = NearestNeighbors(n_neighbors=NEAREST, algorithm="brute").fit(data.X)

    def near(block: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(model.embedding_[index.kneighbors(block.numpy(), return_distance=False)])

    for words, more in {"positions": None, f"positions and {NEAREST} nearest rows": near}.items():
        for steps in (0, 10):
            found[f"refine={steps}, {words}"] = measure(model, data, rows, refined(model, X, steps, more))
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
