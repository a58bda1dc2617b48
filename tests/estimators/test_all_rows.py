"""The decoder given all rows: how many positions it has, and rows that are added after training.

The oracle of `update` is one pass over the union of the rows, with the same positions and the same latents.
"""

import numpy as np
import pandas as pd
import pytest
import torch
from oracles import TOLERANCE, assert_close
from safetensors.torch import load_file
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process import kernels as sk
from starts import shorten_start

from sasgp import GPLVM, SASGP
from sasgp.errors import InputError
from sasgp.estimators import all_rows, storage
from sasgp.gp.row_sums import RowSums, condition

N, D = 120, 6
FAST = {"max_epochs": 4, "dtype": "float64", "random_state": 0}
PIECES = (slice(N, N + 30), slice(N + 30, N + 31), slice(N + 31, 200))


def rows(n=200, seed=0):
    draw = np.random.default_rng(seed)
    t = draw.uniform(-2, 2, (n, 2))
    return np.sin(t @ draw.normal(size=(2, D))) + 0.1 * draw.normal(size=(n, D))


@pytest.fixture(scope="module", autouse=True)
def _short_start():
    with pytest.MonkeyPatch.context() as patch:
        shorten_start(patch, 20)
        yield


@pytest.fixture(scope="module")
def X():
    return rows()


# a = L⁻¹ k is good to ε cond(L). If every row is a position, a smooth kernel makes that more than 1e-10
ROUGH = {"kernel": "matern32"}
KINDS = {
    "network": SASGP(support_size=40, **FAST),
    "point": SASGP(support_size=40, latents="point", **FAST),
    "feature noise": SASGP(support_size=40, noise="feature", kernel="rbf-ard", **FAST),
    "table": SASGP(support_size=40, encoder="table", **FAST),
    "table of points": SASGP(support_size=40, encoder="table", latents="point", **FAST),
    "every row": SASGP(**FAST, **ROUGH),
    "exact": GPLVM(**FAST, **ROUGH),
    "exact table": GPLVM(encoder="table", latents="bayesian", **FAST, **ROUGH),
    "auto": SASGP(support_size=40, **FAST | {"n_components": "auto"}),
}


@pytest.fixture(scope="module", params=KINDS.values(), ids=KINDS.keys())
def updated(request, X):
    """A model that was fitted to 120 rows and has got 80 more in three pieces."""
    model = request.param.fit(X[:N])
    for piece in PIECES:
        assert model.update(X[piece]) is model
    return model


def one_pass(model, X):
    """The sums of rows at the model's own latents and positions, in one go."""
    sums = model.model_.row_sums(model.sums_.U, model.sums_.L)
    Z = torch.as_tensor(model.embedding_)
    with torch.no_grad():
        sums.add(model.model_.centred(torch.as_tensor(X, dtype=Z.dtype)), Z)
    return sums


def same_sums(found, expected):
    for name, tensor in expected.tensors.items():
        # t is a difference, Σ k_nn − Σ ‖a_n‖², so its rounding errors are those of k
        scale = float(expected.k if name == "t" else tensor.abs().max())
        error = float((found.tensors[name] - tensor).abs().max()) / scale
        assert error <= TOLERANCE[torch.float64], f"{name} is off by {error:.3g}"


def content(model, folder):
    """Everything that a file knows of a model, and what it predicts."""
    model.save(folder / "content.safetensors")
    header, tensors = storage.read(folder / "content.safetensors")
    predicted = [part.tobytes() for part in model.predict(model.embedding_, True)]
    return header, {name: tensor.numpy().tobytes() for name, tensor in tensors.items()}, predicted


# ---------------------------------------------------------------------------------------------------- update


