"""The scikit-learn face: scikit-learn's own checks, and what a user relies on between fit and load."""

import copy
import json
import math

import gpytorch
import numpy as np
import pandas as pd
import pytest
import torch
from estimator_checks import CheckedGPLVM, CheckedSASGP
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM
from sasgp.errors import InputError
from sasgp.estimators import storage
from sasgp.estimators.sas import even_batch
from sasgp.gp.row_sums import condition
from sasgp.metrics import knn_accuracy, rmse
from sasgp.models.base import blurred
from sasgp.models.sas import SASModel
from sasgp.training import fit_encoder
from sasgp.training.loop import generator


@parametrize_with_checks(
    [
        CheckedSASGP(max_epochs=2),
        CheckedSASGP(max_epochs=2, latents="point", dtype="float64", early_stopping=1),
        CheckedGPLVM(max_epochs=1),
    ]
)
def test_sklearn_checks(estimator, check, monkeypatch):
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 5)  # hundreds of fits: none needs a good layout
    check(estimator)


@pytest.fixture(scope="module")
def X():
    """Sixty points of a noisy curve in five dimensions, with units far from one."""
    draw = np.random.default_rng(0)
    t = draw.uniform(-2, 2, 60)
    curve = np.stack([np.sin(t), np.cos(t), t, t**2, np.full_like(t, 3.0)], 1)  # the last column is constant
    return 50 * (curve + 0.05 * draw.standard_normal(curve.shape) * [1, 1, 1, 1, 0])


@pytest.fixture(scope="module")
def model(X):
    return SASGP(n_components=1, max_epochs=200, random_state=0).fit(X)


# ---------------------------------------------------------------------------------------------------- quality


@pytest.mark.usefixtures("whole_start")
def test_digits_beats_pca_with_a_fifth_of_the_default_epochs():
    data = load_digits()
    X, X_test, y, y_test = train_test_split(
        (data.data / 16).astype(np.float32), data.target, test_size=0.2, random_state=0, stratify=data.target
    )
    model = SASGP(max_epochs=100, random_state=0).fit(X)
    Z_test = model.transform(X_test)
    pca = PCA(2).fit(X)
    assert rmse(X_test, pca.inverse_transform(pca.transform(X_test))) == pytest.approx(0.231, abs=0.003)
    assert rmse(X_test, model.predict(Z_test)) < 0.18
    assert knn_accuracy(model.embedding_, y, Z_test, y_test) >= 0.85
    # A Gaussian of PCA's error has −log density ½ ln(2πe·.231²) = −.046 nats a pixel
    assert -model.score(X_test) / 64 < -0.3


@pytest.mark.parametrize("latents", ["point", "bayesian"])
@pytest.mark.parametrize("encoder", ["network", "table"])
def test_a_curve_is_recovered_up_to_its_noise(X, latents, encoder):
    model = SASGP(n_components=1, latents=latents, encoder=encoder, max_epochs=300, random_state=1).fit(X)
    # The noise's standard deviation is 2.5 in four of five columns; one latent per row absorbs some of it
    error = X - model.predict(model.transform(X))
    assert np.sqrt(np.mean(error[:, :4] ** 2)) < 6
    assert np.abs(error[:, 4]).max() < 1


