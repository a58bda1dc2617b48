"""Products that leave zeros out are the products."""

import pytest
import torch
from oracles import TOLERANCE, assert_close

from sasgp.gp import linalg

SIZES = [1, 128, 129, 300]


@pytest.fixture(params=[torch.float32, torch.float64], ids=str)
def dtype(request):
    return request.param


@pytest.fixture
def factor(dtype, rng):
    def draw(n):
        root = torch.randn(n, n, generator=rng, dtype=torch.float64)
        return torch.linalg.cholesky(root @ root.T / n + torch.eye(n)).to(dtype)

    return draw


@pytest.mark.parametrize("n", SIZES)
def test_products(n, dtype, factor, rng):
    L, X = factor(n), torch.randn(n, 7, generator=rng, dtype=dtype)
    found = {
        "L X": (linalg.lower_times(L, X), L @ X),
        "Lᵀ X": (linalg.upper_times(L, X), L.T @ X),
        "X L": (linalg.times_lower(X.T, L), X.T @ L),
        "X Xᵀ": (linalg.gram(X), X @ X.T),
        "X Lᵀ": (linalg.times_upper(X.T, L), X.T @ L.T),
    }
    for ours, plain in found.values():
        assert_close(ours, plain, TOLERANCE[dtype])


@pytest.mark.parametrize("n", SIZES)
def test_inverse(n, dtype, factor):
    L = factor(n)
    ours = linalg.inverse(L)
    solved = torch.linalg.solve_triangular(L.double(), torch.eye(n, dtype=torch.float64), upper=False)
    assert_close(ours, solved, TOLERANCE[dtype])
    assert not ours.triu(1).any()


@pytest.mark.parametrize("n", [1, 127, 128, 129, 256, 257, 1000])
def test_strips_are_all_rows_once_and_none_too_wide(n):
    found = list(linalg.strips(n))
    assert [row for a, b in found for row in range(a, b)] == list(range(n))
    assert max(b - a for a, b in found) <= linalg.WIDTH


@pytest.mark.parametrize("shape", [(40, 30), (30, 40)])
@pytest.mark.parametrize("large", [1000, 10])  # from the whole Gram matrix, or by subspace iteration
def test_principal_axes_are_the_singular_vectors(rng, monkeypatch, shape, large):
    monkeypatch.setattr(linalg, "LARGE", large)
    X = torch.randn(shape, generator=rng, dtype=torch.float64) * 0.7 ** torch.arange(shape[1])
    X = X - X.mean(0)
    _, s, Vt = torch.linalg.svd(X, full_matrices=False)
    variances, V = linalg.principal_axes(X, 2)
    assert V.shape == (shape[1], 2)
    torch.testing.assert_close(variances, s[:2].square() / shape[0], rtol=1e-6, atol=0)
    torch.testing.assert_close((Vt[:2] @ V).abs(), torch.eye(2, dtype=torch.float64), rtol=0, atol=1e-5)
    assert (V.gather(0, V.abs().argmax(0, keepdim=True)) > 0).all(), "the sign is that of the largest entry"


def test_jitter_is_relative_to_the_diagonal():
    # A matrix of rank 1 has a factor only with jitter. Of c K it is √c times as large, as L(cK) = √c L(K)
    a = torch.arange(1.0, 5.0, dtype=torch.float64)
    K = torch.outer(a, a) - 1e-12 * torch.eye(4, dtype=torch.float64)
    for c in (1e-12, 1e12):
        assert_close(linalg.cholesky(c * K), c**0.5 * linalg.cholesky(K), 1e-6)


def test_what_counts_as_rounding_is_relative_to_the_largest_variance():
    # 1/√(c v) = 1/√v / √c, and 0 stays 0
    v = torch.tensor([4.0, 1.0, 1e-3, 1e-9], dtype=torch.float64)
    expected = torch.tensor([0.5, 1.0, 1e-3**-0.5, 0.0], dtype=torch.float64)
    for c in (1e-12, 1.0, 1e12):
        assert_close(linalg.inverse_root(c * v), expected / c**0.5, 1e-12)
