"""Geodesics: shortest paths in the metric of a decoder.

A path with fixed ends is moved until its energy Σ_i E‖f(z_i+1) − f(z_i)‖² is least, which makes it short and its speed
constant. With Ḡ_i the mean metric of step i, the energy is nearly Σ_i Δ_iᵀ Ḡ_i Δ_i. Its matrix of second derivatives is
then block tridiagonal, and a damped Newton step costs little more than the gradient. It starts from the shortest path
over a graph, and the straight line is kept if that is shorter.
"""

import torch
from torch import Tensor

from sasgp.data.blocks import slices
from sasgp.gp.geometry.graph import Graph
from sasgp.gp.geometry.metric import Geometry

__all__ = ["geodesics"]

INNER = (32, 64, 128, 256)  # points of a path while it is moved
LONGEST = 0.4  # of its steps, in lengthscales; the fewest points are taken that leave no longer ones
STEPS = 60  # at most
ENOUGH = 3e-5  # relative change of the energy in a step, with which a path is finished
STUCK = 1e6  # damping with which it is given up
RIDGE = 1e-10  # relative, on matrices that may be singular: a kernel need not use all dimensions
GUARDED = 20  # points from which on a path is compared with the straight line as it is returned


@torch.no_grad()
def geodesics(geometry: Geometry, graph: Graph, Z0: Tensor, Z1: Tensor, n: int) -> Tensor:
    """Shortest paths [R, n, Q] from each of Z0 [R, Q] to its counterpart in Z1 [R, Q], in steps of equal length."""
    Z0, Z1 = Z0.double(), Z1.double()
    # The same order of the ends, whichever comes first
    swap = _is_descending(Z1 - Z0)[:, None]
    start, end = torch.where(swap, Z1, Z0), torch.where(swap, Z0, Z1)
    routes = [graph.path(a, b) for a, b in zip(start, end, strict=True)]
    size = torch.tensor([_inner_points(geometry, route) for route in routes])
    found = Z0.new_empty(len(Z0), n, Z0.shape[1])
    for m in size.unique().tolist():  # type: ignore[no-untyped-call]
        group = (size == m).nonzero()[:, 0]
        # The memory of a path: ∂k(z,U) at each of its points
        for block in slices(len(group), 4 * m * Z0.shape[1] * len(geometry.U)):
            chosen = group[block]
            found[chosen] = _shortest(geometry, [routes[i] for i in chosen.tolist()], m, n)
    found = torch.where(swap[:, :, None], found.flip(1), found)
    found[:, 0], found[:, -1] = Z0, Z1  # without rounding
    return found


def _is_descending(step: Tensor) -> Tensor:
    """Whether the first number that is not 0 in each row [R, Q] is negative."""
    first = (step != 0).long().argmax(1, keepdim=True)
    return step.gather(1, first)[:, 0] < 0


def _inner_points(geometry: Geometry, route: Tensor) -> int:
    steps = float((route.diff(dim=0) / geometry.units).norm(dim=1).sum()) / LONGEST
    return next((m for m in INNER if m > steps), INNER[-1])


def _shortest(geometry: Geometry, routes: list[Tensor], m: int, n: int) -> Tensor:
    """What routes over the graph become when they are moved, or straight lines where these are shorter: [R, n, Q]."""
    straight = resample(geometry, torch.stack([route[[0, -1]] for route in routes]), m)
    path = relax(geometry, torch.cat([resample(geometry, route[None], m) for route in routes]))
    limit = geometry.length(straight)
    path = torch.where((geometry.length(path) < limit)[:, None, None], path, straight)
    found = resample(geometry, path, n)
    if n >= GUARDED:  # straight lines between few points may be longer than the path that they lie on
        worse = geometry.length(found) > limit
        found[worse] = resample(geometry, straight[worse], n)
    return found


