"""Eq. 6 with one of its two terms, to see what each is for.

    L̂(N) = F + (N−A)/(B−A) · S + N/B · Σ_{n∈batch} log p(z_n)          F = log p(X_A|Z_A)
                                                                      S = Σ_{n∈R} log N(x_n | m_n, c_n I)

with − KL[q(z_n) ‖ N(0,I)] for log p(z_n) where latents are Bayesian. Both are written in terms of the model's own L̂, so
that they are the same arithmetic.
"""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sasgp import SASGP
from sasgp.models.sas import SASModel

__all__ = ["FirstTerm", "SecondTerm"]


class FirstTermModel(SASModel):
    """N/A · [ F + Σ_{n∈A} log p(z_n) ]: the exact GP-LVM of the active set alone, for all N rows."""

    def forward(self, X: Tensor, index: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """Negative objective in nats per value."""
        A = self.active_set_size
        assert A is not None
        # B = N = A leaves no rest. The loss is per value, so that the factor N/A is in it already
        return super().forward(X[:A], index[:A], A, generator)


class SecondTermModel(SASModel):
    """L̂(N) − L̂(A) = (N−A)/(B−A) · S + (N−A)/B · Σ_{n∈batch} log p(z_n): the active set only predicts."""

    def forward(self, X: Tensor, index: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """Negative objective in nats per value."""
        A, state = self.active_set_size, generator.get_state()
        assert A is not None
        whole = super().forward(X, index, n_total, generator)
        generator.set_state(state)  # the same noise and the same draw of z in both
        return whole - A / n_total * super().forward(X, index, A, generator)


@dataclass(eq=False, repr=False)
class FirstTerm(SASGP):
    """SASGP trained with log p(X_A|Z_A) only."""

    _MODEL: ClassVar[type[SASModel]] = FirstTermModel


@dataclass(eq=False, repr=False)
class SecondTerm(SASGP):
    """SASGP trained with the predictive densities of the rest only."""

    _MODEL: ClassVar[type[SASModel]] = SecondTermModel
