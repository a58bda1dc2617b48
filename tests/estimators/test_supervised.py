"""Regression and classification: against scikit-learn's and GPyTorch's exact ones, then as users do."""

import math

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel
from sklearn.metrics import log_loss
from sklearn.utils.estimator_checks import parametrize_with_checks

from sasgp import InputError, SASGPClassifier, SASGPRegressor
from sasgp.data.columns import Number
from sasgp.estimators import storage
from sasgp.estimators.targets import better_map, plain_columns
from sasgp.gp import neighbours
from sasgp.gp.nearest import NearestRows
from sasgp.models.regression import RegressionModel, RegressionSettings, hyperprior
from sasgp.training import regression

QUICK = {"max_epochs": 5, "random_state": 0}


@pytest.fixture(autouse=True)
def short_last_stage(monkeypatch):
    monkeypatch.setattr(regression, "SHARP_STEPS", 5)


@pytest.fixture(scope="module")
def curve():
    """A smooth function of two of three inputs, with noise of standard deviation .1."""
    draw = np.random.default_rng(0)
    X = draw.uniform(-2, 2, (240, 3))
    y = 5 + 3 * np.sin(2 * X[:, 0]) * X[:, 1] + 0.1 * draw.standard_normal(240)
    return X[:200], y[:200], X[200:], y[200:]


@parametrize_with_checks([SASGPRegressor(max_epochs=1, random_state=0), SASGPClassifier(max_epochs=1, random_state=0)])
def test_scikit_learns_checks(estimator, check):
    check(estimator)


# ---------------------------------------------------------------------------------------------------- exactness


def as_scikit_learn_has_it(model, X):
    """The trained kernel as scikit-learn writes it, and inputs in its units."""
    base, units = model.kernel_.base_kernel, model.model_.units.double().numpy()
    lengths = base.lengthscale.detach().double().numpy()[0] * units
    kernel = ConstantKernel(model.kernel_.outputscale.item()) * Matern(lengths, nu=base.nu)
    return kernel + WhiteKernel(model.model_.noise.item())


@pytest.mark.parametrize("kernel", ["matern32-ard", "matern52-ard"])
@pytest.mark.parametrize("how", [{"prediction": "exact"}, {"prediction": "nearest", "neighbours": 200}])
def test_all_rows_are_the_exact_gaussian_process(curve, how, kernel):
    X, y, X_new, y_new = curve
    model = SASGPRegressor(kernel=kernel, dtype="float64", target="plain", **how, **QUICK).fit(X, y)
    oracle = GaussianProcessRegressor(as_scikit_learn_has_it(model, X), optimizer=None, normalize_y=True).fit(X, y)
    mean, std = model.predict(X_new, return_std=True)
    expected = oracle.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean, expected[0], rtol=1e-8)
    np.testing.assert_allclose(std, expected[1], rtol=1e-8)
    density = -0.5 * (np.log(2 * np.pi * std**2) + ((y_new - mean) / std) ** 2)
    np.testing.assert_allclose(model.log_density(X_new, y_new), density, rtol=1e-8)


def test_the_exact_posterior_is_gpytorchs(curve):
    X, y, X_new, _ = curve
    model = SASGPRegressor(dtype="float64", target="plain", **QUICK).fit(X, y)
    scores = torch.from_numpy((y - y.mean()) / y.std())
    units = model.model_.units
    inputs, queries = ((torch.from_numpy(some) - model.model_.centre) / units for some in (X, X_new))

    class Exact(gpytorch.models.ExactGP):
        def __init__(self):
            super().__init__(inputs, scores, gpytorch.likelihoods.GaussianLikelihood().double())
            self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), model.kernel_

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    oracle = Exact()
    oracle.likelihood.noise = model.model_.noise.item()
    oracle.eval()
    with torch.no_grad(), gpytorch.settings.fast_computations(False, False, False):
        found = oracle.likelihood(oracle(queries))
    mean, std = model.predict(X_new, return_std=True)
    # GPyTorch adds a jitter of 1e-8
    np.testing.assert_allclose(mean, y.mean() + y.std() * found.mean.numpy(), rtol=3e-8)
    np.testing.assert_allclose(std, y.std() * found.stddev.numpy(), rtol=3e-8)