def test_every_stated_size_of_data_trains():
    draw = np.random.default_rng(0)
    for N in (2, 3, 7, 50):
        X = draw.standard_normal((N, 3))
        model = SASGP(max_epochs=2, random_state=0).fit(X)
        assert (model.batch_size_, model.active_set_size_) == (N, (N + 1) // 2)
        assert np.isfinite(model.score_samples(X)).all()


def test_batches_share_the_rows_of_an_epoch():
    # 1437 rows in two batches: 719 and 718 and one again, instead of 2048 rows of work
    assert even_batch(1437, 1024, 400) == 719
    assert even_batch(2048, 1024, 400) == 1024  # nothing is filled up
    assert even_batch(60_000, 1024, 400) == 1024  # 59 batches of 1017 would save less than 1 %
    assert even_batch(1437, 1024, 600) == 900  # a third of the batch is left to predict
    assert even_batch(1437, 1024, 1000) == 1024
    for N in range(2, 400):
        B = even_batch(N, most := min(N, 64), active := 20)
        assert math.ceil(N / B) * B <= math.ceil(N / most) * most or math.ceil(1.5 * active) == B
    model = SASGP(max_epochs=1, batch_size=40, active_set_size=10, random_state=0)
    assert model.fit(np.random.default_rng(0).standard_normal((50, 3))).batch_size_ == 25


# ------------------------------------------------------------------------------------------------- identities


def test_predict_is_the_gp_of_all_rows(model, X):
    # An outside opinion on the whole chain: latents and hyperparameters in, scikit-learn's GP out
    posterior, kernel = model.posterior_, model.kernel_
    lengthscale, amplitude = kernel.base_kernel.lengthscale.item(), kernel.outputscale.item()
    oracle = GaussianProcessRegressor(
        ConstantKernel(amplitude) * RBF(lengthscale), alpha=model.noise_, optimizer=None
    ).fit(model.embedding_.astype(float), X - posterior.mean.numpy().astype(float))
    Z = np.linspace(-2.5, 2.5, 41)[:, None]
    expected, latent_std = oracle.predict(Z, return_std=True)
    mean, std = model.predict(Z, return_std=True)
    scale = np.sqrt(amplitude)
    np.testing.assert_allclose(mean, expected + posterior.mean.numpy(), atol=2e-3 * scale)
    np.testing.assert_allclose(std, np.sqrt(latent_std**2 + model.noise_), atol=2e-3 * scale)


def test_predict_of_rows_is_their_reconstruction(model, X):
    np.testing.assert_array_equal(model.reconstruct(X), model.predict(model.transform(X)))


def test_score_without_samples_is_the_log_density_at_the_latents(model, X):
    mean, std = model.predict(model.transform(X), return_std=True)
    expected = torch.distributions.Normal(torch.as_tensor(mean), torch.as_tensor(std)).log_prob(torch.as_tensor(X))
    np.testing.assert_allclose(model.score_samples(X, n_samples=0), expected.sum(1), rtol=1e-3)
    assert model.score(X) == pytest.approx(model.score_samples(X).mean(), rel=1e-6)


def test_everything_active_is_the_exact_evidence():
    # One step with a vanishing learning rate: the reported loss is −[log p(X|Z) + log p(Z)] / (N D) at the start
    draw = np.random.default_rng(0)
    X = draw.standard_normal((20, 3))
    gplvm = GPLVM(max_epochs=1, learning_rate=1e-12, hyper_learning_rate=1e-12, encoder_noise=0, dtype="float64")
    gplvm.set_params(random_state=0).fit(X)
    Z, kernel = torch.as_tensor(gplvm.embedding_), gplvm.kernel_
    covariance = kernel(Z).to_dense().detach() + gplvm.noise_ * torch.eye(20)
    columns = torch.as_tensor(X - X.mean(0)).T
    log_p = torch.distributions.MultivariateNormal(torch.zeros(20).double(), covariance).log_prob(columns).sum()
    log_prior = torch.distributions.Normal(0.0, 1.0).log_prob(Z).sum()
    assert gplvm.history_[0]["loss"] == pytest.approx(float(-(log_p + log_prior) / 60), rel=1e-8)


def test_the_encoder_sees_the_decoders_own_noise():
    # 2 latents, 40 features: all of σ² is let through; with 10 features s² = 10 / (20·2) of it
    for D, share in ((40, 1.0), (10, 0.5)):
        X = np.random.default_rng(0).standard_normal((30, D))
        model = SASGP(max_epochs=1, encoder_noise=2.0, dtype="float64", random_state=0).fit(X).model_
        rows = torch.zeros(4000, D, dtype=torch.float64)
        seen = blurred(rows, model.encoder_noise, model.feature_noise, generator(1))
        assert float(seen.std()) == pytest.approx(2 * share * float(model.noise.detach()) ** 0.5, rel=0.02)


def test_units_of_the_data_do_not_matter(X):
    # c·X is the same problem in other units: latents agree, decoded values scale by c
    settings = {"n_components": 1, "max_epochs": 20, "random_state": 0, "dtype": "float64"}
    one, other = SASGP(**settings).fit(X), SASGP(**settings).fit(1e-6 * X)
    np.testing.assert_allclose(other.embedding_, one.embedding_, atol=1e-6)
    np.testing.assert_allclose(1e6 * other.predict(one.embedding_), one.predict(one.embedding_), rtol=1e-4, atol=1e-4)


def test_a_row_is_encoded_alike_alone_and_in_company(model, X):
    together = model.transform(X)
    alone = np.concatenate([model.transform(X[i : i + 1]) for i in range(len(X))])
    np.testing.assert_allclose(alone, together, atol=1e-5)


def test_table_finds_training_rows_again(X):
    model = SASGP(n_components=1, encoder="table", max_epochs=600, random_state=0).fit(X)
    # transform does not know these rows, yet the optimum of each row's density is where training put it
    assert np.corrcoef(model.transform(X)[:, 0], model.embedding_[:, 0])[0, 1] > 0.99


def test_samples_have_the_moments_of_the_model():
    # A decoder whose kernel is constant says the same at every z: x ~ N(m, c I), whatever z was drawn
    draw = np.random.default_rng(0)
    X = draw.normal([5, -5], 1, (40, 2))
    kernel = gpytorch.kernels.ConstantKernel()
    model = SASGP(n_components=1, kernel=kernel, max_epochs=30, random_state=0).fit(X)
    mean, std = model.predict([[0.0]], return_std=True)
    draws = np.concatenate([model.sample(1, random_state=seed) for seed in range(2000)])
    np.testing.assert_allclose(draws.mean(0), mean[0], atol=4 * std[0, 0] / np.sqrt(2000))
    np.testing.assert_allclose(draws.std(0), std[0], rtol=0.08)  # relative error of a sd from n draws: 1/√(2n) = .016


# ---------------------------------------------------------------------------------------------------- randomness


def test_a_seed_decides_and_global_state_is_untouched(X):
    torch_state, numpy_state = torch.get_rng_state(), str(np.random.get_state())  # noqa: NPY002
    settings = {"max_epochs": 5, "random_state": 3}
    one, same = SASGP(**settings).fit(X), SASGP(**settings).fit(X)
    other = SASGP(max_epochs=5, random_state=4).fit(X)
    one.sample(2)
    assert np.array_equal(one.embedding_, same.embedding_)
    losses = [[record["loss"] for record in fitted.history_] for fitted in (one, same)]
    assert losses[0] == losses[1]
    assert not np.array_equal(one.embedding_, other.embedding_)
    assert torch.equal(torch_state, torch.get_rng_state())
    assert numpy_state == str(np.random.get_state())  # noqa: NPY002


# ---------------------------------------------------------------------------------------------------- scikit-learn


def test_pipeline_grid_search_clone_and_pandas(X):
    pipeline = make_pipeline(StandardScaler(), SASGP(n_components=1, max_epochs=2, random_state=0))
    search = GridSearchCV(pipeline, {"sasgp__n_components": [1, 2]}, cv=2, error_score="raise").fit(X)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    frame = pd.DataFrame(X, columns=list("abcde"))
    estimator = clone(SASGP(max_epochs=2, random_state=0, columns=None)).set_output(transform="pandas")
    Z = estimator.fit_transform(frame)
    assert list(Z.columns) == ["sasgp0", "sasgp1"]
    pd.testing.assert_frame_equal(estimator.transform(frame), Z, atol=1e-5)
    with pytest.raises(ValueError, match="feature names"):
        estimator.transform(frame.rename(columns={"a": "z"}))


def test_constructor_arguments_are_never_changed(X):
    kernel, module = gpytorch.kernels.RBFKernel(), torch.nn.Linear(5, 2)
    before = copy.deepcopy(kernel.state_dict()), copy.deepcopy(module.state_dict())
    model = SASGP(latents="point", kernel=kernel, encoder=module, max_epochs=3).fit(X)
    assert torch.equal(before[0]["raw_lengthscale"], kernel.raw_lengthscale)
    assert torch.equal(before[1]["weight"], module.weight)
    assert not torch.equal(model.kernel_.raw_lengthscale, kernel.raw_lengthscale)
    assert model.kernel is kernel
    assert model.encoder is module


def test_arrays_of_every_kind_give_the_same_fit(X, tmp_path):
    np.save(tmp_path / "x.npy", X.astype(np.float32))
    on_disk = np.load(tmp_path / "x.npy", mmap_mode="r")
    fits = [
        SASGP(max_epochs=2, random_state=0, columns=None).fit_transform(rows)
        for rows in (on_disk, np.array(on_disk), torch.as_tensor(np.array(on_disk)), pd.DataFrame(np.array(on_disk)))
    ]
    for Z in fits[1:]:
        np.testing.assert_array_equal(Z, fits[0])
    packed = np.zeros(60, dtype=[("X", "f4", (5,)), ("odd", "u1")])
    packed["X"] = X
    backwards = np.array(on_disk)[::-1, ::-1][::-1, ::-1]
    for odd in (packed["X"], backwards, np.array(on_disk).astype(np.longdouble)):  # which torch would not take
        np.testing.assert_array_equal(SASGP(max_epochs=2, random_state=0).fit_transform(odd), fits[0])
    mirrored = SASGP(max_epochs=2, random_state=0).fit(np.array(on_disk)[:, ::-1])
    assert np.isfinite(mirrored.transform(np.array(on_disk)[::-1, ::-1])).all()
    small = np.random.default_rng(0).integers(0, 255, (40, 6), dtype=np.uint8)
    np.testing.assert_array_equal(
        SASGP(max_epochs=2, random_state=0, noise="shared").fit_transform(small),
        SASGP(max_epochs=2, random_state=0, noise="shared").fit_transform(small.astype(np.float32)),
    )


def test_early_stopping_keeps_the_best_epoch(X):
    # With a huge learning rate later epochs are worse; the kept one has the least held-out loss
    model = SASGP(early_stopping=3, validation_fraction=0.3, max_epochs=200, learning_rate=0.1, random_state=0).fit(X)
    losses = [record["held_out_loss"] for record in model.history_]
    assert len(losses) == 200 or len(losses) - 1 - int(np.argmin(losses)) == 3
    order = torch.randperm(60, generator=generator(model.seed_, "validation"))
    rows = torch.as_tensor(X, dtype=torch.float32)
    held_out, training = rows[order[:18]], rows[order[18:]]
    # The interim decoder is given all of so few rows, each of them a position
    with torch.no_grad():
        posterior = condition(
            model.kernel_, model.model_.noise, model.model_.encoder(training)[0], training, model.model_.mean
        )
        again = -posterior.log_density(held_out, model.model_.encoder(held_out)[0]).mean() / 5
    assert float(again) == pytest.approx(min(losses), rel=1e-4)


# ---------------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize(
    ("cls", "latents", "encoder", "dtype"),  # each pair of values once at least
    [
        (SASGP, "bayesian", "network", "float32"),
        (SASGP, "point", "table", "float64"),
        (SASGP, "bayesian", "table", "float32"),
        (GPLVM, "point", "network", "float32"),
        (GPLVM, "bayesian", "network", "float64"),
        (GPLVM, "bayesian", "table", "float64"),
    ],
)
def test_what_is_loaded_is_what_was_saved(X, tmp_path, latents, encoder, dtype, cls):
    frame = pd.DataFrame(X, columns=list("abcde"))
    settings = {"latents": latents, "encoder": encoder, "dtype": dtype, "kernel": "matern52"}
    model = cls(max_epochs=3, random_state=0, **settings).fit(frame)
    model.save(tmp_path / "m.safetensors")
    again = cls.load(tmp_path / "m.safetensors")
    assert type(again) is cls
    assert again.get_params() == model.get_params()
    assert again.history_ == model.history_
    assert list(again.feature_names_in_) == list("abcde")
    np.testing.assert_array_equal(again.transform(frame), model.transform(frame))
    for one, other in zip(again.predict(model.embedding_, True), model.predict(model.embedding_, True), strict=True):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(again.score_samples(frame), model.score_samples(frame))
    np.testing.assert_array_equal(again.sample(3, random_state=1), model.sample(3, random_state=1))
    np.testing.assert_array_equal(again.embedding_, model.embedding_)
    # ... and a file of a loaded model says the same
    again.save(tmp_path / "again.safetensors")
    (header, tensors), (other, others) = (
        storage.read(tmp_path / name) for name in ("m.safetensors", "again.safetensors")
    )
    assert header == other
    assert all(torch.equal(tensors[name], others[name]) for name in tensors | others)


