"""The metric against finite differences and autograd; geodesics against surfaces whose geodesics are known."""

import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from gpytorch.kernels import (
    CosineKernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from oracles import assert_close

from sasgp.errors import InputError
from sasgp.gp.geometry import derivatives as calculus
from sasgp.gp.geometry import paths
from sasgp.gp.geometry.graph import Graph
from sasgp.gp.geometry.metric import Geometry
from sasgp.gp.geometry.paths import geodesics
from sasgp.gp.masked_sums import PatternSums
from sasgp.gp.row_sums import RowSums, condition

DOUBLE = torch.float64
NOISE = torch.tensor(0.05, dtype=DOUBLE)
N, D, Q = 25, 6, 3


def scaled(base, amplitude=1.7):
    kernel = ScaleKernel(base)
    kernel.outputscale = amplitude
    return kernel


def with_lengths(base, *lengths):
    base.lengthscale = torch.tensor(lengths)
    return base


def with_period(base, length):
    base.period_length = length
    return base


KERNELS = {
    "rbf": lambda: scaled(with_lengths(RBFKernel(), 0.8)),
    "rbf-ard": lambda: scaled(with_lengths(RBFKernel(ard_num_dims=Q), 0.6, 0.9, 1.3)),
    "matern32": lambda: scaled(with_lengths(MaternKernel(nu=1.5), 0.8)),
    "matern52": lambda: scaled(with_lengths(MaternKernel(nu=2.5, ard_num_dims=Q), 0.6, 0.9, 1.3)),
    "sum": lambda: scaled(RBFKernel(), 0.4) + scaled(with_lengths(MaternKernel(nu=2.5), 0.7)),
    "product": lambda: scaled(scaled(MaternKernel(nu=1.5)) * with_lengths(RBFKernel(), 0.9)),
    "some dimensions": lambda: scaled(RBFKernel(active_dims=(0, 2))) + scaled(MaternKernel(nu=2.5, active_dims=(1,))),
    "sum of products": lambda: scaled(RBFKernel()) * MaternKernel(nu=2.5) + with_lengths(RBFKernel(), 0.7),
    # By autograd, alone and as parts
    "rational quadratic": lambda: scaled(RQKernel()),
    "linear times rbf": lambda: LinearKernel() * scaled(with_lengths(RBFKernel(), 0.8)),
    "linear plus rbf": lambda: LinearKernel(active_dims=(1, 2)) + scaled(RBFKernel()),
    "periodic": lambda: scaled(with_period(PeriodicKernel(), 5.0)),
    "cosine": lambda: with_period(CosineKernel(active_dims=(0,)), 3.0) * RBFKernel(),
}
NAMED = list(KERNELS)[:8]


def draw(rng, *shape):
    return torch.randn(shape, generator=rng, dtype=DOUBLE)


def posterior(name, rng, scales=None):
    Z = draw(rng, N, Q)
    X = torch.sin(Z @ draw(rng, Q, D)) + 0.1 * draw(rng, N, D)
    return condition(KERNELS[name]().double(), NOISE, Z, X, X.mean(0), scales)


def expected_square(gp, a, b):
    """E‖f(a) − f(b)‖² from the decoder's own mean and the joint covariance that it samples with."""
    at = torch.stack([a, b])
    mean, _ = gp._moments(at)
    V = gp.kernel(at, gp.Z).to_dense() @ gp.root.T
    C = gp.kernel(at).to_dense() - V @ V.T
    scales = gp.scales.square().expand(D).sum()
    return float((mean[0] - mean[1]).square().sum() + scales * (C[0, 0] + C[1, 1] - 2 * C[0, 1]))


def derivative_square(gp, z, v, h=0.04, levels=5):
    """The limit of E‖f(z + hv) − f(z − hv)‖² / 4h² for h → 0, by extrapolation of a polynomial in h."""
    steps = [h / 2**i for i in range(levels)]
    table = [expected_square(gp, z + s * v, z - s * v) / (4 * s**2) for s in steps]
    for order in range(1, levels):  # Neville's scheme at h = 0
        table = [(2**order * b - a) / (2**order - 1) for a, b in pairwise(table)]
    return table[0]


@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("with_scales", [False, True], ids=["one scale", "scales"])
def test_metric_is_the_limit_of_expected_squares(name, with_scales, rng):
    gp = posterior(name, rng, draw(rng, D).exp() if with_scales else None)
    Z = draw(rng, 3, Q)
    G = Geometry(gp).metric(Z)
    assert_close(G, G.mT, 1e-12)
    # vᵀGv in six directions decides a symmetric 3×3 matrix
    eye = torch.eye(Q, dtype=DOUBLE)
    directions = [*eye, eye[0] + eye[1], eye[0] - eye[2], eye[1] + eye[2]]
    for z, g in zip(Z, G, strict=True):
        expected = [derivative_square(gp, z, v) for v in directions]
        assert_close(torch.stack([v @ g @ v for v in directions]), expected, 1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_jacobian_is_that_of_autograd(name, rng):
    # E[J] of the decoder's mean. Σ_J from G = E[J]ᵀE[J] + Σ_d s_d² Σ_J, whose other parts are known
    gp = posterior(name, rng, draw(rng, D).exp())
    Z = draw(rng, 4, Q)
    J, covariance = Geometry(gp).jacobian(Z)
    expected = torch.stack([torch.autograd.functional.jacobian(lambda z: gp._moments(z[None])[0][0], z) for z in Z])
    assert_close(J, expected, 1e-8)
    assert_close(Geometry(gp).metric(Z), J.mT @ J + gp.scales.square().sum() * covariance, 1e-8)
    assert (torch.linalg.eigvalsh(covariance) > -1e-9).all()


@pytest.mark.parametrize("name", KERNELS)
def test_derivatives_are_those_of_autograd(name, rng):
    kernel = KERNELS[name]().double().requires_grad_(False)
    Z, W = draw(rng, 5, Q), draw(rng, 5, Q)
    found = calculus.derivatives(kernel, Z, W, mixed=True)
    k = lambda z, w: kernel(z[None], w[None], diag=True)[0]  # noqa: E731
    for i in range(5):
        left, right = torch.autograd.functional.jacobian(k, (Z[i], W[i]))
        (_, mixed), _ = torch.autograd.functional.hessian(k, (Z[i], W[i]))
        assert_close(found.k[i], k(Z[i], W[i]), 1e-10)
        assert_close(found.left[i], left, 1e-8)
        assert_close(found.right[i], right, 1e-8)
        assert_close(found.mixed[i], mixed, 1e-7)
    # Every point with every other
    crossed = calculus.derivatives(kernel, Z[:, None], W)
    assert_close(crossed.k, kernel(Z, W).to_dense(), 1e-7)
    assert_close(crossed.left.diagonal().T, found.left, 1e-12)


@pytest.mark.parametrize("base", [lambda: MaternKernel(nu=0.5), lambda: PiecewisePolynomialKernel(q=0)])
@pytest.mark.parametrize("inside", [scaled, lambda base: scaled(base) + RBFKernel(), lambda base: base * RBFKernel()])
def test_a_kernel_without_derivatives_is_named(base, inside, rng):
    gp = condition(inside(base()).double(), NOISE, draw(rng, N, Q), draw(rng, N, D), torch.zeros(D, dtype=DOUBLE))
    with pytest.raises(InputError, match=r"Matérn-1/2 is such a kernel"):
        Geometry(gp)


def test_features_that_miss_other_rows_add_up(rng):
    # The metric of independent functions side by side is the sum of their metrics
    Z, X = draw(rng, N, Q), draw(rng, N, D)
    X = torch.where(torch.rand(N, D, generator=rng) < 0.4, torch.nan, X)
    X[:, 3] = torch.where(X[:, 0].isnan(), torch.nan, Z[:, 1])  # the same rows as feature 0
    kernel, scales = KERNELS["rbf"]().double(), draw(rng, D).exp()
    sums = PatternSums(kernel, Z, D)
    sums.add(X / scales, Z)
    together = Geometry(sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE), scales))
    at = draw(rng, 4, Q)
    total = torch.zeros(4, Q, Q, dtype=DOUBLE)
    for d in range(D):
        seen = ~X[:, d].isnan()
        one = condition(kernel, NOISE, Z[seen], X[seen, d : d + 1] / scales[d], torch.zeros(1, dtype=DOUBLE))
        total += scales[d].square() * Geometry(one).metric(at)
    assert_close(together.metric(at), total, 1e-7)


