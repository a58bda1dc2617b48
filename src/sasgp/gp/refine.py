"""z* of a row: where in the latent space the decoder finds the row most probable, and with what uncertainty.

The posterior p(z|x) ∝ p(x|z) p(z) of a row is known up to a constant. `refine` climbs it from several starts, for all
rows of a block at once. `laplace` gives the Gaussian with the same curvature at the maximum. `log_evidence` integrates
over z by importance sampling from that Gaussian and the prior.

The starts are the decoder's positions that explain the row best. Predictions there are computed once, so scoring all of
them takes two matrix products.
"""

import math
import warnings
from collections.abc import Callable

import torch
from torch import Tensor

from sasgp.gp.objective import LOG_2PI, prior_log_density
from sasgp.gp.posterior import Predictive
from sasgp.gp.row_density import RowDensity, row_density

__all__ = ["N_STARTS", "PositionStarts", "climb", "laplace", "log_evidence", "log_joint", "normal_points", "refine"]

N_STARTS = 4  # from which rows climb
STEP_SIZE = 0.05  # relative to latents of unit variance
BETAS, EPSILON = (0.9, 0.999), 1e-8  # of Adam
DIFFERENCE = 1e-3  # step of the finite differences, in the same units


def log_joint(posterior: Predictive, X: Tensor, Z: Tensor) -> Tensor:
    """The log joint density log p(x|z) + log p(z) of each row, [M]."""
    return posterior.log_density(X, Z) + prior_log_density(Z)


class PositionStarts:
    """Finds the decoder's positions that explain a row best.

    Parameters
    ----------
    posterior : Predictive
        It predicts at its own positions once, when this object is made.
    """

    def __init__(self, posterior: Predictive) -> None:
        mean, var = posterior.predict(posterior.Z)
        mean = (mean - posterior.mean).double()  # centred, so that less cancels below
        c = var.double().expand_as(mean)  # [S, D]
        self.posterior = posterior
        self.precision, self.weighted = (1 / c).T, (mean / c).T  # [D, S]
        # −½ Σ_d [ log 2π c + m²/c ] + log p(z_s), which does not depend on the row
        prior = prior_log_density(posterior.Z).double()
        self.constant = prior - 0.5 * (LOG_2PI + c.log() + mean.square() / c).sum(1)  # [S]

    def __call__(self, X: Tensor) -> Tensor:
        """Latents [M, n, Q] of the n best positions for each of the rows X [M, D]."""
        # log N(x | m_s, c_s) + log p(z_s), with Σ_d (x−m)²/c = x²·(1/c) − 2 x·(m/c) + m²·(1/c)
        X = (X - self.posterior.mean).double()
        if X.isnan().any():
            return self._best(self._observed(X))
        return self._best(self.constant + X @ self.weighted - 0.5 * X.square() @ self.precision)

    def _observed(self, X: Tensor) -> Tensor:
        """The same score [M, S] from observed values alone, so that log 2πc + m²/c is a sum over these as well."""
        each = LOG_2PI - self.precision.log() + self.weighted.square() / self.precision  # [D, S]
        prior = prior_log_density(self.posterior.Z).double()
        seen, X = (~X.isnan()).to(X), X.nan_to_num()
        return prior + X @ self.weighted - 0.5 * (X.square() @ self.precision + seen @ each)

    def _best(self, score: Tensor) -> Tensor:
        return self.posterior.Z[score.topk(min(N_STARTS, score.shape[1]), dim=1).indices]


def refine(posterior: Predictive, X: Tensor, starts: Tensor, steps: int) -> Tensor:
    """Latents [M, Q] of rows X [M, D] whose joint density is at least that of each start [M, n, Q].

    With steps=0 they are the best starts. Otherwise the best few starts climb for a quarter of the steps, and the best
    of the results goes on for the rest.
    """
    M, n, _ = starts.shape
    density = row_density(posterior, X)
    with torch.no_grad():
        value = torch.stack([density.joint(starts[:, i]) for i in range(n)], 1)  # [M, n]
    every = torch.arange(M, device=X.device)
    if not steps:
        return starts[every, value.argmax(1)]
    few = min(N_STARTS, n)
    starts = starts[every[:, None], value.topk(few, dim=1).indices]  # [M, few, Q]
    search = steps // 4
    Z, value = climb(density.repeated(few), starts.flatten(0, 1), search)
    best = value.view(M, few).argmax(1)
    return climb(density, Z.view(M, few, -1)[every, best], steps - search)[0]


