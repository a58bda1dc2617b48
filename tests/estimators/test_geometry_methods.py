"""Geometry through estimators: the decoder's own units and dtypes, what is checked, and that nothing stale is kept."""

import numpy as np
import pytest
from oracles import assert_close
from starts import shorten_start

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM
from sasgp.errors import InputError

FAST = {"max_epochs": 3, "random_state": 0, "dtype": "float64"}


def rows(n=60, D=5, seed=0):
    rng = np.random.default_rng(seed)
    return np.sin(rng.normal(size=(n, 2)) @ rng.normal(size=(2, D))) + 0.1 * rng.normal(size=(n, D))


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    shorten_start(monkeypatch, 20)


@pytest.fixture(scope="module")
def model():
    with pytest.MonkeyPatch.context() as patch:
        shorten_start(patch, 20)
        return SASGP(**FAST).fit(rows())


@pytest.mark.parametrize(
    "make",
    [
        lambda: SASGP(**FAST),
        lambda: SASGP(**FAST, noise="feature", kernel="matern52"),
        lambda: SASGP(**FAST, noise="local"),
        lambda: GPLVM(**FAST, kernel="rbf-ard"),
        lambda: BayesianGPLVM(**FAST, n_inducing=20, kernel="matern32"),
    ],
    ids=["sas", "feature noise", "local noise", "exact", "inducing"],
)
def test_the_metric_is_that_of_what_predict_says(make):
    X = rows() * np.array([1, 1, 1, 1, 10])
    model = make().fit(X)
    Z, h = model.embedding_[:4] + 0.01, 1e-5
    G = model.metric(Z)
    # J of the mean, in units of the data, by differences of `predict`. What is left is Σ_d s_d² Σ_J, which is positive
    # and shrinks with no row: it is that of the function alone, however large the noise is
    J = np.stack([(model.predict(Z + h * e) - model.predict(Z - h * e)) / (2 * h) for e in np.eye(2)], 2)  # [M, D, Q]
    left = G - J.swapaxes(1, 2) @ J
    assert (np.linalg.eigvalsh(left) > -1e-6 * np.abs(G).max()).all()
    space = model._space()
    assert_close(
        left, float(space.w) * space.jacobian(model.posterior_.Z.new_tensor(Z))[1], 1e-5 * G.max() / left.max()
    )
    assert_close(model.volume(Z), np.sqrt(np.linalg.det(G)), 1e-8)


def test_the_length_of_a_short_line_is_that_of_the_metric(model):
    # The metric changes along the line, which the middle has right but for terms in ‖dz‖²
    z, dz = model.embedding_[0], np.array([5e-5, -1e-4])
    assert_close(model.length([z, z + dz]), np.sqrt(dz @ model.metric([z + dz / 2])[0] @ dz), 1e-6)
    # Two paths at once
    paths = np.stack([model.embedding_[:3], model.embedding_[3:6]])
    assert_close(model.length(paths), [model.length(path) for path in paths], 1e-10)


def test_geodesics_one_and_many(model):
    Z = model.embedding_
    one = model.geodesic(Z[0], Z[5], n=30)
    assert one.shape == (30, 2)
    np.testing.assert_array_equal(one[[0, -1]], Z[[0, 5]])
    several = model.geodesic(Z[0], Z[5:8], n=30)
    assert several.shape == (3, 30, 2)
    assert_close(several[0], one, 1e-6)
    np.testing.assert_array_equal(model.geodesic(Z[5], Z[0], n=30), one[::-1])
    lengths = model.length(several)
    assert (lengths <= model.length(several[:, [0, -1]]) * (1 + 1e-4)).all()
    # Over the graph, a path is a few per cent longer
    distances = model.distance(Z[:1], Z[5:8])[0]
    assert (distances > 0.98 * lengths).all()
    assert (distances < 1.1 * lengths).all()
    assert_close(model.distance(Z[:4]), model.distance(Z[:4], Z[:4]), 1e-12)


def test_results_have_the_dtype_of_the_model():
    model = SASGP(**FAST | {"dtype": "float32"}).fit(rows())
    Z = model.embedding_
    for found in (model.metric(Z), model.volume(Z), model.geodesic(Z[0], Z[1]), model.distance(Z[:3])):
        assert found.dtype == np.float32


def test_geometry_is_that_of_the_present_decoder(tmp_path):
    X = rows()
    model = SASGP(**FAST).fit(X)
    Z = model.embedding_[:3]
    before = model.metric(Z)
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_allclose(SASGP.load(tmp_path / "m.safetensors").metric(Z), before, rtol=1e-9)
    model.update(rows(seed=1))
    after = model.metric(Z)
    assert np.abs(after / before - 1).max() > 1e-3
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_allclose(SASGP.load(tmp_path / "m.safetensors").metric(Z), after, rtol=1e-9)


def test_rows_with_holes_have_a_geometry():
    X = rows()
    X[np.random.default_rng(0).random(X.shape) < 0.2] = np.nan
    model = SASGP(**FAST).fit(X)
    Z, h = model.embedding_, 1e-5
    J = np.stack([(model.predict(Z + h * e) - model.predict(Z - h * e)) / (2 * h) for e in np.eye(2)], 2)  # [M, D, Q]
    left = model.metric(Z) - J.swapaxes(1, 2) @ J  # the uncertainty's part
    assert (np.linalg.eigvalsh(left) > 0).all()
    straight = np.linspace(Z[0], Z[1], 50)
    assert 0 < model.length(model.geodesic(Z[0], Z[1], n=50)) <= 1.001 * model.length(straight)


def test_a_table_has_the_geometry_of_its_scores(mixed):
    model, _ = mixed
    z, dz = model.embedding_[:1].astype(np.float64), np.array([[1e-2, 0.0]])
    mean = model.predict_scores(np.concatenate([z + dz, z - dz]))
    # The mean alone changes by less than what is expected of the random function
    assert np.square(mean[0] - mean[1]).sum() < 4 * (dz @ model.metric(z)[0] @ dz.T)[0, 0]


def test_only_gaussian_processes_have_a_geometry():
    assert not hasattr(VAE, "metric")


def test_messages(model):
    Z = model.embedding_
    with pytest.raises(InputError, match=r"Z must have n_components=2 columns.*Got 3"):
        model.metric(np.zeros((4, 3)))
    with pytest.raises(ValueError, match="NaN"):
        model.volume([[np.nan, 0.0]])
    with pytest.raises(InputError, match=r"path must have shape \[n, 2\].*Got \(1, 2\)"):
        model.length(Z[:1])
    with pytest.raises(InputError, match=r"n must be .* 2"):
        model.geodesic(Z[0], Z[1], n=1)
    with pytest.raises(InputError, match=r"as many points.*Got 2 and 3"):
        model.geodesic(Z[:2], Z[:3])
    with pytest.raises(InputError, match="kernel='rbf', 'matern52' or 'matern32'"):
        SASGP(**FAST, kernel="matern12").fit(rows()).metric(Z)