def test_settings_may_be_numbers_of_numpy(X, tmp_path):
    # As a grid search over np.arange and np.logspace sets them: they must go into checkpoints and files
    counts = {name: np.int64(3) for name in ("n_components", "max_epochs", "random_state", "support_size")}
    rates = {"learning_rate": np.float32(1e-3), "hyper_learning_rate": np.float64(1e-2), "encoder_noise": np.float64(1)}
    model = SASGP(**counts, **rates)

    def stop(model, record):
        if record["epoch"] == 2:
            raise KeyError

    with pytest.raises(KeyError):
        model.fit(X, checkpoint=tmp_path / "c.pt", callback=stop)
    model.fit(X, resume=tmp_path / "c.pt").save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    assert again.n_components == 3


def test_composed_kernel_comes_back_by_itself(X, tmp_path):
    kernels = gpytorch.kernels
    kernel = kernels.ScaleKernel(kernels.RBFKernel(ard_num_dims=2)) + kernels.LinearKernel() * kernels.MaternKernel(1.5)
    model = SASGP(kernel=kernel, max_epochs=3, random_state=0).fit(X)
    model.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors")
    np.testing.assert_array_equal(again.predict(model.embedding_), model.predict(model.embedding_))
    # The setting is the kernel as it was handed over, not as it was trained
    assert torch.equal(again.kernel.kernels[0].base_kernel.lengthscale, kernel.kernels[0].base_kernel.lengthscale)