def test_all_rows_through_few_positions(rng):
    # A decoder from sums is no other class: its metric is the limit of expected squares, too
    Z, X = draw(rng, 200, Q), draw(rng, 200, D)
    sums = RowSums(KERNELS["matern52"]().double(), Z[:30], D)
    sums.add(X, Z)
    gp = sums.posterior(NOISE, torch.zeros(D, dtype=DOUBLE))
    v = draw(rng, Q)
    assert_close(v @ Geometry(gp).metric(Z[40:41])[0] @ v, derivative_square(gp, Z[40], v), 1e-6)


def test_volume_and_speed_are_those_of_the_metric(rng):
    geometry = Geometry(posterior("rbf", rng))
    Z, V = draw(rng, 5, Q), draw(rng, 5, Q)
    assert_close(geometry.speed(Z, V), torch.einsum("mi,mij,mj->m", V, geometry.metric(Z), V).sqrt(), 1e-10)
    # Volume of the parallelepiped that E[JᵀJ] spans, by its eigenvalues
    assert_close(geometry.volume(Z), torch.linalg.eigvalsh(geometry.metric(Z)).prod(1).sqrt(), 1e-10)


@pytest.mark.parametrize("name", ["rbf", "matern32", "linear plus rbf"])
def test_length_is_the_integral_of_speed(name, rng):
    geometry = Geometry(posterior(name, rng))
    a, b = draw(rng, 2, Q)
    # ∫ √(vᵀ G v) dt with v = b − a, by the midpoint rule
    t = (torch.arange(4000, dtype=DOUBLE)[:, None] + 0.5) / 4000
    speed = ((geometry.metric(a + t * (b - a)) @ (b - a)) @ (b - a)).sqrt()
    tolerance = 1e-5 if name == "rbf" else 1e-4  # the slope of a Matérn-3/2 kernel has kinks
    assert_close(geometry.segments(a[None], b[None])[0], speed.mean(), tolerance)
    # Two legs of a path add up, whatever their numbers of steps
    middle = a + 0.3 * (b - a)
    whole = geometry.length(torch.stack([a, b])[None])
    assert_close(geometry.length(torch.stack([a, middle, b])[None]), whole, tolerance)


