"""The decoder inside a page: the exact posterior, or a grid of decoded points if the browser cannot compute it.

Exact means m(z) = mean + k(z, Z) α and c(z) = k(z, z) + σ² − ‖T k(Z, z)‖², the formulas and the numbers of the
posterior, with σ²_d(z) in the place of σ² if the noise is local. α, T and the local noise take most of the page's
bytes, so they are rounded: the error in mean and standard deviation is measured, and the coarsest type within
`TOLERANCE` is used.
"""

import math
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp.errors import InputError
from sasgp.evaluation import decode_grid
from sasgp.explorer.kernel import tree
from sasgp.explorer.packing import Kind, Packed, pack, unpack
from sasgp.gp.local_noise import POSITIONS, LocalNoise
from sasgp.gp.posterior import Posterior

if TYPE_CHECKING:
    from sasgp.estimators.protocol import Decoder

__all__ = ["Box", "pack_background", "pack_decoder"]

Array = NDArray[Any]

TOLERANCE = 2e-4  # of the data's range: a fifth of what is promised, because errors are only measured at probes
N_PROBES = 256
KINDS: tuple[Kind, ...] = ("int16", "float32", "float64")  # from coarse to exact
BACKGROUND_CELLS = {1: (512, 1), 2: (144, 80)}  # by the number of axes shown
GRID_CELLS = {1: (512,), 2: (224, 128)}  # of a decoder on a grid, at most
GRID_BYTES = 6_000_000  # of its means, before compression
MARGIN = 0.75  # half the height of the box, in units of the data's extent
ASPECT = 1.8  # width of the box divided by its height: windows are wide


@dataclass(frozen=True)
class Box:
    """The part of the first two dimensions that is decoded beforehand. It is larger than the extent of the points."""

    centre: Array  # [Q]
    half: tuple[float, float]

    @classmethod
    def around(cls, Z: Array) -> "Box":
        low, high = Z.min(0), Z.max(0)
        half = MARGIN * float((high - low)[:2].max()) or 1.0
        return cls((low + high) / 2, (ASPECT * half, half))

    def axes(self) -> list[list[float]]:
        """First and last value of each dimension shown."""
        return [[float(c - h), float(c + h)] for c, h in zip(self.centre, self.half, strict=False)]

    def steps(self, cells: Sequence[int]) -> list[Array]:
        """Coordinates of a grid in each dimension shown."""
        return [np.linspace(low, high, n) for (low, high), n in zip(self.axes(), cells, strict=False)]


def pack_decoder(model: "Decoder", box: Box, ranges: Array, tolerance: float = TOLERANCE) -> Packed:
    """The decoder of a page. Errors are measured relative to `ranges` [D], the ranges of the features."""
    posterior = getattr(model, "posterior_", None)
    why = "it is not a Gaussian process"
    if isinstance(posterior, Posterior):
        probes = _probes(posterior.Z.double(), box)
        kernel = tree(posterior.kernel, probes)
        if kernel is not None:
            return _exact(posterior, kernel, probes, ranges, tolerance)
        why = "its kernel is not one of those that the page knows"
    return _grid(model, box) | {"why": why}


def pack_background(model: "Decoder", box: Box) -> Packed:
    """The background: predictive standard deviations on a grid of the first two dimensions, with the others at 0.

    If the model has a metric, also the logarithm to base 10 of its volume element. The browser can compute both, but it
    is slower.
    """
    cells = BACKGROUND_CELLS[min(2, model.n_components_)]
    steps = box.steps(cells)
    sd = np.concatenate([std.mean(1) for _, std in decode_grid(model, steps)])
    volume = _volume(model, steps)
    packed = {"n": cells[0], "lines": cells[1], "axes": box.axes(), "sd": pack(sd, "float32")}
    return packed | {"volume": None if volume is None else pack(volume, "float32")}


def _volume(model: "Decoder", steps: Sequence[Array]) -> Array | None:
    """log₁₀ √det G on a grid, or None if the decoder has no metric, as a network or a kernel without derivatives."""
    if not hasattr(model, "volume"):
        return None
    points = np.stack(np.meshgrid(*steps, indexing="xy"), axis=-1).reshape(-1, len(steps))
    Z = np.zeros((len(points), model.n_components_))
    Z[:, : len(steps)] = points
    with suppress(InputError):
        found = np.asarray(model.volume(Z), dtype=np.float64)
        return np.log10(np.maximum(found, np.finfo(np.float32).tiny))
    return None


