"""What makes an encoder reproduce a layout on rows that were not laid out: loss, noise, shifts, kind of network.

Nothing but the encoder is trained: accuracies of 1 and 15 neighbours are of test rows among training rows, both where
the encoder puts them. With --file FOLDER, the layout is one that `python -m studies questions inits` kept there.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp.data import load
from sasgp.metrics import knn_accuracy
from sasgp.training.loop import one_cycle
from studies.questions.inits import laid_out
from studies.records import Record, Run
from studies.tables import table as markdown

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


def runs(seed: int, quick: bool) -> list[Run]:
    """One per recipe."""
    if quick:
        recipe = asdict(RECIPES["cauchy-shift-convolutional"]) | {"steps": 20}
        return [Run("layout-encoders-digits-quick", {"data": "digits", "layout": "spectral", **recipe})]
    common = {"data": "mnist", "layout": "umap"}
    return [Run(f"layout-encoders-mnist-{name}", {**common, **asdict(recipe)}) for name, recipe in RECIPES.items()]


def network(recipe: Recipe, side: int) -> nn.Sequential:
    """An encoder of images side × side."""
    drop = [nn.Dropout(recipe.dropout)] if recipe.dropout else []
    if recipe.net == "perceptron":
        first, second = nn.Linear(side**2, 512), nn.Linear(512, 256)
        return nn.Sequential(first, nn.ReLU(), *drop, second, nn.ReLU(), *drop, nn.Linear(256, 2))
    layers: list[nn.Module] = [nn.Unflatten(1, (1, side, side))]
    for n_in, n_out in ((1, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(n_in, n_out, 3, stride=2, padding=1), nn.ReLU()]
        side = -(-side // 2)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64 * side**2, 128), nn.ReLU(), *drop, nn.Linear(128, 2))


def shifted(X: Tensor, most: int, side: int) -> Tensor:
    """Images moved by up to `most` pixels in each direction, each by its own."""
    padded, N = F.pad(X.view(-1, side, side), (most,) * 4), len(X)
    down, right = (torch.randint(0, 2 * most + 1, (N, 1)) + torch.arange(side) for _ in range(2))
    return padded[torch.arange(N)[:, None, None], down[:, :, None], right[:, None, :]].reshape(N, -1)


def fit(net: nn.Module, recipe: Recipe, X: Tensor, Z: Tensor, mean: Tensor, scale: Tensor) -> None:
    """Train the encoder to put rows X where the layout has them."""
    side = round(X.shape[1] ** 0.5)
    optimiser = torch.optim.AdamW(net.parameters(), lr=RATE, weight_decay=0.0, fused=True)
    steps = recipe.steps or int(15 * len(X) / BATCH)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = RATE * one_cycle(step / steps)
        rows = torch.randint(len(X), (BATCH,))
        batch = shifted(X[rows], recipe.shift, side) if recipe.shift else X[rows]
        if recipe.noise:
            batch = batch + recipe.noise * scale * torch.randn_like(batch)
        squares = (net((batch - mean) / scale) - Z[rows]).square().sum(1)
        loss = squares.mean() if recipe.loss == "squared" else (squares / SCALE**2).log1p().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()


def execute(run: Run) -> dict[str, Any]:
    """Fit and measure."""
    settings = dict(run.settings)
    name, layout = settings.pop("data"), settings.pop("layout")
    recipe = Recipe(**settings)
    data: Any = load(name)
    X, X_test = (torch.as_tensor(rows, dtype=torch.float32) for rows in (data.X, data.X_test))
    Z = torch.as_tensor(laid_out(name, layout, data.X, 0, Path(run.file) if run.file else None)[0], dtype=torch.float32)
    Z = (Z - Z.mean(0)) / Z.std(correction=0)
    mean = X.mean(0)
    scale = (X - mean).square().mean().sqrt()
    torch.manual_seed(0)
    net = network(recipe, round(X.shape[1] ** 0.5))
    started = time.monotonic()
    fit(net, recipe, X, Z, mean, scale)
    seconds = time.monotonic() - started
    net.eval()
    with torch.no_grad():
        known, new = (
            torch.cat([net((block - mean) / scale) for block in part.split(5000)]).numpy() for part in (X, X_test)
        )
    accuracy = {f"{k}-NN": knn_accuracy(known, data.y, new, data.y_test, k) for k in (1, 15)}
    return {"seconds": round(seconds), **accuracy}


def table(records: Sequence[Record]) -> str:
    """One line per recipe."""
    rows = [
        [record["name"].removeprefix("layout-encoders-"), *(f"{record['results'][k]:.4f}" for k in ("1-NN", "15-NN"))]
        for record in records
    ]
    return markdown(["encoder", "1-NN", "15-NN"], rows)
