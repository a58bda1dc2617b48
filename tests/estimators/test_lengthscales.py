"""After training, lengthscales are shortened as long as the bound on the evidence of all rows grows."""

import copy

import gpytorch.kernels as gpk
import numpy as np
import pytest
import torch

from sasgp import GPLVM, SASGP
from sasgp.estimators import all_rows
from sasgp.estimators.all_rows import SHORTENED, SHORTER, AllRows
from sasgp.gp import kernels

SETTINGS = {"max_epochs": 15, "active_set_size": 20, "batch_size": 100, "random_state": 0, "dtype": "float64"}


@pytest.fixture(scope="module")
def data():
    """Rows on a wavy surface, of which 20 at a time show less than 300 do."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(300, 2))
    return np.sin(3 * Z @ rng.normal(size=(2, 12))) + 0.1 * rng.normal(size=(300, 12))


def unshortened(monkeypatch, X, **settings):
    with monkeypatch.context() as patch:
        patch.setattr(AllRows, "_shorten_lengthscales", lambda *_: None)
        return SASGP(**SETTINGS | settings).fit(X)


def length(model):
    return kernels.lengthscales(model.kernel_, 2)


@pytest.mark.parametrize("kernel", ["rbf", "rbf-ard", "matern32"])
def test_the_bound_on_all_rows_decides(monkeypatch, data, kernel):
    # With 12 features the mixtures are a rotation of all of them, so the bound is that of the data: by `evidence`, with
    # every row a position, it is exact. The chosen factor beats the next one and the one before
    plain = unshortened(monkeypatch, data, kernel=kernel, support_size=None)
    model = SASGP(**SETTINGS, kernel=kernel, support_size=None).fit(data)
    steps = np.log(np.divide(length(model), length(plain))) / np.log(SHORTER)
    n = round(steps[0])
    np.testing.assert_allclose(steps, n, atol=1e-9)
    assert 1 <= n < SHORTENED
    found = []
    for more in (n - 1, n, n + 1):
        one = copy.deepcopy(plain)
        kernels.scale_lengthscales(one.kernel_, SHORTER**more)
        found.append(one.evidence(data, Z=one.embedding_).mean)
    assert found[1] > max(found[0], found[2])
    # Nothing else has changed, and the decoder is that of the new kernel
    np.testing.assert_array_equal(model.embedding_, plain.embedding_)
    np.testing.assert_array_equal(model.noise_, plain.noise_)
    assert model.kernel_.outputscale == plain.kernel_.outputscale
    assert kernels.lengthscales(model.posterior_.kernel, 2) == pytest.approx(length(model), rel=1e-12)


def test_lengthscales_that_are_not_learned_stay(data):
    kernel = gpk.ScaleKernel(gpk.RBFKernel()).double()
    kernel.base_kernel.lengthscale = 2.5
    kernel.base_kernel.raw_lengthscale.requires_grad_(False)
    model = SASGP(**SETTINGS, kernel=kernel).fit(data)
    assert length(model) == pytest.approx([2.5, 2.5], rel=1e-6)


def test_of_many_rows_some_are_mixed_and_keep_their_latents(monkeypatch, data):
    model = SASGP(**SETTINGS).fit(data)
    rows, Z = model._rows(data), torch.as_tensor(model.embedding_)
    everything, same = model._mixed(rows, Z)
    centred = model.model_.centred(torch.as_tensor(data)).detach().numpy()
    Q = np.linalg.lstsq(centred, everything.array, rcond=None)[0]
    np.testing.assert_allclose(Q.T @ Q, np.eye(Q.shape[1]), atol=1e-10)  # orthonormal mixtures of the centred features
    assert torch.equal(same, Z)
    monkeypatch.setattr(all_rows, "MIXED_ROWS", 30)
    some, latents = model._mixed(rows, Z)
    places = [int((z == Z).all(1).nonzero()[0]) for z in latents]
    assert len(set(places)) == 30
    np.testing.assert_allclose(some.array, everything.array[places], atol=1e-12)


def test_the_exact_gp_lvm_was_trained_on_the_evidence_itself(monkeypatch, data):
    def never(*_):
        raise AssertionError

    monkeypatch.setattr(AllRows, "_shorten_lengthscales", never)
    GPLVM(max_epochs=2, random_state=0).fit(data[:50])


def test_a_kernel_without_lengthscales_is_left_alone(monkeypatch, data):
    settings = {"max_epochs": 2, "kernel": gpk.LinearKernel().double()}
    model, plain = SASGP(**SETTINGS | settings).fit(data), unshortened(monkeypatch, data, **settings)
    np.testing.assert_array_equal(model.predict(model.embedding_[:5]), plain.predict(plain.embedding_[:5]))


def test_all_parts_of_a_kernel_are_scaled():
    kernel = gpk.ScaleKernel(gpk.RBFKernel(ard_num_dims=2)) + gpk.MaternKernel(nu=1.5) * gpk.ConstantKernel()
    before = [part.lengthscale.clone() for part in kernel.modules() if getattr(part, "has_lengthscale", False)]
    assert kernels.scale_lengthscales(kernel, 0.5)
    after = [part.lengthscale for part in kernel.modules() if getattr(part, "has_lengthscale", False)]
    assert len(after) == 2
    for one, other in zip(before, after, strict=True):
        torch.testing.assert_close(other, 0.5 * one)
    assert not kernels.scale_lengthscales(gpk.LinearKernel(), 0.5)
