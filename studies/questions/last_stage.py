"""A last stage of training on what predictions use: nearest rows, or the decoder that has seen all rows.

MNIST: 48 000 of its training rows train, and the 2000 after them judge. Each variant takes twelve epochs, but for one
of eighteen that takes about as much time as a last stage. Those with a last stage train ten by active sets; the latents
of all rows are then held, and renewed before each of the last two epochs:

    nearest rows              log p(x_n | z_n, the K nearest other rows) − KL, in encoder, kernel and noise
    nearest rows, kernel only the same in kernel and noise, at the latents that the encoder gives
    all rows                  log p(x_n | z_n, all rows) − KL, in the encoder

Then all rows condition the decoder again, through positions, and each query is given its nearest rows.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from sasgp import SASGP
from sasgp.data import load
from sasgp.data.rows import ArrayRows
from sasgp.evaluation import reconstruction
from sasgp.gp.kernels import units_of
from sasgp.gp.nearest import without_itself
from sasgp.gp.neighbours import Neighbours
from sasgp.gp.objective import LOG_2PI
from sasgp.models.base import drawn
from sasgp.training.loop import Alone
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = (0, 1, 2)
STAGES = ("none", "none, 18 epochs", "nearest rows", "nearest rows, kernel only", "all rows")
DIMENSIONS = (8, 2)
TRAIN, JUDGED = 0.8, 2000  # share of the rows, and rows
EPOCHS, LAST = 12, 2
K, BATCH = 48, 256
RATE, HYPER_RATE = 5e-4, 5e-3  # at first; they fall to 0 along a line
NEIGHBOURS = 128  # of the decoder by nearest rows


def runs(seed: int, quick: bool) -> list[Run]:
    """One for each number of dimensions and kind of last stage."""
    chosen = {"data": "digits" if quick else "mnist", "epochs": 3 if quick else EPOCHS}
    return [
        Run(f"last-stage-Q{Q}-{stage.replace(', ', '-').replace(' ', '-')}", {**chosen, "Q": Q, "stage": stage}, seed)
        for Q in DIMENSIONS
        for stage in STAGES
    ]


def execute(run: Run) -> dict[str, Any]:
    """Train, add the last stage, and measure on rows that were held out of the training data."""
    data, stage, epochs = (run.settings[name] for name in ("data", "stage", "epochs"))
    X = np.asarray(load(data).X, dtype=np.float32)
    n = round(TRAIN * len(X))
    X, X_held = X[:n], X[n:][:JUDGED]
    cpu = time.process_time()
    first = {"none": epochs, "none, 18 epochs": 3 * epochs // 2}.get(stage, epochs - LAST)
    model = SASGP(n_components=run.settings["Q"], max_epochs=first, encoder_noise=0.0, random_state=run.seed)
    model.fit(X)
    if not stage.startswith("none"):
        _train_further(model, torch.as_tensor(X), stage, run.seed or 0)
        _condition_again(model, X)
    found: dict[str, Any] = {"cpu_seconds": time.process_time() - cpu, "noise": model.model_.noise.item()}
    found["lengthscale"] = float(units_of(model.model_.kernel, run.settings["Q"]).mean())
    Z = model.transform(X_held)
    nearest = partial(model.predict, neighbours=min(NEIGHBOURS, n), data=X)
    decoders: dict[str, Callable[..., Any]] = {"own": model.predict, "nearest": nearest}
    for name, predict in decoders.items():
        quality = reconstruction(model, X_held, Z, predict)
        found[name] = {key: quality[key] for key in ("rmse", "nlpd")}
    return found


def _train_further(model: SASGP, X: Tensor, stage: str, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    encoder, trained = model.model_.encoder, model.model_
    groups = []
    if stage != "nearest rows, kernel only":
        groups += [{"params": list(encoder.parameters()), "lr": RATE}]
    if stage != "all rows":
        groups += [{"params": trained.decoder_parameters, "lr": HYPER_RATE}]
    adam, n_batches = torch.optim.Adam(groups), len(X) // BATCH
    rates = torch.optim.lr_scheduler.LinearLR(adam, 1.0, 0.0, LAST * n_batches)
    for epoch in range(LAST):
        if epoch:
            model.embedding_ = model.transform(X.numpy())
            if stage == "all rows":
                _condition_again(model, X.numpy())
        log_p = _given_all(model, X) if stage == "all rows" else _given_nearest(model, X)
        encoder.train()
        for index in torch.randperm(len(X), generator=draw)[: n_batches * BATCH].view(-1, BATCH):
            with torch.set_grad_enabled(stage != "nearest rows, kernel only"):
                mu, var = encoder(X[index], index)
                z, log_prior = drawn(mu, var, draw)
            objective = (log_p(index, z) + log_prior).mean() / X.shape[1]
            adam.zero_grad()
            (-objective).backward()
            adam.step()
            rates.step()
        encoder.eval()


def _given_nearest(model: SASGP, X: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Log p(x | z, the K rows whose held latents are nearest to that of the row) as a function of rows and latents."""
    kernel, Y, Z = model.model_.kernel, model.model_.centred(X).detach(), torch.as_tensor(model.embedding_)
    near = without_itself(Neighbours(Z, units_of(kernel, Z.shape[1])).nearest(Z, K + 1), torch.arange(len(Z)))

    def log_p(index: Tensor, z: Tensor) -> Tensor:
        # K_k + σ²I = L Lᵀ          v = L⁻¹ k_k*          w = L⁻ᵀ v          m = wᵀ Y_k          c = k_** + σ² − ‖v‖²
        Z_k, noise = Z[near[index]], model.model_.noise  # [m, K, Q]
        L = torch.linalg.cholesky((kernel(Z_k).to_dense() + noise * torch.eye(K)).double())
        v = torch.linalg.solve_triangular(L, kernel(Z_k, z[:, None]).to_dense().double(), upper=False)  # [m, K, 1]
        w = torch.linalg.solve_triangular(L.mT, v, upper=True).mT.float()  # [m, 1, K]
        mean = (w @ Y[near[index]])[:, 0]
        c = noise + (kernel(z, diag=True) - v.square().sum((1, 2)).float()).clamp_min(0)
        return -0.5 * (Y.shape[1] * (LOG_2PI + c.log()) + (Y[index] - mean).square().sum(1) / c)

    return log_p