def test_pieces_are_one_pass_over_the_union(updated, X):
    sums = one_pass(updated, X)
    assert updated.sums_.n_rows == len(updated.embedding_) == len(X)
    same_sums(updated.sums_, sums)
    noise = updated.model_.noise.detach()
    assert_close(updated.sums_.bound(noise), sums.bound(noise), TOLERANCE[torch.float64])
    whole = updated.model_.decoder(sums)
    Z = np.random.default_rng(1).normal(size=(50, updated.n_components_))
    mean, var = whole.predict(torch.as_tensor(Z))
    found, std = updated.predict(Z, return_std=True)
    assert_close(found, mean, TOLERANCE[torch.float64])
    assert_close(std**2, var.expand_as(mean), TOLERANCE[torch.float64])
    if updated.support_size_ < N:
        assert updated.missed_share_ == pytest.approx(sums.missed_share, abs=1e-12)


def test_the_new_latents_follow_the_old_ones(X):
    model = KINDS["network"].fit(X[:N])
    before = model.embedding_
    model.update(X[N:])
    np.testing.assert_array_equal(model.embedding_[:N], before)
    np.testing.assert_array_equal(model.embedding_[N:], model.transform(X[N:]))


@pytest.mark.parametrize("latents", ["bayesian", "point"])
def test_a_table_searches_for_the_new_latents_and_keeps_them(X, latents):
    model = SASGP(encoder="table", latents=latents, support_size=40, **FAST).fit(X[:N])
    searched = model.transform(X[N:])
    std = model.transform(X[N:], return_std=True)[1] if latents == "bayesian" else None
    model.update(X[N:])
    np.testing.assert_array_equal(model.embedding_[N:], searched)
    mu, var = model.model_.encoder(torch.empty(0), torch.arange(len(X)))
    np.testing.assert_array_equal(mu.detach(), model.embedding_)
    if std is not None:
        np.testing.assert_allclose(var[N:].detach().sqrt(), std, rtol=1e-4)


def test_an_update_helps_where_the_model_has_seen_few_rows():
    # Half of a sine is missing at first. The network extrapolates, and the decoder learns what belongs there
    t = np.linspace(-2, 2, 200)
    X = np.column_stack([t, np.sin(2 * t)]) + 0.01 * np.random.default_rng(0).normal(size=(200, 2))
    model = SASGP(n_components=1, support_size=None, **FAST | {"max_epochs": 200}).fit(X[::2])
    before = np.square(X - model.reconstruct(X)).mean()
    model.update(X[1::2])
    assert np.square(X - model.reconstruct(X)).mean() <= before


def test_saved_and_loaded_after_an_update(updated, X, tmp_path):
    updated.save(tmp_path / "m.safetensors")
    again = type(updated).load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.embedding_, updated.embedding_)
    for found, expected in zip(
        again.predict(updated.embedding_, True), updated.predict(updated.embedding_, True), strict=True
    ):
        np.testing.assert_array_equal(found, expected)
    assert again.missed_share_ == updated.missed_share_
    how = {"neighbours": 20, "data": X}
    np.testing.assert_array_equal(
        again.predict(again.embedding_[:5], **how), updated.predict(again.embedding_[:5], **how)
    )


def test_a_loaded_model_is_updated_to_the_same_bits(X, tmp_path):
    model = KINDS["network"].fit(X[:N])
    model.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors").update(X[N:])
    assert content(again, tmp_path) == content(model.update(X[N:]), tmp_path)


def test_neighbours_are_looked_for_in_the_union(updated, X):
    Z = updated.embedding_[[3, N + 3, -1]]
    model, Z_all = updated.model_, torch.as_tensor(updated.embedding_)
    exact = condition(model.kernel, model.noise, Z_all, torch.as_tensor(X), model.mean, model.scales)
    mean, var = exact.predict(torch.as_tensor(Z))
    found, std = updated.predict(Z, True, neighbours=len(X), data=X)
    np.testing.assert_allclose(found, mean, atol=1e-7)
    np.testing.assert_allclose(std**2, var.expand_as(mean), atol=1e-7)


