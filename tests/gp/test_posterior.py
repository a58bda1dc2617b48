"""Conditioning on a support set: against a dense inverse, scikit-learn and GPyTorch; samples by their moments."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import ConstantKernel, MaternKernel, RBFKernel, ScaleKernel
from oracles import OUTSIDE, assert_close
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from torch.autograd import gradcheck
from torch.distributions import Independent, MultivariateNormal, Normal

from sasgp.gp.row_sums import condition as given_rows

DOUBLE = torch.float64
AMPLITUDE, LENGTHSCALE, NOISE = 1.7, 0.6, 0.05
S, M, D = 30, 8, 3


def draw(rng, *shape, dtype=DOUBLE):
    return torch.randn(shape, generator=rng, dtype=DOUBLE).to(dtype)


def scaled(base, dtype=DOUBLE, *, amplitude=AMPLITUDE, lengthscale=LENGTHSCALE):
    kernel = ScaleKernel(base).to(dtype)
    kernel.outputscale = torch.tensor(amplitude, dtype=dtype)
    kernel.base_kernel.lengthscale = torch.tensor(lengthscale, dtype=dtype)
    return kernel


def rbf_gram(Z1, Z2):
    return AMPLITUDE * oracles.gram(lambda a, b: oracles.rbf(a, b, LENGTHSCALE), Z1, Z2)


@pytest.fixture
def data(rng):
    """Support latents, support observations with a mean of about 5, and queries."""
    Z = draw(rng, S, 2)
    X = torch.sin(2 * Z @ draw(rng, 2, D)) + 0.2 * draw(rng, S, D) + 5
    return Z, X, draw(rng, M, 2)


def condition(data, dtype=DOUBLE, noise=NOISE):
    Z, X, _ = (part.to(dtype) for part in data)
    return given_rows(scaled(RBFKernel(), dtype), torch.tensor(noise, dtype=dtype), Z, X, X.mean(0))


# float32 with σ² = .03 of the amplitude; measured 2e-6
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, oracles.TOLERANCE[torch.float32]), (DOUBLE, 1e-10)])
def test_moments_are_those_of_a_dense_inverse(data, dtype, tolerance):
    Z, X, Z_new = data
    mean, var = condition(data, dtype).predict(Z_new.to(dtype))
    assert mean.dtype == var.dtype == dtype
    centre = X.numpy().mean(0)
    m, C = oracles.predict(rbf_gram(Z, Z), rbf_gram(Z_new, Z), rbf_gram(Z_new, Z_new), X.numpy() - centre, NOISE)
    assert_close(mean, centre + m, tolerance)
    assert_close(var[:, 0], C.diagonal() + NOISE, tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize(
    ("base", "sk_base"),
    [
        (RBFKernel, sk.RBF(LENGTHSCALE)),
        (lambda: MaternKernel(nu=0.5), sk.Matern(LENGTHSCALE, nu=0.5)),
        (lambda: MaternKernel(nu=1.5), sk.Matern(LENGTHSCALE, nu=1.5)),
        (lambda: MaternKernel(nu=2.5), sk.Matern(LENGTHSCALE, nu=2.5)),
    ],
    ids=["rbf", "matern12", "matern32", "matern52"],
)
def test_moments_agree_with_scikit_learn_and_gpytorch(data, base, sk_base, dtype):
    Z, X, Z_new = data
    centre = X.mean(0)
    noise = torch.tensor(NOISE, dtype=DOUBLE)
    posterior = given_rows(scaled(base(), dtype), noise.to(dtype), Z.to(dtype), X.to(dtype), centre.to(dtype))
    mean, var = posterior.predict(Z_new.to(dtype))

    regressor = GaussianProcessRegressor(sk.ConstantKernel(AMPLITUDE) * sk_base, alpha=NOISE, optimizer=None)
    regressor.fit(Z.numpy(), (X - centre).numpy())
    m, std = regressor.predict(Z_new.numpy(), return_std=True)
    # scikit-learn's variance is that of the function, the same for every output: + σ² is that of an observation
    assert_close(mean, m + centre.numpy(), OUTSIDE[dtype])
    assert_close(var[:, 0], std[:, 0] ** 2 + NOISE, OUTSIDE[dtype])

    m, v = oracles.gpytorch_predict(scaled(base()), noise, Z, X - centre, Z_new)
    assert_close(mean, m + centre, OUTSIDE[dtype])
    assert_close(var[:, 0], v, OUTSIDE[dtype])


@pytest.mark.parametrize("rows_a_block", [1, 3, 8])
def test_blocks_give_what_one_call_gives(data, monkeypatch, rows_a_block):
    Z_new = data[2]
    mean, var = condition(data).predict(Z_new)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", rows_a_block * S)
    posterior = condition(data)
    assert posterior.block_size == rows_a_block
    assert [len(range(M)[block]) for block in posterior.blocks(M)] == {1: [1] * 8, 3: [3, 3, 2], 8: [8]}[rows_a_block]
    in_blocks = posterior.predict(Z_new)
    assert_close(in_blocks[0], mean)
    assert_close(in_blocks[1], var)


def test_samples_of_many_points_come_in_parts(monkeypatch, rng):
    # Two parts of two points each: what each part alone would be, drawn one after the other from the same generator
    from gpytorch.kernels import RBFKernel

    from sasgp.gp import posterior as module

    Z, X = torch.randn(5, 2, generator=rng), torch.randn(5, 3, generator=rng)
    posterior = given_rows(RBFKernel(), torch.tensor(0.1), Z, X, X.mean(0))
    monkeypatch.setattr(module, "JOINT", 2)
    both = posterior.sample(Z[:4], torch.Generator().manual_seed(1))
    draw = torch.Generator().manual_seed(1)
    parts = torch.cat([posterior.sample(Z[:2], draw), posterior.sample(Z[2:4], draw)])
    assert torch.equal(both, parts)


def test_a_support_larger_than_a_block_still_answers(data, monkeypatch):
    expected = condition(data).predict(data[2])[0]
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", 1)
    assert_close(condition(data).predict(data[2])[0], expected)


def test_far_from_the_data_it_is_the_prior(data):
    # k_*S → 0, so m → the training mean and c → k_** + σ²
    mean, var = condition(data).predict(torch.full((1, 2), 1e3, dtype=DOUBLE))
    assert_close(mean[0], data[1].mean(0), 1e-15)
    assert_close(var, [[AMPLITUDE + NOISE]], 1e-15)


# ---- log density ----


def test_log_density_is_torchs_normal(data, rng):
    posterior, Z_new, X_new = condition(data), data[2], draw(rng, M, D) + 5
    mean, var = posterior.predict(Z_new)
    expected = Independent(Normal(mean, var.sqrt().expand_as(mean)), 1).log_prob(X_new)
    assert_close(posterior.log_density(X_new, Z_new), expected)
    expected = MultivariateNormal(mean, var[:, :, None] * torch.eye(D, dtype=DOUBLE)).log_prob(X_new)
    assert_close(posterior.log_density(X_new, Z_new), expected)


def test_log_density_with_missing_values_is_that_of_the_others(data, rng):
    Z_new, posterior = data[2], condition(data)
    X = 5 + draw(rng, M, D)
    X[0, 1] = X[3, 0] = X[3, 2] = torch.nan
    mean, var = posterior.predict(Z_new)
    each = Normal(mean, var.sqrt().expand_as(mean)).log_prob(X.nan_to_num())
    assert_close(posterior.log_density(X, Z_new), torch.where(X.isnan(), 0.0, each).sum(1))


def test_log_density_is_a_ratio_of_evidences(data, rng):
    # p(x* | X) = p(X, x*) / p(X): no predictive formula is involved
    Z, X, Z_new = data
    x_new = draw(rng, M, D) + 5
    Z_all = np.concatenate([Z, Z_new])
    X_all = np.concatenate([X, x_new]) - X.numpy().mean(0)
    K = rbf_gram(Z_all, Z_all)
    expected = [oracles.conditional(X_all, K, NOISE, S + n, range(S)) for n in range(M)]
    assert_close(condition(data).log_density(x_new, Z_new), expected)


def test_gradient_of_log_density_in_the_latents(data, rng):
    posterior, X_new = condition(data), draw(rng, M, D) + 5
    assert gradcheck(lambda Z: posterior.log_density(X_new, Z), (data[2].requires_grad_(),))


# ---- samples ----


@pytest.mark.parametrize("noise", [True, False])
def test_moments_of_samples(data, noise, rng):
    # Every feature is a function of its own, so n equal columns of X give n independent draws of one posterior.
    # The variance of the empirical mean is C_ii/n, that of the covariance (C_ii C_jj + C_ij²)/n; allow five deviations.
    n = 20_000
    Z, X, Z_new = data
    X = X[:, :1].expand(S, n)
    posterior = given_rows(scaled(RBFKernel()), torch.tensor(NOISE, dtype=DOUBLE), Z, X, X.mean(0))
    drawn = posterior.sample(Z_new, rng, noise=noise).numpy()
    m, C = oracles.predict(rbf_gram(Z, Z), rbf_gram(Z_new, Z), rbf_gram(Z_new, Z_new), (X - X.mean(0)).numpy(), NOISE)
    C = C + NOISE * np.eye(M) * noise  # without: less by σ² on the diagonal, and there alone
    c = C.diagonal()
    error = drawn.mean(1) - (m[:, 0] + X[:, 0].mean().item())
    assert (np.abs(error) < 5 * np.sqrt(c / n)).all()
    assert (np.abs(np.cov(drawn) - C) < 5 * np.sqrt((np.outer(c, c) + C**2) / n)).all()


def test_noise_is_all_that_noise_false_leaves_out(data):
    # Same draws ε: x = m + L ε and f = m + L' ε, with L Lᵀ = L' L'ᵀ + σ²I. At one z both are numbers:
    # (x − m)² − (f − m)² = σ² ε², and ε² = (f − m)²/c'
    posterior, z = condition(data), data[2][:1]
    mean, var = posterior.predict(z)
    x, f = (posterior.sample(z, torch.Generator().manual_seed(1), noise=noise) - mean for noise in (True, False))
    assert_close(x**2 - f**2, NOISE * f**2 / (var - NOISE))


def test_samples_depend_on_the_generator_alone(data):
    posterior = condition(data)
    one, two = (posterior.sample(data[2], torch.Generator().manual_seed(5)) for _ in range(2))
    assert torch.equal(one, two)
    assert not torch.equal(one, posterior.sample(data[2], torch.Generator().manual_seed(6)))


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
def test_functions_can_be_drawn_without_noise_beside_the_data(dtype, rng):
    # 100 points on a line through 300 noisy ones: K_** − VᵀV is 1e-3 of K_**, with no noise on its diagonal. Draws must
    # stay within the posterior's own standard deviations of its mean: E[((f − m)/√(c−σ²))²] = 1, over D = 400 functions
    Z = draw(rng, 300, 2, dtype=dtype)
    X = torch.sin(Z[:, :1]).expand(300, 400) + 0.1 * draw(rng, 300, 1, dtype=dtype)
    kernel = scaled(RBFKernel(), dtype, amplitude=1.0, lengthscale=1.0)
    posterior = given_rows(kernel, torch.tensor(0.01, dtype=dtype), Z, X, X.mean(0))
    line = torch.stack([torch.linspace(-1, 1, 100), torch.zeros(100)], 1).to(dtype)
    mean, var = posterior.predict(line)
    z = (posterior.sample(line, rng, noise=False) - mean).double() / (var - 0.01).double().sqrt()[:, None]
    # Squares of 400 functions with a handful of degrees of freedom each; √(2/400) = .07 at a single z
    assert abs(z.square().mean() - 1) < 5 * 0.07


# ---- trouble ----


def test_small_noise_in_float32_interpolates(rng):
    # σ² = 1e-6 of the amplitude and 500 points: K has a condition number near 1e8, beyond float32
    Z = draw(rng, 500, 2)
    noise, smooth = 1e-6, torch.stack([torch.sin(2 * Z[:, 0]), torch.cos(Z[:, 1]), Z.prod(1)], 1)
    X = smooth + math.sqrt(noise) * draw(rng, 500, 3)
    Z_new = draw(rng, 200, 2)
    results = {}
    for dtype in (torch.float32, DOUBLE):
        kernel = scaled(RBFKernel(), dtype, amplitude=1.0, lengthscale=1.0)
        posterior = given_rows(kernel, torch.tensor(noise, dtype=dtype), Z.to(dtype), X.to(dtype), X.mean(0).to(dtype))
        results[dtype] = *posterior.predict(Z.to(dtype)), *posterior.predict(Z_new.to(dtype))
    mean, var, mean_new, var_new = results[torch.float32]
    exact, _, exact_new, _ = results[DOUBLE]
    for v in (var, var_new):
        assert torch.isfinite(v).all()
        assert (v >= torch.tensor(noise)).all()
    # α reaches 3e3, and k is good to 6e-8 of 1 in each of 500 terms of random sign: 3e3 · 6e-8 · √500 = .004 is what a
    # prediction in float32 can be off by. The support itself is met to that and a few σ = .001.
    assert (mean - X).abs().max() < 0.02
    assert (mean - exact).abs().max() < 0.02
    assert (mean_new - exact_new).abs().max() < 0.02
    # and with usual points the variance is near nothing, against 1 before seeing the data
    assert var.max() < 1e-3


def test_a_kernel_that_repeats_one_number(data):
    # k = v everywhere, in GPyTorch an expanded tensor. By Sherman–Morrison the mean is the sample mean shrunk by
    # S v / (S v + σ²), and c = σ² + v σ² / (S v + σ²)
    Z, X, Z_new = data
    kernel = ConstantKernel().double()
    v = kernel.constant.item()
    mean, var = given_rows(kernel, torch.tensor(NOISE, dtype=DOUBLE), Z, X, torch.zeros(D, dtype=DOUBLE)).predict(Z_new)
    assert_close(mean, (X.mean(0) * S * v / (S * v + NOISE)).expand(M, D))
    assert_close(var[:, 0], np.full(M, NOISE + v * NOISE / (S * v + NOISE)))


def test_further_training_leaves_a_posterior_alone(data):
    Z, X, Z_new = data
    kernel, noise = scaled(RBFKernel()), torch.tensor(NOISE, dtype=DOUBLE, requires_grad=True)
    posterior = given_rows(kernel, noise, Z, X, X.mean(0))
    before = posterior.predict(Z_new)[0]
    kernel.base_kernel.lengthscale = 3.0
    assert torch.equal(posterior.predict(Z_new)[0], before)
    # and what it says is a function of Z alone to autograd
    assert not posterior.log_density(X[:M], Z_new).requires_grad
    assert all(p.requires_grad for p in kernel.parameters())


# ---- features with scales of their own ----


def test_scales_are_units_of_every_feature(data, rng):
    # Each feature by itself: a GP whose amplitude and noise are those of all, times s_d²
    Z, X, Z_new = data
    scales = torch.tensor([0.1, 1.0, 20.0], dtype=DOUBLE)
    mean = X.mean(0)
    posterior = given_rows(scaled(RBFKernel()), torch.tensor(NOISE, dtype=DOUBLE), Z, X, mean, scales)
    m, var = posterior.predict(Z_new)
    X_new = draw(rng, M, D) + 5
    total = torch.zeros(M, dtype=DOUBLE)
    for d, s in enumerate(scales.tolist()):
        kernel = scaled(RBFKernel(), amplitude=AMPLITUDE * s**2)
        own = given_rows(kernel, torch.tensor(NOISE * s**2, dtype=DOUBLE), Z, X[:, [d]], mean[[d]])
        own_mean, own_var = own.predict(Z_new)
        assert_close(m[:, [d]], own_mean, 1e-9)
        assert_close(var[:, [d]], own_var, 1e-9)
        total += own.log_density(X_new[:, [d]], Z_new)
    assert_close(posterior.log_density(X_new, Z_new), total, 1e-9)


def test_samples_have_the_scales_of_their_features(data):
    Z, X, _ = data
    scales = torch.tensor([0.1, 1.0, 20.0], dtype=DOUBLE)
    kernel, noise = scaled(RBFKernel()), torch.tensor(NOISE, dtype=DOUBLE)
    draws = [
        given_rows(kernel, noise, Z, X, X.mean(0), s).sample(Z[:5], torch.Generator().manual_seed(0))
        for s in (scales, None)
    ]
    centre = condition(data).predict(Z[:5])[0]
    assert_close(draws[0] - centre, scales * (draws[1] - centre), 1e-9)
