"""Where the latents start: a layout Z₀ [N, Q] of unit variance, and an encoder fitted to it.

The objective hardly cares how the latent space is arranged globally, so the start decides it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp.encoders import Encoder
from sasgp.train import Rows, generator, one_cycle

__all__ = ["axes", "fit_encoder"]

PCA_ROWS = 5000  # a subset this large fixes the leading axes; it keeps the work flat in N
FIT_STEPS = 300
FIT_BATCH = 256
FIT_RATE = 2e-3


def axes(init: str, X: Tensor, mean: Tensor, n_components: int, generator: torch.Generator) -> Tensor:
    """Directions [D, Q] to project on: principal ("pca") or "random", scaled so that coordinates have unit variance.

    Principal directions without variance (constant data, or more components than features) are zero.
    """
    X = X - mean
    if init == "random":
        V = torch.randn(X.shape[1], n_components, generator=generator, dtype=X.dtype).to(X.device)
        return V * _inverse_root((X @ V).square().mean(0))
    if X.shape[0] < X.shape[1]:  # through the smaller of the two Gram matrices
        values, U = torch.linalg.eigh(X @ X.T / len(X))
        V = X.T @ U * _inverse_root(values * len(X))
    else:
        values, V = torch.linalg.eigh(X.T @ X / len(X))
    values, V = values.flip(0)[:n_components], V.flip(1)[:, :n_components]  # largest first
    V = V * torch.sign(V.gather(0, V.abs().argmax(0, keepdim=True)))  # an axis has no sign: make its largest entry +
    return F.pad(V * _inverse_root(values), (0, n_components - V.shape[1]))


def _inverse_root(variance: Tensor) -> Tensor:
    """1/√v, and 0 where v is nothing but rounding beside the largest."""
    real = variance > 1e-6 * variance.max()
    return torch.where(real, variance, 1.0).rsqrt() * real


def fit_encoder(
    encoder: Encoder,
    data: Rows,
    layout: Callable[[Tensor, Tensor], Tensor],
    seed: int,
    on_step: Callable[[int, int, float], None],
) -> None:
    """Fit the encoder's mean to a layout by squared error. `layout(X, rows)` gives the targets of a batch."""
    parameters = [p for name, p in encoder.named_parameters() if not name.startswith("raw_var")]
    optimiser = torch.optim.Adam(parameters, lr=FIT_RATE, fused=True)
    for step in range(FIT_STEPS):
        optimiser.param_groups[0]["lr"] = FIT_RATE * one_cycle(step / FIT_STEPS)
        rows = torch.randint(len(data), (min(FIT_BATCH, len(data)),), generator=generator(seed, "layout", step))
        X = data.gather(rows)
        loss = nn.functional.mse_loss(encoder(X, rows)[0], layout(X, rows))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        on_step(step + 1, FIT_STEPS, loss.item())
