"""The initial values of a model: scales from the data, latents from a projection or a layout, then kernel and noise.

Only a fit needs `initialise`. A model that is resumed or loaded takes its values from a file.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from sasgp.data.progress import progress_bar
from sasgp.data.rows import ArrayRows, moments, take_rows
from sasgp.errors import InputError
from sasgp.gp.positions import CANDIDATES, kmeans_plus_plus
from sasgp.gp.ppca import MaskedPCA
from sasgp.models.anchor import Anchor
from sasgp.models.base import LatentModel
from sasgp.models.encoders import ENCODE_ROWS
from sasgp.models.inducing import InducingModel
from sasgp.models.sas import SASModel
from sasgp.models.vae import VAEModel
from sasgp.training import layouts
from sasgp.training.fit_encoder import (
    FIT_RATE,
    SUBSET,
    Layout,
    fit_steps,
    fit_to_layout,
    fit_to_projection,
    standardised,
)
from sasgp.training.loop import generator, train

__all__ = ["LEAST_VARIANCE", "Start", "initialise", "settle"]

SETTLE_STEPS = 200  # to fit kernel and noise to a layout
LEAST_VARIANCE = {torch.float32: 1e-30, torch.float64: 1e-70}  # noise and gradients are far smaller


@dataclass(frozen=True)
class Start:
    """The settings that decide where training starts.

    Parameters
    ----------
    n_components : int
        Q.
    init : str, array [N, Q] or object
        "pca" or "random", the name of a layout, positions of all rows, or an object with `fit_transform`.
    layout_weight : float
        Strength of the pull towards the layout during training.
    by_feature : bool
        Whether each feature has its own scale.
    own_kernel : bool
        Whether the kernel is the user's own. It keeps its values.
    batch_size, seed : int
    verbose : bool
    """

    n_components: int
    init: Any
    layout_weight: float
    by_feature: bool
    own_kernel: bool
    batch_size: int
    seed: int
    verbose: bool = False

    @property
    def from_projection(self) -> bool:
        """Whether latents start from a projection, so that no layout is needed."""
        return isinstance(self.init, str) and self.init not in layouts.NAMES

    @property
    def has_positions(self) -> bool:
        """Whether `init` is an array of positions."""
        return not isinstance(self.init, str) and not hasattr(self.init, "fit_transform")


@dataclass(frozen=True)
class Measured:
    """Properties of the data, measured before training."""

    centre: Tensor  # [D]
    variance: float  # of a typical feature, or 1 if all rows are equal
    deviation: float  # of a typical feature, also if it is 0
    scales: Tensor  # [2, D]: the smallest scale of each feature and its initial scale, in units of √variance
    units: Tensor  # the encoder divides rows by these: [] or [D]
    noise: float  # the initial σ²


def initialise(model: LatentModel, rows: ArrayRows, start: Start) -> None:
    """Give a model its initial values."""
    measured = measure(rows, start)
    layout = None if start.from_projection else make_layout(rows, measured.units, start)
    with progress_bar("encoder", fit_steps(layout), show=start.verbose) as update:
        scaling = (measured.centre, measured.units)
        if layout is None:
            fit_to_projection(model.encoder, rows, start.init, start.n_components, *scaling, start.seed, update)
        else:
            fit_to_layout(model.encoder, rows, layout, *scaling, start.seed, update, missing=model.missing > 0)
    start_decoder(model, rows, measured, start)
    if layout is None:
        return
    if start.layout_weight:
        weight = start.layout_weight * len(measured.centre)  # the objective has as many values per row
        model.anchor = Anchor(standardised(layout.Z), layout.rows, len(rows), weight)
    with progress_bar("kernel and noise", SETTLE_STEPS, show=start.verbose) as update:
        settle(model, rows, start.batch_size, start.seed, update)


# ---------------------------------------------------------------------------------------------------- the data


def measure(rows: ArrayRows, start: Start) -> Measured:
    """Mean, variance and scales of the data, in one pass."""
    mean, variances, ranges = moments(rows.array)
    spread = float(variances.mean())
    variance = spread or 1.0  # constant data have no scale
    check_size(variance, rows.dtype)
    scales = first_scales(torch.as_tensor(variances / variance), torch.as_tensor(ranges / variance**0.5))
    units = variance**0.5 * (scales[1] if start.by_feature else torch.ones(()))
    check_precision(np.where(ranges > 0, mean, 0.0), units.numpy(), rows.dtype)  # a constant feature loses nothing
    return Measured(
        centre=torch.as_tensor(mean, dtype=rows.dtype, device=rows.device),
        variance=variance,
        deviation=spread**0.5,
        scales=scales,
        units=units.to(rows.device, rows.dtype),
        noise=first_noise(len(mean), start.n_components) * variance,
    )


def first_scales(variances: Tensor, ranges: Tensor) -> Tensor:
    """The smallest scale of each feature and its initial scale, [2, D], from variances and ranges [D].

    The initial scale is the standard deviation. The density of a feature that hardly varies in training would grow
    without limit, and new rows that differ in it would have almost no density. So no scale is below 2 % of the
    feature's range or, if it is constant, of a typical feature's deviation, which is the unit here.
    """
    least = 0.02 * torch.where(ranges > 0, ranges, torch.ones_like(ranges))
    return torch.stack([least, torch.maximum(variances.sqrt(), least)])


def first_noise(n_features: int, n_components: int) -> float:
    """The initial σ², in variances of the data.

    At first everything counts as noise, and training finds coarse structure before fine structure. With nearly as many
    latent dimensions as features it would find none: each dimension pays its divergence from the prior at once, and
    only few features gain from what it explains. In that case, the noise starts lower.
    """
    return min(1.0, max(0.1, n_features / (4 * n_components)))


def check_size(variance: float, dtype: torch.dtype) -> None:
    """Raise InputError if the variance of a typical feature is too small for its parts to be numbers of `dtype`."""
    if variance < LEAST_VARIANCE[dtype]:
        name = str(dtype).removeprefix("torch.")
        other = ", or use dtype='float64'" if dtype == torch.float32 else ""
        raise InputError(
            f"The values vary by {variance**0.5:.3g}, whose square is too small for {name}. Rescale the data{other}.",
            argument="X",
        )


def check_precision(mean: NDArray[Any], units: NDArray[Any], dtype: torch.dtype) -> None:
    """Raise InputError if rounding to `dtype` loses the variation of values, `units` [] or [D], around `mean` [D]."""
    lost = np.abs(mean) * torch.finfo(dtype).eps / 2 > 0.1 * units  # errors of a tenth of the deviation
    if lost.any():
        d = int(lost.argmax())
        raise InputError(
            f"Feature {d} varies by {np.broadcast_to(units, mean.shape)[d]:.3g} around a mean of {mean[d]:.6g}. There, "
            f"numbers in {str(dtype).removeprefix('torch.')} are too far apart to tell its values from each other. "
            "Subtract a constant from the feature, or use dtype='float64'.",
            argument="dtype",
        )


# ---------------------------------------------------------------------------------------------------- the layout


def make_layout(rows: ArrayRows, units: Tensor, start: Start) -> Layout:
    """Positions of all rows, or of a random subset where there are many and none are given."""
    among = np.arange(len(rows)) if rows.indices is None else rows.indices.numpy()
    if start.has_positions:
        Z, chosen = np.asarray(start.init)[among], None
    else:
        chosen = subset_to_lay_out(rows, start)
        X = take_rows(rows.array, among if chosen is None else among[chosen.numpy()])
        X = X.astype(str(rows.dtype).removeprefix("torch."))
        # Programs for layouts compute squares in float32
        X = X / units.numpy(force=True) if units.ndim or not 1e-8 < float(units) < 1e8 else X
        X = _completed(X) if np.isnan(X).any() else X
        name = start.init if isinstance(start.init, str) else type(start.init).__name__
        with progress_bar(f"layout of {len(X)} rows ({name})", None, show=start.verbose):
            Z = layouts.lay_out(start.init, X, start.n_components, start.seed)
    return Layout(torch.as_tensor(Z, dtype=rows.dtype, device=rows.device), chosen)


def _completed(X: NDArray[Any]) -> NDArray[Any]:
    """Rows without holes, for a layout: what is missing comes from a few principal components."""
    mean = np.nan_to_num(np.nansum(X, 0) / np.maximum((~np.isnan(X)).sum(0), 1))
    some = torch.as_tensor(X - mean)
    pca = MaskedPCA(some[:SUBSET], min(10, X.shape[1]))
    return pca.completed(some).numpy() + mean


def subset_to_lay_out(rows: ArrayRows, start: Start) -> Tensor | None:
    """Indices of the rows that get a place in the layout. None: all rows."""
    most = layouts.max_rows(start.init, rows.array.shape[1])
    if len(rows) <= most:
        return None
    return torch.randperm(len(rows), generator=generator(start.seed, "layout"))[:most].sort().values


# ---------------------------------------------------------------------------------------------------- the decoder


@torch.no_grad()
def start_decoder(model: LatentModel, rows: ArrayRows, measured: Measured, start: Start) -> None:
    """Set everything but the encoder: kernel and noise, inducing points, or a decoder network."""
    model.encoder.eval()  # a user's module may count batches, or draw, in training mode
    if isinstance(model, VAEModel):
        least = measured.variance**0.5 * measured.scales[0]
        draw = generator(start.seed, "decoder")
        model.decoder.start_from(measured.centre, measured.variance, measured.noise, least.to(measured.centre), draw)
        model.decoder.unit.fill_(measured.deviation)  # rows that are all equal are decoded exactly
        latents = torch.randn(model.prior_draws.shape, generator=generator(start.seed, "anchors"), dtype=rows.dtype)
        model.prior_draws.copy_(latents)
        return
    assert isinstance(model, SASModel)
    if isinstance(model, InducingModel):
        draw = generator(start.seed, "inducing")
        candidates = torch.randperm(len(rows), generator=draw)[: CANDIDATES * len(model.Z)]
        parts = candidates.split(ENCODE_ROWS)  # type: ignore[no-untyped-call]
        Z = torch.cat([model.encoder.position(rows.gather(part), part.to(rows.device)) for part in parts])
        model.Z.copy_(Z[kmeans_plus_plus(Z, len(model.Z), draw)])
    model.start_from(measured.centre, measured.noise, measured.scales)
    if not start.own_kernel:
        some = torch.randperm(len(rows), generator=generator(start.seed, "kernel"))[:SUBSET].sort().values
        Z = model.encoder.position(rows.gather(some), some.to(rows.device))
        # A Python float would be rounded to float32
        model.kernel.outputscale = torch.as_tensor(measured.variance, dtype=Z.dtype)
        model.kernel.base_kernel.lengthscale = Z.std(correction=0).clamp_min(1e-3)


def settle(model: LatentModel, rows: ArrayRows, batch_size: int, seed: int, update: Callable[[int], None]) -> None:
    """Fit everything except the encoder's means to the layout: decoder, noise, and variances of q(z).

    If the noise started high, the encoder would lose the layout before the decoder has learned to use it.
    """
    means, variances = model.encoder.mean_parameters(), model.encoder.variance_parameters()
    # The numbers of a table move by themselves, as far as their steps go; a network's weights move all rows at once
    rate = FIT_RATE if model.encoder.amortised else 0.05
    groups = [{"params": variances, "lr": rate}] if variances else []
    groups.append({"params": model.decoder_parameters, "lr": model.settle_rate})
    noise, model.encoder_noise, model.hides = model.encoder_noise, 0.0, False
    with _held(means):
        for _ in train(
            model,
            rows,
            groups,
            batch_size=batch_size,
            max_epochs=math.ceil(SETTLE_STEPS * batch_size / len(rows)),
            seed=seed,
            on_step=lambda step, total, loss: update(step * SETTLE_STEPS // total),
        ):
            pass
    model.encoder_noise, model.hides = noise, True


@contextmanager
def _held(parameters: Sequence[nn.Parameter]) -> Iterator[None]:
    """Compute no gradients for these parameters inside the block."""
    for parameter in parameters:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(True)
