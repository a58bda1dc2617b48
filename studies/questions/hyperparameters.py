"""Hyperparameters of a regression by active sets, beside those of the exact marginal likelihood of 2000 rows.

    drawn      2000 rows, and 1000 test rows, of a Gaussian process that is known: Matérn-3/2, four inputs with
               lengthscales .5, 1, 2 and 4, signal 1, noise variance .05
    kin40k     the first 2000 training rows of the first split, and all its test rows; --file as for `regression`

All predictions of these are exact, so that they differ by their hyperparameters alone. The same without the last stage
of training, in which each row is predicted from its nearest rows, also on whole tables: there predictions come from
the 256 nearest rows. Targets are taken as they are (`target="plain"`).

    sasgp      SASGPRegressor
    eq6        ... without the last stage
    exact      GPyTorch's exact Gaussian process, 100 steps of Adam
    truth      the hyperparameters that the data were drawn with
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import gpytorch
import numpy as np
import torch

from sasgp import SASGPRegressor
from sasgp.gp.row_sums import condition
from studies.questions.gpytorch_models import ExactGP
from studies.questions.regression import Z95, Array, scored, split
from studies.records import Record, Run
from studies.tables import mean_and_deviation
from studies.tables import table as markdown

SEEDS = (0,)
LENGTHSCALES, NOISE = (0.5, 1.0, 2.0, 4.0), 0.05
ROWS, TEST_ROWS = 2000, 1000
WHOLE = ("elevators", "pol", "bike", "kin40k", "concrete", "energy")
MODELS = {"sasgp": "SASGPRegressor", "eq6": "without the last stage", "exact": "exact likelihood", "truth": "the truth"}


def runs(seed: int, quick: bool) -> list[Run]:
    """Every way to hyperparameters on 2000 rows, and the last stage also on whole tables."""
    rows, steps = (200, 2) if quick else (ROWS, 100)
    small = [("drawn", model, rows) for model in MODELS]
    if not quick:
        small += [("kin40k", model, rows) for model in MODELS if model != "truth"]
        small += [(data, model, None) for data in WHOLE for model in ("sasgp", "eq6")]
    return [
        Run(
            f"hyperparameters-{data}-{rows or 'all'}-{model}",
            {"data": data, "rows": rows, "model": model}
            | ({"steps": steps} if model == "exact" else {"max_epochs": steps} if quick else {}),
            seed,
        )
        for data, model, rows in small
    ]


# ---- data ----


def known_kernel() -> gpytorch.kernels.Kernel:
    """The kernel that data are drawn with, in float64."""
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(nu=1.5, ard_num_dims=len(LENGTHSCALES)))
    kernel.base_kernel.lengthscale, kernel.outputscale = torch.tensor(LENGTHSCALES), 1.0
    return kernel.double()


@torch.no_grad()
def drawn(n_rows: int, n_test: int, seed: int) -> tuple[Array, Array, Array, Array]:
    """Inputs ~ N(0, I) and targets of the known Gaussian process: training rows, then test rows."""
    draw = torch.Generator().manual_seed(seed)
    n = n_rows + n_test
    X = torch.randn(n, len(LENGTHSCALES), generator=draw, dtype=torch.float64)
    # y = L ε, L Lᵀ = K + σ² I
    L = torch.linalg.cholesky(known_kernel()(X).to_dense() + NOISE * torch.eye(n))
    y = L @ torch.randn(n, generator=draw, dtype=torch.float64)
    return X[:n_rows].numpy(), y[:n_rows].numpy(), X[n_rows:].numpy(), y[n_rows:].numpy()


def _data(settings: dict[str, Any], folder: str | None, seed: int) -> tuple[Array, Array, Array, Array]:
    rows = settings["rows"]
    if settings["data"] == "drawn":
        return drawn(rows, TEST_ROWS, seed)
    X, y, X_test, y_test = split(settings["data"], folder, seed)
    return X[:rows], y[:rows], X_test, y_test


# ---- models ----


@contextmanager
def _without_the_last_stage() -> Iterator[None]:
    own = SASGPRegressor._sharpen
    SASGPRegressor._sharpen = lambda self: None  # type: ignore[method-assign]
    try:
        yield
    finally:
        SASGPRegressor._sharpen = own  # type: ignore[method-assign]


def _ours(model: str, settings: dict[str, Any], seed: int, X: Array, y: Array) -> SASGPRegressor:
    one = SASGPRegressor(target="plain", max_epochs=settings.get("max_epochs"), random_state=seed)
    if model == "sasgp":
        return one.fit(X, y)
    with _without_the_last_stage():
        return one.fit(X, y)


def execute(run: Run) -> dict[str, Any]:
    """Learn hyperparameters in one way, and measure on test rows."""
    settings, seed = dict(run.settings), run.seed or 0
    model = settings["model"]
    X, y, X_test, y_test = _data(settings, run.file, seed)
    cpu = time.process_time()
    if model in ("sasgp", "eq6"):
        ours = _ours(model, settings, seed, X, y)
        cpu = time.process_time() - cpu
        mean, std = ours.predict(X_test, return_std=True)
        kernel, units = ours.kernel_.double(), ours.model_.units.double()
        # In the units of the inputs and of the targets, as those of the others
        lengthscale = kernel.base_kernel.lengthscale.detach() * units
        noise, signal = float(ours.noise_[0] ** 2), float(kernel.outputscale.detach()) * float(np.var(y))
    elif model == "exact":
        exact = ExactGP(steps=settings["steps"]).fit(X, y)
        cpu = time.process_time() - cpu
        mean, std = exact.predict(X_test)
        kernel = exact.model.covar_module
        lengthscale = kernel.base_kernel.lengthscale.detach()
        noise, signal = float(exact.likelihood.noise.detach()), float(kernel.outputscale.detach())
    else:
        cpu = 0.0
        kernel, noise, signal = known_kernel(), NOISE, 1.0
        lengthscale = kernel.base_kernel.lengthscale.detach()
        inputs, targets, at = torch.from_numpy(X), torch.from_numpy(y)[:, None], torch.from_numpy(X_test)
        with torch.no_grad():
            zero = torch.zeros(1, dtype=torch.float64)
            m, c = condition(kernel, torch.tensor(noise), inputs, targets, zero).predict(at)
        mean, std = m[:, 0].numpy(), c[:, 0].sqrt().numpy()
    log_p = -0.5 * (np.log(2 * np.pi * std**2) + ((y_test - mean) / std) ** 2)
    return {
        **scored(y_test, (mean, mean - Z95 * std, mean + Z95 * std), log_p),
        "lengthscale": lengthscale.flatten().tolist(),
        "noise": noise,
        "signal": signal,
        "train_rows": len(X),
        "cpu_seconds": cpu,
    }


def table(records: Sequence[Record]) -> str:
    """One line per data and way."""
    lines = []
    for name in dict.fromkeys(record["name"] for record in records):
        found = [record["results"] for record in records if record["name"] == name]
        settings = next(record["settings"] for record in records if record["name"] == name)
        digits = {"rmse": 4, "nll": 4, "coverage_95": 3, "noise": 6}
        cells = [mean_and_deviation([one[key] for one in found], places) for key, places in digits.items()]
        scales = np.mean([one["lengthscale"] for one in found], axis=0)
        shown = ", ".join(f"{value:.2f}" for value in scales) if len(scales) < 10 else f"{len(scales)} of them"
        seconds = mean_and_deviation([one["cpu_seconds"] for one in found], 0)
        lines.append(
            [settings["data"], f"{found[0]['train_rows']:,}", MODELS[settings["model"]], *cells, shown, seconds]
        )
    header = ["data", "rows", "", "RMSE", "NLL", "in 95 %", "noise variance", "lengthscales", "CPU s"]
    return markdown(header, lines)
