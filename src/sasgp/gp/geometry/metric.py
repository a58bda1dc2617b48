"""Distances in the space of the data, measured in the latent space of a decoder.

The decoder's function f is random, so a curve in the latent space is a curve of random vectors f(z), and squared
distances between them are expected ones. With α and T_d of `Posterior`, w = Σ_d s_d² and C = Σ_d s_d² T_dᵀT_d, one
matrix B = ααᵀ − C gives all of them:

    E‖f(z) − f(z')‖² = δᵀ B δ + w [k(z,z) + k(z',z') − 2 k(z,z')]          δ = k(U, z) − k(U, z')
    G(z) = E[JᵀJ] = ∂k(z,U) B ∂k(U,z) + w ∂∂′k(z,z)                        J = ∂f/∂z

G is the expected metric (Tosi, Hauberg, Vellido & Lawrence, 2014). Far from the data C says nothing and G is large, so
shortest paths stay where the data are. Noise of observations is not part of f and does not enter.
"""

import math

import torch
from torch import Tensor

from sasgp.data.blocks import slices
from sasgp.gp.geometry.derivatives import check_differentiable, derivatives
from sasgp.gp.kernels import units_of
from sasgp.gp.posterior import Posterior

__all__ = ["Geometry"]

PART = 0.25  # of a line on which the metric is taken at two points, in lengthscales at most
FEW_PARTS, MOST_PARTS = 8, 1024  # the most: far from all data, where nothing changes any more
CACHED = 8  # blocks are smaller by this factor: derivatives that stay in the processor's cache take half of the time


