"""z* of new rows: never below its starts, as certain as the curvature says, and integrated against quadrature."""

import math

import numpy as np
import oracles
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from oracles import assert_close
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_digits

from sasgp import GPLVM, SASGP
from sasgp.errors import InputError
from sasgp.estimators import inference
from sasgp.gp import refine as gp_refine
from sasgp.gp.row_sums import condition as given_rows
from sasgp.models.anchor import MODE_SCALE
from sasgp.models.encoders import Encoder, Table

DOUBLE = torch.float64
AMPLITUDE, LENGTHSCALE, NOISE = 1.3, 0.7, 0.05


def decoder(rng, Q=2, D=6, S=40, dtype=DOUBLE):
    """A posterior of a smooth random function, new rows from it, and the rows that it is given."""
    kernel = ScaleKernel(RBFKernel()).to(dtype)
    kernel.outputscale, kernel.base_kernel.lengthscale = AMPLITUDE, LENGTHSCALE
    Z, W = torch.randn(S + 15, Q, generator=rng, dtype=DOUBLE), torch.randn(Q, D, generator=rng, dtype=DOUBLE)
    X = torch.sin(1.5 * Z @ W) + math.sqrt(NOISE) * torch.randn(S + 15, D, generator=rng, dtype=DOUBLE)
    noise = torch.tensor(NOISE, dtype=dtype)
    given, new = X[:S].to(dtype), X[S:].to(dtype)
    return given_rows(kernel, noise, Z[:S].to(dtype), given, X[:S].mean(0).to(dtype)), new, given


def log_joint_on_grid(posterior, given, X, grid):
    """log p(x|z) + log p(z) [M, G] for every z of a grid: kernel by loops, a dense inverse, scipy's Gaussians."""
    Z, S = posterior.Z.double().numpy(), given.double().numpy()
    centre = posterior.mean.double().numpy()

    def gram(A, B):
        return AMPLITUDE * np.exp(-0.5 * ((A[:, None] - B[None]) ** 2).sum(-1) / LENGTHSCALE**2)

    few = gram(Z[:3], Z[:4])  # the vectorised form is the pairwise one
    assert_close(few, AMPLITUDE * oracles.gram(lambda a, b: oracles.rbf(a, b, LENGTHSCALE), Z[:3], Z[:4]))
    inverse = np.linalg.inv(gram(Z, Z) + NOISE * np.eye(len(Z)))
    K = gram(grid, Z)
    mean, var = centre + K @ inverse @ (S - centre), AMPLITUDE + NOISE - ((K @ inverse) * K).sum(1)
    prior = norm.logpdf(grid).sum(1)
    return np.stack([norm.logpdf(x, mean, np.sqrt(var)[:, None]).sum(1) + prior for x in X.double().numpy()])


def square(n, half=5.0, Q=2):
    """A grid over [−half, half]^Q and the log of its cell's volume."""
    axis = np.linspace(-half, half, n)
    return np.stack(np.meshgrid(*[axis] * Q), -1).reshape(-1, Q), Q * math.log(axis[1] - axis[0])


# ---- starts ----


def test_starts_are_the_positions_of_highest_joint_density(rng):
    posterior, X, _ = decoder(rng)
    every = torch.stack([gp_refine.log_joint(posterior, X, z.expand(len(X), -1)) for z in posterior.Z], 1)  # [M, S]
    expected = posterior.Z[every.topk(gp_refine.N_STARTS, dim=1).indices]
    assert_close(gp_refine.PositionStarts(posterior)(X), expected)


def test_fewer_positions_than_starts(rng):
    posterior, X, _ = decoder(rng, S=2)
    first, second = (gp_refine.log_joint(posterior, X, z.expand(len(X), -1)) for z in posterior.Z)
    order = torch.stack([first < second, first >= second], 1).long()  # the better one first
    assert_close(gp_refine.PositionStarts(posterior)(X), posterior.Z[order])


# ---- refinement ----


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("steps", [0, 1, 12])
def test_refined_rows_are_never_below_a_start(rng, dtype, steps):
    posterior, X, _ = decoder(rng, dtype=dtype)
    starts = torch.randn(len(X), 5, 2, generator=rng, dtype=DOUBLE).to(dtype)
    before = torch.stack([gp_refine.log_joint(posterior, X, starts[:, i]) for i in range(5)], 1).max(1).values
    after = gp_refine.log_joint(posterior, X, gp_refine.refine(posterior, X, starts, steps))
    # The same z in another batch: equal but for the last bits
    slack = oracles.TOLERANCE[dtype] * before.abs().max()
    assert (after >= before - slack).all()
    if steps == 12:
        assert (after > before).sum() == len(X), "a random start is no top"


