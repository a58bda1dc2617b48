"""Slow, obvious and independent: what the fast code must agree with.

Kernels by loops over pairs, Gaussians by scipy and torch.distributions, dense inverses, explicit sums. Nothing here
imports sasgp. Tolerances for every test live here too.
"""

import math
from itertools import combinations, permutations

import gpytorch
import numpy as np
import torch
from scipy.stats import multivariate_normal, norm
from torch.distributions import Independent, Normal, kl_divergence

# Relative to the largest entry. An identity between sums of well-conditioned terms is good to a few hundred ε.
TOLERANCE = {torch.float32: 3e-5, torch.float64: 1e-10}
# Against another library, which factorises in another order and may add its own jitter
OUTSIDE = {torch.float32: 2e-4, torch.float64: 1e-8}


def assert_close(actual, expected, tolerance=None, *, dtype=torch.float64):
    """Assert |actual − expected| ≤ tolerance · max|expected|, with the dtype's own tolerance unless told."""
    actual, expected = (np.asarray(t.detach() if isinstance(t, torch.Tensor) else t, float) for t in (actual, expected))
    assert actual.shape == expected.shape, f"shapes {actual.shape} and {expected.shape}"
    error, scale = np.abs(actual - expected).max(initial=0), np.abs(expected).max(initial=0)
    bound = (TOLERANCE[dtype] if tolerance is None else tolerance) * (scale or 1.0)
    assert error <= bound, f"off by {error:.3g}, more than {bound:.3g}; largest expected entry {scale:.3g}"


def relative_error(actual, expected):
    """‖actual − expected‖ / ‖expected‖, in float64."""
    return float((actual.double() - expected.double()).norm() / expected.double().norm())


# ---- kernels, a pair of points at a time ----


def rbf(a, b, lengthscale=1.0):
    return math.exp(-0.5 * sum(((x - y) / s) ** 2 for x, y, s in zip(a, b, _each(lengthscale, a), strict=True)))


def matern(a, b, nu, lengthscale=1.0):
    d = math.sqrt(2 * nu) * math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b, strict=True))) / lengthscale
    return {0.5: 1.0, 1.5: 1 + d, 2.5: 1 + d + d**2 / 3}[nu] * math.exp(-d)


def linear(a, b, variance=1.0):
    return variance * sum(x * y for x, y in zip(a, b, strict=True))


def gram(kernel, Z1, Z2):
    """k(z, z') for every pair: [M, Q], [S, Q] → [M, S]."""
    return np.array([[kernel(a, b) for b in np.asarray(Z2)] for a in np.asarray(Z1)])


def _each(lengthscale, point):
    return [lengthscale] * len(point) if np.isscalar(lengthscale) else lengthscale


# ---- Gaussian processes. K is the noise-free covariance of all N rows of X ----


def log_marginal(X, K, noise):
    """log p(X | Z) = Σ_d log N(x_d | 0, K + σ²I): one N-variate Gaussian for each of D columns (Eq. 2)."""
    if len(X) == 0:
        return 0.0
    return float(np.sum(multivariate_normal.logpdf(X.T, cov=K + noise * np.eye(len(K)))))


def conditional(X, K, noise, n, A):
    """log p(x_n | x_A) as the difference of two marginals: no predictive formula is involved."""
    A = list(A)
    with_n = [*A, n]
    return log_marginal(X[with_n], K[np.ix_(with_n, with_n)], noise) - log_marginal(X[A], K[np.ix_(A, A)], noise)


def predict(K_SS, K_MS, K_MM, X, noise):
    """Predictive mean [M, D] and covariance [M, M] of the noise-free function, by a dense inverse."""
    inverse = np.linalg.inv(K_SS + noise * np.eye(len(K_SS)))
    return K_MS @ inverse @ X, K_MM - K_MS @ inverse @ K_MS.T


def sas_estimate(X, K, noise, A, R, N):
    """Eq. 6: log p(X_A) + (N−A)/|R| Σ_{n∈R} Σ_d log N(x_nd | m_nd, c_n), a row and a feature at a time."""
    A, R = list(A), list(R)
    total = log_marginal(X[A], K[np.ix_(A, A)], noise)
    for n in R:
        m, C = predict(K[np.ix_(A, A)], K[np.ix_([n], A)], K[np.ix_([n], [n])], X[A], noise)
        for d in range(X.shape[1]):
            total += (N - len(A)) / len(R) * norm.logpdf(X[n, d], m[0, d], math.sqrt(C[0, 0] + noise))
    return total


def s(X, K, noise, a):
    """The mean of log p(x_n | x_A) over all active sets of size a and all n outside."""
    N = len(X)
    terms = [conditional(X, K, noise, n, A) for A in combinations(range(N), a) for n in set(range(N)) - set(A)]
    return math.fsum(terms) / len(terms)


def s_cv(X, K, noise, r):
    """Leave-r-out score: over all hold-out sets of size r, the mean over the set of log p(x_n | all that are kept)."""
    N = len(X)
    scores = []
    for R in combinations(range(N), r):
        A = sorted(set(range(N)) - set(R))
        scores.append(math.fsum(conditional(X, K, noise, n, A) for n in R) / r)
    return math.fsum(scores) / math.comb(N, r)


