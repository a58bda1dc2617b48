"""The initial latents: an encoder is fitted to a projection of the rows, or to a layout that keeps neighbours together.

The objective hardly depends on the global arrangement of the latent space, so the start decides it.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from sasgp.data.rows import ArrayRows
from sasgp.gp.linalg import inverse_root, principal_axes
from sasgp.gp.ppca import MaskedPCA
from sasgp.models.anchor import distance_cost, places
from sasgp.models.base import with_holes
from sasgp.models.build import noise_share
from sasgp.models.encoders import ENCODE_ROWS, Custom, Encoder, Network, Table
from sasgp.training.loop import Adam, generator, one_cycle

__all__ = ["Layout", "fit_steps", "fit_to_layout", "fit_to_projection", "standardised"]

SUBSET = 5000  # rows from which axes and lengthscales are computed, so that the work does not grow with N
FIT_STEPS, FIT_BATCH, FIT_RATE = 300, 256, 2e-3  # for a projection, which is linear
LAYOUT_STEPS, LAYOUT_EPOCHS = 600, 15  # for any other layout, whichever is more

Targets = Callable[[Tensor, Tensor], Tensor]  # rows [B, D] and their indices [B] → positions [B, Q]
Loss = Callable[[Tensor, Tensor], Tensor]  # positions and targets → a number
View = Callable[[Tensor, torch.Generator], Tensor]  # rows → what the encoder sees of them
Update = Callable[[int], None]  # steps done


@dataclass(frozen=True)
class Layout:
    """Positions Z [n, Q] of some rows, and the indices [n] of these rows; None if they are all rows."""

    Z: Tensor
    rows: Tensor | None = None


def fit_steps(layout: Layout | None) -> int:
    """Steps that fit an encoder to a layout. None is a projection."""
    if layout is None:
        return FIT_STEPS
    # Epochs of at most 60 000 rows, so that the work does not grow with N
    return max(LAYOUT_STEPS, LAYOUT_EPOCHS * min(len(layout.Z), 60_000) // FIT_BATCH)


def fit_to_projection(
    encoder: Encoder, rows: ArrayRows, init: str, Q: int, centre: Tensor, units: Tensor, seed: int, update: Update
) -> None:
    """Fit an encoder to the projection of rows on Q axes, "pca" or "random". The user's own module stays as it is."""
    if isinstance(encoder, Custom):
        return
    some = torch.randperm(len(rows), generator=generator(seed, "axes"))[:SUBSET]
    X = (rows.gather(some) - centre) / units
    pca = MaskedPCA(X, Q) if init == "pca" and X.isnan().any() else None
    V = axes(init, X.nan_to_num(), Q, generator(seed, "random axes")) if pca is None else pca.W

    def targets(X: Tensor, _: Tensor) -> Tensor:
        X = (X - centre) / units
        return X.nan_to_num() @ V if pca is None else pca.coordinates(X)

    if isinstance(encoder, Table):
        fill_table(encoder, rows, targets, seed)
    else:
        _start_network(encoder, centre, units, seed)
        view = with_holes if isinstance(encoder, Network) and encoder.masks else _unchanged
        fit(encoder, rows, targets, F.mse_loss, FIT_STEPS, view, seed, update)


