"""Layouts that latents start from: against dense eigenvectors, by what they keep, and from fit to file."""

import copy

import numpy as np
import pytest
import scipy.linalg
import torch
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.gp.refine import climb
from sasgp.gp.row_density import row_density
from sasgp.metrics import trustworthiness
from sasgp.models import anchor
from sasgp.training import checkpoint, fit_encoder, initialise, layouts
from sasgp.training.layouts import lay_out
from sasgp.training.loop import generator, one_cycle

SHORT = {"max_epochs": 2, "random_state": 0}


@pytest.fixture(autouse=True)
def _short_start(monkeypatch):
    monkeypatch.setattr(fit_encoder, "LAYOUT_STEPS", 20)
    monkeypatch.setattr(initialise, "SETTLE_STEPS", 5)


@pytest.fixture(scope="module")
def digits():
    return (load_digits().data[:300] / 16).astype(np.float32)


class Doubling:
    """The least that a layout can be: no get_params, and state that fit changes."""

    calls = 0

    def fit_transform(self, X):
        Doubling.calls += 1
        self.seen = len(X)
        return 2 * X[:, :2] + 1


# ---------------------------------------------------------------------------------------------------- layouts


def test_spectral_is_the_generalised_eigenproblem_by_loops(rng):
    X = torch.randn(40, 3, generator=rng, dtype=torch.float64).numpy()
    apart = [[np.linalg.norm(a - b) for b in X] for a in X]
    s = [sorted(row)[15] for row in apart]  # sorted(row)[0] is the row itself
    W = [[np.exp(-(apart[i][j] ** 2) / (s[i] * s[j])) + layouts.COUPLING for j in range(40)] for i in range(40)]
    np.fill_diagonal(W := np.array(W), 0)  # scikit-learn's graph has no edge from a row to itself
    V = scipy.linalg.eigh(W, np.diag(np.sum(W, 1)))[1]  # w z = λ d z
    Z = lay_out("spectral", X, 2, seed=0)
    for column, expected in zip(Z.T, (V[:, -2], V[:, -3]), strict=True):
        expected = expected / expected.std()
        np.testing.assert_allclose(np.abs(column), np.abs(expected), atol=1e-8)


def test_a_ring_comes_out_of_many_dimensions_as_a_ring():
    # Its graph is a cycle, whose first two eigenvectors are cos and sin: radius √(z₁² + z₂²) = √2 at unit variance
    angle = 2 * np.pi * np.arange(200) / 200
    X = np.column_stack([np.cos(angle), np.sin(angle), np.zeros((200, 3))]) + 5
    np.testing.assert_allclose(np.linalg.norm(lay_out("spectral", X, 2, seed=0), axis=1), np.sqrt(2), rtol=1e-4)


@pytest.mark.parametrize("init", layouts.NAMES)
def test_named_layouts_keep_neighbours_and_depend_on_the_seed_alone(digits, init):
    digits = digits[:120]
    Z = lay_out(init, digits, 2, seed=3)
    np.random.seed(99)  # noqa: NPY002
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    np.testing.assert_array_equal(Z, lay_out(init, digits, 2, seed=3))
    np.testing.assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002
    pca = PCA(2).fit_transform(digits)
    assert trustworthiness(digits, Z) > trustworthiness(digits, pca) + (0.05 if init != "spectral" else -0.05)


@pytest.mark.parametrize("init", layouts.NAMES)
def test_hardly_any_rows_and_rows_that_coincide(digits, init):
    for X in (digits[:2], digits[:3], digits[:31], np.ones((40, 3))):
        Z = lay_out(init, X, 2, seed=0)
        assert Z.shape == (len(X), 2)
        assert np.isfinite(Z).all()
        assert X[0, 0] == 1 or len(np.unique(Z, axis=0)) == len(X), "rows that differ have places of their own"
    # Rows that coincide are laid out beside each other
    Z = lay_out(init, np.repeat(digits[:20], 4, axis=0), 2, seed=0).reshape(20, 4, 2)
    assert np.linalg.norm(Z - Z.mean(1, keepdims=True), axis=2).max() < 0.5 * np.linalg.norm(Z.mean(1).std(0))


