"""The baselines: the inducing-point bound and the VAE's objective against slow forms, and both as estimators."""

import gpytorch
import numpy as np
import pytest
import torch
from estimator_checks import CheckedBayesianGPLVM, CheckedVAE
from oracles import TOLERANCE, assert_close, gram, log_marginal, rbf, relative_error
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from sklearn.utils.estimator_checks import parametrize_with_checks
from starts import shorten_start
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from sasgp import SASGP, VAE, BayesianGPLVM, cli
from sasgp.errors import InputError
from sasgp.estimators.validation import seed_of
from sasgp.explorer.packing import unpack
from sasgp.gp import kernels
from sasgp.gp.row_sums import condition as given_rows
from sasgp.metrics import knn_accuracy, rmse
from sasgp.models.encoders import Network, Table
from sasgp.models.inducing import InducingModel, inducing_bound
from sasgp.models.vae import Perceptron, VAEModel
from sasgp.training import checkpoint
from sasgp.training.loop import generator

N, D, Q, NOISE = 12, 3, 2, 0.3
BASELINES = [BayesianGPLVM, VAE]


def normal(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def inducing(A=N, dtype=torch.float64, Z=None, latents=None, scales=None, **options):
    """A model of N fixed points, whose first A are the inducing inputs unless told."""
    latents = normal(N, Q, dtype=dtype) if latents is None else latents
    kernel = kernels.make("rbf", Q).to(dtype)
    options = {"noise": NOISE, "mean": torch.zeros(D, dtype=dtype)} | options
    options |= {"Z": latents[:A] if Z is None else Z, "by_feature": scales is not None}
    model = InducingModel(Table(latents, variance=False), kernel, **options)
    if scales is not None:
        model.start_from(options["mean"], options["noise"], scales)
    return model


def bound(model, X, Z, n_total=N, M=None, L_C=None):
    Phi, k = model._features(Z)
    parts = model.M if M is None else M, model.L_C if L_C is None else L_C
    return inducing_bound(X, Phi, k, model.noise, *parts, n_total)[0].detach()


@pytest.fixture
def X():
    return normal(N, D, seed=1)


@pytest.fixture
def exact(X):
    """The log marginal of X at the fixed points."""
    return log_marginal(X.numpy(), gram(rbf_of(inducing()), normal(N, Q), normal(N, Q)), NOISE)


def rbf_of(model):
    amplitude = model.kernel.outputscale.item()
    lengthscale = model.kernel.base_kernel.lengthscale.squeeze().tolist()
    return lambda a, b: amplitude * rbf(a, b, lengthscale)


# ---------------------------------------------------------------------------------------------------- the bound


@pytest.mark.parametrize("A", [1, 4, N])
def test_the_bound_is_below_the_evidence(X, exact, A):
    model = inducing(A)
    for seed in range(5):
        factor = normal(A, A, seed=seed).tril()
        factor.diagonal().exp_()
        assert bound(model, X, normal(N, Q), M=normal(A, D, seed=seed), L_C=factor) < exact
    model.settle([(X, normal(N, Q))])
    best = float(bound(model, X, normal(N, Q)))
    assert best < exact + 1e-9 * abs(exact)
    for seed in range(5):  # (M, S) are optimal: every way from there leads down
        shift = 0.05 * normal(A, D, seed=seed)
        assert bound(model, X, normal(N, Q), M=model.M + shift) < best
        assert bound(model, X, normal(N, Q), L_C=model.L_C * (1 + 0.05 * normal(A, 1, seed=seed).tanh())) < best


def test_the_bound_is_the_evidence_where_the_inducing_points_are_the_data(X, exact):
    model = inducing()
    model.settle([(X, normal(N, Q))])
    # Short of it by the jitter alone, 1e-8 of the amplitude against a noise of .3
    assert_close(bound(model, X, normal(N, Q)), exact, 1e-6)


def naive_bound(model, X, Z, M, S):
    """Row by row, with dense inverses, u instead of v, and torch's own divergence."""
    k, Z_u = rbf_of(model), model.Z.detach()
    K = torch.as_tensor(gram(k, Z_u, Z_u))
    K += 1e-8 * K.diagonal().mean() * torch.eye(len(K))
    L = torch.linalg.cholesky(K)
    inverse, m_u, S_u = torch.linalg.inv(K), L @ M, L @ S @ L.T
    total = 0.0
    for x, z in zip(X, Z, strict=True):
        k_u = torch.as_tensor(gram(k, z[None], Z_u))[0]
        a = inverse @ k_u
        variance = k(z, z) - k_u @ a + a @ S_u @ a
        total += Normal(m_u.T @ a, NOISE**0.5).log_prob(x).sum() - len(x) * variance / (2 * NOISE)
    q = [MultivariateNormal(m, S_u) for m in m_u.T]
    return total - sum(kl_divergence(one, MultivariateNormal(torch.zeros(len(K)).double(), K)) for one in q)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_bound_against_a_loop_over_rows(X, dtype):
    A = 5
    factor = (0.3 * normal(A, A, seed=3)).tril() + 2 * torch.eye(A)
    M = normal(A, D, seed=2)
    expected = naive_bound(inducing(A), X, normal(N, Q), M, torch.linalg.inv(factor @ factor.T))
    model = inducing(A, dtype)
    actual = bound(model, X.to(dtype), normal(N, Q, dtype=dtype), M=M.to(dtype), L_C=factor.to(dtype))
    # In float32 the jitter is 1e-4 of the amplitude instead of 1e-8
    assert_close(actual, expected, {torch.float64: 1e-9, torch.float32: 3e-3}[dtype])


def test_the_optimum_against_gpytorch(X):
    # GPyTorch's variational GP at the same q(u) says the same at new points: an outside opinion on mean and variance
    A, Z = 5, normal(N, Q)
    model = inducing(A)
    model.settle([(X, Z)])
    Z_new = normal(7, Q, seed=9)
    mean, var = model.posterior().predict(Z_new)

    class Outside(gpytorch.models.ApproximateGP):
        def __init__(self, column):
            q = gpytorch.variational.CholeskyVariationalDistribution(A)
            super().__init__(gpytorch.variational.VariationalStrategy(self, model.Z.detach(), q, False, 1e-8))
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), model.kernel
            with torch.no_grad():
                q.variational_mean.data = model.M[:, column].clone()
                precision = model.L_C @ model.L_C.T
                q.chol_variational_covar.data = torch.linalg.cholesky(torch.linalg.inv(precision))
            self.variational_strategy.variational_params_initialized.fill_(1)

        def forward(self, Z):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(Z), self.covar_module(Z))

    for column in range(D):
        with torch.no_grad(), gpytorch.settings.cholesky_jitter(double_value=0.0):
            outside = Outside(column).double().eval()(Z_new)
        assert_close(mean[:, column], outside.mean, 1e-5)
        assert_close(var[:, 0], outside.variance + NOISE, 1e-5)