def test_refinement_arrives_at_the_top_of_a_grid(rng):
    posterior, X, given = decoder(rng)
    grid, _ = square(201, 4)  # steps of .04: within ½·(.02²·2)·curvature of the top between its points
    best = log_joint_on_grid(posterior, given, X, grid).max(1)
    locate = inference.Locator(_Far(), posterior, steps=80)
    found = gp_refine.log_joint(posterior, X, locate(X, torch.arange(len(X)))[0])
    assert (found.numpy() >= best - 0.02).all()


@pytest.mark.parametrize("weight", [0.5, 5.0, 500.0])
def test_a_row_that_pays_for_leaving_arrives_at_the_top_near_its_encoder(rng, weight):
    posterior, X, _ = decoder(rng)
    places = posterior.Z[torch.arange(len(X))]
    locate = inference.Locator(_Near(places), posterior, steps=1000, weight=weight)
    found = locate(X, torch.arange(len(X)))[0]
    for x, home, z in zip(X, places, found, strict=True):
        x, at = x[None], z.detach().clone().requires_grad_()
        # log p(x, z) − w log(1 + ‖z − z₀‖²/s²): its slope at the answer is nothing beside what each term has
        cost = weight * torch.log(1 + (at - home).square().sum() / MODE_SCALE**2)
        (up,) = torch.autograd.grad(gp_refine.log_joint(posterior, x, at[None]).sum(), at)
        (down,) = torch.autograd.grad(cost, at)
        assert torch.linalg.norm(up - down) < 0.05 * (1 + torch.linalg.norm(up))
        assert gp_refine.log_joint(posterior, x, z[None]) >= gp_refine.log_joint(posterior, x, home[None])
    if weight == 500:
        assert (found - places).norm(dim=1).max() < 0.1


class _Near(Encoder):
    """An encoder that knows where rows belong."""

    def __init__(self, places):
        super().__init__()
        self.places = places

    def forward(self, X, index=None):
        return self.places, torch.full_like(self.places, 0.01)


class _Far(Encoder):
    """An encoder that is always wrong."""

    def forward(self, X, index=None):
        return torch.full((len(X), 2), 3.0, dtype=X.dtype), torch.full((len(X), 2), 0.01, dtype=X.dtype)


# ---- spread ----


def test_laplace_is_the_inverse_of_the_curvature(rng):
    posterior, X, _ = decoder(rng)
    Z = inference.Locator(_Far(), posterior, steps=200)(X, torch.arange(len(X)))[0]
    F = gp_refine.laplace(posterior, X, Z)
    for x, z, f in zip(X, Z, F, strict=True):
        H = torch.autograd.functional.hessian(
            lambda at, x=x: gp_refine.log_joint(posterior, x[None], at[None]).sum(), z
        )
        assert torch.linalg.eigvalsh(-H).min() > 1, "at a top; the prior alone has 1"
        assert_close(f @ f.T, torch.linalg.inv(-H), 1e-4)


def test_laplace_is_never_wider_than_the_prior(rng):
    posterior, X, _ = decoder(rng)
    Z = 2 * torch.randn(len(X), 2, generator=rng, dtype=DOUBLE)  # anywhere: saddles and slopes
    F = gp_refine.laplace(posterior, X, Z)
    assert torch.isfinite(F).all()
    assert torch.linalg.matrix_norm(F, ord=2).max() <= 1 + 1e-9


# ---- the integral over z ----


@pytest.mark.parametrize("Q", [1, 2])
def test_log_evidence_approaches_quadrature_from_below(rng, Q):
    posterior, X, given = decoder(rng, Q=Q)
    grid, cell = square(4001 if Q == 1 else 241, Q=Q)
    exact = logsumexp(log_joint_on_grid(posterior, given, X, grid), axis=1) + cell
    top = gp_refine.refine(posterior, X, gp_refine.PositionStarts(posterior)(X), 12)
    F = gp_refine.laplace(posterior, X, top)

    def estimate(n, seed):
        return gp_refine.log_evidence(posterior, X, top, F, gp_refine.normal_points(n, Q, seed)).numpy()

    gaps = [float(np.mean([exact - estimate(n, seed) for seed in range(8)])) for n in (1, 8, 64)]
    assert gaps[0] > gaps[1] > gaps[2] > -0.02
    # Rows have modes beside the top, which the half from the prior finds: measured .010 for Q=1, .035 for Q=2
    assert np.abs(estimate(1024, 0) - exact).mean() < (0.02 if Q == 1 else 0.07)


