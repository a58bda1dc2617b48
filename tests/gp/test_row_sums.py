"""The sums over all rows: exact where positions are latents, GPyTorch's SGPR elsewhere, never above the truth."""

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from oracles import OUTSIDE, assert_close, gpytorch_log_marginal

from sasgp.gp.row_sums import RowSums, _factor

N, D, Q, NOISE = 40, 3, 2, 0.1


def scaled(base):
    kernel = ScaleKernel(base).double()
    # GPyTorch rounds a Python float to float32
    kernel.outputscale, base.lengthscale = torch.tensor([1.7, 0.8], dtype=torch.float64)
    return kernel


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


def sgpr(Z, x, U):
    """GPyTorch's model of one feature, conditioned on the same rows through the same positions."""
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE

    class Model(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(Z, x, likelihood)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.InducingPointKernel(scaled(RBFKernel()), U.clone(), likelihood)

        def forward(self, Z):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(Z), self.covar_module(Z))

    return Model().double(), likelihood


def test_with_fewer_positions_it_is_the_bound_of_gpytorchs_sgpr(data):
    Z, X = data
    kernel, U = scaled(RBFKernel()), Z[:7] + 0.1
    # Σ_d log p(x_d) − ½ Σ_n (k_nn − q_nn)/σ², which GPyTorch adds to its marginal likelihood, per row
    expected = 0.0
    for x in X.T:
        model, likelihood = sgpr(Z, x, U)
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model.train())
        with gpytorch.settings.cholesky_jitter(double_value=1e-12), torch.no_grad():
            expected += N * float(mll(model(Z), x))
    assert_close(sums_of(kernel, U, X, Z).bound(NOISE), expected, 1e-6)


def test_with_fewer_positions_the_decoder_is_gpytorchs_sgpr(data, rng):
    Z, X = data
    kernel, U, Z_new = scaled(RBFKernel()), Z[:7] + 0.1, torch.randn(6, Q, generator=rng, dtype=torch.float64)
    posterior = sums_of(kernel, U, X, Z).posterior(torch.tensor(NOISE).double(), torch.zeros(D).double())
    mean, var = posterior.predict(Z_new)
    for d in range(D):
        model, likelihood = sgpr(Z, X[:, d], U)
        model.eval()
        likelihood.eval()
        # With its correction of the diagonal, GPyTorch would predict by another approximation than it is trained by
        precise, plain = (
            gpytorch.settings.cholesky_jitter(double_value=1e-12),
            gpytorch.settings.sgpr_diagonal_correction,
        )
        with precise, plain(False), torch.no_grad():
            found = likelihood(model(Z_new))
        assert_close(mean[:, d], found.mean, 1e-6)
        # It leaves out what the positions cannot express at z*, k_** − q_**
        K_U = kernel(Z_new, U).to_dense()
        q = (K_U @ torch.linalg.inv(kernel(U).to_dense()) * K_U).sum(1)
        assert_close(var[:, 0], found.variance + 1.7 - q, 1e-6)


