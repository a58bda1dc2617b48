"""The card that a notebook shows of a fitted estimator: its numbers, its picture, and text that stays text."""

import re

import numpy as np
import pandas as pd
import pytest
from cards import TAGS, Card
from chromium import HOSTILE
from sklearn import config_context
from sklearn.datasets import load_iris, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from starts import shorten_start

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM, SASGPClassifier, SASGPImputer, SASGPRegressor
from sasgp.estimators import card
from sasgp.gp import kernels
from sasgp.training import regression


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    shorten_start(monkeypatch, 20)
    monkeypatch.setattr(regression, "SHARP_STEPS", 5)


@pytest.fixture(scope="module")
def iris():
    return load_iris().data


def fitted(cls, X, **settings):
    return cls(max_epochs=3, random_state=0, **settings).fit(X)


def points(shown):
    """Points of the picture [N, 2]; y grows upwards."""
    (path,) = (attributes["d"] for tag, attributes in shown.elements if tag == "path")
    found = np.array([[float(x), -float(y)] for x, y in re.findall(r"M(\S+) (\S+?)h0", path)])
    return found[np.lexsort(found.T)]


def test_an_unfitted_estimator_has_the_diagram_alone():
    for cls in (SASGP, VAE, SASGPRegressor, SASGPClassifier, SASGPImputer):
        bundle = cls()._repr_mimebundle_()
        assert bundle["text/html"].startswith("<style>")
        assert bundle["text/plain"] == repr(cls())


def test_the_card_has_the_numbers_of_the_model(iris):
    model = fitted(SASGP, iris, noise="shared", early_stopping=2)
    html = model._repr_mimebundle_()["text/html"]
    shown, last = Card(html.partition("<style>")[0]), model.history_[-1]
    missed = card.percent(model.missed_share_)
    assert shown.lines == {
        "rows": "150",
        "features": "4",
        "latent space": "2 dimensions, bayesian",
        "noise": f"variance {model.noise_:.3g}",
        "lengthscale": f"{kernels.lengthscales(model.kernel_, 2)[0]:.3g}",
        "decoder": f"{model.support_size_} positions, which miss {missed} of the prior's variance",
        "epochs": f"3 in {last['seconds']:.3g} s",
        "loss": f"{last['loss']:.3g} nats per value, held out {last['held_out_loss']:.3g}".replace("-", "−"),
    }


def test_the_picture_is_the_latent_space(iris):
    model = fitted(SASGP, iris)
    Z = model.embedding_.astype(np.float64)
    found = points(Card(model._card()))
    # One unit for both axes: (p - p̄) = u (z - z̄), rounded to a tenth of a pixel
    u = np.ptp(found, 0).max() / np.ptp(Z, 0).max()
    np.testing.assert_allclose(np.sort(found - found.mean(0), 0), np.sort(u * (Z - Z.mean(0)), 0), atol=0.2)
    assert len(found) == 150


def test_the_picture_has_the_dimensions_that_the_decoder_uses_most(iris):
    model = fitted(SASGP, iris, n_components=4, kernel="rbf-ard")
    most = sorted(np.argsort(-model.relevance_)[:2])
    assert Card(model._card()).texts == [f"z{q}" for q in most]
    strip = Card(fitted(SASGP, iris, n_components=1)._card())
    assert strip.texts == ["z0"]
    # A bar of the histogram is "M x y v-height h width v height z"
    heights = np.array([float(h) for h in re.findall(r"v-(\S+?)h", dict(strip.elements)["path"]["d"])])
    counts = np.histogram(fitted(SASGP, iris, n_components=1).embedding_, card.N_BINS)[0]
    np.testing.assert_allclose(heights / heights.max(), counts / counts.max(), atol=1e-3)


@pytest.mark.parametrize("cls", [GPLVM, BayesianGPLVM, VAE])
def test_every_model_with_latents_has_a_card(cls, iris):
    lines = Card(fitted(cls, iris[:60])._card()).lines
    assert lines["rows"] == "60"
    assert ("lengthscale" in lines) == (cls is not VAE)
    assert ("inducing points" in lines.get("decoder", "")) == (cls is BayesianGPLVM)


def test_many_points_are_drawn_in_part():
    Z = np.random.default_rng(0).normal(size=(5000, 2))
    shown = Card(card.latent_picture(Z, (0, 1)))
    assert len(points(shown)) == card.MOST_POINTS
    assert f"{card.MOST_POINTS} of 5000 points" in card.latent_picture(Z, (0, 1))
    assert len(card.latent_picture(Z, (0, 1))) < 40_000


def test_latents_that_are_all_the_same_are_drawn():
    for Q in (1, 2):
        assert "nan" not in card.latent_picture(np.ones((5, Q)), range(Q))


def test_a_loaded_model_has_the_card_of_the_saved_one(iris, tmp_path):
    model = fitted(SASGP, iris)
    model.save(tmp_path / "model.safetensors")
    assert SASGP.load(tmp_path / "model.safetensors")._card() == model._card()


