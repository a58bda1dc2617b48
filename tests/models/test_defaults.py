"""Numbers that are defaults change only on purpose."""

import pytest

import sasgp

DECODER = {"hyper_learning_rate": 0.02, "layout_weight": 0.0, "n_components": 2, "validation_fraction": 0.1}
PREDICTOR = {"active_set_size": 512, "batch_size": 1024, "hyper_learning_rate": 0.1, "learning_rate": 1e-3}
NUMBERS = {
    "SASGP": DECODER | {"active_set_size": 400, "batch_size": 1024},
    "GPLVM": DECODER,
    "BayesianGPLVM": DECODER | {"batch_size": 1024, "n_inducing": 400},
    "VAE": DECODER | {"batch_size": 1024},
    "SASGPRegressor": PREDICTOR | {"neighbours": 256, "support_size": 1000},
    "SASGPClassifier": PREDICTOR | {"neighbours": 256, "support_size": 1000},
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_are_defaults_are_those_that_were_measured(name):
    found = getattr(sasgp, name)().get_params()
    assert {key: value for key, value in found.items() if type(value) in (int, float)} == NUMBERS[name]
