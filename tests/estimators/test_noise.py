"""noise="local" in an estimator: trained as "shared", then used by all methods, files, updates and processes."""

import numpy as np
import pytest
import torch
from oracles import assert_close

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM, metrics
from sasgp.errors import InputError
from sasgp.estimators.storage import read, write
from sasgp.training.loop import Alone

FAST = {
    "n_components": 1,
    "max_epochs": 20,
    "random_state": 0,
    "active_set_size": 40,
    "batch_size": 100,
    "support_size": 30,
}


def curve(n, seed=0):
    """Rows on a curve; one half of it is noisier, in three features of six."""
    rng = np.random.default_rng(seed)
    t = rng.uniform(-1, 1, n)
    noise = np.where((t[:, None] > 0) & (np.arange(6) >= 3), 0.5, 0.02)
    return np.stack([t, t**2, np.sin(3 * t)] * 2, 1) + noise * rng.normal(size=(n, 6))


@pytest.fixture(scope="module")
def X():
    return curve(300)


@pytest.fixture(scope="module")
def model(X):
    return SASGP(noise="local", **FAST).fit(X)


@pytest.fixture(scope="module")
def shared(X):
    return SASGP(noise="shared", **FAST).fit(X)


def test_training_has_the_bits_of_shared_noise(model, shared):
    for name, value in shared.model_.state_dict().items():
        assert torch.equal(model.model_.state_dict()[name], value), name
    assert [record["loss"] for record in model.history_] == [record["loss"] for record in shared.history_]
    assert np.array_equal(model.embedding_, shared.embedding_)
    assert np.array_equal(model.predict(model.embedding_), shared.predict(model.embedding_))
    assert model.noise_ == shared.noise_
    assert isinstance(model.noise_, float)


def test_every_method_uses_it(model, shared, X):
    _, std = model.predict(model.embedding_, return_std=True)
    mean, same = shared.predict(model.embedding_, return_std=True)
    assert (np.ptp(same, 1) < 1e-6).all()  # one noise for all features
    assert std[:, 3:].mean() > 1.5 * std[:, :3].mean()
    assert metrics.nlpd(X, mean, std**2) < metrics.nlpd(X, mean, same**2) - 0.1
    assert model.score_samples(X, n_samples=0).mean() > shared.score_samples(X, n_samples=0).mean()
    expected = -metrics.nlpd(X, mean, std**2) * 6
    assert model.score_samples(X, n_samples=0).mean() == pytest.approx(expected, rel=1e-4)
    assert model.score(X) > shared.score(X)
    assert not np.allclose(model.transform(X[:5], refine=5), shared.transform(X[:5], refine=5))
    drawn = [one.sample(2000, random_state=0) for one in (model, shared)]
    assert drawn[0].shape == drawn[1].shape
    assert np.array_equal(*(one.sample(5, noise=False, random_state=0) for one in (model, shared)))
    assert model.evidence(X).mean == shared.evidence(X).mean  # of the global noise
    near, std_near = model.predict(model.embedding_[:4], return_std=True, neighbours=50, data=X)
    assert near.shape == std_near.shape
    assert (np.ptp(std_near, 1) > 0.05).any()
    far = model.predict(np.full((1, 1), 1e3), return_std=True)[1]
    np.testing.assert_allclose(far, shared.predict(np.full((1, 1), 1e3), return_std=True)[1], rtol=1e-6)


def test_a_file_gives_the_same_model(model, X, tmp_path):
    model.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors")
    assert again.noise == "local"
    assert all(map(np.array_equal, again.predict(model.embedding_, True), model.predict(model.embedding_, True)))
    assert np.array_equal(again.score_samples(X), model.score_samples(X))
    assert np.array_equal(again.sample(3, random_state=0), model.sample(3, random_state=0))
    new = curve(50, seed=1)
    updated = [
        one.update(new).predict(model.embedding_, True)[1] for one in (again, SASGP.load(tmp_path / "m.safetensors"))
    ]
    assert np.array_equal(*updated)