def resample(geometry: Geometry, paths: Tensor, n: int) -> Tensor:
    """Points [R, n, Q] on paths [R, m, Q], in n − 1 steps of equal length."""
    R, m, Q = paths.shape
    done = geometry.segments(paths[:, :-1].reshape(-1, Q), paths[:, 1:].reshape(-1, Q)).reshape(R, m - 1).cumsum(1)
    done = torch.cat([done.new_zeros(R, 1), done], 1)  # [R, m]
    if m == 2:  # a straight line: where its length is reached is not known yet
        t = torch.linspace(0, 1, 2 * n, dtype=paths.dtype, device=paths.device)[:, None]
        return resample(geometry, paths[:, :1] + t * (paths[:, 1:] - paths[:, :1]), n)
    at = done[:, -1:] * torch.linspace(0, 1, n, dtype=done.dtype, device=done.device)
    i = torch.searchsorted(done, at, right=True).clamp(1, m - 1)
    low, high = done.gather(1, i - 1), done.gather(1, i)
    share = ((at - low) / (high - low).clamp_min(torch.finfo(done.dtype).tiny)).clamp(0, 1)[..., None]
    index = i[..., None].expand(-1, -1, Q)
    return (1 - share) * paths.gather(1, index - 1) + share * paths.gather(1, index)


def relax(geometry: Geometry, paths: Tensor) -> Tensor:
    """Paths [R, m, Q] with the same ends and the least energy that damped Newton steps lead to."""
    paths = paths.clone()
    energy, gradient, G = geometry.energy(paths)
    damping = torch.full_like(energy, 1e-3)
    active = torch.arange(len(paths), device=paths.device)
    for _ in range(STEPS):
        proposal = paths[active]
        proposal[:, 1:-1] -= _newton_step(G, gradient, damping)
        found, new_gradient, new_G = geometry.energy(proposal)
        better = found < energy
        finished = ((energy - found).abs() <= ENOUGH * energy) | (damping > STUCK)
        paths[active[better]] = proposal[better]
        damping = torch.where(better, damping / 4, damping * 8)
        for old, new in ((energy, found), (gradient, new_gradient), (G, new_G)):
            old[better] = new[better]
        keep = ~finished
        active, energy, gradient, G, damping = (part[keep] for part in (active, energy, gradient, G, damping))
        if not len(active):
            break
    return paths


def _newton_step(G: Tensor, gradient: Tensor, damping: Tensor) -> Tensor:
    """H⁻¹ g [R, m − 2, Q] of the inner points, from G [R, m, Q, Q], the gradient [R, m, Q] and the damping [R]."""
    # H = 2 tridiag(−Ḡ_i, Ḡ_i + Ḡ_i+1, −Ḡ_i+1), and its diagonal is increased by the damping
    mean = G[:, 1:] + G[:, :-1]  # 2 Ḡ, [R, m − 1, Q, Q]
    D = (1 + damping[:, None, None, None]) * (mean[:, 1:] + mean[:, :-1])  # [R, m − 2, Q, Q]
    ridge = RIDGE * D.diagonal(dim1=2, dim2=3).sum(2, keepdim=True) + torch.finfo(D.dtype).tiny
    D.diagonal(dim1=2, dim2=3).add_(ridge)
    g, n = gradient[:, 1:-1, :, None], D.shape[1]
    # Forwards: row i loses its left neighbour
    C: list[Tensor] = []
    y: list[Tensor] = []
    for i in range(n):
        E = -mean[:, i] if i else None  # couples i − 1 and i
        A = D[:, i] if E is None else D[:, i] - E @ C[-1]
        b = g[:, i] if E is None else g[:, i] - E @ y[-1]
        solved = torch.linalg.solve(A, torch.cat([-mean[:, i + 1], b], 2))
        C.append(solved[..., :-1])
        y.append(solved[..., -1:])
    # Backwards
    x = [y[-1]]
    for i in range(n - 2, -1, -1):
        x.append(y[i] - C[i] @ x[-1])
    return torch.stack(x[::-1], 1)[..., 0]
