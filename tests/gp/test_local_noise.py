"""Noise by feature and place: against loops, against data whose noise is known, and as part of every density."""

import math

import numpy as np
import pytest
import torch
from gpytorch.kernels import LinearKernel, RBFKernel, ScaleKernel
from oracles import assert_close
from torch.autograd import gradcheck
from torch.distributions import MultivariateNormal, Normal

from sasgp.gp.local_noise import FLOOR, POSITIONS, ROWS, WIDTH, LocalNoise, ResidualSums
from sasgp.gp.nearest import NearestRows
from sasgp.gp.row_sums import RowSums, condition

DOUBLE = torch.float64
N, M, D, Q, NOISE = 40, 7, 3, 2, 0.1
LENGTHS = (0.8, 1.3)


def ard(lengths=LENGTHS, amplitude=1.7):
    kernel = ScaleKernel(RBFKernel(ard_num_dims=len(lengths))).double()
    kernel.outputscale = torch.tensor(amplitude, dtype=DOUBLE)
    kernel.base_kernel.lengthscale = torch.tensor(lengths, dtype=DOUBLE)
    return kernel


def weight(u, z):
    """The w of one pair: a Gaussian at .7 of each lengthscale."""
    return math.exp(-0.5 * sum(((a - b) / (0.5 * s)) ** 2 for a, b, s in zip(u, z, LENGTHS, strict=True)))


@pytest.fixture
def data(rng):
    """Residuals, leverages, latents and positions."""
    Z = torch.randn(N, Q, generator=rng, dtype=DOUBLE)
    return torch.randn(N, D, generator=rng, dtype=DOUBLE), torch.rand(N, generator=rng, dtype=DOUBLE), Z, Z[:M] + 0.1


def sums_of(r, h, Z, U, kernel=None):
    sums = ResidualSums(ard() if kernel is None else kernel, U, r.shape[1])
    sums.add(r, h, Z)
    return sums


def naive(data):
    """R and n, by a loop over positions and rows."""
    r, h, Z, U = (part.tolist() for part in data)
    R, n = np.zeros((len(U), len(r[0]))), np.zeros(len(U))
    for i, u in enumerate(U):
        for row, leverage, z in zip(r, h, Z, strict=True):
            n[i] += weight(u, z) * (1 - leverage)
            for d, value in enumerate(row):
                R[i, d] += weight(u, z) * value**2
    return R, n


def test_the_sums_are_those_of_a_loop_also_in_blocks_and_in_pieces(data):
    r, h, Z, U = data
    R, n = naive(data)
    whole = sums_of(*data)
    assert_close(whole.R, R, 1e-10)
    assert_close(whole.n, n, 1e-10)
    blocks = ResidualSums(ard(), U, D)
    for part in (slice(0, 1), slice(1, 20), slice(20, N)):
        blocks.add(r[part], h[part], Z[part])
    pieces = [sums_of(r[part], h[part], Z[part], U) for part in (slice(0, 13), slice(13, N))]
    for name, expected in whole.tensors.items():
        assert_close(blocks.tensors[name], expected, 1e-10)
        assert_close(pieces[0].tensors[name] + pieces[1].tensors[name], expected, 1e-10)


def test_the_noise_is_that_of_a_loop(data, rng):
    R, n = naive(data)
    far = np.array([0.1, 0.4, 2.0])
    noise = sums_of(*data).noise(torch.tensor(far))
    Z_new = torch.randn(9, Q, generator=rng, dtype=DOUBLE)
    expected = np.zeros((9, D))
    for i, z in enumerate(Z_new.tolist()):
        weights = [weight(u, z) for u in data[3].tolist()]
        for d in range(D):
            average = (sum(R[u, d] for u in range(M)) + far[d]) / (sum(n) + 1)
            v = [(R[u, d] + ROWS * average) / (n[u] + ROWS) for u in range(M)]
            total = sum(w * value for w, value in zip(weights, v, strict=True)) + POSITIONS * far[d]
            expected[i, d] = total / (sum(weights) + POSITIONS)
    assert_close(noise(Z_new), expected, 1e-10)


def test_far_from_the_data_it_is_the_global_noise(data):
    far = torch.tensor([0.1, 0.4, 2.0], dtype=DOUBLE)
    noise = sums_of(*data).noise(far)
    assert_close(noise(torch.tensor([[30.0, 0.0], [1e3, -1e3]]).double()), far.expand(2, D), 1e-12)
    # And a position near which there is no row has it, too
    r, h, Z, _ = data
    lonely = sums_of(r, h, Z, torch.tensor([[50.0, 50.0]]).double()).noise(far)
    assert_close(lonely.v[0], far, 1e-12)
    # Beside a position with many rows the global noise does not matter
    many = sums_of(torch.full((5000, D), 0.3).double(), torch.zeros(5000), torch.zeros(5000, Q), torch.zeros(1, Q))
    assert_close(many.noise(far)(torch.zeros(1, Q)), torch.full((1, D), 0.3**2), 5e-3)