def test_leaving_one_out_is_the_closed_form(curve):
    # With K = K_NN + σ²I: m_i = y_i − [K⁻¹y]_i / [K⁻¹]_ii and c_i = 1 / [K⁻¹]_ii
    X, y, *_ = curve
    model = SASGPRegressor(dtype="float64", target="plain", **QUICK).fit(X, y)
    K = model.kernel_(model._places).to_dense().detach() + model.model_.noise.detach() * torch.eye(200)
    inverse, targets = torch.linalg.inv(K), model._targets
    rows = torch.tensor([3, 77, 150])
    mean, var = model._nearest(199).leave_one_out(rows)
    expected = targets - (inverse @ targets) / inverse.diagonal()[:, None]
    torch.testing.assert_close(mean, expected[rows], rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(var, 1 / inverse.diagonal()[rows], rtol=1e-8, atol=1e-8)


def test_all_rows_through_positions_come_close(curve):
    X, y, X_new, _ = curve
    few = SASGPRegressor(prediction="all-rows", support_size=150, **QUICK).fit(X, y)
    exact = SASGPRegressor(prediction="exact", **QUICK).fit(X, y)
    np.testing.assert_allclose(few.predict(X_new), exact.predict(X_new), atol=0.05 * y.std())


def test_the_objective_at_everything_active_is_the_marginal_likelihood(rng):
    # Eq. 6 with A = N is log p(y | X), of which the loss is the negative per target; a single lengthscale has no prior
    X, Y = (
        torch.randn(30, 2, generator=rng, dtype=torch.float64),
        torch.randn(30, 1, generator=rng, dtype=torch.float64),
    )
    settings = RegressionSettings("matern32", 2, 1, (), 30, 1e-8, torch.float64)
    model = RegressionModel.build(settings)
    K = model.kernel(X).to_dense() + model.noise * torch.eye(30)
    expected = torch.distributions.MultivariateNormal(torch.zeros(30, dtype=torch.float64), K).log_prob(Y[:, 0])
    loss = model(torch.cat([X, Y], 1), torch.arange(30), 30, rng)
    torch.testing.assert_close(loss, -expected / 30, rtol=1e-8, atol=1e-8)


def test_lengthscales_are_held_together_by_their_prior():
    # log ℓ = (0, .3) lie .15 on each side of their mean: −½ (.15² + .15²)/.15² = −1
    model = RegressionModel.build(RegressionSettings("rbf-ard", 2, 1, (), 5, 1e-8, torch.float64))
    model.kernel.base_kernel.lengthscale = torch.tensor([1.0, math.exp(0.3)])
    assert hyperprior(model.kernel).item() == pytest.approx(-1)
    model.kernel.base_kernel.lengthscale = torch.tensor([3.0, 3.0])
    assert hyperprior(model.kernel).item() == pytest.approx(0)


# ---------------------------------------------------------------------------------------------------- quality


def test_data_from_a_known_gaussian_process(monkeypatch):
    # ℓ = (1, 5), s = 4, σ = .2. What is learned predicts nearly as well as the truth, and intervals hold what they say
    monkeypatch.setattr(regression, "SHARP_STEPS", 60)
    draw = np.random.default_rng(3)
    X = draw.uniform(-5, 5, (1500, 2))
    truth = 4 * Matern((1.0, 5.0), nu=1.5)(X)
    y = 10 + np.linalg.cholesky(truth + 1e-10 * np.eye(1500)) @ draw.standard_normal(1500)
    y += 0.2 * draw.standard_normal(1500)
    model = SASGPRegressor(max_epochs=100, random_state=0).fit(X[:1000], y[:1000])
    exact = GaussianProcessRegressor(4 * Matern((1.0, 5.0), nu=1.5) + WhiteKernel(0.04), optimizer=None)
    mean, std = exact.fit(X[:1000], y[:1000] - 10).predict(X[1000:], return_std=True)
    best = 0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y[1000:] - 10 - mean) / std) ** 2
    assert -model.log_density(X[1000:], y[1000:]).mean() < best.mean() + 0.05
    _, low, high = model.predict(X[1000:], return_interval=0.9)
    assert 0.87 < np.mean((low < y[1000:]) & (y[1000:] < high)) < 0.93
    assert model.relevance_[0] > 2 * model.relevance_[1]


