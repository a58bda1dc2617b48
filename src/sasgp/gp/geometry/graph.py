"""Shortest paths over a graph in the latent space: distances between many points, and the start of a geodesic.

In one or two dimensions the nodes are a grid, finer than the kernel's lengthscale, with edges in many directions. In
more dimensions they are the decoder's positions, with edges between near ones. Points that are asked about are joined
to the nodes next to them, and to each other if they are near. They lead nowhere else, so the distance of two points
does not depend on the others.
"""

import math
from itertools import product
from typing import Any

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree
from scipy.spatial import cKDTree
from torch import Tensor

from sasgp.data.blocks import slices
from sasgp.gp.geometry.metric import Geometry

__all__ = ["Graph"]

SPACING = 0.25  # of the grid, in lengthscales
FEWEST, MOST = 40, 20_000  # nodes along its longer side at least, and in all at most
WORK = 1e10  # operations that the grid may take: P² per node
REACH = 2  # of the grid's edges, in nodes along each axis: 16 directions
NEIGHBOURS = 12  # of a position
JOINED = 8  # nodes that a point is joined to
SOURCES = 64  # points from which paths are searched for together


class Graph:
    """Nodes, and edges whose lengths are known.

    Parameters
    ----------
    geometry : Geometry
        What lengths are measured with.

    Attributes
    ----------
    nodes : Tensor [N, Q]
    edges : sparse array [N, N]
        Their lengths.
    reach : float
        Points as near as this, in lengthscales, are joined by a straight line.
    """

    def __init__(self, geometry: Geometry) -> None:
        self.geometry = geometry
        self.nodes, edges, self.reach = _grid(geometry) if geometry.U.shape[1] <= 2 else _positions(geometry)
        self.edges = edges + edges.T
        self.tree = cKDTree(self._scaled(self.nodes))

    def _scaled(self, Z: Tensor) -> Any:
        return (Z / self.geometry.units).numpy(force=True)

    def distances(self, Z0: Tensor, Z1: Tensor) -> Tensor:
        """Lengths [M0, M1] of the shortest paths from each of Z0 [M0, Q] to each of Z1 [M1, Q]."""
        if len(Z1) < len(Z0):  # there is one search per row
            return self.distances(Z1, Z0).T
        found = Z0.new_empty(len(Z0), len(Z1))
        ends = self._joined(Z1)
        for start in range(0, len(Z0), SOURCES):
            part = Z0[start : start + SOURCES]
            edges, m = self._with_points(part, Z1, ends), len(part)
            lengths = dijkstra(edges, indices=range(m))[:, m : m + len(Z1)]
            found[start : start + m] = torch.from_numpy(lengths).to(found)
        return found

    def path(self, z0: Tensor, z1: Tensor) -> Tensor:
        """The shortest path [n, Q] from z0 [Q] to z1 [Q]."""
        edges = self._with_points(z0[None], z1[None], self._joined(z1[None]))
        _, before = dijkstra(edges, indices=0, return_predecessors=True)
        at, places = int(before[1]), [z1]
        while at > 0:
            places.append(self.nodes[at - 2])
            at = int(before[at])
        return torch.stack([*places, z0]).flip(0)

    def _joined(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """The nodes [M, J] that points Z [M, Q] are joined to, and how far they are."""
        _, index = self.tree.query(self._scaled(Z), k=range(1, min(JOINED, len(self.nodes)) + 1))
        nodes = torch.from_numpy(index).to(Z.device)
        J = nodes.shape[1]
        lengths = self.geometry.segments(Z.repeat_interleave(J, 0), self.nodes[nodes.reshape(-1)])
        return nodes, lengths.reshape(-1, J)

    def _with_points(self, Z0: Tensor, Z1: Tensor, ends: tuple[Tensor, Tensor]) -> Any:
        """The edges from points Z0 to the nodes, from these to points Z1, and from Z0 to Z1 where they are near.

        The first places are those of Z0 and of Z1.
        """
        M0, M1, N = len(Z0), len(Z1), len(self.nodes)
        own = self.edges.tocoo()
        near = cKDTree(self._scaled(Z0)).sparse_distance_matrix(
            cKDTree(self._scaled(Z1)), self.reach, output_type="coo_matrix"
        )
        i, j = (torch.from_numpy(index).long() for index in (near.row, near.col))
        starts = self._joined(Z0)
        J = starts[0].shape[1]
        rows = [torch.arange(M0).repeat_interleave(J), M0 + M1 + ends[0].reshape(-1).cpu(), i]
        columns = [M0 + M1 + starts[0].reshape(-1).cpu(), M0 + torch.arange(M1).repeat_interleave(J), M0 + j]
        lengths = [starts[1].reshape(-1), ends[1].reshape(-1), self.geometry.segments(Z0[i], Z1[j])]
        row, column = (torch.cat(part) for part in (rows, columns))
        # An edge of length 0 would be none
        length = torch.cat(lengths).clamp_min(torch.finfo(torch.float64).tiny)
        size = (M0 + M1 + N,) * 2
        joined = coo_array((length.numpy(force=True), (row.numpy(), column.numpy())), shape=size)
        inner = coo_array((own.data, (own.row + M0 + M1, own.col + M0 + M1)), shape=size)
        return (joined + inner).tocsr()


def _grid(geometry: Geometry) -> tuple[Tensor, Any, float]:
    """A grid around the positions: nodes [N, Q], edges and reach."""
    U, Q, P = geometry.U / geometry.units, geometry.U.shape[1], len(geometry.U)
    low, high = U.amin(0) - 1, U.amax(0) + 1
    sides = high - low
    most = min(MOST, int(WORK / P**2)) if Q == 2 else MOST
    spacing = max(min(SPACING, float(sides.max()) / FEWEST), float((sides.prod() / most) ** (1 / Q)))
    axes = [torch.arange(float(a), float(b) + spacing, spacing).to(U) for a, b in zip(low, high, strict=True)]
    nodes = torch.cartesian_prod(*axes).reshape(-1, Q) * geometry.units
    shape = [len(axis) for axis in axes]
    index = torch.arange(len(nodes)).reshape(shape)
    G = geometry.metric(nodes)
    rows, columns, lengths = [], [], []
    for offset in _directions(Q):
        step = torch.tensor(offset).to(U) * spacing * geometry.units
        speed = ((G @ step) @ step).clamp_min(0).sqrt()
        # Nodes that have a node at this offset
        first = index[tuple(slice(max(0, -o), n - max(0, o)) for o, n in zip(offset, shape, strict=True))].reshape(-1)
        second = index[tuple(slice(max(0, o), n - max(0, -o)) for o, n in zip(offset, shape, strict=True))].reshape(-1)
        rows.append(first)
        columns.append(second)
        lengths.append(0.5 * (speed[first] + speed[second]))
    return nodes, _sparse(rows, columns, lengths, len(nodes)), 2 * REACH * spacing


def _directions(Q: int) -> list[tuple[int, ...]]:
    """Offsets to other nodes of a grid, of which none is a multiple of another."""
    steps = product(range(-REACH, REACH + 1), repeat=Q)
    return [offset for offset in steps if math.gcd(*offset) == 1 and offset > (0,) * Q]


def _positions(geometry: Geometry) -> tuple[Tensor, Any, float]:
    """The positions, each joined to the nearest others, and all connected: nodes [N, Q], edges and reach."""
    U, N = geometry.U, len(geometry.U)
    places = (U / geometry.units).numpy(force=True)
    k = min(NEIGHBOURS + 1, N)
    distances, index = cKDTree(places).query(places, k=range(1, k + 1))
    rows, columns = torch.arange(N).repeat_interleave(k), torch.from_numpy(index).reshape(-1)
    tree = minimum_spanning_tree(torch.cdist(*[torch.from_numpy(places)] * 2).numpy()).tocoo()
    pairs = torch.stack([torch.cat([rows, torch.from_numpy(tree.row)]), torch.cat([columns, torch.from_numpy(tree.col)])])
    pairs = pairs.sort(0).values.unique(dim=1)
    i, j = pairs[:, pairs[0] < pairs[1]]
    lengths = torch.cat([geometry.segments(U[i[part]], U[j[part]]) for part in slices(len(i), len(U))])
    return U, _sparse([i], [j], [lengths], N), float(torch.from_numpy(distances)[:, -1].median())


def _sparse(rows: list[Tensor], columns: list[Tensor], lengths: list[Tensor], N: int) -> Any:
    row, column = torch.cat(rows).numpy(), torch.cat(columns).numpy()
    length = torch.cat(lengths).clamp_min(torch.finfo(torch.float64).tiny)
    return coo_array((length.numpy(force=True), (row, column)), shape=(N, N)).tocsr()
