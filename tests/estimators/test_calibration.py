"""Honest probabilities: data from a known decoder, features with units of their own, and what constant ones do."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from memory import Memory
from sklearn.datasets import load_wine

from sasgp import SASGP, metrics
from sasgp.gp.row_sums import condition
from sasgp.models.encoders import Table
from sasgp.models.sas import SASModel
from sasgp.training.loop import Training

AMPLITUDE, LENGTHSCALE, NOISE = 1.5, 0.8, 0.1


def drawn(n, D, seed):
    """Latents, and data of a decoder with these hyperparameters."""
    rng = np.random.default_rng(seed)
    Z = rng.normal(size=(n, 2))
    squared = ((Z[:, None] - Z[None]) ** 2).sum(-1)
    L = np.linalg.cholesky(AMPLITUDE * np.exp(-squared / (2 * LENGTHSCALE**2)) + 1e-9 * np.eye(n))
    return Z, L @ rng.normal(size=(n, D)) + NOISE**0.5 * rng.normal(size=(n, D))


def learnt(Z, X, scales=None):
    """Hyperparameters by SAS, at latents that are known: an encoder that does not learn."""
    Z, X = torch.as_tensor(Z), torch.as_tensor(X)
    kernel = ScaleKernel(RBFKernel()).double()
    encoder = Table(Z, variance=False).double().requires_grad_(False)
    mean = torch.zeros(X.shape[1], dtype=torch.float64)
    by_feature = scales is not None
    model = SASModel(encoder, kernel, noise=1.0, mean=mean, active_set_size=100, by_feature=by_feature).double()
    if by_feature:
        model.start_from(mean, 1.0, scales)
    groups = model.parameter_groups(1e-3, 5e-2)[1:]
    for _ in Training(model, Memory(X), groups, batch_size=200, max_epochs=70, seed=0):
        pass
    return model


def test_hyperparameters_of_a_known_decoder_and_its_intervals():
    """Ten draws: each amplitude within 35 %, lengthscale within 12 %, noise within 12 %; their means within a third."""
    found, counts = [], 0
    for seed in range(10):
        Z, X = drawn(600, 8, seed)
        model = learnt(Z[:400], X[:400])
        kernel = model.kernel
        found.append([kernel.outputscale.item(), kernel.base_kernel.lengthscale.item(), model.noise.item()])
        Z, X = torch.as_tensor(Z), torch.as_tensor(X)
        mean, var = condition(kernel, model.noise, Z[:400], X[:400], model.mean).predict(Z[400:])
        counts = counts + metrics.pit_counts(X[400:].numpy(), mean.numpy(), var.numpy())
    errors = np.abs(np.array(found) / (AMPLITUDE, LENGTHSCALE, NOISE) - 1)
    assert (errors.max(0) < (0.35, 0.12, 0.12)).all(), errors.max(0)
    assert (np.abs(np.mean(found, 0) / (AMPLITUDE, LENGTHSCALE, NOISE) - 1) < (0.12, 0.04, 0.04)).all()
    assert metrics.coverage(counts, 0.9) == pytest.approx(0.9, abs=0.015)
    assert metrics.coverage(counts, 0.5) == pytest.approx(0.5, abs=0.02)


def test_scales_of_features_are_recovered():
    true = np.array([0.02, 0.3, 1.0, 1.0, 5.0, 40.0])
    Z, X = drawn(400, len(true), 0)
    X = X * true
    # From four times too much to four times too little
    scales = np.stack([1e-3 * X.std(0), X.std(0) * 4 ** np.linspace(-1, 1, 6)])
    model = learnt(Z, X, torch.as_tensor(scales))
    found = model.feature_noise.detach().sqrt().numpy()
    assert np.abs(found / (NOISE**0.5 * true) - 1).max() < 0.15


@pytest.mark.parametrize("noise", ["shared", "feature"])
def test_constant_features_have_finite_density(noise):
    X = np.hstack([np.random.default_rng(0).normal(size=(60, 3)), np.full((60, 2), 7.0)])
    model = SASGP(noise=noise, max_epochs=30, random_state=0).fit(X)
    assert np.isfinite(model.score_samples(X)).all()
    assert model.predict(model.embedding_)[:, 3:] == pytest.approx(7.0, abs=1e-3)
    other = X.copy()
    other[:, 4] = 7.5
    assert np.isfinite(model.score_samples(other)).all()


def test_features_of_very_different_units_are_all_predicted():
    # Raw wine has columns of 0.1 and columns of 1000: one noise for all leaves the small ones unexplained
    X = load_wine().data
    train, test = X[::2], X[1::2]
    found = {}
    for noise in ("shared", "feature"):
        model = SASGP(noise=noise, max_epochs=60, random_state=0).fit(train)
        mean, std = model.predict(model.transform(test), return_std=True)
        found[noise] = metrics.nlpd(test, mean, std**2)
    assert found["feature"] < found["shared"] - 1


def test_the_start_is_in_the_units_of_the_features():
    # Units of columns are no information: what is learnt from others differs by rounding alone
    X = load_wine().data
    settings = {"noise": "feature", "max_epochs": 3, "random_state": 0, "dtype": "float64"}
    one, other = SASGP(**settings).fit(X), SASGP(**settings).fit(X * 10.0 ** (np.arange(13) % 5 - 2))
    np.testing.assert_allclose(other.embedding_, one.embedding_, atol=1e-6)
    np.testing.assert_allclose(other.noise_ / one.noise_, 100.0 ** (np.arange(13) % 5 - 2), rtol=1e-6)


def test_saved_and_read_again(tmp_path):
    X = load_wine().data
    model = SASGP(noise="feature", max_epochs=3, random_state=0).fit(X)
    model.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors")
    assert model.noise_.shape == (13,)
    std = model.predict(model.embedding_[:3], return_std=True)[1]
    assert np.allclose(std / std[:, :1], np.sqrt(model.noise_ / model.noise_[0]))
    assert np.array_equal(again.noise_, model.noise_)
    assert np.array_equal(again.score_samples(X), model.score_samples(X))
    assert all(map(np.array_equal, again.predict(model.embedding_, True), model.predict(model.embedding_, True)))
    assert np.array_equal(again.sample(3, random_state=0), model.sample(3, random_state=0))


def test_evidence_in_units_of_the_features():
    # The exact evidence is a sum of log densities over prefixes, as the posterior says them
    X = load_wine().data[::8]
    model = SASGP(noise="feature", max_epochs=3, random_state=0, dtype="float64", support_size=1).fit(X)
    rows, Z = torch.as_tensor(X), torch.as_tensor(model.embedding_)
    densities = [
        condition(
            model.kernel_, model.model_.noise, Z[:n], rows[:n], model.model_.mean, model.model_.scales
        ).log_density(rows[n : n + 1], Z[n : n + 1])
        for n in range(1, len(X))
    ]
    total = float(torch.cat(densities).detach().sum())
    c = model.model_.kernel(Z[:1], diag=True).detach() + model.model_.noise.detach()
    std = c.sqrt() * model.model_.scales.detach()
    total += float(torch.distributions.Normal(model.model_.mean, std).log_prob(rows[0]).sum())
    assert model.evidence(X, method="exact").mean == pytest.approx(total, rel=1e-9)