def test_an_object_is_copied_and_gets_the_seed(digits):
    random = PCA(2, svd_solver="randomized")
    np.testing.assert_array_equal(lay_out(random, digits, 2, 1), lay_out(random, digits, 2, 1))
    assert random.random_state is None
    assert not hasattr(random, "components_")
    own = Doubling()
    centred = digits - digits.mean(0)
    np.testing.assert_allclose(lay_out(own, digits, 2, 1), 2 * centred[:, :2] + 1)
    assert not hasattr(own, "seen")
    with pytest.raises(InputError, match=r"n_components=2 finite .* the 300 rows.*PCA returned shape \(300, 3\)"):
        lay_out(PCA(3), digits, 2, 1)


def test_what_cannot_be_laid_out_is_said(digits, monkeypatch):
    with pytest.raises(InputError, match=r"1 or 2 dimensions, but n_components is 3"):
        SASGP(init="tsne", n_components=3).fit(digits)
    with pytest.raises(InputError, match=r"not the class PCA. Use PCA\(...\)"):
        SASGP(init=PCA).fit(digits)
    monkeypatch.setattr(layouts.importlib.util, "find_spec", lambda name: None)  # type: ignore[attr-defined]
    for init, package in (("umap", "umap-learn"), ("tsne", "openTSNE")):
        with pytest.raises(InputError, match=rf"needs the package {package}.*pip install {package}"):
            SASGP(init=init).fit(digits)


# ---------------------------------------------------------------------------------------------------- the start


def test_the_loss_is_cauchys_log_density(rng):
    Z, T = torch.randn(2, 50, 1, generator=rng, dtype=torch.float64)
    s = anchor.MODE_SCALE
    # −log [ 1 / (π s (1 + r²/s²)) ] − log(π s), a row at a time
    density = torch.distributions.Cauchy(T, s).log_prob(Z)
    assert anchor.distance_cost(Z, T).mean().item() == pytest.approx(float(-(density + np.log(np.pi * s)).mean()))


def test_a_row_that_may_belong_to_either_cluster_goes_to_the_likelier():
    # Targets −2 and 2 with chances .3 and .7. Squared error is least at their mean, 0.8; the mode is at 2
    T = torch.tensor([-2.0, -2, -2, 2, 2, 2, 2, 2, 2, 2])[:, None]
    grid = torch.linspace(-3, 3, 601)
    losses = [float(anchor.distance_cost(z.expand_as(T), T).mean()) for z in grid]
    assert float(grid[np.argmin(losses)]) == pytest.approx(2.0, abs=0.02)


@pytest.mark.parametrize("init", ["spectral", "tsne", "umap"])
def test_a_layout_leaves_torch_its_threads(digits, init):
    layouts.lay_out(init, digits[:60], 2, 0)
    assert torch.get_num_threads() == 1  # as conftest.py says


def test_a_layout_is_standardised_as_a_whole():
    Z = torch.tensor([[0.0, 0.0], [4.0, 0.0], [0.0, 2.0], [4.0, 2.0]], dtype=torch.float64)
    # Centred it is ±2 and ±1: a mean square of (4 + 1)/2 over both axes, which stay two to one
    expected = torch.tensor([[-2, -1], [2, -1], [-2, 1], [2, 1]], dtype=torch.float64) / np.sqrt(2.5)
    torch.testing.assert_close(fit_encoder.standardised(Z), expected)


def test_settling_moves_all_but_the_means_and_finds_the_noise(monkeypatch):
    # A curve through four features at z itself, with noise of standard deviation .1
    rng = np.random.default_rng(0)
    z = rng.normal(size=(200, 1))
    X = np.hstack([np.sin(2 * z), np.cos(2 * z), z, z**2]) + 0.1 * rng.normal(size=(200, 4))
    rates = {"learning_rate": 1e-12, "hyper_learning_rate": 1e-12, "latents": "point"}
    model = SASGP(n_components=1, encoder="table", init=z, **rates, **SHORT).fit(X)
    data = ArrayRows(X, torch.float32, torch.device("cpu"))
    means, seen = model.model_.encoder.mu.detach().clone(), []
    monkeypatch.setattr(initialise, "SETTLE_STEPS", 200)
    initialise.settle(model.model_, data, 200, 0, seen.append)
    assert torch.equal(model.model_.encoder.mu, means)
    assert model.model_.encoder.mu.requires_grad
    assert seen[-1] == 200
    # σ² = .01, and the slopes of at most 4 make .0004 of the .01 that rows of a table start apart; 1.3 at first
    assert 0.008 < model.noise_ < 0.015


