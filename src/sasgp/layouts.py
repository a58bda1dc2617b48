"""Where the latents start: a layout Z₀ [N, Q] of unit variance, and an encoder fitted to it.

The objective hardly cares how the latent space is arranged globally, so the start decides it.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp.encoders import Encoder
from sasgp.train import Rows, generator, one_cycle

__all__ = ["fit_encoder", "pca_axes"]

PCA_ROWS = 5000  # a subset this large fixes the leading axes; it keeps the work flat in N
FIT_STEPS = 300
FIT_BATCH = 256
FIT_RATE = 2e-3


def pca_axes(X: Tensor, mean: Tensor, n_components: int) -> Tensor:
    """Directions [D, Q] along which rows vary most, scaled so that coordinates have unit variance.

    Directions without variance (constant data, or fewer features than components) are zero.
    """
    X = X - mean
    if X.shape[0] < X.shape[1]:  # through the smaller of the two Gram matrices
        values, U = torch.linalg.eigh(X @ X.T / len(X))
        V = X.T @ U / (values.clamp_min(torch.finfo(X.dtype).tiny) * len(X)).sqrt()
    else:
        values, V = torch.linalg.eigh(X.T @ X / len(X))
    values, V = values.flip(0)[:n_components], V.flip(1)[:, :n_components]  # largest first
    V = V * torch.sign(V.gather(0, V.abs().argmax(0, keepdim=True)))  # an axis has no sign: make the largest entry +
    # Below rounding there is no direction, only noise
    scale = torch.where(values > values[0] * 1e-6, values.rsqrt(), 0.0).nan_to_num(0.0, 0.0, 0.0)
    return F.pad(V * scale, (0, n_components - V.shape[1]))


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