class Geometry:
    """The expected metric of a decoder, and lengths in it. All in float64.

    Parameters
    ----------
    posterior : Posterior
        The decoder.

    Attributes
    ----------
    U : Tensor [P, Q]
        Positions of the decoder.
    B : Tensor [P, P]
        See above.
    units : Tensor [Q]
        The kernel's shortest lengthscale in each dimension: the scale at which the metric can change.
    """

    def __init__(self, posterior: Posterior) -> None:
        self.kernel, self.U, self.alpha = posterior.kernel, posterior.Z.double(), posterior.alpha.double()
        check_differentiable(self.kernel, self.U[:1])
        self.units = units_of(self.kernel, self.U.shape[1]).to(self.U)
        self.w = posterior.total_scale
        self.knowledge = posterior.knowledge()
        self.B = self.alpha @ self.alpha.T - self.knowledge

    def slopes(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """k(z, U) [M, P] and ∂k(z, U) [M, Q, P] at points Z [M, Q]."""
        found = derivatives(self.kernel, Z[:, None], self.U)
        return found.k, found.left.mT.contiguous()

    def prior_metric(self, Z: Tensor) -> Tensor:
        """The metric w ∂∂′k(z, z) [M, Q, Q] of a decoder that has seen no data."""
        mixed = derivatives(self.kernel, Z, Z, mixed=True).mixed
        assert mixed is not None
        return self.w * mixed

    # ------------------------------------------------------------------------------------------------ at points

    @torch.no_grad()
    def jacobian(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """The mean [M, D, Q] of J at each of Z [M, Q], and the covariance Σ_J [M, Q, Q] of its rows in units of s_d².

        The covariance is the same for all features. If they were observed in other rows each, it is their mean,
        weighted by s_d².
        """
        _, dK = self.slopes(Z.double())  # [M, Q, P]
        # E[J] = αᵀ ∂k(U,z)          w Σ_J = w ∂∂′k − ∂k C ∂kᵀ
        covariance = (self.prior_metric(Z.double()) - dK @ self.knowledge @ dK.mT) / self.w
        return (dK @ self.alpha).mT, covariance

    @torch.no_grad()
    def metric(self, Z: Tensor) -> Tensor:
        """G(z) [M, Q, Q] at each of Z [M, Q], in squared units of the data."""
        Z = Z.double()
        G = Z.new_empty(*Z.shape, Z.shape[1])
        for block in slices(len(Z), CACHED * Z.shape[1] * len(self.U)):
            _, dK = self.slopes(Z[block])
            G[block] = dK @ self.B @ dK.mT + self.prior_metric(Z[block])
        return G

    def volume(self, Z: Tensor) -> Tensor:
        """√det G [M]: the volume in the space of the data per volume of the latent space."""
        return torch.linalg.det(self.metric(Z)).clamp_min(0).sqrt()

    # ------------------------------------------------------------------------------------------------ along lines

    @torch.no_grad()
    def speed(self, Z: Tensor, V: Tensor) -> Tensor:
        """√(vᵀ G v) [M] at points Z [M, Q] in directions V [M, Q]. It takes 1/Q of the work of G itself."""
        found = Z.new_empty(len(Z))
        for block in slices(len(Z), CACHED * Z.shape[1] * len(self.U)):
            v = V[block, :, None]  # [B, Q, 1]
            slope = (derivatives(self.kernel, Z[block, None], self.U).left @ v)[:, :, 0]  # vᵀ ∂k(z,U), [B, P]
            prior = (v.mT @ self.prior_metric(Z[block]) @ v)[:, 0, 0]
            found[block] = (((slope @ self.B) * slope).sum(1) + prior).clamp_min(0).sqrt()
        return found

    def segments(self, Z: Tensor, W: Tensor, part: float = PART) -> Tensor:
        """Lengths [E] of the straight lines from Z [E, Q] to W [E, Q]: ∫ √(żᵀ G ż) dt, from parts as long as `part`."""
        Z, step = Z.double(), W.double() - Z.double()
        parts = ((step / self.units).norm(dim=1) / part).clamp(1, MOST_PARTS)
        # Of many parts a power of two, so that many lines are cut into the same number
        parts = torch.where(parts <= FEW_PARTS, parts.ceil(), 2 ** parts.log2().ceil()).long()
        found = Z.new_empty(len(Z))
        for n in parts.unique().tolist():  # type: ignore[no-untyped-call]
            # Gauss's rule with two points in each part
            middle = torch.arange(n, dtype=Z.dtype, device=Z.device)[:, None] + 0.5
            t = ((middle + middle.new_tensor([-0.5, 0.5]) / math.sqrt(3)) / n).reshape(-1, 1)  # [2n, 1]
            lines = (parts == n).nonzero()[:, 0]
            for block in slices(len(lines), 4 * n * Z.shape[1]):
                chosen = lines[block]
                v = step[chosen, None]  # [e, 1, Q]
                points = Z[chosen, None] + t * v  # [e, 2n, Q]
                speed = self.speed(points.flatten(0, 1), v.expand_as(points).flatten(0, 1))
                found[chosen] = speed.reshape(-1, 2 * n).mean(1)
        return found

    def length(self, paths: Tensor) -> Tensor:
        """Lengths [R] of paths [R, n, Q], which are straight between their points."""
        R, n, Q = paths.shape
        return self.segments(paths[:, :-1].reshape(-1, Q), paths[:, 1:].reshape(-1, Q)).reshape(R, n - 1).sum(1)

    # ------------------------------------------------------------------------------------------------ energy

    @torch.no_grad()
    def energy(self, Z: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The energy Σ_i E‖f(z_i+1) − f(z_i)‖² [R] of paths Z [R, n, Q], its gradient [R, n, Q], and G [R, n, Q, Q]."""
        R, n, Q = Z.shape
        points = Z.reshape(-1, Q)
        K, dK = self.slopes(points)  # [Rn, P], [Rn, Q, P]
        G = (dK @ self.B @ dK.mT + self.prior_metric(points)).reshape(R, n, Q, Q)
        K = K.reshape(R, n, -1)
        delta = K[:, 1:] - K[:, :-1]  # [R, n − 1, P]
        pull = delta @ self.B
        # ∂/∂z_i of δᵀBδ is 2 ∂k(z_i,U) B δ, with a minus at the end that δ starts from
        force = torch.zeros_like(K)
        force[:, 1:] += pull
        force[:, :-1] -= pull
        gradient = 2 * (dK @ force.reshape(R * n, -1, 1)).reshape(R, n, Q)
        # ∂/∂z of k(z,z) + k(z',z') − 2 k(z,z')
        start, end = Z[:, :-1].reshape(-1, Q), Z[:, 1:].reshape(-1, Q)
        between, own = derivatives(self.kernel, start, end), derivatives(self.kernel, points, points)
        k, still = own.k.reshape(R, n), (own.left + own.right).reshape(R, n, Q)  # ∂ k(z,z)
        prior = k[:, 1:] + k[:, :-1] - 2 * between.k.reshape(R, n - 1)
        gradient[:, :-1] += self.w * (still[:, :-1] - 2 * between.left.reshape(R, n - 1, Q))
        gradient[:, 1:] += self.w * (still[:, 1:] - 2 * between.right.reshape(R, n - 1, Q))
        return ((pull * delta).sum(2) + self.w * prior).sum(1), gradient, G
