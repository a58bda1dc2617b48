"""Regression by stochastic active sets: Eq. 6 with inputs in the place of latents and targets in the place of rows.

Inputs are standardised, and missing ones are 0 there, the mean. A column with missing values has a second one, which
says where they are missing. With a deep kernel, a small network turns these numbers into features first.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from sasgp.gp import kernels
from sasgp.gp.covariance import covariances
from sasgp.gp.objective import sas_estimate
from sasgp.models.base import Objective

if TYPE_CHECKING:
    from gpytorch.kernels import Kernel

__all__ = ["LEAST_NOISE", "Features", "RegressionModel", "RegressionSettings", "hyperprior"]

WIDTHS = (128, 64)  # of the hidden layers of a deep kernel
MOST_FEATURES = 8  # that it makes
SPREAD = 0.15  # standard deviation of log lengthscales around their common value, before the data are seen
LEAST_NOISE = 1e-8  # σ², in variances of the targets
# In float32, the factor of hundreds of rows fails with less noise than this
TRAINING_FLOOR = {torch.float32: 1e-5, torch.float64: LEAST_NOISE}


@dataclass(frozen=True)
class RegressionSettings:
    """The settings that determine a regression's structure, including those that depend on the data.

    Parameters
    ----------
    kernel : str or gpytorch.kernels.Kernel
        Also "deep".
    n_inputs, n_targets : int
        P and T.
    holed : tuple of int
        The inputs that have missing values in training.
    active_set_size : int
    least_noise : float
        The least noise variance, in variances of the targets.
    dtype, device
        Those of all tensors.
    """

    kernel: "str | Kernel"
    n_inputs: int
    n_targets: int
    holed: tuple[int, ...]
    active_set_size: int
    least_noise: float
    dtype: torch.dtype
    device: torch.device | None = None

    @property
    def deep(self) -> bool:
        """Whether a network makes features of the inputs."""
        return isinstance(self.kernel, str) and self.kernel == "deep"

    @property
    def n_places(self) -> int:
        """Dimensions of the space that the kernel works in."""
        wide = self.n_inputs + len(self.holed)
        return min(MOST_FEATURES, wide) if self.deep else wide


class Features(nn.Sequential):
    """The network of a deep kernel: W numbers → F features, with a straight way around its hidden layers."""

    def __init__(self, W: int, F: int) -> None:
        sizes = (W, *WIDTHS)
        layers = [part for m, n in pairwise(sizes) for part in (nn.Linear(m, n), nn.SiLU())]
        super().__init__(*layers, nn.Linear(sizes[-1], F))
        self.straight = nn.Linear(W, F, bias=False)

    def forward(self, X: Tensor) -> Tensor:
        found = X
        for part in list(self.children())[:-1]:
            found = part(found)
        return found + self.straight(X)

    @torch.no_grad()
    def start(self, draw: torch.Generator) -> None:
        """Draw the first weights, with which features have about the variance of the inputs."""
        for layer in self.modules():
            if isinstance(layer, nn.Linear):
                sd = 1 / math.sqrt(layer.in_features)
                layer.weight.copy_(sd * torch.randn(layer.weight.shape, generator=draw))
                if layer.bias is not None:
                    layer.bias.zero_()


class RegressionModel(Objective):
    """Kernel, noise and the units of the inputs, with the objective of Eq. 6 for standardised targets.

    Parameters
    ----------
    settings : RegressionSettings
    """

    centre: Tensor
    units: Tensor
    floor: Tensor

    def __init__(self, settings: RegressionSettings) -> None:
        super().__init__()
        P, Q = settings.n_inputs, settings.n_places
        self.active_set_size, self.holed, self.n_inputs = settings.active_set_size, list(settings.holed), P
        self.kernel = kernels.build("rbf-ard" if settings.deep else settings.kernel, Q)
        self.features = Features(P + len(self.holed), Q) if settings.deep else None
        self.log_noise = nn.Parameter(torch.zeros(()))
        self.register_buffer("centre", torch.zeros(P))
        self.register_buffer("units", torch.ones(P))
        self.least_noise = settings.least_noise
        self.register_buffer("floor", torch.tensor(max(TRAINING_FLOOR[settings.dtype], settings.least_noise)))

    @classmethod
    def build(cls, settings: RegressionSettings) -> Self:
        """A model of the right structure, whose values are not set yet."""
        return cls(settings).to(settings.device, settings.dtype)

    @property
    def noise(self) -> Tensor:
        """σ², in variances of the targets."""
        return self.floor + self.log_noise.exp()

    @torch.no_grad()
    def set_noise(self, noise: Tensor, floor: float) -> None:
        """Set σ², and the least value that it may take."""
        self.floor.fill_(floor)
        self.log_noise.copy_((noise.double() - floor).clamp_min(1e-3 * floor).log())

    def places(self, X: Tensor) -> Tensor:
        """The positions [B, Q] of inputs X [B, P] in the space that the kernel works in."""
        Z = (X - self.centre) / self.units
        Z = torch.cat([Z.nan_to_num(0.0), Z[:, self.holed].isnan().to(Z)], 1)
        return Z if self.features is None else self.features(Z)

    def parameter_groups(self, learning_rate: float, hyper_learning_rate: float) -> list[dict[str, Any]]:
        own = {"params": [*self.kernel.parameters(), self.log_noise], "lr": hyper_learning_rate}
        return [own] if self.features is None else [{"params": [*self.features.parameters()], "lr": learning_rate}, own]

    def monitor(self) -> dict[str, float]:
        return {"noise": float(self.noise.detach())}

    def forward(self, batch: Tensor, index: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """The negative objective in nats per target, estimated from a batch [B, P + T] of inputs and targets."""
        X, Y = batch[:, : self.n_inputs], batch[:, self.n_inputs :]
        A = min(self.active_set_size, len(X))
        K_BA, k = covariances(self.kernel, self.places(X), A)  # [B, A], [B]
        log_p = sas_estimate(Y, K_BA, k[A:], self.noise, n_total, None)
        return -(log_p + hyperprior(self.kernel)) / (n_total * Y.shape[1])


def hyperprior(kernel: "Kernel") -> Tensor | float:
    """Log density of a kernel's parameters: of its own priors and, with ARD, of how far its lengthscales spread.

    Few rows would let single inputs explain them by chance. Lengthscales are log-normal around their common value, so
    that an input differs from the others only as far as the rows say so.
    """
    priors = [prior.log_prob(of(module)).sum() for _, module, prior, of, _ in kernel.named_priors()]
    base = getattr(kernel, "base_kernel", None)
    if base is not None and base.ard_num_dims and not priors:
        logs = base.lengthscale.log()
        priors.append(-0.5 * (logs - logs.mean()).square().sum() / SPREAD**2)
    return sum(priors, start=0.0)