def test_the_objective_has_the_divergence_of_every_row_from_the_prior(X):
    model = inducing(5)
    model.encoder = Table(normal(N, Q), variance=True)
    index, B = torch.arange(4), 4
    mu, var = model.encoder(X[index], index)
    Z = mu + var.sqrt() * torch.randn(B, Q, generator=torch.Generator().manual_seed(7), dtype=mu.dtype)
    apart = kl_divergence(Normal(mu, var.sqrt()), Normal(0.0, 1.0)).sum()
    expected = bound(model, X[index], Z) - N / B * apart + model._hyperprior()
    objective = model.eval()(X[index], index, N, torch.Generator().manual_seed(7))
    assert_close(-objective.detach() * N * D, expected.detach(), 1e-9)


def test_batches_average_to_the_whole(X):
    model, Z = inducing(4), normal(N, Q)
    model.settle([(X, Z)])
    parts = [bound(model, X[rows], Z[rows]) for rows in torch.arange(N).view(4, 3)]
    assert_close(torch.stack(parts).mean(), bound(model, X, Z))


def test_the_gradient_against_finite_differences(X):
    model = inducing(4, encoder_noise=0.0, scales=torch.stack([torch.full((D,), 0.02), 1 + torch.rand(D)]).double())
    model.settle([(X, normal(N, Q))])
    model.eval()  # q(u) stays
    parameters = [model.encoder.mu, *model.decoder_parameters]

    def loss():
        return model(X, torch.arange(N), 2 * N, torch.Generator())

    gradients = torch.autograd.grad(loss(), parameters)
    step = 1e-5
    for parameter, gradient in zip(parameters, gradients, strict=True):
        flat, expected = parameter.data.view(-1), torch.empty(parameter.numel(), dtype=torch.float64)
        for i in range(len(flat)):
            value = flat[i].item()
            ends = []
            for end in (value + step, value - step):
                flat[i] = end
                ends.append(loss().item())
            flat[i] = value
            expected[i] = (ends[0] - ends[1]) / (2 * step)
        assert relative_error(gradient.reshape(-1), expected) < 1e-5


