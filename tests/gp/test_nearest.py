"""Prediction from the nearest rows: with all rows against Posterior and scikit-learn, with some against a loop."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import LinearKernel, MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from oracles import OUTSIDE, assert_close
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from torch.distributions import Independent, MultivariateNormal, Normal

from sasgp.errors import InputError
from sasgp.gp import nearest, neighbours
from sasgp.gp.nearest import NearestRows
from sasgp.gp.row_sums import condition as given_rows

DOUBLE = torch.float64
AMPLITUDE, LENGTHSCALES, NOISE = 1.7, (0.6, 1.1, 0.8), 0.05
N, M, D, Q, K = 60, 17, 5, 3, 9


def draw(rng, *shape):
    return torch.randn(shape, generator=rng, dtype=DOUBLE)


def ard(dtype=DOUBLE, base=RBFKernel, lengthscales=LENGTHSCALES):
    kernel = ScaleKernel(base(ard_num_dims=len(lengthscales))).to(dtype)
    kernel.outputscale = torch.tensor(AMPLITUDE, dtype=dtype)
    kernel.base_kernel.lengthscale = torch.tensor(lengthscales, dtype=dtype)
    return kernel


def covariance(a, b, lengthscales=LENGTHSCALES):
    # k(a, b) = v exp(−½ Σ_q (a_q − b_q)² / l_q²)
    return AMPLITUDE * np.exp(-0.5 * (((a[:, None] - b[None]) / np.array(lengthscales)) ** 2).sum(2))


@pytest.fixture
def data(rng):
    """Training positions and rows with a mean of about 5, and queries with rows of their own."""
    Z, Z_new, slopes = draw(rng, N, Q), draw(rng, M, Q), draw(rng, Q, D)
    X, X_new = (torch.sin(2 * at @ slopes) + 0.2 * draw(rng, len(at), D) + 5 for at in (Z, Z_new))
    return Z, X, Z_new, X_new


def condition(data, k, dtype=DOUBLE, *, kernel=None, scales=None, taken=None):
    Z, X = (part.to(dtype) for part in data[:2])
    mean = X.mean(0)

    def take(index):
        if taken is not None:
            taken.append(index.tolist())
        return X[index] - mean

    noise = torch.tensor(NOISE, dtype=dtype)
    return NearestRows(ard(dtype) if kernel is None else kernel, noise, Z, take, mean, k, scales)


def one_by_one(data, k, lengthscales=LENGTHSCALES):
    """Mean [M, D] and variance [M]: for each query sort all distances, then invert the matrix of the nearest."""
    Z, X, Z_new = (part.numpy() for part in data[:3])
    centre, means, variances = X.mean(0), [], []
    for z in Z_new:
        near = np.argsort([math.dist(z / np.array(lengthscales), other / np.array(lengthscales)) for other in Z])[:k]
        inverse = np.linalg.inv(covariance(Z[near], Z[near], lengthscales) + NOISE * np.eye(k))
        to = covariance(z[None], Z[near], lengthscales)[0]
        means.append(centre + to @ inverse @ (X[near] - centre))
        variances.append(AMPLITUDE + NOISE - to @ inverse @ to)
    return np.array(means), np.array(variances)


# ---------------------------------------------------------------------------------------------------- all rows


@pytest.mark.parametrize("base", [RBFKernel, lambda **how: MaternKernel(nu=1.5, **how)], ids=["rbf", "matern32"])
def test_with_all_rows_it_is_the_exact_posterior(data, base):
    Z, X, Z_new, X_new = data
    exact = given_rows(ard(base=base), torch.tensor(NOISE, dtype=DOUBLE), Z, X, X.mean(0))
    rows = condition(data, N, kernel=ard(base=base))
    for found, expected in zip(rows.predict(Z_new), exact.predict(Z_new), strict=True):
        assert_close(found, expected, 1e-8)
    assert_close(rows.log_density(X_new, Z_new), exact.log_density(X_new, Z_new), 1e-8)
    assert_close(rows.feature_noise, exact.feature_noise)


def test_with_all_rows_it_agrees_with_scikit_learn(data):
    Z, X, Z_new, _ = data
    kernel = sk.ConstantKernel(AMPLITUDE) * sk.RBF(LENGTHSCALES)
    regressor = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None).fit(Z.numpy(), (X - X.mean(0)).numpy())
    m, std = regressor.predict(Z_new.numpy(), return_std=True)
    mean, var = condition(data, N).predict(Z_new)
    # scikit-learn's variance is that of the function, the same for every output: + σ² is that of an observation
    assert_close(mean, m + X.mean(0).numpy(), OUTSIDE[DOUBLE])
    assert_close(var[:, 0], std[:, 0] ** 2 + NOISE, OUTSIDE[DOUBLE])


@pytest.mark.parametrize(
    "kernel", [lambda: RBFKernel(active_dims=[0, 2]) + LinearKernel(active_dims=[1]), PeriodicKernel, LinearKernel]
)
def test_any_kernel_of_gpytorch_works(data, kernel):
    Z, X, Z_new, _ = data
    kernel = kernel().double()
    exact = given_rows(kernel, torch.tensor(NOISE, dtype=DOUBLE), Z, X, X.mean(0)).predict(Z_new)
    for found, expected in zip(condition(data, N, kernel=kernel).predict(Z_new), exact, strict=True):
        assert_close(found, expected, 1e-8)


# ---------------------------------------------------------------------------------------------------- some rows


@pytest.mark.parametrize("k", [1, K, N - 1])
def test_with_some_rows_it_is_a_loop_over_queries(data, k):
    mean, var = condition(data, k).predict(data[2])
    m, c = one_by_one(data, k)
    assert_close(mean, m)
    assert_close(var[:, 0], c)


def test_a_log_density_is_that_of_the_moments(data):
    _, _, Z_new, X_new = data
    m, c = one_by_one(data, K)
    expected = Independent(Normal(torch.from_numpy(m), torch.from_numpy(c)[:, None].sqrt()), 1).log_prob(X_new)
    assert_close(condition(data, K).log_density(X_new, Z_new), expected)


def test_lengthscales_decide_who_is_near(rng):
    # From 0, (3, 0) is 3/10 lengthscales away, and (0, 1) is 1/.1 = 10: the one that is farther is nearer
    Z = torch.tensor([[0.0, 1.0], [3.0, 0.0]], dtype=DOUBLE)
    X = torch.tensor([[-1.0], [1.0]], dtype=DOUBLE)
    query = torch.zeros(1, 2, dtype=DOUBLE)
    assert condition((Z, X), 1, kernel=ard(lengthscales=(10.0, 0.1))).index.nearest(query, 1).tolist() == [[1]]
    assert condition((Z, X), 1, kernel=ard(lengthscales=(1.0, 1.0))).index.nearest(query, 1).tolist() == [[0]]
    # A kernel without lengthscales has nothing but Euclidean distances to go by
    assert condition((Z, X), 1, kernel=LinearKernel().double()).index.nearest(query, 1).tolist() == [[0]]


def test_nearest_far_from_the_origin_are_still_the_nearest(rng):
    # ‖a‖² − 2 a·b + ‖b‖² would lose ‖a‖² / ε = 1e12 · 1e-16 = 1e-4 here, more than what lies between neighbours
    Z = torch.cat([1e6 + 1e-3 * draw(rng, 500, 2), 1e6 + torch.zeros(1, 2, dtype=DOUBLE)])
    found = condition((Z, Z), 3, kernel=RBFKernel().double()).index.nearest(Z, 3)
    expected = torch.cdist(Z - 1e6, Z - 1e6, compute_mode="donot_use_mm_for_euclid_dist").topk(3, largest=False).indices
    assert torch.equal(found, expected.sort(1).values)


def test_a_row_near_a_query_says_more_than_all_rows_far_away(data):
    # Distant rows add nothing: with lengthscales this short, 9 rows give what 60 give
    short = ard(lengthscales=(0.2, 0.2, 0.2))
    for some, everything in zip(
        condition(data, K, kernel=short).predict(data[2]),
        condition(data, N, kernel=short).predict(data[2]),
        strict=True,
    ):
        assert_close(some, everything, 1e-3)


def test_features_with_scales_of_their_own(data, rng):
    # In units of s the model is the plain one, with means, deviations and densities that follow from it
    Z, X, Z_new, X_new = data
    s = draw(rng, D).exp()
    mean, var = condition((Z, X * s, Z_new), K, scales=s).predict(Z_new)
    m, c = one_by_one(data, K)
    assert var.shape == (M, D)
    assert_close(mean, m * s.numpy())
    assert_close(var, c[:, None] * s.numpy() ** 2)
    scaled = condition((Z, X * s, Z_new), K, scales=s)
    assert_close(scaled.feature_noise, NOISE * s**2)
    plain = condition(data, K).log_density(X_new, Z_new)
    assert_close(scaled.log_density(X_new * s, Z_new), plain - s.log().sum())


def test_a_float32_model_is_as_good_as_its_rounding(data):
    single = condition(data, K, torch.float32)
    mean, var = single.predict(data[2].float())
    assert mean.dtype == var.dtype == torch.float32
    m, c = one_by_one(data, K)
    assert_close(mean, m, oracles.TOLERANCE[torch.float32])
    assert_close(var[:, 0], c, oracles.TOLERANCE[torch.float32])
    assert single.log_density(data[3].float(), data[2].float()).dtype == torch.float32


def test_equal_positions_get_jitter_and_the_others_none(data):
    # Without noise, rows at one place have a singular K. Others in the batch keep their exact factor
    Z, X, Z_new, _ = data
    twice = torch.cat([Z[:1].expand(K, Q), Z + 100])
    rows = torch.cat([X[:1].expand(K, D), X])
    queries = torch.cat([Z[:1], Z_new + 100])
    silent, X_mean = torch.zeros((), dtype=DOUBLE), X.mean(0)
    found = NearestRows(ard(), silent, twice, lambda i: rows[i] - X_mean, X_mean, K).predict(queries)
    alone = NearestRows(ard(), silent, Z + 100, lambda i: X[i] - X_mean, X_mean, K).predict(queries[1:])
    assert_close(found[0][:1], X[:1], 1e-4)
    assert_close(found[0][1:], alone[0])
    assert_close(found[1][1:], alone[1])


# ---------------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("values", [1, 2 * D, 10 * D, 4 * K * K, 40 * K])
def test_blocks_do_not_change_results(data, monkeypatch, values):
    _, _, Z_new, X_new = data
    whole = condition(data, K)
    mean, var = whole.predict(Z_new)
    log_p, near = whole.log_density(X_new, Z_new), whole.index.nearest(Z_new, K)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", values)
    monkeypatch.setattr(neighbours, "TILE", 7)
    taken = []
    parts = condition(data, K, taken=taken)
    assert torch.equal(parts.index.nearest(Z_new, K), near)
    for found, expected in zip(parts.predict(Z_new), (mean, var), strict=True):
        assert_close(found, expected, 1e-12)
    assert max(map(len, taken)) <= max(1, values // D)  # rows in memory at a time
    assert_close(parts.log_density(X_new, Z_new), log_p, 1e-12)


def test_a_row_is_gathered_once_per_group(data):
    taken = []
    condition(data, K, taken=taken).predict(data[2])
    assert len(taken) == 1
    assert taken[0] == sorted(set(taken[0]))


def test_queries_near_each_other_share_their_rows(rng, monkeypatch):
    # Four clusters of 50 rows, queries from all of them in turn. Only 50 rows fit: each cluster's are gathered once
    corners = 100.0 * torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1]], dtype=DOUBLE)
    Z = corners.repeat(50, 1) + draw(rng, 200, 2)
    queries = corners.repeat(10, 1) + draw(rng, 40, 2)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", 50 * 50)
    taken = []
    X = draw(rng, 200, 50)
    condition((Z, X), 40, kernel=RBFKernel().double(), taken=taken).predict(queries)
    assert sum(map(len, taken)) <= 200


def test_no_queries(data):
    mean, var = condition(data, K).predict(data[2][:0])
    assert mean.shape == (0, D)
    assert var.shape == (0, 1)


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize("k", [0, -1, N + 1])
def test_there_must_be_as_many_rows(data, k):
    with pytest.raises(InputError, match=f"neighbours must be from 1 to {N}.*Got {k}") as info:
        condition(data, k)
    assert info.value.argument == "neighbours"


def test_matrices_that_do_not_fit_are_refused(data, monkeypatch):
    monkeypatch.setattr(nearest, "available", lambda: 1000)
    with pytest.raises(InputError, match=r"neighbours=9 needs .* MiB.*Use fewer") as info:
        condition(data, K)
    assert info.value.argument == "neighbours"


def test_a_row_is_left_out_of_its_own_nearest_rows():
    # Where many coincide, the search may miss the row itself: any other is left out then
    near = torch.tensor([[0, 1, 2], [4, 5, 6]])
    assert nearest.without_itself(near, torch.tensor([1, 9])).tolist() == [[0, 2], [5, 6]]


def test_the_density_given_other_rows_is_that_of_the_joint_gaussian(data):
    # log p(y | y_k) = log p(y, y_k) − log p(y_k), for each query and the 4 rows that it is given
    Z, X, Z_new, X_new = data
    kernel, noise, given = ard(), torch.tensor(NOISE, dtype=DOUBLE), torch.arange(4 * M).view(M, 4) % N
    found = nearest.log_density_given(kernel, noise, Z_new, X_new, Z[given], X[given])
    for i in range(M):
        at, y = torch.cat([Z[given[i]], Z_new[i : i + 1]]), torch.cat([X[given[i]], X_new[i : i + 1]])
        S = torch.as_tensor(covariance(at.numpy(), at.numpy())) + NOISE * torch.eye(5, dtype=DOUBLE)
        joint = MultivariateNormal(torch.zeros(5, dtype=DOUBLE), S).log_prob(y.T).sum()
        rest = MultivariateNormal(torch.zeros(4, dtype=DOUBLE), S[:4, :4]).log_prob(y[:4].T).sum()
        assert_close(found[i], joint - rest, 1e-9)
