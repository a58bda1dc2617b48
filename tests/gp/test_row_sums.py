"""The sums over all rows: exact where positions are latents, GPyTorch's SGPR elsewhere, never above the truth."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from oracles import OUTSIDE, assert_close, gpytorch_log_marginal

from sasgp.gp.row_sums import RowSums

N, D, Q, NOISE = 40, 3, 2, 0.1


def scaled(base):
    kernel = ScaleKernel(base)
    kernel.outputscale, base.lengthscale = 1.7, 0.8
    return kernel.double()


@pytest.fixture
def data(rng):
    Z = torch.randn(N, Q, generator=rng, dtype=torch.float64)
    X = torch.sin(2 * Z @ torch.randn(Q, D, generator=rng, dtype=torch.float64))
    return Z, X + 0.3 * torch.randn(N, D, generator=rng, dtype=torch.float64)


def sums_of(kernel, U, X, Z):
    sums = RowSums(kernel, U, X.shape[1])
    sums.add(X, Z)
    return sums


@pytest.mark.parametrize("base", [RBFKernel, lambda: MaternKernel(nu=1.5)])
def test_with_the_latents_as_positions_the_bound_is_the_evidence(data, base):
    Z, X = data
    kernel = scaled(base())
    sums = sums_of(kernel, Z, X, Z)
    assert_close(sums.bound(NOISE), gpytorch_log_marginal(kernel, NOISE, Z, X), OUTSIDE[torch.float64])
    assert sums.missed_share < 1e-9  # a(z_n) reproduces k_nn


def test_with_fewer_positions_it_is_the_bound_of_gpytorchs_sgpr(data):
    Z, X = data
    kernel, U = scaled(RBFKernel()), Z[:7] + 0.1
    # Σ_d log p(x_d) − ½ Σ_n (k_nn − q_nn)/σ², which GPyTorch adds to its marginal likelihood, per row
    expected = 0.0
    for x in X.T:
        likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
        likelihood.noise = NOISE

        class Model(gpytorch.models.ExactGP):
            def __init__(self, x=x, likelihood=likelihood):
                super().__init__(Z, x, likelihood)
                self.mean_module = gpytorch.means.ZeroMean()
                self.covar_module = gpytorch.kernels.InducingPointKernel(scaled(RBFKernel()), U.clone(), likelihood)

            def forward(self, Z):
                return gpytorch.distributions.MultivariateNormal(self.mean_module(Z), self.covar_module(Z))

        model = Model().double().train()
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        with gpytorch.settings.cholesky_jitter(double_value=1e-12), torch.no_grad():
            expected += N * float(mll(model(Z), x))
    assert_close(sums_of(kernel, U, X, Z).bound(NOISE), expected, 1e-6)


def test_the_bound_is_below_the_evidence_and_grows_with_the_positions(data, rng):
    Z, X = data
    kernel = scaled(RBFKernel())
    exact = gpytorch_log_marginal(kernel, NOISE, Z, X)
    U = torch.randn(30, Q, generator=rng, dtype=torch.float64)
    bounds = [sums_of(kernel, U[:m], X, Z).bound(NOISE) for m in (1, 3, 10, 30)]
    assert bounds == sorted(bounds)
    assert all(bound < exact for bound in bounds)
    missed = [sums_of(kernel, U[:m], X, Z).missed_share for m in (1, 3, 10, 30)]
    assert missed == sorted(missed, reverse=True)
    assert 0 < missed[-1] < missed[0] < 1
    # One position: t = Σ (k_nn − k_un²/k_uu), by loops
    K = kernel(Z, U[:1]).to_dense()[:, 0].detach()
    k = kernel.outputscale.item()
    assert missed[0] == pytest.approx(float((k - K.square() / k).mean() / k), rel=1e-9)


def test_coinciding_positions_leave_a_bound(data):
    Z, X = data
    kernel = scaled(RBFKernel())
    U = torch.cat([Z, Z[:5]])  # K_UU is singular, and gets jitter
    exact = float(gpytorch_log_marginal(kernel, NOISE, Z, X))
    assert exact - 1e-3 < sums_of(kernel, U, X, Z).bound(NOISE) <= exact + 1e-6


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rows_may_come_in_blocks(data, dtype):
    Z, X = (part.to(dtype) for part in data)
    kernel, U = scaled(RBFKernel()), data[0][:9]
    whole, parts = sums_of(kernel, U, X, Z), RowSums(kernel, U, D)
    for block in (slice(0, 1), slice(1, 25), slice(25, N)):
        parts.add(X[block], Z[block])
    assert parts.n_rows == N
    for name in ("S", "b", "t", "e", "k"):
        assert_close(getattr(parts, name), getattr(whole, name), 1e-12)
    assert_close(parts.bound(NOISE), whole.bound(NOISE), 1e-12)
