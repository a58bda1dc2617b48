"""Counts as scores: the map, its Jacobian and its inverse, each against a way around."""

import numpy as np
import pytest
import torch
from scipy.sparse import coo_array, csr_array

from sasgp.data import counts
from sasgp.data.counts import SizeFactors, are_counts

X = np.array([[0.0, 2, 5], [1, 0, 0], [0, 0, 0], [40, 3, 7]])
TOTALS = np.array([10, 4, 0, 100.0])  # over more genes than those of X


def test_the_median_cell_keeps_its_counts():
    # The median of 10, 4, 1 (an empty cell counts as 1) and 100 is 7
    factor = SizeFactors.from_totals(TOTALS)
    assert factor.median == 7
    scores = SizeFactors(10.0).scores(X, TOTALS)
    np.testing.assert_allclose(scores[0], np.log([1, 3, 6]), rtol=1e-6)  # n = m
    np.testing.assert_allclose(scores[3], np.log([5, 1.3, 1.7]), rtol=1e-6)  # a tenth
    assert scores.dtype == np.float32
    assert (scores[2] == 0).all()


@pytest.mark.parametrize("kind", [csr_array, coo_array])
def test_sparse_counts_stay_sparse(kind):
    factor = SizeFactors(7.0)
    sparse = factor.scores(kind(X), TOTALS)
    assert sparse.nnz == np.count_nonzero(X)
    np.testing.assert_array_equal(sparse.toarray(), factor.scores(X, TOTALS))


def test_the_jacobian_is_that_of_the_map():
    """Against autograd, in float64: Σ_d log ∂s_d/∂x_d of s = log1p(x m / n)."""
    factor, n = SizeFactors(7.0), np.maximum(TOTALS, 1)
    x = torch.tensor(X, requires_grad=True)
    torch.log1p(x * 7.0 / torch.tensor(n)[:, None]).sum().backward()
    expected = x.grad.log().sum(1).numpy()
    sums = np.log1p(X * 7.0 / n[:, None]).sum(1)
    np.testing.assert_allclose(factor.log_jacobian(sums, X.shape[1], TOTALS), expected, rtol=1e-12)


def test_expected_counts_are_the_mean_of_what_comes_back():
    """Against Gauss-Hermite quadrature: E[expm1(s)] n / m for s ~ N(μ, σ²). Without spread it is the inverse."""
    factor, mean, std = SizeFactors(7.0), np.full((4, 3), 0.7), np.full((4, 3), 0.4)
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    value = weights @ np.expm1(0.7 + 0.4 * nodes) / weights.sum()
    np.testing.assert_allclose(factor.expected_counts(mean, std, TOTALS)[3], np.full(3, value * 100 / 7), rtol=1e-9)
    back = factor.expected_counts(factor.scores(X, TOTALS), np.zeros_like(X), TOTALS)
    np.testing.assert_allclose(back, X, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 2], True),
        ([0.0, 3.0], True),
        ([0.5, 1.0], False),
        ([-1, 2], False),
        ([-1.0, 2.0], False),
        ([np.nan, 1.0], False),
        ([np.inf, 1.0], False),
        ([True, False], False),
        (["a"], False),
    ],
)
def test_what_counts_are(values, expected, monkeypatch):
    assert are_counts(np.array(values)) is expected
    monkeypatch.setattr(counts, "slices", lambda n, _: [slice(i, i + 1) for i in range(n)])
    assert are_counts(np.array(values)) is expected