def test_log_evidence_is_unbiased_in_the_density(rng):
    # E[1/K Σ p(x, z_k)/q(z_k)] = p(x) for every K, here K=2: the mean over 1000 draws is within 4 standard errors
    posterior, X, given = decoder(rng, Q=1)
    X = X[:1]
    grid, cell = square(4001, Q=1)
    exact = math.exp(float(logsumexp(log_joint_on_grid(posterior, given, X, grid), axis=1)[0] + cell))
    # Anywhere: the estimate's mean does not depend on where the samples are
    Z, F = torch.full((1, 1), 0.5, dtype=DOUBLE), torch.full((1, 1, 1), 0.8, dtype=DOUBLE)
    epsilon = torch.randn(2000, 1, generator=rng, dtype=DOUBLE)
    ratios = [float(gp_refine.log_evidence(posterior, X, Z, F, pair).exp()) for pair in epsilon.split(2)]
    error = np.std(ratios) / math.sqrt(len(ratios))
    assert abs(np.mean(ratios) - exact) < 4 * error


def test_normal_points_are_spread_like_a_normal():
    points = gp_refine.normal_points(1024, 3, seed=1)
    assert_close(points.mean(0), torch.zeros(3), 0.01)
    assert_close(points.T @ points / 1024, torch.eye(3), 0.03)
    assert torch.equal(points, gp_refine.normal_points(1024, 3, seed=1))
    # The first of a scrambled sequence is uniform as well, over seeds: 500 means of N(0, 1) are within 4/√500 of 0
    first = torch.stack([gp_refine.normal_points(1, 1, seed=s)[0, 0] for s in range(500)])
    assert abs(float(first.mean())) < 0.18
    assert 0.85 < float(first.std()) < 1.15


# ---- the estimator's face ----


@pytest.fixture(scope="module")
def rows():
    X = load_digits().data[:360] / 16
    return X[:300], X[300:]