class OwnKernel(gpytorch.kernels.RBFKernel):
    def forward(self, *args, **kwargs):
        return 2 * super().forward(*args, **kwargs)


class OwnEncoder(torch.nn.Module):
    def __init__(self, n_features=5):
        super().__init__()
        self.mean, self.raw_var = torch.nn.Linear(n_features, 2), torch.nn.Linear(n_features, 2)

    def forward(self, X):
        return self.mean(X / 50), torch.nn.functional.softplus(self.raw_var(X / 50)) + 1e-6


def test_own_classes_are_handed_over_again(X, tmp_path):
    model = SASGP(kernel=OwnKernel(), encoder=OwnEncoder(), max_epochs=3, random_state=0).fit(X)
    path = tmp_path / "m.safetensors"
    model.save(path)
    again = SASGP.load(path, kernel=OwnKernel(), encoder=OwnEncoder())
    np.testing.assert_array_equal(again.transform(X), model.transform(X))
    np.testing.assert_array_equal(again.predict(model.embedding_), model.predict(model.embedding_))
    with pytest.raises(InputError, match=r"kernel of the class .*OwnKernel.*load\(path, kernel=OwnKernel"):
        SASGP.load(path, encoder=OwnEncoder())
    with pytest.raises(InputError, match=r"encoder of the class .*OwnEncoder"):
        SASGP.load(path, kernel=OwnKernel())
    with pytest.raises(InputError, match="do not fit the model"):
        SASGP.load(path, kernel=OwnKernel(), encoder=OwnEncoder(4))
    plain = SASGP(max_epochs=1).fit(X)
    plain.save(path)
    with pytest.raises(InputError, match=r"kernel of the model in .* is in the file. Load the model without kernel="):
        SASGP.load(path, kernel=OwnKernel())


