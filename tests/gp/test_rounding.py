"""Where rounding would make a variance negative, an observation varies by the noise. And what a factor takes."""

import math

import pytest
import torch
from gpytorch.kernels import RBFKernel
from oracles import assert_close
from torch.distributions import MultivariateNormal, Normal

from sasgp.errors import InputError
from sasgp.gp import factor as factors
from sasgp.gp.factor import GP, Factor, check_memory, memory_needed
from sasgp.gp.objective import sas_estimate
from sasgp.gp.row_sums import condition

NOISE = 0.01


class Low(RBFKernel):
    """A kernel whose diagonal is too small by far, as if rounding had done it."""

    def forward(self, one, other, diag=False, **options):
        found = super().forward(one, other, diag=diag, **options)
        return 0.5 * found if diag else found


def points(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.fixture
def near():
    """Four rows, and three others at almost the same places: they are explained by more than half of k(z, z)."""
    Z, X = points(4, 2, 0), points(7, 5, 1)
    return torch.cat([Z, Z[:3] + 1e-3]), X


def expected(K, X):
    """Log densities of the last three rows: their mean given the first four, and the noise alone as the variance."""
    mean = K[4:, :4] @ torch.linalg.solve(K[:4, :4] + NOISE * torch.eye(4, dtype=K.dtype), X[:4])
    return Normal(mean, math.sqrt(NOISE)).log_prob(X[4:]).sum(1)


def test_the_objective(near):
    Z, X = near
    K = RBFKernel().double()(Z).to_dense().detach()
    found = sas_estimate(X, K[:, :4], 0.5 * torch.ones(3, dtype=K.dtype), torch.tensor(NOISE, dtype=K.dtype), 7)
    active = MultivariateNormal(torch.zeros(4, dtype=K.dtype), K[:4, :4] + NOISE * torch.eye(4, dtype=K.dtype))
    assert_close(found, active.log_prob(X[:4].T).sum() + expected(K, X).sum(), 1e-9)


def test_the_posterior(near):
    Z, X = near
    kernel = Low().double()
    posterior = condition(kernel, torch.tensor(NOISE, dtype=X.dtype), Z[:4], X[:4], torch.zeros(5, dtype=X.dtype))
    var = posterior.predict(Z[4:])[1]
    assert_close(var, torch.full_like(var, NOISE), 1e-9)


def test_the_factor(near):
    Z, X = near
    gp = GP(RBFKernel().double(), NOISE, Z, lambda index: X[index], 5)
    gp.variance = torch.tensor([1.0] * 4 + [0.5] * 3, dtype=torch.float64)
    factor = Factor(gp, 4)
    factor.add(torch.arange(4))
    assert_close(
        factor.score(torch.arange(4, 7), [4])[0], expected(RBFKernel().double()(Z).to_dense().detach(), X), 1e-9
    )


def test_memory_of_a_factor(monkeypatch):
    # n = 300 of N = 1000 rows in one panel of b = 1000 or less, D = 5, float64:
    # 8 [ n (n + b)/2 + n D + 2 b n + 3 b D + 4 b² ] bytes
    N, n, D = 1000, 300, 5
    gp = GP(RBFKernel(), NOISE, points(N, 2, 0), lambda index: points(N, D, 1)[index], D)
    b = min(factors.PANEL, N)
    need = 8 * (n * (n + b) // 2 + n * D + 2 * b * n + 3 * b * D + 4 * b * b)
    assert memory_needed(gp, n) == need
    monkeypatch.setattr(factors, "memory_available", lambda device: need)
    check_memory(gp, n)
    monkeypatch.setattr(factors, "memory_available", lambda device: need - 1)
    with pytest.raises(InputError, match="A factor of 300 rows in float64 needs"):
        check_memory(gp, n)
