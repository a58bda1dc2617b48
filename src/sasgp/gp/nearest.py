"""Prediction from the nearest rows: each query conditions the Gaussian process on the k training rows nearest to it.

In more than about three dimensions a fixed set of points lies far from most queries, while the rows near a query still
say most of what all rows would say. Positions are latents, or the inputs of a regression. Rows are never kept: they are
gathered by index when they are needed. `neighbours` finds the nearest.

Kernel and factors are float64 whatever the model's dtype; results are rounded to that at the end.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn.functional import embedding_bag

from sasgp.data.blocks import rows_at_once, slices
from sasgp.data.memory import amount, available
from sasgp.errors import InputError
from sasgp.gp.kernels import units_of
from sasgp.gp.linalg import cholesky_each
from sasgp.gp.local_noise import LocalNoise
from sasgp.gp.neighbours import Neighbours
from sasgp.gp.objective import LOG_2PI
from sasgp.gp.posterior import GaussianProcess

__all__ = ["NearestRows", "log_density_given"]

MATRICES = 4  # [k, k] of one query that are in memory at once: the kernel's own work, K and L


class NearestRows(GaussianProcess):
    """p(x* | z*) given the k training rows whose positions are nearest to z*.

    Unlike `Posterior` it gives no joint samples: every query is conditioned on other rows.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        The trained kernel. It is copied.
    noise : Tensor []
        σ².
    Z : Tensor [N, Q]
        Positions of all training rows.
    take : callable
        Centred rows by index, [m] → [m, D].
    mean : Tensor [D]
        Training mean: what is predicted far from all rows.
    k : int
        Rows that each query is conditioned on, from 1 to N. With N it is the exact Gaussian process.
    scales : Tensor [D], optional
        s_d, the units of every feature's signal and noise. None is 1 for all.
    local_noise : LocalNoise, optional
        The noise of each feature at each place. It is that of the decoder with all rows, whose residuals are a little
        larger. The weights of the nearest rows use σ².
    index : Neighbours, optional
        Finds the nearest positions. By default one is made, in float64.
    """

    def __init__(
        self,
        kernel: Kernel,
        noise: Tensor,
        Z: Tensor,
        take: Callable[[Tensor], Tensor],
        mean: Tensor,
        k: int,
        scales: Tensor | None = None,
        local_noise: LocalNoise | None = None,
        index: Neighbours | None = None,
    ) -> None:
        _check_neighbours(k, len(Z))
        self.Z, self.mean = Z, mean
        self.take, self.k = take, k
        # [1] or [D]: with it, variances are [M, 1] for all features alike or [M, D]
        self.scales = (torch.ones_like(mean[:1]) if scales is None else scales.detach()).double()
        self.kernel = deepcopy(kernel).double().requires_grad_(False)
        self.noise = noise.detach().double()
        self.local_noise = local_noise
        self.units = units_of(self.kernel, Z.shape[1]).to(Z.device)  # [Q]
        self.index = Neighbours(Z.double(), self.units) if index is None else index

    @property
    def block_size(self) -> int:
        """Queries answered at a time."""
        return rows_at_once(max(self.k, len(self.mean)))

    @torch.no_grad()
    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density of each row, [M]. It has no gradient in Z."""
        parts = [super(NearestRows, self).log_density(X[block], Z[block]) for block in self.blocks(len(X))]
        return torch.cat([X.new_empty(0), *parts])

    # ------------------------------------------------------------------------------------------------ what they say

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and, in units of s², the function's variance [M] at a block of queries, in float64."""
        near = self.index.nearest(Z, self.k)  # [M, k]
        W, c_f = torch.empty_like(near, dtype=Z.dtype), torch.empty_like(Z[:, 0])
        for block in slices(len(Z), MATRICES * self.k**2):
            W[block], c_f[block] = self.weights(Z[block], near[block])
        # m = mean + Σ_j w_j (x_j − mean) over the nearest rows j
        mean = self.mean.double().repeat(len(Z), 1)
        for group, rows, places in self._groups(Z, near):
            if len(group) == 1:  # its rows alone may be too many for one block; they are in the order of its weights
                for part in slices(len(rows), len(self.mean)):
                    mean[group] += W[group][:, part] @ self.take(rows[part]).double()
            else:
                mean[group] += embedding_bag(places, self.take(rows).double(), per_sample_weights=W[group], mode="sum")
        return mean, c_f

    @torch.no_grad()
    def leave_one_out(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and variance [M] of a new observation at some training rows, from their nearest other rows."""
        Z = self.Z[rows].double()
        near = without_itself(self.index.nearest(self.Z[rows], min(self.k + 1, len(self.Z))), rows)
        mean, c_f = torch.empty(len(rows), len(self.mean), dtype=Z.dtype, device=Z.device), torch.empty_like(Z[:, 0])
        for block in slices(len(rows), MATRICES * near.shape[1] ** 2):
            w, c_f[block] = self.weights(Z[block], near[block])
            X_k = self.take(near[block].flatten()).double().view(*near[block].shape, -1)  # [m, k, D]
            mean[block] = self.mean.double() + (w[:, :, None] * X_k).sum(1)
        return mean, c_f + self.noise

    def weights(self, Z: Tensor, near: Tensor) -> tuple[Tensor, Tensor]:
        """Weights [m, k] of the nearest rows in the mean, and the function's variance [m]."""
        # K = K_k + σ²I = L Lᵀ          w = K⁻¹ k_k*          c_f = k_** − ‖L⁻¹ k_k*‖²
        Z_k = self.Z[near].double()  # [m, k, Q]
        eye = torch.eye(near.shape[1], dtype=Z.dtype, device=Z.device)
        L = cholesky_each(self.kernel(Z_k).to_dense() + self.noise * eye)  # [m, k, k]
        v = torch.linalg.solve_triangular(L, self.kernel(Z_k, Z[:, None]).to_dense(), upper=False)  # [m, k, 1]
        w = torch.linalg.solve_triangular(L.mT, v, upper=True)[:, :, 0]
        # Rounding may leave k_** less than what is explained
        return w, (self.kernel(Z, diag=True) - v.square().sum((1, 2))).clamp_min(0)

    def _groups(self, Z: Tensor, near: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Groups of queries whose nearest rows fit into memory together.

        Each comes with its queries [m], its rows [u], and where in these the nearest of each query are, [m, k]. A group
        that is too large is halved across its widest dimension: queries near each other share rows, so that few rows
        are gathered more than once.
        """
        waiting = [torch.arange(len(Z), device=Z.device)]
        while waiting:
            group = waiting.pop()
            rows, places = near[group].unique(return_inverse=True)  # type: ignore[no-untyped-call]
            if len(rows) <= rows_at_once(len(self.mean)) or len(group) == 1:
                yield group, rows, places
                continue
            at = Z[group] / self.units
            order = at[:, (at.amax(0) - at.amin(0)).argmax()].argsort()
            half = len(group) // 2
            waiting += [group[order[half:]], group[order[:half]]]


def without_itself(near: Tensor, rows: Tensor) -> Tensor:
    """The k + 1 nearest positions [M, k + 1] of some of them, without the position itself: [M, k]."""
    others = near != rows[:, None]
    others[:, 0] &= ~others.all(1)  # among many that coincide, the search may have missed the position itself
    return near[others].view(len(near), -1)


def log_density_given(kernel: Kernel, noise: Tensor, Z: Tensor, Y: Tensor, Z_k: Tensor, Y_k: Tensor) -> Tensor:
    """Log N(y | m, c I) [M] of targets Y [M, T] at Z [M, Q], given those of k other rows each, [M, k, T] at [M, k, Q].

    It is differentiable in the parameters of the kernel and in the noise σ².
    """
    # K = K_k + σ²I = L Lᵀ          v = L⁻¹ k_k*          m = vᵀ L⁻¹ Y_k          c = k_** + σ² − ‖v‖²
    eye = torch.eye(Z_k.shape[1], dtype=Z.dtype, device=Z.device)
    L = torch.linalg.cholesky(kernel(Z_k).to_dense() + noise * eye)  # [M, k, k]
    right = torch.cat([kernel(Z_k, Z[:, None]).to_dense(), Y_k], 2)  # [M, k, 1 + T]
    v, u = torch.linalg.solve_triangular(L, right, upper=False).tensor_split([1], dim=2)
    mean = (v * u).sum(1)  # [M, T]
    c = noise + (kernel(Z, diag=True) - v.square().sum((1, 2))).clamp_min(0)
    return -0.5 * (Y.shape[1] * (LOG_2PI + c.log()) + (Y - mean).square().sum(1) / c)


def _check_neighbours(k: int, N: int) -> None:
    if not 1 <= k <= N:
        raise InputError(
            f"neighbours must be from 1 to {N}, the number of training rows. Got {k}.", argument="neighbours"
        )
    need, have = MATRICES * 8 * k**2, available()
    if need > have:
        raise InputError(
            f"neighbours={k} needs {amount(need)} of memory for one query, and {amount(have)} are free. Use fewer.",
            argument="neighbours",
        )
