"""DESIGN §2 by full enumeration: with five rows every active set, every batch and every order can be visited.

The right number is known in each case, so a wrong constant anywhere cannot pass.
"""

import math
from itertools import combinations, permutations

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.priors import GammaPrior
from oracles import assert_close

from sasgp.gp.objective import sas_estimate
from sasgp.models.encoders import Encoder, Table
from sasgp.models.sas import SASModel

N, D, Q = 5, 3, 2
NOISE, AMPLITUDE, LENGTHSCALE = 0.3, 1.7, 0.8
EVERYONE = frozenset(range(N))


def _data():
    rng = np.random.default_rng(1)
    Z = rng.normal(size=(N, Q))
    X = rng.normal(size=(N, D)) + np.sin(3 * Z[:, :1])
    return Z, X, AMPLITUDE * oracles.gram(lambda a, b: oracles.rbf(a, b, LENGTHSCALE), Z, Z)


Z, X, K = _data()
EXACT = oracles.log_marginal(X, K, NOISE)


def estimate(A, R, n_total=N, X=X):
    """`sas_estimate` of the rows A then R, given as indices."""
    A, R = list(A), list(R)
    rows = [*A, *R]
    X_B, K_BA, k_RR = (torch.tensor(part) for part in (X[rows], K[np.ix_(rows, A)], K[R, R]))
    return float(sas_estimate(X_B, K_BA, k_RR, torch.tensor(NOISE, dtype=torch.float64), n_total))


def splits(a, r):
    """Every active set of size a with every rest of size r outside it."""
    return [(A, R) for A in combinations(range(N), a) for R in combinations(sorted(EVERYONE - set(A)), r)]


def mean(numbers):
    numbers = list(numbers)
    return math.fsum(numbers) / len(numbers)


def s(a):
    return oracles.s(X, K, NOISE, a)


def s_cv(r):
    return oracles.s_cv(X, K, NOISE, r)


# ---- the estimate itself ----


@pytest.mark.parametrize(("a", "r"), [(1, 1), (1, 4), (2, 2), (3, 1), (4, 1)])
def test_estimate_is_the_explicit_sum(a, r):
    for A, R in splits(a, r):
        assert_close(estimate(A, R), oracles.sas_estimate(X, K, NOISE, A, R, N))


def test_everything_active_is_the_exact_log_marginal():
    # A = N: no R is left, the estimate is Eq. 2
    assert_close(estimate(range(N), []), EXACT)


def test_all_but_one_active_is_exact():
    # A = N−1, B = N: weight (N−A)/(B−A) = 1, so log p(x_A) + log p(x_n|x_A) = log p(X) whichever n is left out
    for A, R in splits(N - 1, 1):
        assert_close(estimate(A, R), EXACT)


def test_order_inside_the_active_set_and_inside_the_rest_does_not_matter():
    expected = estimate([0, 1, 2], [3, 4])
    for A in permutations([0, 1, 2]):
        for R in permutations([3, 4]):
            assert_close(estimate(A, R), expected)
    # while who is active does matter: another split gives another number
    assert abs(estimate([2, 3, 4], [0, 1]) - expected) > 0.1


# ---- Eq. 4 ----


def test_leave_r_out_scores_sum_to_the_log_marginal():
    # S_CV(r) = 1/C(N,r) Σ_{|R|=r} 1/r Σ_{n∈R} log p(x_n | x_A), A the complement of R. In a uniformly random order of
    # the rows the k-th has k−1 predecessors, a uniform subset, and is itself uniform among the other r = N−k+1. So the
    # mean of its term of the chain rule is S_CV(r), and since every order's terms sum to log p(X), so do the means.
    assert_close(math.fsum(s_cv(r) for r in range(1, N + 1)), EXACT)


def test_s_cv_counts_what_is_left_out_and_s_what_is_kept():
    for r in range(1, N + 1):
        assert_close(s_cv(r), s(N - r))


def test_leave_one_out_is_what_the_estimate_predicts():
    # The code's own route to S_CV(r): with B = N the weight is 1, so L̂ − log p(x_A) = Σ_{n∈R} log p(x_n | x_A)
    for r in range(1, N):
        marginal = {A: estimate(A, [], n_total=len(A)) for A in combinations(range(N), N - r)}
        score = mean((estimate(A, R) - marginal[A]) / r for A, R in splits(N - r, r))
        assert_close(score, s_cv(r))


