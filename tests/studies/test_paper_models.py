"""Models that the paper's tables compare with: ablated objectives against their equations, PCA, and others."""

import math

import numpy as np
import pytest
import torch
from sklearn import decomposition
from sklearn.datasets import load_digits
from starts import shorten_start
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from sasgp import SASGP
from sasgp.metrics import nlpd, rmse
from sasgp.training.layouts import lay_out
from studies.paper.ablation import FirstTerm, FirstTermModel, SecondTerm, SecondTermModel
from studies.paper.pca import PCA
from studies.paper.peers import TSNE, UMAP, Autoencoder

N, B, A, D, Q = 40, 12, 5, 3, 2


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    """The encoder's fit to its start is most of the time of a run of one epoch."""
    shorten_start(monkeypatch, 5)


# ---------------------------------------------------------------------------------------------------- ablation


class Fixed(torch.nn.Module):
    """An encoder that a test can compute with: z is half of the first features, its variance is known."""

    def __init__(self, latents):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.full((), 0.5))
        self.variance = 0.04 if latents == "bayesian" else None

    def forward(self, X):
        mu = self.weight * X[:, :Q]
        return mu if self.variance is None else (mu, torch.full_like(mu, self.variance))


def decoder(estimator, latents, dtype):
    X = np.random.default_rng(0).normal(size=(N, D))
    model = estimator(
        encoder=Fixed(latents), latents=latents, active_set_size=A, batch_size=B, max_epochs=1, encoder_noise=0.0,
        dtype=dtype, random_state=0,
    ).fit(X).model_  # fmt: skip
    return model, torch.as_tensor(X[:B], dtype=getattr(torch, dtype))


@torch.no_grad()
def terms(model, X, n_drawn):
    """F, S and log p(z_n) of a batch in float64, by torch.distributions; − KL for the last where latents are Bayesian.

    n_drawn is how many rows the model makes a draw for: as many have a draw of their own here.
    """
    mu = model.encoder.module.weight.double() * X[:, :Q].double()
    prior = Independent(Normal(torch.zeros_like(mu), 1.0), 1)
    Z, log_prior = mu, prior.log_prob(mu)
    if (v := model.encoder.module.variance) is not None:
        epsilon = torch.zeros_like(mu)
        epsilon[:n_drawn] = torch.randn(n_drawn, Q, generator=generator(), dtype=X.dtype).double()
        Z = mu + math.sqrt(v) * epsilon
        log_prior = -kl_divergence(Independent(Normal(mu, math.sqrt(v)), 1), prior)
    K = model.kernel.double()(Z).to_dense() + model.noise.double() * torch.eye(B).double()
    X = (X - model.mean).double()
    inverse = K[:A, :A].inverse()
    F = MultivariateNormal(torch.zeros(A).double(), K[:A, :A]).log_prob(X[:A].T).sum()
    m = K[A:, :A] @ inverse @ X[:A]
    c = K.diagonal()[A:] - (K[A:, :A] @ inverse @ K[:A, A:]).diagonal()
    S = Normal(m, c.sqrt()[:, None]).log_prob(X[A:]).sum()
    return F.item(), S.item(), log_prior


def generator():
    return torch.Generator().manual_seed(3)


@pytest.mark.parametrize("latents", ["point", "bayesian"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_the_second_term_alone_is_its_equation(latents, dtype, tolerance):
    model, X = decoder(SecondTerm, latents, dtype)
    assert type(model) is SecondTermModel
    loss = float(model(X, torch.arange(B), N, generator()).detach())
    _, S, log_prior = terms(model, X, B)
    # (N−A)/(B−A) · S + (N−A)/B · Σ log p(z_n), for each of the N D entries
    objective = (N - A) / (B - A) * S + (N - A) / B * float(log_prior.sum())
    assert loss == pytest.approx(-objective / (N * D), rel=tolerance)


@pytest.mark.parametrize("latents", ["point", "bayesian"])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-4)])
def test_the_first_term_alone_is_its_equation(latents, dtype, tolerance):
    model, X = decoder(FirstTerm, latents, dtype)
    assert type(model) is FirstTermModel
    loss = float(model(X, torch.arange(B), N, generator()).detach())
    F, _, log_prior = terms(model, X, A)
    # N/A · [ F + Σ_A log p(z_n) ], for each of the N D entries
    objective = N / A * (F + float(log_prior[:A].sum()))
    assert loss == pytest.approx(-objective / (N * D), rel=tolerance)


@pytest.mark.parametrize("latents", ["point", "bayesian"])
def test_the_oracle_knows_the_whole_estimate_too(latents):
    model, X = decoder(SASGP, latents, "float64")
    loss = float(model(X, torch.arange(B), N, generator()).detach())
    F, S, log_prior = terms(model, X, B)
    # Eq. 6 and Eq. 8
    objective = F + (N - A) / (B - A) * S + N / B * float(log_prior.sum())
    assert loss == pytest.approx(-objective / (N * D), rel=1e-9)


def test_the_second_term_has_a_gradient_and_training_lowers_it():
    X = load_digits().data / 16
    model = SecondTerm(active_set_size=50, batch_size=200, max_epochs=10, random_state=0).fit(X[:600])
    losses = [epoch["loss"] for epoch in model.history_]
    assert losses[-1] < losses[0] - 0.05


# ---------------------------------------------------------------------------------------------------- PCA


def test_pca_decodes_as_scikit_learn_does_and_has_the_density_of_its_residuals():
    X = load_digits().data / 16
    model, theirs = PCA(random_state=0).fit(X), decomposition.PCA(2).fit(X)
    mean, std = model.predict(model.transform(X), return_std=True)
    np.testing.assert_allclose(mean, theirs.inverse_transform(theirs.transform(X)), atol=1e-8)
    r = rmse(X, mean)
    # A constant variance r², which is the error's own on the rows it was fitted to: ½ ln(2πe r²)
    assert nlpd(X, mean, std**2) == pytest.approx(0.5 * math.log(2 * math.pi * math.e * r**2))


# ---------------------------------------------------------------------------------------------------- others


def test_an_autoencoder_is_no_worse_than_pca_and_depends_on_its_seed_alone():
    X = (load_digits().data / 16).astype(np.float32)
    model, again = (Autoencoder(max_epochs=40, batch_size=256, random_state=3).fit(X[:1000]) for _ in range(2))
    np.testing.assert_array_equal(model.embedding_, again.embedding_)
    np.testing.assert_array_equal(model.embedding_, model.transform(X[:1000]))
    plane = PCA(random_state=0).fit(X[:1000])
    mean, std = model.predict(model.transform(X[1000:]), return_std=True)
    assert rmse(X[1000:], mean) < rmse(X[1000:], plane.predict(plane.transform(X[1000:])))
    assert std[0, 0] == pytest.approx(rmse(X[:1000], model.predict(model.embedding_)), rel=1e-5)


@pytest.mark.parametrize(("peer", "name"), [(TSNE, "tsne"), (UMAP, "umap")])
def test_peers_lay_out_as_init_does_and_place_rows_that_they_know_where_they_are(peer, name):
    X = (load_digits().data[:300] / 16).astype(np.float32)
    model = peer(random_state=3).fit(X)
    Z = model.embedding_
    np.testing.assert_allclose(Z, lay_out(name, X, 2, 3))
    apart = np.linalg.norm(model.transform(X[:20]) - Z[:20], axis=1)
    assert np.median(apart) < 0.2 * np.linalg.norm(Z.std(0))
