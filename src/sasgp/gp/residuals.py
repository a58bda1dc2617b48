"""The spread of predictions, learned from how far they were from values that were left out.

A prediction m with variance c of a value x has the residual e = (x − m) / √c. Residuals are seldom standard normal:
some places are noisier than others, and some columns have heavy tails. So the scale of a new prediction is √c times the
size of the residuals near it,

    h² = (Σ_{j near} e_j² + w ē²) / (n_near + w)          ē² the mean of all e²,

and draws are m + √c h e′ with the residuals e′ = e / h themselves, so that intervals hold as much as they should. The
density is that of m + √c h r T_ν, where T_ν is Student's t. The weight w, the degrees of freedom ν and the scale r are
the most likely ones for the residuals, each with its own left out.
"""

import math

import torch
from torch import Tensor

from sasgp.gp.column_regression import nearest

__all__ = ["Residuals", "log_student"]

NEAR = 32
LEAST = 1e-12
WEIGHTS = (2.0, 8.0, 32.0, 128.0, 1e9)
FREEDOMS = (3.0, 4.0, 5.0, 7.0, 10.0, 20.0, 100.0)
SCALES = tuple(0.3 + 0.05 * i for i in range(17))


class Residuals:
    """Scales of predictions at places.

    Parameters
    ----------
    places : Tensor [n, P]
        Where values were left out.
    e : Tensor [n]
        Their residuals, float64.

    Attributes
    ----------
    deviation : float
        Standard deviation of e′.
    """

    def __init__(self, places: Tensor, e: Tensor) -> None:
        self.places, self.squares = places, e.square()
        self.average = self.squares.mean().clamp_min(LEAST)
        k = min(NEAR, len(e) - 1)
        self.near = k
        near = nearest(places, places, k, torch.arange(len(e), device=e.device))
        sums = self.squares[near].sum(1)
        choices = [self._scales(sums, weight) for weight in WEIGHTS]  # h²
        fits = [float((-0.5 * (self.squares / h2 + h2.log())).mean()) for h2 in choices]
        best = fits.index(max(fits))
        self.weight = WEIGHTS[best]
        e = (e / choices[best].sqrt()).sort().values
        self.sorted, self.deviation = e, float(e.square().mean().clamp_min(LEAST).sqrt())
        self.freedom, self.scale = max(
            ((freedom, scale) for freedom in FREEDOMS for scale in SCALES),
            key=lambda pair: float(log_student(e / pair[1], pair[0]).mean()) - math.log(pair[1]),
        )

    def _scales(self, sums: Tensor, weight: float) -> Tensor:
        return (sums + weight * self.average) / (self.near + weight)

    def at(self, places: Tensor) -> Tensor:
        """The factor h [M] on the standard deviations of predictions there."""
        near = nearest(places, self.places, self.near)
        return self._scales(self.squares[near].sum(1), self.weight).sqrt()

    def quantile(self, p: Tensor) -> Tensor:
        """The quantiles of e′ at probabilities p, linear between those of the residuals, i / (n + 1)."""
        n = len(self.sorted)
        at = (p * (n + 1) - 1).clamp(0, n - 1)
        i = at.long().clamp_max(n - 2)
        return torch.lerp(self.sorted[i], self.sorted[i + 1], at - i)

    def log_density(self, e: Tensor) -> Tensor:
        """The log density of residuals e′."""
        return log_student(e / self.scale, self.freedom) - math.log(self.scale)


def log_student(x: Tensor, freedom: float) -> Tensor:
    """The log density of Student's t."""
    # Γ((ν+1)/2) / (√(πν) Γ(ν/2)) (1 + x²/ν)^(−(ν+1)/2)
    half = 0.5 * (freedom + 1)
    constant = math.lgamma(half) - math.lgamma(0.5 * freedom) - 0.5 * math.log(math.pi * freedom)
    return constant - half * torch.log1p(x.square() / freedom)
