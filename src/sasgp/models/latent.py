"""What every model does first in a step of training: noise on the encoder's input, and draws of the latents."""

import math
from typing import Protocol

import torch
from torch import Tensor

from sasgp.gp.objective import kl_to_prior, prior_log_density
from sasgp.models.anchor import Anchor
from sasgp.models.encoders import Encoder

__all__ = ["NOISE_SD", "blurred", "drawn", "latents", "noise_bytes"]

NOISE_SD = math.sqrt((128**2 - 1) / 3)  # of `noise_bytes`


class Model(Protocol):
    """What of a model is needed here."""

    encoder: Encoder
    encoder_noise: float
    anchor: Anchor | None

    @property
    def feature_noise(self) -> Tensor: ...


def latents(model: Model, X: Tensor, rows: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Latents [B, Q] of a batch, and what each adds to the objective, [B]: its prior's part and what an anchor takes.

    An objective with an anchor is not a bound on the evidence, and differs from that without by what the anchor takes.
    """
    seen = blurred(X, model.encoder, model.encoder_noise, model.feature_noise, generator)
    mu, var = model.encoder(seen, rows)
    Z, log_prior = drawn(mu, var, generator)
    return Z, log_prior if model.anchor is None else log_prior - model.anchor(mu, rows)


def drawn(mu: Tensor, var: Tensor | None, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Latents [B, Q] and what each adds to the objective, [B], given what an encoder says."""
    if var is None:
        # Σ_n log p(z_n): the prior fixes the scale of z against the decoder
        return mu, prior_log_density(mu)
    # z = μ + √v ε,   −Σ_n KL[q(z_n) ‖ N(0,I)]
    epsilon = torch.randn(mu.shape, generator=generator, dtype=mu.dtype).to(mu.device)
    return mu + var.sqrt() * epsilon, -kl_to_prior(mu, var)


def blurred(X: Tensor, encoder: Encoder, s: float, noise: Tensor, generator: torch.Generator) -> Tensor:
    """What an encoder sees in training: rows with fresh noise of the decoder's own size, x + s σ ε; σ² is [1] or [D].

    The decoder says that rows differing by σ ε come from the same z; an encoder that has seen such rows does not
    memorise one of them. Averaged over ε the objective is still a lower bound, that of a randomised encoder.
    """
    if not (s and encoder.amortised):
        return X
    epsilon = noise_bytes(X.shape, generator).to(X.device).to(X.dtype)
    return epsilon.mul_(s / NOISE_SD * noise.detach().sqrt()).add_(X)


def noise_bytes(shape: torch.Size, generator: torch.Generator) -> Tensor:
    """Noise for an encoder's input: odd numbers from −127 to 127, each as likely as the next.

    What a hidden unit sees of it is a sum over features, which is as good as normal. Eight come from one draw: normal
    numbers, which one thread has to draw, would take a twentieth of a whole step at B=1024 and D=784.
    """
    n = shape.numel()
    draws = torch.empty(-(-n // 8), dtype=torch.int64).random_(-(2**63), None, generator=generator)
    return (draws | 0x0101010101010101).view(torch.int8)[:n].view(shape)
