"""The decoder as a page carries it: exactly, as its support set, or else as a grid of what it says.

Exactly means m(z) = mean + k(z, Z_S) α and c(z) = k(z, z) + σ² − ‖L⁻¹ k(Z_S, z)‖², the posterior's own formulas and
numbers. α and L⁻¹ are most of a page's bytes. Both are rounded as far as the result allows: what rounding does to mean
and standard deviation is measured, and the coarsest kind within `TOLERANCE` is taken.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp.explorer.kernel import tree
from sasgp.explorer.packing import Kind, Packed, pack, unpack
from sasgp.gp.posterior import Posterior

__all__ = ["Box", "Decoder", "packed_decoder", "packed_sd"]

Array = NDArray[Any]

TOLERANCE = 2e-4  # of the data's range: a fifth of what is promised, because probes are not everywhere
N_PROBES = 256
KINDS: tuple[Kind, ...] = ("int16", "float32", "float64")  # from coarse to exact
SD_CELLS = {1: (512, 1), 2: (144, 80)}  # of the background, by how many axes are shown
GRID_CELLS = {1: (512,), 2: (224, 128)}  # of a decoder on a grid, at the most
GRID_BYTES = 6_000_000  # of its means before compression
VALUES_AT_ONCE = 2_000_000  # decoded at a time: 8 MB in float32
MARGIN = 0.75  # half a background's height, in extents of the data
ASPECT = 1.8  # its width by its height: windows are wide


class Decoder(Protocol):
    """What of a model is shown."""

    embedding_: Array

    @property
    def n_components_(self) -> int: ...

    @property
    def n_features_in_(self) -> int: ...

    def predict(self, Z: Any, return_std: bool = False) -> Any: ...


@dataclass(frozen=True)
class Box:
    """The part of the first two dimensions that is computed beforehand: wider than the points, as windows are."""

    centre: Array  # [Q]
    half: tuple[float, float]

    @classmethod
    def around(cls, Z: Array) -> "Box":
        low, high = Z.min(0), Z.max(0)
        half = MARGIN * float((high - low)[:2].max()) or 1.0
        return cls((low + high) / 2, (ASPECT * half, half))

    def axes(self) -> list[list[float]]:
        """First and last value of each dimension that is shown."""
        return [[float(c - h), float(c + h)] for c, h in zip(self.centre, self.half, strict=False)]

    def points(self, cells: Sequence[int]) -> Array:
        """A grid [Π cells, Q], line by line from below; dimensions after two are 0."""
        steps = [np.linspace(low, high, n) for (low, high), n in zip(self.axes(), cells, strict=False)]
        Z = np.stack(np.meshgrid(*steps, indexing="xy"), axis=-1).reshape(-1, len(steps))
        return np.hstack([Z, np.zeros((len(Z), len(self.centre) - len(steps)))])


def packed_decoder(model: Decoder, box: Box, ranges: Array) -> Packed:
    """The decoder of a page. `ranges` [D] are the ranges of the data's columns, which errors are measured in."""
    posterior = getattr(model, "posterior_", None)
    if isinstance(posterior, Posterior):
        probes = _probes(posterior.Z.double(), box)
        kernel = tree(posterior.kernel, probes)
        if kernel is not None:
            return _exact(posterior, kernel, probes, ranges)
    return _grid(model, box)


def packed_sd(model: Decoder, box: Box) -> Packed:
    """The background: predictive standard deviations on a grid of the first two dimensions, the others at 0."""
    cells = SD_CELLS[min(2, model.n_components_)]
    sd = np.concatenate([std for _, std in _decoded(model, box.points(cells))])
    return {"n": cells[0], "lines": cells[1], "axes": box.axes(), "sd": pack(sd, "float32")}


