"""Wild data in float32: a fit without NaN that is no worse than the mean, or one sentence before training starts.

`pytest --seeds 20 tests/fuzz/test_wild_data.py` runs 20 seeds of each estimator. Without it there is one.
"""

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
    "holes": lambda draw: np.where(draw.random((60, 6)) < 0.3, np.nan, smooth(draw)),
}

SETTINGS = {"max_epochs": 15, "dtype": "float32", "batch_size": 32}
ESTIMATORS = {
    "SASGP": lambda **how: sasgp.SASGP(active_set_size=8, **how),
    "point": lambda **how: sasgp.SASGP(active_set_size=8, latents="point", encoder="table", **how),
    "feature": lambda **how: sasgp.SASGP(active_set_size=8, noise="feature", **how),
    "local": lambda **how: sasgp.SASGP(active_set_size=8, noise="local", **how),
    "GPLVM": lambda **how: sasgp.GPLVM(**{name: value for name, value in how.items() if name != "batch_size"}),
    "BayesianGPLVM": lambda **how: sasgp.BayesianGPLVM(n_inducing=10, **how),
    "VAE": lambda **how: sasgp.VAE(**how),
}


@pytest.mark.parametrize("wild", WILD)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_wild_data(name, wild, seed):
    draw = np.random.default_rng(generator(wild, seed).randrange(2**32))
    X = WILD[wild](draw)
    components = 3 if wild == "fewer features than latents" else 2
    model = ESTIMATORS[name](n_components=components, random_state=seed, **SETTINGS)
    try:
        model.fit(X)
    except InputError as error:
        sentence = str(error)
        assert wild in ("1e30", "1e-30"), sentence
        assert "escale" in sentence
        return
    mean, std = model.predict(model.embedding_, return_std=True)
    seen = ~np.isnan(X)
    for found in (
        model.embedding_,
        mean,
        std,
        model.transform(X),
        model.score_samples(X),
        model.sample(3, random_state=0),
    ):
        assert np.isfinite(found).all()
    assert (std >= 0).all()
    centre, spread = np.nanmean(X, 0), np.nanstd(X, 0)
    # Errors in units of each feature's own spread; rounding of float32 is all that is left of a constant feature
    unit = np.maximum(spread, 1e-5 * np.abs(centre)) + np.finfo(np.float32).tiny
    worse = (((mean - X) / unit)[seen] ** 2).mean() / max((((centre - X) / unit)[seen] ** 2).mean(), 1e-6)
    assert worse < 1.05