def test_a_feature_that_never_varies_keeps_a_floor():
    # 10⁷ rows without a residual: a pseudo-row alone would leave 1e-8 of the global noise
    sums = ResidualSums(ard(), torch.zeros(1, Q), D)
    sums.n += 1e7
    noise = sums.noise(torch.tensor([NOISE]))
    assert_close(noise.v, torch.full((1, D), FLOOR * NOISE), 1e-6)


def test_a_kernel_without_lengthscales_has_units_of_one(data):
    r, h, Z, U = data
    found = sums_of(r, h, Z, U, ScaleKernel(LinearKernel()).double())
    expected = torch.exp(-0.5 * torch.cdist(U, Z).square() / WIDTH**2) @ r.square()
    assert_close(found.R, expected, 1e-10)


def test_leverage_makes_the_estimate_unbiased(rng):
    # Rows of the Gaussian process itself have E[r_n²] = σ² (1 − h_n), so the mean of v over features is σ² whatever
    # their leverages h_n are. Here residuals alone would give about half of it
    features, Z = 20_000, torch.randn(N, Q, generator=rng, dtype=DOUBLE)
    kernel = ard()
    prior = MultivariateNormal(torch.zeros(N, dtype=DOUBLE), kernel(Z).to_dense().detach() + NOISE * torch.eye(N))
    torch.manual_seed(0)
    X = prior.sample((features,)).T
    posterior = condition(kernel, torch.tensor(NOISE, dtype=DOUBLE), Z, X, torch.zeros(features).double())
    r, h = posterior.residuals(X, Z)
    assert float(h.mean()) > 0.4
    noise = sums_of(r, h, Z, Z, kernel).noise(posterior.feature_noise)
    # The standard deviation of a mean over 20 000 values, each at most that of one squared normal: √2 / √20 000 = 1 %
    assert_close(noise.v.mean(1), torch.full((N,), NOISE), 0.05)
    assert float((r.square().mean(1)).mean()) < 0.6 * NOISE


# ---------------------------------------------------------------------------------------------------- known noise


def sigma(Z):
    """Standard deviations [n, 4] that vary with place and feature: by a factor of 3 within a feature, 12 in all."""
    slow = 0.5 * np.sin(0.7 * Z[:, :1] + np.array([0.0, 1.5, 3.0, 4.5])) + 0.1 * Z[:, 1:]
    return np.exp(slow) * np.array([0.05, 0.1, 0.1, 0.2])


def observed(n, seed):
    rng = np.random.default_rng(seed)
    Z = rng.uniform(-2, 2, size=(n, 2))
    f = np.sin(Z @ np.array([[1.0, 0.5, -1.0, 0.2], [0.3, 1.0, 0.4, -1.0]]))
    return torch.as_tensor(Z), torch.as_tensor(f + sigma(Z) * rng.normal(size=(n, 4)))


@pytest.fixture(scope="module")
def known():
    """A decoder of data with known noise, through 350 positions; the global noise is the mean.

    The noise changes little within .5, the lengthscale: what changes faster is smoothed.
    """
    Z, X = observed(20_000, 0)
    kernel, mean = ard((0.5, 0.5), 1.0), X.mean(0)
    sums = RowSums(kernel, Z[:350], 4)
    sums.add(X - mean, Z)
    posterior = sums.posterior(torch.tensor((sigma(Z.numpy()) ** 2).mean()), mean)
    residuals = ResidualSums(kernel, Z[:350], 4)
    residuals.add(*posterior.residuals(X, Z), Z)
    return posterior, residuals


def coverage(posterior, Z, X):
    """Share of values in central 90 % intervals, in each tenth of the latent space [10] and for each feature [4]."""
    mean, var = posterior.predict(Z)
    inside = ((X - mean).abs() < 1.6448536 * var.sqrt()).double()
    tenths = [inside[part].mean().item() for q in (0, 1) for part in Z[:, q].argsort().tensor_split(10)]
    return np.array(tenths), inside.mean(0).numpy()


def test_intervals_hold_in_every_tenth_of_the_latent_space(known):
    posterior, residuals = known
    Z, X = observed(20_000, 1)
    posterior.local_noise = None
    tenths, features = coverage(posterior, Z, X)
    assert np.abs(tenths - 0.9).max() > 0.04  # one noise for all is wrong nearly everywhere …
    assert np.abs(features - 0.9).max() > 0.08
    posterior.local_noise = residuals.noise(posterior.feature_noise)
    tenths, features = coverage(posterior, Z, X)
    # 8000 values: the standard deviation of a share is .3 %
    assert ((tenths > 0.88) & (tenths < 0.92)).all(), tenths
    assert ((features > 0.88) & (features < 0.92)).all(), features


def test_the_noise_that_made_the_data_is_found(known):
    posterior, residuals = known
    Z = torch.as_tensor(np.random.default_rng(2).uniform(-1.6, 1.6, size=(200, 2)))
    found = residuals.noise(posterior.feature_noise)(Z).sqrt().numpy()
    # About 500 rows are near each position (the area 2π (ℓ/2)² of 16), so that a variance is known to √(2/500) = 6 %,
    # and it is smoothed over half a lengthscale, twice
    errors = np.abs(found / sigma(Z.numpy()) - 1)
    assert errors.max() < 0.15
    assert errors.mean() < 0.04