def test_natural_steps_reach_the_optimum(X):
    # With all rows in a batch a step goes all of the way; of a third of them it goes a third, and noise averages out
    model, Z = inducing(4), normal(N, Q)
    model.settle([(X, Z)])
    M, C = model.M, model.L_C @ model.L_C.T
    walked = inducing(4).train()
    for _ in range(2):
        walked(X, torch.arange(N), N, torch.Generator())
    assert_close(walked.M, M, 1e-6)
    assert_close(walked.L_C @ walked.L_C.T, C, 1e-6)


def test_the_posterior_of_inducing_data_is_the_posterior_of_the_data(X):
    model, Z = inducing(), normal(N, Q)
    model.settle([(X, Z)])
    ours, exact = model.posterior(), given_rows(model.kernel, model.noise, Z, X, model.mean)
    new = normal(6, Q, seed=5)
    for one, other in zip(ours.predict(new), exact.predict(new), strict=True):
        assert_close(one, other, 1e-5)
    assert_close(ours.log_density(X[:6], new), exact.log_density(X[:6], new), 1e-5)
    draws = [p.sample(new, torch.Generator().manual_seed(0)) for p in (ours, exact)]
    assert_close(draws[0], draws[1], 1e-4)
    assert not ours.root.triu(1).any()  # the explorer packs the lower triangle


def test_scales_are_a_change_of_units(X):
    # x = s y with y modelled in units of 1: the posterior mean is s times that of y, and the density of all N rows
    # has the factor Π s_d⁻ᴺ. The hyperprior does not know the scales
    s, Z, index = torch.tensor([0.2, 1.0, 30.0], dtype=torch.float64), normal(N, Q), torch.arange(N)
    plain, scaled = inducing(5).eval(), inducing(5, scales=torch.stack([0 * s, s])).eval()
    for model, rows in ((plain, X), (scaled, s * X)):
        model.settle([(rows, Z)])
    losses = [model(rows, index, N, torch.Generator()) for model, rows in ((plain, X), (scaled, s * X))]
    assert_close(losses[1] * N * D, losses[0] * N * D + N * s.log().sum(), 1e-9)
    new = normal(4, Q, seed=5)
    (mean, var), (scaled_mean, scaled_var) = (model.posterior().predict(new) for model in (plain, scaled))
    assert_close(scaled_mean, s * mean, 1e-9)
    assert_close(scaled_var, s.square() * var, 1e-9)


def test_rows_that_are_drawn_several_times_count_once(X):
    # Σ E φφᵀ is the average over the draws of a row: the same draw three times is one draw
    once, thrice, Z = inducing(4), inducing(4), normal(N, Q)
    once.settle([(X, Z)])
    thrice.settle([(X.repeat(3, 1), Z.repeat(3, 1))], draws=3)
    assert_close(thrice.M, once.M, 1e-9)
    assert_close(thrice.L_C, once.L_C, 1e-9)


def test_the_posterior_has_the_jitter_of_training(X):
    # In float32 the jitter is 1e-4 of the amplitude. Without it in the posterior, φ would not be the φ that M was
    # found for, and inducing inputs that nearly coincide would magnify the difference
    Z = normal(N, Q, dtype=torch.float32)
    close = torch.cat([Z[:4], Z[:4] + 1e-3])
    model = inducing(dtype=torch.float32, latents=Z, Z=close)
    model.settle([(X.float(), Z)])
    Phi, _ = model._features(Z)
    assert_close(model.posterior().predict(Z)[0], Phi @ model.M, 1e-3)


