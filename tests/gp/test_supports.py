"""Support sets: how they are chosen, and what several of them say together."""

import numpy as np
import pytest
import torch
from oracles import assert_close
from scipy.stats import norm

from sasgp import SASGP
from sasgp.errors import InputError
from sasgp.gp import supports

# ---- choice ----


def test_kmeans_plus_plus_spreads_out(rng):
    # 10 tight clusters of 1, 2, 4, … rows: ten points find all of them, where random ones miss the small
    sizes = [2**i for i in range(10)]
    centres = 10 * torch.randn(10, 2, generator=rng)
    Z = torch.cat([c + 1e-3 * torch.randn(n, 2, generator=rng) for c, n in zip(centres, sizes, strict=True)])
    cluster = torch.repeat_interleave(torch.arange(10), torch.tensor(sizes))
    chosen = supports.kmeans_plus_plus(Z, 10, rng)
    assert sorted(cluster[chosen].tolist()) == list(range(10))


def test_kmeans_plus_plus_draws_in_proportion_to_the_squared_distance(rng):
    # From 0 the distances to 1 and 3 are squared 1 and 9; of the draws after a first 0, a tenth is 1
    Z = torch.tensor([[0.0], [1.0], [3.0]])
    pairs = [supports.kmeans_plus_plus(Z, 2, rng).tolist() for _ in range(3000)]
    second = [b for a, b in pairs if a == 0]
    assert np.mean(np.equal(second, 1)) == pytest.approx(0.1, abs=4 * np.sqrt(0.09 / len(second)))


@pytest.mark.parametrize("size", [1, 3, 5])
def test_kmeans_plus_plus_of_rows_that_coincide(rng, size):
    chosen = supports.kmeans_plus_plus(torch.zeros(5, 2), size, rng)
    assert len(set(chosen.tolist())) == size


# ---- combination ----


def test_combination_is_the_normalised_geometric_mean_of_the_functions(rng):
    # ∏ N(f | m_i, v_i)^(1/k), normalised by quadrature; its mean, and its variance with the noise on top
    k, noise = 3, 0.3
    m, v = torch.randn(k, 4, 2, generator=rng).double(), torch.rand(k, 4, 1, generator=rng).double() + 0.1
    mean, var = supports.combine([(m[i], v[i] + noise) for i in range(k)], torch.tensor(noise))
    f = np.linspace(-15, 15, 30_001)[:, None, None]  # the sum over a grid so fine and wide is exact for Gaussians
    logs = [norm.logpdf(f, m[i].numpy(), np.sqrt(v[i].numpy())) for i in range(k)]
    density = np.exp(np.mean(logs, axis=0))
    density /= density.sum(0)
    expected = (f * density).sum(0)  # [4, 2]
    assert_close(mean, expected, 1e-6)
    assert_close(var, ((f - expected) ** 2 * density).sum(0)[:, :1] + noise, 1e-6)


@pytest.mark.parametrize("shape", [(5, 1), (5, 3)])
def test_sets_that_agree_say_what_each_says(rng, shape):
    mean, var = torch.randn(5, 3, generator=rng), torch.rand(shape, generator=rng) + 0.2
    both = supports.combine([(mean, var)] * 2, torch.tensor(0.1))
    assert_close(both[0], mean, dtype=torch.float32)
    assert_close(both[1], var, dtype=torch.float32)


# ---- the estimator's face ----

SETTINGS = {"n_components": 1, "latents": "point", "random_state": 0}


@pytest.fixture(scope="module")
def X():
    draw = np.random.default_rng(0)
    t = draw.uniform(-2, 2, (400, 1))
    return np.hstack([np.sin(2 * t), np.cos(3 * t), t]) + 0.2 * draw.standard_normal((400, 3))


@pytest.fixture(scope="module")
def model(X):
    encoder = torch.nn.Linear(3, 1)
    with torch.no_grad():  # it would start from global state
        encoder.weight.copy_(torch.tensor([[0.1, 0.1, 1.0]]))
        encoder.bias.zero_()
    return SASGP(**SETTINGS, encoder=encoder, support_size=40, max_epochs=40).fit(X)


def test_more_supports_come_from_other_rows_and_are_saved(model, X, tmp_path):
    Z = model.transform(X)
    with pytest.raises(InputError, match=r"n_supports must be at most 1, .* Got 3. Call add_supports\(X_train, 2\)"):
        model.predict(Z, n_supports=3)
    alone = model.predict(Z, return_std=True)
    model.add_supports(X).add_supports(X, 2)
    used = np.concatenate([part.X.numpy() for part in (model.posterior_, *model.supports_)])
    assert len(np.unique(used, axis=0)) == 160
    assert np.isin(used[:, 0], X[:, 0].astype(np.float32)).all()
    np.testing.assert_array_equal(model.predict(Z, return_std=True), alone)

    mean, std = model.predict(Z, return_std=True, n_supports=4)
    model.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors", encoder=torch.nn.Linear(3, 1))
    np.testing.assert_array_equal(again.predict(Z, return_std=True, n_supports=4), (mean, std))
    with pytest.raises(InputError, match=r"7 more support sets of 40 rows cannot be drawn from the 400 rows"):
        model.add_supports(X, 7)
    with pytest.raises(InputError, match="Pass all training rows"):
        model.add_supports(X[: model.support_rows_.max()])


def test_four_supports_predict_better_than_one_of_them(model, X):
    # New rows of the same curve, from latents that are the encoder's
    draw = np.random.default_rng(1)
    t = draw.uniform(-2, 2, (400, 1))
    X_new = np.hstack([np.sin(2 * t), np.cos(3 * t), t]) + 0.2 * draw.standard_normal((400, 3))
    Z = model.transform(X_new)
    if not hasattr(model, "supports_"):
        model.add_supports(X, 3)
    density = []
    for n in (1, 4):
        mean, std = model.predict(Z, return_std=True, n_supports=n)
        density.append(norm.logpdf(X_new, mean, std).sum(1).mean())
    assert density[1] > density[0]


def test_support_by_kmeans_plus_plus(X):
    encoder = torch.nn.Linear(3, 1)
    model = SASGP(**SETTINGS, encoder=encoder, support="kmeans++", support_size=30, max_epochs=5).fit(X)
    assert len(model.posterior_.Z) == 30
    # Spread out: the outermost rows are within reach of a support point
    Z = model.embedding_[:, 0]
    S = model.posterior_.Z.numpy()[:, 0]
    assert np.abs(Z[:, None] - S).min(1).max() < np.ptp(Z) / 8
    with pytest.raises(InputError, match=r"support must be one of 'random', 'kmeans\+\+'"):
        SASGP(support="greedy").fit(X)


@pytest.mark.parametrize("settings", [{"support": "kmeans++"}, {"early_stopping": 3}])
def test_more_supports_have_no_row_of_the_first(X, settings, tmp_path):
    model = SASGP(**SETTINGS, **settings, support_size=40, max_epochs=3).fit(X)
    model.save(tmp_path / "m.safetensors")
    for one in (model, SASGP.load(tmp_path / "m.safetensors")):
        one.add_supports(X, 3)
        used = np.concatenate([part.X.numpy() for part in (one.posterior_, *one.supports_)])
        assert len(np.unique(used, axis=0)) == 160
