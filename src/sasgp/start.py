"""Where training starts: a layout of the latents, an encoder that reproduces it, and a kernel of the right scales.

The objective hardly cares how the latent space is arranged globally, so the start decides it.
"""

import copy
import math
from collections.abc import Callable

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

__all__ = ["FIT_STEPS", "encoder", "kernel", "network", "noise", "noise_share", "scales"]

LEAST_SCALE = 0.02  # of a feature's range
SUBSET = 5000  # rows that fix scales and leading axes: the work stays flat in N
FIT_STEPS, FIT_BATCH, FIT_RATE = 300, 256, 2e-3  # of the encoder to its layout
ENCODE_ROWS = 8192

Layout = Callable[[Tensor, Tensor], Tensor]  # rows and their indices → targets [B, Q]


def encoder(
    settings: Settings,
    data: ArrayRows,
    centre: Tensor,
    variance: float,
    Z: Tensor | None,
    seed: int,
    update: Callable[[int], None],
    *,
    fitted: bool = True,
) -> Encoder:
    """An encoder that starts from a layout: the given one, Z [N, Q], or projections as `settings.init` says.

    A user's module is taken as it is. With fitted=False a network has the right shape alone.
    """
    bayesian = settings.latents == "bayesian"
    if isinstance(settings.encoder, nn.Module):
        module = copy.deepcopy(settings.encoder)
        return Custom(module, int(settings.n_components), variance=bayesian).to(centre.device, centre.dtype)

    layout: Layout
    if Z is None:
        some = torch.randperm(len(data), generator=generator(seed, "axes"))[:SUBSET]
        V = axes(settings.init, data.gather(some), centre, int(settings.n_components), generator(seed, "random axes"))

        def layout(X: Tensor, rows: Tensor) -> Tensor:
            return (X - centre) @ V

    else:
        Z = (Z - Z.mean(0)) / Z.std(correction=0).clamp_min(torch.finfo(Z.dtype).tiny)

        def layout(X: Tensor, rows: Tensor) -> Tensor:
            return Z[rows.to(Z.device)]

    if settings.encoder == "table":
        first = range(0, len(data), ENCODE_ROWS)
        blocks = zip(first, data.blocks(ENCODE_ROWS), strict=True)
        start = torch.cat([layout(X, torch.arange(i, i + len(X))) for i, X in blocks])
        # Rows that coincide, or a direction without variance, would never part: equal positions have equal gradients
        apart = torch.randn(start.shape, generator=generator(seed, "table"), dtype=start.dtype).to(start.device)
        return Table(start + 0.01 * apart, variance=bayesian)

    net = network(settings, centre, math.sqrt(variance), seed)
    if fitted:
        fit_encoder(net, data, layout, seed, update)
    return net


def network(settings: Settings, centre: Tensor, scale: float, seed: int) -> Network:
    """The amortised encoder, untrained."""
    variance = settings.latents == "bayesian"
    draw = generator(seed, "network")
    return Network(centre, scale, int(settings.n_components), variance=variance, generator=draw)


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
    named = kernels.make(settings.kernel or "rbf", int(settings.n_components)).to(Z.device, Z.dtype)
    named.outputscale = torch.as_tensor(variance, dtype=Z.dtype)  # as a float it would pass through float32
    named.base_kernel.lengthscale = Z.std(correction=0).clamp_min(1e-3)
    return named


def scales(variances: Tensor, ranges: Tensor) -> Tensor:
    """The least units of every feature and those to start from, [2, D], given variances and ranges [D].

    A feature starts from its standard deviation. One that hardly varies in training would send its density towards
    infinity, and new rows that differ in it towards −∞: a share of its range is the least, and where it has none, of
    the typical feature's deviation, which is the unit here.
    """
    least = LEAST_SCALE * torch.where(ranges > 0, ranges, torch.ones_like(ranges))
    return torch.stack([least, torch.maximum(variances.sqrt(), least)])


def noise(n_features: int, n_components: int) -> float:
    """σ² to start from, in variances of the data.

    At first all is noise, and structure enters from the coarse to the fine. But where there are nearly as many latent
    dimensions as features it would never enter: of Q dimensions each costs a divergence from the prior at once, and
    what they explain is shared by D features. (Oil flow, D = Q = 12: RMSE .49 from 1, .05 from .3 and from .1.)
    """
    return min(1.0, max(0.1, n_features / (4 * n_components)))


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


def fit_encoder(encoder: Encoder, data: ArrayRows, layout: Layout, seed: int, update: Callable[[int], None]) -> None:
    """Fit the encoder's mean to a layout by squared error."""
    parameters = [p for name, p in encoder.named_parameters() if not name.startswith("raw_var")]
    optimiser = torch.optim.Adam(parameters, lr=FIT_RATE, fused=True)
    for step in range(FIT_STEPS):
        optimiser.param_groups[0]["lr"] = FIT_RATE * one_cycle(step / FIT_STEPS)
        rows = torch.randint(len(data), (min(FIT_BATCH, len(data)),), generator=generator(seed, "layout", step))
        X = data.gather(rows)
        loss = F.mse_loss(encoder(X, rows)[0], layout(X, rows))
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        update(step + 1)
