"""Which rows to condition the trained decoder on, and what several support sets say together: NLPD of test rows.

    SASGP_DATA=data python experiments/supports.py digits model.safetensors
    SASGP_DATA=data python experiments/supports.py mnist runs/mnist/model.safetensors

Leaves experiments/results/supports-{data}.json. The model and the test rows' latents, those of the encoder, stay; only
the rows that the decoder is conditioned on change. Every figure is a mean over draws, with the deviation of a draw.
"""

import json
import math
import sys
from pathlib import Path

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load

RESULTS = Path(__file__).parent / "results"
SIZES = {"digits": (100, 400), "mnist": (500, 2000)}
DRAWS = {"digits": 5, "mnist": 2}
COUNTS = (2, 4)  # support sets
TEST_ROWS, CANDIDATES = 2000, 20_000


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
    L, chosen = torch.zeros(len(Z), size, dtype=Z.dtype), []
    for j in range(size):
        p = int(torch.where(torch.isin(torch.arange(len(Z)), torch.tensor(chosen)), -1.0, var).argmax())
        column = kernel(Z, Z[p : p + 1]).to_dense()[:, 0] - L[:, :j] @ L[p, :j]
        L[:, j] = column / math.sqrt(max(float(var[p]), 0) + noise)
        var -= L[:, j].square()
        chosen.append(p)
    return candidates[torch.tensor(chosen)]


CHOICES = {"random": random, "k-means++": kmeans_plus_plus, "greedy": greedy}


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


RULES = {
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


@torch.no_grad()
def main(name: str, path: str) -> None:
    model, data = SASGP.load(path), load(name)
    X, X_test = (torch.as_tensor(rows, dtype=torch.float32) for rows in (data.X, data.X_test[:TEST_ROWS]))
    Z, Z_test = torch.as_tensor(model.embedding_), torch.as_tensor(model.transform(X_test.numpy()))
    noise, prior = model.posterior_.noise, model.posterior_.kernel(Z_test.double(), diag=True)
    centred = X_test.double() - model.posterior_.mean  # committees shrink towards the training mean

    def predict(rows):
        mean, var = model.model_.condition(X[rows], Z[rows]).predict(Z_test)
        return mean.double() - model.posterior_.mean, var.double().reshape(len(mean), -1)[:, 0]

    found = {}

    def record(key, value):
        found.setdefault(key, []).append(value)
        print(name, key, value, flush=True)

    for size in SIZES[name]:
        for seed in range(DRAWS[name]):
            for how, choose in CHOICES.items():
                rows = choose(Z, size, model, torch.Generator().manual_seed(seed))
                record(f"choice, {size} rows: {how}", metrics(centred, *predict(rows)))
    for size in SIZES[name]:
        for seed in range(DRAWS[name]):
            order = torch.randperm(len(X), generator=torch.Generator().manual_seed(seed))
            largest = min(max(COUNTS), len(X) // size)
            each = [predict(part) for part in order[: largest * size].split(size)]
            for k in (c for c in COUNTS if c <= largest):
                m, v = torch.stack([m for m, _ in each[:k]]), torch.stack([v for _, v in each[:k]]) - noise
                for rule, combine in RULES.items():
                    record(
                        f"{k} supports of {size}: {rule}",
                        metrics(centred, *combine(m, v.clamp_min(1e-9), prior, noise)),
                    )
                if k * size <= 4000:
                    record(f"{k} supports of {size}: all in one", metrics(centred, *predict(order[: k * size])))

    summary = {
        key: {
            part: [float(np.mean(values)), float(np.std(values, ddof=1))]
            for part in ("NLPD", "RMSE")
            for values in [[run[part] for run in runs]]
        }
        for key, runs in found.items()
    }
    RESULTS.mkdir(exist_ok=True)
    result = {"data": name, "test rows": len(X_test), "noise": float(noise), "mean and deviation": summary}
    (RESULTS / f"supports-{name}.json").write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    for key, value in summary.items():
        print(f"{key:60s} NLPD {value['NLPD'][0]:.4f} ± {value['NLPD'][1]:.4f}  RMSE {value['RMSE'][0]:.4f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