@pytest.mark.parametrize("change", ["missing", "shape", "negative", "nan"])
def test_a_damaged_file_is_refused(model, tmp_path, change):
    model.save(tmp_path / "m.safetensors")
    header, tensors = read(tmp_path / "m.safetensors")
    if change == "missing":
        del tensors["noise.n"]
    elif change == "shape":
        tensors["noise.R"] = tensors["noise.R"][1:]
    else:
        tensors["noise.R"][0, 0] = -1.0 if change == "negative" else torch.nan
    write(tmp_path / "m.safetensors", header, tensors)
    with pytest.raises(InputError, match="damaged"):
        SASGP.load(tmp_path / "m.safetensors")


def test_an_update_adds_the_residuals_of_the_new_rows(X, tmp_path):
    model, new = SASGP(noise="local", dtype="float64", **FAST).fit(X), curve(60, seed=2)
    before = {name: tensor.clone() for name, tensor in model.residual_sums_.tensors.items()}
    model.update(new)
    # The new rows' residuals are those of the decoder that knows them
    latents = torch.as_tensor(model.embedding_[-60:])
    expected = model.model_.residual_sums(model.sums_.U)
    expected.add(*model.posterior_.residuals(torch.as_tensor(new), latents), latents)
    for name, tensor in model.residual_sums_.tensors.items():
        assert_close(tensor, before[name] + expected.tensors[name], 1e-10)
    noise = model.residual_sums_.noise(model.posterior_.feature_noise)
    assert torch.equal(noise.v, model.posterior_.local_noise.v)


class Half(Alone):
    """One of two processes, which keeps its part of the sums to itself."""

    world = 2

    def __init__(self, rank):
        self.rank = rank

    def sum_(self, tensor):
        pass


def test_processes_share_the_pass(model, X):
    rows, Z = model._rows(X), torch.as_tensor(model.embedding_)
    parts = []
    for rank in (0, 1):
        sums = model.model_.residual_sums(model.sums_.U)
        model._decoder_with(model.sums_, sums, rows, Z, Half(rank))
        parts.append(sums.tensors)
    for name, expected in model.residual_sums_.tensors.items():
        assert_close(parts[0][name] + parts[1][name], expected, 1e-10)


def test_with_dimensions_of_its_own_choice(X):
    model = SASGP(noise="local", **FAST | {"n_components": "auto"}).fit(X)
    assert model.residual_sums_.U.shape[1] == model.n_components_
    # One more pass over the rows, in the dimensions that are left, finds the same
    sums = model.model_.residual_sums(model.sums_.U)
    model._decoder_with(model.sums_, sums, model._rows(X), torch.as_tensor(model.embedding_), Alone())
    for name, expected in model.residual_sums_.tensors.items():
        assert_close(sums.tensors[name], expected, 1e-6)


def test_the_exact_gplvm_has_it_and_the_baselines_do_not(X):
    model = GPLVM(noise="local", max_epochs=3, random_state=0).fit(X[:60])
    assert np.ptp(model.predict(model.embedding_, return_std=True)[1], 1).max() > 0
    with pytest.raises(InputError, match=r"noise='local' needs .* SASGP and GPLVM"):
        BayesianGPLVM(noise="local", max_epochs=1).fit(X)
    with pytest.raises(TypeError, match="noise"):
        VAE(noise="local")


def test_another_fit_forgets_it(X):
    model = SASGP(noise="local", **FAST).fit(X)
    model.set_params(noise="shared").fit(X)
    assert model.residual_sums_ is None
    assert model.posterior_.local_noise is None


def test_constant_features_have_finite_density():
    X = np.hstack([np.random.default_rng(0).normal(size=(60, 3)), np.full((60, 2), 7.0)])
    model = SASGP(noise="local", max_epochs=30, random_state=0).fit(X)
    other = X.copy()
    other[:, 4] = 7.5
    assert np.isfinite(model.score_samples(X)).all()
    assert np.isfinite(model.score_samples(other)).all()
    assert model.score(other) < model.score(X)
