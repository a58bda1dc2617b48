"""The Gaussian over all columns against the textbook, and cells left out against rows that lack them."""

import numpy as np
import pytest
import torch

from sasgp.gp.masked_gaussian import PRIOR_ROWS, MaskedGaussian, _fit

N, D = 60, 5


@pytest.fixture(scope="module")
def rows():
    draw = np.random.default_rng(0)
    X = draw.normal(size=(N, 2)) @ draw.normal(size=(2, D)) + 0.3 * draw.normal(size=(N, D)) + np.arange(D)
    X[(draw.random((N, D)) < 0.3) & (np.arange(D) != 0)] = np.nan
    return torch.as_tensor(X)


@pytest.fixture(scope="module")
def gaussian(rows):
    return MaskedGaussian(rows, torch.Generator().manual_seed(0))


def textbook(gaussian, x):
    """E[x_m | x_o] = μ_m + Σ_mo Σ_oo⁻¹ (x_o − μ_o) and Σ_mm − Σ_mo Σ_oo⁻¹ Σ_om, put back among all columns."""
    mu, S = gaussian.mean.numpy(), gaussian.covariance.numpy()
    o, m = np.flatnonzero(~np.isnan(x)), np.flatnonzero(np.isnan(x))
    mean, C = x.copy(), np.zeros_like(S)
    mean[m] = mu[m] + S[np.ix_(m, o)] @ np.linalg.solve(S[np.ix_(o, o)], x[o] - mu[o])
    C[np.ix_(m, m)] = S[np.ix_(m, m)] - S[np.ix_(m, o)] @ np.linalg.solve(S[np.ix_(o, o)], S[np.ix_(o, m)])
    return mean, C


def test_conditionals_are_those_of_the_textbook(gaussian, rows):
    mean, C = gaussian.conditional(rows)
    for n in range(N):
        m, c = textbook(gaussian, rows[n].numpy())
        np.testing.assert_allclose(mean[n], m, atol=1e-10)
        np.testing.assert_allclose(C[n], c, atol=1e-10)


def test_a_cell_left_out_is_as_if_it_were_missing(gaussian, rows):
    found = gaussian.leave_one_out(rows)
    for n in range(0, N, 7):
        for d in range(D):
            x = rows[n].numpy().copy()
            x[d] = np.nan
            mean, C = textbook(gaussian, x)
            others = np.arange(D) != d
            np.testing.assert_allclose(found.inputs[n, d][others], mean[others], atol=1e-9)
            np.testing.assert_allclose(found.variances[n, d][others], C.diagonal()[others], atol=1e-9)
            np.testing.assert_allclose(found.mean[n, d], mean[d], atol=1e-9)
            np.testing.assert_allclose(found.var[n, d], C[d, d], atol=1e-9)


def test_without_holes_it_is_the_covariance_of_the_rows_and_of_the_prior():
    X = torch.randn(40, 3, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    mean, S = _fit(X, 10.0, 50)
    C = np.cov(X.numpy().T, bias=True)
    np.testing.assert_allclose(mean, X.mean(0), atol=1e-12)
    np.testing.assert_allclose(S, (40 * C + 10 * np.diag(np.diag(C))) / 50, atol=1e-12)


def test_more_steps_make_the_observed_values_more_likely(rows):
    def log_p(steps):
        mean, S = (part.numpy() for part in _fit(rows, 1e-9, steps))
        total = 0.0
        for x in rows.numpy():
            o = ~np.isnan(x)
            K, r = S[np.ix_(o, o)], (x - mean)[o]
            total -= 0.5 * (np.linalg.slogdet(2 * np.pi * K)[1] + r @ np.linalg.solve(K, r))
        return total

    found = [log_p(steps) for steps in (1, 2, 5, 50)]
    assert found == sorted(found)
    assert found[0] < found[-1]


def test_columns_without_relation_get_much_of_the_prior(gaussian):
    noise = torch.randn(60, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    assert MaskedGaussian(noise, torch.Generator().manual_seed(0)).prior_rows >= 1000
    assert gaussian.prior_rows <= PRIOR_ROWS[1]


def test_a_column_without_values_has_its_own_variance():
    X = torch.randn(30, 3, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    X[:, 1] = torch.nan
    mean, C = MaskedGaussian(X, torch.Generator().manual_seed(0)).conditional(X[:1])
    np.testing.assert_allclose([mean[0, 1], C[0, 1, 1]], [0, 1], atol=1e-6)


def test_two_columns_without_a_correlation_are_seen_as_such():
    # Half of the rows predict the other half best without the correlation that they have by chance
    X = torch.randn(40, 2, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    assert MaskedGaussian(X, torch.Generator().manual_seed(0)).prior_rows > PRIOR_ROWS[0]


def test_few_rows_on_a_line_keep_their_correlations():
    # 16 rows of one number with noise .05. A row's worth of uncorrelated columns would add 1/16 to each variance of
    # about 1, which is 25 times the noise's .0025: less of the prior is right
    draw = np.random.default_rng(0)
    rows = torch.as_tensor(draw.normal(size=(16, 1)) * np.ones(5) + 0.05 * draw.normal(size=(16, 5)))
    assert MaskedGaussian(rows, torch.Generator().manual_seed(0)).prior_rows < 1
