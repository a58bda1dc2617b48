"""Rows with missing values, from fit to impute: what is observed decides, and nothing changes where all of it is."""

from types import SimpleNamespace

import numpy as np
import oracles
import pytest
import torch
from oracles import assert_close
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import parametrize_with_checks
from starts import shorten_start

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM, InputError, SASGPImputer
from sasgp.estimators.column_imputation import ColumnImputation
from sasgp.evaluation import eight_bit_levels, pca_rmse, reconstruction, structure
from sasgp.gp import masked_sums
from sasgp.gp.masked_sums import FilledSums, PatternPosterior, PatternSums
from sasgp.models.base import HIDDEN, with_holes
from sasgp.models.encoders import Network, Picture
from sasgp.training import checkpoint, columns, fit_encoder

N, D = 200, 6


def holes(shape, rate, seed=0):
    found = np.random.default_rng(seed).random(shape) < rate
    found[found.all(1), 0] = False
    return found


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    shorten_start(monkeypatch, 50)


@pytest.fixture(scope="module")
def X():
    """Points of a noisy curve, so that each value is known from the others."""
    draw = np.random.default_rng(0)
    t = draw.uniform(-2, 2, N)
    curve = np.stack([np.sin(t), np.cos(t), t, t**2, -t, np.sin(2 * t)], 1)
    return curve + 0.05 * draw.standard_normal(curve.shape)


@pytest.fixture(scope="module")
def missing(X):
    return holes(X.shape, 0.3)


@pytest.fixture(scope="module")
def holed(X, missing):
    return np.where(missing, np.nan, X)


@pytest.fixture(scope="module")
def model(holed):
    return SASGP(n_components=1, max_epochs=100, batch_size=100, active_set_size=40, random_state=0).fit(holed)


# ---- what the decoder knows ----


def test_the_decoder_is_a_gaussian_process_for_each_feature(model, holed):
    assert model.missing_share_ == np.isnan(holed).mean()
    assert isinstance(model.posterior_, PatternPosterior)
    Z, at = torch.as_tensor(model.embedding_).double(), torch.linspace(-1.5, 1.5, 9, dtype=torch.float64)[:, None]
    kernel, noise = model.posterior_.kernel, float(model.posterior_.noise)
    K = lambda a, b: kernel(a, b).to_dense().numpy()  # noqa: E731
    mean, std = model.predict(at.numpy(), return_std=True)
    for d in range(D):
        seen = ~np.isnan(holed[:, d])
        x = holed[seen, d, None].astype(np.float32) - model.model_.mean.numpy()[d]
        m, C = oracles.predict(K(Z[seen], Z[seen]), K(at, Z[seen]), K(at, at), x.astype(float), noise)
        assert_close(mean[:, d], m[:, 0] + float(model.model_.mean[d]), 1e-4)
        assert_close(std[:, d] ** 2, np.diag(C) + noise, 1e-4)


def test_missing_values_are_found_and_their_errors_are_as_large_as_it_says(model, X, holed, missing):
    completed, std = model.impute(holed, return_std=True)
    assert (completed[~missing] == X[~missing]).all(), "observed values are untouched, in every bit"
    assert completed.dtype == X.dtype
    assert (std[~missing] == 0).all()
    error = (completed - X)[missing]
    assert np.sqrt(np.mean(error**2)) < 0.35 * X[missing].std()
    assert np.mean(np.abs(error) < 1.96 * std[missing]) > 0.9
    assert (model.impute(X) == X).all(), "complete rows have nothing to fill in"


def test_draws_spread_as_the_standard_deviation_says(model, holed, missing):
    draws = model.impute(holed, n_samples=200)
    completed, std = model.impute(holed, return_std=True)
    assert (draws[:, ~missing] == holed[~missing]).all()
    assert_close(draws.std(0)[missing].mean(), std[missing].mean(), 0.1)
    assert np.abs(draws.mean(0) - completed)[missing].mean() < 0.2 * std[missing].mean()
    assert (model.impute(holed, n_samples=2, random_state=1) != model.impute(holed, n_samples=2, random_state=2)).any()
    with pytest.raises(InputError, match="not both"):
        model.impute(holed, return_std=True, n_samples=2)