# ---- means of L̂ ----


@pytest.mark.parametrize("a", [1, 2, 3])
def test_mean_over_mini_batches_is_the_full_data_estimate(a):
    # For fixed A every n ∉ A is in the rest R equally often, in a fraction (B−A)/(N−A) of them: the weight's inverse
    for A in combinations(range(N), a):
        rest = sorted(EVERYONE - set(A))
        full = estimate(A, rest)
        for r in range(1, N - a + 1):
            assert_close(mean(estimate(A, R) for R in combinations(rest, r)), full)


@pytest.mark.parametrize("a", [1, 2, 3, 4])
def test_mean_of_the_estimate(a):
    # log p(x_A) = Σ_{i<a} log p(x_i | before), each of mean s(i) by the argument of Eq. 4; then N−a terms of mean s(a)
    expected = math.fsum(s(i) for i in range(a)) + (N - a) * s(a)
    for r in range(1, N - a + 1):
        assert_close(mean(estimate(A, R) for A, R in splits(a, r)), expected)


def test_the_estimate_is_a_lower_bound_on_average_when_s_does_not_fall():
    # Data of the model's own making, in many columns: then knowing more helps, s(0) < s(1) < …, and
    # Σ_{i<a} s(i) + (N−a) s(a) has s(a) in the place of larger ones. It rises with a until it is exact at A = N−1.
    drawn = np.linalg.cholesky(K + NOISE * np.eye(N)) @ np.random.default_rng(2).normal(size=(N, 300))
    scores = [oracles.s(drawn, K, NOISE, a) for a in range(N)]
    means = [mean(estimate(A, R, X=drawn) for A, R in splits(a, N - a)) for a in range(1, N)]
    exact = oracles.log_marginal(drawn, K, NOISE)
    assert scores == sorted(scores)
    assert means == sorted(means)
    assert means[0] < 1.01 * exact < 0, "by more than a rounding error"
    assert_close(means[-1], exact)


def test_the_estimate_is_no_bound_for_a_mis_specified_model():
    # The rows of X hardly follow k: their neighbours mislead, s falls, and by the same sum the mean lies above
    scores = [s(a) for a in range(N)]
    means = [mean(estimate(A, R) for A, R in splits(a, N - a)) for a in range(1, N)]
    assert scores == sorted(scores, reverse=True)
    assert means == sorted(means, reverse=True)
    assert means[0] > EXACT + 0.1


def test_uniform_r_does_not_have_the_evidence_for_its_mean():
    # With R uniform on 1..N (A = N−R; none active for R = N) and B = N:
    #   E = 1/N Σ_R [ Σ_{r>R} S_CV(r) + R S_CV(R) ]. S_CV(r) occurs r−1 times in the first sum, r times in the second:
    #   E = 1/N Σ_r (2r−1) S_CV(r), against the evidence Σ_r S_CV(r)
    nothing_active = math.fsum(oracles.conditional(X, K, NOISE, n, ()) for n in range(N))
    per_size = [nothing_active] + [mean(estimate(A, R) for A, R in splits(a, N - a)) for a in range(1, N)]
    paper = math.fsum((2 * r - 1) * s_cv(r) for r in range(1, N + 1)) / N
    assert_close(mean(per_size), paper)
    assert abs(paper - EXACT) > 0.1


def test_one_conditional_times_n_is_unbiased():
    # |A| = a uniform on 0..N−1, A uniform of that size, n uniform outside it:
    #   E[N log p(x_n|x_A)] = N · 1/N Σ_a s(a) = log p(X)
    # The conditional is the estimate's own: with one row in R and weight 1 it is L̂ − log p(x_A).
    per_size = [mean(N * oracles.conditional(X, K, NOISE, n, ()) for n in range(N))]
    per_size += [
        mean(N * (estimate(A, R, n_total=a + 1) - estimate(A, [], n_total=a)) for A, R in splits(a, 1))
        for a in range(1, N)
    ]
    assert_close(mean(per_size), EXACT)


# ---- the whole model ----


class Fixed(Encoder):
    """q(z) of given mean and variance, whatever the row."""

    def __init__(self, mu, var):
        super().__init__()
        self.mu, self.var = torch.nn.Parameter(torch.tensor(mu)), var

    def forward(self, X, index=None, generator=None):
        return self.mu[index], None if self.var is None else self.var[index]


