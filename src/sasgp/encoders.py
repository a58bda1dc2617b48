"""q(z|x): where a row lies in the latent space.

Three kinds, one call. `Network` reads the row (amortised, so new rows cost one forward pass), `Table` keeps a free
latent for every training row, and `Custom` wraps a module of the user's. Each maps a batch to the mean of q(z) and,
for Bayesian latents, its variance.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Custom", "Encoder", "Network", "Table"]

HIDDEN = (512, 256)  # the paper's encoder
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

    def keep(self, dims: Sequence[int]) -> None:
        """Drop all latent dimensions but these, and put them in this order."""
        raise NotImplementedError


def _softplus_inverse(y: Tensor) -> Tensor:
    return y + torch.log(-torch.expm1(-y))


def _variance(raw: Tensor) -> Tensor:
    return F.softplus(raw) + MIN_VARIANCE


class Network(Encoder):
    """D-512-256-Q with ReLU for the mean, and a second such network with softplus for the variance.

    Parameters
    ----------
    mean : Tensor [D]
        Subtracted from every row first.
    scale : Tensor [] or [D]
        Divides every row: one number for all features, so that no feature's weight changes, or the units of each.
    n_components : int
        Q.
    variance : bool
        Whether q(z) has a variance (Bayesian latents).
    generator : torch.Generator
        Draws the initial weights.
    hidden : sequence of int
        Widths of the hidden layers.
    """

    mean: Tensor
    scale: Tensor

    def __init__(
        self,
        mean: Tensor,
        scale: Tensor,
        n_components: int,
        *,
        variance: bool,
        generator: torch.Generator,
        hidden: Sequence[int] = HIDDEN,
    ) -> None:
        super().__init__()
        self.register_buffer("mean", mean)
        self.register_buffer("scale", scale.detach().clone())
        widths = [len(mean), *hidden, n_components]
        self.mu = _perceptron(widths, generator)
        self.raw_var = _perceptron(widths, generator) if variance else None
        if self.raw_var is not None:
            last = self.raw_var[-1]
            assert isinstance(last, nn.Linear)
            nn.init.constant_(last.bias, float(_softplus_inverse(torch.tensor(INITIAL_VARIANCE))))
        self.to(mean.device, mean.dtype)

    def forward(self, X: Tensor, rows: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        X = self._standardised(X)
        return self.mu(X), None if self.raw_var is None else _variance(self.raw_var(X))

    def position(self, X: Tensor, rows: Tensor | None = None) -> Tensor:
        """The mean of q(z) alone, [B, Q]: half of the work where there is a network for the variance."""
        return self.mu(self._standardised(X))

    def _standardised(self, X: Tensor) -> Tensor:
        return (X - self.mean).div_(self.scale)

    def keep(self, dims: Sequence[int]) -> None:
        for net in (self.mu, self.raw_var):
            if net is not None:
                last = net[-1]
                assert isinstance(last, nn.Linear)
                last.weight, last.bias = nn.Parameter(last.weight[dims]), nn.Parameter(last.bias[dims])
                last.out_features = len(dims)


def _perceptron(widths: Sequence[int], generator: torch.Generator) -> nn.Sequential:
    """Linear layers with ReLU between them, started as torch starts them but from the given generator."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(widths):
        linear: nn.Linear = nn.utils.skip_init(nn.Linear, n_in, n_out)  # type: ignore[no-untyped-call]
        for parameter in linear.parameters():
            nn.init.uniform_(parameter, -1 / math.sqrt(n_in), 1 / math.sqrt(n_in), generator=generator)
        layers += [linear, nn.ReLU(inplace=True)]
    return nn.Sequential(*layers[:-1])


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
