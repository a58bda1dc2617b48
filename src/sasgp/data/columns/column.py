"""The kinds of columns, and how the values of each become scores and come back.

A column of a table is a `Number` (real, skewed, date, and whole numbers with a wide range), a `Discrete` one (binary,
ordinal, count) or a `Category`. Each maps values to scores that are nearly standard normal, which is all that the
decoder sees. Given the decoder's mean m and variance c of the scores, each gives values back: a prediction, a
standard deviation, quantiles, draws, and the log probability of a value.

Values are arrays of floats, with NaN where a cell is missing; dates are seconds since 1970. Levels are held as codes,
their places in `levels`, and a code may also be NaN.
"""

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr, ndtr

from sasgp.data.columns import levels as intervals
from sasgp.data.columns.maps import MonotoneMap

__all__ = ["KINDS", "LEFT_OUT", "NODES", "WEIGHTS", "Category", "Column", "Discrete", "Kind", "Number", "log_mass"]

Array = NDArray[np.float64]
Kind = Literal["real", "skewed", "count", "binary", "ordinal", "category", "date", "id", "constant", "text", "empty"]

LEFT_OUT = ("id", "constant", "text", "empty", "drop")  # kinds that the decoder does not see
KINDS = ("real", "skewed", "count", "binary", "ordinal", "category", "date", "id", "drop")  # that a user may ask for

# Nodes and weights of E[f(s)] for s ~ N(0, 1)
NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(32)
WEIGHTS = WEIGHTS / WEIGHTS.sum()


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column that the decoder sees.

    Parameters
    ----------
    name, kind : str
    sd : float
        Standard deviation of the training values, in which errors are measured. 0 for levels without numbers.
    """

    name: str
    kind: Kind
    sd: float = 0.0

    @property
    def width(self) -> int:
        """The number of scores."""
        return 1

    def scores(self, values: Array) -> Array:
        """Scores [N, width] of values [N]."""
        raise NotImplementedError

    def unknown(self) -> Array:
        """Standard deviation [width] of a standard normal score around its target, within the interval of a level."""
        return np.zeros(self.width)

    def log_density(self, values: Array, mean: Array, var: Array) -> Array:
        """Log p(value | z) [N] given means and variances [N, width] of the scores, in units of the column."""
        raise NotImplementedError

    def predict(self, mean: Array, var: Array) -> Array:
        """The prediction [N]: the mean of numbers, the median of ordinals, the most probable of categories."""
        raise NotImplementedError

    def std(self, mean: Array, var: Array) -> Array:
        """Standard deviation [N] of numbers; of levels, the probability that another level is right."""
        raise NotImplementedError

    def quantile(self, mean: Array, var: Array, share: float) -> Array:
        """The quantile [N] of numbers and ordered levels."""
        raise NotImplementedError

    def sample(self, scores: Array, mean: Array, var: Array, draw: np.random.Generator) -> Array:
        """Values [N] of scores [N, width] that were drawn where the scores have these means and variances."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Number(Column):
    """Numbers through a monotone map.

    Parameters
    ----------
    map : MonotoneMap
    low, high : float
        The least and the greatest value that predictions may have.
    whole : bool
        Whether values are whole numbers.
    unit : str
        How dates come back: "date", "datetime" or "duration". Otherwise empty.
    """

    map: MonotoneMap
    low: float = float("-inf")
    high: float = float("inf")
    whole: bool = False
    unit: str = ""

    def scores(self, values: Array) -> Array:
        return self.map(self._inside(values))[:, None]

    def log_slope(self, values: Array) -> Array:
        """Log of d score / d value [N]: it turns a density of scores into one of values."""
        return self.map.log_slope(self._inside(values))

    def log_density(self, values: Array, mean: Array, var: Array) -> Array:
        # log p(x) = log N(g(x) | m, c) + log g′(x)
        s = self.scores(values)
        return (-0.5 * (np.log(2 * np.pi * var) + (s - mean) ** 2 / var))[:, 0] + self.log_slope(values)

    def predict(self, mean: Array, var: Array) -> Array:
        return self._moments(mean, var)[0]

    def std(self, mean: Array, var: Array) -> Array:
        return self._moments(mean, var)[1]

    def _moments(self, mean: Array, var: Array) -> tuple[Array, Array]:
        x = self._values(mean + np.sqrt(var) * NODES)  # [N, nodes]
        first = x @ WEIGHTS
        gaps = x - first[:, None]
        size = np.abs(gaps).max(1, initial=np.finfo(np.float64).tiny)  # whose square may be no number
        return first, size * np.sqrt((gaps / size[:, None]) ** 2 @ WEIGHTS)

    def quantile(self, mean: Array, var: Array, share: float) -> Array:
        from scipy.special import ndtri

        return self._values(mean[:, 0] + np.sqrt(var[:, 0]) * ndtri(share))

    def sample(self, scores: Array, mean: Array, var: Array, draw: np.random.Generator) -> Array:
        drawn = self._values(scores[:, 0])
        return np.rint(drawn) if self.whole else drawn

    def _values(self, scores: Array) -> Array:
        return np.clip(self.map.inverse(scores), self.low, self.high)

    def _inside(self, values: Array) -> Array:
        # The logarithm of a new value that is not positive would be no number
        return np.maximum(values, np.finfo(np.float64).tiny) if self.map.base == "log" else values


