"""Noise that depends on the feature and on the place: σ²_d(z), from the squared residuals of all rows.

With U [M, Q] the positions of the decoder, m(z) its mean and r_n = x_n − m(z_n), one pass over the rows gives

    R = Σ_n w(u, z_n) r²_nd [M, D]     n = Σ_n w(u, z_n) (1 − h_n) [M]     w(u, z) = exp(−½ ‖(u − z) / ½ℓ‖²)

    v[u, d] = (R[u, d] + a v_d) / (n[u] + a)          σ²_d(z) = (Σ_u w(u, z) v[u, d] + b g_d) / (Σ_u w(u, z) + b)

Here ℓ are the kernel's lengthscales, v_d = (Σ_u R[u, d] + g_d) / (Σ_u n[u] + 1) is the average of a feature, and g_d is
the global noise σ² s_d². The leverage h_n = c_f(z_n) / σ² is the share of a row's noise that the decoder has taken for
signal, so that n counts rows less the parameters spent on them. Where few rows are near a position, a leads back to the
feature's average: a value that none of them had is rare, not impossible. Where no position is near z, b leads back to
the global noise.

The sums add: over blocks, over processes, and over rows that arrive after training. They are float64.
"""

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.gp.kernels import units_of

__all__ = ["LocalNoise", "ResidualSums"]

# Chosen by the bits per value of rows 50 000 to 60 000 of MNIST and of Fashion-MNIST, given the rows before them: WIDTH
# among .3, .4, .5, .7 and 1, ROWS from .1 to 300. MNIST prefers more of both, Fashion-MNIST less
WIDTH = 0.5  # of w, in lengthscales of the kernel
ROWS = 10.0  # a: rows of average noise at each position
POSITIONS = 1e-4  # b: a position whose w is this has as much weight as the global noise. That is 4.3 widths away
FLOOR = 1e-5  # of the global noise: a feature that is constant near a position has no density otherwise


class LocalNoise:
    """σ²_d(z), the variance of each feature's noise at a place.

    Parameters
    ----------
    U : Tensor [M, Q]
        Positions.
    width : Tensor [Q]
        The standard deviation of w in each dimension.
    v : Tensor [M, D]
        Noise at each position.
    far : Tensor [1] or [D]
        Noise far from all positions.
    """

    def __init__(self, U: Tensor, width: Tensor, v: Tensor, far: Tensor) -> None:
        self.U, self.width, self.v, self.far = U.double(), width, v, far

    def __call__(self, Z: Tensor) -> Tensor:
        """The noise variance [B, D] at latents Z [B, Q]. It is float64, and differentiable in Z."""
        W = _weights(Z.double(), self.U, self.width)  # [B, M]
        return (W @ self.v + POSITIONS * self.far) / (W.sum(1, keepdim=True) + POSITIONS)


class ResidualSums:
    """The sums over squared residuals, empty at first.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        Its lengthscales are the units of distance.
    U : Tensor [M, Q]
        Positions in the latent space: those of the decoder.
    n_features : int
        D.
    masked : bool
        Whether rows may have missing values. Then n is [M, D]: each feature counts the rows that have it.
    """

    def __init__(self, kernel: Kernel, U: Tensor, n_features: int, *, masked: bool = False) -> None:
        self.U = U.detach().double()
        self.width = WIDTH * units_of(kernel, U.shape[1]).to(U.device)  # [Q]
        self.R = self.U.new_zeros(len(U), n_features)
        self.n = torch.zeros_like(self.R) if masked else self.U.new_zeros(len(U))

    @property
    def tensors(self) -> dict[str, Tensor]:
        """The sums themselves, by their names."""
        return {"R": self.R, "n": self.n}

    def count_features(self) -> None:
        """Count the rows of each feature by itself, from now on: rows with missing values will be added."""
        if self.n.ndim == 1:
            self.n = self.n[:, None].repeat(1, self.R.shape[1])

    @torch.no_grad()
    def add(self, r: Tensor, h: Tensor, Z: Tensor) -> None:
        """Add rows with residuals r [B, D], NaN if missing, leverages h [B] or [B, D], and latents Z [B, Q]."""
        W = _weights(Z.double(), self.U, self.width)  # [B, M]
        if self.n.ndim == 2:
            h = h if h.ndim == 2 else h[:, None]
            self.R.addmm_(W.T, r.double().nan_to_num().square())
            self.n.addmm_(W.T, (1 - h.double()) * ~r.isnan())
            return
        self.R.addmm_(W.T, r.double().square())
        self.n.addmv_(W.T, 1 - h.double())

    @torch.no_grad()
    def noise(self, far: Tensor) -> LocalNoise:
        """The noise given all rows added so far; `far` [1] or [D] is the global noise, in squared units of the data."""
        far = far.detach().double()
        n = self.n if self.n.ndim == 2 else self.n[:, None]
        average = (self.R.sum(0) + far) / (n.sum(0) + 1)  # [D]
        v = (self.R + ROWS * average) / (n + ROWS)  # [M, D]
        return LocalNoise(self.U, self.width, torch.maximum(v, FLOOR * far), far)


def _weights(Z: Tensor, U: Tensor, width: Tensor) -> Tensor:
    """w(u, z) of each pair, [B, M]."""
    # ‖z − u‖² = ‖z‖² − 2 z·u + ‖u‖², with the middle of the positions at 0 so that little cancels
    centre = U.mean(0)
    Z, U = (Z - centre) / width, (U - centre) / width
    squared = Z.square().sum(1, keepdim=True) - 2 * Z @ U.T + U.square().sum(1)
    return (-0.5 * squared.clamp_min(0)).exp()