def _probes(Z: torch.Tensor, box: Box) -> torch.Tensor:
    """Points to measure errors at: near support points, where decoders are looked at, and anywhere in the box."""
    draw = np.random.default_rng(0)
    near = Z[torch.from_numpy(draw.integers(len(Z), size=N_PROBES // 2))].numpy(force=True)
    near = near + draw.normal(scale=0.02 * box.half[1], size=near.shape)
    anywhere = box.centre + box.half[1] * draw.uniform(-1, 1, size=(N_PROBES // 2, Z.shape[1]))
    return torch.from_numpy(np.concatenate([near, anywhere])).to(Z)


def _exact(posterior: Posterior, kernel: dict[str, Any], probes: torch.Tensor, ranges: Array) -> Packed:
    noise, scale = float(posterior.noise), float(ranges.max()) or 1.0
    units = posterior.scales.numpy(force=True)  # [1] or [D]
    with torch.no_grad():
        K = posterior.kernel(probes, posterior.Z.double()).to_dense().numpy(force=True)  # [M, S]
        prior = posterior.kernel(probes, diag=True).numpy(force=True)  # [M]
    alpha, L_inv = posterior.alpha.numpy(force=True), posterior.L_inv.numpy(force=True)
    mean = K @ alpha
    lower = np.tril_indices(len(L_inv))

    def sd(L_inv: Array) -> Array:
        return units.mean() * np.sqrt(noise + np.maximum(prior - np.square(K @ L_inv.T).sum(1), 0))

    def mean_error(found: Packed) -> float:
        errors = np.abs(K @ unpack(found).astype(np.float64) - mean).max(0)
        return float((errors / np.maximum(ranges, 1e-3 * scale)).max())  # a constant column has no range

    def sd_error(found: Packed) -> float:
        rounded = np.zeros_like(L_inv)
        rounded[lower] = unpack(found)
        if "row_scale" in found:
            rounded *= np.array(found["row_scale"])[:, None]
        return float(np.abs(sd(rounded) - sd(L_inv)).max() / scale)

    def pack_triangle(kind: Kind) -> Packed:
        # Row by row; rows differ in size, so each has a scale of its own
        if kind != "int16":
            return pack(L_inv[lower], kind)
        sizes = np.abs(L_inv).max(1)
        return pack((L_inv / sizes[:, None])[lower], kind) | {"row_scale": [float(s) for s in sizes]}

    packed_alpha, alpha_error = _coarsest(lambda kind: pack(alpha, kind), mean_error)
    packed_factor, factor_error = _coarsest(pack_triangle, sd_error)
    return {
        "how": "exact",
        "kernel": kernel,
        "noise": noise,
        "scales": pack(np.broadcast_to(units, posterior.mean.shape), "float64"),
        "mean": pack(posterior.mean.numpy(force=True), "float64"),
        "Z": pack(posterior.Z.numpy(force=True), "float32" if posterior.Z.dtype == torch.float32 else "float64"),
        "alpha": packed_alpha,
        "L_inv": packed_factor,
        "error": {"mean": alpha_error, "sd": factor_error},
    }


def _coarsest(packer: Callable[[Kind], Packed], error: Callable[[Packed], float]) -> tuple[Packed, float]:
    """The first kind whose error is small enough; the last is exact."""
    for kind in KINDS[:-1]:
        found = packer(kind)
        if (size := error(found)) <= TOLERANCE:
            return found, size
    return packer(KINDS[-1]), 0.0


def _grid(model: Decoder, box: Box) -> Packed:
    shown = min(2, model.n_components_)
    room = GRID_BYTES / (2 * model.n_features_in_)  # points
    most = GRID_CELLS[shown]
    shrink = min(1.0, (room / math.prod(most)) ** (1 / shown))
    cells = [max(8, int(shrink * n)) for n in most]
    blocks = list(_decoded(model, box.points(cells)))
    mean = np.concatenate([mean for mean, _ in blocks])
    centre = mean.mean(0)
    std = model.predict(box.points(cells)[:1], return_std=True)[1][0]  # [D]
    return {
        "how": "grid",
        "cells": cells,
        "axes": box.axes(),
        "centre": pack(centre, "float64"),
        "mean": pack(mean - centre, "int16"),
        "scales": pack(std / std.mean(), "float64"),
        "sd": pack(np.concatenate([std for _, std in blocks]), "float32"),
    }


def _decoded(model: Decoder, Z: Array) -> Iterator[tuple[Array, Array]]:
    """Means [B, D] and standard deviations [B], averaged over features, a block of points at a time."""
    size = max(1, VALUES_AT_ONCE // model.n_features_in_)
    for start in range(0, len(Z), size):
        mean, std = model.predict(Z[start : start + size], return_std=True)
        yield mean, std.mean(1)