def test_far_from_all_rows_the_prior_returns(curve):
    X, y, *_ = curve
    for prediction in ("exact", "nearest"):
        model = SASGPRegressor(prediction=prediction, target="plain", **QUICK).fit(X, y)
        mean, std = model.predict(np.full((1, 3), 1e4), return_std=True)
        assert mean[0] == pytest.approx(y.mean())
        prior = model.kernel_.outputscale.item() + model.model_.noise.item()
        assert std[0] == pytest.approx(y.std() * math.sqrt(prior))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_targets_without_noise_train_to_the_end(dtype):
    X = np.random.default_rng(0).uniform(-1, 1, (600, 2))
    y = X[:, 0] + X[:, 1] ** 2
    model = SASGPRegressor(dtype=dtype, max_epochs=60, random_state=0).fit(X[:500], y[:500])
    assert not any(record["dropped"] for record in model.history_)
    assert np.abs(model.predict(X[500:]) - y[500:]).max() < 0.05


def test_rows_that_are_all_the_same_and_duplicates():
    X = np.repeat(np.random.default_rng(0).standard_normal((5, 2)), 40, axis=0)
    y = np.tile([0.0, 1.0], 100)
    model = SASGPRegressor(**QUICK).fit(X, y)
    np.testing.assert_allclose(model.predict(X[::40]), 0.5, atol=0.1)
    assert np.isfinite(SASGPRegressor(**QUICK).fit(np.ones((50, 2)), y[:50]).predict(np.ones((1, 2)))).all()


def test_a_map_is_taken_where_it_is_better_and_left_where_not():
    # log y is a line with noise of constant size, so the logarithm gains. Where y itself is one, nothing does
    draw = np.random.default_rng(0)
    x = np.linspace(0, 4, 1000)
    near = np.clip(np.arange(1000)[:, None] + np.array([-3, -2, -1, 1, 2, 3]), 0, 999)
    weights, var = np.full(near.shape, 1 / 6), np.ones(1000)
    for y, base in (
        (np.exp(x + 0.3 * draw.standard_normal(1000)), "log"),
        (x + draw.standard_normal(1000), "identity"),
    ):
        (column,) = plain_columns(y[:, None], ["y"]).columns
        found = better_map(column, y, y[near], weights, var)
        assert found.map.base == base
        assert not found.map.knots


def test_a_map_that_makes_predictions_worse_is_left(monkeypatch):
    draw = np.random.default_rng(0)
    y = np.exp(np.linspace(0, 4, 1000) + 0.3 * draw.standard_normal(1000))
    near = np.clip(np.arange(1000)[:, None] + np.array([-1, 1]), 0, 999)
    (column,) = plain_columns(y[:, None], ["y"]).columns
    monkeypatch.setattr("sasgp.estimators.targets.WORSE", 0.5)  # only half the error would do
    assert better_map(column, y, y[near], np.full(near.shape, 0.5), np.ones(1000)) is column


@pytest.mark.parametrize("outlier", [1e3, 1e6, 1e9])
def test_an_outlier_among_the_targets_is_no_overflow(outlier):
    # Under a map, a prediction between the outlier and the others is the inverse of a large score: warnings are errors
    draw = np.random.default_rng(0)
    y, near = draw.normal(size=60), draw.integers(60, size=(60, 5))
    y[7] = outlier
    (column,) = plain_columns(y[:, None], ["y"]).columns
    found = better_map(column, y, y[near], np.full(near.shape, 0.2), np.logspace(-6, 6, 60))
    assert found is column


def test_skewed_targets_stay_positive_with_their_map(monkeypatch):
    monkeypatch.setattr(regression, "SHARP_STEPS", 100)
    draw = np.random.default_rng(0)
    X = draw.uniform(-2, 2, (400, 1))
    y = np.exp(2 * X[:, 0] + 0.3 * draw.standard_normal(400))
    model = SASGPRegressor(max_epochs=60, random_state=0).fit(X[:300], y[:300])
    (column,) = model.targets_.columns
    assert isinstance(column, Number)
    assert column.map.base == "log"
    _, low, high = model.predict(X[300:], return_interval=0.9)
    assert (low > 0).all()
    assert 0.8 < np.mean((low < y[300:]) & (y[300:] < high)) < 0.99
    plain = SASGPRegressor(max_epochs=60, random_state=0, target="plain").fit(X[:300], y[:300])
    assert model.log_density(X[300:], y[300:]).mean() > plain.log_density(X[300:], y[300:]).mean() + 0.3


