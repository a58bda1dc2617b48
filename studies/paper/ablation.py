"""Eq. 6 with one of its two terms, to see what each is for.

    L̂(N) = F + (N−A)/(B−A) · S + N/B · Σ_{n∈batch} log p(z_n)          F = log p(X_A|Z_A)
                                                                      S = Σ_{n∈R} log N(x_n | m_n, c_n I)

with − KL[q(z_n) ‖ N(0,I)] for log p(z_n) where latents are Bayesian. Both are written in terms of the model's own L̂, so
that they are the same arithmetic.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from sasgp.estimators import SASGP
from sasgp.models.sas import SASDecoder

__all__ = ["FirstTerm", "SecondTerm"]


class FirstTermDecoder(SASDecoder):
    """N/A · [ F + Σ_{n∈A} log p(z_n) ]: the exact GP-LVM of the active set alone, for all N rows."""

    def forward(self, X: Tensor, rows: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """Negative objective in nats for each entry of the data."""
        A = self.active_set_size
        assert A is not None
        # B = N = A leaves no rest. The loss is for each entry, so that the factor N/A is in it already
        return super().forward(X[:A], rows[:A], A, generator)


class SecondTermDecoder(SASDecoder):
    """L̂(N) − L̂(A) = (N−A)/(B−A) · S + (N−A)/B · Σ_{n∈batch} log p(z_n): the active set only predicts."""

    def forward(self, X: Tensor, rows: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """Negative objective in nats for each entry of the data."""
        A, state = self.active_set_size, generator.get_state()
        assert A is not None
        whole = super().forward(X, rows, n_total, generator)
        generator.set_state(state)  # the same noise and the same draw of z in both
        return whole - A / n_total * super().forward(X, rows, A, generator)


@dataclass(eq=False, repr=False)
class _Ablated(SASGP):
    """SASGP whose model has another objective."""

    _DECODER: ClassVar[type[SASDecoder]] = SASDecoder

    def _start(self, *arguments: Any, **options: Any) -> Any:
        model = super()._start(*arguments, **options)
        model.__class__ = self._DECODER  # same parameters, same start; the loss alone differs
        return model


@dataclass(eq=False, repr=False)
class FirstTerm(_Ablated):
    """SASGP trained with log p(X_A|Z_A) only."""

    _DECODER = FirstTermDecoder


@dataclass(eq=False, repr=False)
class SecondTerm(_Ablated):
    """SASGP trained with the predictive densities of the rest only."""

    _DECODER = SecondTermDecoder