def test_a_file_of_another_class_is_named(X, tmp_path):
    SASGP(max_epochs=1).fit(X).save(tmp_path / "m.safetensors")
    with pytest.raises(InputError, match=r"holds a SASGP model.* sasgp.SASGP.load"):
        GPLVM.load(tmp_path / "m.safetensors")


def test_the_file_says_what_it_is(model, tmp_path):
    model.save(tmp_path / "m.safetensors")
    raw = (tmp_path / "m.safetensors").read_bytes()
    outer = json.loads(raw[8 : 8 + int.from_bytes(raw[:8], "little")])
    header = json.loads(outer["__metadata__"]["header"])
    assert header["class"] == "SASGP"
    assert header["settings"]["n_components"] == 1
    assert {"model.log_noise", "model.kernel.raw_outputscale", "model.encoder.mu.0.weight", "embedding"} <= outer.keys()


# ---------------------------------------------------------------------------------------------------- bad input

BAD_SETTINGS = {
    "n_components": (0, 1.5, "all", True),
    "latents": ("Bayesian", None),
    "encoder": ("netwrok", 3),
    "kernel": ("rfb", 3),
    "noise": ("features",),
    "active_set_size": (0, 2.5, 1024, 5000),
    "batch_size": (0, 400),
    "support_size": ("autoo", 0, 2.5, True),
    "max_epochs": (0, 1.5),
    "learning_rate": (0, -1, float("nan"), "fast"),
    "hyper_learning_rate": (0, None),
    "init": ("pcs", np.zeros((3, 2)), np.full((60, 2), np.nan)),
    "dtype": ("float16",),
    "device": ("gpu", "cuda:99"),
    "encoder_noise": (-1, None),
    "early_stopping": (0,),
    "validation_fraction": (0, 1),
}


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in BAD_SETTINGS.items() for value in values]
)
def test_bad_settings_are_named(X, name, value):
    with pytest.raises(InputError, match=name) as error:
        SASGP(**{name: value}).fit(X)
    assert "Got" in str(error.value)