@pytest.mark.parametrize("name", ["rbf", "matern32", "product", "linear times rbf"])
def test_the_gradient_of_the_energy(name, rng):
    gp = posterior(name, rng)
    geometry = Geometry(gp)
    paths = draw(rng, 2, 5, Q)
    energy, gradient, G = geometry.energy(paths)
    squares = [[expected_square(gp, a, b) for a, b in pairwise(path)] for path in paths]
    assert_close(energy, np.sum(squares, 1), 1e-10)
    assert_close(G.reshape(-1, Q, Q), geometry.metric(paths.reshape(-1, Q)), 1e-10)
    h = 1e-5
    for i in range(5):
        for q in range(Q):
            step = torch.zeros_like(paths)
            step[:, i, q] = h
            expected = (geometry.energy(paths + step)[0] - geometry.energy(paths - step)[0]) / (2 * h)
            assert_close(gradient[:, i, q], expected, 1e-5)


# ---- surfaces whose geodesics are known ----


def kernel_of(lengthscale, name=RBFKernel):
    return scaled(with_lengths(name(), lengthscale), 1.0).double()


def decoder(Z, X, lengthscale, noise):
    """The exact Gaussian process given rows X at latents Z that are known; without their mean, which is 0."""
    noise = torch.tensor(noise, dtype=DOUBLE)
    return condition(kernel_of(lengthscale), noise, Z, X, torch.zeros(X.shape[1], dtype=DOUBLE))


def disc(rng, n, radius):
    """Points of a disc, uniformly."""
    angle, r = 2 * math.pi * torch.rand(n, generator=rng), radius * torch.rand(n, generator=rng).sqrt()
    return torch.stack([r * angle.cos(), r * angle.sin()], 1).double()


def sphere(rng, Z):
    """Points of the unit sphere in 20 dimensions, from their stereographic projection, which is twisted."""
    angle = Z.norm(dim=1)
    Z = torch.stack([angle.cos() * Z[:, 0] - angle.sin() * Z[:, 1], angle.sin() * Z[:, 0] + angle.cos() * Z[:, 1]], 1)
    s = Z.square().sum(1, keepdim=True)
    points = torch.cat([2 * Z, 1 - s], 1) / (1 + s)
    return points @ torch.linalg.qr(draw(rng, 20, 3)).Q.T


def roll(t, height):
    """Points of a Swiss roll: an Archimedean spiral, and a height."""
    return torch.stack([t * t.cos(), t * t.sin(), height], 1)


def arc(t):
    """Length of the spiral up to t: ∫ √(1 + t²) dt."""
    return (t * (1 + t.square()).sqrt() + t.asinh()) / 2