@pytest.mark.parametrize("encoder", ["network", "table"])
def test_large_data_are_laid_out_by_a_subset(digits, encoder, monkeypatch, tmp_path):
    monkeypatch.setattr(layouts, "MAX_ROWS", 100)
    monkeypatch.setattr(fit_encoder, "LAYOUT_STEPS", 200)
    np.save(tmp_path / "x.npy", digits)
    X = np.load(tmp_path / "x.npy", mmap_mode="r")
    rates = {"learning_rate": 1e-12, "hyper_learning_rate": 1e-12}
    seen = []

    class First(Doubling):
        def fit_transform(self, X):
            seen.append(len(X))
            return 30 * X[:, 20:22]

    model = SASGP(init=First(), encoder=encoder, **rates, **SHORT).fit(X)
    assert seen == [100]
    # A linear layout, which generalises: all 300 rows lie where it would have put them
    r = [np.corrcoef(model.embedding_[:, q], digits[:, 20 + q])[0, 1] for q in range(2)]
    assert min(r) > 0.7
    if encoder == "table":  # those that were laid out are where they were put, but for the .01 that parts rows
        chosen = torch.randperm(300, generator=generator(model.seed_, "layout"))[:100].sort().values
        Z = fit_encoder.standardised(torch.as_tensor(digits[chosen][:, 20:22])).numpy()
        assert np.abs(model.embedding_[chosen] - Z).max() < 0.06


def test_a_module_of_the_users_is_fitted_to_a_layout_but_taken_as_it_is_without(digits):
    def module():
        torch.manual_seed(0)
        return torch.nn.Linear(64, 2)

    rates = {"learning_rate": 1e-12, "hyper_learning_rate": 1e-12, "latents": "point"}
    own = module()
    plain = SASGP(encoder=own, **rates, **SHORT).fit(digits)
    fitted = SASGP(encoder=own, init=PCA(2), **rates, **SHORT).fit(digits)
    torch.testing.assert_close(plain.model_.encoder.module.weight, own.weight)
    assert (fitted.model_.encoder.module.weight - own.weight).abs().max() > 1e-3


# ---------------------------------------------------------------------------------------------------- the estimator


def test_an_object_from_clone_to_file(digits, tmp_path):
    model = SASGP(init=PCA(2), **SHORT)
    assert model.get_params()["init__n_components"] == 2
    again = clone(model).fit(digits)
    np.testing.assert_array_equal(again.embedding_, model.fit(digits).embedding_)
    model.save(tmp_path / "m.safetensors")
    loaded = SASGP.load(tmp_path / "m.safetensors")  # what made the layout is not needed to use the model
    np.testing.assert_array_equal(loaded.transform(digits), model.transform(digits))
    loaded.save(tmp_path / "again.safetensors")
    assert SASGP.load(tmp_path / "again.safetensors").init == loaded.init
    with pytest.raises(InputError, match=r"sklearn.decomposition._pca.PCA.*set_params\(init=PCA\(...\)\)"):
        loaded.fit(digits)
    np.testing.assert_array_equal(loaded.set_params(init=PCA(2)).fit(digits).embedding_, model.embedding_)


