"""Questions about regression: their data and measurements are what they say, and rehearsals run."""

import gpytorch
import numpy as np
import pytest
import torch
from scipy.stats import norm

from sasgp import SASGPRegressor
from sasgp.gp.row_sums import condition
from sasgp.training import regression as training
from studies import records
from studies.__main__ import main
from studies.catalogue import finished, study
from studies.questions import hyperparameters, neighbours, page, regression
from studies.questions.gpytorch_models import SVGP, ExactGP
from studies.tables import filled, parts

RESULTS = records.RESULTS / "questions"


@pytest.fixture(autouse=True)
def brief_last_stage(monkeypatch):
    monkeypatch.setattr(training, "SHARP_STEPS", 2)


@pytest.mark.parametrize("name", ["regression", "hyperparameters", "neighbours", "classification"])
def test_a_rehearsal_runs(name, tmp_path, capsys):
    assert main(["questions", name, "--quick", "--out", str(tmp_path)]) == 0
    assert "\n| " in capsys.readouterr().out, "it ends with the table"
    assert finished(study("questions", name), tmp_path / "quick", True)


def test_the_page_of_regression_is_what_its_records_say():
    text = page.REGRESSION.read_text()
    shown = page.others(RESULTS, False)[page.REGRESSION]
    assert set(parts(text)) == set(page.REGRESSION_PARTS)
    assert filled(text, shown) == text, (
        "docs/how-good-prediction.md is behind: run `python -m studies questions all --tables`"
    )


def test_a_split_is_standardised_by_its_training_rows(tmp_path):
    rows, masks = np.random.default_rng(0).normal(3, 2, (30, 4)), np.zeros((30, 2), int)
    rows[:, 1] = 5.0  # constant
    masks[[4, 7], 1] = 1
    (tmp_path / "one").mkdir()
    np.savetxt(tmp_path / "one" / "data.csv.gz", rows, delimiter=",", fmt="%.17g")
    np.savetxt(tmp_path / "one" / "test_mask.csv.gz", masks, delimiter=",", fmt="%d")
    X, y, X_test, y_test = regression.split("one", str(tmp_path), 1)
    train = np.delete(rows, [4, 7], axis=0)
    np.testing.assert_allclose(y, (train[:, 3] - train[:, 3].mean()) / train[:, 3].std(), atol=1e-12)
    np.testing.assert_allclose(y_test * train[:, 3].std() + train[:, 3].mean(), rows[[4, 7], 3], atol=1e-12)
    np.testing.assert_array_equal(X[:, 1], 0)
    np.testing.assert_array_equal(X_test[:, 1], 0)


def test_scores_of_predictions():
    y, mean, std = np.array([0.0, 1.0, 5.0]), np.array([0.5, 1.0, 2.0]), np.ones(3)
    log_p = norm.logpdf(y, mean, std)
    found = regression.scored(y, (mean, mean - 1.96 * std, mean + 1.96 * std), log_p)
    # Errors .5, 0 and 3, of which the last is outside
    expected = {"rmse": np.sqrt(9.25 / 3), "nll": 0.5 * np.log(2 * np.pi) + 9.25 / 6, "coverage_95": 2 / 3}
    assert found == {key: pytest.approx(value) for key, value in expected.items()}


def test_the_exact_model_predicts_as_ours_with_its_hyperparameters():
    X, y, X_test, _ = hyperparameters.drawn(60, 5, 0)
    model = ExactGP(steps=3).fit(X, y)
    centre, noise = model.model.mean_module.constant.detach(), model.likelihood.noise.detach()[0]
    targets = torch.from_numpy(y)[:, None] - centre
    with torch.no_grad():
        ours = condition(model.model.covar_module, noise, torch.from_numpy(X), targets, torch.zeros(1).double())
        m, c = ours.predict(torch.from_numpy(X_test))
    mean, std = model.predict(X_test)
    np.testing.assert_allclose(mean, m[:, 0] + centre, rtol=1e-6)
    np.testing.assert_allclose(std, c[:, 0].sqrt(), rtol=1e-6)


def test_inducing_points_at_all_rows_come_close_to_the_exact_model():
    x = np.linspace(-2, 2, 40)[:, None]
    y = np.sin(2 * x[:, 0])
    mean, std = SVGP(40, 300, 40, 0.2, 0).fit(x, y).predict(x)
    assert np.abs(mean - y).max() < 0.3
    assert std.max() < 0.3


def test_the_drawn_function_has_its_covariance(monkeypatch):
    # E over the shift of 2 cos(w·x + b) cos(w·x′ + b) is cos(w·(x − x′)), whose mean over w is k(x − x′); of 200 000
    # cosines its standard error is at most .0022
    monkeypatch.setattr(neighbours, "FEATURES", 200_000)
    scales = torch.tensor([0.5, 2.0, 1.0])
    f = neighbours.Drawn(scales, torch.Generator().manual_seed(0))
    kernel = gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=3)
    kernel.lengthscale = scales
    apart = torch.tensor([[0.3, 0.0, 0.0], [0.0, 2.0, 0.0], [0.4, 1.0, -1.0]])
    with torch.no_grad():
        expected = kernel(apart, torch.zeros(1, 3)).to_dense()[:, 0]
    torch.testing.assert_close(torch.cos(apart @ f.w.T).mean(1), expected, atol=0.009, rtol=0)


def test_exponents_of_powers():
    found = [{"settings": {"rows": n}, "results": {"a": n**0.5, "b": 3.0}} for n in (10, 1000, 10**5)]
    assert neighbours.exponents(found, ["a", "b"]) == {"a": pytest.approx(0.5), "b": pytest.approx(0, abs=1e-12)}


def test_clocks_count_calls_and_are_taken_away():
    class Owner:
        def work(self):
            return 7

    own = Owner.work
    with neighbours.clocks((Owner, "work")) as spent:
        assert Owner().work() == 7
        Owner().work()
    assert len(spent["work"]) == 2
    assert Owner.work is own


def test_the_last_stage_comes_back():
    own = SASGPRegressor._sharpen
    with hyperparameters._without_the_last_stage():
        assert SASGPRegressor._sharpen is not own
    assert SASGPRegressor._sharpen is own


def test_steps_jump():
    # Without noise of .2, the target takes at most 2⁶ values: what is left around the mean of each group is the noise
    rows = regression.steps(20_000, 0)
    draw = np.random.default_rng(0)
    draw.normal(size=(20_000, 20))
    groups = (rows[:, :6] > draw.normal(0, 0.5, 6)) @ (1 << np.arange(6))
    within = [rows[groups == g, -1].std() for g in np.unique(groups) if (groups == g).sum() > 100]
    assert np.mean(within) == pytest.approx(0.2, rel=0.03)