# ---------------------------------------------------------------------------------------------------- tables, holes


def test_a_table_with_text_and_missing_cells():
    draw = np.random.default_rng(0)
    kind, size = draw.choice(["cat", "dog", "owl"], 300), draw.uniform(1, 10, 300)
    y = np.where(kind == "cat", 5.0, 0.0) + size + 0.1 * draw.standard_normal(300)
    table = pd.DataFrame({"kind": kind, "size": np.where(draw.random(300) < 0.1, np.nan, size)})
    model = SASGPRegressor(max_epochs=60, random_state=0).fit(table[:250], y[:250])
    assert model.score(table[250:], y[250:]) > 0.85
    np.testing.assert_array_equal(model.predict(table[["size", "kind"]][250:]), model.predict(table[250:]))
    assert model.relevance_.shape == (2,)


def test_whether_a_value_is_missing_is_an_input(tmp_path):
    draw = np.random.default_rng(0)
    X = draw.standard_normal((300, 2))
    X[draw.random(300) < 0.3, 0] = np.nan
    y = np.isnan(X[:, 0]) + 0.05 * draw.standard_normal(300)
    model = SASGPRegressor(max_epochs=40, random_state=0).fit(X[:200], y[:200])
    assert model.score(X[200:], y[200:]) > 0.9
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(SASGPRegressor.load(tmp_path / "m.safetensors").predict(X), model.predict(X))
    X[200, 1] = np.nan  # in a column that was complete: its mean
    filled = X[200:201].copy()
    filled[0, 1] = model.model_.centre[1]
    np.testing.assert_allclose(model.predict(X[200:201]), model.predict(filled), rtol=1e-5)


def test_several_targets_have_a_kernel_in_common_and_units_of_their_own(curve):
    X, y, X_new, _ = curve
    both = SASGPRegressor(target="plain", **QUICK).fit(X, np.column_stack([y, 100 - 20 * y]))
    mean, std = both.predict(X_new, return_std=True)
    np.testing.assert_allclose(mean[:, 1], 100 - 20 * mean[:, 0], rtol=1e-6)
    np.testing.assert_allclose(std[:, 1], 20 * std[:, 0], rtol=1e-6)
    assert both.sample_y(X_new, 3).shape == (40, 2, 3)


def test_joint_draws_have_the_moments_that_are_predicted(curve):
    X, y, X_new, _ = curve
    for how in ({"prediction": "exact"}, {"prediction": "nearest", "neighbours": 200}):
        model = SASGPRegressor(target="plain", **how, **QUICK).fit(X, y)
        drawn = model.sample_y(X_new[:5], 2000, random_state=1)
        mean, std = model.predict(X_new[:5], return_std=True)
        np.testing.assert_allclose(drawn.mean(1), mean, atol=4 * std.max() / math.sqrt(2000))
        np.testing.assert_allclose(drawn.std(1), std, rtol=0.1)
    near = model.sample_y(X_new[:1] + np.array([[0.0], [1e-3]]), 2000, random_state=1)
    # One function with variance v − σ², and noise σ² of its own at each of the two
    share = model.model_.noise.item() * y.var() / std[0] ** 2
    assert np.corrcoef(near)[0, 1] == pytest.approx(1 - share, abs=0.05)


# ---------------------------------------------------------------------------------------------------- files, more rows


