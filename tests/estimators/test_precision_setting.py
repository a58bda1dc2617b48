"""precision="auto", "float32" and "mixed": recorded by `fit`, kept by files and checkpoints, old ones included."""

import numpy as np
import polars as pl
import pytest
import torch
from starts import shorten_start
from torch import nn

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM
from sasgp.errors import InputError
from sasgp.estimators import base, storage
from sasgp.training import checkpoint

SETTINGS = {"max_epochs": 4, "batch_size": 20, "active_set_size": 8, "random_state": 0}


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    shorten_start(monkeypatch, 2)
    monkeypatch.setattr(checkpoint, "SHARE", np.inf)  # save after every epoch, however short


@pytest.fixture(scope="module")
def X():
    draw = np.random.default_rng(0)
    return np.sin(draw.normal(size=(60, 2)) @ draw.normal(size=(2, 70))) + 0.1 * draw.normal(size=(60, 70))


def hardware(monkeypatch, answer):
    monkeypatch.setattr(base, "auto_precision", lambda *asked: answer)


def same(one, other):
    pairs = zip(one.model_.state_dict().values(), other.model_.state_dict().values(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs) and np.array_equal(one.embedding_, other.embedding_)


def interrupted(X, path, **settings):
    def stop(model, record):
        if record["epoch"] == 2:
            raise KeyError

    with pytest.raises(KeyError):
        SASGP(**SETTINGS, **settings).fit(X, checkpoint=path, callback=stop)


@pytest.mark.parametrize("cls", [SASGP, GPLVM, BayesianGPLVM, VAE])
def test_fit_records_the_choice_and_changes_no_setting(cls, X, monkeypatch):
    hardware(monkeypatch, "mixed")
    model = cls(max_epochs=2, random_state=0).fit(X)
    assert (model.precision, model.precision_) == ("auto", "mixed")
    assert model.model_.encoder.mixed
    assert all(value.dtype in (torch.float32, torch.int64) for value in model.model_.state_dict().values())
    assert same(model, cls(max_epochs=2, random_state=0, precision="mixed").fit(X))
    assert not same(model, cls(max_epochs=2, random_state=0, precision="float32").fit(X))


def test_tables_stay_in_float32_unless_mixed_is_asked_for(X, monkeypatch):
    hardware(monkeypatch, "mixed")
    table = pl.DataFrame(X * 10.0 ** (np.arange(70) % 7 - 3), schema=[f"c{d}" for d in range(70)])
    for columns, asked, chosen in (({}, "auto", "float32"), ({}, "mixed", "mixed"), (None, "auto", "mixed")):
        rows = table if columns is not None else X
        assert SASGP(**SETTINGS, columns=columns, precision=asked).fit(rows).precision_ == chosen


def test_auto_without_the_hardware_is_float32_to_the_bit(X, monkeypatch):
    hardware(monkeypatch, "float32")
    model = SASGP(**SETTINGS).fit(X)
    assert model.precision_ == "float32"
    assert same(model, SASGP(**SETTINGS, precision="float32").fit(X))


def test_latents_of_new_rows_are_float32(X):
    # Rounded to bfloat16, a row in company could differ from the row alone
    model = SASGP(**SETTINGS, precision="mixed").fit(X)
    encoder = model.model_.encoder
    standardised = (torch.as_tensor(X, dtype=torch.float32) - encoder.mean) / encoder.scale
    with torch.no_grad():
        np.testing.assert_array_equal(model.transform(X), encoder.mu(standardised).numpy())


def test_a_module_of_the_user_may_be_trained_so(X):
    encoder = nn.Sequential(nn.Linear(70, 16), nn.ReLU(), nn.Linear(16, 2))
    model = SASGP(**SETTINGS, latents="point", encoder=encoder, precision="mixed").fit(X)
    assert model.model_.encoder.mixed
    assert np.isfinite(model.embedding_).all()
    assert SASGP(**SETTINGS, latents="point", encoder=encoder).fit(X).precision_ == "float32"  # unless asked for


# ---- files ----


def test_a_file_keeps_the_choice(X, tmp_path, monkeypatch):
    model = SASGP(**SETTINGS, precision="mixed").fit(X)
    model.save(tmp_path / "m.safetensors")
    hardware(monkeypatch, "float32")
    again = SASGP.load(tmp_path / "m.safetensors")
    assert (again.precision, again.precision_) == ("mixed", "mixed")
    assert same(again, model)
    np.testing.assert_array_equal(again.transform(X), model.transform(X))


@pytest.mark.parametrize("cls", [SASGP, VAE])
def test_a_file_from_before_there_was_a_choice(cls, X, tmp_path):
    path = tmp_path / "m.safetensors"
    model = cls(max_epochs=2, random_state=0, precision="float32").fit(X)
    model.save(path)
    header, tensors = storage.read(path)
    del header["settings"]["precision"], header["fitted"]["precision_"]
    storage.write(path, header, tensors)
    again = cls.load(path)
    assert (again.precision, again.precision_) == ("auto", "float32")
    assert same(again, model)


def test_a_file_with_another_precision_is_refused(X, tmp_path):
    path = tmp_path / "m.safetensors"
    SASGP(**SETTINGS).fit(X).save(path)
    header, tensors = storage.read(path)
    header["fitted"]["precision_"] = "float16"
    storage.write(path, header, tensors)
    with pytest.raises(InputError, match="its precision_ is none that a model has"):
        SASGP.load(path)


# ---- checkpoints ----


def test_a_resumed_fit_ends_in_the_same_bits(X, tmp_path):
    interrupted(X, tmp_path / "c.pt", precision="mixed")
    model = SASGP(**SETTINGS, precision="mixed").fit(X, resume=tmp_path / "c.pt")
    assert model.history_[0]["step"] < model.history_[-1]["step"]
    assert same(model, SASGP(**SETTINGS, precision="mixed").fit(X))


def test_a_run_goes_on_as_it_began_on_other_hardware(X, tmp_path, monkeypatch):
    hardware(monkeypatch, "mixed")
    whole = SASGP(**SETTINGS).fit(X)
    interrupted(X, tmp_path / "c.pt")
    hardware(monkeypatch, "float32")
    model = SASGP(**SETTINGS).fit(X, resume=tmp_path / "c.pt")
    assert model.precision_ == "mixed"
    assert same(model, whole)


def test_another_precision_does_not_go_on(X, tmp_path):
    interrupted(X, tmp_path / "c.pt", precision="mixed")
    with pytest.raises(InputError, match="precision: 'mixed' in the checkpoint, 'float32' now"):
        SASGP(**SETTINGS, precision="float32").fit(X, resume=tmp_path / "c.pt")


def test_a_checkpoint_from_before_there_was_a_choice_goes_on_in_float32(X, tmp_path, monkeypatch):
    path = tmp_path / "c.pt"
    interrupted(X, path, precision="float32")
    saved = checkpoint.read(path)
    del saved["fingerprint"]["precision"]
    checkpoint.write(path, saved)
    hardware(monkeypatch, "mixed")
    with pytest.raises(InputError, match="precision: 'float32' in the checkpoint, 'mixed' now"):
        SASGP(**SETTINGS, precision="mixed").fit(X, resume=path)
    model = SASGP(**SETTINGS).fit(X, resume=path)
    assert model.precision_ == "float32"
    assert same(model, SASGP(**SETTINGS, precision="float32").fit(X))


# ---- errors ----


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"precision": "bf16"}, "precision must be one of 'auto', 'float32', 'mixed'. Got 'bf16'."),
        (
            {"precision": "mixed", "dtype": "float64"},
            "precision='mixed' computes the products of an encoder network partly with bfloat16, around float32. Got "
            "dtype='float64'. Use precision='auto', which chooses what fits.",
        ),
        (
            {"precision": "mixed", "encoder": "table"},
            "precision='mixed' computes the products of an encoder network partly with bfloat16, around float32. Got "
            "encoder='table', which has none. Use precision='auto', which chooses what fits.",
        ),
    ],
)
def test_what_does_not_fit_is_one_clear_error(X, settings, message):
    with pytest.raises(InputError) as error:
        SASGP(**settings).fit(X)
    assert str(error.value) == message
    assert error.value.argument == "precision"
