"""Eq. 6 with missing values: against a loop over features, enumeration, scikit-learn, and finite differences."""

from itertools import combinations, permutations

import numpy as np
import oracles
import pytest
import torch
from oracles import OUTSIDE, assert_close, relative_error
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from torch.autograd import gradcheck

from sasgp.gp import masked
from sasgp.gp.covariance import covariances
from sasgp.gp.kernels import build
from sasgp.gp.linalg import inverse
from sasgp.gp.masked import masked_estimate, masked_solve, patterns
from sasgp.gp.objective import sas_estimate

DOUBLE = torch.float64
NOISE = torch.tensor(0.3, dtype=DOUBLE)


def holes(rng, B, D, rate):
    """A mask with at least one value in every row."""
    seen = torch.rand(B, D, generator=rng) >= rate
    seen[torch.arange(B), torch.randint(D, (B,), generator=rng)] = True
    return seen


def data(rng, B, D, rate):
    Z = torch.randn(B, 2, generator=rng, dtype=DOUBLE)
    X = torch.sin(Z @ torch.randn(2, D, generator=rng, dtype=DOUBLE)) + 0.3 * torch.randn(
        B, D, generator=rng, dtype=DOUBLE
    )
    return Z, torch.where(holes(rng, B, D, rate), X, torch.nan)


def parts(Z, A):
    kernel = build("rbf", 2).double()
    K, k = covariances(kernel, Z, A)
    return K.detach(), k[A:].detach(), kernel


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
@pytest.mark.parametrize(("A", "B", "D", "N"), [(6, 10, 4, 30), (5, 5, 3, 5), (4, 5, 6, 5), (1, 4, 2, 9)])
def test_it_is_a_loop_over_features(A, B, D, N, rate, rng):
    Z, X = data(rng, B, D, rate)
    K_BA, k_RR, kernel = parts(Z, A)
    K = kernel(Z).to_dense().detach().numpy()
    expected = oracles.masked_estimate(X.numpy(), K, float(NOISE), range(A), range(A, B), N)
    assert_close(masked_estimate(X, K_BA, k_RR, NOISE, N), expected, OUTSIDE[DOUBLE])


def test_scikit_learn_gives_the_same_evidence(rng):
    Z, X = data(rng, 12, 3, 0.4)
    kernel = build("rbf", 2).double()
    K, _, _ = parts(Z, 12)
    theirs = sk.ConstantKernel(kernel.outputscale.item()) * sk.RBF(kernel.base_kernel.lengthscale.item())
    total = 0.0
    for x in X.T:
        seen = ~x.isnan()
        gp = GaussianProcessRegressor(theirs, alpha=float(NOISE), optimizer=None)
        total += gp.fit(Z[seen].numpy(), x[seen].numpy()).log_marginal_likelihood_value_
    assert_close(masked_estimate(X, K, K[:0, 0], NOISE, 12), total, OUTSIDE[DOUBLE])


def test_nothing_missing_gives_the_same_bits(rng):
    Z, X = data(rng, 10, 4, 0.0)
    X = X.nan_to_num()
    for scales in (None, torch.full((4,), 1.7, dtype=DOUBLE)):
        K_BA, k_RR, _ = parts(Z, 6)
        assert masked_estimate(X, K_BA, k_RR, NOISE, 30, scales) == sas_estimate(X, K_BA, k_RR, NOISE, 30, scales)


def test_a_missing_column_adds_nothing_and_an_observed_one_adds_its_own(rng):
    Z, X = data(rng, 10, 3, 0.4)
    K_BA, k_RR, _ = parts(Z, 6)
    full = torch.sin(Z[:, :1])
    with_both = torch.cat([X, torch.full_like(full, torch.nan), full], 1)
    for limit in (0.0, np.inf):

        def each(X, limit=limit):
            return masked_estimate(X, K_BA, k_RR, NOISE, 30, exact_work=limit)

        if limit:  # filling in shares its variances between features
            assert_close(each(with_both), each(X) + each(full), 1e-12)
        assert each(with_both).isfinite()


def test_the_chain_rule_holds_feature_by_feature(rng):
    # Eq. 4 with holes, by enumeration. Let s(a) be the mean of log p(x_n | x_A) over all sets A of size a and rows n
    # outside, where a missing value counts 0. Every order of the rows is a chain rule of every feature, so
    # log p(X|Z) = Σ_{a<N} s(a), and E[SAS_A] = Σ_{a<A} s(a) + (N−A) s(A)
    N, D = 5, 3
    Z, X = data(rng, N, D, 0.4)
    kernel = build("rbf", 2).double()
    K = kernel(Z).to_dense().detach()

    def estimate(A, R, n_total):
        rows = [*A, *R]
        return float(masked_estimate(X[rows], K[rows][:, list(A)], K[list(R), list(R)], NOISE, n_total))

    exact = estimate(range(N), (), N)
    for order in permutations(range(N)):
        assert_close(estimate(order, (), N), exact)
    terms = {
        a: np.mean(
            [
                oracles.masked_estimate(X.numpy(), K.numpy(), float(NOISE), A, [n], a + 1)
                - oracles.masked_estimate(X.numpy(), K.numpy(), float(NOISE), A, (), a)
                for A in combinations(range(N), a)
                for n in set(range(N)) - set(A)
            ]
        )
        for a in range(N)
    }
    assert_close(sum(terms.values()), exact)
    for a in range(1, N):
        found = [estimate(A, [n for n in range(N) if n not in A], N) for A in combinations(range(N), a)]
        assert_close(np.mean(found), sum(terms[i] for i in range(a)) + (N - a) * terms[a])
    # SAS with A = N − 1 is exact whichever row is left out
    for left in range(N):
        assert_close(estimate([n for n in range(N) if n != left], [left], N), exact)
    # A mini-batch estimates what all rows give: the mean over all rests of size r is that of the whole rest
    for a in (1, 2, 3):
        for A in combinations(range(N), a):
            rest = [n for n in range(N) if n not in A]
            whole = estimate(A, rest, N)
            found = [estimate(A, R, N) for R in combinations(rest, 1)]
            assert_close(np.mean(found), whole)