@pytest.mark.parametrize("how", [{"prediction": "exact"}, {"prediction": "nearest"}, {"prediction": "all-rows"}])
def test_a_file_gives_the_same_predictions(curve, how, tmp_path):
    X, y, X_new, _ = curve
    model = SASGPRegressor(neighbours=50, **how, **QUICK).fit(pd.DataFrame(X, columns=list("abc")), y)
    model.save(tmp_path / "m.safetensors")
    again = SASGPRegressor.load(tmp_path / "m.safetensors")
    table = pd.DataFrame(X_new, columns=list("abc"))
    for found, expected in zip(
        again.predict(table, True, return_interval=0.9), model.predict(table, True, return_interval=0.9), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    assert again.get_params() == model.get_params()


@pytest.mark.parametrize("how", [{"prediction": "exact"}, {"prediction": "nearest", "neighbours": 30}])
def test_rows_that_are_added_count_as_the_others(curve, how):
    X, y, X_new, _ = curve
    whole = SASGPRegressor(target="plain", **how, **QUICK).fit(X, y)
    part = SASGPRegressor(target="plain", **how, **QUICK).fit(X[:150], y[:150])
    part.model_, part.targets_ = whole.model_, whole.targets_  # the same numbers, conditioned on fewer rows
    part._places, part._targets = whole._places[:150], whole._targets[:150]
    part._condition()
    assert np.abs(part.predict(X_new) - whole.predict(X_new)).max() > 1e-3
    part.update(X[150:180], y[150:180]).update(X[180:], y[180:])
    np.testing.assert_allclose(part.predict(X_new), whole.predict(X_new), rtol=1e-10)


def test_rows_that_are_added_elsewhere_get_cells_of_their_own(curve, tmp_path, monkeypatch):
    # 180 of 360 rows lie 20 deviations away. With the old centres, one cell would hold all of them
    monkeypatch.setattr(neighbours, "EXACT", 100)
    monkeypatch.setattr(neighbours, "CELL", 10)
    X, y, X_new, _ = curve
    model = SASGPRegressor(target="plain", prediction="nearest", neighbours=8, **QUICK).fit(X[:180], y[:180])
    model.update(X[:180] + 20, y[:180])
    assert isinstance(model.posterior_, NearestRows)
    index = model.posterior_.index
    assert len(index.centres) == 36
    assert int(index.starts.diff().max()) < 40
    np.testing.assert_allclose(model.predict(X_new + 20), model.predict(X_new), atol=1e-3)
    model.save(tmp_path / "m.safetensors")
    again = SASGPRegressor.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(X_new + 20), model.predict(X_new + 20))


def test_a_memory_map_and_a_stop_in_the_middle(curve, tmp_path):
    X, y, X_new, _ = curve
    np.save(tmp_path / "X.npy", X)
    whole = SASGPRegressor(**QUICK).fit(X, y)

    def stop(model, record):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SASGPRegressor(**QUICK).fit(X, y, checkpoint=tmp_path, callback=stop)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    again = SASGPRegressor(**QUICK).fit(mapped, y, resume=tmp_path)
    np.testing.assert_array_equal(again.predict(X_new), whole.predict(X_new))
    with pytest.raises(KeyboardInterrupt):
        SASGPRegressor(**QUICK).fit(X, y, checkpoint=tmp_path, callback=stop)
    with pytest.raises(InputError, match="targets"):
        SASGPRegressor(**QUICK).fit(X, y**3, resume=tmp_path)


def test_only_as_many_rows_train_as_the_steps_need(curve, monkeypatch):
    X, y, *_ = curve
    monkeypatch.setattr("sasgp.estimators.supervised.STEPS", 3)
    model = SASGPRegressor(batch_size=20, active_set_size=10, random_state=0).fit(X, y)
    assert model.history_[-1]["step"] == 3
    assert len(model._places) == 200


# ---------------------------------------------------------------------------------------------------- classes


def test_classes_are_told_apart_and_probabilities_are_calibrated():
    X, y = load_breast_cancer(return_X_y=True)
    model = SASGPClassifier(max_epochs=60, random_state=0).fit(X[::2], y[::2])
    assert model.score(X[1::2], y[1::2]) > 0.95
    assert log_loss(y[1::2], model.predict_proba(X[1::2])) < 0.16
    np.testing.assert_allclose(model.predict_proba(X[:5]).sum(1), 1)


def test_far_from_all_rows_probabilities_are_frequencies():
    X, y = load_iris(return_X_y=True)
    model = SASGPClassifier(**QUICK).fit(X[:120], y[:120])
    np.testing.assert_allclose(model.predict_proba(np.full((1, 4), 1e5))[0], [50 / 120, 50 / 120, 20 / 120], rtol=1e-6)


