"""The nearest of many positions: an exact search up to 10⁵ of them, and beyond that a search in a few cells.

Cells are those of k-means: each position belongs to its nearest centre. A query looks only into the cells whose centres
are nearest to it, so that its cost hardly grows with the number of positions. `python -m studies questions neighbours`
measures what it misses.

Distances are in units of the kernel's lengthscales, and in the dtype of the positions.
"""

import math

import torch
from torch import Tensor

from sasgp.data.blocks import slices

__all__ = ["Neighbours"]

TILE = 65_536  # positions that a query is compared with at once: fewer make `topk` slower per position
EXACT = 100_000  # positions that are all compared with every query
CELL = 1024  # positions in a cell, on average
PROBED = 16  # cells that a query looks into, at least
SURPLUS = 16  # ... and as many as hold this many times the neighbours that it asks for
LLOYD_STEPS, LLOYD_ROWS = 6, 32  # of k-means, and positions per centre that it sees
GROUP = 2048  # queries that walk through the cells together


class Neighbours:
    """Finds the nearest of the positions Z [N, Q].

    Parameters
    ----------
    Z : Tensor [N, Q]
    units : Tensor [Q]
        Units of distance in each dimension.
    centres : Tensor [C, Q], optional
        Centres of cells that were found before, for the same positions. By default there are none up to 10⁵ positions,
        and they are found by k-means beyond that.
    """

    @torch.no_grad()
    def __init__(self, Z: Tensor, units: Tensor, centres: Tensor | None = None) -> None:
        # Relative to the mean, so that ‖a‖² − 2 a·b + ‖b‖² loses few digits
        self.units, self.centre = units.to(Z), Z.double().mean(0).to(Z.dtype)
        self.places = self._placed(Z)  # [N, Q]
        self.half_squares = 0.5 * self.places.square().sum(1)  # [N]
        self.centres: Tensor | None = None
        if centres is not None:
            self._use_cells(centres.to(Z))
        elif len(Z) > EXACT:
            self._use_cells(_k_means(self.places, math.ceil(len(Z) / CELL)))

    def __len__(self) -> int:
        return len(self.places)

    def _placed(self, Z: Tensor) -> Tensor:
        return (Z.to(self.centre.dtype) - self.centre) / self.units

    def _use_cells(self, centres: Tensor) -> None:
        self.centres = centres
        cell = _nearest_centre(self.places, centres)  # [N]
        self.order = cell.argsort(stable=True)  # positions, cell by cell
        self.starts = torch.cat([cell.new_zeros(1), cell.bincount(minlength=len(centres)).cumsum(0)])  # [C + 1]

    @torch.no_grad()
    def nearest(self, Z: Tensor, k: int) -> Tensor:
        """Indices [M, k] of the positions nearest to each of Z [M, Q], in rising order.

        Where several are equally far and not all can be chosen, any of them are.
        """
        at = self._placed(Z)
        near = torch.empty(len(Z), k, dtype=torch.long, device=Z.device)
        if self.centres is not None and PROBED * k < len(self):
            for start in range(0, len(Z), GROUP):
                near[start : start + GROUP] = self._in_cells(at[start : start + GROUP], k, self.centres)
        else:
            for part in slices(len(Z), min(len(self), max(TILE, 2 * k))):
                near[part] = self._among_all(at[part], k)
        return near.sort(1).values

    def _among_all(self, at: Tensor, k: int) -> Tensor:
        # ½‖a − b‖² = ½‖a‖² − (a·b − ½‖b‖²), of which the first term orders nothing
        best, near = at.new_empty(len(at), 0), torch.empty(len(at), 0, dtype=torch.long, device=at.device)
        for tile in slices(len(self), len(at)):
            closeness = at @ self.places[tile].T - self.half_squares[tile]  # [m, n]
            found, index = closeness.topk(min(k, closeness.shape[1]), sorted=False)
            best, near = torch.cat([best, found], 1), torch.cat([near, index + tile.start], 1)
            best, chosen = best.topk(min(k, best.shape[1]), sorted=False)
            near = near.gather(1, chosen)
        return near

    def _in_cells(self, at: Tensor, k: int, centres: Tensor) -> Tensor:
        """The nearest [m, k] among the positions in the cells whose centres are nearest."""
        closeness = at @ centres.T - 0.5 * centres.square().sum(1)  # [m, C]
        n_cells = min(len(centres), max(PROBED, math.ceil(SURPLUS * k / CELL)))
        chosen = closeness.topk(n_cells).indices  # [m, n]
        sizes = self.starts.diff()
        while n_cells < len(centres) and int(sizes[chosen].sum(1).min()) < k:  # cells differ in size
            n_cells = min(len(centres), 2 * n_cells)
            chosen = closeness.topk(n_cells).indices
        best = at.new_full((len(at), n_cells, k), -math.inf)
        near = torch.zeros(len(at), n_cells, k, dtype=torch.long, device=at.device)
        # All queries that look into a cell are compared with it together
        query, rank = torch.ones_like(chosen).nonzero(as_tuple=True)
        by_cell = chosen.flatten().argsort(stable=True)
        bounds = chosen.flatten().bincount(minlength=len(centres)).cumsum(0).tolist()
        for c, (start, stop) in enumerate(zip([0, *bounds], bounds, strict=False)):
            members = self.order[self.starts[c] : self.starts[c + 1]]
            if start == stop or not len(members):
                continue
            q, r = query[by_cell[start:stop]], rank[by_cell[start:stop]]
            closeness = at[q] @ self.places[members].T - self.half_squares[members]
            found, index = closeness.topk(min(k, len(members)), sorted=False)
            best[q, r, : found.shape[1]], near[q, r, : found.shape[1]] = found, members[index]
        chosen = best.flatten(1).topk(k, sorted=False).indices
        return near.flatten(1).gather(1, chosen)


def _k_means(places: Tensor, n: int) -> Tensor:
    """Centres [n, Q] by Lloyd's algorithm on a sample. A centre that loses all rows stays where it is."""
    draw = torch.Generator().manual_seed(0)
    sample = places[torch.randperm(len(places), generator=draw)[: LLOYD_ROWS * n].to(places.device)]
    centres = sample[:n].clone()
    for _ in range(LLOYD_STEPS):
        cell = _nearest_centre(sample, centres)
        count = cell.bincount(minlength=n)[:, None]
        total = torch.zeros_like(centres).index_add_(0, cell, sample)
        centres = torch.where(count > 0, total / count.clamp_min(1), centres)
    return centres


def _nearest_centre(places: Tensor, centres: Tensor) -> Tensor:
    found = torch.empty(len(places), dtype=torch.long, device=places.device)
    half = 0.5 * centres.square().sum(1)
    for part in slices(len(places), len(centres)):
        found[part] = (places[part] @ centres.T - half).argmax(1)
    return found