def test_the_jitter_of_training_is_in_units_of_the_kernel():
    # k → s k, so that φ → √s φ; jitter that is not relative would be most of a kernel of amplitude 1e-6
    Z = normal(N, Q, dtype=torch.float32)
    model = inducing(4, dtype=torch.float32, latents=Z)
    found = []
    for amplitude in (1.0, 2.0**-20):
        model.kernel.outputscale = amplitude
        found.append(model._features(Z)[0] / amplitude**0.5)
    assert_close(found[1], found[0], 1e-5)


@pytest.mark.parametrize(("steps", "rho"), [(0, 1.0), (1, 1 / 2), (9, 1 / 10), (1000, 0.05)])
def test_natural_steps_go_a_smaller_share_of_the_way_until_a_twentieth(X, steps, rho):
    # S⁻¹ ← (1−ρ) S⁻¹ + ρ (I + w ΦᵀΦ), from S = I, with ρ = max(B/N, 1/20, 1/(1 + steps))
    model, Z, n_total = inducing(4).train(), normal(N, Q), 1000 * N
    model.steps.fill_(steps)
    Phi = model._features(Z)[0].detach()
    model(X, torch.arange(N), n_total, torch.Generator())
    w = n_total / N / NOISE
    assert_close(model.L_C @ model.L_C.T, torch.eye(4) + rho * w * Phi.T @ Phi, 1e-9)


# ---------------------------------------------------------------------------------------------------- the VAE


def test_samples_of_the_vae_spread_by_the_standard_deviation():
    # x = m(z) + √c ε with c = .04 or so: 20 000 draws have its standard deviation within 2 %
    decoder = Perceptron(D, Q, output="linear", spread="shared")
    decoder.start_from(normal(D), 1.0, 0.04, torch.full((D,), 0.01), torch.Generator().manual_seed(0))
    posterior = VAEModel(Table(normal(N, Q).float(), variance=True), decoder, normal(8, Q).float()).posterior()
    Z = normal(1, Q).float().expand(20_000, Q)
    mean, var = posterior.predict(Z[:1])
    draws = posterior.sample(Z, torch.Generator().manual_seed(1))
    assert_close(draws.std(0), var.sqrt().expand(1, D)[0], 0.02)
    assert_close(draws.mean(0), mean[0], 0.02)


