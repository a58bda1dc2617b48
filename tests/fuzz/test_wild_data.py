"""Wild data with dtype="float32": a fit without NaN that is no worse than the mean.

`pytest --seeds 20 tests/fuzz/test_wild_data.py` runs 20 seeds of each estimator on all data. Otherwise a few pairs run.
"""

from functools import partial

import numpy as np
import pytest
from mutation import generator

import sasgp
from sasgp.errors import InputError

FEW = 1


def smooth(draw, N=60, D=6):
    """Rows that two latent dimensions explain."""
    Z = draw.normal(size=(N, 2))
    return np.sin(Z @ draw.normal(size=(2, D))) + 0.1 * draw.normal(size=(N, D))


def one_outlier(draw):
    X = smooth(draw)
    X[draw.integers(len(X)), draw.integers(X.shape[1])] = 1e6
    return X


def with_holes(draw):
    """Rows that all have a value: one without any is refused."""
    missing = draw.random((60, 6)) < 0.3
    missing[missing.all(1), 0] = False
    return np.where(missing, np.nan, smooth(draw))


WILD = {
    "1e30": lambda draw: 1e30 * smooth(draw),
    "1e-30": lambda draw: 1e-30 * smooth(draw),
    "1e12": lambda draw: 1e12 * smooth(draw),
    "1e-12": lambda draw: 1e-12 * smooth(draw),
    "one outlier": one_outlier,
    "far from zero": lambda draw: 1e5 + smooth(draw),
    "all rows equal": lambda draw: np.tile(draw.normal(size=(1, 4)), (30, 1)),
    "two rows": lambda draw: smooth(draw, N=2),
    "one feature": lambda draw: smooth(draw, D=1),
    "fewer features than latents": lambda draw: smooth(draw, D=2),
    "duplicates": lambda draw: np.repeat(smooth(draw, N=6), 10, axis=0),
    "heavy tails": lambda draw: draw.standard_t(1.1, size=(60, 5)),
    "without noise": lambda draw: np.outer(np.linspace(-1, 1, 50), draw.normal(size=4)),
    "units": lambda draw: smooth(draw) * np.logspace(-8, 8, 6),
    "holes": with_holes,
}

FAST = {"batch_size": 32, "active_set_size": 8, "max_epochs": 15}
ESTIMATORS = {
    "SASGP": partial(sasgp.SASGP, **FAST),
    "point": partial(sasgp.SASGP, latents="point", encoder="table", **FAST),
    "feature": partial(sasgp.SASGP, noise="feature", **FAST),
    "local": partial(sasgp.SASGP, noise="local", **FAST),
    "GPLVM": partial(sasgp.GPLVM, max_epochs=15),
    "BayesianGPLVM": partial(sasgp.BayesianGPLVM, n_inducing=10, batch_size=32, max_epochs=15),
    "VAE": partial(sasgp.VAE, max_epochs=200),  # which starts further from the data
}


def pytest_generate_tests(metafunc):
    first = metafunc.function is test_wild_data
    pairs = [(name, wild) for name in (ESTIMATORS if first else OTHERS) for wild in WILD]
    if not metafunc.config.getoption("--seeds"):  # each kind of data once, and each estimator twice
        pairs = [([*ESTIMATORS][i % len(ESTIMATORS)], wild) for i, wild in enumerate(WILD)] if first else [*FEW_OTHERS]
    metafunc.parametrize(("name", "wild"), pairs)


def test_wild_data(name, wild, seed):
    draw = np.random.default_rng(generator(wild, seed).randrange(2**32))
    X = WILD[wild](draw)
    components = 3 if wild == "fewer features than latents" else 2
    model = ESTIMATORS[name](n_components=components, random_state=seed, dtype="float32")
    mean, std = model.fit(X).predict(model.embedding_, return_std=True)
    found = [model.embedding_, mean, std, model.transform(X), model.score_samples(X), model.sample(3, random_state=0)]
    assert all(np.isfinite(numbers).all() for numbers in found)
    assert (std >= 0).all()
    # Σ (x − m)² of the decoder and of the mean. A network that has just begun is a thousandth off where all is constant
    centre = np.nanmean(X, 0)
    error, spread = np.nansum((X - mean) ** 2), np.nansum((X - centre) ** 2)
    assert error < 1.05 * spread + X.size * (1e-3 * np.abs(centre).max()) ** 2


def regression(X, seed):
    y = np.nanmean(X, 1)
    mean, std = sasgp.SASGPRegressor(max_epochs=15, random_state=seed).fit(X, y).predict(X, return_std=True)
    return [mean, std], np.sum((y - mean) ** 2), np.sum((y - y.mean()) ** 2)


def classification(X, seed):
    y = np.arange(len(X)) % 2 if np.ptp(np.nanmean(X, 1)) == 0 else np.nanmean(X, 1) > np.median(np.nanmean(X, 1))
    model = sasgp.SASGPClassifier(max_epochs=15, random_state=seed).fit(X, y)
    wrong, usual = np.mean(model.predict(X) != y), min(np.mean(y), 1 - np.mean(y))
    return [model.predict_proba(X)], wrong, usual


def imputation(X, seed):
    """Observed values stay. What is filled in is within twice the range of its column, with holes in every column."""
    holes = X.copy()
    holes[0, :-1] = holes[1, -1] = np.nan
    full = sasgp.SASGPImputer(max_epochs=15, random_state=seed).fit(holes).transform(holes)
    known = ~np.isnan(holes)
    np.testing.assert_array_equal(full[known], holes[known])
    low, high = np.nanmin(holes, 0), np.nanmax(holes, 0)
    return [full], np.max(np.abs(full - (low + high) / 2) - 1.5 * (high - low)), np.max(np.abs(X[known])) * 1e-6


FEW_OTHERS = (
    ("SASGPRegressor", "one outlier"),
    ("SASGPRegressor", "1e30"),
    ("SASGPClassifier", "1e-30"),
    ("SASGPImputer", "1e30"),
    ("SASGPImputer", "heavy tails"),
)
OTHERS = {"SASGPRegressor": regression, "SASGPClassifier": classification, "SASGPImputer": imputation}


def test_wild_data_for_predictions(name, wild, seed):
    X = WILD[wild](np.random.default_rng(generator(wild, seed).randrange(2**32)))
    if (name, wild) == ("SASGPRegressor", "all rows equal"):  # nothing to learn
        with pytest.raises(InputError, match="must vary"):
            regression(X, seed)
        return
    found, error, limit = OTHERS[name](X, seed)
    assert all(np.isfinite(numbers).all() for numbers in found)
    assert error <= 1.05 * limit
