"""Two Gaussian processes of GPyTorch, for questions about regression: the exact one, and SVGP with inducing points.

Both have an ARD kernel, a constant mean and Gaussian noise, and are trained by Adam. Inputs and targets are
standardised.
"""

import math
from collections.abc import Sequence
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["SVGP", "ExactGP"]

Array = NDArray[np.float64]
Moments = tuple[Array, Array]  # mean and standard deviation of new observations, [M] each

LEAST_NOISE = 1e-6  # lower than GPyTorch's own 1e-4, which some of the data call for


def _kernel(name: str, n_inputs: int) -> Kernel:
    base = RBFKernel(ard_num_dims=n_inputs) if name == "rbf" else MaternKernel(nu=1.5, ard_num_dims=n_inputs)
    base.lengthscale = math.sqrt(n_inputs)  # standardised inputs are about √(2P) apart
    return ScaleKernel(base)


def _likelihood() -> GaussianLikelihood:
    found = GaussianLikelihood(noise_constraint=GreaterThan(LEAST_NOISE))
    found.noise = 0.1
    return found


class ExactGP:
    """The exact Gaussian process, in float64, by the log marginal likelihood of all rows.

    Parameters
    ----------
    kernel : "matern32" or "rbf"
    steps, learning_rate
        Of Adam.
    """

    def __init__(self, kernel: str = "matern32", steps: int = 100, learning_rate: float = 0.1) -> None:
        self.kernel, self.steps, self.learning_rate = kernel, steps, learning_rate

    def fit(self, X: Array, y: Array) -> "ExactGP":
        inputs, targets = torch.from_numpy(X), torch.from_numpy(y)
        self.likelihood = _likelihood().double()
        self.model = _Exact(inputs, targets, self.likelihood, _kernel(self.kernel, X.shape[1])).double()
        evidence = gpytorch.mlls.ExactMarginalLogLikelihood(self.likelihood, self.model)
        optimiser = torch.optim.Adam(self.model.parameters(), lr=self.learning_rate)
        self.model.train()
        with gpytorch.settings.fast_computations(False, False, False), gpytorch.settings.max_cholesky_size(10**6):
            for _ in range(self.steps):
                optimiser.zero_grad()
                loss = -evidence(self.model(inputs), targets)
                loss.backward()
                optimiser.step()
        self.model.eval()
        return self

    def predict(self, X: Array) -> Moments:
        settings = gpytorch.settings
        with torch.no_grad(), settings.fast_computations(False, False, False), settings.max_cholesky_size(10**6):
            found = self.likelihood(self.model(torch.from_numpy(X)))
            return found.mean.numpy(), found.stddev.numpy()


class _Exact(gpytorch.models.ExactGP):
    def __init__(self, X: Tensor, y: Tensor, likelihood: GaussianLikelihood, kernel: Kernel) -> None:
        super().__init__(X, y, likelihood)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, X: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))


class SVGP:
    """Stochastic variational inference with inducing points, in float32.

    Parameters
    ----------
    n_inducing
        Inducing points: training rows at first, then learned.
    steps, batch_size, learning_rate
        Of Adam. The rate falls to 0 along half a cosine.
    seed
    """

    def __init__(self, n_inducing: int, steps: int, batch_size: int, learning_rate: float, seed: int) -> None:
        self.n_inducing, self.steps, self.batch_size = n_inducing, steps, batch_size
        self.learning_rate, self.seed = learning_rate, seed

    def fit(self, X: Array, y: Array) -> "SVGP":
        inputs, targets = torch.from_numpy(X).float(), torch.from_numpy(y).float()
        draw = torch.Generator().manual_seed(self.seed)
        start = inputs[torch.randperm(len(inputs), generator=draw)[: self.n_inducing]]
        self.likelihood, self.model = _likelihood(), _Inducing(start, _kernel("matern32", X.shape[1]))
        evidence = gpytorch.mlls.VariationalELBO(self.likelihood, self.model, len(inputs))
        optimiser = torch.optim.Adam([*self.model.parameters(), *self.likelihood.parameters()], self.learning_rate)
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, self.steps)
        self.model.train()
        for index in self._batches(len(inputs), draw):
            optimiser.zero_grad()
            loss = -evidence(self.model(inputs[index]), targets[index])
            loss.backward()
            optimiser.step()
            schedule.step()
        self.model.eval()
        return self

    def _batches(self, n_rows: int, draw: torch.Generator) -> Sequence[Tensor]:
        """Epoch by epoch, each in a new order, up to the number of steps."""
        found: list[Tensor] = []
        while len(found) < self.steps:
            found += torch.randperm(n_rows, generator=draw).split(self.batch_size)
        return found[: self.steps]

    def predict(self, X: Array) -> Moments:
        with torch.no_grad():
            parts: list[Any] = [self.likelihood(self.model(part)) for part in torch.from_numpy(X).float().split(1024)]
        mean, std = (torch.cat([getattr(part, name) for part in parts]).double() for name in ("mean", "stddev"))
        return mean.numpy(), std.numpy()


class _Inducing(gpytorch.models.ApproximateGP):
    def __init__(self, U: Tensor, kernel: Kernel) -> None:
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(U))
        super().__init__(gpytorch.variational.VariationalStrategy(self, U, distribution))
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, X: Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(X), self.covar_module(X))
