"""The decoder given rows with missing values: against a Gaussian process for each feature, one at a time."""

import numpy as np
import oracles
import pytest
import torch
from oracles import OUTSIDE, assert_close

from sasgp.gp.kernels import build
from sasgp.gp.local_noise import ResidualSums
from sasgp.gp.masked_sums import FilledSums, PatternSums, masked_copy, most_positions
from sasgp.gp.mixture import Mixture, WithMixture
from sasgp.gp.ppca import MaskedPCA
from sasgp.gp.refine import PositionStarts, log_joint
from sasgp.gp.row_sums import RowSums, condition

DOUBLE = torch.float64
NOISE = torch.tensor(0.2, dtype=DOUBLE)
N, D, Q = 30, 4, 2


@pytest.fixture
def rows(rng):
    Z = torch.randn(N, Q, generator=rng, dtype=DOUBLE)
    X = torch.sin(2 * Z @ torch.randn(Q, D, generator=rng, dtype=DOUBLE))
    X = X + 0.3 * torch.randn(N, D, generator=rng, dtype=DOUBLE)
    X = torch.where(torch.rand(N, D, generator=rng) < 0.4, torch.nan, X)
    X[:, 3] = torch.where(X[:, 0].isnan(), torch.nan, Z[:, 1])  # observed where feature 0 is
    X[X.isnan().all(1), 1] = 0.5
    return X, Z


def kernel():
    found = build("rbf", Q).double()
    found.base_kernel.lengthscale = 0.7
    return found


def one_by_one(X, Z, at, noise=NOISE):
    """Mean and variance [M, D] of an observation of each feature, given its observed rows."""
    k = kernel()
    K = lambda a, b: k(a, b).to_dense().detach().numpy()  # noqa: E731
    means, variances = [], []
    for x in X.T:
        seen = ~x.isnan()
        m, C = oracles.predict(K(Z[seen], Z[seen]), K(at, Z[seen]), K(at, at), x[seen, None].numpy(), float(noise))
        means.append(m[:, 0])
        variances.append(np.diag(C) + float(noise))
    return np.stack(means, 1), np.stack(variances, 1)


def test_every_feature_has_the_posterior_of_its_own_rows(rows, rng):
    X, Z = rows
    at = torch.randn(7, Q, generator=rng, dtype=DOUBLE)
    sums = PatternSums(kernel(), Z, D)
    sums.add(X, Z)
    assert len(sums.S) == 3, "features 0 and 3 share a pattern"
    mean, var = sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE)).predict(at)
    expected = one_by_one(X, Z, at)
    assert_close(mean, expected[0], OUTSIDE[DOUBLE])
    assert_close(var, expected[1], OUTSIDE[DOUBLE])


def test_scales_are_the_units_of_a_feature(rows, rng):
    X, Z = rows
    at, scales = torch.randn(7, Q, generator=rng, dtype=DOUBLE), torch.tensor([0.5, 1.0, 2.0, 3.0], dtype=DOUBLE)
    sums = PatternSums(kernel(), Z, D)
    sums.add(X / scales, Z)
    mean, var = sums.posterior(NOISE, torch.ones(D, dtype=DOUBLE), scales).predict(at)
    expected = one_by_one(X / scales, Z, at)
    assert_close(mean, 1 + expected[0] * scales.numpy(), OUTSIDE[DOUBLE])
    assert_close(var, expected[1] * scales.numpy() ** 2, OUTSIDE[DOUBLE])


def test_the_bound_is_exact_if_every_row_is_a_position(rows):
    X, Z = rows
    sums = PatternSums(kernel(), Z, D)
    sums.add(X, Z)
    K = kernel()(Z).to_dense().detach().numpy()
    expected = oracles.masked_estimate(X.numpy(), K, float(NOISE), range(N), (), N)
    assert_close(sums.bound(NOISE), expected, 1e-7)
    fewer = PatternSums(kernel(), Z[:8], D)
    fewer.add(X, Z)
    assert fewer.bound(NOISE) < expected


def test_without_missing_values_they_are_the_sums_of_complete_rows(rows):
    X, Z = rows
    X = X.nan_to_num()
    masked, complete = PatternSums(kernel(), Z[:9], D), RowSums(kernel(), Z[:9], D)
    for sums in (masked, complete):
        sums.add(X, Z)
    assert len(masked.S) == 1
    for name, tensor in complete.tensors.items():
        assert_close(masked.tensors[name].reshape(tensor.shape), tensor)
    assert_close(masked.bound(NOISE), complete.bound(NOISE))
    here, there = (sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE)).predict(Z) for sums in (masked, complete))
    assert_close(here[0], there[0])
    assert_close(here[1], there[1])


