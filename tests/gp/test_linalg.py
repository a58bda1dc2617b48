"""Products that leave zeros out are the products."""

import pytest
import torch
from oracles import TOLERANCE, assert_close

from sasgp.gp import linalg as triangular

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
        "L X": (triangular.lower_times(L, X), L @ X),
        "Lᵀ X": (triangular.upper_times(L, X), L.T @ X),
        "X L": (triangular.times_lower(X.T, L), X.T @ L),
        "X Xᵀ": (triangular.gram(X), X @ X.T),
        "X Lᵀ": (triangular.times_upper(X.T, L), X.T @ L.T),
    }
    for ours, plain in found.values():
        assert_close(ours, plain, TOLERANCE[dtype])


@pytest.mark.parametrize("n", SIZES)
def test_inverse(n, dtype, factor):
    L = factor(n)
    ours = triangular.inverse(L)
    solved = torch.linalg.solve_triangular(L.double(), torch.eye(n, dtype=torch.float64), upper=False)
    assert_close(ours, solved, TOLERANCE[dtype])
    assert not ours.triu(1).any()


@pytest.mark.parametrize("n", [1, 127, 128, 129, 256, 257, 1000])
def test_strips_are_all_rows_once_and_none_too_wide(n):
    found = list(triangular.strips(n))
    assert [row for a, b in found for row in range(a, b)] == list(range(n))
    assert max(b - a for a, b in found) <= triangular.WIDTH
