"""`neighbours` and `data` of GP decoders: the numbers, files on disk and saved models, and every wrong use."""

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch.utils.data import TensorDataset

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM
from sasgp.errors import InputError
from sasgp.gp.row_sums import condition as given_rows

N = 240
FAST = {"max_epochs": 2, "random_state": 0}


@pytest.fixture(scope="module")
def X():
    return load_digits().data / 16


@pytest.fixture(scope="module")
def model(X):
    return SASGP(n_components=4, dtype="float64", support_size=20, **FAST).fit(X[:N])


def exact(model, X, Z):
    """Moments from all training rows at once."""
    Z_train, X, Z = (torch.as_tensor(part, dtype=model._dtype) for part in (model.embedding_, X, Z))
    posterior = given_rows(model.kernel_, model.model_.noise, Z_train, X, model.model_.mean, model.model_.scales)
    mean, var = posterior.predict(Z)
    return mean.numpy(), var.sqrt().expand_as(mean).numpy()


@pytest.mark.parametrize(
    "estimator",
    [
        SASGP(dtype="float64", **FAST),
        SASGP(dtype="float64", noise="feature", kernel="rbf-ard", **FAST),
        SASGP(dtype="float64", early_stopping=1, latents="point", **FAST),
        SASGP(dtype="float64", encoder="table", **FAST),
        GPLVM(dtype="float64", **FAST),
        BayesianGPLVM(dtype="float64", n_inducing=10, **FAST),
    ],
    ids=["sas", "feature noise", "early stopping", "table", "exact", "inducing"],
)
def test_with_all_rows_every_gp_decoder_is_the_exact_one(estimator, X):
    train, test = X[:80], X[80:90] if estimator.encoder != "table" else X[:3]
    estimator.fit(train)
    how = {"neighbours": 80, "data": train}
    Z = estimator.transform(test)
    mean, std = exact(estimator, train, Z)
    for found in (estimator.predict(Z, True, **how), estimator.reconstruct(test, True, **how)):
        np.testing.assert_allclose(found[0], mean, atol=1e-8)
        np.testing.assert_allclose(found[1], std, atol=1e-8)
    expected = -0.5 * (np.log(2 * np.pi * std**2) + ((test - mean) / std) ** 2).sum(1)
    np.testing.assert_allclose(estimator.score_samples(test, n_samples=0, **how), expected, rtol=1e-8)


def test_a_few_near_rows_are_closer_to_all_rows_than_a_few_random_ones(model, X):
    Z = model.transform(X[N:])
    mean, _ = exact(model, X[:N], Z)
    near = np.abs(model.predict(Z, neighbours=20, data=X[:N]) - mean).mean()
    assert near < 0.5 * np.abs(model.predict(Z) - mean).mean()  # from 20 random rows


def test_results_without_neighbours_stay_as_they_are(model, X):
    mean, std = model.predict(model.embedding_[:5], return_std=True)
    m, var = model.posterior_.predict(torch.as_tensor(model.embedding_[:5]))
    np.testing.assert_array_equal(mean, m)
    np.testing.assert_array_equal(std, var.sqrt().expand_as(m))
    assert np.isfinite(model.score_samples(X[N : N + 2])).all()


