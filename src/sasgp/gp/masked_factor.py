"""The evidence of rows with missing values: a Cholesky factor for each pattern, and what they say together.

log p(X|Z) is a sum over features, each a Gaussian process on the rows that have it. Features with the same pattern
share a factor (`sasgp.gp.factor`). `MaskedFactor` adds and scores rows in all of them, so that every estimate of
`sasgp.gp.evidence` is the same code with and without missing values: a value that is missing adds nothing.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.gp.factor import GP, Factor, Update, silent
from sasgp.gp.masked import patterns

__all__ = ["MaskedFactor", "MaskedGP", "factor_of"]


class MaskedGP(GP):
    """Rows with missing values, their latents, and the kernel on these.

    Parameters
    ----------
    kernel, noise, Z, take, n_features, dtype
        As for `GP`; `take` returns NaN for missing values.
    seen : Tensor [N, D]
        True where a value is observed.
    offsets : Tensor [D]
        Nats added for each observed value of a feature: −log s_d if values are x_d / s_d.
    """

    def __init__(
        self,
        kernel: Kernel,
        noise: float,
        Z: Tensor,
        take: Callable[[Tensor], Tensor],
        n_features: int,
        *,
        seen: Tensor,
        offsets: Tensor,
        dtype: torch.dtype = torch.float64,
    ) -> None:
        super().__init__(kernel, noise, Z, take, n_features, dtype=dtype)
        self.seen, self.offsets = seen, offsets
        self.n_values = int(seen.sum())
        self.total_offset = float((seen.sum(0) * offsets).sum())
        found, which = patterns(seen)  # [P, N], [D]
        self.parts: list[tuple[GP, Tensor]] = []  # for each pattern, its features' GP, and the rows that it has
        for p, rows in enumerate(found):
            chosen = (which == p).nonzero()[:, 0]
            one = copy(self)
            one.__class__ = GP  # type: ignore[assignment]
            one.take = lambda index, chosen=chosen: take(index)[:, chosen]  # type: ignore[misc]
            one.n_features, one.row_offset = len(chosen), float(offsets[chosen].sum())
            self.parts.append((one, rows))


def factor_of(gp: GP, capacity: int = 0, work: int = 1, update: Update = silent) -> Factor:
    """An empty factor for these rows."""
    if isinstance(gp, MaskedGP):
        return MaskedFactor(gp, capacity, work, update)
    return Factor(gp, capacity, work, update)


class MaskedFactor(Factor):
    """Factors of all patterns, to which the same rows are added in the same order."""

    def __init__(self, gp: MaskedGP, capacity: int = 0, work: int = 1, update: Update = silent) -> None:
        self.factors = [(Factor(one), rows) for one, rows in gp.parts]
        super().__init__(gp, capacity, work, update)

    def restart(self, capacity: int) -> Self:
        """Remove all rows and make room for others. The count of operations goes on."""
        for factor, rows in self.factors:
            factor.restart(min(capacity, int(rows.sum())))
        self.order = torch.empty(0, dtype=torch.long, device=self.gp.device)
        self.largest = max(self.largest, capacity)
        return self

    def add(self, rows: Tensor) -> Tensor:
        """Add rows by index. Returns log p(x_n | all rows before it) of each row's observed values, [m]."""
        total = torch.zeros_like(self.gp.variance[rows])
        for factor, there in self.factors:
            chosen = there[rows]
            total[chosen] += factor.add(rows[chosen])
        self.order = torch.cat([self.order, rows])
        self._collect()
        return total

    def score(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        """The log density of each row's observed values given the first a rows, for increasing a: [len(sizes), m]."""
        total = self.gp.variance.new_zeros(len(sizes), len(rows))
        for factor, there in self.factors:
            chosen = there[rows]
            total[:, chosen] += factor.score(rows[chosen], [int(there[self.order[:a]].sum()) for a in sizes])
        self._collect()
        return total

    def _collect(self) -> None:
        self.flops = sum(factor.flops for factor, _ in self.factors)
        self.n_jittered = sum(factor.n_jittered for factor, _ in self.factors)
        self.update(min(1.0, self.flops / (self.work * len(self.factors))))