# ---------------------------------------------------------------------------------------------------- every use


@pytest.fixture
def noisy(rng, data):
    """A decoder with local noise and with scales, and the Gaussian process without the noise."""
    _, _, Z, _ = data
    X = torch.sin(Z @ torch.randn(Q, D, generator=rng, dtype=DOUBLE)) + 5
    X = X + 0.3 * torch.randn(N, D, generator=rng, dtype=DOUBLE)
    scales = torch.tensor([0.5, 1.0, 3.0]).double()
    posterior = condition(ard(), torch.tensor(NOISE, dtype=DOUBLE), Z, X, X.mean(0), scales)
    posterior.local_noise = sums_of(*posterior.residuals(X, Z), Z, Z).noise(posterior.feature_noise)
    return posterior, X, Z


def test_predict_adds_the_noise_to_the_function_s_variance(noisy, rng):
    posterior, _, _ = noisy
    Z = torch.randn(6, Q, generator=rng, dtype=DOUBLE)
    mean, var = posterior.predict(Z)
    local, posterior.local_noise = posterior.local_noise, None
    same, shared = posterior.predict(Z)
    assert torch.equal(mean, same)
    assert_close(var, shared - NOISE * posterior.scales.square() + local(Z))
    assert not np.allclose(var, shared, rtol=0.01)


def test_the_density_is_that_of_torch_and_its_gradient_is_right(noisy, rng):
    posterior, X, _ = noisy
    Z = torch.randn(5, Q, generator=rng, dtype=DOUBLE)
    mean, var = posterior.predict(Z)
    assert_close(posterior.log_density(X[:5], Z), Normal(mean, var.sqrt()).log_prob(X[:5]).sum(1))
    assert gradcheck(lambda z: posterior.log_density(X[:5], z), Z.requires_grad_())


def test_the_density_of_a_feature_integrates_to_one(data):
    _, _, Z, _ = data
    X = torch.sin(Z[:, :1])
    posterior = condition(ard(), torch.tensor(NOISE, dtype=DOUBLE), Z, X, X.mean(0))
    posterior.local_noise = sums_of(*posterior.residuals(X, Z), Z, Z).noise(posterior.feature_noise)
    x = torch.linspace(-12, 12, 200_001, dtype=DOUBLE)
    for z in (Z[0], Z[1] + 0.7, torch.tensor([9.0, 9.0]).double()):
        p = posterior.log_density(x[:, None], z.expand(len(x), Q)).exp()
        assert torch.trapezoid(p, x).item() == pytest.approx(1, abs=1e-9)


def test_samples_have_the_local_noise(data, rng):
    # Ten places, with 20 000 features that are alike but for their noise, which is 1, 4 or 9 times the least
    _, _, Z, _ = data
    features = 21_000
    X = torch.sin(Z[:, :1]).expand(N, features)
    posterior = condition(ard(), torch.tensor(NOISE, dtype=DOUBLE), Z, X, X.mean(0))
    v = torch.tensor([0.01, 0.04, 0.09]).double().repeat(features // 3).expand(N, features)
    posterior.local_noise = LocalNoise(Z, torch.tensor([1.0, 1.0]).double(), v, torch.tensor([NOISE]).double())
    at = Z[:10] + 0.2
    smooth = posterior.sample(at, rng, noise=False) - posterior.predict(at)[0]
    drawn = posterior.sample(at, rng) - posterior.predict(at)[0]
    function = posterior._moments(at)[1]
    # 7000 values each: the standard deviation of a variance is √(2/7000) = 1.7 %
    for k in range(3):
        assert_close(smooth[:, k::3].var(1) / function, torch.ones(10), 0.09)
        assert_close(drawn[:, k::3].var(1) / (function + posterior.local_noise(at)[:, k]), torch.ones(10), 0.09)
    # Noise is independent from place to place: what two places have in common is the function's
    V = posterior.kernel(at, Z).to_dense() @ posterior.root.T
    C = (posterior.kernel(at).to_dense() - V @ V.T).numpy()
    size = np.sqrt((np.outer(found := drawn[:, 2::3].var(1).numpy(), found) + C**2) / (features / 3))
    assert (np.abs(np.cov(drawn[:, 2::3].numpy()) - C) < 5 * size)[~np.eye(10, dtype=bool)].all()


def test_the_nearest_rows_have_the_same_noise(noisy, rng):
    posterior, X, Z = noisy
    rows = X - posterior.mean
    nearest = NearestRows(
        ard(), torch.tensor(NOISE), Z, lambda i: rows[i], posterior.mean, N, posterior.scales, posterior.local_noise
    )
    at = torch.randn(6, Q, generator=rng, dtype=DOUBLE)
    for found, expected in zip(nearest.predict(at), posterior.predict(at), strict=True):  # k = N: the exact decoder
        assert_close(found, expected, 1e-8)
    assert_close(nearest.log_density(X[:6], at), posterior.log_density(X[:6], at), 1e-8)
