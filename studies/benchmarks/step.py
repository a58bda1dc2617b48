"""The training step that benchmarks time: that of `fit` with its default settings, but for where it starts from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp import SASGP
from sasgp.data.rows import ArrayRows
from sasgp.models.sas import SASModel
from sasgp.training import initialise
from sasgp.training.loop import Ranks, Training

__all__ = ["DATA", "one_step", "random_file", "random_rows", "trainer"]

DATA = "mnist"  # where a benchmark needs real rows; --quick takes digits


def random_rows(N: int, D: int, seed: int = 0) -> NDArray[np.float32]:
    """Rows in memory. No part of a step depends on what is in them."""
    return np.random.default_rng(seed).standard_normal((N, D), dtype=np.float32)


def random_file(path: Path, N: int, D: int) -> Path:
    """Bytes on disk, a .npy file [N, D]."""
    array = np.lib.format.open_memmap(path, mode="w+", dtype=np.uint8, shape=(N, D))
    draw = np.random.default_rng(0)
    for block in range(0, N, 50_000):
        array[block : block + 50_000] = draw.integers(0, 256, (min(50_000, N - block), D), dtype=np.uint8)
    array.flush()
    return path


def trainer(array: Any, *, ranks: Ranks | None = None, **settings: Any) -> Training:
    """Training that has no end, of the model that `SASGP(**settings)` would make; it pauses after every step."""
    model = SASGP(**settings)
    rows = ArrayRows(array, torch.float32, torch.device("cpu"))
    some = rows.gather(torch.arange(min(1000, len(rows))))
    mean, variance = some.mean(0), float(some.var(0).mean())
    D, Q = array.shape[1], int(model.n_components)
    encoder = initialise.network(model, mean, torch.tensor(variance**0.5), 0)
    decoder = SASModel(
        encoder,
        initialise.kernel(model, encoder, rows, variance, 0),
        noise=initialise.noise(D, Q) * variance,
        mean=mean,
        active_set_size=model.active_set_size,
        encoder_noise=model.encoder_noise * initialise.noise_share(D, Q),
    )
    groups = decoder.parameter_groups(model.encoder_rate(), model.hyper_learning_rate)
    options: dict[str, Any] = {
        "batch_size": model.batch_size,
        "max_epochs": 10**6,
        "seed": 0,
        "pause": lambda: True,
        "ranks": ranks,
    }
    return Training(decoder, rows, groups, **options)


def one_step(training: Training) -> Callable[[], object]:
    """A call that makes one step: gathering the batch, loss, gradient, optimiser, and what an epoch does at its end."""
    steps = (epoch for epoch in training if epoch is None)
    return lambda: next(steps)
