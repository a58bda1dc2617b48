"""Monotone maps from the values of a column to scores that are nearly standard normal.

A map has two parts. First u = (h(x) − centre) / width, where h is the identity, a logarithm for positive values, or an
inverse hyperbolic sine for heavy tails on both sides. Then g(u), which is increasing and quadratic between a few knots:
its slope is linear there and constant beyond the outer knots, so the tails are linear. Without knots, g(u) = u.

Given h and the knots, the most likely g for standard normal scores solves a convex problem in the slopes, because
log φ(g(u)) + log g′(u) is concave in them.

What should be normal is not the column but its spread around what the rest of the row says: two humps that the rest of
the row explains need no map. So maps are compared by the log density of each value given the average score of the rows
that are most like its own, and a shift and a scale is kept unless another map is clearly better. A column in which few
values are different gets no knots: they would follow the values that come back again and again.
"""

from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["MonotoneMap", "best_map", "candidates", "curved_map", "straight_map"]

Array = NDArray[np.float64]
Base = Literal["identity", "log", "asinh"]

GAIN = 0.02  # nats per value, and 2 standard errors, by which another h must be better than a shift and a scale
CURVED_GAIN = 0.05  # nats per value, and 3 standard errors, by which knots must be better still: they can follow humps
LEAST_DIFFERENT = 0.25  # share of the values that must be different from each other for knots
ROUGHNESS = 1.0  # standard deviation of the change of slope from knot to knot, before the data are seen
LARGEST = 700.0  # e to this power is still a number
BARRIER = 0.1  # weight of Σ log slope, which keeps slopes positive


@dataclass(frozen=True)
class MonotoneMap:
    """An increasing map from values to scores.

    Parameters
    ----------
    base : str
        h: "identity", "log" or "asinh".
    centre, width : float
        u = (h(x) − centre) / width.
    knots, slopes : tuple of float
        Where g′ changes, and its value there. Empty: g(u) = u.
    offset : float
        g at the first knot.
    origin, unit : float
        h(x) = asinh((x − origin) / unit); not used otherwise.
    """

    base: Base
    centre: float
    width: float
    knots: tuple[float, ...] = ()
    slopes: tuple[float, ...] = ()
    offset: float = 0.0
    origin: float = 0.0
    unit: float = 1.0

    def __call__(self, x: Array) -> Array:
        """Scores of values."""
        u = self._standard(np.asarray(x, np.float64))
        if not self.knots:
            return u
        knots, slopes, heights = self._pieces()
        k, du, curve = _piece(u, knots, slopes)
        return heights[k] + slopes[k] * du + 0.5 * curve * du**2

    def log_slope(self, x: Array) -> Array:
        """Log of the derivative of the score in the value: it turns a density of scores into one of values."""
        x = np.asarray(x, np.float64)
        # log dg/dx = log g′(u) + log h′(x) − log width
        if self.base == "log":
            slope = -np.log(x)
        elif self.base == "asinh":
            slope = -0.5 * np.log1p(((x - self.origin) / self.unit) ** 2) - np.log(self.unit)
        else:
            slope = np.zeros_like(x)
        slope -= np.log(self.width)
        if self.knots:
            knots, slopes, _ = self._pieces()
            k, du, curve = _piece(self._standard(x), knots, slopes)
            slope += np.log(slopes[k] + curve * du)
        return slope

    def inverse(self, score: Array) -> Array:
        """Values of scores."""
        score = np.asarray(score, np.float64)
        u = score
        if self.knots:
            knots, slopes, heights = self._pieces()
            k = np.clip(np.searchsorted(heights, score, side="right") - 1, 0, len(knots) - 1)
            below, last = score < heights[0], k == len(knots) - 1
            rise = score - heights[k]
            curve = np.where(last | below, 0.0, _curvature(knots, slopes)[k])
            # ½ q δ² + v δ = r          δ = 2 r / (v + √(v² + 2 q r)), which does not cancel
            u = knots[k] + 2 * rise / (slopes[k] + np.sqrt(np.maximum(slopes[k] ** 2 + 2 * curve * rise, 0)))
        v = self.centre + self.width * u
        if self.base == "log":
            return np.exp(np.clip(v, -LARGEST, LARGEST))
        if self.base == "asinh":
            most = LARGEST - max(0.0, float(np.log(self.unit)))
            return self.origin + self.unit * np.sinh(np.clip(v, -most, most))
        return v

    def _standard(self, x: Array) -> Array:
        if self.base == "log":
            with np.errstate(divide="ignore", invalid="ignore"):
                h = np.log(x)
        else:
            h = np.arcsinh((x - self.origin) / self.unit) if self.base == "asinh" else x
        return (h - self.centre) / self.width

    def _pieces(self) -> tuple[Array, Array, Array]:
        """Knots, slopes there, and heights of g there."""
        knots, slopes = np.array(self.knots), np.array(self.slopes)
        steps = 0.5 * (slopes[1:] + slopes[:-1]) * np.diff(knots)
        return knots, slopes, self.offset + np.concatenate([[0.0], np.cumsum(steps)])