def test_a_callback_may_show_the_estimator_while_it_trains(iris):
    seen = []
    model = SASGP(max_epochs=2, random_state=0)
    model.fit(iris).fit(iris, callback=lambda model, record: seen.append(model._repr_mimebundle_()["text/html"]))
    assert [html.startswith("<style>") for html in seen] == [True, True]  # not the card of the fit before


def test_the_card_of_a_table_says_what_its_columns_hold():
    frame = pd.DataFrame({"a": np.linspace(0, 1, 60), "b": ["x", "y", "z"] * 20})
    frame.loc[:5, "b"] = None
    lines = Card(fitted(SASGP, frame)._card()).lines
    assert lines["features"] == "2 columns: 1 real, 1 category"
    # A number has one score and a category of three levels three: 6 x 3 of 60 x 4 are missing
    assert lines["missing"] == "7.5 % of the scores"


def test_a_regressor_shows_the_relevance_of_its_inputs():
    X, y = load_wine(return_X_y=True, as_frame=True)
    model = SASGPRegressor(max_epochs=3, random_state=0).fit(X, y)
    shown = Card(model._card())
    order = np.argsort(-model.relevance_)[: card.MOST_BARS]
    assert shown.lines["predictions"] == "from all rows, exactly"
    assert shown.lines["noise"] == f"standard deviation {model.noise_[0]:.3g}"
    assert shown.texts[2 : 2 * len(order) + 1 : 2] == [f"{model.relevance_[i]:.3g}" for i in order]
    widths = [float(a["width"]) for tag, a in shown.elements if tag == "rect"]
    np.testing.assert_allclose(
        np.array(widths) / widths[0], model.relevance_[order] / model.relevance_.max(), atol=0.01
    )
    assert shown.texts[-1] == f"… and {13 - card.MOST_BARS} more"


def test_a_deep_kernel_has_no_bars():
    X, y = load_wine(return_X_y=True)
    assert "svg" not in Card(SASGPRegressor(kernel="deep", max_epochs=2, random_state=0).fit(X, y)._card()).tags


def test_an_imputer_shows_how_well_columns_are_predicted():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 1))
    X = np.hstack([x, x + 0.5 * rng.normal(size=(300, 1)), rng.normal(size=(300, 1))])
    X[:30, 1] = np.nan
    model = SASGPImputer(random_state=0).fit(pd.DataFrame(X, columns=["cause", "effect", "other"]))
    shown = Card(model._card())
    assert shown.lines["missing"] == "3.33 % of the values"  # 30 of 900
    shares = dict(zip(shown.texts[1::2], map(float, shown.texts[2::2]), strict=True))
    # x explains Var x / (Var x + ¼) = 0.8 of the effect, and the effect as much of x
    assert shares["cause"] == pytest.approx(0.8, abs=0.06)
    assert shares["effect"] == pytest.approx(0.8, abs=0.06)
    assert shares["other"] < 0.05
    decoder = SASGPImputer(n_components=1, max_epochs=2, random_state=0).fit(X)
    assert Card(decoder._card()).lines["latent space"].startswith("1 dimension")


def test_names_stay_text():
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(40, len(HOSTILE))), columns=HOSTILE)
    classes = np.array(["<b>no</b>", "</dd><script>alert(1)</script>"])[(frame.iloc[:, 0] > 0).astype(int)]
    model = SASGPClassifier(max_epochs=2, random_state=0).fit(frame, classes)
    found = SASGPRegressor(max_epochs=2, random_state=0).fit(frame, pd.Series(frame.iloc[:, 0], name="<i>y</i>"))
    shown = [Card(one._card()) for one in (model, found, SASGPImputer(random_state=0).fit(frame))]
    for one in shown:
        assert one.tags <= TAGS
        assert not [name for name in one.attributes if name.startswith("on") or name == "href"]
    assert shown[0].lines["classes"] == f"2: {', '.join(sorted(set(classes)))}"
    assert shown[1].lines["target"] == "<i>y</i>"
    assert HOSTILE[3][:5] in " ".join(shown[1].texts)
    assert "half ?" in card.bars(np.ones(1), ["half \ud800"], "")


def test_scikit_learn_decides_whether_there_is_html(iris):
    model = fitted(SASGP, iris)
    with config_context(display="text"):
        assert set(model._repr_mimebundle_()) == {"text/plain"}
        assert not hasattr(model, "_repr_html_")
    pipeline = make_pipeline(StandardScaler(), model)
    assert "sasgp-card" not in pipeline._repr_html_()  # the diagram of a pipeline stays scikit-learn's


def test_numbers_are_written_for_people():
    assert [card.time_of(s) for s in (0.0386, 12.34, 99.6, 3700, 9000)] == [
        "0.0386 s",
        "12.3 s",
        "2 min",
        "62 min",
        "2 h 30 min",
    ]
    assert [card.percent(s) for s in (0, 4e-16, 0.0123, 1)] == ["0 %", "less than 0.001 %", "1.23 %", "100 %"]
    assert [card.number(v) for v in (None, -0.4412, 1234567.0)] == ["–", "−0.441", "1.23e+06"]
    assert card.several([1.0, 1.0001]) == "1"
    assert card.several([1, 2, 3, 4, 5]) == "1 to 5"