def test_neighbours_among_the_old_rows_alone_are_refused(updated, X):
    Z = updated.embedding_[:2]
    others = np.concatenate([X[:N], X[N:][::-1]])
    for data, message in ((X[:N], "must be the 200 rows .* Got 120 rows"), (others, "have other values")):
        with pytest.raises(InputError, match=message) as info:
            updated.predict(Z, neighbours=5, data=data)
        assert info.value.argument == "data"


@pytest.fixture(scope="module")
def framed(X):
    return SASGP(support_size=40, **FAST).fit(pd.DataFrame(X[:N], columns=list("abcdef")))


def wrong_rows(X):
    frame = pd.DataFrame(X[N:], columns=list("abcdef"))
    hole = frame.copy()
    hole.iloc[7] = np.nan
    return {
        "other columns": (frame.rename(columns={"a": "z"}), "feature names"),
        "another order": (frame[list("bacdef")], "feature names"),
        "a row without values": (hole, r"1 row without any value, the first is row 7"),
        "too narrow": (frame[list("abcde")], "feature names|5 features"),
        "too wide": (np.ones((3, D + 1)), "has 7 features, but SASGP is expecting 6"),
        "one row, flat": (X[0], "Expected 2D array"),
        "no rows": (X[:0], "0 sample"),
        "too large": (np.full((2, D), 1e200), "does not fit into float64"),
        "text": (np.full((2, D), "x"), "could not convert|numeric"),
    }


@pytest.mark.filterwarnings("ignore:X does not have valid feature names")
@pytest.mark.parametrize("case", wrong_rows(rows()))
def test_wrong_rows_are_refused_and_change_nothing(framed, X, tmp_path, case):
    wrong, message = wrong_rows(X)[case]
    before = content(framed, tmp_path)
    with pytest.raises(ValueError, match=message):
        framed.update(wrong)
    assert content(framed, tmp_path) == before


def test_a_model_must_be_fitted_first(X):
    model = SASGP()
    with pytest.raises(NotFittedError, match="not fitted yet"):
        model.update(X)
    assert not vars(model).keys() - model.get_params().keys()


class Stop:
    """`RowSums.add` until the second block, where it raises what Ctrl-C does."""

    def __init__(self, monkeypatch):
        self.add, self.calls = RowSums.add, 0
        monkeypatch.setattr(RowSums, "add", lambda *args: self(*args))
        monkeypatch.setattr(all_rows, "ENCODE_ROWS", 16)

    def __call__(self, *args):
        self.calls += 1
        if self.calls == 2:
            raise KeyboardInterrupt
        self.add(*args)


@pytest.mark.parametrize("kind", ["network", "table", "exact"])
def test_an_interrupted_update_changes_nothing(X, tmp_path, monkeypatch, kind):
    model = KINDS[kind].fit(X[:N])
    before = content(model, tmp_path)
    with monkeypatch.context() as patch:
        stop = Stop(patch)
        with pytest.raises(KeyboardInterrupt):
            model.update(X[N:])
    assert stop.calls == 2
    assert content(model, tmp_path) == before
    model.update(X[N:])
    assert len(model.embedding_) == len(X)


def test_rows_far_from_all_positions_are_warned_of(X, tmp_path):
    model = KINDS["network"].fit(X[:N])
    before = content(model, tmp_path)
    # As an error, the warning leaves the model as it was
    with pytest.raises(UserWarning, match="has seen little"):
        model.update(1e4 + X[N:])
    assert content(model, tmp_path) == before
    with pytest.warns(UserWarning, match=r"positions miss \d+% of the variance .* Fit the model again"):
        model.update(1e4 + X[N:])
    assert len(model.embedding_) == len(X)
    model.update(X[N:])  # these are known, and no warning is an error


# ---------------------------------------------------------------------------------------------------- positions


