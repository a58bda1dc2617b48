"""What makes an encoder reproduce a layout on rows that were not laid out: loss, noise, shifts, kind of network.

    SASGP_DATA=data python experiments/layout_encoders.py mnist runs/layouts/mnist-umap-seed0.npz squared cauchy-noise

The layout is a file of `experiments/layouts.py --layouts`. Each run leaves
experiments/results/layout-encoder-{data}-{name}.json; finished runs are skipped. Nothing but the encoder is trained:
accuracies of 1 and 15 neighbours are of test rows among training rows, both where the encoder puts them.
"""

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp.data import load
from sasgp.metrics import knn_accuracy
from sasgp.training.loop import one_cycle

RESULTS = Path(__file__).parent / "results"
BATCH, RATE, SCALE = 256, 2e-3, 0.3


@dataclass(frozen=True)
class Recipe:
    """Noise is in units of the data's standard deviation, shifts in pixels either way."""

    loss: str = "squared"
    noise: float = 0.0
    shift: int = 0
    net: str = "perceptron"
    dropout: float = 0.0
    steps: int | None = None  # None: 15 epochs


RECIPES = {
    "300-steps": Recipe(steps=300),
    "squared": Recipe(),
    "squared-noise": Recipe(noise=0.5),
    "squared-shift": Recipe(shift=2),
    "cauchy": Recipe("cauchy"),
    "cauchy-noise": Recipe("cauchy", noise=0.5),
    "cauchy-shift": Recipe("cauchy", shift=2),
    "cauchy-dropout": Recipe("cauchy", dropout=0.1),
    "cauchy-shift-convolutional": Recipe("cauchy", noise=0.3, shift=2, net="convolutional"),
}


def network(recipe: Recipe) -> nn.Sequential:
    drop = [nn.Dropout(recipe.dropout)] if recipe.dropout else []
    if recipe.net == "perceptron":
        first, second = nn.Linear(784, 512), nn.Linear(512, 256)
        return nn.Sequential(first, nn.ReLU(), *drop, second, nn.ReLU(), *drop, nn.Linear(256, 2))
    layers: list[nn.Module] = [nn.Unflatten(1, (1, 28, 28))]
    for n_in, n_out in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 128), nn.ReLU(), *drop, nn.Linear(128, 2))


def shifted(X: Tensor, most: int) -> Tensor:
    """Images moved by up to `most` pixels in each direction, each by its own."""
    padded, N = F.pad(X.view(-1, 28, 28), (most,) * 4), len(X)
    down, right = (torch.randint(0, 2 * most + 1, (N, 1)) + torch.arange(28) for _ in range(2))
    return padded[torch.arange(N)[:, None, None], down[:, :, None], right[:, None, :]].reshape(N, -1)


def run(name: str, layout: Path, recipe: Recipe) -> dict[str, object]:
    """Fit and measure."""
    data = load(name)
    X, X_test = torch.as_tensor(data.X), torch.as_tensor(data.X_test)
    with np.load(layout) as kept:
        Z = torch.as_tensor(kept["Z"], dtype=torch.float32)
    Z = (Z - Z.mean(0)) / Z.std(correction=0)
    mean = X.mean(0)
    scale = (X - mean).square().mean().sqrt()
    torch.manual_seed(0)
    net = network(recipe)
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    steps, started = recipe.steps or int(15 * len(X) / BATCH), time.monotonic()
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE * one_cycle(step / steps)
        rows = torch.randint(len(X), (BATCH,))
        batch = shifted(X[rows], recipe.shift) if recipe.shift else X[rows]
        if recipe.noise:
            batch = batch + recipe.noise * scale * torch.randn_like(batch)
        squares = (net((batch - mean) / scale) - Z[rows]).square().sum(1)
        loss = squares.mean() if recipe.loss == "squared" else (squares / SCALE**2).log1p().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    seconds = time.monotonic() - started
    net.eval()
    with torch.no_grad():
        known, new = (
            torch.cat([net((block - mean) / scale) for block in part.split(5000)]).numpy() for part in (X, X_test)
        )
    accuracy = {f"{k}-NN": knn_accuracy(known, data.y, new, data.y_test, k) for k in (1, 15)}
    return {"recipe": asdict(recipe), "seconds": round(seconds), **accuracy}


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("layout", type=Path)
    parser.add_argument("recipes", nargs="*", default=list(RECIPES))
    arguments = parser.parse_args()
    for name in arguments.recipes:
        path = RESULTS / f"layout-encoder-{arguments.data}-{name}.json"
        if not path.exists():
            path.write_text(json.dumps(run(arguments.data, arguments.layout, RECIPES[name]), indent=1))
        print(name, json.loads(path.read_text()), flush=True)