def surface(name, rng, n=300):
    """A decoder of a surface, all its points [n, 2], and the lengths [n/2] of geodesics between the two halves."""
    half = n // 2
    if name == "sphere":
        Z = disc(rng, n, 0.9)
        X = sphere(rng, Z)
        truth = (X[:half] * X[half:]).sum(1).clamp(-1, 1).acos()  # great circles stay in the cap
        return Geometry(decoder(Z, X + 0.01 * draw(rng, *X.shape), 0.8, 1e-4)), Z, truth
    t, height = torch.rand(2, n, generator=rng, dtype=DOUBLE) * torch.tensor([[6.0], [10.0]]) + torch.tensor(
        [[2.0], [0]]
    )
    # The chart is curved, so that straight lines in it are no geodesics of the roll, which is flat
    Z = torch.stack([t, height / 2 + (t - 5).square() / 2], 1)
    truth = ((arc(t[:half]) - arc(t[half:])).square() + (height[:half] - height[half:]).square()).sqrt()
    X = roll(t, height)
    return Geometry(decoder(Z, X + 0.05 * draw(rng, *X.shape), 2.0, 1e-4)), Z, truth


@pytest.mark.parametrize("name", ["sphere", "roll"])
def test_geodesics_have_the_length_of_those_of_the_surface(name, rng):
    geometry, Z, truth = surface(name, rng)
    graph = Graph(geometry)
    i, j = Z.chunk(2)
    # The graph alone, for all pairs
    assert (graph.distances(i, j).diagonal() / truth - 1).abs().quantile(0.95) < 0.1
    i, j, truth = i[:25], j[:25], truth[:25]
    lengths, straight = geometry.length(geodesics(geometry, graph, i, j, 50)), geometry.segments(i, j)
    assert (lengths / truth - 1).abs().quantile(0.95) < 0.05
    assert (lengths <= straight * (1 + 1e-4)).all(), "the error of the integrals"
    assert (straight / truth).quantile(0.8) > 1.05, "straight lines would do"


def test_geodesics_in_three_dimensions(rng):
    # Flat space in 10 dimensions, seen through a chart that is curved
    flat = 2 * torch.rand(200, 3, generator=rng, dtype=DOUBLE) - 1
    Z = flat.clone()
    Z[:, 1] += 0.8 * flat[:, 0].square()
    X = flat @ torch.linalg.qr(draw(rng, 10, 3)).Q.T
    geometry = Geometry(decoder(Z, X, 1.5, 1e-4))
    graph = Graph(geometry)
    i, j = Z[:20], Z[20:40]
    truth = (flat[:20] - flat[20:40]).norm(dim=1)
    lengths = geometry.length(geodesics(geometry, graph, i, j, 30))
    assert (lengths / truth - 1).abs().quantile(0.95) < 0.05
    assert (lengths <= geometry.segments(i, j) * (1 + 1e-4)).all()
    assert (graph.distances(i, j).diagonal() / truth - 1).abs().quantile(0.95) < 0.1


def test_one_dimension(rng):
    # On a circle, distance is the difference of angles
    Z = torch.linspace(-2, 2, 60, dtype=DOUBLE)[:, None]
    geometry = Geometry(decoder(Z, torch.cat([Z.cos(), Z.sin()], 1), 1.0, 1e-5))
    graph = Graph(geometry)
    i, j = Z[[3, 20, 50]], Z[[40, 25, 10]]
    assert_close(graph.distances(i, j), (i - j.T).abs(), 0.01)
    assert_close(geometry.length(geodesics(geometry, graph, i, j, 20)), (i - j)[:, 0].abs(), 0.01)


def test_a_dimension_that_the_kernel_does_not_use_costs_nothing(rng):
    # f depends on the first of two dimensions alone, so G is singular
    Z = 2 * torch.rand(60, 2, generator=rng, dtype=DOUBLE) - 1
    X = torch.stack([Z[:, 0].cos(), Z[:, 0].sin()], 1)
    geometry = Geometry(condition(scaled(RBFKernel(active_dims=(0,)), 1.0).double(), NOISE / 1000, Z, X, X[0] * 0))
    path = geodesics(geometry, Graph(geometry), Z[:1], Z[1:2], 30)
    assert_close(geometry.length(path), (Z[0, :1] - Z[1, :1]).abs(), 0.03)
    assert_close(geometry.volume(Z), torch.zeros(60), 1e-9)


@pytest.fixture(scope="module")
def ring():
    """A decoder of rows in 20 dimensions whose latents leave a hole, and its graph."""
    rng = torch.Generator().manual_seed(1)
    Z = disc(rng, 400, 1.3)
    Z = Z[Z.norm(dim=1) > 0.7]
    X = Z @ torch.linalg.qr(draw(rng, 20, 2)).Q.T
    geometry = Geometry(decoder(Z, X + 0.01 * draw(rng, *X.shape), 0.4, 1e-4))
    return geometry, Graph(geometry)


