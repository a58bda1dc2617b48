"""The Cholesky factor of a Gaussian process, to which rows are added. The evidence is computed from it.

Rows are added in some order, and K + σ²I = L Lᵀ and U = L⁻¹X grow by one panel of rows at a time. The diagonal of L and
the rows of U give the terms of the chain rule,

    log p(X|Z) = Σ_n log p(x_n | x_1 … x_{n−1}),     log p(x_n | x_<n) = −½ [ D log 2π + D log L_nn² + ‖u_n‖² ].

Only the lower triangle is stored: N²/2 numbers, and no second matrix of that size. A held-out row is projected onto the
factor once, v = L⁻¹k. The first a entries of v predict it from the first a rows alone, so one factor also serves all
smaller active sets.

The kernel and all sums are in float64. The dtype is that of the factor.
"""

from collections.abc import Callable, Sequence
from copy import deepcopy
from itertools import pairwise
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.data.memory import amount, available
from sasgp.errors import InputError
from sasgp.gp.linalg import NotPositiveDefiniteError, cholesky
from sasgp.gp.objective import LOG_2PI

__all__ = [
    "GP",
    "Factor",
    "Update",
    "check_memory",
    "dtype_name",
    "memory_needed",
    "operations",
    "parts",
    "silent",
]

PANEL = 1024  # rows added to a factor at a time: large enough for the products to run at full speed
KEPT = 4_000_000  # entries of the kernel matrix up to which it is computed once and kept: 32 MB

Update = Callable[[float], object]  # called with the share of the work that is done


def silent(share: float) -> None:
    """Show no progress."""


class GP:
    """Rows, their latents, and the kernel on these.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        It is copied, and computed in float64.
    noise : float
        σ².
    Z : Tensor [N, Q]
        Latents of all rows.
    take : callable
        Returns centred rows by index, [m] → [m, D].
    n_features : int
        D.
    dtype : torch.dtype
        Precision of the factor.
    row_offset : float
        Nats added to the log density of each row: −Σ_d log s_d if rows are x_d / s_d.
    """

    def __init__(
        self,
        kernel: Kernel,
        noise: float,
        Z: Tensor,
        take: Callable[[Tensor], Tensor],
        n_features: int,
        *,
        dtype: torch.dtype = torch.float64,
        row_offset: float = 0.0,
    ) -> None:
        self.kernel = deepcopy(kernel).double().requires_grad_(False)
        self.noise, self.Z, self.take = float(noise), Z.double(), take
        self.n_features, self.dtype, self.row_offset = n_features, dtype, row_offset
        self.variance: Tensor = self.kernel(self.Z, diag=True)  # [N]
        N = len(Z)
        self.K: Tensor | None = self.kernel(self.Z).to_dense() if N * N <= KEPT else None

    def __len__(self) -> int:
        return len(self.Z)

    @property
    def device(self) -> torch.device:
        return self.Z.device

    def rows(self, index: Tensor) -> Tensor:
        """A copy of centred rows [m, D], which the caller may overwrite."""
        return self.take(index).to(self.dtype, copy=True)

    def covariance(self, i: Tensor, j: Tensor) -> Tensor:
        """The kernel matrix between two sets of rows, without noise."""
        K = self.kernel(self.Z[i], self.Z[j]).to_dense() if self.K is None else self.K[i][:, j]
        return K.to(self.dtype)

    def log_density(self, c: Tensor, quadratic: Tensor) -> Tensor:
        """The log density log N(x | m, c I) of rows, from the variance c and ‖x − m‖² / c."""
        return -0.5 * (self.n_features * (LOG_2PI + c.log()) + quadratic) + self.row_offset


