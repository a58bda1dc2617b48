"""z* for a new x*: where in the latent space the decoder finds the observation most plausible, and how surely.

The posterior p(z|x) ∝ p(x|z) p(z) of a row is known up to a constant. `refine` climbs it from several starts, all rows
of a block at once; `laplace` is the Gaussian of the same curvature at the top; `log_evidence` integrates over z by
importance sampling from that Gaussian and the prior. On digits 16 such samples are .3 nats below the integral on
average (.004 in the median) and 32 of the encoder's q(z|x) 5.2: of a row that the encoder puts in the wrong place, none
is in the right one (experiments/scores.py).

Starts are the support points that explain the row best. Their predictions are computed once, so scoring all of them is
two matrix products. On MNIST they are better starts than the nearest of all training rows: the decoder's own opinion is
asked, not the distance between pixels.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from sasgp.gp.objective import LOG_2PI, prior_log_density
from sasgp.gp.posterior import Predictive
from sasgp.models.anchor import from_mode
from sasgp.models.encoders import Encoder

__all__ = ["Locator", "SupportStarts", "laplace", "log_evidence", "log_joint", "normal_points", "refine"]

N_STARTS = 4  # that are climbed from
SEARCH_SHARE = 4  # a quarter of the steps from every start; the best then goes on alone
SEARCH_STEPS = 80  # where there is no network to start from
SCORE_STEPS = 4  # before a score is integrated: the Gaussian must stand near the top, and more steps gain nothing
STEP_SIZE = 0.05  # in units of a latent space of unit variance
DIFFERENCE = 1e-3  # in the same units: of the gradient, for its derivative


def log_joint(posterior: Predictive, X: Tensor, Z: Tensor) -> Tensor:
    """The log joint density log p(x|z) + log p(z) of each row, [M]."""
    return posterior.log_density(X, Z) + prior_log_density(Z)


class SupportStarts:
    """The latents of support points by how well each explains a row.

    Parameters
    ----------
    posterior : Predictive
        Its predictions at its own support points are computed here, once.
    """

    def __init__(self, posterior: Predictive) -> None:
        mean, var = posterior.predict(posterior.Z)
        mean = (mean - posterior.mean).double()  # centred, so that the squares below cancel less
        c = var.double().expand_as(mean)  # [S, D]
        self.posterior = posterior
        self.precision, self.weighted = (1 / c).T, (mean / c).T  # [D, S]
        # −½ Σ_d [ log 2π c + m²/c ] + log p(z_s): what does not depend on the row
        prior = prior_log_density(posterior.Z).double()
        self.constant = prior - 0.5 * (LOG_2PI + c.log() + mean.square() / c).sum(1)  # [S]

    def __call__(self, X: Tensor) -> Tensor:
        """Latents [M, n, Q] of the n best support points for each of the rows X [M, D]."""
        # log N(x | m_s, c_s) + log p(z_s), with Σ_d (x−m)²/c = x²·(1/c) − 2 x·(m/c) + m²·(1/c)
        X = (X - self.posterior.mean).double()
        score = self.constant + X @ self.weighted - 0.5 * X.square() @ self.precision  # [M, S]
        return self.posterior.Z[score.topk(min(N_STARTS, score.shape[1]), dim=1).indices]


class Locator:
    """Where rows are in the latent space: one way for all encoders.

    Parameters
    ----------
    encoder : Encoder
        Its answer is the latent, or the first start where there are steps.
    posterior : Predictive
    steps : int
        Of refinement. A Table cannot read new rows: these are searched for first, with `SEARCH_STEPS`.
    starts : sequence of callables
        More starts, besides the support points that explain a row best: X [M, D] → Z [M, n, Q].
    known : bool
        Whether the rows are those that a Table was trained on.
    weight : float
        Where it is not 0 rows climb from the encoder's answer alone, if it has one, and pay for leaving it as for
        leaving a layout (`sasgp.models.anchor`), with so many nats: they stay in its neighbourhood.
    """

    def __init__(
        self,
        encoder: Encoder,
        posterior: Predictive,
        *,
        steps: int = 0,
        starts: Sequence[Callable[[Tensor], Tensor]] = (),
        known: bool = False,
        weight: float = 0.0,
    ) -> None:
        self.encoder, self.posterior = encoder, posterior
        self.encodes = encoder.amortised or known
        self.steps, self.searches = steps, steps > 0 or not self.encodes
        self.weight = weight if self.encodes else 0.0
        everywhere = self.searches and not self.weight
        self.starts: list[Callable[[Tensor], Tensor]] = [SupportStarts(posterior), *starts] if everywhere else []

    @property
    def block_size(self) -> int:
        """Rows that are refined at a time."""
        return max(1, self.posterior.block_size // N_STARTS)

    @torch.no_grad()
    def __call__(self, X: Tensor, rows: Tensor, *, spread: bool = False) -> tuple[Tensor, Tensor | None]:
        """Latents [M, Q] of rows X [M, D] with the indices `rows`, and if asked for F [M, Q, Q]: z ~ N(z*, F Fᵀ).

        F is the encoder's where z* is, else that of the curvature at z*: the encoder's variance belongs to another
        place, and its square root is a scale that was averaged over many rows.
        """
        starts = [start(X) for start in self.starts]
        if self.encodes:
            if not self.steps and spread:
                Z, var = self.encoder(X, rows)
                return Z, None if var is None else torch.diag_embed(var.sqrt())
            Z = self.encoder.position(X, rows)
        else:
            Z = refine(self.posterior, X, torch.cat(starts, 1), SEARCH_STEPS)
        if self.steps and self.weight:
            Z = climb(self.posterior, X, Z, self.steps, lambda at: self.weight * from_mode(at, Z))[0]
        elif self.steps:
            Z = refine(self.posterior, X, torch.cat([Z[:, None], *starts], 1), self.steps)
        return Z, laplace(self.posterior, X, Z) if spread else None


def refine(posterior: Predictive, X: Tensor, starts: Tensor, steps: int) -> Tensor:
    """Latents [M, Q] of rows X [M, D] that no start [M, n, Q] has a higher joint density than.

    With steps=0 they are the best starts; else each of the best few is climbed from for a quarter of the steps, and the
    best of those for the rest.
    """
    M, n, _ = starts.shape
    with torch.no_grad():
        value = torch.stack([log_joint(posterior, X, starts[:, i]) for i in range(n)], 1)  # [M, n]
    every = torch.arange(M, device=X.device)
    if not steps:
        return starts[every, value.argmax(1)]
    few = min(N_STARTS, n)
    starts = starts[every[:, None], value.topk(few, dim=1).indices]  # [M, few, Q]
    search = steps // SEARCH_SHARE
    Z, value = climb(posterior, X.repeat_interleave(few, 0), starts.flatten(0, 1), search)
    best = value.view(M, few).argmax(1)
    return climb(posterior, X, Z.view(M, few, -1)[every, best], steps - search)[0]


def climb(
    posterior: Predictive, X: Tensor, Z: Tensor, steps: int, cost: Callable[[Tensor], Tensor | float] = lambda Z: 0.0
) -> tuple[Tensor, Tensor]:
    """Adam on z for each row by itself; returns the best z seen and its log joint, so no row ends below its start.

    `cost` is what a place costs, [M], and is taken off the log joint.
    """
    Z = Z.detach().clone().requires_grad_()
    optimiser = torch.optim.Adam([Z], lr=STEP_SIZE)
    best_Z, best = Z.detach().clone(), torch.full((len(Z),), -torch.inf, dtype=Z.dtype, device=Z.device)
    for step in range(steps + 1):
        with torch.enable_grad():
            value = log_joint(posterior, X, Z) - cost(Z)
            better = value.detach() > best
            best_Z[better], best[better] = Z.detach()[better], value.detach()[better]
            if step < steps:
                optimiser.param_groups[0]["lr"] = STEP_SIZE * (1 - step / steps)
                (Z.grad,) = torch.autograd.grad(-value.sum(), Z)
                optimiser.step()
    return best_Z, best


def laplace(posterior: Predictive, X: Tensor, Z: Tensor) -> Tensor:
    """Factors F [M, Q, Q] of the Gaussians N(z*, F Fᵀ) that have the curvature of p(z|x) at each row's z*.

    The precision is −∂²/∂z² log p(x, z), by central differences of the gradient. The prior alone contributes I to it.
    Where the likelihood takes some of that away, between two modes or before the top is reached, I is kept: nothing
    that was observed makes z less certain than the prior.
    """
    X, Z = X.double(), Z.double()

    def gradient(at: Tensor) -> Tensor:
        with torch.enable_grad():
            at = at.detach().requires_grad_()
            (slope,) = torch.autograd.grad(log_joint(posterior, X, at).sum(), at)
        return slope

    shifts = DIFFERENCE * torch.eye(Z.shape[1], dtype=Z.dtype, device=Z.device)
    H = torch.stack([gradient(Z + shift) - gradient(Z - shift) for shift in shifts], 1) / (2 * DIFFERENCE)
    # −½ (H + Hᵀ) = U diag(w) Uᵀ          F = U diag(w)^−½
    w, U = torch.linalg.eigh(-0.5 * (H + H.mT))
    F: Tensor = U / w.clamp_min(1).sqrt()[:, None, :]
    return F


def normal_points(n: int, Q: int, seed: int) -> Tensor:
    """Points [n, Q] that together are spread like N(0, I), and each of which by itself is a draw: scrambled Sobol."""
    points = torch.quasirandom.SobolEngine(Q, scramble=True, seed=seed).draw(n, dtype=torch.float64)  # type: ignore[no-untyped-call]
    tiny = torch.finfo(torch.float32).eps  # Sobol points are multiples of 2⁻³⁰, and one of them may be 0
    return torch.special.ndtri(points.clamp(tiny, 1 - tiny))


def log_evidence(posterior: Predictive, X: Tensor, Z: Tensor, F: Tensor, epsilon: Tensor) -> Tensor:
    """The log density log p(x) [M] of rows X [M, D] by importance sampling; ε [K, Q] are the points of a N(0, I).

    Half of the samples are z* + F ε; the other half are of the prior, for the modes that z* is not at. No weight is
    then more than 2 p(x|z), so that the estimate converges wherever z* is. Its exponential is unbiased; the logarithm
    is too low on average, the less the more samples.
    """
    # p(x) = ∫ p(x|z) p(z) dz ≈ 1/K Σ_k p(x, z_k) / q(z_k)          q = a N(z*, F Fᵀ) + (1−a) N(0, I)
    X, Z, F, epsilon = X.double(), Z.double(), F.double(), epsilon.to(X.device)
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
            log_w.append(posterior.log_density(X, z) + log_prior - log_q)
    return torch.logsumexp(torch.stack(log_w), 0) - math.log(len(epsilon))
