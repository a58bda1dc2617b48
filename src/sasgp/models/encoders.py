"""q(z|x): where a row lies in the latent space.

Three kinds, one call. `Network` reads the row (amortised, so new rows cost one forward pass), by convolutions where it
is an image, `Table` keeps a free latent for every training row, and `Custom` wraps a module of the user's. Each maps a
batch to the mean of q(z) and, for Bayesian latents, its variance.
"""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Custom", "Encoder", "Network", "Picture", "Table", "draw_weights", "unfilled"]

Layer = TypeVar("Layer", bound=nn.Module)

HIDDEN = (512, 256)  # the paper's encoder
CHANNELS, MAX_CHANNELS, LAST_SIDE, SUMMARY = 16, 128, 4, 128  # of convolutions: see `_convolutional`
SHIFT = 14  # images are moved by up to this part of their side
INITIAL_VARIANCE = 0.1  # of q(z), against a layout of unit variance
MIN_VARIANCE = 1e-8  # keeps log var finite where softplus underflows


class Encoder(nn.Module):
    """What every encoder offers: mean [B, Q] of q(z) and its variance [B, Q], None for point latents.

    `rows` are the indices of training rows, which a Table needs.
    """

    amortised = True  # whether new rows are encoded by the same call

    def forward(self, X: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        raise NotImplementedError

    def position(self, X: Tensor, rows: Tensor | None = None) -> Tensor:
        """The mean of q(z) alone, [B, Q]."""
        return self(X, rows)[0]

    def mean_parameters(self) -> list[nn.Parameter]:
        """What the mean of q(z) is made of, as far as it is learned."""
        return [p for name, p in self.named_parameters() if not name.startswith("raw_var") and p.requires_grad]

    def variance_parameters(self) -> list[nn.Parameter]:
        """What the variance of q(z) is made of, where that is apart from the mean."""
        return [p for name, p in self.named_parameters() if name.startswith("raw_var")]

    def varied(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Rows as they might have been: with the same place in a layout, and other numbers."""
        return X

    def keep(self, dims: Sequence[int]) -> None:
        """Drop all latent dimensions but these, and put them in this order."""
        raise NotImplementedError


class Picture(nn.Module):
    """Rows [B, D] as images [B, C, H, W].

    Parameters
    ----------
    channels, height, width : int
    last : bool
        Whether a row has its pixels' channels side by side, (H, W, C), rather than a plane for each, (C, H, W).
    """

    def __init__(self, channels: int, height: int, width: int, *, last: bool = False) -> None:
        super().__init__()
        self.sizes, self.last = (channels, height, width), last

    def forward(self, X: Tensor) -> Tensor:
        C, H, W = self.sizes
        return X.view(-1, H, W, C).permute(0, 3, 1, 2) if self.last else X.view(-1, C, H, W)

    def shifted(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Rows [B, D] whose images are moved, each by its own; what comes in at an edge is that edge."""
        (_, H, W), B = self.sizes, len(X)
        down, right = (
            torch.arange(side) + torch.randint(-(side // SHIFT), side // SHIFT + 1, (B, 1), generator=generator)
            for side in (H, W)
        )
        down, right = down.clamp(0, H - 1).to(X.device), right.clamp(0, W - 1).to(X.device)  # [B, H], [B, W]
        images, each = self(X), torch.arange(B, device=X.device)[:, None, None]
        moved = images.permute(0, 2, 3, 1)[each, down[:, :, None], right[:, None, :]]  # [B, H, W, C]
        return (moved if self.last else moved.permute(0, 3, 1, 2)).reshape(B, -1)


def _softplus_inverse(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))


def _variance(raw: Tensor) -> Tensor:
    return F.softplus(raw) + MIN_VARIANCE


class Network(Encoder):
    """A network for the mean, D-512-256-Q or convolutions, and a second such one with softplus for the variance.

    Parameters
    ----------
    n_features : int
        D.
    n_components : int
        Q.
    variance : bool
        Whether q(z) has a variance (Bayesian latents).
    by_feature : bool
        Whether each feature is divided by a scale of its own, rather than all by one number.
    hidden : sequence of int
        Widths of the hidden layers.
    picture : Picture, optional
        Turns rows into images, for convolutions. None: a perceptron on the row.
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
    ) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(n_features))
        self.register_buffer("scale", torch.ones(n_features) if by_feature else torch.ones(()))

        def net() -> nn.Sequential:
            if picture is None:
                return perceptron([n_features, *hidden, n_components])
            return _convolutional(picture, n_components)

        self.picture = picture
        self.mu = net()
        self.raw_var = net() if variance else None

    @torch.no_grad()
    def start_from(self, mean: Tensor, scale: Tensor, generator: torch.Generator) -> Self:
        """Set what standardises rows, the mean [D] and the scale [] or [D], and draw the weights."""
        self.mean.copy_(mean)
        self.scale.copy_(scale)
        draw_weights(self, generator)
        if self.raw_var is not None:
            last = self.raw_var[-1]
            assert isinstance(last, nn.Linear)
            last.bias.fill_(float(_softplus_inverse(torch.tensor(INITIAL_VARIANCE))))
        return self

    def forward(self, X: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        X = self._standardised(X)
        return self.mu(X), None if self.raw_var is None else _variance(self.raw_var(X))

    def position(self, X: Tensor, rows: Tensor | None = None) -> Tensor:
        """The mean of q(z) alone, [B, Q]: half of the work where there is a network for the variance."""
        return self.mu(self._standardised(X))

    def mean_parameters(self) -> list[nn.Parameter]:
        """What the mean of q(z) is made of, as far as it is learned."""
        return [p for name, p in self.named_parameters() if not name.startswith("raw_var") and p.requires_grad]

    def variance_parameters(self) -> list[nn.Parameter]:
        """What the variance of q(z) is made of, where that is apart from the mean."""
        return [p for name, p in self.named_parameters() if name.startswith("raw_var")]

    def varied(self, X: Tensor, generator: torch.Generator) -> Tensor:
        """Images a little elsewhere; other rows as they are."""
        return X if self.picture is None else self.picture.shifted(X, generator)

    def _standardised(self, X: Tensor) -> Tensor:
        return (X - self.mean).div_(self.scale)

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


def _convolutional(picture: Picture, n_components: int) -> nn.Sequential:
    """Convolutions that halve the sides and double the channels until at most 4×4 is left, then a perceptron.

    Images of 28×28 pixels become 16 channels of 14×14, 32 of 7×7, 64 of 4×4, and then 1024-128-Q. That is about as many
    operations as the perceptron on all pixels, and a third of its weights.
    """
    layers: list[nn.Module] = [picture]
    (C, H, W), wider = picture.sizes, CHANNELS
    while max(H, W) > LAST_SIDE:
        layers += [unfilled(nn.Conv2d, C, wider, kernel_size=3, stride=2, padding=1), nn.ReLU(True)]
        C, H, W, wider = wider, (H + 1) // 2, (W + 1) // 2, min(2 * wider, MAX_CHANNELS)
    return nn.Sequential(*layers, nn.Flatten(), *perceptron([C * H * W, SUMMARY, n_components]))


@torch.no_grad()
def unfilled(kind: type[Layer], *sizes: int, **more: int) -> Layer:
    """A layer whose numbers are zero until `draw_weights` or a file fills them; nothing is drawn from global state."""
    layer: Layer = nn.utils.skip_init(kind, *sizes, **more)  # type: ignore[no-untyped-call]
    for parameter in layer.parameters():
        parameter.zero_()
    return layer


@torch.no_grad()
def draw_weights(module: nn.Module, generator: torch.Generator) -> None:
    """Draw the weights of all layers as torch does, uniform on ±1/√n with n inputs each, but from a generator."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear | nn.Conv2d):
            bound = 1 / math.sqrt(layer.weight[0].numel())
            for parameter in layer.parameters():
                # In float32 whatever the model's dtype, so that a seed means the same start in both
                drawn = torch.empty(parameter.shape).uniform_(-bound, bound, generator=generator)
                parameter.copy_(drawn)


class Table(Encoder):
    """A free mean (and variance) for every training row: no network between the data and the latents."""

    amortised = False

    def __init__(self, Z: Tensor, *, variance: bool) -> None:
        super().__init__()
        self.mu = nn.Parameter(Z.clone())
        initial = _softplus_inverse(torch.full_like(Z, INITIAL_VARIANCE))
        self.raw_var = nn.Parameter(initial) if variance else None

    def forward(self, X: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        assert rows is not None, "a Table knows only the rows it was trained on"
        return self.mu[rows], None if self.raw_var is None else _variance(self.raw_var[rows])

    def keep(self, dims: Sequence[int]) -> None:
        self.mu = nn.Parameter(self.mu[:, dims])
        self.raw_var = None if self.raw_var is None else nn.Parameter(self.raw_var[:, dims])


class Custom(Encoder):
    """A user's module, taken as it is: it maps raw rows [B, D] to z [B, Q], or to (mean, variance)."""

    def __init__(self, module: nn.Module, n_components: int, *, variance: bool) -> None:
        super().__init__()
        self.module = module
        self.n_components = n_components
        self.variance = variance

    def forward(self, X: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        out = self.module(X)
        mu, var = out if isinstance(out, tuple) else (out, None)
        name, expected = type(self.module).__name__, (len(X), self.n_components)
        if self.variance and var is None:
            raise ValueError(
                f"With latents='bayesian' the encoder must return a pair (mean, variance). Got one tensor from {name}. "
                "Return both, or use latents='point'."
            )
        for part, got in ("mean", mu), ("variance", var if self.variance else mu):
            if tuple(got.shape) != expected:
                raise ValueError(
                    f"The encoder's {part} must have shape {expected}, a row of n_components={self.n_components} "
                    f"numbers for each row of data. Got {tuple(got.shape)} from {name}. Change one of the two."
                )
        return mu, var if self.variance else None