def _curvature(knots: Array, slopes: Array) -> Array:
    """The derivative of the slope right of each knot; 0 beyond the last."""
    return np.append(np.diff(slopes) / np.diff(knots), 0.0)


def _piece(u: Array, knots: Array, slopes: Array) -> tuple[NDArray[np.int64], Array, Array]:
    """For each u: the knot to its left, or the first one, the distance from it, and the curvature in between."""
    k = np.clip(np.searchsorted(knots, u, side="right") - 1, 0, len(knots) - 1)
    curve = np.where(u < knots[0], 0.0, _curvature(knots, slopes)[k])
    return k, u - knots[k], curve


def best_map(x: Array, neighbours: NDArray[np.int64]) -> MonotoneMap:
    """The map under which the values x [N] spread most normally around those of the rows' neighbours [N, k]."""
    best = straight_map(x)
    known = _log_density(best, x, neighbours)
    others, curves = candidates(x)
    repeated = len(np.unique(x)) < LEAST_DIFFERENT * len(x)
    for maps, least, errors in ((others, GAIN, 2), *(() if repeated else ((curves, CURVED_GAIN, 3),))):
        found = [_log_density(one, x, neighbours) for one in maps]
        i = int(np.argmax([density.mean() for density in found]))
        gain, parameters = found[i] - known, 1 + len(maps[i].knots)
        # What the parameters gain on values that have nothing to do with them, by Schwarz's criterion
        for_nothing = parameters * np.log(len(x)) / (2 * len(x))
        if gain.mean() > max(least, errors * gain.std() / np.sqrt(len(x)), for_nothing):
            best, known = maps[i], found[i]
    return best


def candidates(x: Array) -> tuple[list[MonotoneMap], list[MonotoneMap]]:
    """Maps that values x [N] may need: a logarithm and an inverse hyperbolic sine, and curves with knots."""
    bases: list[Base] = ["log", "asinh"] if x.min() > 0 else ["asinh"]
    curves = [curved_map(x, base) for base in ("identity", *bases)]
    return [replace(curve, knots=(), slopes=(), offset=0.0) for curve in curves[1:]], curves


def _log_density(g: MonotoneMap, x: Array, neighbours: NDArray[np.int64]) -> Array:
    """Log N(g(x) | average of the neighbours, their spread) + log g′(x)."""
    s = g(x)
    residual = s - s[neighbours].mean(1)
    var = max(float((residual**2).mean()), 1e-12)
    return -0.5 * (np.log(2 * np.pi * var) + residual**2 / var) + g.log_slope(x)


def straight_map(x: Array) -> MonotoneMap:
    """A shift and a scale."""
    return MonotoneMap("identity", float(x.mean()), float(x.std()) or 1.0)


