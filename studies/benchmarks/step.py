"""The training step that benchmarks time: that of `fit` with its default settings, but for where it starts from."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp import SASGP
from sasgp.data.rows import ArrayRows
from sasgp.models.base import ModelSettings
from sasgp.models.build import build
from sasgp.models.encoders import Network
from sasgp.models.precision import auto_precision
from sasgp.models.sas import SASModel
from sasgp.training.initialise import Start, measure, start_decoder
from sasgp.training.loop import Ranks, Training, generator
from studies.records import EARLIER

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
    """Training that has no end, of the model that `SASGP(**settings)` would make; it pauses after every step.

    The encoder is drawn and not fitted to a start: a step takes as long.
    """
    model = SASGP(**settings)
    rows = ArrayRows(array, torch.float32, torch.device("cpu"))
    some = ArrayRows(np.asarray(array[:1000]), torch.float32, torch.device("cpu"))
    D, Q, B = array.shape[1], int(model.n_components), model.batch_size
    chosen = auto_precision("network", torch.float32, D, torch.device("cpu"))
    shape = ModelSettings(
        kind=SASModel,
        latents=model.latents,
        encoder="network",
        kernel="rbf",
        noise="shared",
        **EARLIER,
        n_rows=len(rows),
        active_set_size=model.active_set_size,
        precision=chosen if model.precision == "auto" else model.precision,
    )
    start = Start(Q, "pca", layout_weight=0.0, by_feature=False, own_kernel=False, batch_size=B, seed=0)
    decoder = build(shape, D, Q)
    measured = measure(some, start)
    assert isinstance(decoder.encoder, Network)
    decoder.encoder.start_from(measured.centre, measured.units, generator(0, "network"))
    start_decoder(decoder, some, measured, start)
    groups = decoder.parameter_groups(model.encoder_rate(), model.hyper_learning_rate)
    options: dict[str, Any] = {"batch_size": B, "max_epochs": 10**6, "seed": 0, "ranks": ranks}
    return Training(decoder, rows, groups, pause=lambda: True, **options)


def one_step(training: Training) -> Callable[[], object]:
    """A call that makes one step: gathering the batch, loss, gradient, optimiser, and what an epoch does at its end."""
    steps = (epoch for epoch in training if epoch is None)
    return lambda: next(steps)
