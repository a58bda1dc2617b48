"""Regression of columns: Eq. 6 and predictions against dense matrices built entry by entry."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import MultivariateNormal

from sasgp.gp.column_regression import JITTER, ColumnKernels, ColumnRegression, column_estimate
from sasgp.gp.residuals import NEAR, WEIGHTS, Residuals, log_student

G, B, P = 2, 12, 3


@pytest.fixture(scope="module")
def kernels():
    found = ColumnKernels(torch.tensor([1.0, 0.5], dtype=torch.float64), P)
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in found.parameters():
            p += 0.3 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
    return found.requires_grad_(False)


@pytest.fixture(scope="module")
def data():
    draw = torch.Generator().manual_seed(1)
    u, t = torch.randn(G, B, P, generator=draw).double(), torch.randn(G, B, generator=draw).double()
    s = torch.rand(G, B, P, generator=draw).double() * (torch.rand(G, B, P, generator=draw) < 0.4)
    return u, s, t, torch.rand(G, B, generator=draw).double()


def dense(kernels, g, u, s, c):
    """The covariance of targets, one entry at a time, from the equation of the module."""
    length = kernels.log_length[g].exp().tolist()
    v, noise, share = (float(p[g].exp()) for p in (kernels.log_signal, kernels.log_noise, kernels.log_share))
    n = len(u)
    K = np.empty((n, n))
    a = [math.prod((1 + float(s[i, p]) / length[p] ** 2) ** -0.25 for p in range(P)) for i in range(n)]
    for i in range(n):
        for j in range(n):
            r = math.sqrt(3 * sum(((float(u[i, p]) - float(u[j, p])) / length[p]) ** 2 for p in range(P)))
            K[i, j] = v * a[i] * a[j] * (1 + r) * math.exp(-r)
        # what an uncertain input takes from f is noise: the whole variance does not depend on a
        K[i, i] = v + noise + share * float(c[i])
    return K


def test_the_estimate_is_eq_6(kernels, data):
    u, s, t, c = data
    A, N = 7, torch.tensor([100, 50])
    found = column_estimate(kernels, u, s, t, c, A, N)
    for g in range(G):
        K = dense(kernels, g, u[g], s[g], c[g])
        K_A = K[:A, :A] + JITTER * np.diag(np.diag(K)[:A])
        log_p = float(MultivariateNormal(torch.zeros(A).double(), torch.as_tensor(K_A)).log_prob(t[g, :A]))
        for r in range(A, B):
            w = np.linalg.solve(K_A, K[:A, r])
            log_p += (
                (int(N[g]) - A)
                / (B - A)
                * stats.norm.logpdf(float(t[g, r]), w @ t[g, :A].numpy(), math.sqrt(K[r, r] - w @ K[:A, r]))
            )
        log_p += float(kernels.log_prior()[g])
        np.testing.assert_allclose(float(found[g]), log_p / int(N[g]), rtol=1e-9)


@pytest.mark.parametrize("left_out", [False, True])
def test_predictions_from_all_rows_are_those_of_the_exact_process(kernels, data, left_out):
    u, s, t, c = (part[1] for part in data)
    regression = ColumnRegression(kernels, 1, u[:9], s[:9], t[:9], c[:9], k=9)
    assert not any(parameter.requires_grad for parameter in regression.kernels.parameters())  # or graphs would pile up
    K = dense(kernels, 1, u, s, c)
    queries = [4, 0] if left_out else [9, 10, 11]
    at, a = regression.places(u[queries], s[queries])
    mean, var = regression.predict(at, a, c[queries], own=torch.tensor(queries) if left_out else None)
    for i, q in enumerate(queries):
        rows = [j for j in range(9) if j != q]
        K_rows = K[np.ix_(rows, rows)] + JITTER * np.diag(np.diag(K)[rows])
        w = np.linalg.solve(K_rows, K[rows, q])
        np.testing.assert_allclose(float(mean[i]), w @ t[rows].numpy(), rtol=1e-6, atol=1e-8)
        np.testing.assert_allclose(float(var[i]), K[q, q] - w @ K[rows, q], rtol=1e-6)


def test_student_s_density_is_scipy_s():
    x = torch.linspace(-5, 5, 11, dtype=torch.float64)
    np.testing.assert_allclose(log_student(x, 4.0), stats.t.logpdf(x.numpy(), 4.0), rtol=1e-12)


def test_residuals_have_their_quantiles_and_their_spread_by_place():
    draw = torch.Generator().manual_seed(0)
    places = torch.rand(2000, 1, generator=draw)
    # Deviation 1 on the left and 3 on the right
    e = torch.randn(2000, generator=draw, dtype=torch.float64) * torch.where(places[:, 0] < 0.5, 1.0, 3.0)
    found = Residuals(places, e)
    h = found.at(torch.tensor([[0.2], [0.8]]))
    # NEAR squares have a relative error of √(2 / NEAR) = 1/4, and their root half of that
    np.testing.assert_allclose(found.deviation * h, [1, 3], rtol=2 * math.sqrt(0.5 / NEAR))
    p = np.array([0.01, 0.3, 0.975])
    expected = np.quantile(found.sorted.numpy(), p, method="weibull")  # i / (n + 1)
    np.testing.assert_allclose(found.quantile(torch.as_tensor(p)), expected, rtol=1e-12)
    x = torch.linspace(-60, 60, 20_001, dtype=torch.float64)
    np.testing.assert_allclose(float(found.log_density(x).exp().sum() * (x[1] - x[0])), 1, atol=1e-3)


def test_residuals_of_one_size_get_no_scales_by_place():
    # The weight is that of the best density: with e ~ N(0, 1) everywhere, scales from a few neighbours only add noise.
    # With deviations of 0.1 and 10 in two places, what neighbours say is worth more than the average
    draw = torch.Generator().manual_seed(0)
    places, e = (torch.randn(400, n, generator=draw, dtype=torch.float64) for n in (2, 1))
    assert Residuals(places, e[:, 0]).weight >= NEAR  # the average counts as much as they do, or more
    places[:200] += 100
    sizes = torch.cat([torch.full((200,), 0.1), torch.full((200,), 10.0)]).double()
    assert Residuals(places, sizes * e[:, 0]).weight == WEIGHTS[0]