def test_few_rows_are_all_positions_and_the_decoder_is_scikit_learns(X):
    model = SASGP(**FAST | {"max_epochs": 100}).fit(X)
    assert model.missed_share_ < 1e-11  # of so smooth a function, some rows say nothing that others do not
    kernel, noise, mean = model.kernel_, model.noise_, model.model_.mean.numpy()
    same = sk.ConstantKernel(kernel.outputscale.item()) * sk.RBF(kernel.base_kernel.lengthscale.item())
    regressor = GaussianProcessRegressor(same, alpha=noise, optimizer=None).fit(model.embedding_, X - mean)
    Z = np.random.default_rng(1).normal(size=(40, 2))
    expected, deviation = regressor.predict(Z, return_std=True)
    found, std = model.predict(Z, return_std=True)
    assert_close(found - mean, expected, 1e-8)
    assert_close(std**2, deviation**2 + noise, 1e-8)


def test_rows_that_crowd_together_do_not_spoil_the_decoder():
    # 300 latents in six clusters: K has pivots that are nothing but rounding errors, which L⁻¹ would multiply
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(6, 11))[rng.integers(6, size=300)] + 0.05 * rng.normal(size=(300, 11))).astype(np.float32)
    model = SASGP(max_epochs=30, random_state=0).fit(X)
    trained, Z = model.model_, torch.as_tensor(model.embedding_)
    exact = condition(trained.kernel, trained.noise, Z, torch.as_tensor(X), trained.mean, trained.scales)
    mean, var = exact.predict(Z)
    found, std = model.predict(model.embedding_, return_std=True)
    assert_close(found, mean.numpy(), 1e-5)
    assert_close(std**2, var.expand_as(mean).numpy(), 1e-5)


@pytest.fixture(scope="module")
def many():
    return rows(800)


def test_more_rows_need_fewer_positions_than_rows(many):
    model = SASGP(**FAST).fit(many)
    assert model.support_size_ < len(many)
    assert model.missed_share_ < 2e-4  # the choice stops at 1e-4 of those it is made from, which are all here
    assert model.sums_.n_rows == len(many)
    exact = SASGP(**FAST | {"support_size": None}).fit(many)
    assert exact.missed_share_ < 1e-10
    difference = model.predict(model.embedding_) - exact.predict(exact.embedding_)
    assert np.sqrt(np.square(difference).mean()) < 1e-2 * np.sqrt(model.noise_)


@pytest.mark.parametrize(("size", "expected"), [(7, 7), (np.int64(7), 7), (1000, 200), (None, 200), ("auto", 200)])
def test_as_many_positions_as_asked_for(X, size, expected):
    model = SASGP(**FAST | ROUGH | {"support_size": size}).fit(X)
    assert model.support_size_ == len(model.posterior_.Z) == expected
    # Each is the latent of a row, and of another one
    index = [np.flatnonzero((model.embedding_ == u).all(1)) for u in model.posterior_.Z.numpy()]
    assert len({int(found[0]) for found in index}) == expected


def test_the_exact_model_has_every_row_unless_told(X):
    assert GPLVM(**FAST, **ROUGH).fit(X).support_size_ == len(X)
    assert GPLVM(**FAST, support_size=30).fit(X).support_size_ == 30


@pytest.mark.parametrize("wrong", ["autoo", 0, -3, 2.5, True, [3]])
def test_a_wrong_number_of_positions_is_named(X, wrong):
    with pytest.raises(InputError) as info:
        SASGP(support_size=wrong).fit(X)
    assert info.value.argument == "support_size"
    assert str(info.value) == (f"support_size must be a whole number of at least 1, or 'auto' or None. Got {wrong!r}.")


def test_a_file_predicts_to_the_bit(many, tmp_path):
    for dtype in ("float32", "float64"):
        model = SASGP(**FAST | {"dtype": dtype}).fit(many)
        model.save(tmp_path / "m.safetensors")
        again = SASGP.load(tmp_path / "m.safetensors")
        for found, expected in zip(
            again.predict(model.embedding_, True), model.predict(model.embedding_, True), strict=True
        ):
            np.testing.assert_array_equal(found, expected)
        assert (again.support_size_, again.missed_share_) == (model.support_size_, model.missed_share_)


