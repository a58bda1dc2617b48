"""q(z|x): where a row lies in the latent space.

There are three kinds of encoder. `Network` is amortised: it reads the row, so a new row takes one forward pass. It may
use convolutions for images. `Table` keeps a free latent for each training row. `Custom` wraps the user's own module.
Each maps a batch to the mean of q(z) and, for Bayesian latents, its variance.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Self, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from sasgp.errors import InputError
from sasgp.models.precision import rounded_products

__all__ = ["ENCODE_ROWS", "Custom", "Encoder", "Network", "Picture", "Table", "draw_weights", "unfilled"]

Layer = TypeVar("Layer", bound=nn.Module)

ENCODE_ROWS = 4096  # encoded at a time, outside of training
HIDDEN = (512, 256)  # the paper's encoder
INITIAL_VARIANCE = 0.1  # of q(z), relative to latents of unit variance
MIN_VARIANCE = 1e-8  # keeps log var finite if softplus underflows


class Encoder(nn.Module):
    """The interface of all encoders: the mean [B, Q] of q(z) and its variance [B, Q], None for point latents.

    `index` [B] are the numbers of training rows; only a Table needs them.
    """

    amortised = True  # whether it can encode new rows

    def forward(self, X: Tensor, index: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError

    def position(self, X: Tensor, index: Tensor | None = None) -> Tensor:
        """Only the mean of q(z), [B, Q]."""
        return self(X, index)[0]

    def mean_parameters(self) -> list[nn.Parameter]:
        """What the mean of q(z) is made of, as far as it is learned."""
        return [p for name, p in self.named_parameters() if not name.startswith("raw_var") and p.requires_grad]

    def variance_parameters(self) -> list[nn.Parameter]:
        """What the variance of q(z) is made of, where that is apart from the mean."""
        return [p for name, p in self.named_parameters() if name.startswith("raw_var")]

    def varied(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Randomly changed rows that belong to the same place in a layout."""
        return X

    def keep(self, dims: Sequence[int]) -> None:
        """Keep only these latent dimensions, in this order."""
        raise NotImplementedError