def test_scores_are_those_of_observed_values(model, holed):
    found = model.score_samples(holed, n_samples=0)
    mean, std = model.reconstruct(holed, return_std=True)
    each = torch.distributions.Normal(torch.as_tensor(mean), torch.as_tensor(std)).log_prob(
        torch.as_tensor(np.nan_to_num(holed), dtype=torch.float32)
    )
    assert_close(found, each.masked_fill(torch.as_tensor(np.isnan(holed)), 0).sum(1), 1e-4)
    better = model.transform(holed, refine=10)
    assert model.posterior_.search.log_density(torch.as_tensor(holed), torch.as_tensor(better)).isfinite().all()
    assert np.isfinite(model.score_samples(holed)).all()


def test_refinement_uses_observed_values_alone(model, holed):
    row = np.repeat(holed[:1], 2, 0)
    d = int(np.isnan(row[0]).argmax())
    latent = model.transform(row[:1], refine=30)
    row[1, d] = model.reconstruct(row[:1])[0, d]
    assert model.transform(row[1:], refine=30) == pytest.approx(latent, abs=0.2), "a value as predicted changes little"
    row[1, d] += 5
    assert np.abs(model.transform(row[1:], refine=30) - latent).max() > 0.01


# ---- every model ----


@pytest.mark.parametrize(
    ("cls", "settings"),
    [
        (SASGP, {"encoder": "table", "batch_size": 100, "active_set_size": 40}),
        (SASGP, {"noise": "feature"}),
        (SASGP, {"noise": "local"}),
        (SASGP, {"latents": "point"}),
        (SASGP, {"init": "spectral"}),
        (SASGP, {"early_stopping": 20}),
        (GPLVM, {}),
        (BayesianGPLVM, {"n_inducing": 30}),
        (VAE, {}),
    ],
)
def test_every_model_takes_them(cls, settings, X, holed, missing, tmp_path):
    model = cls(n_components=1, max_epochs=40, random_state=0, **settings).fit(holed)
    error = (model.impute(holed) - X)[missing]
    assert np.sqrt(np.mean(error**2)) < (1.0 if cls is VAE else 0.85) * X[missing].std()
    model.save(tmp_path / "m.safetensors")
    again = cls.load(tmp_path / "m.safetensors")
    assert again.missing_share_ == model.missing_share_
    np.testing.assert_array_equal(again.impute(holed[:20]), model.impute(holed[:20]))
    np.testing.assert_array_equal(
        again.predict(model.embedding_, return_std=True)[1], model.predict(model.embedding_, return_std=True)[1]
    )


def test_too_many_features_are_filled_in(X, holed, missing, monkeypatch, tmp_path):
    settings = {"n_components": 1, "max_epochs": 30, "random_state": 0, "support_size": 60}
    exact = SASGP(**settings).fit(holed)
    monkeypatch.setattr(masked_sums, "MOST_NUMBERS", 10)
    filled = SASGP(**settings).fit(holed)
    assert isinstance(exact.sums_, PatternSums)
    assert isinstance(filled.sums_, FilledSums)
    Z = exact.embedding_
    np.testing.assert_allclose(filled.predict(Z), exact.predict(Z), atol=0.02)
    filled.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(Z), filled.predict(Z))
    for one in (filled, again):
        one.update(holed[:50])
    np.testing.assert_array_equal(again.predict(Z), filled.predict(Z))


def test_an_empty_column_and_a_full_one(X):
    holed = np.where(holes(X.shape, 0.3), np.nan, X)
    holed[:, 1], holed[:, 2] = np.nan, X[:, 2]
    model = SASGP(n_components=1, max_epochs=30, random_state=0).fit(holed)
    completed, std = model.impute(holed, return_std=True)
    assert np.isfinite(completed).all()
    assert np.allclose(completed[:, 1], 0, atol=0.1), "nothing is known about it, so it is the mean of nothing"
    assert (std[:, 1] > std[:, 0].max()).all()


def test_a_model_of_complete_rows_takes_rows_with_holes(X, holed, missing):
    model = SASGP(n_components=1, max_epochs=60, random_state=0).fit(X)
    error = (model.impute(holed) - X)[missing]
    assert np.sqrt(np.mean(error**2)) < 0.4 * X[missing].std()
    before = model.predict(model.embedding_)
    Z = model.embedding_
    model.update(holed)
    assert isinstance(model.sums_, PatternSums)
    assert model.sums_.n_rows == 2 * N
    assert not np.array_equal(model.predict(Z), before)