def test_early_stopping_looks_at_an_interim_decoder(X):
    model = SASGP(early_stopping=3, **FAST | {"max_epochs": 60}).fit(X)
    losses = [record["held_out_loss"] for record in model.history_]
    assert np.isfinite(losses).all()
    assert min(losses) < losses[0]
    assert model.sums_.n_rows == len(model.embedding_) == len(X)  # the held-out rows are in the decoder


def test_the_interim_decoder_is_the_exact_one_for_few_rows(X):
    # Up to 200 rows it has every row as a position
    model = SASGP(**FAST).fit(X)
    interim = model._interim_posterior(model._rows(X))
    mean, var = interim.predict(torch.as_tensor(model.embedding_))
    found, std = model.predict(model.embedding_, return_std=True)
    assert_close(mean, found, 1e-8)
    assert_close(var.expand_as(mean), std**2, 1e-8)


def test_dimensions_are_left_out_before_the_last_pass(X):
    model = SASGP(**FAST | {"n_components": "auto", "max_epochs": 60}).fit(X)
    sums = one_pass(model, X)
    assert model.sums_.U.shape[1] == model.n_components_
    same_sums(model.sums_, sums)


def test_an_interrupted_fit_leaves_no_model(X, monkeypatch):
    make, calls = SASGP._final_posterior, []

    def interrupted(self, *args):
        calls.append(None)
        if len(calls) == (2 if model.n_components == "auto" else 1):  # "auto" has another one, without dimensions
            Stop(monkeypatch)
        return make(self, *args)

    for components in (2, "auto"):
        model = SASGP(**FAST | {"n_components": components})
        calls.clear()
        monkeypatch.setattr(SASGP, "_final_posterior", interrupted)
        with pytest.raises(KeyboardInterrupt):
            model.fit(X)
        monkeypatch.undo()
        with pytest.raises(NotFittedError):
            model.predict(np.zeros((1, 2)))


# ---------------------------------------------------------------------------------------------------- what it reveals


def from_sums(path):
    """Rows as they follow from the sums in a file, by least squares: X̂ = A (AᵀA)⁺ b with aₙ = L⁻¹ k(U, zₙ)."""
    model, file = SASGP.load(path), load_file(path)
    M = len(file["support.U"])
    L = torch.zeros(M, M, dtype=torch.float64)
    L[tuple(torch.tril_indices(M, M))] = file["support.L"]
    with torch.no_grad():
        K = model.kernel_.double()(file["support.U"], file["embedding"]).to_dense()
    A = torch.linalg.solve_triangular(L, K, upper=False).T  # [N, M]
    return (A @ torch.linalg.pinv(A.T @ A, hermitian=True) @ file["support.b"] + file["model.mean"]).numpy()


def test_rows_can_be_computed_from_the_file_if_each_is_a_position(X, tmp_path):
    model = SASGP(**FAST, **ROUGH).fit(X)
    model.save(tmp_path / "m.safetensors")
    assert model.support_size_ == len(X)
    assert np.abs(from_sums(tmp_path / "m.safetensors") - X).max() < 1e-6


def test_fewer_positions_give_averages_and_an_outlier_is_its_own(X, tmp_path, whole_start):
    strange = np.full((1, D), 30.0)  # far from everything, so nothing is averaged with it
    rows = np.concatenate([X, strange])
    model = SASGP(**FAST | {"max_epochs": 60}, **ROUGH, support_size=20).fit(rows)
    model.save(tmp_path / "m.safetensors")
    error = np.abs(from_sums(tmp_path / "m.safetensors") - rows).mean(1)
    # Ordinary rows have noise of standard deviation 0.1, which an average over ten of them does not have
    assert np.median(error[:-1]) > 0.05
    assert error[-1] < 0.01 * 30