def interrupted(settings, X, folder):
    """A fit that stops in its third epoch and leaves a checkpoint."""

    def stop(model, record):
        if record["epoch"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        SASGP(**settings).fit(X, checkpoint=folder, callback=stop)


def test_a_resumed_fit_makes_no_layout_and_ends_in_the_same_bits(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", np.inf)  # save after every epoch, however short
    settings = {"init": Doubling(), "random_state": 0, "max_epochs": 4}

    interrupted(settings, digits, tmp_path)
    calls = Doubling.calls
    resumed = SASGP(**settings).fit(digits, resume=tmp_path)
    assert Doubling.calls == calls
    np.testing.assert_array_equal(resumed.embedding_, SASGP(**settings).fit(digits).embedding_)
    interrupted(settings, digits, tmp_path)
    with pytest.raises(InputError, match=r"init: 'Doubling .*' in the checkpoint, 'PCA .*' now"):
        SASGP(**settings | {"init": PCA(2)}).fit(digits, resume=tmp_path)


# ---------------------------------------------------------------------------------------------------- staying there


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_anchor_is_the_loss_of_rows_that_were_laid_out(rng, dtype):
    T = torch.randn(3, 1, generator=rng, dtype=dtype)
    mu, rows = torch.randn(4, 1, generator=rng, dtype=dtype), torch.tensor([7, 0, 2, 5])
    Z, s = fit_encoder.standardised(T), anchor.MODE_SCALE
    held = anchor.Anchor(Z, torch.tensor([2, 5, 9]), n_rows=10, weight=3.0)
    # Row 2 is the first of those laid out, row 5 the second; rows 7 and 0 are not among them
    expected = torch.zeros(4, dtype=dtype)
    for place, target in ((2, Z[0]), (3, Z[1])):
        density = torch.distributions.Cauchy(target, s).log_prob(mu[place])
        expected[place] = -3.0 * (density + np.log(np.pi * s))[0]
    torch.testing.assert_close(held(mu, rows), expected)
    everything = anchor.Anchor(Z, None, n_rows=3, weight=1.0)
    torch.testing.assert_close(everything(mu[:2], torch.tensor([1, 0])), anchor.distance_cost(mu[:2], Z[[1, 0]]))


@pytest.mark.parametrize("estimator", [SASGP, GPLVM, BayesianGPLVM, VAE])
def test_the_heavier_an_anchor_the_nearer_rows_stay(digits, estimator):
    Z = fit_encoder.standardised(torch.as_tensor(30 * digits[:80, 20:22])).numpy()
    settings = {"init": Z, "max_epochs": 30, "learning_rate": 1e-2, "encoder_noise": 0.0, "random_state": 0}
    apart = [
        float(np.abs(estimator(layout_weight=weight, **settings).fit(digits[:80]).embedding_ - Z).mean())
        for weight in (0.0, 0.2)
    ]
    assert apart[0] > 1.1 * apart[1]


@pytest.mark.parametrize("most", [100, 1000])
def test_an_anchor_is_part_of_a_checkpoint_and_not_of_a_model(digits, tmp_path, monkeypatch, most):
    monkeypatch.setattr(checkpoint, "SHARE", np.inf)
    monkeypatch.setattr(layouts, "MAX_ROWS", most)
    settings = {"init": Doubling(), "layout_weight": 0.1, "random_state": 0, "max_epochs": 4, "encoder": "table"}

    interrupted(settings, digits, tmp_path)
    calls = Doubling.calls
    resumed = SASGP(**settings).fit(digits, resume=tmp_path)
    assert Doubling.calls == calls
    whole = SASGP(**settings).fit(digits)
    np.testing.assert_array_equal(resumed.embedding_, whole.embedding_)
    assert whole.model_.anchor is None
    assert not np.array_equal(whole.embedding_, SASGP(**settings | {"layout_weight": 0.0}).fit(digits).embedding_)


def test_an_anchor_holds_the_rows_that_are_left_for_training(digits, monkeypatch):
    # A quarter is held out for early stopping, of the others 100 are laid out: indices of indices
    monkeypatch.setattr(layouts, "MAX_ROWS", 100)

    class Marked(Doubling):
        def fit_transform(self, X):
            return np.column_stack([X[:, 20], X[:, 21]]) * 30

    settings = {"layout_weight": 50.0, "early_stopping": 5, "validation_fraction": 0.25, "encoder_noise": 0.0}
    more = {"max_epochs": 60, "learning_rate": 1e-2, "random_state": 0}
    model = SASGP(init=Marked(), **settings, **more).fit(digits)
    # A linear layout: nothing else holds rows to it, and in the wrong order they would be nowhere near
    r = [np.corrcoef(model.embedding_[:, q], digits[:, 20 + q])[0, 1] for q in range(2)]
    assert min(r) > 0.9


def test_dimensions_that_are_chosen_can_be_held(digits):
    settings = {"n_components": "auto", "init": "spectral", "layout_weight": 0.1, "encoder": "conv"}
    model = SASGP(**settings, **SHORT).fit(digits[:150])
    X, home = torch.from_numpy(digits[150:160]), torch.from_numpy(model.transform(digits[150:160]))
    assert home.shape[1] == model.n_components_

    def cost(Z):  # ¼ · .1 nats for each of the 64 values
        return 0.25 * 0.1 * 64 * torch.log1p((Z - home).square().sum(1) / anchor.MODE_SCALE**2)

    expected = climb(row_density(model.posterior_, X), home, 2, cost)[0]
    np.testing.assert_allclose(model.transform(digits[150:160], refine=2), expected.numpy(), rtol=1e-4, atol=1e-5)


def test_refinement_pays_a_quarter_of_what_training_paid_and_scores_do_not(digits):
    model = SASGP(init="spectral", layout_weight=0.3, **SHORT).fit(digits[:200])
    X = torch.from_numpy(digits[200:220])
    home = torch.from_numpy(model.transform(digits[200:220]))

    def cost(Z):  # ¼ · .3 nats for each of the 64 values
        return 0.25 * 0.3 * 64 * torch.log1p((Z - home).square().sum(1) / anchor.MODE_SCALE**2)

    expected = climb(row_density(model.posterior_, X), home, 8, cost)[0]
    np.testing.assert_allclose(model.transform(digits[200:220], refine=8), expected.numpy(), rtol=1e-4, atol=1e-5)
    # What a row's density is does not hang on how its latents were trained: the same decoder without the weight
    free = copy.deepcopy(model).set_params(layout_weight=0.0)
    np.testing.assert_array_equal(model.score_samples(digits[200:220]), free.score_samples(digits[200:220]))
    assert not np.array_equal(model.transform(digits[200:220], refine=8), free.transform(digits[200:220], refine=8))


def test_what_there_is_no_layout_for_is_said(digits):
    with pytest.raises(
        InputError,
        match=r"layout_weight=1.0 needs an init .* such as 'umap', but init='pca' is a projection",
    ):
        SASGP(layout_weight=1.0).fit(digits)
    with pytest.raises(InputError, match=r"layout_weight must be a number of at least 0. Got -1"):
        SASGP(layout_weight=-1, init="spectral").fit(digits)


def test_the_exact_model_and_held_out_rows_start_from_a_layout_too(digits, monkeypatch):
    # Nothing moves at a learning rate of nothing: latents are the layout, centred, of the prior's size, and with noise
    # of .01
    still = {"learning_rate": 1e-12, **SHORT}
    exact = GPLVM(init="spectral", encoder="table", **still).fit(digits[:80])
    layout = lay_out("spectral", digits[:80], 2, exact.seed_)
    layout -= layout.mean(0)
    apart = exact.embedding_ - layout / np.sqrt(np.square(layout).mean())
    assert np.abs(apart).max() < 0.05
    assert apart.std() == pytest.approx(0.01, rel=0.2)
    # A tenth is held out, so that rows and positions are taken by index. In another order they have nothing in common
    monkeypatch.setattr(fit_encoder, "LAYOUT_STEPS", 100)
    early = SASGP(init=digits[:, 20:22], early_stopping=1, **still).fit(digits)
    r = [np.corrcoef(early.embedding_[:, q], digits[:, 20 + q])[0, 1] for q in range(2)]
    assert min(r) > 0.9


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 2e-3),
        ({"init": "random"}, 2e-3),
        ({"encoder": "table"}, 2e-2),
        ({"init": "umap"}, 3e-4),
        ({"init": np.zeros((3, 2))}, 3e-4),
        ({"init": "umap", "encoder": "table"}, 2e-3),
        ({"init": "umap", "layout_weight": 0.5}, 2e-3),
        ({"init": "umap", "layout_weight": 0.5, "encoder": "table"}, 2e-2),
        ({"init": "umap", "learning_rate": 1e-2}, 1e-2),
    ],
)
def test_a_network_that_has_a_layout_to_lose_learns_slowly(settings, rate):
    assert SASGP(**settings).encoder_rate() == rate