def _probes(Z: torch.Tensor, box: Box) -> torch.Tensor:
    """Points to measure errors at: half of them near the decoder's positions, half anywhere in the box."""
    draw = np.random.default_rng(0)
    near = Z[torch.from_numpy(draw.integers(len(Z), size=N_PROBES // 2))].numpy(force=True)
    near = near + draw.normal(scale=0.02 * box.half[1], size=near.shape)
    anywhere = box.centre + box.half[1] * draw.uniform(-1, 1, size=(N_PROBES // 2, Z.shape[1]))
    return torch.from_numpy(np.concatenate([near, anywhere])).to(Z)


def _exact(
    posterior: Posterior, kernel: dict[str, Any], probes: torch.Tensor, ranges: Array, tolerance: float
) -> Packed:
    noise, scale = float(posterior.noise), float(ranges.max()) or 1.0
    units = posterior.scales.numpy(force=True)  # [1] or [D]
    with torch.no_grad():
        K = posterior.kernel(probes, posterior.Z.double()).to_dense().numpy(force=True)  # [M, S]
        prior = posterior.kernel(probes, diag=True).numpy(force=True)  # [M]
    alpha, root = posterior.alpha.numpy(force=True), posterior.root.numpy(force=True)
    mean = K @ alpha
    lower = np.tril_indices(len(root))

    local = posterior.local_noise
    least = noise if local is None else float((local(probes) / posterior.scales.square()).min())

    # With local noise, the error is largest where the noise is least
    def sd(root: Array) -> Array:
        return units.mean() * np.sqrt(least + np.maximum(prior - np.square(K @ root.T).sum(1), 0))

    def mean_error(found: Packed) -> float:
        errors = np.abs(K @ unpack(found).astype(np.float64) - mean).max(0)
        return float((errors / np.maximum(ranges, 1e-3 * scale)).max())  # a constant column has no range of its own

    def sd_error(found: Packed) -> float:
        rounded = np.zeros_like(root)
        rounded[lower] = unpack(found)
        if "row_scale" in found:
            rounded *= np.array(found["row_scale"])[:, None]
        return float(np.abs(sd(rounded) - sd(root)).max() / scale)

    def pack_triangle(kind: Kind) -> Packed:
        # Row by row. Rows differ in magnitude, so each has its own scale
        if kind != "int16":
            return pack(root[lower], kind)
        sizes = np.abs(root).max(1)
        return pack((root / sizes[:, None])[lower], kind) | {"row_scale": [float(s) for s in sizes]}

    packed_alpha, alpha_error = _coarsest(lambda kind: pack(alpha, kind), mean_error, tolerance)
    packed_factor, factor_error = _coarsest(pack_triangle, sd_error, tolerance)
    packed_noise, noise_error = (None, 0.0) if local is None else _local_noise(local, probes, scale, tolerance)
    return {
        "how": "exact",
        "kernel": kernel,
        "noise": noise,
        "scales": pack(np.broadcast_to(units, posterior.mean.shape), "float64"),
        "mean": pack(posterior.mean.numpy(force=True), "float64"),
        "Z": pack(posterior.Z.numpy(force=True), "float32" if posterior.Z.dtype == torch.float32 else "float64"),
        "alpha": packed_alpha,
        "root": packed_factor,
        "error": {"mean": alpha_error, "sd": factor_error + noise_error},
        "local": packed_noise,
    }


def _local_noise(local: LocalNoise, probes: torch.Tensor, scale: float, tolerance: float) -> tuple[Packed, float]:
    """σ²_d(z) = (Σ_u w_u v_ud + b g_d) / (Σ_u w_u + b), as √v and √g: rounded variances would spoil small ones."""
    root = local.v.sqrt()
    exact = local(probes).sqrt()

    def error(found: Packed) -> float:
        v = torch.from_numpy(unpack(found)).to(probes).square()
        rounded = LocalNoise(local.U, local.width, v, local.far)(probes).sqrt()
        return float((rounded - exact).abs().max()) / scale

    packed, size = _coarsest(lambda kind: pack(root.numpy(force=True), kind), error, tolerance)
    far = local.far.expand(root.shape[1]).sqrt().numpy(force=True)
    width = [float(w) for w in local.width]
    return {"width": width, "weight": POSITIONS, "far": pack(far, "float64"), "root": packed}, size


def _coarsest(
    packer: Callable[[Kind], Packed], error: Callable[[Packed], float], tolerance: float
) -> tuple[Packed, float]:
    """The coarsest type whose error is small enough, and the error. The last type is exact."""
    for kind in KINDS[:-1]:
        found = packer(kind)
        if (size := error(found)) <= tolerance:
            return found, size
    return packer(KINDS[-1]), 0.0


def _grid(model: "Decoder", box: Box) -> Packed:
    """A decoder the browser cannot compute: means and standard deviations on a grid of the first two dimensions."""
    shown = min(2, model.n_components_)
    few = np.concatenate([std for _, std in decode_grid(model, box.steps([8] * shown))])
    relative = few / few.mean(1, keepdims=True)
    varies = not np.allclose(relative, relative[:1], rtol=1e-3)  # from place to place
    room = GRID_BYTES / (2 * (1 + varies) * model.n_scores_)  # for this many points
    most = GRID_CELLS[shown]
    shrink = min(1.0, (room / math.prod(most)) ** (1 / shown))
    cells = [max(8, int(shrink * n)) for n in most]
    blocks = list(decode_grid(model, box.steps(cells)))
    mean = np.concatenate([mean for mean, _ in blocks])
    centre = mean.mean(0)
    std = np.concatenate([std for _, std in blocks])
    return {
        "how": "grid",
        "cells": cells,
        "axes": box.axes(),
        "centre": pack(centre, "float64"),
        "mean": pack(mean - centre, "int16"),
        "scales": pack(relative[0].astype(np.float64), "float64"),
        "sd": pack(std.mean(1), "float32"),
        "sds": pack(std, "int16") if varies else None,
    }
