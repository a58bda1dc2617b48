"""Where training starts: a layout of the latents, an encoder that reproduces it, and a kernel of the right scales.

The objective hardly cares how the latent space is arranged globally, so the start decides it.
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp.data.images import planes
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.gp import kernels
from sasgp.gp.linalg import inverse_root, principal_axes
from sasgp.models.anchor import Anchor, from_mode, places
from sasgp.models.encoders import Custom, Encoder, Network, Picture, Table
from sasgp.models.settings import Settings
from sasgp.training.loop import generator, one_cycle, train

if TYPE_CHECKING:
    from sasgp.models.sas import SASDecoder

__all__ = [
    "Layout",
    "Measured",
    "anchor",
    "encoder",
    "fit_steps",
    "kernel",
    "network",
    "noise",
    "noise_share",
    "scales",
    "settle",
]

LEAST_SCALE = 0.02  # of a feature's range
SUBSET = 5000  # rows that fix scales and leading axes: the work stays flat in N
FIT_STEPS, FIT_BATCH, FIT_RATE = 300, 256, 2e-3  # of the encoder to a projection, which is linear
LAYOUT_STEPS, LAYOUT_EPOCHS = 600, 15  # to any other layout, whichever is more
MAX_LAID = 60_000  # rows that such an epoch counts at the most: the work stays flat in N
FIT_NOISE = 0.5  # on what the encoder sees meanwhile, in units of the data's standard deviation
SETTLE_STEPS, SETTLE_RATE = 200, 0.05  # of kernel and noise to a layout
ENCODE_ROWS = 8192

Targets = Callable[[Tensor, Tensor], Tensor]  # rows and their indices → positions [B, Q]
Loss = Callable[[Tensor, Tensor], Tensor]  # of positions and those they should have
Seen = Callable[[Tensor, torch.Generator], Tensor]  # rows → what an encoder sees of them


@dataclass(frozen=True)
class Layout:
    """Positions Z [n, Q] of some rows, their indices [n]; None where they are all."""

    Z: Tensor
    rows: Tensor | None = None


@dataclass(frozen=True)
class Measured:
    """What the data say before training."""

    centre: Tensor  # [D]
    variance: float  # of a typical feature
    scales: Tensor  # [2, D]: see `scales`
    noise: float  # σ² to start from
    encoder_noise: float  # in units of σ


def fit_steps(layout: Layout | None) -> int:
    """Steps that fit an encoder to a layout, None being a projection."""
    return FIT_STEPS if layout is None else max(LAYOUT_STEPS, LAYOUT_EPOCHS * min(len(layout.Z), MAX_LAID) // FIT_BATCH)


def encoder(
    settings: Settings,
    data: ArrayRows,
    centre: Tensor,
    units: Tensor,
    layout: Layout | None,
    seed: int,
    update: Callable[[int], None],
    *,
    fitted: bool = True,
    image_shape: Sequence[int] | None = None,
) -> Encoder:
    """An encoder that starts from a layout, or where that is None from projections as `settings.init` says.

    Rows are centred and divided by `units`, [] for all features or [D]. A user's module gets them as they are: it is
    fitted to a layout, and left alone where there is none. With fitted=False a network has the right shape alone. One
    with convolutions needs an `image_shape`.
    """
    bayesian = settings.latents == "bayesian"
    net: Encoder
    if isinstance(settings.encoder, nn.Module):
        module = copy.deepcopy(settings.encoder)
        net = Custom(module, int(settings.n_components), variance=bayesian).to(centre.device, centre.dtype)
        if layout is None:
            return net
    else:
        net = network(settings, centre, units, seed, image_shape)

    targets: Targets
    loss: Loss = F.mse_loss
    laid_out, seen = data, as_they_are
    if layout is None:
        some = torch.randperm(len(data), generator=generator(seed, "axes"))[:SUBSET]
        X_some = (data.gather(some) - centre) / units
        V = axes(settings.init, X_some, int(settings.n_components), generator(seed, "random axes"))

        def targets(X: Tensor, rows: Tensor) -> Tensor:
            return (X - centre) / units @ V

    else:
        Z = standardised(layout.Z)
        laid_out = data if layout.rows is None else data.subset(layout.rows)
        noise = FIT_NOISE * noise_share(len(centre), int(settings.n_components)) * units
        loss = nearest_mode

        def seen(X: Tensor, draw: torch.Generator) -> Tensor:
            return net.varied(X, draw) + noise * torch.randn(X.shape, generator=draw, dtype=X.dtype).to(X.device)

        def targets(X: Tensor, rows: Tensor) -> Tensor:
            return Z[rows.to(Z.device)]

    if settings.encoder == "table":
        if layout is not None and layout.rows is not None:
            # Rows that were not laid out go where a network puts them that was fitted to those that were
            fit_encoder(net, laid_out, targets, loss, fit_steps(layout), seen, seed, update)
            place = places(layout.rows, len(data))

            def targets(X: Tensor, rows: Tensor) -> Tensor:
                known = place[rows].to(Z.device)
                with torch.no_grad():
                    return torch.where((known < 0)[:, None], net.position(X), Z[known])

        first = range(0, len(data), ENCODE_ROWS)
        blocks = zip(first, data.blocks(ENCODE_ROWS), strict=True)
        start = torch.cat([targets(X, torch.arange(i, i + len(X))) for i, X in blocks])
        # Rows that coincide, or a direction without variance, would never part: equal positions have equal gradients
        apart = torch.randn(start.shape, generator=generator(seed, "table"), dtype=start.dtype).to(start.device)
        return Table(start + 0.01 * apart, variance=bayesian)

    if fitted:
        fit_encoder(net, laid_out, targets, loss, fit_steps(layout), seen, seed, update)
    return net


def standardised(Z: Tensor) -> Tensor:
    """A layout with the mean and the variance of the prior, N(0, I), over all axes together: its shape stays."""
    Z = Z - Z.mean(0)
    return Z / Z.square().mean().sqrt().clamp_min(torch.finfo(Z.dtype).tiny)


def network(
    settings: Settings, centre: Tensor, scale: Tensor, seed: int, image_shape: Sequence[int] | None = None
) -> Network:
    """The amortised encoder, untrained."""
    variance = settings.latents == "bayesian"
    draw, picture = generator(seed, "network"), None
    if settings.encoder == "conv":
        assert image_shape is not None
        sizes, last = planes(image_shape)
        picture = Picture(*sizes, last=last)
    return Network(centre, scale, int(settings.n_components), variance=variance, generator=draw, picture=picture)


def kernel(settings: Settings, encoder: Encoder, data: ArrayRows, variance: float, seed: int) -> Kernel:
    """The user's kernel as it is, or one by name that starts from the data's variance and the layout's spread."""
    rows = torch.randperm(len(data), generator=generator(seed, "kernel"))[:SUBSET].sort().values
    X = data.gather(rows)
    with torch.no_grad():
        Z = encoder.eval().position(X, rows.to(X.device))
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