@dataclass(frozen=True, kw_only=True)
class Discrete(Column):
    """Levels in an order: binary, ordinal and count columns. Values are codes.

    Parameters
    ----------
    levels : tuple
        The values in order: numbers, text or booleans. Of a count, the last stands for itself and all larger ones.
    cuts : tuple of float
        The L − 1 scores between them.
    """

    levels: tuple[Any, ...]
    cuts: tuple[float, ...]
    _targets: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_targets", intervals.targets(np.array(self.cuts)))

    @property
    def targets(self) -> Array:
        """The score [L] of each level."""
        return self._targets

    def unknown(self) -> Array:
        return np.array([intervals.spread(np.array(self.cuts))])

    @property
    def numeric(self) -> bool:
        """Whether the levels are numbers that an average makes sense of."""
        return self.kind == "count"

    @property
    def numbers(self) -> Array:
        """The levels as numbers, or their places."""
        plain = all(isinstance(level, int | float) and not isinstance(level, bool) for level in self.levels)
        return np.array(self.levels, np.float64) if plain else np.arange(len(self.levels), dtype=np.float64)

    def scores(self, values: Array) -> Array:
        return _looked_up(self.targets, values)[:, None]

    def log_probabilities(self, mean: Array, var: Array) -> Array:
        """Log probabilities [N, L] of the levels."""
        # P(v) = Φ((b − m)/√c) − Φ((a − m)/√c)
        low, high = intervals.bounds(np.array(self.cuts))
        std = np.sqrt(var)
        return log_mass((low - mean) / std, (high - mean) / std)

    def log_density(self, values: Array, mean: Array, var: Array) -> Array:
        return _chosen(self.log_probabilities(mean, var), values)

    def predict(self, mean: Array, var: Array) -> Array:
        if self.numeric:
            return np.exp(self.log_probabilities(mean, var)) @ self.numbers
        if self.kind == "ordinal":
            return self.quantile(mean, var, 0.5)
        return self.log_probabilities(mean, var).argmax(1).astype(np.float64)

    def std(self, mean: Array, var: Array) -> Array:
        p = np.exp(self.log_probabilities(mean, var))
        if self.numeric or self.kind == "ordinal":
            first = p @ self.numbers
            return np.sqrt(np.maximum(p @ self.numbers**2 - first**2, 0))
        return 1 - p.max(1)

    def quantile(self, mean: Array, var: Array, share: float) -> Array:
        """Codes of ordinals and binaries, numbers of counts."""
        total = ndtr((np.array(self.cuts) - mean) / np.sqrt(var))  # [N, L − 1]
        code = (total < share).sum(1)
        return self.numbers[code] if self.numeric else code.astype(np.float64)

    def sample(self, scores: Array, mean: Array, var: Array, draw: np.random.Generator) -> Array:
        code = np.searchsorted(np.array(self.cuts), scores[:, 0])
        return self.numbers[code] if self.numeric else code.astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class Category(Column):
    """Levels without an order, one score for each: is it this one? Values are codes; L stands for any other level.

    Parameters
    ----------
    levels : tuple of str
    cuts : tuple of float
        For each level, the score above which the answer is yes.
    other : float
        Log probability of all levels that are not in the list, before normalisation.
    merged : bool
        Whether training saw some of these.
    """

    levels: tuple[Any, ...]
    cuts: tuple[float, ...]
    other: float
    merged: bool = False
    _targets: Array = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        found = np.stack([intervals.targets(np.array([cut])) for cut in self.cuts])  # [L, 2]: no, yes
        object.__setattr__(self, "_targets", found)

    @property
    def width(self) -> int:
        return len(self.levels)

    def unknown(self) -> Array:
        return np.array([intervals.spread(np.array([cut])) for cut in self.cuts])

    def scores(self, values: Array) -> Array:
        known = ~np.isnan(values)
        chosen = np.where(known, values, -1)[:, None] == np.arange(self.width)  # [N, L]
        return np.where(known[:, None], np.where(chosen, self._targets[:, 1], self._targets[:, 0]), np.nan)

    def log_probabilities(self, mean: Array, var: Array) -> Array:
        """Log probabilities [N, L + 1] of the levels, and of any other."""
        yes = log_ndtr((mean - np.array(self.cuts)) / np.sqrt(var))
        found = np.column_stack([yes, np.full(len(yes), self.other)])
        return found - np.logaddexp.reduce(found, axis=1, keepdims=True)

    def log_density(self, values: Array, mean: Array, var: Array) -> Array:
        return _chosen(self.log_probabilities(mean, var), values)

    def predict(self, mean: Array, var: Array) -> Array:
        return self.log_probabilities(mean, var)[:, :-1].argmax(1).astype(np.float64)

    def std(self, mean: Array, var: Array) -> Array:
        return 1 - np.exp(self.log_probabilities(mean, var)[:, :-1].max(1))

    def sample(self, scores: Array, mean: Array, var: Array, draw: np.random.Generator) -> Array:
        # The scores of levels say yes more than once, or not at all, so that the level is drawn anew
        log_p = self.log_probabilities(mean, var)[:, :-1]
        return (log_p + draw.gumbel(size=log_p.shape)).argmax(1).astype(np.float64)


def _looked_up(table: Array, codes: Array) -> Array:
    found = table[np.where(np.isnan(codes), 0, codes).astype(np.int64)]
    return np.where(np.isnan(codes), np.nan, found)


def _chosen(table: Array, codes: Array) -> Array:
    """table[n, codes[n]], NaN where the code is."""
    found = table[np.arange(len(table)), np.where(np.isnan(codes), 0, codes).astype(np.int64)]
    return np.where(np.isnan(codes), np.nan, found)


def log_mass(low: Array, high: Array) -> Array:
    """log(Φ(high) − Φ(low)), also far out in the tails."""
    flip = low > 0
    a, b = np.where(flip, -high, low), np.where(flip, -low, high)
    log_b = log_ndtr(b)
    # log Φ(b) + log(1 − Φ(a)/Φ(b))
    with np.errstate(divide="ignore"):
        return log_b + np.log1p(-np.exp(np.minimum(log_ndtr(a) - log_b, -1e-300)))