def test_the_decoder_is_that_of_a_dense_inverse(data, rng):
    # f has the covariance Q = k_NU K_UU⁻¹ k_UN at the rows, so m = q_*N (Q + σ²I)⁻¹ X. What the positions cannot
    # express at z*, k_** − q_**, stays unknown: c = k_** − q_*N (Q + σ²I)⁻¹ q_N* + σ²
    Z, X = data
    kernel, U, Z_new = scaled(MaternKernel(nu=1.5)), Z[:9] - 0.2, torch.randn(6, Q, generator=rng, dtype=torch.float64)

    def k(one, two):
        return kernel(one, two).to_dense().detach().numpy()

    inverse = np.linalg.inv(k(U, U))
    Q_NN, Q_new = k(Z, U) @ inverse @ k(U, Z), k(Z_new, U) @ inverse @ k(U, Z)
    weights = Q_new @ np.linalg.inv(Q_NN + NOISE * np.eye(N))
    centre, scales = torch.tensor([1.0, -2.0, 5.0]).double(), torch.tensor([0.5, 1.0, 3.0]).double()
    posterior = sums_of(kernel, U, X, Z).posterior(torch.tensor(NOISE).double(), centre, scales)
    mean, var = posterior.predict(Z_new)
    assert_close(mean, centre.numpy() + weights @ X.numpy() * scales.numpy(), 1e-8)
    c = 1.7 - np.einsum("mn,mn->m", weights, Q_new) + NOISE
    assert_close(var, c[:, None] * scales.numpy() ** 2, 1e-8)
    # and so are its samples: one function per feature, whose covariance has no noise on it
    joint = k(Z_new, Z_new) - weights @ Q_new.T
    many = sums_of(kernel, U, X[:, :1].expand(N, 20_000), Z)
    flat = many.posterior(torch.tensor(NOISE).double(), torch.zeros(20_000).double())
    drawn = flat.sample(Z_new, rng, noise=False).numpy()
    size = np.sqrt((np.outer(joint.diagonal(), joint.diagonal()) + joint**2) / 20_000)
    assert (np.abs(np.cov(drawn) - joint) < 5 * size).all()


@pytest.mark.parametrize("base", [RBFKernel, lambda: MaternKernel(nu=0.5), lambda: MaternKernel(nu=2.5)])
def test_with_the_latents_as_positions_the_decoder_is_scikit_learns(data, base):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process import kernels as sk

    Z, X = data
    kernel = scaled(base())
    same = sk.RBF(0.8) if base is RBFKernel else sk.Matern(0.8, nu=kernel.base_kernel.nu)
    regressor = GaussianProcessRegressor(sk.ConstantKernel(1.7) * same, alpha=NOISE, optimizer=None).fit(Z, X)
    Z_new = Z[:10] + 0.3
    mean, var = sums_of(kernel, Z, X, Z).posterior(torch.tensor(NOISE).double(), torch.zeros(D).double()).predict(Z_new)
    expected, std = regressor.predict(Z_new, return_std=True)
    assert_close(mean, expected, 1e-8)
    assert_close(var[:, 0], std[:, 0] ** 2 + NOISE, 1e-8)


def test_the_factor_of_a_file_is_taken_as_it_is(data):
    # Sums made with one factor of K_UU go with that factor: any other orthogonal basis is as good, mixed ones are not
    Z, X = data
    kernel, U = scaled(RBFKernel()), Z[:9]
    whole = sums_of(kernel, U, X, Z)
    jittered = torch.linalg.cholesky(whole.L @ whole.L.T + 1e-3 * torch.eye(9).double())
    other = RowSums(kernel, U, D, jittered)
    other.add(X, Z)
    again = RowSums(kernel, U, D, jittered)
    for name, tensor in other.tensors.items():
        getattr(again, name).copy_(tensor)
    mean = torch.zeros(D).double()
    one, two, three = (s.posterior(torch.tensor(NOISE), mean).predict(Z)[0] for s in (other, again, whole))
    assert torch.equal(one, two)
    assert not torch.allclose(one, three, rtol=1e-4)


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


def test_a_kernel_that_is_not_positive_definite_has_a_decoder(data):
    # cos ‖z − z'‖ has negative eigenvalues in a plane: jitter of their size takes the place of what they would say
    kernel = gpytorch.kernels.CosineKernel().double()
    Z, X = data
    assert torch.linalg.eigvalsh(kernel(Z).to_dense().detach())[0] < -0.1
    posterior = sums_of(kernel, Z, X, Z).posterior(torch.tensor(NOISE).double(), torch.zeros(D).double())
    mean, var = posterior.predict(Z)
    assert mean.isfinite().all()
    assert (var >= NOISE).all()


def test_a_kernel_that_is_not_positive_definite_is_raised_as_far_above_zero_as_it_was_below():
    K = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)  # eigenvalues −1 and 3
    L = _factor(K)
    assert_close(torch.linalg.eigvalsh(L @ L.T), torch.tensor([1.0, 5.0], dtype=torch.float64), 1e-10)
