"""Values from a list as intervals of scores: binary, ordinal and count columns, and one yes-or-no score per category.

A standard normal score is cut into intervals whose masses are the shares of the values, in their order. A value stands
for its interval: the mean of the normal within it is the target that the decoder learns. Given a predictive N(m, c) of
the score, the probability of the value is the mass in the interval.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

__all__ = ["bounds", "cuts", "extended_cuts", "interval_mass", "spread", "targets"]

Array = NDArray[np.float64]

SMOOTHING = 0.5  # added to the counts of each side of a cut: no value is impossible


def cuts(counts: NDArray[np.int64]) -> Array:
    """The L − 1 cuts between L values that occur this often, in order."""
    below = np.cumsum(counts)[:-1] + SMOOTHING
    share: Array = below / (counts.sum() + 2 * SMOOTHING)
    return np.asarray(ndtri(share))


def extended_cuts(counts: NDArray[np.int64]) -> Array:
    """The cuts between 0, 1, 2, …, some of which did not occur: each of them has a probability.

    Where a count did not occur, cuts are interpolated linearly. Beyond the largest and below the smallest they go on
    with a step that leaves these about half an observation.
    """
    n, seen = int(counts.sum()), np.flatnonzero(counts)
    # Cut j lies between j and j + 1. Those left of a count that occurred, right of another
    inside = seen[:-1]
    shares = np.cumsum(counts)[inside] + SMOOTHING
    ends = np.array([seen[0] - 1, seen[-1]])
    known = np.concatenate([ends[:1], inside, ends[1:]])
    heights = ndtri(np.concatenate([[SMOOTHING / 2], shares, [n + 1.5 * SMOOTHING]]) / (n + 2 * SMOOTHING))
    step = max(float(np.diff(heights)[len(heights) // 2 - 1 :].sum() / np.ptp(known[len(heights) // 2 - 1 :])), 1e-3)
    places = np.arange(len(counts) - 1)
    found = np.interp(places, known, heights)
    found += step * (np.maximum(places - known[-1], 0) - np.maximum(known[0] - places, 0))
    return np.asarray(found)


def bounds(cut: Array) -> tuple[Array, Array]:
    """Lower and upper ends of the L intervals."""
    return np.concatenate([[-np.inf], cut]), np.concatenate([cut, [np.inf]])


def targets(cut: Array) -> Array:
    """The mean of a standard normal within each interval."""
    # (φ(a) − φ(b)) / (Φ(b) − Φ(a)), with the mass on the side where it does not cancel
    low, high = bounds(cut)
    mass = interval_mass(low, high)
    found: Array = (_phi(low) - _phi(high)) / np.maximum(mass, 1e-300)
    return np.clip(found, np.where(np.isfinite(low), low, -40), np.where(np.isfinite(high), high, 40))


def spread(cut: Array) -> float:
    """The standard deviation of a standard normal around the target of its interval, over all intervals."""
    # Var[s] = 1 = E[Var[s | interval]] + Var[target]
    share = interval_mass(*bounds(cut))
    return float(np.sqrt(max(1 - (share * targets(cut) ** 2).sum(), 0.0)))


def interval_mass(low: Array, high: Array) -> Array:
    """Φ(high) − Φ(low), without cancellation in the tails."""
    flip = low > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    return np.asarray(ndtr(b) - ndtr(a))


def _phi(x: Array) -> Array:
    found: Array = np.exp(-0.5 * x**2) / np.sqrt(2 * np.pi)
    return found
