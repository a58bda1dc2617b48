"""Damaged and made-up model files: each loads as what it says, or is refused in one sentence."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pytest
import torch
from mutation import attempt, changed, damaged, generator, other_tensors, walls

import sasgp
from sasgp.errors import InputError
from sasgp.estimators import storage

FEW = 12


def numbers(n=40, d=3):
    return np.random.default_rng(0).normal(size=(n, d))


def mixed():
    a, b = np.random.default_rng(0).normal(size=(2, 60))
    return pl.DataFrame(
        {
            "length": 40 + 5 * a,
            "price": np.exp(2 + a),
            "visits": np.rint(np.exp(b)).astype(int),
            "smokes": a > 0.3,
            "grade": np.clip(np.rint(3 + b), 1, 5).astype(int),
            "island": np.array(["Dream", "Biscoe", "Torgersen"])[np.clip(np.rint(a + 1), 0, 2).astype(int)],
            "born": pl.Series(np.rint(9000 + 400 * a).astype(np.int32)).cast(pl.Date),
        }
    )


def holes():
    X = numbers()
    X[::5, 1] = np.nan
    return X


MODELS: dict[str, Callable[[], Any]] = {
    "rows": lambda: sasgp.SASGP(max_epochs=1, random_state=0, noise="local").fit(numbers()),
    "table": lambda: sasgp.SASGP(max_epochs=1, random_state=0).fit(mixed()),
    "holes": lambda: sasgp.SASGP(max_epochs=1, random_state=0, kernel="matern32").fit(holes()),
    "images": lambda: sasgp.SASGP(max_epochs=1, random_state=0, encoder="conv").fit(numbers(40, 64).reshape(40, 8, 8)),
    "exact": lambda: sasgp.GPLVM(max_epochs=1, random_state=0, encoder="table", init=numbers()[:, :2]).fit(numbers()),
    "inducing": lambda: sasgp.BayesianGPLVM(max_epochs=1, random_state=0, n_inducing=8).fit(numbers()),
    "regression": lambda: sasgp.SASGPRegressor(max_epochs=1, random_state=0).fit(
        mixed(), np.exp(mixed()["length"] / 9)
    ),
    "classes": lambda: sasgp.SASGPClassifier(max_epochs=1, random_state=0, prediction="nearest", neighbours=20).fit(
        holes(), np.arange(40) % 3
    ),
    "network": lambda: sasgp.VAE(max_epochs=1, random_state=0, variance="head").fit(numbers()),
}


@pytest.fixture(scope="module", params=MODELS)
def file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    model = MODELS[request.param]()
    model.save(path)
    return type(model), path


def parts(path):
    header, tensors = storage.read(path)
    header["sasgp"] = header["settings"]["device"] = None  # the version, and the device, which `load` is told
    settings, fitted = header["settings"], header["fitted"]  # older files do not have all of them
    settings.setdefault("precision", "auto")
    for name, value in {"missing_share_": 0.0, "precision_": "float32", "dtype_": settings.get("dtype")}.items():
        fitted.setdefault(name, value)
    return header, {
        name: (str(value.dtype), tuple(value.shape), value.flatten().view(torch.uint8).tolist())
        for name, value in tensors.items()
    }


def test_files_with_damaged_bytes_are_refused(file, tmp_path, seed):
    cls, path = file
    content = path.read_bytes()
    wrong = damaged(content, generator("bytes", seed))
    target = tmp_path / "model.safetensors"
    target.write_bytes(wrong)
    if wrong != content:
        with walls(), pytest.raises(InputError):
            cls.load(target)


@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Columns have values")  # that the file made up
def test_files_with_a_right_checksum_load_as_what_they_say_or_are_refused(file, tmp_path, seed):
    cls, path = file
    draw = generator(f"parts {cls.__name__}", seed)
    header, tensors = storage.read(path)
    for _ in range(draw.choice([1, 1, 2])):
        header, tensors = (
            (changed(header, draw), tensors) if draw.random() < 0.6 else (header, other_tensors(tensors, draw))
        )
    target, again = tmp_path / "model.safetensors", tmp_path / "again.safetensors"
    try:
        storage.write(target, header, tensors)
    except InputError:  # such as a number that JSON does not have
        return
    with walls():
        model = attempt(lambda: cls.load(target))
        if model is None:
            return
        model.save(again)
        assert parts(again) == parts(target)
        attempt(lambda: use(model))


def use(model):
    """All that a loaded model is for."""
    if isinstance(model, sasgp.SASGPRegressor | sasgp.SASGPClassifier):
        model.predict(holes() if isinstance(model, sasgp.SASGPClassifier) else mixed())
        return
    Z = model.embedding_[:3]
    rows = model.sample(3, random_state=0)
    model.predict(Z, return_std=True)
    model.transform(rows)
    model.score_samples(rows)


def test_an_intact_file_passes(file, tmp_path):
    cls, path = file
    again = tmp_path / "again.safetensors"
    with walls():
        model = cls.load(path)
        model.save(again)
        use(model)
    assert parts(again) == parts(path)


@pytest.mark.parametrize("shape", [[2, 2], [1.0, 3.0], "13", [-1, -3], []])
def test_a_shape_of_images_that_does_not_fit_is_refused(shape, tmp_path):
    path = tmp_path / "model.safetensors"
    sasgp.SASGP(max_epochs=1, random_state=0).fit(numbers()).save(path)  # of three features
    header, tensors = storage.read(path)
    header["fitted"]["image_shape_"] = shape
    storage.write(path, header, tensors)
    with pytest.raises(InputError, match="its image_shape does not fit its features"):
        sasgp.SASGP.load(path)


@pytest.mark.parametrize("wrong", [2.5, "two", True, None])
def test_levels_of_different_types_are_refused(wrong, tmp_path):
    path = tmp_path / "model.safetensors"
    sasgp.SASGP(max_epochs=1, random_state=0).fit(mixed()).save(path)
    header, tensors = storage.read(path)
    grade = next(column for column in header["columns"]["columns"] if column["name"] == "grade")
    grade["levels"][1] = wrong  # between whole numbers
    storage.write(path, header, tensors)
    with pytest.raises(InputError, match="its columns are none that a table has"):
        sasgp.SASGP.load(path)
