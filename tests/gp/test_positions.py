"""Positions: drawn by what is left of the variance, as many as it takes, and never too close to each other."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from oracles import assert_close

from sasgp.gp import positions


def rbf(lengthscale=1.0, amplitude=2.0):
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = amplitude, lengthscale
    return kernel


def left(kernel, Z, chosen):
    """The prior's variance at every row given the function at the chosen ones, by a dense inverse, [N]."""
    K = kernel(Z).to_dense().detach().numpy()
    return K.diagonal() - np.einsum("na,ab,nb->n", K[:, chosen], np.linalg.inv(K[np.ix_(chosen, chosen)]), K[:, chosen])


# ---- randomly pivoted Cholesky ----


@pytest.mark.parametrize("missed", [0.3, 0.1, 0.01])
def test_the_choice_stops_as_soon_as_little_enough_is_missed(rng, missed):
    kernel, Z = rbf(), torch.randn(300, 2, generator=rng, dtype=torch.float64)
    chosen = positions.choose(kernel, Z, 300, rng, missed).tolist()
    share = [left(kernel, Z, chosen[:n]).sum() / (2.0 * 300) for n in (len(chosen), len(chosen) - 1)]
    assert share[0] <= missed < share[1]
    assert len(set(chosen)) == len(chosen)


def test_a_position_is_drawn_in_proportion_to_what_is_left(rng):
    # Three rows. After row 0 the variances left at 1 and 2 are a (1 − ρ²) with ρ = exp(−½ d²): d = .5 and 2
    kernel, Z = rbf(), torch.tensor([[0.0], [0.5], [2.0]], dtype=torch.float64)
    after = left(kernel, Z, [0])
    pairs = [positions.choose(kernel, Z, 2, rng).tolist() for _ in range(900)]
    first = np.bincount([a for a, _ in pairs], minlength=3) / 900
    assert np.abs(first - 1 / 3).max() < 4 * np.sqrt(2 / 9 / 900)  # at first all rows have the same variance
    second = [b for a, b in pairs if a == 0]
    expected = after[1] / after.sum()
    assert np.mean(np.equal(second, 1)) == pytest.approx(
        expected, abs=4 * np.sqrt(expected * (1 - expected) / len(second))
    )


def test_the_kernels_own_distance_decides(rng):
    # With a lengthscale of 1000 the second dimension tells rows no more apart: two positions span the first
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    kernel.base_kernel.lengthscale = torch.tensor([[0.1, 1000.0]])
    Z = torch.stack([torch.tensor([0.0, 5.0]).repeat(50), torch.randn(100, generator=rng)], 1).double()
    chosen = positions.choose(kernel, Z, 100, rng, 1e-3)
    assert sorted(Z[chosen, 0].tolist()) == [0.0, 5.0]


def test_rows_that_coincide_are_one_position(rng):
    Z = torch.randn(5, 2, generator=rng, dtype=torch.float64).repeat(20, 1)
    chosen = positions.choose(rbf(0.3), Z, 100, rng)
    assert len(chosen) == 5
    assert len(Z[chosen].unique(dim=0)) == 5


def test_it_is_the_same_for_a_model_in_float32(rng):
    kernel, Z = rbf(), torch.randn(100, 2, generator=rng)
    one, two = (positions.choose(k, Z, 20, torch.Generator().manual_seed(3)) for k in (kernel, rbf().float()))
    assert one.tolist() == two.tolist()
    assert len(one) == 20


def test_no_two_positions_are_too_close_for_a_factor(rng):
    # 2000 rows in a plane with a lengthscale of 3 span few functions: K_UU of the positions needs no jitter
    kernel, Z = rbf(3.0), torch.randn(2000, 2, generator=rng, dtype=torch.float64)
    chosen = positions.choose(kernel, Z, 2000, rng)
    assert len(chosen) < 200
    K = kernel(Z[chosen]).to_dense().detach()
    L, info = torch.linalg.cholesky_ex(K)
    assert info == 0
    assert_close(L @ L.T, K, 1e-12)


# ---- k-means++ ----


def test_kmeans_plus_plus_spreads_out(rng):
    # 10 tight clusters of 1, 2, 4, … rows: ten points find all of them, where random ones miss the small
    sizes = [2**i for i in range(10)]
    centres = 10 * torch.randn(10, 2, generator=rng)
    Z = torch.cat([c + 1e-3 * torch.randn(n, 2, generator=rng) for c, n in zip(centres, sizes, strict=True)])
    cluster = torch.repeat_interleave(torch.arange(10), torch.tensor(sizes))
    chosen = positions.kmeans_plus_plus(Z, 10, rng)
    assert sorted(cluster[chosen].tolist()) == list(range(10))


def test_kmeans_plus_plus_draws_in_proportion_to_the_squared_distance(rng):
    # From 0 the distances to 1 and 3 are squared 1 and 9; of the draws after a first 0, a tenth is 1
    Z = torch.tensor([[0.0], [1.0], [3.0]])
    pairs = [positions.kmeans_plus_plus(Z, 2, rng).tolist() for _ in range(3000)]
    second = [b for a, b in pairs if a == 0]
    assert np.mean(np.equal(second, 1)) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / len(second)))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_kmeans_plus_plus_of_rows_that_coincide(rng, size):
    chosen = positions.kmeans_plus_plus(torch.zeros(5, 2), size, rng)
    assert len(set(chosen.tolist())) == size