def test_near_misses_get_a_suggestion(X):
    with pytest.raises(InputError, match="Did you mean 'network'"):
        SASGP(encoder="netwrok").fit(X)


def test_bad_values_are_counted_and_placed(X, tmp_path):
    bad = X.copy()
    bad[7, 3], bad[9, 0], bad[8, 2] = np.inf, np.inf, np.nan
    np.save(tmp_path / "bad.npy", bad)
    for rows in (bad, np.load(tmp_path / "bad.npy", mmap_mode="r")):
        with pytest.raises(InputError, match=r"2 infinite values, the first \(inf\) in row 7, column 3"):
            SASGP().fit(rows)
    with pytest.raises(InputError, match=r"Column '0' has infinite values.*Column '3' has infinite values"):
        SASGP().fit(pd.DataFrame(bad))


def test_other_bad_input(X, model):
    with pytest.raises(InputError, match=r"Z must have n_components=1 columns.* Got 2"):
        model.predict(np.zeros((3, 2)))
    with pytest.raises(ValueError, match="expecting 5 features"):
        model.transform(X[:, :4])
    with pytest.raises(InputError, match="early_stopping needs an encoder"):
        SASGP(encoder="table", early_stopping=2).fit(X)
    with pytest.raises(InputError, match=r"must leave at least 2 of the 60 rows to train on. Got 0.99. Lower it"):
        SASGP(early_stopping=2, validation_fraction=0.99).fit(X)
    for Z in (torch.full((1, 1), torch.nan), torch.zeros(3), torch.zeros(1, 1, 1)):
        with pytest.raises(ValueError, match=r"NaN|Expected 2D|dim 3"):
            model.predict(Z)
    with pytest.raises(InputError, match="n_samples must be"):
        model.sample(2.5)
    with pytest.raises(InputError, match=r"needs about .* GiB"):
        GPLVM().fit(np.zeros((400_000, 1), np.uint8))
    with pytest.raises(InputError, match="kernel on a latent space of n_components=2"):
        SASGP(kernel=gpytorch.kernels.RBFKernel(ard_num_dims=3)).fit(X)


def test_an_offset_that_float32_cannot_hold(X):
    for noise in ("shared", "feature"):
        assert np.isfinite(SASGP(max_epochs=2, noise=noise).fit(X + 1e5).score(X + 1e5))
        with pytest.raises(InputError, match=r"around a mean of 1e\+08.*numbers in float32 are too far apart"):
            SASGP(noise=noise).fit(X + 1e8)
    near, far = (
        SASGP(max_epochs=20, random_state=0, dtype="float64").fit(X + offset).embedding_ for offset in (0, 1e8)
    )
    np.testing.assert_allclose(near, far, atol=1e-3)
    constant = np.hstack([X, np.full((60, 1), 1e9)])  # has nothing to lose
    for noise in ("shared", "feature"):
        assert np.isfinite(SASGP(max_epochs=2, noise=noise).fit(constant).score(constant))


def test_a_fit_that_fails_leaves_no_half_of_a_model(X):
    def fail(model, record):
        raise RuntimeError

    model = SASGP(max_epochs=2, random_state=0)
    for _ in range(2):  # a first fit, and one of a model that was fitted before
        with pytest.raises(RuntimeError):
            model.fit(5 * X + 100, callback=fail)
        for use in (model.transform, model.predict, model.score):
            with pytest.raises(NotFittedError):
                use(X)
        model.fit(X)
    with pytest.raises(InputError):
        model.set_params(batch_size=-1).fit(X[:, :4])
    with pytest.raises(NotFittedError):
        model.transform(X)
    model.set_params(batch_size=1024).fit(X)
    np.testing.assert_array_equal(model.embedding_, model.transform(X))


def test_the_start_does_not_depend_on_the_order_of_rows(monkeypatch):
    monkeypatch.setattr(fit_encoder, "SUBSET", 100)
    draw = np.random.default_rng(0)
    X = np.concatenate([0.01 * draw.normal(size=(100, 3)), draw.normal(size=(100, 3))])
    settings = {"max_epochs": 1, "learning_rate": 1e-9, "hyper_learning_rate": 1e-9, "random_state": 0}
    apart, mixed = (
        SASGP(**settings).fit(rows).kernel_.base_kernel.lengthscale.item() for rows in (X, draw.permutation(X))
    )
    assert 0.7 < apart / mixed < 1.4