def climb(
    density: RowDensity, Z: Tensor, steps: int, cost: Callable[[Tensor], Tensor | float] = lambda Z: 0.0
) -> tuple[Tensor, Tensor]:
    """Adam on the z of each row. Returns the best z seen and its log joint density, so no row ends below its start.

    `cost` maps latents to a cost [M], which is subtracted from the log joint density.
    """
    Z, (b1, b2) = Z.detach().clone(), BETAS
    first, second = torch.zeros_like(Z), torch.zeros_like(Z)
    best_Z, best = Z.clone(), torch.full((len(Z),), -torch.inf, dtype=Z.dtype, device=Z.device)
    for step in range(steps + 1):
        with torch.set_grad_enabled(step < steps):
            at = Z.detach().requires_grad_(step < steps)
            value = density.joint(at) - cost(at)
            total = value.sum()
        better = value.detach() > best
        best_Z[better], best[better] = Z[better], value.detach()[better]
        if step < steps:
            (slope,) = torch.autograd.grad(total, at)
            # m ← β₁m + (1−β₁)g          v ← β₂v + (1−β₂)g²          z ← z + η m̂ / (√v̂ + ε)
            first.lerp_(slope, 1 - b1)
            second.mul_(b2).addcmul_(slope, slope, value=1 - b2)
            root = (second / (1 - b2 ** (step + 1))).sqrt_().add_(EPSILON)
            Z = torch.addcdiv(Z, first, root, value=STEP_SIZE * (1 - step / steps) / (1 - b1 ** (step + 1)))
    return best_Z, best


def laplace(posterior: Predictive, X: Tensor, Z: Tensor) -> Tensor:
    """Factors F [M, Q, Q] of the Gaussians N(z*, F Fᵀ) with the curvature of p(z|x) at the z* of each row.

    The precision is −∂²/∂z² log p(x, z), by central differences of the gradient. The prior contributes I. Between two
    modes, or before the maximum is reached, the likelihood may lower that. The precision is then kept at I, because an
    observation does not make z less certain than the prior.
    """
    density, Z = row_density(posterior, X.double()), Z.double()

    def gradient(at: Tensor) -> Tensor:
        with torch.enable_grad():
            at = at.detach().requires_grad_()
            (slope,) = torch.autograd.grad(density.joint(at).sum(), at)
        return slope

    shifts = DIFFERENCE * torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device)
    H = torch.stack([gradient(Z + shift) - gradient(Z - shift) for shift in shifts], 1) / (2 * DIFFERENCE)
    # −½ (H + Hᵀ) = U diag(w) Uᵀ          F = U diag(w)^−½
    w, U = torch.linalg.eigh(-0.5 * (H + H.mT))
    F: Tensor = U / w.clamp_min(1).sqrt()[:, None, :]
    return F


def normal_points(n: int, Q: int, seed: int) -> Tensor:
    """Points [n, Q] spread evenly over N(0, I), each of them a draw from it: scrambled Sobol points."""
    from scipy.stats import qmc

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # n need not be a power of 2
        points = qmc.MultivariateNormalQMC([0.0] * Q, rng=seed).random(n)
    return torch.from_numpy(points)


def log_evidence(posterior: Predictive, X: Tensor, Z: Tensor, F: Tensor, epsilon: Tensor) -> Tensor:
    """The log density log p(x) [M] of rows X [M, D] by importance sampling; ε [K, Q] are points from N(0, I).

    Half of the samples are z* + F ε. The other half come from the prior, because there may be other modes. So no weight
    exceeds 2 p(x|z), and the estimate converges wherever z* is. Its exponential is unbiased. The logarithm is too low
    on average, but less so with more samples.
    """
    # p(x) = ∫ p(x|z) p(z) dz ≈ 1/K Σ_k p(x, z_k) / q(z_k)          q = a N(z*, F Fᵀ) + (1−a) N(0, I)
    density = row_density(posterior, X.double())
    Z, F, epsilon = Z.double(), F.double(), epsilon.to(X.device)
    near = (len(epsilon) + 1) // 2
    log_a, log_b = math.log(near / len(epsilon)), math.log1p(-near / len(epsilon)) if len(epsilon) > 1 else -math.inf
    F_inv, log_det = torch.linalg.inv(F), torch.linalg.slogdet(F).logabsdet
    log_w = []
    with torch.no_grad():
        for k, e in enumerate(epsilon):
            z = Z + F @ e if k < near else e.expand_as(Z)
            log_prior = prior_log_density(z)  # [M]
            log_near = prior_log_density((F_inv @ (z - Z)[:, :, None])[:, :, 0]) - log_det
            log_q = torch.logaddexp(log_a + log_near, log_b + log_prior)
            log_x = density(z) if k < near else density.at_one(e)
            log_w.append(log_x + log_prior - log_q)
    return torch.logsumexp(torch.stack(log_w), 0) - math.log(len(epsilon))