def curved_map(x: Array, base: Base) -> MonotoneMap:
    """The most likely map with knots at quantiles of x, for standard normal scores."""
    low, middle, high = np.quantile(x, [0.25, 0.5, 0.75])
    unit = float(high - low) or float(x.std()) or 1.0
    plain = MonotoneMap(base, 0.0, 1.0, origin=float(middle), unit=unit)
    h = plain._standard(x)
    centre, width = float(h.mean()), float(h.std()) or 1.0
    u = (h - centre) / width
    n_knots = int(np.clip(round(1.5 * len(x) ** 0.3), 3, 14))
    knots = _spaced(np.quantile(u, np.linspace(0.01, 0.99, n_knots)), 0.02)
    if len(knots) < 2:
        return MonotoneMap(base, centre, width, origin=plain.origin, unit=unit)
    slopes, offset = _most_likely(u, knots)
    return MonotoneMap(base, centre, width, tuple(knots), tuple(slopes), offset, plain.origin, unit)


def _spaced(knots: Array, least: float) -> list[float]:
    """Knots that are at least this far apart: closer ones would make a cliff of values that are equal."""
    kept: list[float] = []
    for knot in knots.tolist():
        if not kept or knot - kept[-1] >= least:
            kept.append(knot)
    return kept


def _most_likely(u: Array, knots: list[float]) -> tuple[list[float], float]:
    """The slopes v [K] at the knots and the height c at the first that make g(u) most likely standard normal."""
    t = np.array(knots)
    H = _hats(u, t)  # [N, K]: g′(u) = H v
    G = np.column_stack([np.ones(len(u)), _integrals(u, t)])  # [N, 1 + K]: g(u) = G (c, v)
    K, D = len(t), np.diff(np.eye(len(t)), axis=0)
    rough = D.T @ D / ROUGHNESS**2
    theta = np.concatenate([[t[0]], np.ones(K)])

    def loss(theta: Array) -> float:
        v = theta[1:]
        if (v <= 0).any():
            return np.inf
        return float(
            0.5 * ((G @ theta) ** 2).sum() - np.log(H @ v).sum() + 0.5 * v @ rough @ v - BARRIER * np.log(v).sum()
        )

    current = loss(theta)
    for _ in range(50):  # Newton's method with step halving; the loss is convex
        v = theta[1:]
        inverse = 1 / (H @ v)
        gradient, hessian = G.T @ (G @ theta), G.T @ G
        gradient[1:] += rough @ v - H.T @ inverse - BARRIER / v
        hessian[1:, 1:] += rough + (H * inverse[:, None] ** 2).T @ H + np.diag(BARRIER / v**2)
        step = np.linalg.solve(hessian, gradient)
        size = 1.0
        while (new := loss(theta - size * step)) > current and size > 1e-8:
            size /= 2
        if size <= 1e-8:
            break
        theta, gained = theta - size * step, current - new
        current = new
        if gained < 1e-9 * len(u):
            break
    return theta[1:].tolist(), float(theta[0])


def _hats(u: Array, t: Array) -> Array:
    """Linear interpolation as a matrix [N, K]: row n holds the weights of the knots at u_n."""
    inside = np.clip(u, t[0], t[-1])
    k = np.clip(np.searchsorted(t, inside, side="right") - 1, 0, len(t) - 2)
    share = (inside - t[k]) / (t[k + 1] - t[k])
    H = np.zeros((len(u), len(t)))
    H[np.arange(len(u)), k] = 1 - share
    H[np.arange(len(u)), k + 1] += share
    return H


def _integrals(u: Array, t: Array) -> Array:
    """The integral of `_hats` from the first knot to u, [N, K]."""
    inside = np.clip(u, t[0], t[-1])
    k = np.clip(np.searchsorted(t, inside, side="right") - 1, 0, len(t) - 2)
    gaps = np.diff(t)
    whole = np.zeros((len(t), len(t)))  # up to each knot
    for j, gap in enumerate(gaps):
        whole[j + 1 :, j] += gap / 2
        whole[j + 1 :, j + 1] += gap / 2
    share, rows = (inside - t[k]) / gaps[k], np.arange(len(u))
    out = whole[k]
    out[rows, k] += gaps[k] * (share - share**2 / 2)
    out[rows, k + 1] += gaps[k] * share**2 / 2
    out[:, 0] += np.minimum(u - t[0], 0)  # the slopes of the outer knots go on
    out[:, -1] += np.maximum(u - t[-1], 0)
    return out
