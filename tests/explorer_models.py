"""Decoders for the explorer's tests: made, not trained, since what the page must match is `predict`, however good."""

import numpy as np
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)

from sasgp.gp.local_noise import ResidualSums
from sasgp.gp.row_sums import condition as given_rows


class Decoder:
    """A model as the explorer knows it, conditioned on rows that a smooth function made of random latents."""

    def __init__(
        self, kernel, *, Q=2, D=6, S=60, N=200, noise=0.02, low=0.0, high=1.0, seed=0, scales=None, local=False
    ):
        draw = np.random.default_rng(seed)
        self.n_components_, self.n_features_in_, self.n_scores_, self.columns_ = Q, D, D, None
        self.embedding_ = draw.normal(size=(N, Q)).astype(np.float32)
        waves = np.sin(1.5 * self.embedding_ @ draw.normal(size=(Q, D)) + draw.uniform(0, 6, D)) / 2 + 0.5
        self.X = (low + (high - low) * np.clip(waves + 0.05 * draw.normal(size=(N, D)), 0, 1)).astype(np.float32)
        Z, X = torch.from_numpy(self.embedding_[:S]), torch.from_numpy(self.X[:S])
        scale = (high - low) ** 2
        kernel = ScaleKernel(kernel)
        kernel.outputscale = 0.1 * scale
        self.posterior_ = given_rows(kernel, torch.tensor(noise * scale), Z, X, X.mean(0), scales)
        if local:  # noise that differs between features by a factor of 30, and from place to place
            sums = ResidualSums(kernel, Z, D)
            size = torch.logspace(-2, -0.5, D) * (1 + 0.8 * torch.sin(2 * Z[:, :1])) * (high - low)
            sums.add(size, torch.zeros(S), Z)
            self.posterior_.local_noise = sums.noise(self.posterior_.feature_noise)

    def predict(self, Z, return_std=False):
        mean, var = self.posterior_.predict(torch.as_tensor(np.asarray(Z), dtype=torch.float32))
        return (mean.numpy(), var.sqrt().expand_as(mean).numpy()) if return_std else mean.numpy()

    predict_scores = predict


class OwnKernel(RBFKernel):
    """A kernel that no browser has heard of, for all that one can know of a subclass."""


def set_to(kernel, **values):
    for name, value in values.items():
        setattr(kernel, name, torch.as_tensor(value))
    return kernel


KERNELS = {
    "rbf": lambda: set_to(RBFKernel(), lengthscale=0.8),
    "rbf-ard": lambda: set_to(RBFKernel(ard_num_dims=2), lengthscale=[0.5, 1.3]),
    "matern12": lambda: set_to(MaternKernel(nu=0.5), lengthscale=1.1),
    "matern32": lambda: set_to(MaternKernel(nu=1.5), lengthscale=0.9),
    "matern52": lambda: set_to(MaternKernel(nu=2.5, ard_num_dims=2), lengthscale=[0.7, 1.0]),
    "rq": lambda: set_to(RQKernel(), lengthscale=0.8, alpha=0.7),
    "periodic": lambda: set_to(PeriodicKernel(), lengthscale=1.2, period_length=4.0),
    "linear": lambda: set_to(LinearKernel(ard_num_dims=2), variance=[0.4, 1.5]),
    "polynomial": lambda: set_to(PolynomialKernel(power=2), offset=0.8),
    "cosine": lambda: set_to(CosineKernel(), period_length=9.0),
    "sum": lambda: ScaleKernel(MaternKernel(nu=1.5)) + set_to(RBFKernel(), lengthscale=2.0) + ConstantKernel(),
    "product": lambda: set_to(RBFKernel(active_dims=(0,)), lengthscale=0.6) * MaternKernel(nu=2.5, active_dims=(1,)),
    "scaled parts": lambda: (
        ScaleKernel(RBFKernel(active_dims=(1,))) + LinearKernel() * set_to(RBFKernel(), lengthscale=1.5)
    ),
}


def mixed_table(n=120, seed=0):
    """A polars frame with a column of every kind, and a model that hardly saw it. Maps of all shapes are put in."""
    import datetime
    from dataclasses import replace

    import polars as pl

    from sasgp import SASGP
    from sasgp.data.columns.maps import curved_map

    draw = np.random.default_rng(seed)
    a, b = draw.normal(size=(2, n))
    days = np.rint(9000 + 400 * a + 50 * draw.normal(size=n))
    frame = pl.DataFrame(
        {
            "length": 40 + 5 * a + draw.normal(size=n),
            "price": np.exp(2 + a + 0.3 * draw.normal(size=n)),
            "change": np.sinh(2 * b + 0.3 * draw.normal(size=n)),
            "mass": np.rint(4000 + 500 * b + 100 * draw.normal(size=n)),
            "visits": draw.poisson(np.exp(0.8 + 0.5 * a)),
            "born": [datetime.date(1970, 1, 1) + datetime.timedelta(days=int(day)) for day in days],
            "seen": [datetime.datetime(2020, 1, 1) + datetime.timedelta(hours=int(100 * x + 500)) for x in b],
            "smokes": a + 0.5 * draw.normal(size=n) > 0.3,
            "grade": np.clip(np.rint(2.5 + b + 0.3 * draw.normal(size=n)), 1, 5).astype(int),
            "island": np.array(["Dream", "Biscoe", "Torgersen"])[np.clip(np.rint(a + 1), 0, 2).astype(int)],
        }
    )
    kinds = {"length": "real", "price": "skewed", "change": "skewed", "mass": "real", "visits": "count"}
    kinds |= {"born": "date", "seen": "date", "smokes": "binary", "grade": "ordinal", "island": "category"}
    model = SASGP(max_epochs=3, random_state=0, columns=kinds).fit(frame)
    shapes = {
        "length": curved_map(frame["length"].to_numpy(), "identity"),
        "price": curved_map(frame["price"].to_numpy(), "log"),
        "change": curved_map(frame["change"].to_numpy(), "asinh"),
    }
    columns = [replace(one, map=shapes[one.name]) if one.name in shapes else one for one in model.columns_.columns]
    assert model.columns_ is not None
    model.columns_ = replace(model.columns_, columns=tuple(columns))
    return model, frame
