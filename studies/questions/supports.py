"""Which rows to condition the trained decoder on, and what several support sets say together: NLPD of test rows.

The model and the test rows' latents, those of the encoder, stay; only the rows that the decoder is conditioned on
change. Every number is a mean over draws, with the deviation of a draw. With --file RUNS, a model is
RUNS/data/model.safetensors, as `sasgp fit` leaves it.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from sasgp.data import load
from studies.questions.models import trained
from studies.records import Record, Run
from studies.tables import table as markdown

SIZES = {"digits": (100, 400), "mnist": (500, 2000)}
DRAWS = {"digits": 5, "mnist": 2}
COUNTS = (2, 4)  # support sets
TEST_ROWS, CANDIDATES = 2000, 20_000
LARGEST = 4000  # rows of one support set

Found = Iterator[tuple[str, dict[str, float]]]


def runs(seed: int, quick: bool) -> list[Run]:
    """One per data set."""
    return [Run(f"supports-{data}", {"data": data, "quick": quick}) for data in (("digits",) if quick else SIZES)]


# ---- choice of support points, by their latents Z [N, Q] ----


def random(Z, size, model, draw):
    return torch.randperm(len(Z), generator=draw)[:size]


def kmeans_plus_plus(Z, size, model, draw):
    """Each point with a probability that grows with the square of its distance to those chosen before."""
    chosen = [int(torch.randint(len(Z), (), generator=draw))]
    nearest = (Z - Z[chosen[0]]).square().sum(1)
    while len(chosen) < size:
        chosen.append(int(torch.multinomial(nearest, 1, generator=draw)))
        nearest = torch.minimum(nearest, (Z - Z[chosen[-1]]).square().sum(1))
    return torch.tensor(chosen)


def greedy(Z, size, model, draw):
    """Each point where the variance given those before, which are observed with noise, is largest: pivoted Cholesky."""
    candidates = torch.randperm(len(Z), generator=draw)[:CANDIDATES]
    Z, kernel, noise = Z[candidates].double(), model.posterior_.kernel, float(model.noise_)
    var = kernel(Z, diag=True).clone()
    L = torch.zeros(len(Z), size, dtype=Z.dtype)
    chosen: list[int] = []
    for j in range(size):
        p = int(torch.where(torch.isin(torch.arange(len(Z)), torch.tensor(chosen)), -1.0, var).argmax())
        column = kernel(Z, Z[p : p + 1]).to_dense()[:, 0] - L[:, :j] @ L[p, :j]
        L[:, j] = column / math.sqrt(max(float(var[p]), 0) + noise)
        var -= L[:, j].square()
        chosen.append(p)
    return candidates[torch.tensor(chosen)]


CHOICES: dict[str, Callable[..., Any]] = {"random": random, "k-means++": kmeans_plus_plus, "greedy": greedy}


# ---- what k predictives N(m_i, v_i + σ²) of one function say together; k_** is its variance before any data ----


def mixture(m, v, prior, noise):
    mean = m.mean(0)
    return mean, v.mean(0) + (m.square().mean(0) - mean.square()).mean(-1) + noise


def committee(m, v, prior, noise, beta):
    """Bayesian committee machines: 1/v = Σ β_i / v_i + (1 − Σ β_i) / k_**."""
    precision = (beta / v).sum(0) + (1 - beta.sum(0)) / prior
    return (beta / v / precision)[..., None].mul(m).sum(0), 1 / precision + noise


def geometric_mean(m, v, prior, noise):
    """Of the densities of an observation: ∏ N(m_i, v_i + σ²)^(1/k), normalised."""
    weight = 1 / (v + noise)
    return (weight / weight.sum(0))[..., None].mul(m).sum(0), 1 / weight.mean(0)


RULES: dict[str, Callable[..., Any]] = {
    "mixture": mixture,
    "geometric mean": geometric_mean,
    "product (β = 1/k)": lambda m, v, p, s: committee(m, v, p, s, torch.full_like(v, 1 / len(v))),
    "committee (β = 1)": lambda m, v, p, s: committee(m, v, p, s, torch.ones_like(v)),
    "robust committee (β = ½ log k_**/v)": lambda m, v, p, s: committee(m, v, p, s, 0.5 * (p / v).log()),
}


def metrics(X, mean, var):
    """NLPD and RMSE of rows X under N(mean, var I)."""
    squares = (X - mean).square()
    nlpd = 0.5 * (math.log(2 * math.pi) + var.log() + squares.mean(1) / var).mean()
    return {"NLPD": float(nlpd), "RMSE": float(squares.mean().sqrt())}


class Setting:
    """A trained model, and test rows where its encoder puts them."""

    def __init__(self, name: str, model: Any) -> None:
        data: Any = load(name)
        self.name, self.model, posterior = name, model, model.posterior_
        self.X, X_test = (torch.as_tensor(rows, dtype=torch.float32) for rows in (data.X, data.X_test[:TEST_ROWS]))
        self.Z, self.Z_test = torch.as_tensor(model.embedding_), torch.as_tensor(model.transform(X_test.numpy()))
        self.mean, self.noise = posterior.mean, posterior.noise
        self.prior = posterior.kernel(self.Z_test.double(), diag=True)
        self.centred = X_test.double() - self.mean  # committees shrink towards the training mean

    def predict(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean and variance of the test rows, given some of the training rows."""
        mean, var = self.model.model_.condition(self.X[rows], self.Z[rows]).predict(self.Z_test)
        return mean.double() - self.mean, var.double().reshape(len(mean), -1)[:, 0]