def test_update_is_one_pass_over_all_rows(model, holed, missing):
    import copy

    grown = copy.deepcopy(model).update(holed[:60])
    sums = PatternSums(model.posterior_.kernel, model.sums_.U, D, model.sums_.L)
    rows = torch.as_tensor(np.concatenate([holed, holed[:60]]), dtype=torch.float32)
    sums.add(model.model_.centred(rows), torch.as_tensor(grown.embedding_))
    assert_close(grown.sums_.S[grown.sums_.group], sums.S[sums.group], 1e-8)
    assert_close(grown.sums_.b, sums.b, 1e-8)
    assert_close(grown.sums_.bound(0.1), sums.bound(0.1), 1e-7)


def test_images_with_holes_train_convolutions():
    X = load_digits().data[:150] / 16
    missing = holes(X.shape, 0.3)
    model = SASGP(encoder="conv", max_epochs=5, random_state=0).fit(np.where(missing, np.nan, X))
    assert model.image_shape_ == (8, 8)
    full = model.impute(np.where(missing, np.nan, X))
    np.testing.assert_allclose(full[~missing], X[~missing], atol=1e-6)
    means = np.nanmean(np.where(missing, np.nan, X), 0)
    assert np.square(full - X)[missing].mean() < 0.8 * np.square(means - X)[missing].mean()


