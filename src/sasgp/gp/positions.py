"""Positions in the latent space that stand for all rows: where they lie, and how many are enough.

`choose` is randomly pivoted Cholesky (Chen, Epperly, Tropp & Webber, 2022): each position is drawn with a probability
proportional to the prior's variance that the positions before it leave at the rows. So positions follow the density of
the data and the kernel's own measure of distance, and no two are so close that K_UU would be badly conditioned. What is
left after each position comes for free, so the choice can stop when enough is known. Positions are drawn in blocks, and
those that the block itself has made less probable are rejected as often as that (Epperly, Tropp & Webber, 2024).

`python -m studies questions positions` measures it beside random rows and k-means++.
"""

from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

__all__ = ["CANDIDATES", "CHOSEN_FROM", "choose", "kmeans_plus_plus"]

CHOSEN_FROM = 4000  # rows that positions are chosen from
DRAWN = 48  # rows drawn at once
CANDIDATES = 20  # rows that k-means++ considers per row chosen: more would take a pass over the data and gain nothing


@torch.no_grad()
def choose(kernel: Kernel, Z: Tensor, size: int, draw: torch.Generator, missed: float = 0.0) -> Tensor:
    """Indices [M] of positions among Z [C, Q], at most `size`: as many as leave the share `missed` of the variance.

    There are fewer if the others would add nothing but rounding errors. The kernel is evaluated in float64.
    """
    kernel, Z = deepcopy(kernel).double(), Z.double()
    left = kernel(Z, diag=True).cpu().clone()  # of the prior's variance at each row, given the positions so far
    total, rounding = left.sum(), 1e-14 * left
    chosen: list[int] = []
    F = left.new_zeros(min(size, len(Z)), len(Z))  # rows of the Cholesky factor of K, in the order of the choice

    def enough() -> bool:
        return len(chosen) == len(F) or not left.sum() > missed * total

    while not enough():
        left = torch.where(left > rounding, left, 0.0)
        if not left.any():
            break
        # Several are drawn at once, so that their rows of K are one call of the kernel and one product
        drawn, before, start = torch.multinomial(left, DRAWN, replacement=True, generator=draw), left, len(chosen)
        rows = kernel(Z[drawn.to(Z.device)], Z).to_dense().cpu() - F[:start, drawn].T @ F[:start]  # [DRAWN, C]
        for i, row in zip(drawn.tolist(), rows, strict=True):
            if enough():  # before rounding errors below zero are cut off: where they outweigh the rest, nothing is left
                break
            # A row drawn by what was left before is taken with the share of it that is left now
            if not torch.rand((), generator=draw, dtype=left.dtype) * before[i] < left[i] or not left[i] > rounding[i]:
                continue
            # The next row of the factor: what position i has in common with every row, given the positions before it
            n = len(chosen)
            row = row - F[start:n, i] @ F[start:n]
            row[i] = left[i]  # GPyTorch rounds the distance of a row from itself
            F[n] = row / left[i].sqrt()
            left = torch.where(left > rounding, left, 0.0) - F[n].square()
            left[i] = 0
            chosen.append(i)
    return torch.tensor(chosen, dtype=torch.long)


def kmeans_plus_plus(Z: Tensor, size: int, draw: torch.Generator) -> Tensor:
    """Indices [size] of rows of Z [N, Q] that are spread out (Arthur & Vassilvitskii, 2007): first inducing inputs.

    The first row is drawn uniformly. Each further row is drawn with a probability proportional to its squared distance
    from the nearest row chosen before.
    """
    Z = Z.detach().double().cpu()
    chosen = [int(torch.randint(len(Z), (), generator=draw))]
    squared = (Z - Z[chosen[0]]).square().sum(1)
    while len(chosen) < size and squared.any():
        chosen.append(int(torch.multinomial(squared, 1, generator=draw)))
        squared = torch.minimum(squared, (Z - Z[chosen[-1]]).square().sum(1))
    # If there are fewer distinct positions than asked for, any rows fill up the rest
    rest = torch.ones(len(Z), dtype=torch.bool)
    rest[chosen] = False
    return torch.cat([torch.tensor(chosen), rest.nonzero()[:, 0]])[:size]
