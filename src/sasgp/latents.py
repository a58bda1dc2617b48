"""z* for a new x*: the latent position under which the decoder finds the observation most plausible.

For every row log p(x*|z) + log p(z) is climbed from several starts, all rows of a block at once. The starts are the
support points that explain the row best: their predictions are known, so scoring all of them is one matrix product.
"""

import torch
from torch import Tensor

from sasgp.objective import LOG_2PI, prior_log_density
from sasgp.posterior import Posterior

__all__ = ["infer"]

N_STARTS = 4
SEARCH_STEPS = 20  # of Adam from every start; the best start then goes on alone
REFINE_STEPS = 60
STEP_SIZE = 0.05  # in units of a latent space of unit variance


def log_joint(posterior: Posterior, X: Tensor, Z: Tensor) -> Tensor:
    """The log joint density log p(x|z) + log p(z) of each row, [M]."""
    return posterior.log_density(X, Z) + prior_log_density(Z)


def infer(posterior: Posterior, X: Tensor) -> Tensor:
    """Latents [M, Q] that maximise the density of rows X [M, D], a block at a time."""
    M, S = len(X), len(posterior.Z)
    n_starts = min(N_STARTS, S)
    # log N(x_m | m_s, c_s I) + log p(z_s) for every row m and support point s
    mean, var = posterior.predict(posterior.Z)  # [S, D], [S, 1] or [S, D]
    s = posterior.scales.to(X.dtype)
    c = var[:, 0] / s[0].square()  # [S]
    squared = torch.cdist(X / s, mean / s).square()  # [M, S]
    score = -0.5 * (X.shape[1] * (LOG_2PI + c.log()) + squared / c) + prior_log_density(posterior.Z)
    starts = posterior.Z[score.topk(n_starts, dim=1).indices]  # [M, n_starts, Q]

    Z, value = climb(posterior, X.repeat_interleave(n_starts, 0), starts.flatten(0, 1), SEARCH_STEPS)
    best = value.view(M, n_starts).argmax(1)
    Z, _ = climb(posterior, X, Z.view(M, n_starts, -1)[torch.arange(M, device=X.device), best], REFINE_STEPS)
    return Z


def climb(posterior: Posterior, X: Tensor, Z: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Adam on z for each row by itself; returns the best z seen and its log joint, so no row ends below its start."""
    Z = Z.detach().clone().requires_grad_()
    optimiser = torch.optim.Adam([Z], lr=STEP_SIZE)
    best_Z, best = Z.detach().clone(), torch.full((len(Z),), -torch.inf, dtype=Z.dtype, device=Z.device)
    for step in range(steps + 1):
        with torch.enable_grad():
            value = log_joint(posterior, X, Z)
            better = value.detach() > best
            best_Z[better], best[better] = Z.detach()[better], value.detach()[better]
            if step < steps:
                optimiser.param_groups[0]["lr"] = STEP_SIZE * (1 - step / steps)
                (Z.grad,) = torch.autograd.grad(-value.sum(), Z)
                optimiser.step()
    return best_Z, best