class Picture(nn.Module):
    """Rows [B, D] as images [B, C, H, W].

    Parameters
    ----------
    channels, height, width : int
    last : bool
        Whether the channels come last, (H, W, C), rather than first, (C, H, W).
    """

    def __init__(self, channels: int, height: int, width: int, *, last: bool = False) -> None:
        super().__init__()
        self.sizes, self.last = (channels, height, width), last

    def forward(self, X: Tensor) -> Tensor:
        C, H, W = self.sizes
        if X.shape[1] > C * H * W:  # values, then masks: the masks are further channels
            return torch.cat([self(part) for part in X.chunk(2, 1)], 1)
        return X.view(-1, H, W, C).permute(0, 3, 1, 2) if self.last else X.view(-1, C, H, W)

    def shifted(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Rows [B, D] whose images are each moved by up to 1/14 of their sides; the edge pixels are repeated."""
        (_, H, W), B = self.sizes, len(X)
        down, right = (
            torch.arange(side) + torch.randint(-(side // 14), side // 14 + 1, (B, 1), generator=generator)
            for side in (H, W)
        )
        down, right = down.clamp(0, H - 1).to(X.device), right.clamp(0, W - 1).to(X.device)  # [B, H], [B, W]
        images, each = self(X), torch.arange(B, device=X.device)[:, None, None]
        moved = images.permute(0, 2, 3, 1)[each, down[:, :, None], right[:, None, :]]  # [B, H, W, C]
        return (moved if self.last else moved.permute(0, 3, 1, 2)).reshape(B, -1)


def _softplus_inverse(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))


def _initial_raw(dtype: torch.dtype) -> float:
    """What `_variance` makes INITIAL_VARIANCE of."""
    return float(_softplus_inverse(torch.tensor(INITIAL_VARIANCE, dtype=dtype, device="cpu")))


def _variance(raw: Tensor) -> Tensor:
    return F.softplus(raw) + MIN_VARIANCE


class Network(Encoder):
    """A network for the mean, D-512-256-Q or convolutional, and a second one with softplus for the variance.

    Parameters
    ----------
    n_features : int
        D.
    n_components : int
        Q.
    variance : bool
        Whether q(z) has a variance (Bayesian latents).
    by_feature : bool
        Whether each feature is divided by its own scale, rather than all by one number.
    hidden : sequence of int
        Widths of the hidden layers.
    picture : Picture, optional
        Turns rows into images, for convolutions. None: a perceptron on the row.
    masks : bool
        Whether it reads also which values of a row are missing. Without, a missing value counts as the training mean.
    mixed : bool
        Whether the products of the hidden layers are computed with bfloat16 in training.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        n_features: int,
        n_components: int,
        *,
        variance: bool,
        by_feature: bool = False,
        hidden: Sequence[int] = HIDDEN,
        picture: Picture | None = None,
        masks: bool = False,
        mixed: bool = False,
    ) -> None:
        super().__init__()
        self.masks, self.mixed = masks, mixed
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features) if by_feature else torch.ones(()))

        def net() -> nn.Sequential:
            if picture is None:
                return perceptron([n_features * (1 + masks), *hidden, n_components])
            return _convolutional(picture, n_components, masks)

        self.picture = picture
        self.mu = net()
        self.raw_var = net() if variance else None

    @torch.no_grad()
    def start_from(self, mean: Tensor, scale: Tensor, generator: torch.Generator) -> Self:
        """Set the mean [D] and the scale [] or [D] that standardise rows, and draw the weights."""
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        draw_weights(self, generator)
        if self.raw_var is not None:
            last = self.raw_var[-1]
            assert isinstance(last, nn.Linear)
            last.bias.fill_(_initial_raw(torch.float32))
        return self

    def forward(self, X: Tensor, index: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        X = self._input(X)
        return self._output(self.mu, X), None if self.raw_var is None else _variance(self._output(self.raw_var, X))

    def position(self, X: Tensor, index: Tensor | None = None) -> Tensor:
        """Only the mean of q(z), [B, Q]: half of the work if there is a network for the variance."""
        return self._output(self.mu, self._input(X))

    def varied(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Images are moved a little; other rows stay as they are."""
        return X if self.picture is None else self.picture.shifted(X, generator)

    def _input(self, X: Tensor) -> Tensor:
        """Rows as the networks read them. Both read the same, so it is rounded once."""
        X = self._standardised(X)
        return X.bfloat16() if self.mixed and self.training else X

    def _output(self, net: nn.Sequential, X: Tensor) -> Tensor:
        """What a network says of its input. If that is rounded, so are the hidden layers, but never z itself."""
        if X.dtype != torch.bfloat16:
            return cast(Tensor, net(X))
        *hidden, last = net
        with rounded_products(X.device, True):
            for layer in hidden:
                X = layer(X)
        return cast(Tensor, last(X.to(self.mean.dtype)))

    def _standardised(self, X: Tensor) -> Tensor:
        X = (X - self.mean).div_(self.scale)
        if not self.masks and (self.training or not X.isnan().any()):
            return X
        # (x ∘ o, 1 − o), with 0 where a value is missing: the mean, as rows are centred
        missing = X.isnan()
        X = X.masked_fill(missing, 0.0)
        return torch.cat([X, missing.to(X.dtype)], 1) if self.masks else X

    def keep(self, dims: Sequence[int]) -> None:
        for net in (self.mu, self.raw_var):
            if net is not None:
                last = net[-1]
                assert isinstance(last, nn.Linear)
                last.weight, last.bias = nn.Parameter(last.weight[dims]), nn.Parameter(last.bias[dims])
                last.out_features = len(dims)


def perceptron(widths: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        layers += [unfilled(nn.Linear, n_in, n_out), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


def _convolutional(picture: Picture, n_components: int, masks: bool) -> nn.Sequential:
    """Convolutions that halve the sides and double the channels until at most 4×4 is left, then a perceptron.

    Images of 28×28 pixels become 16 channels of 14×14, 32 of 7×7 and 64 of 4×4, followed by 1024-128-Q. That takes
    about as many operations as the perceptron on all pixels, with a third of its weights. Channels are at most 128.
    """
    layers: list[nn.Module] = [picture]
    (C, H, W), wider = picture.sizes, 16
    C *= 1 + masks
    while max(H, W) > 4:
        layers += [unfilled(nn.Conv2d, C, wider, kernel_size=3, stride=2, padding=1), nn.ReLU(True)]
        C, H, W, wider = wider, (H + 1) // 2, (W + 1) // 2, min(2 * wider, 128)
    return nn.Sequential(*layers, nn.Flatten(), *perceptron([C * H * W, 128, n_components]))


def unfilled(kind: type[Layer], *sizes: int, **more: int) -> Layer:
    """A layer of zeros, until `draw_weights` or a file sets its values. Nothing is drawn from global state."""
    layer = kind(*sizes, device="meta", **more)  # only shapes, so no numbers are drawn
    for name, parameter in list(layer.named_parameters()):
        # torch's own to_empty imports half a second of reference code
        setattr(layer, name, nn.Parameter(torch.zeros(parameter.shape)))
    return layer


@torch.no_grad()
def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of all layers as torch does, uniform on ±1/√n for n inputs, but from a generator."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                # Always in float32, so that a seed gives the same start in both dtypes
                drawn = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
                parameter.copy_(drawn)


class Table(Encoder):
    """A free mean (and variance) for each training row, without a network between the data and the latents."""

    amortised = False

    def __init__(self, Z: Tensor, *, variance: bool) -> None:
        super().__init__()
        self.mu = nn.Parameter(Z.clone())
        self.raw_var = nn.Parameter(Z.new_full(Z.shape, _initial_raw(Z.dtype))) if variance else None

    def forward(self, X: Tensor, index: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        assert index is not None, "a Table knows only the rows that it was trained on"
        return self.mu[index], None if self.raw_var is None else _variance(self.raw_var[index])

    @torch.no_grad()
    def extend(self, Z: Tensor, var: Tensor | None) -> None:
        """Add rows with latents Z [M, Q] and, for Bayesian latents, their variances."""
        self.mu = nn.Parameter(torch.cat([self.mu, Z]))
        if self.raw_var is not None and var is not None:
            raw = _softplus_inverse((var - MIN_VARIANCE).clamp_min(MIN_VARIANCE))
            self.raw_var = nn.Parameter(torch.cat([self.raw_var, raw]))

    def keep(self, dims: Sequence[int]) -> None:
        self.mu = nn.Parameter(self.mu[:, dims])
        self.raw_var = None if self.raw_var is None else nn.Parameter(self.raw_var[:, dims])


class Custom(Encoder):
    """The user's own module, which maps raw rows [B, D] to z [B, Q] or to (mean, variance).

    With `mixed`, it is trained inside torch.autocast, which chooses for each operation.
    """

    def __init__(self, module: nn.Module, n_components: int, *, variance: bool, mixed: bool = False) -> None:
        super().__init__()
        self.module, self.mixed = module, mixed
        self.n_components = n_components
        self.variance = variance

    def forward(self, X: Tensor, index: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        if not self.training and X.isnan().any():
            raise InputError(
                "An encoder of your own reads complete rows, but X has missing values. Use encoder='network' or "
                "'table', or fill in the values.",
                argument="encoder",
            )
        mixed = self.mixed and self.training
        with rounded_products(X.device, mixed):
            out = self.module(X)
        mu, var = out if isinstance(out, tuple) else (out, None)
        if mixed:
            mu, var = mu.to(X.dtype), None if var is None else var.to(X.dtype)
        name, expected = type(self.module).__name__, (len(X), self.n_components)
        if self.variance and var is None:
            raise ValueError(
                f"With latents='bayesian' the encoder must return a pair (mean, variance), but {name} returned one "
                "tensor. Return both, or use latents='point'."
            )
        for part, got in ("mean", mu), ("variance", var if self.variance else mu):
            if tuple(got.shape) != expected:
                raise ValueError(
                    f"The encoder's {part} must have shape {expected}: n_components={self.n_components} numbers per "
                    f"row of data. {name} returned shape {tuple(got.shape)}. Change the module or n_components."
                )
        return mu, var if self.variance else None
