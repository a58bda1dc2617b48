"""encoder_noise="auto": a rule by the number of rows, recorded by `fit`, kept by files and checkpoints."""

import json
from itertools import pairwise

import numpy as np
import pytest
import torch
from starts import shorten_start

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM
from sasgp.errors import InputError
from sasgp.estimators import base, storage
from sasgp.models.build import auto_noise, noise_share

SETTINGS = {"max_epochs": 3, "random_state": 0}


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    shorten_start(monkeypatch, 2)


@pytest.fixture(scope="module")
def X():
    draw = np.random.default_rng(0)
    return np.sin(draw.normal(size=(60, 2)) @ draw.normal(size=(2, 50))) + 0.1 * draw.normal(size=(60, 50))


def same(one, other):
    pairs = zip(one.model_.state_dict().values(), other.model_.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs) and np.array_equal(one.embedding_, other.embedding_)


@pytest.fixture
def quarter(monkeypatch):
    """A rule whose answer is no default, so that a model that does not ask it is found out."""
    monkeypatch.setattr(base, "auto_noise", lambda n_rows, held: n_rows / 240)


def test_the_rule_is_1_for_few_rows_and_0_for_many():
    assert [auto_noise(n, held=False) for n in (2, 150, 1437, 10_000)] == [1.0] * 4
    assert [auto_noise(n, held=False) for n in (50_000, 60_000, 10**9)] == [0.0] * 3
    # Linear in log N: halfway at the geometric mean, √(10⁴ · 5·10⁴) = 22 361
    assert auto_noise(22_361, held=False) == pytest.approx(0.5, abs=1e-4)


def test_rows_that_are_held_near_a_layout_always_have_noise(X, monkeypatch):
    assert [auto_noise(n, held=True) for n in (2, 20_000, 10**6)] == [1.0] * 3
    monkeypatch.setattr(base, "auto_noise", lambda n_rows, held: 0.75 if held else 0.25)
    Z = X[:, :2]
    assert SASGP(**SETTINGS, init=Z).fit(X).encoder_noise_ == 0.25
    assert SASGP(**SETTINGS, init=Z, layout_weight=0.1).fit(X).encoder_noise_ == 0.75


def test_more_rows_never_get_more_noise():
    noises = [auto_noise(n, held=False) for n in range(2, 60_000, 100)]
    assert noises == sorted(noises, reverse=True)
    assert max(a - b for a, b in pairwise(noises)) < 0.01, "and no step: a few rows more change little"


@pytest.mark.parametrize("cls", [SASGP, GPLVM, BayesianGPLVM, VAE])
def test_fit_records_the_number_and_changes_no_setting(cls, X, quarter):
    model = cls(**SETTINGS).fit(X)
    assert model.encoder_noise == "auto"
    assert model.encoder_noise_ == 0.25  # 60 / 240
    assert model.model_.encoder_noise == 0.25 * noise_share(50, 2)
    assert same(model, cls(**SETTINGS, encoder_noise=0.25).fit(X))


def test_few_rows_get_what_1_gives_to_the_bit(X):
    assert same(SASGP(**SETTINGS).fit(X), SASGP(**SETTINGS, encoder_noise=1).fit(X))


def test_rows_held_out_for_early_stopping_do_not_count(X, quarter):
    model = SASGP(**SETTINGS, early_stopping=2, validation_fraction=0.2).fit(X)
    assert model.encoder_noise_ == 48 / 240


def test_a_number_is_recorded_as_it_is(X, quarter):
    for noise in (0, 0.5, np.float32(2)):
        model = SASGP(**SETTINGS, encoder_noise=noise).fit(X)
        assert (model.encoder_noise_, type(model.encoder_noise_)) == (float(noise), float)


def test_a_wide_model_that_chooses_its_dimensions_records_it(X, quarter):
    model = SASGP(**SETTINGS, n_components="auto").fit(X)
    assert (model.encoder_noise, model.encoder_noise_) == ("auto", 0.25)


def test_a_file_keeps_the_number_and_does_not_ask_the_rule_again(X, tmp_path, monkeypatch):
    monkeypatch.setattr(base, "auto_noise", lambda n_rows, held: 0.25)
    model = SASGP(**SETTINGS).fit(X)
    model.save(tmp_path / "m.safetensors")
    monkeypatch.setattr(base, "auto_noise", lambda n_rows, held: 0.75)  # as in a later version
    again = SASGP.load(tmp_path / "m.safetensors")
    assert (again.encoder_noise, again.encoder_noise_) == ("auto", 0.25)
    assert again.model_.encoder_noise == model.model_.encoder_noise
    assert same(again, model)
    for one, other in zip(model.reconstruct(X, return_std=True), again.reconstruct(X, return_std=True), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("wrong", ["auto", None, True])
def test_a_file_without_the_number_is_refused(X, tmp_path, wrong):
    path = tmp_path / "m.safetensors"
    SASGP(**SETTINGS).fit(X).save(path)
    header, tensors = storage.read(path)
    header["fitted"]["encoder_noise_"] = wrong
    storage.write(path, header, tensors)
    with pytest.raises(InputError, match="encoder_noise_ or layout_weight is no number"):
        SASGP.load(path)


def test_a_resumed_fit_ends_in_the_same_bits(X, tmp_path, quarter):
    def stop(model, record):
        if record["epoch"] == 2:
            raise KeyError

    with pytest.raises(KeyError):
        SASGP(**SETTINGS).fit(X, checkpoint=tmp_path / "c.pt", callback=stop)
    with pytest.raises(InputError, match=r"encoder_noise: 'auto' in the checkpoint, 0\.25 now"):
        SASGP(**SETTINGS, encoder_noise=0.25).fit(X, resume=tmp_path / "c.pt")
    model = SASGP(**SETTINGS).fit(X, resume=tmp_path / "c.pt")
    assert model.encoder_noise_ == 0.25
    assert same(model, SASGP(**SETTINGS).fit(X))


@pytest.mark.parametrize("value", ["auot", "1", -1, float("nan"), float("inf"), None, [1.0]])
def test_a_bad_value_is_one_clear_error(X, value):
    with pytest.raises(InputError) as error:
        SASGP(encoder_noise=value).fit(X)
    assert str(error.value) == (
        f"encoder_noise must be 'auto' or a number of at least 0. Got {value!r}. Leave it out, and the number of rows "
        "decides."
    )


def test_settings_are_json(X, tmp_path):
    SASGP(**SETTINGS).fit(X).save(tmp_path / "m.safetensors")
    header = json.loads(json.dumps(storage.read(tmp_path / "m.safetensors")[0]))
    assert (header["settings"]["encoder_noise"], header["fitted"]["encoder_noise_"]) == ("auto", 1.0)
