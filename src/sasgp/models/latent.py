"""Latents for a step of training, as every model draws them."""

import torch
from torch import Tensor

from sasgp.objective import kl_to_prior, prior_log_density

__all__ = ["drawn"]


def drawn(mu: Tensor, var: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Latents [B, Q] and what each adds to the objective, [B], given what an encoder says."""
    if var is None:
        # Σ_n log p(z_n): the prior fixes the scale of z against the decoder
        return mu, prior_log_density(mu)
    # z = μ + √v ε,   −Σ_n KL[q(z_n) ‖ N(0,I)]
    epsilon = torch.randn(mu.shape, generator=generator, dtype=mu.dtype).to(mu.device)
    return mu + var.sqrt() * epsilon, -kl_to_prior(mu, var)