@pytest.mark.parametrize("kind", [PatternSums, FilledSums])
def test_rows_with_holes_can_be_added_to_complete_ones(kind, rows):
    X, Z = rows
    X[:20] = X[:20].nan_to_num()
    complete = RowSums(kernel(), Z, D)
    complete.add(X[:20], Z[:20])
    sums = kind.from_complete(complete)
    sums.add(X[20:], Z[20:])
    if kind is FilledSums:
        sums.fill(NOISE, lambda V: sums.seen_products(X[20:], Z[20:], V))
    mean, _ = sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE)).predict(Z)
    assert_close(mean, one_by_one(X, Z, Z)[0], 1e-7 if kind is PatternSums else 5e-3)
    assert not isinstance(complete, PatternSums | FilledSums)
    assert isinstance(masked_copy(complete), PatternSums)


def test_the_order_of_rows_and_groups_does_not_matter(rows):
    X, Z = rows
    first, second = PatternSums(kernel(), Z[:9], D), PatternSums(kernel(), Z[:9], D)
    first.add(X, Z)
    second.separate()
    for part in (slice(15, N), slice(0, 15)):
        second.add(X[part], Z[part])
    assert len(second.S) == D
    assert_close(second.S, first.S[first.group])
    assert_close(second.n_g, (~X.isnan()).sum(0))
    assert_close(first.bound(NOISE), second.bound(NOISE))


def test_filled_in_values_leave_the_means_exact(rows, monkeypatch):
    X, Z = rows
    monkeypatch.setattr("sasgp.gp.masked_sums.ACCURACY", 1e-9)
    monkeypatch.setattr("sasgp.gp.masked_sums.PASSES", 50)
    sums = FilledSums(kernel(), Z, D)
    sums.add(X, Z)
    sums.fill(NOISE, lambda V: sums.seen_products(X, Z, V))
    posterior = sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE))
    mean, var = posterior.predict(Z)
    expected = one_by_one(X, Z, Z)
    assert_close(mean, expected[0], 1e-6)
    # One variance for all features: that of the mean information
    typical = np.sqrt((expected[1] ** 2).mean(1))
    assert np.abs(np.log(var[:, 0].numpy() / typical)).mean() < 0.35
    # Complete rows with the filled-in values give the same decoder
    filled = torch.where(X.isnan(), mean, X)
    assert_close(condition(kernel(), NOISE, Z, filled, torch.zeros(D, dtype=DOUBLE)).predict(Z)[0], mean, 1e-6)


def test_what_is_seen_is_a_sum_over_observed_values(rows):
    X, Z = rows
    sums, alone = FilledSums(kernel(), Z[:9], D), PatternSums(kernel(), Z[:9], D)
    alone.separate()
    for part in (slice(0, 11), slice(11, N)):
        sums.add(X[part], Z[part])
    alone.add(X, Z)  # the same sums for each feature
    assert_close(sums.S_seen, alone.S.mean(0))
    assert_close(sums.n_seen, alone.n_g.sum())
    assert_close(sums.t_seen, alone.t_g.sum())


def test_the_density_of_a_row_is_that_of_its_observed_values(rows, rng):
    X, Z = rows
    at = torch.randn(N, Q, generator=rng, dtype=DOUBLE)
    sums = PatternSums(kernel(), Z, D)
    sums.add(X, Z)
    posterior = sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE))
    mean, var = posterior.predict(at)
    each = torch.distributions.Normal(mean, var.sqrt()).log_prob(X.nan_to_num())
    assert_close(posterior.log_density(X, at), each.masked_fill(X.isnan(), 0).sum(1))
    shared = posterior.search
    assert_close(shared.predict(at)[0], mean)
    assert shared.predict(at)[1].shape == (N, 1)
    # The positions that explain the observed values best, by the densities themselves
    scores = torch.stack([log_joint(shared, X, z.expand(N, Q)) for z in shared.Z], 1)
    best = PositionStarts(shared)(X)
    assert_close(best[:, 0], shared.Z[scores.argmax(1)])


def test_samples_have_the_moments_of_each_feature(rows):
    X, Z = rows
    sums = PatternSums(kernel(), Z, D)
    sums.add(X, Z)
    posterior = sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE))
    mean, var = posterior.predict(Z[:2])
    draws = torch.stack([posterior.sample(Z[:2], torch.Generator().manual_seed(i)) for i in range(3000)])
    assert_close(draws.mean(0), mean, 0.08)
    assert_close(draws.var(0), var, 0.12)


def test_local_noise_counts_observed_values_alone(rows):
    X, Z = rows
    sums = ResidualSums(kernel(), Z[:5], D, masked=True)
    h = torch.full((N, D), 0.1, dtype=DOUBLE)
    sums.add(X, h, Z)
    for d in range(D):
        seen = ~X[:, d].isnan()
        alone = ResidualSums(kernel(), Z[:5], 1)
        alone.add(X[seen, d, None], h[seen, d], Z[seen])
        assert_close(sums.R[:, d], alone.R[:, 0])
        assert_close(sums.n[:, d], alone.n)
        assert_close(sums.noise(NOISE[None])(Z)[:, d], alone.noise(NOISE[None])(Z)[:, 0])


