"""Before and after the training run of a regression: its first numbers, and a last stage on what predictions use.

The active rows of a batch lie further from a row than its nearest rows do, so Eq. 6 takes for noise what the nearest
rows can explain. The last stage mends that: it climbs the log density of single rows given their nearest other rows,
which is how predictions are made. It takes seconds, whatever the number of rows. docs/regression.md says what it gains.
"""

import math
from collections.abc import Callable
from copy import deepcopy

import torch
from torch import Tensor, nn

from sasgp.data.rows import moments
from sasgp.gp.kernels import units_of
from sasgp.gp.nearest import log_density_given, without_itself
from sasgp.gp.neighbours import Neighbours
from sasgp.models.regression import RegressionModel, hyperprior
from sasgp.training.loop import DivergedError, generator, train

__all__ = ["STEPS", "sharpen", "start", "steps_of_sharpening"]

STEPS = 500  # of the training run
FIRST_NOISE = 0.1  # in variances of the targets
SHARP_ROWS, SHARP_BATCH, SHARP_STEPS = 4096, 64, 150  # of the last stage
SHARP_NEIGHBOURS = 64
SHARP_RATE = 0.03


@torch.no_grad()
def start(model: RegressionModel, array: object, *, own_kernel: bool, seed: int) -> None:
    """Give a model its first numbers, from the inputs [N, P].

    The user's own kernel keeps its values, and works on the inputs as they are.
    """
    if not own_kernel:
        mean, variances, _ = moments(array)
        model.centre.copy_(torch.as_tensor(mean))
        model.units.copy_(torch.as_tensor(variances).sqrt().where(torch.as_tensor(variances) > 0, torch.ones(())))
        n = model.kernel.base_kernel.lengthscale.numel()
        # Standardised inputs are about √(2Q) apart
        model.kernel.base_kernel.lengthscale = math.sqrt(max(n, model.n_inputs if n == 1 else n))
        model.kernel.outputscale = 1.0
    if model.features is not None:
        model.features.start(generator(seed, "features"))
    floor = float(model.floor)
    model.set_noise(torch.tensor(FIRST_NOISE), floor)


def steps_of_sharpening(n_rows: int) -> int:
    """Steps that `sharpen` takes for this many rows."""
    n_rows = min(n_rows, SHARP_ROWS)
    batches = math.ceil(n_rows / SHARP_BATCH)
    return batches * math.ceil(SHARP_STEPS / batches)


def sharpen(model: RegressionModel, Z: Tensor, Y: Tensor, seed: int, update: Callable[[int], None]) -> None:
    """Fit kernel and noise to the log density of rows given their nearest other rows, in float64.

    Z [N, Q] are the positions of all training rows and Y [N, T] their targets. A network that makes features stays as
    it is. If the numbers fail, the model keeps those that it has.
    """
    N = len(Z)
    rows = torch.randperm(N, generator=generator(seed, "sharpen"))[:SHARP_ROWS].to(Z.device)
    index = Neighbours(Z, units_of(model.kernel, Z.shape[1]))
    near = without_itself(index.nearest(Z[rows], min(SHARP_NEIGHBOURS + 1, N)), rows)
    objective = _LeaveOneOut(model, Z, Y, rows, near)
    try:
        for _ in train(
            objective,
            _Picks(len(rows)),
            [{"params": list(objective.parameters()), "lr": SHARP_RATE}],
            batch_size=SHARP_BATCH,
            max_epochs=steps_of_sharpening(N) // math.ceil(len(rows) / SHARP_BATCH),
            seed=seed,
            on_step=lambda step, total, loss: update(step),
        ):
            pass
    except DivergedError:
        return
    model.kernel.load_state_dict(objective.kernel.state_dict())
    model.set_noise(objective.noise.detach(), model.least_noise)


class _LeaveOneOut(nn.Module):
    """The negative log density of some rows, given their nearest other rows."""

    def __init__(self, model: RegressionModel, Z: Tensor, Y: Tensor, rows: Tensor, near: Tensor) -> None:
        super().__init__()
        self.kernel = deepcopy(model.kernel).double()
        self.least = model.least_noise
        self.log_noise = nn.Parameter((model.noise.detach().double() - self.least).clamp_min(1e-3 * self.least).log())
        self.Z, self.Y, self.rows, self.near = Z, Y, rows, near

    @property
    def noise(self) -> Tensor:
        return self.least + self.log_noise.exp()

    def forward(self, _: Tensor, index: Tensor, n_total: int, draw: torch.Generator) -> Tensor:
        index = index.to(self.rows.device)
        row, near = self.rows[index], self.near[index]
        parts = (self.Z[row], self.Y[row], self.Z[near], self.Y[near])
        log_p = log_density_given(self.kernel, self.noise, *(part.double() for part in parts)) / self.Y.shape[1]
        return -log_p.mean() - hyperprior(self.kernel) / (len(self.Z) * self.Y.shape[1])


class _Picks:
    """The places of rows, as rows for the training loop."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __len__(self) -> int:
        return self.n

    def gather(self, index: Tensor) -> Tensor:
        return index