def test_resuming_has_the_same_bits(holed, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", np.inf)  # a checkpoint after each epoch, however long saving takes
    settings = {"n_components": 1, "max_epochs": 4, "random_state": 0, "batch_size": 100, "active_set_size": 40}
    whole = SASGP(**settings).fit(holed)

    def stop(estimator, record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SASGP(**settings).fit(holed, checkpoint=tmp_path / "c.pt", callback=stop)
    resumed = SASGP(**settings).fit(holed, resume=tmp_path / "c.pt")
    np.testing.assert_array_equal(resumed.embedding_, whole.embedding_)


# ---- the evidence, and metrics ----


def test_the_evidence_is_that_of_observed_values(model, holed):
    small = holed[:40]
    found = model.evidence(small)
    Z = torch.as_tensor(model.transform(small)).double()
    K = model.posterior_.kernel(Z).to_dense().numpy()
    x = small.astype(np.float32).astype(float) - model.model_.mean.double().numpy()
    noise = float(model.posterior_.noise)
    assert_close(found.mean, oracles.masked_estimate(x, K, noise, range(40), (), 40), 1e-6)
    assert found.per_value == found.mean / (~np.isnan(small)).sum()
    assert "missing" in str(found)
    # SAS with A = N − 1 is exact, whichever row is left out
    sas = model.evidence(small, method="sas", active_set_size=39, n_estimates=3, random_state=0)
    assert_close(sas.mean, found.mean, 1e-6)
    assert_close(model.evidence(small, method="unbiased", active_set_size=39).mean, found.mean, 1e-6)
    assert model.evidence(small, method="bound").mean < found.mean + 1e-3
    some = model.evidence(small, method="unbiased", active_set_size=10, n_estimates=200, random_state=0)
    assert abs(some.mean - found.mean) < 5 * some.standard_error
    assert np.isfinite(model.evidence_curve(small, n_estimates=3).mean).all()


def test_metrics_leave_missing_values_out(model, X, holed, missing):
    Z = model.transform(holed)
    found = reconstruction(model, holed, Z)
    mean, std = model.predict(Z, return_std=True)
    r, s = (holed - mean)[~missing], std[~missing]
    assert found["rmse"] == pytest.approx(np.sqrt(np.mean(r**2)), rel=1e-6)
    assert found["nlpd"] == pytest.approx(np.mean(0.5 * np.log(2 * np.pi * s**2) + 0.5 * (r / s) ** 2), rel=1e-5)
    assert np.isfinite(list(structure(holed, Z, None).values())).all()
    assert pca_rmse(holed, holed, 1, 0) < X.std()
    assert eight_bit_levels(holed) is None


# ---- the encoder ----


def test_an_encoder_reads_masks_only_if_values_are_missing(rng):
    X = torch.randn(5, 4, generator=rng)
    plain, masked = (
        Network(4, 2, variance=True, masks=masks).start_from(torch.zeros(4), torch.ones(()), rng).eval()
        for masks in (False, True)
    )
    assert (plain.mu[0].in_features, masked.mu[0].in_features) == (4, 8)
    holed = X.clone()
    holed[0, 1] = torch.nan
    other = X.clone()
    other[0, 1] = 0.0
    assert (plain(holed)[0] == plain(other)[0]).all(), "without masks, a missing value is the mean"
    assert not (masked(holed)[0][0] == masked(other)[0][0]).all(), "with masks, it is not the same"
    assert (masked(holed)[0][1:] == masked(other)[0][1:]).all()


def test_a_picture_has_masks_as_channels():
    X = torch.arange(2 * 3 * 4.0).reshape(2, 12)
    for last in (False, True):
        picture = Picture(3, 2, 2, last=last)
        both = picture(torch.cat([X, -X], 1))
        assert (both[:, :3] == picture(X)).all()
        assert (both[:, 3:] == picture(-X)).all()


def test_hidden_shares_are_uniform(rng):
    hidden = with_holes(torch.zeros(2000, 400), rng).isnan().float().mean(1)
    assert hidden.mean() == pytest.approx(HIDDEN / 2, abs=0.01)
    assert hidden.std() == pytest.approx(HIDDEN / 12**0.5, abs=0.01)


def test_an_encoder_of_one_s_own_says_so(holed, X):
    own = torch.nn.Linear(D, 2)
    with pytest.raises(InputError, match="complete rows"):
        SASGP(encoder=own, latents="point").fit(holed)
    model = SASGP(encoder=own, latents="point", max_epochs=2).fit(X)
    with pytest.raises(InputError, match="complete rows"):
        model.transform(holed)


# ---- what is refused ----


def test_a_row_needs_a_value(holed, model):
    empty = holed.copy()
    empty[7] = np.nan
    for call in (SASGP().fit, model.transform, model.impute):
        with pytest.raises(InputError, match=r"row 7[\s\S]*at least one value"):
            call(empty)
    infinite = holed.copy()
    infinite[3, 2] = np.inf
    with pytest.raises(InputError, match=r"1 infinite value.*row 3, column 2"):
        model.transform(infinite)


def test_neighbours_need_complete_rows(model, holed):
    with pytest.raises(InputError, match="without missing values"):
        model.predict(model.embedding_, neighbours=5, data=holed)


# ---- the imputer ----


@parametrize_with_checks([SASGPImputer(random_state=0), SASGPImputer(n_components=1, max_epochs=2, random_state=0)])
def test_scikit_learn_s_checks(estimator, check, monkeypatch):
    shorten_start(monkeypatch, 5)  # hundreds of fits: none needs a good layout
    monkeypatch.setattr(columns, "STEPS", 5)
    check(estimator)


@pytest.mark.parametrize("settings", [{}, {"n_components": 1, "max_epochs": 150}])
def test_the_imputer_completes_columns_in_their_units(X, holed, missing, settings):
    units = np.array([1.0, 1000.0, 1e-3, 1.0, 5.0, 1.0])
    imputer = SASGPImputer(**settings, random_state=0)
    completed = imputer.fit_transform(holed * units + 7)
    assert (completed[~missing] == (X * units + 7)[~missing]).all()
    error = ((completed - 7) / units - X)[missing]
    assert np.sqrt(np.mean(error**2)) < 0.3 * X[missing].std()
    _, std = imputer.impute(holed * units + 7, return_std=True)
    draws = imputer.impute(holed * units + 7, n_samples=3)
    assert draws.shape == (3, N, D)
    assert std[missing].min() > 0
    empty = np.full((1, D), np.nan)
    np.testing.assert_allclose(imputer.transform(empty)[0], imputer.mean_)
    assert np.isfinite(imputer.impute(empty, n_samples=2)).all()


def test_the_imputer_chooses_its_dimensions(holed, monkeypatch):
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 5)
    imputer = SASGPImputer(n_components="auto", max_epochs=3, random_state=0).fit(holed)
    assert imputer.n_components_ in imputer.errors_
    assert list(imputer.errors_) == [1, 2, 3, 4]
    assert imputer.model_.n_components == imputer.n_components_


@pytest.fixture(scope="module")
def curved():
    """A parabola with noise, in which a third of the second column is missing, and the parabola itself."""
    draw = np.random.default_rng(0)
    x = draw.uniform(-2, 2, 400)
    rows = np.c_[x, x**2 + 0.1 * draw.normal(size=400)]
    hidden = np.zeros(rows.shape, bool)
    hidden[:, 1] = draw.random(400) < 1 / 3
    return rows, hidden, SASGPImputer(random_state=0).fit(np.where(hidden, np.nan, rows))


def test_regressions_follow_what_is_not_linear(curved):
    rows, hidden, imputer = curved
    assert imputer.model_ is None
    completed, std, low, high = imputer.impute(np.where(hidden, np.nan, rows), return_std=True, return_interval=0.9)
    assert np.sqrt(np.mean(np.square((completed - rows)[hidden]))) < 0.12  # the noise alone is 0.1
    np.testing.assert_allclose(std[hidden].mean(), 0.1, rtol=0.15)
    # 133 intervals: three standard errors are 0.08
    inside = (low <= rows) & (rows <= high)
    assert abs(inside[hidden].mean() - 0.9) < 0.08
    assert (low == rows)[~hidden].all()
    assert (std[~hidden] == 0).all()


def test_draws_and_density_are_those_of_one_distribution(curved):
    rows, _, imputer = curved
    row = np.array([[0.5, np.nan]])
    mean, std, low, high = (part[0, 1] for part in imputer.impute(row, return_std=True, return_interval=0.8))
    draws = imputer.impute(row, n_samples=2000, random_state=1)[:, 0, 1]
    np.testing.assert_allclose(draws.std(), std, rtol=0.1)
    np.testing.assert_allclose(np.quantile(draws, [0.1, 0.9]), [low, high], atol=0.2 * std)
    values = mean + np.linspace(-40, 40, 4001) * std
    rows = np.repeat(row, len(values), 0)
    log_p = imputer.log_density(rows, np.c_[rows[:, 0], values])
    assert np.isnan(log_p[:, 0]).all()
    np.testing.assert_allclose(np.exp(log_p[:, 1]).sum() * (values[1] - values[0]), 1, atol=0.01)


def test_draws_of_one_row_are_correlated_as_its_columns_are():
    draw = np.random.default_rng(0)
    common = draw.normal(size=(300, 1))
    rows = np.c_[common + 0.2 * draw.normal(size=(300, 2)), draw.normal(size=300)]
    imputer = SASGPImputer(random_state=0).fit(rows)
    draws = imputer.impute(np.array([[np.nan, np.nan, 0.0]]), n_samples=1000, random_state=0)[:, 0]
    # Corr = 1 / (1 + 0.2²) = 0.96
    assert np.corrcoef(draws[:, 0], draws[:, 1])[0, 1] > 0.9


def test_columns_without_relation_are_filled_with_about_their_mean():
    draw = np.random.default_rng(0)
    rows = draw.normal(size=(50, 8))
    hidden = holes(rows.shape, 0.25)
    completed = SASGPImputer(random_state=0).fit_transform(np.where(hidden, np.nan, rows))
    assert np.sqrt(np.mean(completed[hidden] ** 2)) < 0.35


def test_constant_and_empty_columns_and_very_few_rows_are_fine():
    draw = np.random.default_rng(0)
    rows = np.c_[draw.normal(size=(30, 2)), np.full(30, 7.0), np.full(30, np.nan)]
    rows[::3, 2] = np.nan
    completed, std = SASGPImputer(random_state=0).fit(rows).impute(rows, return_std=True)
    np.testing.assert_allclose(completed[:, 2], 7)
    np.testing.assert_allclose(completed[:, 3], 0, atol=1e-9)
    assert np.isfinite(std).all()
    few = SASGPImputer(random_state=0).fit_transform(np.array([[1.0, np.nan], [2.0, 3.0], [np.nan, 5.0]]))
    assert np.isfinite(few).all()


def test_very_many_columns_have_a_decoder(monkeypatch):
    monkeypatch.setattr("sasgp.estimators.imputer.MOST_COLUMNS", D - 1)
    rows = np.random.default_rng(0).normal(size=(40, D))
    assert SASGPImputer(max_epochs=1, random_state=0).fit(rows).n_components_ == D // 2


@pytest.mark.parametrize(("predicted", "share"), [("right", 1.0), ("wrong", 0.0)])
def test_the_gaussian_is_alone_where_a_regression_makes_it_worse(predicted, share):
    # The Gaussian leaves residuals r. Predicting r leaves nothing, and predicting −r doubles the error
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(40, generator=draw, dtype=torch.float64)
    gaussian = x + 0.5 * torch.randn(40, generator=draw, dtype=torch.float64)
    r = x - gaussian
    columns = ColumnImputation.__new__(ColumnImputation)
    columns.left_out_mean, columns.related = gaussian[:, None], torch.zeros(1, 1, dtype=torch.long)
    columns.low = np.zeros(1)
    zeros = torch.zeros(40, 1)
    regression = SimpleNamespace(
        u=zeros,
        a=zeros,
        c=zeros[:, 0],
        predict=lambda at, a, c, own: ((r if predicted == "right" else -r)[own], torch.ones(len(own))),
    )
    assert columns._judged(0, regression, x, draw).share == share
