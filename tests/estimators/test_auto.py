"""n_components="auto": dimensions that the decoder does not use are dropped, and nothing else changes."""

import numpy as np
import pytest
from starts import whole_start

from sasgp import SASGP, cli
from sasgp.errors import InputError
from sasgp.metrics import rmse

SETTINGS = {"n_components": "auto", "max_epochs": 100, "random_state": 0, "learning_rate": 1e-2, "noise": "shared"}


@pytest.fixture(scope="module")
def surface():
    """Eight features that are smooth functions of two numbers."""
    rng = np.random.default_rng(0)
    T = rng.uniform(-1, 1, size=(300, 2))
    waves = np.sin(2 * T @ rng.normal(size=(2, 8)) + rng.uniform(0, 6, 8))
    return (waves + 0.05 * rng.normal(size=waves.shape)).astype(np.float32)


@pytest.fixture(scope="module")
def model(surface):
    with whole_start():
        return SASGP(**SETTINGS).fit(surface)


def test_few_dimensions_are_left(model, surface):
    assert 2 <= model.n_components_ <= 4
    assert model.embedding_.shape == (300, model.n_components_)
    assert model.n_components == "auto"
    relevance = model.relevance_
    assert (np.diff(relevance) <= 0).all()  # the most relevant first
    assert rmse(surface, model.predict(model.embedding_)) < 0.12


@pytest.mark.parametrize("encoder", ["network", "table"])
def test_everything_works_in_the_dimensions_that_are_left(model, encoder, surface, tmp_path):
    if encoder == "table":
        model = SASGP(**SETTINGS | {"encoder": "table", "max_epochs": 5}).fit(surface)
    Q = model.n_components_
    assert model.transform(surface[:3]).shape == (3, Q)
    assert model.get_feature_names_out().tolist() == [f"sasgp{q}" for q in range(Q)]
    assert (model.score_samples(surface[:5]) > model.score_samples(surface[:5] + 3)).all()
    model.explorer(surface).save(tmp_path / "x.html")
    model.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors")
    assert again.n_components == "auto"
    assert again.n_components_ == Q
    assert np.array_equal(again.predict(model.embedding_), model.predict(model.embedding_))
    assert np.array_equal(again.sample(2, random_state=0), model.sample(2, random_state=0))


def test_dropping_them_changes_little(model, surface, whole_start):
    wide, narrow = SASGP(**SETTINGS | {"n_components": 8, "kernel": "rbf-ard"}).fit(surface), model
    kept = np.argsort(-wide.relevance_)[: narrow.n_components_]
    np.testing.assert_array_equal(narrow.embedding_, wide.embedding_[:, kept])
    np.testing.assert_array_equal(narrow.transform(surface[:9]), wide.transform(surface[:9])[:, kept])
    difference = narrow.predict(narrow.embedding_) - wide.predict(wide.embedding_)
    assert np.sqrt(np.mean(difference**2)) < 0.05 * surface.std()


def test_a_second_fit_forgets_the_first(surface):
    settings = SETTINGS | {"max_epochs": 2}
    model = SASGP(**settings).fit(surface).update(surface[:50])
    model.fit(surface[:, :3])
    fresh = SASGP(**settings).fit(surface[:, :3])
    assert len(model.embedding_) == model.sums_.n_rows == len(surface)
    np.testing.assert_array_equal(model.predict(fresh.embedding_), fresh.predict(fresh.embedding_))
    assert model.transform(surface[:3, :3], refine=2).shape == (3, model.n_components_)
    state = np.random.RandomState(0)
    seeds = [SASGP(**SETTINGS | {"max_epochs": 1, "random_state": state}).fit(surface).seed_ for _ in range(2)]
    assert seeds[0] != seeds[1]


@pytest.mark.parametrize("wrong", [{"latents": "point"}, {"kernel": "matern32"}, {"init": np.zeros((300, 2))}])
def test_what_it_needs(surface, wrong):
    with pytest.raises(InputError, match=f"'auto' needs Bayesian.*Got {next(iter(wrong))}="):
        SASGP(**SETTINGS | wrong).fit(surface)


def test_on_the_command_line_and_resumed(surface, tmp_path, capsys, monkeypatch):
    np.save(tmp_path / "x.npy", surface)
    run = tmp_path / "run"
    options = ["--n-components", "auto", "--max-epochs", "3"]
    with monkeypatch.context() as patch:
        patch.setattr(SASGP, "save", lambda *_: (_ for _ in ()).throw(OSError(28, "Full")))
        assert cli.main(["fit", str(tmp_path / "x.npy"), "--out", str(run), *options]) == 2
    assert "Continue it with" in capsys.readouterr().err
    assert cli.main(["fit", "--resume", str(run)]) == 0
    assert "relevance" in capsys.readouterr().out