@pytest.mark.parametrize(
    ("settings", "n_steps", "rate"),
    [
        ({}, 10, 4e-3),
        ({}, 150, 2e-3 * 2**0.5),
        ({"encoder": "conv"}, 75, 4e-3),
        ({}, 300, 2e-3),
        ({}, 5000, 2e-3),
        ({"learning_rate": 1e-3}, 10, 1e-3),
        ({"encoder": "table"}, 10, 2e-2),
        ({"encoder": torch.nn.Linear(2, 2)}, 10, 2e-3),
        ({"init": "umap"}, 10, 3e-4),
        ({"init": "umap", "layout_weight": 0.5}, 10, 2e-3),
    ],
)
def test_a_network_learns_faster_in_a_short_run(settings, n_steps, rate):
    assert SASGP(**settings).encoder_rate(n_steps) == pytest.approx(rate, rel=1e-12)


def test_a_short_run_has_the_rate_of_all_its_steps():
    X = np.random.default_rng(0).normal(size=(100, 4)).astype(np.float32)
    model = SASGP(batch_size=20, active_set_size=5, max_epochs=20, random_state=0).fit(X)
    # 20 epochs of 5 steps: 2e-3 √(300/100), times the factor of the fifth of these 100 steps, which the record has
    assert model.history_[0]["learning_rate"] == pytest.approx(2e-3 * 3**0.5 * one_cycle(4 / 99), rel=1e-12)