class Factor:
    """K + σ²I = L Lᵀ for rows in the order in which they are added, and U = L⁻¹X.

    L is kept in panels: panel i holds its rows from the first column to the diagonal. It needs only the panels above
    it, so rows that are not yet added take no memory:

        L_ij = (K_ij − Σ_{k<j} L_ik L_jkᵀ) L_jj⁻ᵀ        L_ii L_iiᵀ = K_ii + σ²I − Σ_{k<i} L_ik L_ikᵀ

    Each sum over k is one matrix product with a long inner dimension. All of them take N³/3 operations.
    """

    def __init__(self, gp: GP, capacity: int = 0, work: int = 1, update: Update = silent) -> None:
        self.gp, self.work, self.update = gp, work, update
        self.flops = self.n_jittered = self.largest = 0
        self.restart(capacity)

    def restart(self, capacity: int) -> Self:
        """Remove all rows and make room for others. The count of operations goes on."""
        self.panels: list[Tensor] = []
        self.order = torch.empty(0, dtype=torch.long, device=self.gp.device)
        self.U = torch.empty(capacity, self.gp.n_features, dtype=self.gp.dtype, device=self.gp.device)
        self.largest = max(self.largest, capacity)
        return self

    def __len__(self) -> int:
        return len(self.order)

    def add(self, rows: Tensor) -> Tensor:
        """Add rows by index. Returns log p(x_n | all rows before it) for each, [m]."""
        return torch.cat([self.gp.variance[:0], *(self._add(part) for part in parts(rows))])

    def _add(self, rows: Tensor) -> Tensor:
        gp, a, b = self.gp, len(self), len(rows)
        panel = torch.empty(b, a + b, dtype=gp.dtype, device=gp.device)
        V, U = panel[:, :a], self.U[a : a + b]
        self._project(rows, V)
        # S = K_ii + σ²I − V Vᵀ = L_ii L_iiᵀ
        S = gp.covariance(rows, rows)
        S.diagonal().copy_(gp.variance[rows] + gp.noise)
        L = self._cholesky(S.addmm_(V, V.T, alpha=-1), a)
        # u_i = L_ii⁻¹ (x_i − V U)
        U.copy_(torch.linalg.solve_triangular(L, gp.rows(rows).addmm_(V, self.U[:a], alpha=-1), upper=False))
        panel[:, a:] = L
        self.panels.append(panel)
        self.order = torch.cat([self.order, rows])
        self._count(2 * b * b * a + b**3 // 3 + b * (2 * a + b) * gp.n_features)
        return gp.log_density(L.diagonal().double().square(), U.double().square().sum(1))

    def _cholesky(self, S: Tensor, start: int) -> Tensor:
        L, info = torch.linalg.cholesky_ex(S)
        if info == 0 and bool(L.diagonal().isfinite().all()):
            return L
        try:
            L = cholesky(S)
        except NotPositiveDefiniteError as error:
            error.add_note(
                f"This is the covariance of {len(S)} rows given {start} others. For the evidence, use dtype='float64'."
            )
            raise
        self.n_jittered += len(S)
        return L

    def _project(self, rows: Tensor, V: Tensor) -> None:
        """Write V = k(rows, all rows so far) L⁻ᵀ, [m, n], panel by panel."""
        for L in self.panels:
            (b, hi), m = L.shape, len(rows)
            lo = hi - b
            tile = V[:, lo:hi]
            tile.copy_(self.gp.covariance(rows, self.order[lo:hi]))
            tile.addmm_(V[:, :lo], L[:, :lo].T, alpha=-1)
            tile.copy_(torch.linalg.solve_triangular(L[:, lo:].T, tile, upper=True, left=False))
            self._count(m * b * (2 * lo + b))

    def score(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        """The log density log p(x_n | the first a rows) of each row, for increasing sizes a: [len(sizes), m]."""
        gp, scores = self.gp, []
        V = torch.empty(len(rows), len(self), dtype=gp.dtype, device=gp.device)
        self._project(rows, V)
        # m_n = v_≤a U_≤a          c_n = k_nn + σ² − ‖v_≤a‖²
        residual, explained = gp.rows(rows), torch.zeros_like(gp.variance[rows])
        for lo, hi in pairwise([0, *sizes]):
            residual.addmm_(V[:, lo:hi], self.U[lo:hi], alpha=-1)
            explained += V[:, lo:hi].square().sum(1, dtype=torch.float64)
            # Rounding may make the explained variance exceed k_nn; an observation varies at least by the noise
            c = gp.noise + (gp.variance[rows] - explained).clamp_min(0)
            scores.append(gp.log_density(c, residual.double().square().sum(1) / c))
            self._count(2 * len(rows) * (hi - lo) * gp.n_features)
        return torch.stack(scores)

    def _count(self, flops: int) -> None:
        self.flops += flops
        self.update(self.flops / self.work)


def parts(rows: Tensor) -> tuple[Tensor, ...]:
    return rows.split(PANEL) if len(rows) else ()  # type: ignore[no-untyped-call]


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---------------------------------------------------------------------------------------------------- what it takes


def operations(gp: GP, n: int, m: int = 0) -> int:
    """Floating-point operations for a factor of n rows, and for m other rows (or all that are left) scored with it."""
    panels = [(a, min(PANEL, n - a)) for a in range(0, n, PANEL)]
    factor = sum(b * a * a + 2 * b * b * a + b**3 // 3 for a, b in panels) + n * n * gp.n_features
    return max(1, factor + min(m, len(gp) - n) * n * (n + 2 * gp.n_features))


def memory_needed(gp: GP, n: int) -> int:
    """Bytes that a factor of n rows takes, including the rows and the work space."""
    # The triangle of L, and U; a block of rows projected on it, and its squares; X of a block in float64; kernel tiles
    b = min(PANEL, len(gp))
    factor, block = n * (n + b) // 2 + n * gp.n_features, 2 * b * n
    return gp.dtype.itemsize * (factor + block) + 8 * (3 * b * gp.n_features + 4 * b * b)


def memory_available(device: torch.device) -> int:
    """Bytes of memory that are free now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return available()


def check_memory(gp: GP, n: int) -> None:
    """Raise InputError if a factor of n rows does not fit into memory."""
    need, have = memory_needed(gp, n), memory_available(gp.device)
    if need > have:
        half = "dtype='float32' for half of that, " if gp.dtype == torch.float64 else ""
        raise InputError(
            f"A factor of {n} rows in {dtype_name(gp.dtype)} needs {amount(need)} of memory, but only {amount(have)} "
            f"are free. Use {half}fewer rows, or method='sas'."
        )
