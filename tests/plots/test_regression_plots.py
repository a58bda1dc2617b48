"""Figures of predictions: what they show is what the arrays say, and partial dependence is scikit-learn's own."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.inspection import partial_dependence as of_sklearn

from sasgp import InputError, SASGPClassifier, SASGPRegressor, plots


@pytest.fixture(scope="module")
def model():
    """A regressor of two inputs, of which the first matters, and its rows."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sasgp.training.regression.SHARP_STEPS", 5)
        draw = np.random.default_rng(0)
        X = draw.uniform(-2, 2, (60, 2))
        return SASGPRegressor(max_epochs=20, random_state=0).fit(X, np.sin(2 * X[:, 0]) + 0.1 * draw.normal(size=60)), X


def bars(axes, side):
    """The width or the height of all bars."""
    return [getattr(bar, f"get_{side}")() for bar in axes.patches]


def lines(axes):
    return [line.get_xydata() for line in axes.get_lines() if len(line.get_xydata())]


def test_predicted_shows_every_row_and_says_how_many_are_inside():
    y, mean = np.arange(5.0), np.array([0.0, 1.5, 2.0, 2.5, 9.0])
    figure = plots.predicted(y, mean, mean - 1, mean + 1, name="price $", level=0.8, title="t")
    points = next(line for line in lines(figure.axes[0]) if len(line) == 5)
    np.testing.assert_array_equal(points, np.column_stack([y, mean]))
    words = figure.axes[0].get_legend().get_texts()[0].get_text()
    assert words == "80 % intervals: 80.0 % of the observations are inside"  # |9 − 4| > 1, all others are near
    assert figure.axes[0].get_xlabel() == r"observed price \$"
    low, high = figure.axes[0].get_xlim()
    assert (low, high) == figure.axes[0].get_ylim()
    assert low < -1
    assert high > 10
    with pytest.raises(InputError, match="one number per row"):
        plots.predicted(y, mean[:3])


def test_input_relevance_sorts_the_inputs():
    figure = plots.input_relevance([0.1, 2.0, 0.5], ["a", "b", "c"])
    axes = figure.axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["b", "c", "a"]
    assert bars(axes, "width") == [2.0, 0.5, 0.1]
    many = plots.input_relevance(np.arange(1.0, 101), [f"x{i}" for i in range(100)]).axes[0]
    assert len(many.patches) == 30
    assert "the 30 largest of 100" in many.get_xlabel()
    with pytest.raises(InputError, match="one number for each of the 2 names"):
        plots.input_relevance([1.0], ["a", "b"])


def test_confusion_counts_each_pair():
    axes = plots.confusion(["a", "a", "a", "b"], ["a", "b", "a", "c"], name="kind").axes[0]
    cells = {text.get_position(): text.get_text() for text in axes.texts}
    # x is the predicted class, y the observed one
    assert cells == {(0, 0): "2", (1, 0): "1", (2, 1): "1"}
    shares = axes.images[0].get_array()
    np.testing.assert_allclose(shares, [[2 / 3, 1 / 3, 0], [0, 0, 1], [0, 0, 0]])
    assert axes.get_ylabel() == "observed kind"


def test_reliability_is_the_share_of_right_rows_in_each_part():
    # Five rows at .95, of which four are right, and two at .55, of which one is
    figure = plots.reliability([1, 1, 1, 1, 0, 1, 0], [0.95] * 5 + [0.55] * 2)
    points = next(line for line in lines(figure.axes[0]) if not np.allclose(line[:, 0], line[:, 1]))
    np.testing.assert_allclose(points, [[0.55, 0.5], [0.95, 0.8]])
    # (5 · .15 + 2 · .05) / 7 = .121
    assert "calibration error 0.121" in [text.get_text() for text in figure.axes[0].texts]
    assert bars(figure.axes[1], "height") == [0, 0, 0, 0, 0, 2, 0, 0, 0, 5]
    with pytest.raises(InputError, match="one value in"):
        plots.reliability([1.0], [3.0])