def test_a_module_that_is_frozen_stays_as_it_is():
    X = np.random.default_rng(0).normal(size=(40, 4)).astype(np.float32)
    module = torch.nn.Linear(4, 2).requires_grad_(False)
    model = SASGP(encoder=module, latents="point", init="spectral", max_epochs=2, random_state=0).fit(X)
    np.testing.assert_allclose(model.embedding_, module(torch.from_numpy(X)).numpy(), rtol=1e-6)


# ---------------------------------------------------------------------------------------------------- images


def test_an_encoder_with_convolutions_from_fit_to_file(digits, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "SHARE", np.inf)
    model = SASGP(encoder="conv", init="spectral", **SHORT).fit(digits)
    assert tuple(model.image_shape_) == (8, 8)
    assert isinstance(model.model_.encoder.mu[1], torch.nn.Conv2d)
    model.save(tmp_path / "m.safetensors")
    loaded = SASGP.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(loaded.transform(digits), model.transform(digits))
    np.testing.assert_array_equal(loaded.fit(digits).embedding_, model.embedding_)

    def stop(model, record):
        if record["epoch"] == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        clone(model).fit(digits, checkpoint=tmp_path, callback=stop)
    np.testing.assert_array_equal(clone(model).fit(digits, resume=tmp_path).embedding_, model.embedding_)


def test_images_that_are_no_squares_are_named_and_others_refused(digits, tmp_path):
    wide = VAE(encoder="conv", image_shape=(np.int64(4), np.int64(16)), **SHORT).fit(digits)
    assert wide.model_.encoder.picture.sizes == (1, 4, 16)
    assert isinstance(wide.model_.encoder.mu[1], torch.nn.Conv2d)
    wide.save(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(VAE.load(tmp_path / "m.safetensors").transform(digits), wide.transform(digits))
    shown = wide.explorer(digits).content["image"]
    assert (shown["height"], shown["width"]) == (4, 16)
    with pytest.raises(InputError, match=r"needs rows that are images, but 60 values per row .*Set image_shape="):
        SASGP(encoder="conv").fit(digits[:, :60])
    for wrong in ((9, 7), (-8, -8), (8.5, 8), 8, "88", (64,), ()):
        for encoder in ("conv", "network"):  # which would use it for the explorer alone
            with pytest.raises(InputError, match=r"image_shape must be .*64 values in all. Got .*; give the sides"):
                SASGP(encoder=encoder, image_shape=wrong).fit(digits)


def test_rows_in_two_pieces_have_one_layout(rng):
    # No row of one piece is near the other; without any coupling the graph has two parts, and scikit-learn warns
    X = torch.randn(60, 3, generator=rng, dtype=torch.float64).numpy()
    X[30:] += 1e4
    Z = lay_out("spectral", X, 1, seed=0)[:, 0]
    assert (Z[:30].max() < Z[30:].min()) or (Z[30:].max() < Z[:30].min())


def test_a_row_with_many_copies_has_a_scale_in_the_units_of_the_others(rng):
    X = torch.randn(40, 3, generator=rng, dtype=torch.float64).numpy()
    X[:20] = X[0]
    Z, small = (lay_out("spectral", unit * X, 2, seed=0) for unit in (1.0, 1 / 1024))
    np.testing.assert_allclose(small, Z, atol=1e-6)