@pytest.mark.parametrize("labels", [["a", "b", "long name"], [3, 5, 9], [1.0, 2.0, 5.0]])
def test_classes_come_back_as_they_were_also_from_a_file(labels, tmp_path):
    X, y = load_iris(return_X_y=True)
    y = np.array(labels)[y]
    model = SASGPClassifier(**QUICK).fit(X, y)
    model.save(tmp_path / "m.safetensors")
    again = SASGPClassifier.load(tmp_path / "m.safetensors")
    assert again.classes_.tolist() == labels
    np.testing.assert_array_equal(again.predict_proba(X), model.predict_proba(X))
    assert again.score(X, y) > 0.9
    assert again.update(X[:3], y[:3]).predict(X[:1])[0] == y[0]
    with pytest.raises(InputError, match="classes that training did not see"):
        again.update(X[:1], np.array(["new" if isinstance(labels[0], str) else 77]))


# ---------------------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(200, 3.0), "must vary, but y is 3"),
        (np.where(np.arange(200) == 7, np.nan, 1.0), "NaN"),
        (None, "requires y to be passed"),
        (np.array(["a"] * 200), "finite numbers"),
        (np.zeros((200, 2, 2)), "dim 3"),
    ],
)
def test_targets_that_cannot_be_learned(curve, y, message):
    with pytest.raises(InputError, match=message):
        SASGPRegressor(**QUICK).fit(curve[0], y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"kernel": "matern32ard"}, "Did you mean 'matern32-ard'"),
        ({"prediction": "near"}, "prediction must be one of"),
        ({"neighbours": 0}, "neighbours"),
        ({"active_set_size": 2000}, "smaller than batch_size"),
        ({"target": "log"}, "target must be one of"),
        ({"hyper_learning_rate": -1}, "positive number"),
    ],
)
def test_settings_that_do_not_fit(curve, settings, message):
    with pytest.raises(InputError, match=message):
        SASGPRegressor(**QUICK | settings).fit(curve[0], curve[1])


def test_other_bad_input(curve, tmp_path):
    X, y, X_new, y_new = curve
    model = SASGPRegressor(**QUICK)
    with pytest.raises(NotFittedError):
        model.predict(X)
    model.fit(X, y)
    with pytest.raises(ValueError, match="features"):
        model.predict(X_new[:, :2])
    with pytest.raises(InputError, match="1 columns"):
        model.log_density(X_new, np.column_stack([y_new, y_new]))
    with pytest.raises(InputError, match="between 0 and 1"):
        model.predict(X_new, return_interval=90)
    with pytest.raises(InputError, match="at least two classes"):
        SASGPClassifier(**QUICK).fit(X, np.zeros(200))
    model.save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=r"Load it with sasgp\.SASGPRegressor\.load"):
        SASGPClassifier.load(tmp_path / "m.safetensors")


@pytest.mark.parametrize("holed", [[3], [2**70], [1, 0], [0, 0]])
def test_a_file_whose_holes_are_in_other_columns_is_refused(holed, tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3))
    X[0, 0] = X[1, 1] = np.nan
    path = tmp_path / "m.safetensors"
    SASGPRegressor(max_epochs=1, random_state=0).fit(X, np.nan_to_num(X).sum(1)).save(path)
    header, tensors = storage.read(path)
    assert header["fitted"]["holed_"] == [0, 1]
    if len(holed) == 1:  # rows of the space that the kernel works in have as many values more
        tensors["places"] = tensors["places"][:, :4].contiguous()
    storage.write(path, header | {"fitted": header["fitted"] | {"holed_": holed}}, tensors)
    with pytest.raises(InputError, match="columns with missing values are not columns of its inputs"):
        SASGPRegressor.load(path)


def test_a_deep_kernel_learns_and_is_saved(curve, tmp_path):
    X, y, X_new, y_new = curve
    model = SASGPRegressor(kernel="deep", max_epochs=200, random_state=0).fit(X, y)
    assert model.score(X_new, y_new) > 0.8
    model.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(SASGPRegressor.load(tmp_path / "m.safetensors").predict(X_new), model.predict(X_new))
    with pytest.raises(AttributeError, match="deep"):
        _ = model.relevance_