def test_partial_dependence_is_that_of_scikit_learn_with_a_band(model):
    regressor, X = model
    axes = plots.partial_dependence(regressor, X, [0, "x1"]).axes[0]
    found = max(lines(axes), key=len)
    grid = found[:, 0]
    expected = of_sklearn(regressor, X, [0], custom_values={0: grid})
    np.testing.assert_allclose(found[:, 1], expected["average"][0], rtol=1e-6)
    # The band is two standard deviations wide to either side, averaged over the rows
    at = X.copy()
    at[:, 0] = grid[3]
    mean, std = regressor.predict(at, return_std=True)
    band = next(part for part in axes.collections if hasattr(part, "get_paths") and len(part.get_paths()) == 1)
    corners = band.get_paths()[0].vertices
    here = corners[np.isclose(corners[:, 0], grid[3])][:, 1]
    np.testing.assert_allclose([here.min(), here.max()], mean.mean() + 2 * std.mean() * np.array([-1, 1]), rtol=1e-6)


def test_partial_dependence_of_a_table_has_bars_for_levels(monkeypatch):
    monkeypatch.setattr("sasgp.training.regression.SHARP_STEPS", 5)
    draw = np.random.default_rng(0)
    town = draw.integers(3, size=60)
    frame = pl.DataFrame({"town": np.array(["Aa", "Bb", "Cc"])[town], "size": draw.uniform(0, 9, 60)})
    frame = frame.with_columns(pl.when(pl.int_range(60) == 5).then(None).otherwise("size").alias("size"))
    y = 3.0 * town + 0.1 * draw.normal(size=60)
    regressor = SASGPRegressor(max_epochs=20, random_state=0).fit(frame, y)
    figure = plots.partial_dependence(regressor, frame, ["town", "size"], n_rows=60)
    expected = [regressor.predict(frame.with_columns(town=pl.lit(level))).mean() for level in ("Aa", "Bb", "Cc")]
    np.testing.assert_allclose(bars(figure.axes[0], "height"), expected, rtol=1e-6)
    # pandas, with an index that is no row number, and fewer rows than there are
    some = np.sort(np.random.default_rng(0).permutation(60)[:40])
    rows = pd.DataFrame(frame.to_dict(as_series=False), index=np.arange(60)[::-1])
    figure = plots.partial_dependence(regressor, rows, ["town"], n_rows=40)
    expected = [regressor.predict(frame[some].with_columns(town=pl.lit(level))).mean() for level in ("Aa", "Bb", "Cc")]
    np.testing.assert_allclose(bars(figure.axes[0], "height"), expected, rtol=1e-6)
    classifier = SASGPClassifier(max_epochs=5, random_state=0).fit(frame, np.array(["x", "y", "z"])[town])
    figure = plots.partial_dependence(classifier, frame, ["town", "size"], n_rows=60)
    shown = [line for line in lines(figure.axes[0]) if len(line) == 3]
    probabilities = classifier.predict_proba(frame.with_columns(town=pl.lit("Bb"))).mean(0)
    np.testing.assert_allclose([line[1, 1] for line in shown], probabilities, rtol=1e-6)


def test_partial_dependence_of_a_few_whole_numbers_has_ticks_at_these(monkeypatch):
    monkeypatch.setattr("sasgp.training.regression.SHARP_STEPS", 5)
    draw = np.random.default_rng(0)
    X = np.column_stack([draw.integers(1, 3, 60), draw.uniform(0, 9, 60)])  # 1 or 2, not 1.0, 1.2, 1.4, …
    regressor = SASGPRegressor(max_epochs=5, random_state=0).fit(X, X[:, 0] + 0.1 * draw.normal(size=60))
    axes = plots.partial_dependence(regressor, X, [0]).axes[0]
    assert [label.get_text() for label in axes.get_xticklabels()] == ["1", "2"]


def test_partial_dependence_needs_inputs_that_are_there(model):
    regressor, X = model
    with pytest.raises(InputError, match=r"There is no input 'x9'\. There are x0, x1"):
        plots.partial_dependence(regressor, X, ["x9"])
    with pytest.raises(InputError, match="from 0 to 1"):
        plots.partial_dependence(regressor, X, [2])
    with pytest.raises(InputError, match="at least one input"):
        plots.partial_dependence(regressor, X, [])