def test_constant_data_are_fine():
    X = np.full((30, 4), 7.0)
    model = SASGP(max_epochs=3, random_state=0).fit(X)
    np.testing.assert_allclose(model.predict(model.transform(X)), X)


# ---------------------------------------------------------------------------------------------------- numerics


@pytest.mark.parametrize("estimator", [SASGP(), GPLVM(), BayesianGPLVM(n_inducing=10), VAE()])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("scale", [1e-100, 1e200])
def test_data_whose_squares_are_no_numbers_are_refused_before_training(X, estimator, dtype, scale):
    estimator = clone(estimator).set_params(dtype=dtype, max_epochs=2, random_state=0)
    with pytest.raises(InputError, match=r"(too small for|does not fit into) float64\. Rescale the data"):
        estimator.fit(scale * (X - X.mean(0)))
    assert not hasattr(estimator, "model_")


@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e-12), ("float32", 1e12), ("float64", 1e-30)])
def test_data_of_other_units_train_to_the_same_latents(X, dtype, scale):
    one, other = (SASGP(dtype=dtype, max_epochs=5, random_state=0).fit(s * X) for s in (1.0, scale))
    assert one.dtype_ == other.dtype_ == dtype
    np.testing.assert_allclose(one.embedding_, other.embedding_, atol=1e-2)


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e30])
@pytest.mark.parametrize("init", ["pca", "spectral"])
def test_squares_that_do_not_fit_into_float32_are_computed_in_float64(X, scale, init, tmp_path):
    settings = {"init": init, "max_epochs": 5, "random_state": 0}
    plain = SASGP(dtype="float64", **settings).fit(X - X.mean(0))
    model = SASGP(**settings, precision="mixed").fit(scale * (X - X.mean(0)))
    assert (model.dtype, model.dtype_, model.precision_) == ("float32", "float64", "float32")
    np.testing.assert_allclose(model.embedding_, plain.embedding_, atol=1e-4)
    model.save(tmp_path / "model.safetensors")
    loaded = SASGP.load(tmp_path / "model.safetensors")
    for one in (model, loaded):
        mean, std = one.predict(one.embedding_, return_std=True)
        assert mean.dtype == std.dtype == np.float64
        np.testing.assert_allclose(std / scale, plain.predict(plain.embedding_, return_std=True)[1], rtol=1e-3)
        np.testing.assert_array_equal(one.transform(scale * (X - X.mean(0))), model.embedding_)
        # Numbers of float32 are such data, too
        assert np.isfinite(one.score((scale * (X - X.mean(0))).astype(np.float32)))


def test_a_history_with_numbers_that_json_has_not_can_be_saved(X, tmp_path, monkeypatch):
    monkeypatch.setattr(SASModel, "monitor", lambda self: {"noise": np.inf, "other": np.nan, "third": 1.0})
    model = SASGP(max_epochs=1, random_state=0).fit(X)
    model.save(tmp_path / "model.safetensors")
    (record,) = SASGP.load(tmp_path / "model.safetensors").history_
    assert (record["noise"], record["other"], record["third"]) == (None, None, 1.0)


def test_whole_numbers_may_be_too_large_for_float32(X):
    X = np.round(1e16 * (X - X.mean(0)) / X.std()).astype(np.int64) * 100
    assert SASGP(max_epochs=1, random_state=0).fit(X).dtype_ == "float64"


def test_constant_data_of_any_size_are_fine():
    for size, dtype in ((1e-30, "float32"), (1e30, "float64"), (0.0, "float32")):
        X = np.full((30, 4), size)
        model = SASGP(max_epochs=3, random_state=0).fit(X)
        assert model.dtype_ == dtype
        np.testing.assert_allclose(model.predict(model.transform(X)), X, rtol=1e-5)


def test_a_new_value_that_does_not_fit_the_model_is_refused(X):
    model = SASGP(max_epochs=1, random_state=0).fit(X)
    X = X.copy()
    X[3, 1] = 1e30
    sentence = r"size 1e\+30, whose square does not fit into float32. Rescale it, or fit the model with dtype='float64'"
    with pytest.raises(InputError, match=sentence):
        model.transform(X)
