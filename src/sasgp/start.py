"""Where training starts: a layout of the latents, an encoder that reproduces it, and a kernel of the right scales.

The objective hardly cares how the latent space is arranged globally, so the start decides it.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp import kernels
from sasgp.encoders import Custom, Encoder, Network, Table
from sasgp.errors import InputError
from sasgp.rows import ArrayRows
from sasgp.settings import Settings
from sasgp.train import generator, one_cycle

__all__ = ["NOISE", "Layout", "encoder", "fit_steps", "kernel", "network", "noise_share"]

NOISE = 1.0  # of the data's variance. At first all is noise; structure then enters from the coarse to the fine
SUBSET = 5000  # rows that fix scales and leading axes: the work stays flat in N
FIT_STEPS, FIT_BATCH, FIT_RATE = 300, 256, 2e-3  # of the encoder to a projection, which is linear
LAYOUT_STEPS, LAYOUT_EPOCHS = 2000, 15  # to any other layout, whichever is more
ENCODE_ROWS = 8192

Targets = Callable[[Tensor, Tensor], Tensor]  # rows and their indices → positions [B, Q]


@dataclass(frozen=True)
class Layout:
    """Positions Z [n, Q] of some rows, their indices [n]; None where they are all."""

    Z: Tensor
    rows: Tensor | None = None


def fit_steps(layout: Layout | None) -> int:
    """Steps that fit an encoder to a layout, None being a projection."""
    return FIT_STEPS if layout is None else max(LAYOUT_STEPS, LAYOUT_EPOCHS * len(layout.Z) // FIT_BATCH)


def encoder(
    settings: Settings,
    data: ArrayRows,
    centre: Tensor,
    variance: float,
    layout: Layout | None,
    seed: int,
    update: Callable[[int], None],
    *,
    fitted: bool = True,
) -> Encoder:
    """An encoder that starts from a layout, or where that is None from projections as `settings.init` says.

    A user's module is fitted to a layout, but where there is none it is taken as it is. With fitted=False a network has
    the right shape alone.
    """
    bayesian = settings.latents == "bayesian"
    targets: Targets
    laid_out = data
    if layout is None:
        some = torch.randperm(len(data), generator=generator(seed, "axes"))[:SUBSET]
        V = axes(settings.init, data.gather(some), centre, settings.n_components, generator(seed, "random axes"))

        def targets(X: Tensor, rows: Tensor) -> Tensor:
            return (X - centre) @ V

    else:
        Z = standardised(layout.Z)
        laid_out = data if layout.rows is None else data.subset(layout.rows)

        def targets(X: Tensor, rows: Tensor) -> Tensor:
            return Z[rows.to(Z.device)]

    net: Encoder
    if isinstance(settings.encoder, nn.Module):
        module = copy.deepcopy(settings.encoder)
        net = Custom(module, settings.n_components, variance=bayesian).to(centre.device, centre.dtype)
        fitted = fitted and layout is not None
    else:
        net = network(settings, centre, math.sqrt(variance), seed)

    if settings.encoder == "table":
        if layout is not None and layout.rows is not None:
            # Rows that were not laid out go where a network puts them that was fitted to those that were
            fit_encoder(net, laid_out, targets, fit_steps(layout), seed, update)
            place = torch.full((len(data),), -1).index_put_((layout.rows,), torch.arange(len(layout.rows)))

            def targets(X: Tensor, rows: Tensor) -> Tensor:
                known = place[rows].to(Z.device)
                with torch.no_grad():
                    return torch.where((known < 0)[:, None], net(X)[0], Z[known])

        first = range(0, len(data), ENCODE_ROWS)
        blocks = zip(first, data.blocks(ENCODE_ROWS), strict=True)
        start = torch.cat([targets(X, torch.arange(i, i + len(X))) for i, X in blocks])
        # Rows that coincide, or a direction without variance, would never part: equal positions have equal gradients
        apart = torch.randn(start.shape, generator=generator(seed, "table"), dtype=start.dtype).to(start.device)
        return Table(start + 0.01 * apart, variance=bayesian)

    if fitted:
        fit_encoder(net, laid_out, targets, fit_steps(layout), seed, update)
    return net


def standardised(Z: Tensor) -> Tensor:
    """A layout with the mean and the variance of the prior, N(0, I), over all axes together: its shape stays."""
    return (Z - Z.mean(0)) / Z.std(correction=0).clamp_min(torch.finfo(Z.dtype).tiny)


def network(settings: Settings, centre: Tensor, scale: float, seed: int) -> Network:
    """The amortised encoder, untrained."""
    variance = settings.latents == "bayesian"
    draw = generator(seed, "network")
    return Network(centre, scale, settings.n_components, variance=variance, generator=draw)


def kernel(settings: Settings, encoder: Encoder, data: ArrayRows, variance: float) -> Kernel:
    """The user's kernel as it is, or one by name that starts from the data's variance and the layout's spread."""
    rows = torch.arange(min(len(data), SUBSET))
    X = data.gather(rows)
    with torch.no_grad():
        Z = encoder.eval()(X, rows.to(X.device))[0]
    if isinstance(settings.kernel, Kernel):
        own = copy.deepcopy(settings.kernel).to(Z.device, Z.dtype)
        try:
            own(Z[:2], Z[:1]).to_dense()
        except (RuntimeError, ValueError, IndexError) as error:
            raise InputError(
                f"Expected a kernel on a latent space of n_components={settings.n_components} dimensions. Got "
                f"{type(own).__name__}, which fails there: {error}. Make its ard_num_dims and active_dims fit."
            ) from error
        return own
    named = kernels.make(settings.kernel or "rbf", settings.n_components).to(Z.device, Z.dtype)
    named.outputscale = torch.as_tensor(variance, dtype=Z.dtype)  # as a float it would pass through float32
    named.base_kernel.lengthscale = Z.std(correction=0).clamp_min(1e-3)
    return named


def noise_share(n_features: int, n_components: int) -> float:
    """Share of the decoder's noise that the encoder's input can bear.

    Of noise in D features the part along the Q latent directions reaches z, and comes back as error of s²σ²·Q/D a
    feature. Up to a twentieth of σ² it does no harm; with fewer than 20 features a latent dimension, s² is cut to that.
    (Iris, D = 4: test NLPD .41 with s = 1, against −.05 without noise.)
    """
    return min(1.0, math.sqrt(n_features / (20 * n_components)))


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
    encoder: Encoder, data: ArrayRows, targets: Targets, steps: int, seed: int, update: Callable[[int], None]
) -> None:
    """Fit the encoder's mean to positions of rows by squared error."""
    parameters = [p for name, p in encoder.named_parameters() if not name.startswith("raw_var")]
    optimiser = torch.optim.Adam(parameters, lr=FIT_RATE, fused=True)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = FIT_RATE * one_cycle(step / steps)
        rows = torch.randint(len(data), (min(FIT_BATCH, len(data)),), generator=generator(seed, "layout", step))
        X = data.gather(rows)
        loss = F.mse_loss(encoder(X, rows)[0], targets(X, rows))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        update(step + 1)