def test_rows_may_be_in_any_form_that_fit_takes(X, tmp_path):
    rows = (16 * X[:N]).astype(np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    model = SASGP(**FAST).fit(rows)
    Z = model.embedding_[:7]
    expected = model.predict(Z, neighbours=5, data=rows)
    for data in (
        np.load(tmp_path / "rows.npy", mmap_mode="r"),
        rows.astype(np.float64),
        rows.tolist(),
        torch.from_numpy(rows),
        TensorDataset(torch.from_numpy(rows)),
    ):
        np.testing.assert_array_equal(model.predict(Z, neighbours=5, data=data), expected)


def test_a_float32_model_takes_its_rows_in_either_precision(X):
    rows = X[:50] / 3  # most of which float32 has to round
    model = SASGP(**FAST).fit(rows)
    found = [model.predict(model.embedding_[:2], neighbours=5, data=data) for data in (rows, rows.astype(np.float32))]
    np.testing.assert_array_equal(*found)


def test_rows_of_a_large_file_stay_on_disk(model, X, tmp_path, monkeypatch):
    np.save(tmp_path / "rows.npy", X[:N])
    monkeypatch.setattr("sasgp.data.rows.POOL_BYTES", 1000)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", 64 * 50)
    on_disk = np.load(tmp_path / "rows.npy", mmap_mode="r")
    how = {"return_std": True, "neighbours": 9}
    for found, expected in zip(
        model.reconstruct(X[N : N + 60], data=on_disk, **how),
        model.reconstruct(X[N : N + 60], data=X[:N], **how),
        strict=True,
    ):
        np.testing.assert_allclose(found, expected, atol=1e-12)


def test_results_go_to_files(model, X, tmp_path):
    how = {"neighbours": 9, "data": X[:N]}
    outs = tmp_path / "mean.npy", tmp_path / "std.npy"
    mean, _ = model.reconstruct(X[N : N + 5], True, out=outs, **how)
    assert isinstance(mean, np.memmap)
    np.testing.assert_array_equal(np.load(outs[0]), model.reconstruct(X[N : N + 5], **how))
    scores = model.score_samples(X[N : N + 5], n_samples=0, out=tmp_path / "scores.npy", **how)
    np.testing.assert_array_equal(scores, model.score_samples(X[N : N + 5], n_samples=0, **how))


def test_a_saved_model_knows_its_rows(model, X, tmp_path):
    model.save(tmp_path / "model.safetensors")
    again = SASGP.load(tmp_path / "model.safetensors")
    Z = model.embedding_[:5]
    np.testing.assert_array_equal(
        again.predict(Z, neighbours=9, data=X[:N]), model.predict(Z, neighbours=9, data=X[:N])
    )
    with pytest.raises(InputError, match="other values"):
        again.predict(Z, neighbours=9, data=X[1 : N + 1])


def test_chosen_dimensions_have_their_rows_too(X):
    # With all rows near and every row a position, both are the exact Gaussian process
    model = SASGP(n_components="auto", **FAST).fit(X[:60])
    Z = model.embedding_[:3]
    for near, all_rows in zip(model.predict(Z, True, neighbours=60, data=X[:60]), model.predict(Z, True), strict=True):
        np.testing.assert_allclose(near, all_rows, atol=1e-6)


# ---------------------------------------------------------------------------------------------------- bad input


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "neighbours without data": ({"neighbours": 5}, "data", "needs the training rows.*Pass them as data"),
    "data without neighbours": ({"data": "rows"}, "data", "Pass neighbours=128 with them"),
    "more neighbours than rows": ({"neighbours": N + 1, "data": "rows"}, "neighbours", f"from 1 to {N}.*Got {N + 1}"),
    "no neighbours": ({"neighbours": 0, "data": "rows"}, "neighbours", "at least 1. Got 0"),
    "a fraction": ({"neighbours": 2.5, "data": "rows"}, "neighbours", "whole number.*Got 2.5"),
    "other values": ({"neighbours": 5, "data": "others"}, "data", f"the {N} rows.*other values"),
    "another order": ({"neighbours": 5, "data": "reversed"}, "data", "in their order.*other values"),
    "fewer rows": ({"neighbours": 5, "data": "fewer"}, "data", f"the {N} rows.*Got {N - 1} rows"),
    "other features": ({"neighbours": 5, "data": "narrow"}, "data", "63 features"),
    "missing values": ({"neighbours": 5, "data": "missing"}, "data", "NaN"),
}


@pytest.mark.parametrize("method", ["predict", "reconstruct", "score_samples"])
@pytest.mark.parametrize("case", WRONG)
def test_wrong_use_is_one_clear_error(model, X, case, method):
    wrong, argument, message = WRONG[case]
    rows = X[:N]
    data = {
        "rows": rows,
        "others": rows + 0.01,
        "reversed": rows[::-1],
        "fewer": rows[1:],
        "narrow": rows[:, 1:],
        "missing": np.where(rows == 0, np.nan, rows),
    }
    how = {name: data[value] if name == "data" else value for name, value in wrong.items()}
    if method == "score_samples":
        how["n_samples"] = 0
    with pytest.raises(InputError, match=message) as info:
        getattr(model, method)(model.embedding_[:2] if method == "predict" else X[N : N + 2], **how)
    assert info.value.argument == argument
    assert "\n" not in str(info.value)


@pytest.mark.parametrize("n_samples", [None, 4])
def test_scores_from_neighbours_are_not_integrated(model, X, n_samples):
    with pytest.raises(InputError, match=f"Pass n_samples=0 instead of {n_samples or 16}") as info:
        model.score_samples(X[:2], n_samples=n_samples, neighbours=5, data=X[:N])
    assert info.value.argument == "n_samples"


def test_only_gaussian_processes_have_nearest_rows():
    with pytest.raises(TypeError, match="neighbours"):
        VAE().predict([[0.0, 0.0]], neighbours=5)  # type: ignore[call-arg]