@pytest.mark.parametrize("limit", [np.inf, 0.0], ids=["by pattern", "filled in"])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(("A", "B", "N"), [(6, 10, 30), (7, 7, 7)])
def test_the_gradient_is_that_of_finite_differences(limit, scaled, A, B, N, rng):
    Z, X = data(rng, B, 4, 0.4)
    X[:, 3] = torch.where(X[:, 0].isnan(), torch.nan, Z[:, 0])  # a pattern that two features share
    kernel = build("rbf", 2).double()
    scales = torch.tensor([0.5, 1.5, 1.0, 2.0], dtype=DOUBLE).requires_grad_() if scaled else None

    def value(Z, noise, scales, *hyper):
        K_BA, k = covariances(kernel, Z, A)
        return masked_estimate(X, K_BA, k[A:], noise, N, scales, exact_work=limit)

    assert gradcheck(value, (Z.requires_grad_(), NOISE.clone().requires_grad_(), scales, *kernel.parameters()))


def test_conjugate_gradients_solve_every_feature_by_itself(rng):
    Z, X = data(rng, 40, 6, 0.6)
    K = parts(Z, 40)[0] + NOISE * torch.eye(40, dtype=DOUBLE)
    seen = ~X.isnan()
    found, filled = masked_solve(inverse(torch.linalg.cholesky(K)), X.nan_to_num(), seen.double())
    assert_close(K @ found, filled)
    assert_close(filled[seen], X[seen])
    for d in range(6):
        rows = seen[:, d]
        assert_close(found[rows, d], torch.linalg.solve(K[rows][:, rows], X[rows, d]), 1e-7)
        assert found[~rows, d].abs().max() < 1e-7


def test_filling_in_one_value_changes_little(rng):
    Z, X = data(rng, 30, 5, 0.0)
    K_BA, k_RR, _ = parts(Z, 20)
    X[3, 2] = torch.nan
    one, other = (masked_estimate(X, K_BA, k_RR, NOISE, 90, exact_work=limit) for limit in (0.0, np.inf))
    assert_close(one, other, 1e-3)


@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_filling_in_is_near_the_exact_estimate(rate, rng):
    # Means and quadratic forms are exact. Determinants are too large by Jensen's inequality, variances too small
    Z, X = data(rng, 120, 10, rate)
    K_BA, k_RR, _ = parts(Z, 60)
    filled, exact = (masked_estimate(X, K_BA, k_RR, NOISE, 120, exact_work=limit) for limit in (0.0, np.inf))
    n = int((~X.isnan()).sum())
    assert abs(filled - exact) / n < 0.02, "nats per value"
    assert filled != exact
    only_active = [masked_estimate(X[:60], K_BA[:60], k_RR[:0], NOISE, 60, exact_work=limit) for limit in (0.0, np.inf)]
    assert only_active[0] < only_active[1], "a lower bound"


def test_float32_has_the_gradient_of_float64(rng):
    Z, X = data(rng, 100, 8, 0.5)
    K_BA, k_RR, _ = parts(Z, 50)
    for limit in (0.0, np.inf):
        found = {}
        for dtype in (torch.float32, DOUBLE):
            inputs = [t.to(dtype).detach().requires_grad_() for t in (K_BA, k_RR, NOISE / 10)]
            masked_estimate(X.to(dtype), *inputs, 300, exact_work=limit).backward()
            found[dtype] = [t.grad for t in inputs]
        for single, double in zip(found[torch.float32], found[DOUBLE], strict=True):
            assert relative_error(single, double) < (5e-3 if limit else 0.15), "conjugate gradients stop early"


def test_patterns_are_the_different_columns():
    seen = torch.tensor([[1, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 0]], dtype=torch.bool)
    found, which = patterns(seen)
    assert len(found) == 3
    assert (seen == found[which].T).all()
    assert which[0] == which[2]


def test_the_rule_for_filling_in_counts_patterns(monkeypatch, rng):
    Z, X = data(rng, 10, 4, 0.5)
    K_BA, k_RR, _ = parts(Z, 6)
    P = len(patterns(~X[:6].isnan())[0])
    used = []
    for name in ("_ByPattern", "_Filled"):
        original = getattr(masked, name)
        stub = type(name, (), {"apply": staticmethod(lambda *a, n=name, f=original: used.append(n) or f.apply(*a))})
        monkeypatch.setattr(masked, name, stub)
    masked_estimate(X, K_BA, k_RR, NOISE, 30, exact_work=P * 360)
    masked_estimate(X, K_BA, k_RR, NOISE, 30, exact_work=P * 360 - 1)
    assert used == ["_ByPattern", "_Filled"]
