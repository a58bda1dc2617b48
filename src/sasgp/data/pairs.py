"""Inputs and targets as one row each: what a training run of a regression reads."""

from collections.abc import Iterable, Iterator

import torch
from torch import Tensor

from sasgp.data.rows import ArrayRows

__all__ = ["PairedRows"]


class PairedRows:
    """Rows [x, y] of P inputs, which may be on disk, and T targets, which are in memory.

    Parameters
    ----------
    inputs : ArrayRows [N, P]
    targets : Tensor [N, T]
    """

    def __init__(self, inputs: ArrayRows, targets: Tensor) -> None:
        self.inputs, self.device = inputs, inputs.device
        self.targets = targets.to(inputs.device, inputs.dtype)

    def __len__(self) -> int:
        return len(self.inputs)

    def subset(self, indices: Tensor) -> "PairedRows":
        """Some of these rows."""
        return PairedRows(self.inputs.subset(indices), self.targets[indices.to(self.device)])

    def gather(self, index: Tensor) -> Tensor:
        """Rows by index, [B] → [B, P + T]."""
        return self._joined(self.inputs.gather(index), index)

    def segments(self, draw: torch.Generator) -> Iterator[Tensor]:
        """All row indices in random order, in a way that suits the disk."""
        return self.inputs.segments(draw)

    def stream(self, plan: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        """Indices and rows of each batch of a plan."""
        return ((index, self._joined(X, index)) for index, X in self.inputs.stream(plan))

    def _joined(self, X: Tensor, index: Tensor) -> Tensor:
        return torch.cat([X, self.targets[index.to(self.device)]], 1)