def test_positions_are_fewer_the_more_features_there_are():
    assert most_positions(16) == 1024
    assert most_positions(64) == 512
    assert most_positions(784) == 0


def test_components_of_incomplete_rows_are_those_of_complete_ones(rng):
    # x = W z + ε with orthogonal loadings of length 3 and 1.5: PCA of complete rows finds the same plane
    W = torch.linalg.qr(torch.randn(8, 2, generator=rng, dtype=DOUBLE)).Q * torch.tensor([3.0, 1.5], dtype=DOUBLE)
    Z = torch.randn(2000, 2, generator=rng, dtype=DOUBLE)
    X = Z @ W.T + 0.2 * torch.randn(2000, 8, generator=rng, dtype=DOUBLE)
    holed = torch.where(torch.rand(X.shape, generator=rng) < 0.3, torch.nan, X)
    pca = MaskedPCA(holed, 2)
    assert_close(pca.W @ pca.W.T, W @ W.T, 0.06)
    assert_close(pca.noise, 0.04, 0.1)
    # What the other values leave open: the error with the true loadings and noise
    error = (pca.completed(holed) - X).square().mean()
    pca.W, pca.noise = W, torch.tensor(0.04, dtype=DOUBLE)
    assert error < 1.05 * (pca.completed(holed) - X).square().mean()
    assert (pca.completed(holed)[~holed.isnan()] == X[~holed.isnan()]).all()


def test_a_mixture_is_torch_s_and_weights_make_draws_those_of_the_posterior(rng):
    weights, means = torch.tensor([0.3, 0.7], dtype=DOUBLE), torch.tensor([[-2.0], [1.0]], dtype=DOUBLE)
    covariances = torch.tensor([[[0.1]], [[0.5]]], dtype=DOUBLE)
    mixture = Mixture(weights, means, covariances)
    theirs = torch.distributions.MixtureSameFamily(
        torch.distributions.Categorical(weights),
        torch.distributions.MultivariateNormal(means, covariances),
    )
    z = torch.randn(50, 1, generator=rng, dtype=DOUBLE)
    assert_close(mixture.log_density(z), theirs.log_prob(z))

    class Identity:
        """x | z ~ N(z, 1) in one dimension."""

        Z, mean = torch.zeros(1, 1), torch.zeros(1)

        def log_density(self, X, Z):
            return torch.distributions.Normal(Z[:, 0], 1.0).log_prob(X[:, 0])

    # What adds log N(z | 0, I) to this density climbs log p(x|z) + log p(z) under the mixture
    X = z + 0.4
    mixed = WithMixture(Identity(), mixture).log_density(X, z) + torch.distributions.Normal(0.0, 1.0).log_prob(z[:, 0])
    assert_close(mixed, torch.distributions.Normal(z[:, 0], 1.0).log_prob(X[:, 0]) + theirs.log_prob(z))

    # p(z|x) on a fine grid
    grid, x = torch.linspace(-6, 6, 4001, dtype=DOUBLE)[:, None], 0.3
    log_p = theirs.log_prob(grid) + torch.distributions.Normal(grid[:, 0], 1.0).log_prob(torch.tensor(x))
    p = torch.softmax(log_p, 0)
    # In the place of draws, quantiles of N(0, 1): 900 near z*, and 300 of the mixture, shared .3 to .7
    normal, F = torch.distributions.Normal(0.0, 1.0), torch.full((1, 1, 1), 0.8, dtype=DOUBLE)
    epsilon = torch.cat([normal.icdf((torch.arange(n, dtype=DOUBLE) + 0.5) / n) for n in (900, 90, 210)])[:, None]
    found, log_w = WithMixture(Identity(), mixture).draws(
        torch.tensor([[x]], dtype=DOUBLE), torch.full((1, 1), 0.7, dtype=DOUBLE), F, epsilon, near=900
    )
    w = torch.softmax(log_w, 0)
    assert_close((w * found[:, :, 0]).sum(), (p * grid[:, 0]).sum(), 0.003)
    assert_close((w * found[:, :, 0].square()).sum(), (p * grid[:, 0].square()).sum(), 0.003)


def test_groups_may_change_places(rows):
    X, Z = rows
    sums = PatternSums(kernel(), Z[:9], D)
    sums.add(X, Z)
    before = [tensor[sums.group].clone() for tensor in (sums.S, sums.t_g, sums.n_g)]  # of each feature
    old = torch.tensor([2, 0, 1])
    sums._regroup(old, old.argsort()[sums.group])
    for tensor, expected in zip((sums.S, sums.t_g, sums.n_g), before, strict=True):
        assert_close(tensor[sums.group], expected)
