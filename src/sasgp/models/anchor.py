"""The cost that keeps rows near their places in a layout, when the encoder is fitted to it and during training."""

from collections.abc import Mapping
from typing import Any, Self

import torch
from torch import Tensor

__all__ = ["MODE_SCALE", "Anchor", "distance_cost", "places"]

MODE_SCALE = 0.3  # s of `distance_cost`, relative to a layout of unit variance: about the radius of a cluster


class Anchor:
    """The cost w log(1 + ‖μ_n − t_n‖²/s²), in nats, of a row n whose latent μ_n is away from its place t_n.

    Parameters
    ----------
    targets : Tensor [n, Q]
        Places t of the rows in the layout, on the model's device.
    rows : Tensor [n] or None
        Indices of these rows among all N. None: all rows, in order.
    n_rows : int
        N.
    weight : float
        w. It is `layout_weight` times the number of features.
    """

    def __init__(self, targets: Tensor, rows: Tensor | None, n_rows: int, weight: float) -> None:
        self.targets, self.rows, self.n_rows, self.weight = targets, rows, n_rows, weight
        self.place = None if rows is None else places(rows, n_rows).to(targets.device)

    def __call__(self, mu: Tensor, index: Tensor) -> Tensor:
        """The cost [B] of latents mu [B, Q] of these rows. Rows outside the layout cost nothing."""
        index = index.to(mu.device)
        if self.place is None:
            return self.weight * distance_cost(mu, self.targets[index])
        place = self.place[index]
        return self.weight * distance_cost(mu, self.targets[place]) * (place >= 0)

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps; `from_state` makes an equal anchor."""
        return {"targets": self.targets, "rows": self.rows, "n_rows": self.n_rows, "weight": self.weight}

    @classmethod
    def from_state(cls, state: Mapping[str, Any], device: torch.device) -> Self:
        return cls(state["targets"].to(device), state["rows"], state["n_rows"], state["weight"])


def places(rows: Tensor, N: int) -> Tensor:
    """The position of each of N rows among `rows` [n], or −1 if it is not among them: [N]."""
    return torch.full((N,), -1).index_put_((rows,), torch.arange(len(rows)))


def distance_cost(Z: Tensor, targets: Tensor) -> Tensor:
    """The cost log(1 + ‖z − t‖²/s²) of each row, [B]: up to constants, minus the log density of a Cauchy distribution.

    A row that may belong to either of two clusters goes to one of them. With squared error it would go halfway between
    the two, where its neighbours would be other ambiguous rows.
    """
    return ((Z - targets).square().sum(1) / MODE_SCALE**2).log1p()