def decoder(encoder, active_set_size):
    kernel = ScaleKernel(RBFKernel()).double()
    # As tensors: GPyTorch rounds a float to float32 first
    kernel.outputscale = torch.tensor(AMPLITUDE, dtype=torch.float64)
    kernel.base_kernel.lengthscale = torch.tensor(LENGTHSCALE, dtype=torch.float64)
    mean = torch.zeros(D, dtype=torch.float64)
    return SASModel(encoder, kernel, noise=NOISE, mean=mean, active_set_size=active_set_size)


def objective(model, rows):
    """The objective in nats, not per entry, from the loss."""
    rows = torch.tensor(rows)
    return -float(model(torch.tensor(X)[rows], rows, N, torch.Generator().manual_seed(3)).detach()) * N * D


def test_point_model_adds_the_prior_weighted_by_n_over_b():
    model, rows = decoder(Table(torch.tensor(Z), variance=False), 2), [4, 0, 2]
    log_prior = oracles.prior_log_density(torch.tensor(Z))[rows].sum()
    assert_close(objective(model, rows), estimate(rows[:2], rows[2:]) + N / 3 * float(log_prior))


@pytest.mark.parametrize(("rows", "A"), [([4, 0, 2], 2), ([1, 3, 0, 4], 2), (list(range(N)), None)])
def test_bayesian_model_subtracts_kl_weighted_by_n_over_b(rows, A):
    # Eq. 8 at a known z = μ + √v ε: the likelihood part is the oracle's, and what is left must be −(N/B) Σ_batch KL
    B = len(rows)
    A = B if A is None else A
    var = torch.rand(N, Q, generator=torch.Generator().manual_seed(5), dtype=torch.float64) + 0.1
    model = decoder(Fixed(Z, var), None if A == B else A)
    epsilon = torch.randn(B, Q, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    Z_B = Z[rows] + (var[rows].sqrt() * epsilon).numpy()
    K_BB = AMPLITUDE * oracles.gram(lambda a, b: oracles.rbf(a, b, LENGTHSCALE), Z_B, Z_B)
    log_p = oracles.sas_estimate(X[rows], K_BB, NOISE, range(A), range(A, B), N)
    kl = float(oracles.kl_to_prior(torch.tensor(Z), var)[rows].sum())
    assert_close((log_p - objective(model, rows)) / kl, N / B, 1e-9)


def test_bayesian_likelihood_tends_to_the_point_one():
    # z = μ + √v ε → μ, so L̂(z) → L̂(μ) like √v. The objectives themselves part ways: KL = ½Σ(μ² + v − log v − 1) → ∞
    # like −½ log v, against −log p(z) = ½Σ(μ² + log 2π). So add what each subtracts, and compare the likelihoods.
    rows, B = [4, 0, 2], 3
    log_prior = oracles.prior_log_density(torch.tensor(Z))[rows].sum()
    point = objective(decoder(Fixed(Z, None), 2), rows) - N / B * float(log_prior)
    gaps = []
    for v in (1e-4, 1e-6, 1e-8, 1e-10):
        var = torch.full((N, Q), v, dtype=torch.float64)
        kl = oracles.kl_to_prior(torch.tensor(Z), var)[rows].sum()
        gaps.append(abs(objective(decoder(Fixed(Z, var), 2), rows) + N / B * float(kl) - point))
    # A hundredth of the variance is a tenth of the distance; the first step still feels the curvature
    assert np.allclose(np.divide(gaps[:-1], gaps[1:]), 10, rtol=0.1), gaps
    assert gaps[-1] < 1e-3


def test_loss_is_per_entry_and_includes_hyperpriors_once():
    # A prior on a hyperparameter is one density for the whole data set: weight 1, whatever the batch
    model, rows = decoder(Table(torch.tensor(Z), variance=False), 2), [4, 0, 2]
    without = objective(model, rows)
    model.kernel.base_kernel.register_prior("lengthscale_prior", GammaPrior(3.0, 6.0), "lengthscale")
    # log Gamma(ℓ | 3, 6) = 3 log 6 − log Γ(3) + 2 log ℓ − 6 ℓ
    log_prior = 3 * math.log(6) - math.log(2) + 2 * math.log(LENGTHSCALE) - 6 * LENGTHSCALE
    assert_close(objective(model, rows) - without, log_prior, 1e-6)  # the prior's own parameters are float32
