"""Shortest paths over a graph in the latent space: distances between many points, and the start of a geodesic.

In one or two dimensions the nodes are a grid, finer than the kernel's lengthscale. In more dimensions they are the
decoder's positions. A node has edges to those around it that are nearest in the metric: along a valley they are long,
and follow its direction closely. Points that are asked about are joined to the nodes next to them, and to each other if
they are near. In many dimensions positions are few and ways over them long, so that "near" is most of the space there.
These edges lead nowhere else, so the distance of two points does not depend on the others.
"""

import math
from itertools import product
from typing import Any

import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra, minimum_spanning_tree
from scipy.spatial import cKDTree
from torch import Tensor

from sasgp.gp.geometry.metric import Geometry

__all__ = ["Graph"]

SPACING = 0.25  # of the grid, in lengthscales
FEWEST, MOST = 40, 20_000  # nodes along its longer side at least, and in all at most
WORK = 2.5e9  # operations that the grid may take: P² per node
REACH = 6  # of the grid's edges, in nodes along each axis
DIRECTIONS = 16  # and their opposites, in which a node of the grid has edges: the shortest ones
NEIGHBOURS, EDGES = 12, 1e10  # of a position at least, and more if edges take fewer operations than this: P² each
AROUND, JOINED = 60, 8  # nodes around a point, and those of them that it is joined to
PART = 0.75  # of an edge on which the metric is taken at two points, in lengthscales at most
NEAR = (1.0, 4.0)  # lengthscales up to which points are joined directly, in a grid and among positions
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
        nodes = _nearest(self.geometry, self.tree, self.nodes, Z, JOINED)
        J = nodes.shape[1]
        lengths = self.geometry.segments(Z.repeat_interleave(J, 0), self.nodes[nodes.reshape(-1)], PART)
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
        lengths = [starts[1].reshape(-1), ends[1].reshape(-1), self.geometry.segments(Z0[i], Z1[j], PART)]
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
    axes = [low[q] + spacing * torch.arange(math.ceil(float(sides[q]) / spacing) + 1).to(U) for q in range(Q)]
    nodes = torch.cartesian_prod(*axes).reshape(-1, Q) * geometry.units
    shape = [len(axis) for axis in axes]
    offsets = _directions(Q)
    steps = torch.tensor(offsets).to(U) * spacing * geometry.units  # [O, Q]
    squares = torch.einsum("oi,nij,oj->on", steps, geometry.metric(nodes), steps).clamp_min(0)  # [O, N]
    shortest = squares.argsort(0).argsort(0) < DIRECTIONS
    rows, columns, lengths = [], [], []
    for offset, speed, chosen in zip(offsets, squares.sqrt(), shortest, strict=True):
        first, second, length = _edges(offset, speed, chosen, shape)
        rows.append(first)
        columns.append(second)
        lengths.append(length)
    return nodes, _sparse(rows, columns, lengths, len(nodes)), NEAR[0]


def _directions(Q: int) -> list[tuple[int, ...]]:
    """Offsets to other nodes of a grid, of which none is a multiple of another."""
    steps = product(range(-REACH, REACH + 1), repeat=Q)
    return [offset for offset in steps if math.gcd(*offset) == 1 and offset > (0,) * Q]


def _edges(offset: tuple[int, ...], speed: Tensor, chosen: Tensor, shape: list[int]) -> tuple[Tensor, Tensor, Tensor]:
    """The edges [E] of a grid with one offset: where they start and end, and their lengths.

    `speed` [N] is √(ΔᵀGΔ) of the offset at each node. Between nodes it is interpolated.
    """
    index = torch.arange(len(speed)).reshape(shape)
    inside = tuple(slice(max(0, -o), n - max(0, o)) for o, n in zip(offset, shape, strict=True))
    first = index[inside].reshape(-1)
    strides = index.stride()

    def moved(places: list[int]) -> int:
        return sum(place * stride for place, stride in zip(places, strides, strict=True))

    last = first + moved(list(offset))
    keep = chosen[first] | chosen[last]
    first, last = first[keep], last[keep]
    # Along the longest axis every step leads to a node; along the other it may lead between two
    L = max(map(abs, offset))
    total = 0.5 * (speed[first] + speed[last])
    for step in range(1, L):
        exact = [o * step / L for o in offset]
        low, high = [math.floor(x) for x in exact], [math.ceil(x) for x in exact]
        share = max(x - below for x, below in zip(exact, low, strict=True))
        total = total + (1 - share) * speed[first + moved(low)] + share * speed[first + moved(high)]
    return first, last, total / L


def _positions(geometry: Geometry) -> tuple[Tensor, Any, float]:
    """The positions, each joined to those around it, and all connected: nodes [N, Q], edges and reach."""
    U, N = geometry.U, len(geometry.U)
    places = (U / geometry.units).numpy(force=True)
    k = min(max(NEIGHBOURS, int(EDGES / N**3)) + 1, AROUND, N)
    near = _nearest(geometry, cKDTree(places), U, U, k)  # with the position itself
    tree = minimum_spanning_tree(torch.cdist(U / geometry.units, U / geometry.units).numpy(force=True)).tocoo()
    connecting = torch.stack([torch.from_numpy(end).long() for end in (tree.row, tree.col)])
    joined = torch.stack([torch.arange(N).repeat_interleave(k), near.reshape(-1).cpu()])
    pairs = torch.cat([joined, connecting], 1).sort(0).values.unique(dim=1)  # type: ignore[no-untyped-call]
    i, j = pairs[:, pairs[0] < pairs[1]]
    return U, _sparse([i], [j], [geometry.segments(U[i], U[j], PART)], N), NEAR[1]


def _nearest(geometry: Geometry, tree: Any, nodes: Tensor, Z: Tensor, k: int) -> Tensor:
    """Of the nodes around each of Z [M, Q] those that are nearest in the metric at Z, [M, k]."""
    scaled = (Z / geometry.units).numpy(force=True)
    around = torch.from_numpy(tree.query(scaled, k=range(1, min(AROUND, len(nodes)) + 1))[1]).to(Z.device)  # [M, A]
    step = nodes[around] - Z[:, None]
    squares = torch.einsum("mai,mij,maj->ma", step, geometry.metric(Z), step)
    return around.gather(1, squares.argsort(1)[:, :k])


def _sparse(rows: list[Tensor], columns: list[Tensor], lengths: list[Tensor], N: int) -> Any:
    row, column = torch.cat(rows).numpy(), torch.cat(columns).numpy()
    length = torch.cat(lengths).clamp_min(torch.finfo(torch.float64).tiny)
    return coo_array((length.numpy(force=True), (row, column)), shape=(N, N)).tocsr()