def test_a_path_goes_around_a_hole(ring):
    geometry, graph = ring
    a, b = torch.tensor([[[-1.0, 0.1]], [[1.0, 0.1]]], dtype=DOUBLE)
    path = geodesics(geometry, graph, a, b, 50)
    assert path.norm(dim=2).min() > 0.6
    # Half of a circle is π, and a path close to the hole is shorter. f is random in the hole, in 20 dimensions
    assert 2.4 < geometry.length(path) < math.pi < 5 < geometry.segments(a, b)
    assert geometry.volume(torch.zeros(1, 2, dtype=DOUBLE)) > 10 * geometry.volume(a)


def test_far_from_all_data_the_prior_measures(ring):
    # There f is a draw from the prior, with G = w s / ℓ² I = 20 / .4² I
    geometry, graph = ring
    a, b = torch.tensor([[[1e4, 0.0]], [[1e4, 3.0]]], dtype=DOUBLE)
    expected = 3 * math.sqrt(20) / 0.4
    assert_close(geometry.segments(a, b), [expected], 1e-6)
    far = graph.distances(a, geometry.U[:1])
    assert_close(far, [[1e4 * math.sqrt(20) / 0.4]], 1e-3)


def test_geodesics_are_symmetric_and_reproducible(ring):
    geometry, graph = ring
    Z = geometry.U[:12]
    i, j = Z.chunk(2)
    there, back = geodesics(geometry, graph, i, j, 25), geodesics(geometry, graph, j, i, 25)
    assert torch.equal(there, back.flip(1))
    torch.manual_seed(0)
    again = geodesics(geometry, Graph(geometry), i, j, 25)
    assert torch.equal(there, again)
    # Other pairs in the same call make no difference
    assert_close(geodesics(geometry, graph, i[2:3], j[2:3], 25)[0], there[2], 1e-6)
    distances = graph.distances(Z, Z)
    assert_close(distances, distances.T, 1e-9)
    assert_close(distances.diagonal(), torch.zeros(12), 1e-9)
    assert_close(graph.distances(i[:1], j[3:4])[0, 0], distances[0, 9], 1e-9)
    # A detour is no shorter, as far as the graph knows shortest paths
    detours = (distances[:, :, None] + distances[None]).amin(1)
    assert (detours > 0.95 * distances).all()


def test_a_path_has_its_ends_and_equal_steps(ring):
    geometry, graph = ring
    i, j = geometry.U[:3], geometry.U[100:103]
    for n in (2, 7, 40):
        paths = geodesics(geometry, graph, i, j, n)
        assert paths.shape == (3, n, 2)
        assert torch.equal(paths[:, 0], i)
        assert torch.equal(paths[:, -1], j)
    steps = geometry.segments(paths[:, :-1].reshape(-1, 2), paths[:, 1:].reshape(-1, 2)).reshape(3, -1)
    assert (steps / steps.mean(1, keepdim=True) - 1).abs().max() < 0.05
    # A point is no path, and has no length
    still = geodesics(geometry, graph, i, i, 10)
    assert_close(still, i[:, None].expand(3, 10, 2), 1e-12)
    assert_close(geometry.length(still), torch.zeros(3), 1e-12)


def test_mixed_derivatives_of_all_pairs_are_those_of_each(rng):
    kernel = KERNELS["rbf-ard"]().double()
    Z, W = (torch.randn(n, Q, generator=rng, dtype=DOUBLE) for n in (4, 5))
    found = calculus.derivatives(kernel, Z[:, None], W, mixed=True).mixed
    for i in range(4):
        for j in range(5):
            assert_close(found[i, j], calculus.derivatives(kernel, Z[i : i + 1], W[j : j + 1], mixed=True).mixed[0])


class Measured:
    """Straight lines are 1 long, a path that was moved .9, and what is left of it with fewer points 1.1."""

    units = torch.ones(2)

    def __init__(self):
        self.lengths = iter((1.0, 0.9, 1.1))

    def segments(self, a, b):
        return (a - b).norm(dim=1)

    def length(self, paths):
        return torch.full((len(paths),), next(self.lengths))


@pytest.mark.parametrize(("n", "is_straight"), [(paths.GUARDED, True), (paths.GUARDED - 1, False)])
def test_many_points_of_a_path_are_not_longer_than_the_straight_line(monkeypatch, n, is_straight):
    # Between few points the straight lines may be longer than the path that they lie on, so that nothing follows
    monkeypatch.setattr(paths, "relax", lambda geometry, path: path)
    bent = torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]])
    found = paths._shortest(Measured(), [bent], 33, n)[0]
    assert torch.equal(found[[0, -1]], bent[[0, -1]])
    assert (found[:, 1].abs().max() < 1e-6) == is_straight