class Small(torch.nn.Module):
    """An encoder that costs a test nothing."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 4)
        with torch.no_grad():
            self.layer.weight.copy_(torch.randn(4, 64, generator=torch.Generator().manual_seed(0)) / 8)

    def forward(self, X):
        mean, raw = self.layer(X).chunk(2, dim=1)
        return mean, torch.nn.functional.softplus(raw - 4)


@pytest.fixture(scope="module", params=["float32", "float64"])
def model(rows, request):
    encoder = Small().to(getattr(torch, request.param))
    return SASGP(encoder=encoder, max_epochs=60, support_size=100, dtype=request.param, random_state=0).fit(rows[0])


def joint(model, X, Z):
    X, Z = (torch.as_tensor(part, dtype=getattr(torch, model.dtype)) for part in (X, Z))
    return gp_refine.log_joint(model.posterior_, X, Z).numpy()


def test_refined_latents_are_never_below_the_encoders(model, rows):
    before, after = (joint(model, rows[1], model.transform(rows[1], refine=steps)) for steps in (0, 12))
    # float32 values of a hundred nats have steps of 1e-5
    assert (after >= before - (1e-4 if model.dtype == "float32" else 1e-9)).all()
    assert after.mean() > before.mean() + 1


def test_a_row_alone_is_refined_as_in_company(model, rows):
    Z, std = model.transform(rows[1], refine=12, return_std=True)
    for i in (0, 7):
        Z_i, std_i = model.transform(rows[1][i : i + 1], refine=12, return_std=True)
        np.testing.assert_allclose(Z_i[0], Z[i], atol=2e-4)
        np.testing.assert_allclose(std_i[0], std[i], rtol=0.02)


def test_standard_deviation_of_the_network(model, rows):
    Z, std = model.transform(rows[1], return_std=True)
    mu, var = model.model_.encoder(torch.as_tensor(rows[1], dtype=getattr(torch, model.dtype)))
    np.testing.assert_array_equal(Z, model.transform(rows[1]))
    np.testing.assert_allclose(std, var.sqrt().detach(), rtol=1e-5)
    np.testing.assert_allclose(Z, mu.detach(), rtol=1e-5)


@pytest.mark.parametrize("refine", [0, 12])
def test_posterior_samples_have_the_moments_that_transform_returns(model, rows, refine):
    Z, std = model.transform(rows[1][:10], refine=refine, return_std=True)
    samples = model.posterior_samples(rows[1][:10], 4000, refine=refine, random_state=0)
    assert samples.shape == (4000, 10, 2)
    assert samples.dtype == model.dtype
    # 20 means and 20 deviations of 4000 draws: 4 standard errors
    assert (np.abs(samples.mean(0) - Z) < 4 * std / math.sqrt(4000) + 1e-6).all()
    assert (np.abs(samples.std(0) / std - 1) < 4 / math.sqrt(8000)).all()
    np.testing.assert_array_equal(
        samples[:, :3], model.posterior_samples(rows[1][:10], 4000, refine=refine, random_state=0)[:, :3]
    )


def test_scores_are_the_integral(model, rows):
    X = rows[1][:20]
    grid, cell = square(161, 4)
    posterior = model.posterior_
    mean, var = (part.double().numpy() for part in posterior.predict(torch.as_tensor(grid, dtype=posterior.Z.dtype)))
    var = var.reshape(len(var), -1)
    at = np.stack([norm.logpdf(x, mean, np.sqrt(var)).sum(1) for x in X]) + norm.logpdf(grid).sum(1)
    exact = logsumexp(at, axis=1) + cell
    found = model.score_samples(X, n_samples=64)
    assert np.median(np.abs(found - exact)) < 0.1
    # Unbiased before the logarithm, so a row may be above: by Markov's inequality rarely by a nat, and not on average
    assert (found < exact + 1).all()
    assert (found - exact).mean() < 0.1
    assert abs(model.score(X) - exact.mean()) < 2  # with the default, 16
    assert model.score(X) == pytest.approx(model.score_samples(X).mean(), rel=1e-6)


def test_scores_repeat_and_do_not_depend_on_company(model, rows, tmp_path):
    scores = model.score_samples(rows[1])
    np.testing.assert_array_equal(scores, model.score_samples(rows[1]))
    np.testing.assert_allclose([model.score_samples(rows[1][i : i + 1])[0] for i in range(5)], scores[:5], rtol=1e-4)
    assert not np.array_equal(scores, model.score_samples(rows[1], random_state=1))
    streamed = model.score_samples(rows[1], out=tmp_path / "scores.npy")
    np.testing.assert_array_equal(streamed, scores)


def test_a_search_finds_what_a_network_knows(rows):
    # One decoder, two ways to z*: the network that it was trained with, and the search that a table is left to.
    # The standard error of the mean difference over 60 rows is what "alike" is measured in
    network = SASGP(max_epochs=60, random_state=0).fit(rows[0])
    X, known = torch.as_tensor(rows[1], dtype=torch.float32), torch.zeros(300, 2)
    searched, _ = inference.Locator(Table(known, variance=True), network.posterior_)(X, torch.arange(60))
    with torch.no_grad():
        density = network.posterior_.log_density(X, searched).numpy()
    difference = density - network.score_samples(rows[1], n_samples=0)
    assert difference.mean() > -2 * difference.std() / math.sqrt(60)


def test_rows_that_a_table_has_not_seen(rows):
    table = SASGP(encoder="table", max_epochs=20, random_state=0).fit(rows[0][:60])
    Z, std = table.transform(rows[1], return_std=True)
    np.testing.assert_array_equal(Z, table.transform(rows[1]))
    assert (joint(table, rows[1], table.transform(rows[1], refine=4)) >= joint(table, rows[1], Z) - 1e-4).all()
    assert ((std > 0) & (std <= 1 + 1e-6)).all()
    assert np.isfinite(table.score_samples(rows[1])).all()
    assert table.posterior_samples(rows[1], 3).shape == (3, 60, 2)


def test_point_latents_have_no_distribution(rows):
    model = GPLVM(max_epochs=3, random_state=0).fit(rows[0][:50])
    X = rows[1]
    for call in (
        lambda: model.transform(X, return_std=True),
        lambda: model.posterior_samples(X),
        lambda: model.score_samples(X, n_samples=4),
    ):
        with pytest.raises(InputError, match=r"needs Bayesian latents.*has latents='point'.*Fit it with"):
            call()
    Z = model.transform(X)
    expected = model.posterior_.log_density(torch.as_tensor(X, dtype=torch.float32), torch.as_tensor(Z))
    np.testing.assert_allclose(model.score_samples(X), expected, rtol=1e-4)
    assert joint(model, X, model.transform(X, refine=8)).mean() > joint(model, X, Z).mean()


@pytest.mark.parametrize("refine", [-1, 1.5, True, "5"])
def test_refine_is_a_count(model, rows, refine):
    with pytest.raises(InputError, match="refine must be a whole number of at least 0"):
        model.transform(rows[1], refine=refine)