def chosen(setting: Setting) -> Found:
    """One support set, chosen in several ways."""
    for size in SIZES[setting.name]:
        for seed in range(DRAWS[setting.name]):
            for how, choose in CHOICES.items():
                rows = choose(setting.Z, size, setting.model, torch.Generator().manual_seed(seed))
                yield f"choice, {size} rows: {how}", metrics(setting.centred, *setting.predict(rows))


def combined(setting: Setting) -> Found:
    """Several support sets, put together in several ways."""
    for size in SIZES[setting.name]:
        for seed in range(DRAWS[setting.name]):
            order = torch.randperm(len(setting.X), generator=torch.Generator().manual_seed(seed))
            largest = min(max(COUNTS), len(setting.X) // size)
            each = [setting.predict(part) for part in order[: largest * size].split(size)]
            for k in (c for c in COUNTS if c <= largest):
                m = torch.stack([m for m, _ in each[:k]])
                v = (torch.stack([v for _, v in each[:k]]) - setting.noise).clamp_min(1e-9)
                for rule, combine in RULES.items():
                    together = combine(m, v, setting.prior, setting.noise)
                    yield f"{k} supports of {size}: {rule}", metrics(setting.centred, *together)
                if k * size <= LARGEST:
                    whole = setting.predict(order[: k * size])
                    yield f"{k} supports of {size}: all in one", metrics(setting.centred, *whole)


@torch.no_grad()
def execute(run: Run) -> dict[str, Any]:
    """All choices and all rules."""
    name = run.settings["data"]
    with torch.enable_grad():
        model = trained(name, run.file, quick=run.settings["quick"])
    setting = Setting(name, model)
    found: dict[str, list[dict[str, float]]] = {}
    for part in (chosen, combined):
        for key, value in part(setting):
            found.setdefault(key, []).append(value)
    summary = {
        key: {
            part: [float(np.mean(values)), float(np.std(values, ddof=1))]
            for part in ("NLPD", "RMSE")
            for values in [[one[part] for one in draws]]
        }
        for key, draws in found.items()
    }
    return {"test rows": len(setting.centred), "noise": float(setting.noise), "mean and deviation": summary}


def table(records: Sequence[Record]) -> str:
    """One line per choice or rule."""
    rows = []
    for record in records:
        for key, found in record["results"]["mean and deviation"].items():
            cells = [f"{mean:.4f} ± {std:.4f}".replace("-", "−") for mean, std in (found["NLPD"], found["RMSE"])]
            rows.append([record["settings"]["data"], key, *cells])
    return markdown(["", "support", "NLPD", "RMSE"], rows)