def fit_to_layout(
    encoder: Encoder,
    rows: ArrayRows,
    layout: Layout,
    centre: Tensor,
    units: Tensor,
    seed: int,
    update: Update,
    *,
    missing: bool = False,
) -> None:
    """Fit an encoder to the positions of a layout. A table copies them; a network places the rest of its rows.

    `missing` says whether rows have missing values.
    """
    Z, Q = standardised(layout.Z), layout.Z.shape[1]
    laid_out = rows if layout.rows is None else rows.subset(layout.rows)
    sigma = 0.5 * noise_share(len(centre), Q) * units  # noise on the encoder's input: half of the data's deviation
    # If the layout has only some rows of a table, a network is fitted to these and places the others
    learner: Encoder = encoder
    if isinstance(encoder, Table):
        learner = Network(
            len(centre), Q, variance=encoder.raw_var is not None, by_feature=units.ndim > 0, masks=missing
        ).to(centre)
    _start_network(learner, centre, units, seed)

    def targets(_: Tensor, index: Tensor) -> Tensor:
        return Z[index.to(Z.device)]

    def view(X: Tensor, draw: torch.Generator) -> Tensor:
        X = learner.varied(X, draw) + sigma * torch.randn(X.shape, generator=draw, dtype=X.dtype).to(X.device)
        return with_holes(X, draw) if missing else X

    if not isinstance(encoder, Table) or layout.rows is not None:
        fit(learner, laid_out, targets, _mean_cost, fit_steps(layout), view, seed, update)
    if not isinstance(encoder, Table):
        return
    place = torch.arange(len(rows)) if layout.rows is None else places(layout.rows, len(rows))

    def known_or_placed(X: Tensor, index: Tensor) -> Tensor:
        known = place[index].to(Z.device)
        if (known >= 0).all():
            return Z[known]
        with torch.no_grad():
            return torch.where((known < 0)[:, None], learner.position(X), Z[known])

    fill_table(encoder, rows, known_or_placed, seed)


def fill_table(table: Table, rows: ArrayRows, targets: Targets, seed: int) -> None:
    """Give each row of a table its position, plus a little noise.

    Without the noise, rows at the same position would stay together, and a direction without variance would stay so,
    because equal positions have equal gradients.
    """
    first = range(0, len(rows), ENCODE_ROWS)
    blocks = zip(first, rows.blocks(ENCODE_ROWS), strict=True)
    start = torch.cat([targets(X, torch.arange(i, i + len(X))) for i, X in blocks])
    apart = torch.randn(start.shape, generator=generator(seed, "table"), dtype=start.dtype).to(start.device)
    with torch.no_grad():
        table.mu.copy_(start + 0.01 * apart)


def fit(
    encoder: Encoder, rows: ArrayRows, targets: Targets, loss: Loss, steps: int, view: View, seed: int, update: Update
) -> None:
    """Fit the encoder's mean to positions of rows, by Adam on random batches."""
    parameters = encoder.mean_parameters()
    if not parameters:  # a user's module that is to stay as it is
        return
    optimiser = Adam(parameters, lr=FIT_RATE, fused=True)
    for step in range(steps):
        optimiser.param_groups[0]["lr"] = FIT_RATE * one_cycle(step / steps)
        draw = generator(seed, "layout", step)
        index = torch.randint(len(rows), (min(FIT_BATCH, len(rows)),), generator=draw)
        X = rows.gather(index)
        Z = targets(X, index)
        optimiser.zero_grad(set_to_none=True)
        loss(encoder.position(view(X, draw), index), Z).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        update(step + 1)


def axes(init: str, X: Tensor, n_components: int, generator: torch.Generator) -> Tensor:
    """Directions [D, Q], "pca" or "random", on which centred rows X have coordinates of unit variance.

    Principal directions without variance (constant data, or more components than features) are zero.
    """
    if init == "random":
        V = torch.randn(X.shape[1], n_components, generator=generator, dtype=X.dtype).to(X.device)
        return V * inverse_root((X @ V).square().mean(0))
    variances, V = principal_axes(X, n_components)
    return F.pad(V * inverse_root(variances), (0, n_components - V.shape[1]))


def standardised(Z: Tensor) -> Tensor:
    """A layout with mean 0 and, over all axes together, the variance of the prior. Its shape stays."""
    Z = Z - Z.mean(0)
    return Z / Z.square().mean().sqrt().clamp_min(torch.finfo(Z.dtype).tiny)


def _start_network(encoder: Encoder, centre: Tensor, units: Tensor, seed: int) -> None:
    if isinstance(encoder, Network):
        encoder.start_from(centre, units, generator(seed, "network"))


def _mean_cost(Z: Tensor, targets: Tensor) -> Tensor:
    return distance_cost(Z, targets).mean()


def _unchanged(X: Tensor, _: torch.Generator) -> Tensor:
    return X