def _given_all(model: SASGP, X: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Log p(x | z) of the decoder, which stays as it is."""
    posterior = model.posterior_
    return lambda index, z: posterior.log_density(X[index], z)


def _condition_again(model: SASGP, X: Any) -> None:
    """Latents and decoder of a model whose encoder, kernel or noise have changed."""
    model.embedding_ = model.transform(X)
    rows, Z = ArrayRows(X, torch.float32, torch.device("cpu")), torch.as_tensor(model.embedding_)
    with torch.no_grad():
        model.sums_ = model._sums(rows, Z, Alone())
        model.posterior_ = model._decoder_with(model.sums_, None, rows, Z, Alone())


def table(records: Sequence[Record]) -> str:
    """One line for each number of dimensions and kind of last stage."""
    rows = []
    for Q in DIMENSIONS:
        for stage in STAGES:
            chosen = {"Q": Q, "stage": stage}
            mine = [one["results"] for one in records if chosen.items() <= one["settings"].items()]
            if mine:
                values = [
                    mean_and_deviation([found[decoder][key] for found in mine], 4)
                    for decoder in ("own", "nearest")
                    for key in ("rmse", "nlpd")
                ]
                noise = mean_and_deviation([found["noise"] for found in mine], 4)
                seconds = mean_and_deviation([found["cpu_seconds"] for found in mine], 0)
                rows.append([str(Q), stage, *values, noise, seconds, str(len(mine))])
    names = [f"{metric}, {which}" for which in ("own decoder", "nearest rows") for metric in ("RMSE", "NLPD")]
    return markdown(["Q", "last stage", *names, "σ²", "CPU s", "seeds"], rows)
