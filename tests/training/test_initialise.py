"""Build makes shapes, initialise makes numbers: one structure for fit, resume and load, and one place for the start."""

import numpy as np
import pytest
import torch
from starts import shorten_start
from torch import nn

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM, InputError
from sasgp.models.build import build
from sasgp.training import initialise

CASES = {
    "point": (SASGP, {"latents": "point"}),
    "bayesian": (SASGP, {}),
    "table": (SASGP, {"encoder": "table"}),
    "conv": (SASGP, {"encoder": "conv", "image_shape": (4, 4)}),
    "feature": (SASGP, {"noise": "feature", "kernel": "matern32"}),
    "auto": (SASGP, {"n_components": "auto"}),
    "exact": (GPLVM, {}),
    "inducing": (BayesianGPLVM, {"n_inducing": 7}),
    "network": (VAE, {"variance": "head"}),
}


@pytest.fixture
def X():
    draw = np.random.default_rng(0)
    return draw.normal(size=(50, 3)) @ draw.normal(size=(3, 16)) + 5


@pytest.mark.parametrize("case", CASES)
def test_a_fitted_model_has_the_structure_that_its_settings_build(case, X, monkeypatch):
    shorten_start(monkeypatch, 2)
    cls, settings = CASES[case]
    fitted = cls(max_epochs=1, random_state=0, **settings).fit(X)
    before = torch.random.get_rng_state()
    built = build(fitted._model_settings(50), 16, fitted.n_components_)
    assert torch.equal(torch.random.get_rng_state(), before), "nothing is drawn"
    found, expected = built.state_dict(), fitted.model_.state_dict()
    assert {name: value.shape for name, value in found.items()} == {n: v.shape for n, v in expected.items()}
    built.load_state_dict(expected)
    if case != "auto":  # which was trained with more dimensions
        assert built.encoder_noise == fitted.model_.encoder_noise
    index, one = torch.arange(50), torch.as_tensor(X, dtype=torch.float32)
    with torch.no_grad():
        assert torch.equal(built.eval().encoder.position(one, index), fitted.model_.encoder.position(one, index))


def test_a_network_has_no_numbers_until_it_gets_them(X):
    model = SASGP()
    model.dtype_, model.image_shape_, model.noise_kind_ = "float32", None, "shared"
    model.active_set_size_, model.encoder_noise_ = 10, 1.0
    weights = [value for name, value in build(model._model_settings(50), 16, 2).encoder.named_parameters()]
    assert weights
    assert not any(weight.any() for weight in weights)


class Normed(nn.Module):
    """An encoder that counts the batches it sees in training mode."""

    def __init__(self):
        super().__init__()
        self.norm, self.mean, self.variance = nn.BatchNorm1d(16), nn.Linear(16, 2), nn.Linear(16, 2)

    def forward(self, X):
        X = self.norm(X)
        return self.mean(X), nn.functional.softplus(self.variance(X)) + 1e-3


@pytest.mark.parametrize("estimator", [SASGP(), BayesianGPLVM(n_inducing=5), VAE()])
def test_a_user_s_encoder_is_in_training_mode_for_training_steps_alone(estimator, X):
    estimator.set_params(encoder=Normed(), max_epochs=3, random_state=0).fit(X)  # 50 rows are one batch an epoch
    assert estimator.model_.encoder.module.norm.num_batches_tracked == 3


@pytest.mark.parametrize(("mean", "fits"), [(1.6e6, True), (1.75e6, False), (-1.75e6, False)])
def test_values_too_far_from_0_for_their_spread_are_refused(mean, fits):
    # Rounding to float32 is off by up to 2⁻²⁴ of a value: at 1.68e6 that is a tenth of a standard deviation of 1
    means, units = np.array([0.0, mean]), np.array([1.0, 1.0])
    if fits:
        initialise.check_precision(means, units, torch.float32)
    else:
        with pytest.raises(InputError, match=r"Feature 1 varies by 1 around a mean of .*float64"):
            initialise.check_precision(means, units, torch.float32)