def kl_to_prior(mu, var):
    """KL[N(mu, diag var) ‖ N(0, I)] of every row, by torch."""
    q = Independent(Normal(mu, var.sqrt()), 1)
    p = Independent(Normal(torch.zeros_like(mu), torch.ones_like(mu)), 1)
    return kl_divergence(q, p)


def prior_log_density(Z):
    return Independent(Normal(torch.zeros_like(Z), torch.ones_like(Z)), 1).log_prob(Z)


def autograd_estimate(X, K_BA, k_RR, noise, N):
    """Eq. 6 in plain torch, for autograd to differentiate: nothing by hand."""
    B, A = K_BA.shape
    D = X.shape[1]
    K = K_BA[:A] + noise * torch.eye(A, dtype=X.dtype)
    quadratic = (X[:A] * torch.linalg.solve(K, X[:A])).sum()
    log_p = -0.5 * (A * D * math.log(2 * math.pi) + D * torch.linalg.slogdet(K).logabsdet + quadratic)
    if A < B:
        m = K_BA[A:] @ torch.linalg.solve(K, X[:A])
        c = k_RR + noise - (K_BA[A:] * torch.linalg.solve(K, K_BA[A:].T).T).sum(1)
        each = -0.5 * (D * torch.log(2 * math.pi * c) + (X[A:] - m).square().sum(1) / c)
        log_p = log_p + (N - A) / (B - A) * each.sum()
    return log_p


# ---- arrangement of latents, a row at a time ----


def neighbours(points, i):
    """All other rows, the nearest first."""
    return sorted((j for j in range(len(points)) if j != i), key=lambda j: math.dist(points[i], points[j]))


def trustworthiness(X, Z, k):
    """1 − 2 / (N k (2N − 3k − 1)) Σ_i Σ_{j ∈ N_k(z_i)} max(0, rank of x_j from x_i − k)."""
    N, penalty = len(X), 0
    for i in range(N):
        rank = {j: r for r, j in enumerate(neighbours(X, i), start=1)}
        penalty += sum(max(0, rank[j] - k) for j in neighbours(Z, i)[:k])
    return 1 - 2 * penalty / (N * k * (2 * N - 3 * k - 1))


def neighbour_recall(X, Z, k):
    shared = [len(set(neighbours(X, i)[:k]) & set(neighbours(Z, i)[:k])) for i in range(len(X))]
    return sum(shared) / (k * len(X))


def triplet_accuracy(X, Z):
    """Over all ordered triplets of different rows."""
    right = [
        (math.dist(X[i], X[j]) < math.dist(X[i], X[m])) == (math.dist(Z[i], Z[j]) < math.dist(Z[i], Z[m]))
        for i, j, m in permutations(range(len(X)), 3)
    ]
    return sum(right) / len(right)


def silhouette(Z, y):
    scores = []
    for i in range(len(Z)):
        apart = {}
        for j in range(len(Z)):
            if j != i:
                apart.setdefault(y[j], []).append(math.dist(Z[i], Z[j]))
        own = apart.pop(y[i], None)
        a, b = np.mean(own) if own else 0.0, min(np.mean(d) for d in apart.values())
        scores.append((b - a) / max(a, b) if own else 0.0)  # alone in its class: 0 by definition
    return float(np.mean(scores))


# ---- GPyTorch as an outside opinion, one output column at a time ----


class _ExactGP(gpytorch.models.ExactGP):
    def __init__(self, Z, x, likelihood, kernel):
        super().__init__(Z, x, likelihood)
        self.mean_module, self.kernel = gpytorch.means.ZeroMean(), kernel

    def forward(self, Z):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(Z), self.kernel(Z))


def _exact_gp(kernel, noise, Z, x):
    likelihood = gpytorch.likelihoods.GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive()).to(Z.dtype)
    likelihood.noise = noise
    return _ExactGP(Z, x, likelihood, kernel), likelihood


@torch.no_grad()
def gpytorch_log_marginal(kernel, noise, Z, X):
    total = 0.0
    for x in X.T:
        model, likelihood = _exact_gp(kernel, noise, Z, x)
        model.train()
        with gpytorch.settings.fast_computations(False, False, False):
            mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
            total += float(mll(model(Z), x)) * len(Z)  # GPyTorch divides by the number of points
    return total


@torch.no_grad()
def gpytorch_predict(kernel, noise, Z, X, Z_new):
    """Predictive mean [M, D] and variance [M] of an observation, in eval mode without CG or Lanczos."""
    means = []
    for x in X.T:
        model, likelihood = _exact_gp(kernel, noise, Z, x)
        model.eval(), likelihood.eval()
        with gpytorch.settings.fast_computations(False, False, False):
            observed = likelihood(model(Z_new))
            means.append(observed.mean)
            variance = observed.variance
    return torch.stack(means, 1), variance


# ---- missing values: a Gaussian process for each feature, given the rows that it was observed in ----


def masked_estimate(X, K, noise, A, R, N):
    """Eq. 6 where X has NaN: the estimate of each column by itself, from its observed rows alone."""
    total = 0.0
    for x in X.T:
        active, rest = ([n for n in part if not np.isnan(x[n])] for part in (A, R))
        total += log_marginal(x[active][:, None], K[np.ix_(active, active)], noise) if active else 0.0
        for n in rest:
            total += (N - len(A)) / len(R) * conditional(x[:, None], K, noise, n, active)
    return total