def test_the_noise_of_the_vae_is_the_mean_over_the_prior():
    decoder = Perceptron(D, Q, output="linear", spread="head")
    decoder.start_from(normal(D), 1.0, 0.04, torch.full((D,), 0.01), torch.Generator().manual_seed(0))
    with torch.no_grad():
        decoder.scale.weight.normal_(generator=torch.Generator().manual_seed(2))  # so that c depends on z
    model = VAEModel(Table(normal(N, Q).float(), variance=True), decoder, normal(64, Q).float())
    each = torch.stack([decoder(z[None])[1][0] for z in model.prior_draws])
    assert (each.std(0) > 0.1 * each.mean(0)).all()
    assert_close(model.feature_noise, each.mean(0), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("output", ["linear", "sigmoid"])
@pytest.mark.parametrize("spread", ["head", "shared", "mean"])
def test_the_elbo_against_torch_distributions(dtype, output, spread):
    X = torch.sigmoid(normal(N, D, seed=1, dtype=dtype))
    draw = torch.Generator().manual_seed(0)
    encoder = Network(X.shape[1], Q, variance=True).to(X).start_from(X.mean(0), X.std(), draw)
    least = torch.full((D,), 0.1, dtype=dtype)
    decoder = Perceptron(D, Q, output=output, spread=spread).to(dtype)
    decoder.start_from(X.mean(0), 0.25, 0.2, least, draw)
    model = VAEModel(encoder, decoder, normal(64, Q, dtype=dtype))
    loss = model(X, torch.arange(N), 10 * N, torch.Generator().manual_seed(7))

    with torch.no_grad():
        mu, var = encoder(X)
        epsilon = torch.randn(mu.shape, generator=torch.Generator().manual_seed(7), dtype=dtype)
        mean, c = decoder(mu + var.sqrt() * epsilon)
        likelihood = Independent(Normal(mean, c.sqrt().expand_as(mean)), 1).log_prob(X)
        divergence = kl_divergence(Normal(mu, var.sqrt()), Normal(torch.zeros_like(mu), 1.0)).sum(1)
    # An estimate of all N rows divided by N D: the number of rows drops out
    assert_close(loss, -(likelihood - divergence).mean() / D, 10 * TOLERANCE[dtype])

    assert (c > 0).all()
    if output == "sigmoid":
        assert ((mean > 0) & (mean < 1)).all()
    if spread == "mean":
        assert_close(c, (1 + mean.exp()).log(), dtype=dtype)
    # At the start all of the noise, about the mean
    if spread == "shared":
        assert_close(c, [0.2], dtype=dtype)


@pytest.mark.parametrize("size", [0.7, -7.0])
def test_rows_that_are_all_equal_are_decoded_exactly(size):
    X = np.full((30, 4), size, np.float32)
    model = VAE(max_epochs=20, random_state=0).fit(X)
    mean, std = model.predict(model.transform(X), return_std=True)
    np.testing.assert_array_equal(mean, X)
    assert (std > 0).all()


def test_the_decoders_network_is_the_papers():
    decoder = Perceptron(7, Q, output="linear", spread="head")
    decoder.start_from(torch.zeros(7), 1.0, 1.0, torch.ones(7), torch.Generator())
    Z = normal(5, Q, dtype=torch.float32)
    weights = dict(decoder.named_parameters())
    assert weights["hidden.weight"].shape == (400, Q)
    h = (1 + (Z @ weights["hidden.weight"].T + weights["hidden.bias"]).exp()).log()
    mean, var = decoder(Z)
    assert_close(mean, h @ weights["location.weight"].T + weights["location.bias"], 1e-4)
    raw = h @ weights["scale.weight"].T + weights["scale.bias"]
    assert_close(var, 1 + (1 + raw.exp()).log(), 1e-4)


# ---------------------------------------------------------------------------------------------------- estimators


@parametrize_with_checks([CheckedBayesianGPLVM(max_epochs=1, n_inducing=20), CheckedVAE(max_epochs=1)])
def test_sklearn_checks(estimator, check, monkeypatch):
    shorten_start(monkeypatch, 2)
    check(estimator)


@pytest.fixture(scope="module")
def digits():
    data = load_digits()
    X = (data.data / 16).astype(np.float32)
    return train_test_split(X, data.target, test_size=0.2, random_state=0, stratify=data.target)


@pytest.fixture(scope="module", params=BASELINES)
def model(request, digits):
    return request.param(max_epochs=3, random_state=0).fit(digits[0][:300])


def test_inducing_points_are_a_strong_baseline(digits):
    X, X_test, y, y_test = digits
    model = BayesianGPLVM(n_inducing=50, max_epochs=40, batch_size=512, random_state=0).fit(X)
    Z_test = model.transform(X_test)
    assert rmse(X_test, model.predict(Z_test)) < 0.19  # PCA: .231
    assert knn_accuracy(model.embedding_, y, Z_test, y_test) > 0.7
    assert -model.score(X_test) / 64 < -0.2  # PCA: −.046


def test_the_vae_is_a_baseline(digits):
    X, X_test, y, y_test = digits
    model = VAE(variance="shared", max_epochs=40, batch_size=512, random_state=0).fit(X)
    Z_test = model.transform(X_test)
    assert model.output_ == "sigmoid"
    assert rmse(X_test, model.predict(Z_test)) < 0.231  # PCA's
    assert knn_accuracy(model.embedding_, y, Z_test, y_test) > 0.5
    assert -model.score_samples(X_test, n_samples=0).mean() / 64 < -0.046  # PCA's


def test_everything_that_a_decoder_does(model, digits, tmp_path):
    X = digits[0][:40]
    Z, std = model.transform(X, return_std=True)
    assert (std > 0).all()
    mean, deviation = model.predict(Z, return_std=True)
    np.testing.assert_array_equal(model.inverse_transform(Z), mean)
    density = Normal(torch.as_tensor(mean), torch.as_tensor(deviation)).log_prob(torch.as_tensor(X)).sum(1)
    np.testing.assert_allclose(model.score_samples(X, n_samples=0), density, rtol=1e-3, atol=1e-2)
    # log p(x) = log ∫ p(x|z) p(z) dz, on a grid of z
    axis = np.linspace(-4, 4, 161)
    grid = np.stack(np.meshgrid(axis, axis), -1).reshape(-1, 2)
    cell = 2 * np.log(axis[1] - axis[0]) - 0.5 * np.square(grid).sum(1) - np.log(2 * np.pi)
    m, sd = (part.astype(np.float64) for part in model.predict(grid, return_std=True))
    integral = [logsumexp(norm.logpdf(x, m, sd).sum(1) + cell) for x in X[:5].astype(np.float64)]
    np.testing.assert_allclose(model.score_samples(X[:5], n_samples=2000, random_state=0), integral, atol=0.1)
    refined = model.transform(X, refine=8)
    before, after = (model.posterior_.log_density(*map(torch.as_tensor, (X, z))) for z in (Z, refined))
    prior = [-0.5 * torch.as_tensor(z).square().sum(1) for z in (Z, refined)]
    assert (after + prior[1] >= before + prior[0] - 1e-3).all()
    page = model.explorer(X, image_shape=(8, 8))
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").stat().st_size > 10_000
    shown = page.content["observed"]["X"]  # in 256 shades
    np.testing.assert_allclose(shown["low"] + shown["step"] * unpack(shown), X, atol=0.6 * shown["step"])
    np.testing.assert_allclose(unpack(model.explorer().content["Z"]), model.embedding_, atol=1e-6)


def test_samples_have_the_moments_that_they_are_said_to_have(model, digits):
    X = digits[0][:40]
    Z, std = model.transform(X, return_std=True)
    draws = model.posterior_samples(X, 2000, random_state=0)
    assert np.abs((draws.mean(0) - Z) / std).max() < 5 / np.sqrt(2000)
    np.testing.assert_allclose(draws.std(0), std, rtol=0.1)
    # A row is a draw at z ~ N(0, I): (x − m(z)) / sd(z) has variance 1. Without noise, a Gaussian process has sd² − σ²
    white, smooth = [], []
    for seed in range(60):
        z = torch.randn(20, 2, generator=generator(seed_of(seed), "sample"))
        m, sd = model.predict(z.numpy(), return_std=True)
        white.append((model.sample(20, random_state=seed) - m) / sd)
        deviation = np.sqrt(np.maximum(sd**2 - model.noise_, 0))
        smooth.append([model.sample(20, noise=False, random_state=seed) - m, deviation])
    assert np.mean(white) == pytest.approx(0, abs=0.03)
    assert np.square(white).mean() == pytest.approx(1, abs=0.06)
    apart, sd = np.moveaxis(np.array(smooth), 1, 0)
    if isinstance(model, VAE):
        assert np.abs(apart).max() < 1e-6  # a network is one function
    else:
        assert np.square(apart / sd).mean() == pytest.approx(1, abs=0.1)


def test_what_is_loaded_is_what_was_saved(model, digits, tmp_path):
    X = digits[0][:40]
    model.save(tmp_path / "m.safetensors")
    again = type(model).load(tmp_path / "m.safetensors")
    assert again.get_params() == model.get_params()
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    for one, other in zip(again.reconstruct(X, return_std=True), model.reconstruct(X, return_std=True), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.sample(3, random_state=1), model.sample(3, random_state=1))
    np.testing.assert_array_equal(again.score_samples(X), model.score_samples(X))
    name = type(model).__name__
    with pytest.raises(InputError, match=f"holds a {name} model.* sasgp.{name}.load"):
        SASGP.load(tmp_path / "m.safetensors")


@pytest.mark.parametrize("settings", [{"noise": "feature", "kernel": "matern32"}, {"latents": "point"}], ids=str)
def test_inducing_points_with_other_settings_come_back(settings, digits, tmp_path):
    X = digits[0][:100]
    model = BayesianGPLVM(max_epochs=2, n_inducing=20, encoder="table", random_state=0, **settings).fit(X)
    model.save(tmp_path / "m.safetensors")
    again = BayesianGPLVM.load(tmp_path / "m.safetensors")
    for one, other in zip(again.predict(model.embedding_, True), model.predict(model.embedding_, True), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.noise_, model.noise_)


@pytest.mark.parametrize("cls", BASELINES)
def test_fit_goes_on_to_the_same_bits(cls, digits, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", np.inf)
    X, settings = digits[0][:200], {"max_epochs": 4, "batch_size": 64, "random_state": 0, "early_stopping": 3}

    def stop(model, record):
        if record["epoch"] == 2:
            raise KeyError

    with pytest.raises(KeyError):
        cls(**settings).fit(X, checkpoint=tmp_path, callback=stop)
    again, whole = cls(**settings).fit(X, resume=tmp_path), cls(**settings).fit(X)
    for name, value in whole.model_.state_dict().items():
        assert torch.equal(value, again.model_.state_dict()[name]), name
    np.testing.assert_array_equal(again.reconstruct(X), whole.reconstruct(X))


@pytest.mark.parametrize("cls", BASELINES)
def test_training_may_start_from_a_layout(cls, digits, monkeypatch):
    shorten_start(monkeypatch, 20)
    X = digits[0][:200]
    circle = np.stack([np.sin(np.arange(200)), np.cos(np.arange(200))], 1)
    model = cls(init=circle, max_epochs=1, learning_rate=1e-12, encoder="table", random_state=0).fit(X)
    # The table starts there, but for .01 that keeps rows apart, and is not moved
    expected = (circle - circle.mean(0)) / np.sqrt(np.mean((circle - circle.mean(0)) ** 2))
    np.testing.assert_allclose(model.embedding_, expected, atol=0.05)
    assert np.isfinite(model.score(X))


def test_bad_settings_are_named(digits):
    X = digits[0][:50]
    for model, name in [
        (BayesianGPLVM(n_inducing=0), "n_inducing"),
        (BayesianGPLVM(n_components="auto"), "n_components"),
        (BayesianGPLVM(noise="none"), "noise"),
        (VAE(variance="heads"), "variance"),
        (VAE(output="tanh"), "output"),
    ]:
        with pytest.raises(InputError, match=f"{name} must be .* Got"):
            model.fit(X)
    assert BayesianGPLVM(max_epochs=1).fit(X).n_inducing_ == 50
    assert VAE(max_epochs=1).fit(X - 1).output_ == "linear"


# ---------------------------------------------------------------------------------------------------- command line


@pytest.mark.parametrize("model", ["bayesian-gplvm", "vae"])
def test_a_run_of_a_baseline(model, digits, tmp_path, capsys):
    np.save(tmp_path / "x.npy", digits[0][:120])
    run = str(tmp_path / "run")

    def sasgp(*tokens):
        code = cli.main([str(token) for token in tokens])
        captured = capsys.readouterr()
        assert not code, captured.err
        return captured.out

    sasgp("fit", tmp_path / "x.npy", "--out", run, "--model", model, "--max-epochs", 2, "--no-verbose")
    sasgp("embed", run, tmp_path / "x.npy", "--out", tmp_path / "z.npy")
    sasgp("decode", run, tmp_path / "z.npy", "--out", tmp_path / "d.npz")
    assert np.load(tmp_path / "d.npz")["std"].shape == (120, 64)
    sasgp("sample", run, "-n", 3, "--out", tmp_path / "s.npy")
    assert "RMSE" in sasgp("evaluate", run, tmp_path / "x.npy")
    sasgp("explore", run)
    out = sasgp("plot", run, "--out", tmp_path / "figures")
    assert "reconstructions" in out  # left out: the file holds no rows
    assert cli.main(["evidence", run]) == 2
    assert "SASGP or GPLVM, has this evidence" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "option", "instead"),
    [
        ("vae", ["--kernel", "rbf-ard"], "sasgp"),
        ("vae", ["--n-inducing", "20"], "bayesian-gplvm"),
        ("vae", ["--active-set-size", "400"], "sasgp"),  # typed at its default
        ("bayesian-gplvm", ["--active-set-size", "20"], "sasgp"),
        ("sasgp", ["--variance", "shared"], "vae"),
        ("gplvm", ["--batch-size", "20"], "sasgp"),
    ],
)
def test_an_option_that_does_not_apply_is_an_error(model, option, instead, tmp_path, capsys):
    assert cli.main(["fit", "digits", "--out", str(tmp_path / "run"), "--model", model, *option]) == 2
    error = capsys.readouterr().err
    assert option[0] in error
    assert f"--model {instead}" in error