def settle(model: "SASDecoder", data: ArrayRows, batch_size: int, seed: int, update: Callable[[int], None]) -> None:
    """Fit all but the encoder's means to the layout that these make: kernel, noise, and the variances of q(z).

    From a start where all is noise the encoder would unlearn a layout before the decoder has learnt to read it.
    """
    encoder = dict(model.encoder.named_parameters())
    variances = [p for name, p in encoder.items() if name.startswith("raw_var")]
    held = [p for name, p in encoder.items() if not name.startswith("raw_var") and p.requires_grad]
    noise, model.encoder_noise = model.encoder_noise, 0.0
    for parameter in held:
        parameter.requires_grad_(False)
    own_rate = getattr(model, "settle_rate", SETTLE_RATE)  # a network has its own
    rate = FIT_RATE if model.encoder.amortised else SETTLE_RATE  # a number of its own goes as far as its steps
    epochs = train(
        model,
        data,
        [{"params": variances, "lr": rate}, {"params": model.hyperparameters, "lr": own_rate}][not variances :],
        batch_size=batch_size,
        max_epochs=math.ceil(SETTLE_STEPS * batch_size / len(data)),
        seed=seed,
        on_step=lambda step, total, loss: update(step * SETTLE_STEPS // total),
    )
    for _ in epochs:
        pass
    for parameter in held:
        parameter.requires_grad_(True)
    model.encoder_noise = noise


def noise_share(n_features: int, n_components: int) -> float:
    """Share of the decoder's noise that the encoder's input can bear.

    Of noise in D features the part along the Q latent directions reaches z, and comes back as error of s²σ²·Q/D a
    feature. Up to a twentieth of σ² it does no harm; with fewer than 20 features a latent dimension, s² is cut to that.
    (Iris, D = 4: test NLPD .41 with s = 1, against −.05 without noise.)
    """
    return min(1.0, math.sqrt(n_features / (20 * n_components)))


def axes(init: str, X: Tensor, n_components: int, generator: torch.Generator) -> Tensor:
    """Directions [D, Q] to project centred rows on, principal ("pca") or "random": coordinates have unit variance.

    Principal directions without variance (constant data, or more components than features) are zero.
    """
    if init == "random":
        V = torch.randn(X.shape[1], n_components, generator=generator, dtype=X.dtype).to(X.device)
        return V * inverse_root((X @ V).square().mean(0))
    variances, V = principal_axes(X, n_components)
    return F.pad(V * inverse_root(variances), (0, n_components - V.shape[1]))


def as_they_are(X: Tensor, draw: torch.Generator) -> Tensor:
    """Rows, unchanged."""
    return X


def fit_encoder(
    encoder: Encoder,
    data: ArrayRows,
    targets: Targets,
    loss: Loss,
    steps: int,
    seen: Seen,
    seed: int,
    update: Callable[[int], None],
) -> None:
    """Fit the encoder's mean to positions of rows, which it sees as `seen` has them."""
    parameters = [p for name, p in encoder.named_parameters() if not name.startswith("raw_var") and p.requires_grad]
    if not parameters:  # a user's module that is to stay as it is
        return
    optimiser = torch.optim.Adam(parameters, lr=FIT_RATE, fused=True)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = FIT_RATE * one_cycle(step / steps)
        draw = generator(seed, "layout", step)
        rows = torch.randint(len(data), (min(FIT_BATCH, len(data)),), generator=draw)
        X = data.gather(rows)
        Z = targets(X, rows)
        optimiser.zero_grad(set_to_none=True)
        loss(encoder.position(seen(X, draw), rows), Z).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        update(step + 1)


def anchor(layout: Layout, N: int, weight: float) -> Anchor:
    """What holds N rows near their places in a layout, with so many nats a row."""
    return Anchor(standardised(layout.Z), layout.rows, N, weight)


def nearest_mode(Z: Tensor, targets: Tensor) -> Tensor:
    """The mean of `from_mode`, as a loss."""
    return from_mode(Z, targets).mean()
