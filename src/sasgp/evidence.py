"""How probable the data are: log p(X|Z) exactly, by stochastic active sets, and by sampling without bias.

Everything here is read off one factor. Rows are taken in some order, K + σ²I = L Lᵀ and U = L⁻¹X grow a panel of rows
at a time, and the diagonal of L and the rows of U are the terms of the chain rule,

    log p(X|Z) = Σ_n log p(x_n | x_1 … x_{n−1}),     log p(x_n | x_<n) = −½ [ D log 2π + D log L_nn² + ‖u_n‖² ].

Only the lower triangle is ever stored: N²/2 numbers, and no second matrix of that size. A row that is held out is
projected onto the factor once, v = L⁻¹k, and the first a entries of v are its prediction from the first a rows alone:
one factor answers for every shorter active set as well.

Kernel and sums are float64 whatever the dtype, which is that of the factor.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.errors import InputError
from sasgp.objective import LOG_2PI, NotPositiveDefiniteError, cholesky

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "GP",
    "Evidence",
    "EvidenceCurve",
    "Factor",
    "amount",
    "curve",
    "doublings",
    "exact",
    "memory_needed",
    "sas",
    "unbiased",
]

PANEL = 1024  # rows added to a factor at a time: large enough for the products to run at full speed
HELD_OUT = 1024  # rows that a large factor is tried on: each costs a², the factor itself a³/3
PER_STRATUM = 4  # draws from every range of sizes, to tell how much they vary there
KEPT = 4_000_000  # entries of a kernel matrix that is evaluated once and kept: 32 MB

Update = Callable[[float], object]  # takes the share of the work that is done


def _silent(share: float) -> None:
    """Show no progress."""


# ---------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Evidence:
    """An estimate of log p(X|Z), in nats, and what it cost.

    Attributes
    ----------
    method : str
        "exact", "sas" or "unbiased".
    mean, standard_error : float
        The estimate, and the standard deviation of its error. With "sas" the error is the distance from the mean of
        SAS_A, which is not the evidence itself.
    n_rows, n_features : int
        N and D.
    n_estimates : int
        Independent repetitions that the mean is of.
    active_set_size : int or None
        A, where there is one.
    largest_factor : int
        Rows of the largest matrix that was factored.
    n_jittered : int
        Rows whose covariance had no Cholesky factor without jitter on its diagonal; 0 as a rule. Where it is not, the
        number is that of slightly more noise: use float64.
    dtype : str
        Of the factor.
    memory : int
        Bytes of the largest factor and what belongs to it.
    flops : int
        Floating-point operations.
    seconds : float
    """

    method: str
    mean: float
    standard_error: float
    n_rows: int
    n_features: int
    n_estimates: int
    active_set_size: int | None
    largest_factor: int
    n_jittered: int
    dtype: str
    memory: int
    flops: int
    seconds: float

    @property
    def per_value(self) -> float:
        """Nats for each of the N·D values, the unit of the training objective."""
        return self.mean / (self.n_rows * self.n_features)

    @property
    def standard_error_per_value(self) -> float:
        return self.standard_error / (self.n_rows * self.n_features)

    def lines(self) -> list[tuple[str, str | Path, str]]:
        """Name, value and note of what there is to say."""
        repeated = self.n_estimates > 1
        error = f" ± {self.standard_error:.2g}" if repeated else ""
        each = f" ± {self.standard_error_per_value:.2g}" if repeated else ""
        name = f"SAS, A = {self.active_set_size}" if self.method == "sas" else f"log p(X|Z), {self.method}"
        estimates = f"{self.n_estimates} estimates, " * repeated
        work = f"{self.flops:.2g} operations in {self.dtype}"
        size = f"largest factor {self.largest_factor} rows, {amount(self.memory)}"
        lines: list[tuple[str, str | Path, str]] = [
            (name, f"{self.mean:.2f}{error}", "nats"),
            ("for each value", f"{self.per_value:.5f}{each}", f"nats, of {self.n_rows} × {self.n_features}"),
            ("took", f"{self.seconds:.1f} s", f"{estimates}{work}, {size}"),
        ]
        if self.n_jittered:
            lines.append(("jitter", f"{self.n_jittered} rows", "had a singular covariance: use float64"))
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{name:<22}{value!s:<24}{note}" for name, value, note in self.lines())


@dataclass(frozen=True)
class EvidenceCurve:
    """s(a): the mean log density of a row given `a` others drawn at random, against a.

    Attributes
    ----------
    sizes : ndarray [S]
        Sizes a of the active set.
    scores : ndarray [R, S]
        Nats a row, for each of R independent repetitions. A repetition has the same held-out rows and a growing active
        set for all sizes, so its differences between sizes vary much less than its values.
    n_features : int
        D.
    active_set_size : int
        A of the model.
    flops : int
        Floating-point operations.
    seconds : float
    """

    sizes: "NDArray[Any]"
    scores: "NDArray[Any]"
    n_features: int
    active_set_size: int
    flops: int
    seconds: float

    @property
    def mean(self) -> "NDArray[Any]":
        """Nats a row, [S]."""
        return self.scores.mean(0)

    @property
    def standard_error(self) -> "NDArray[Any]":
        """Standard deviation of `mean`'s error, [S]."""
        return self.scores.std(0, ddof=1) / len(self.scores) ** 0.5

    def gain(self) -> tuple[int, int, float, float] | None:
        """What more active points would bring.

        The sizes A and 2A, or those nearest to them on the curve, how many nats more for each value a row then has, and
        the standard error of that. None where the curve has nothing above A.
        """
        at = int(abs(self.sizes - self.active_set_size).argmin())
        above = self.sizes > self.sizes[at]
        if not above.any():
            return None
        to = int(abs(self.sizes - 2 * self.sizes[at])[above].argmin()) + int((~above).sum())
        each = (self.scores[:, to] - self.scores[:, at]) / self.n_features
        error = each.std(ddof=1) / len(each) ** 0.5
        return int(self.sizes[at]), int(self.sizes[to]), float(each.mean()), float(error)

    def __str__(self) -> str:
        """The curve in one sentence."""
        found = self.gain()
        if found is None:
            return f"No size above A = {self.active_set_size} was tried."
        small, large, gain, error = found
        how = f"{'Doubling' if large == 2 * small else 'Raising'} A from {small} to {large}"
        if abs(gain) <= 2 * error:
            return f"{how} would bring nothing that can be told from 0: {gain:+.2g} ± {error:.1g} nats for each value."
        return f"{how} would bring {gain:+.2g} ± {error:.1g} nats for each value."


# ---------------------------------------------------------------------------------------------------- the factor


class GP:
    """Rows, their latents, and the kernel between them.

    Parameters
    ----------
    kernel : gpytorch.kernels.Kernel
        It is copied, and evaluated in float64.
    noise : float
        σ².
    Z : Tensor [N, Q]
        Latents of all rows.
    take : callable
        Centred rows by index, [m] → [m, D].
    n_features : int
        D.
    dtype : torch.dtype
        Of the factor.
    row_offset : float
        Nats added to the log density of every row, whatever it is given: −Σ_d log s_d where rows are x_d / s_d.
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
        """Centred rows [m, D], to be written over."""
        return self.take(index).to(self.dtype, copy=True)

    def covariance(self, i: Tensor, j: Tensor) -> Tensor:
        """K between two sets of rows, without noise."""
        K = self.kernel(self.Z[i], self.Z[j]).to_dense() if self.K is None else self.K[i][:, j]
        return K.to(self.dtype)

    def log_density(self, c: Tensor, quadratic: Tensor) -> Tensor:
        """Log density log N(x | m, c I) of rows with variance c and ‖x − m‖² / c."""
        return -0.5 * (self.n_features * (LOG_2PI + c.log()) + quadratic) + self.row_offset


class Factor:
    """K + σ²I = L Lᵀ of rows in the order in which they are added, and U = L⁻¹X.

    L is kept by panels: the i-th holds its rows from the first column to the diagonal. Panel i needs the panels above
    it and nothing else, so what is not yet added takes no memory:

        L_ij = (K_ij − Σ_{k<j} L_ik L_jkᵀ) L_jj⁻ᵀ        L_ii L_iiᵀ = K_ii + σ²I − Σ_{k<i} L_ik L_ikᵀ

    Each sum over k is one product with a long inner dimension, and N³/3 operations in all.
    """

    def __init__(self, gp: GP, capacity: int = 0, work: int = 1, update: Update = _silent) -> None:
        self.gp, self.work, self.update = gp, work, update
        self.flops = self.n_jittered = self.largest = 0
        self.restart(capacity)

    def restart(self, capacity: int) -> Self:
        """Forget all rows, but not what they cost, and make room for others."""
        self.panels: list[Tensor] = []
        self.order = torch.empty(0, dtype=torch.long, device=self.gp.device)
        self.U = torch.empty(capacity, self.gp.n_features, dtype=self.gp.dtype, device=self.gp.device)
        self.largest = max(self.largest, capacity)
        return self

    def __len__(self) -> int:
        return len(self.order)

    def add(self, rows: Tensor) -> Tensor:
        """Add rows, given by index. Returns log p(x_n | all rows before it) of each, [m]."""
        return torch.cat([self.gp.variance[:0], *(self._add(part) for part in _parts(rows))])

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
                f"It is the covariance of {len(S)} rows given {start} others. For the evidence choose dtype='float64' "
                "(--dtype float64)."
            )
            raise
        self.n_jittered += len(S)
        return L

    def _project(self, rows: Tensor, V: Tensor) -> None:
        """V = k(rows, all so far) L⁻ᵀ, [m, n], panel by panel."""
        for L in self.panels:
            (b, hi), m = L.shape, len(rows)
            lo = hi - b
            tile = V[:, lo:hi]
            tile.copy_(self.gp.covariance(rows, self.order[lo:hi]))
            tile.addmm_(V[:, :lo], L[:, :lo].T, alpha=-1)
            tile.copy_(torch.linalg.solve_triangular(L[:, lo:].T, tile, upper=True, left=False))
            self._count(m * b * (2 * lo + b))

    def score(self, rows: Tensor, sizes: Sequence[int]) -> Tensor:
        """The log density log p(x_n | the first a rows) of every row by itself, for rising a: [len(sizes), m]."""
        gp, scores = self.gp, []
        V = torch.empty(len(rows), len(self), dtype=gp.dtype, device=gp.device)
        self._project(rows, V)
        # m_n = v_≤a U_≤a          c_n = k_nn + σ² − ‖v_≤a‖²
        residual, explained = gp.rows(rows), torch.zeros_like(gp.variance[rows])
        for lo, hi in pairwise([0, *sizes]):
            residual.addmm_(V[:, lo:hi], self.U[lo:hi], alpha=-1)
            explained += V[:, lo:hi].square().sum(1, dtype=torch.float64)
            # Rounding may leave k_nn less than what is explained; an observation never varies by less than the noise
            c = gp.noise + (gp.variance[rows] - explained).clamp_min(0)
            scores.append(gp.log_density(c, residual.double().square().sum(1) / c))
            self._count(2 * len(rows) * (hi - lo) * gp.n_features)
        return torch.stack(scores)

    def _count(self, flops: int) -> None:
        self.flops += flops
        self.update(self.flops / self.work)


# ---------------------------------------------------------------------------------------------------- estimates


@torch.no_grad()
def exact(gp: GP, update: Update = _silent) -> Evidence:
    """The log evidence log p(X|Z) itself: all terms of the chain rule."""
    N, started = len(gp), perf_counter()
    check_memory(gp, N)
    factor = Factor(gp, N, operations(gp, N), update)
    terms = factor.add(torch.arange(N, device=gp.device))
    return _result("exact", factor, float(terms.sum()), 0.0, 1, None, started)


def sas_estimate(factor: Factor, order: Tensor, A: int) -> float:
    """Eq. 6 with the first A rows of `order` active, added to an empty factor, and all R others in it predicted."""
    # log p(X_A|Z_A) + (N−A)/R Σ_{n∈R} log p(x_n|x_A)
    N, R = len(factor.gp), len(order) - A
    log_p = float(factor.add(order[:A]).sum())
    rest = sum(float(factor.score(part, [A]).sum()) for part in _parts(order[A:]))
    return log_p + (N - A) / R * rest


@torch.no_grad()
def sas(
    gp: GP, A: int, n_estimates: int, draw: torch.Generator, *, B: int | None = None, update: Update = _silent
) -> Evidence:
    """SAS_A (Eq. 6) over random active sets of A rows, each predicting all other rows or B − A of them.

    Its mean is Σ_{a<A} s(a) + (N−A) s(A).
    """
    N, started = len(gp), perf_counter()
    check_memory(gp, A)
    factor = Factor(gp, 0, n_estimates * operations(gp, A, (B or N) - A), update)
    values = [sas_estimate(factor.restart(A), _permutation(gp, draw)[:B], A) for _ in range(n_estimates)]
    found = torch.tensor(values, dtype=torch.float64)
    error = float(found.std()) / n_estimates**0.5
    return _result("sas", factor, float(found.mean()), error, n_estimates, A, started)


def corrected_estimate(factor: Factor, order: Tensor, A: int, a: int) -> float:
    """One unbiased estimate from a random order of all rows and a size `a` that is uniform on A+1 … N−1.

    log p(X|Z) = Σ_i s(i) = [ Σ_{i<A} s(i) + (N−A) s(A) ]  +  Σ_{i>A} ( s(i) − s(A) )

    The bracket is the mean of SAS_A. The sum is (N−1−A) times the mean over sizes of what a row gains when its active
    set grows from A to a; the rows after the first a of a random order are such rows. The differences are of the same
    rows, which is what keeps the variance low. With A = 0 it is N log p(x_n|x_a) and a term of mean zero.
    """
    N = len(order)
    total = sas_estimate(factor, order, A)
    factor.add(order[A:a])
    small, large = factor.score(order[a : a + HELD_OUT], (A, a))
    return total + (N - 1 - A) * float((large - small).mean())


@torch.no_grad()
def unbiased(gp: GP, A: int, n_estimates: int, draw: torch.Generator, *, update: Update = _silent) -> Evidence:
    """An estimate whose mean is log p(X|Z), with sizes of the active set stratified over A+1 … N−1."""
    N, started = len(gp), perf_counter()
    if A == N - 1:  # SAS misses nothing, whichever row is left
        check_memory(gp, A)
        factor = Factor(gp, A, operations(gp, A), update)
        value = sas_estimate(factor, torch.arange(N, device=gp.device), A)
        return _result("unbiased", factor, value, 0.0, 1, A, started)
    strata = strata_of(A, N, n_estimates)
    n_draws = [len(part) for part in torch.arange(n_estimates).tensor_split(len(strata))]
    # Drawn before anything is computed, so that what it takes is known
    sizes = [
        stratum[torch.randint(len(stratum), (n,), generator=draw)].tolist()
        for stratum, n in zip(strata, n_draws, strict=True)
    ]
    check_memory(gp, max(map(max, sizes)))
    work = sum(operations(gp, A, N - A) + operations(gp, a, HELD_OUT) for part in sizes for a in part)
    factor = Factor(gp, 0, work, update)
    # mean = Σ_s w_s mean_s          variance = Σ_s w_s² variance_s / n_s          w_s: share of the sizes in stratum s
    mean = variance = 0.0
    for stratum, part in zip(strata, sizes, strict=True):
        values = [corrected_estimate(factor.restart(a), _permutation(gp, draw), A, a) for a in part]
        share, found = len(stratum) / (N - 1 - A), torch.tensor(values, dtype=torch.float64)
        mean += share * float(found.mean())
        variance += share**2 * float(found.var()) / len(values)
    return _result("unbiased", factor, mean, variance**0.5, n_estimates, A, started)


def strata_of(A: int, N: int, n_estimates: int) -> list[Tensor]:
    """The sizes A+1 … N−1 in ranges of about equal length, as many as leave a few draws for each."""
    n_strata = max(1, min(n_estimates // PER_STRATUM, N - 1 - A))
    return list(torch.arange(A + 1, N).tensor_split(n_strata))


@torch.no_grad()
def curve(
    gp: GP, sizes: Sequence[int], A: int, n_estimates: int, draw: torch.Generator, *, update: Update = _silent
) -> EvidenceCurve:
    """s(a) for rising sizes a, all of them from one factor a repetition."""
    started, scores = perf_counter(), []
    largest = sizes[-1]
    check_memory(gp, largest)
    factor = Factor(gp, 0, n_estimates * operations(gp, largest, HELD_OUT), update)
    for _ in range(n_estimates):
        order = _permutation(gp, draw)
        factor.restart(largest).add(order[:largest])
        scores.append(factor.score(order[largest : largest + HELD_OUT], sizes).mean(1))
    return EvidenceCurve(
        sizes=torch.tensor(sizes).numpy(),
        scores=torch.stack(scores).numpy(force=True),
        n_features=gp.n_features,
        active_set_size=A,
        flops=factor.flops,
        seconds=perf_counter() - started,
    )


def doublings(A: int, N: int) -> list[int]:
    """Sizes for the curve: A, its halves down to A/128 and its doubles up to 4A and to nine tenths of the N rows."""
    most = max(1, 9 * N // 10)
    return sorted({min(max(1, round(A * 2.0**k)), most) for k in range(-7, 3)})


def operations(gp: GP, n: int, m: int = 0) -> int:
    """Floating-point operations of a factor of n rows, and of m rows scored with it (of those that are left)."""
    panels = [(a, min(PANEL, n - a)) for a in range(0, n, PANEL)]
    factor = sum(b * a * a + 2 * b * b * a + b**3 // 3 for a, b in panels) + n * n * gp.n_features
    return max(1, factor + min(m, len(gp) - n) * n * (n + 2 * gp.n_features))


def _parts(rows: Tensor) -> tuple[Tensor, ...]:
    return rows.split(PANEL) if len(rows) else ()  # type: ignore[no-untyped-call]


def _permutation(gp: GP, draw: torch.Generator) -> Tensor:
    return torch.randperm(len(gp), generator=draw).to(gp.device)


def _result(
    method: str, factor: Factor, mean: float, error: float, n_estimates: int, A: int | None, started: float
) -> Evidence:
    gp = factor.gp
    return Evidence(
        method=method,
        mean=mean,
        standard_error=error,
        n_rows=len(gp),
        n_features=gp.n_features,
        n_estimates=n_estimates,
        active_set_size=A,
        largest_factor=factor.largest,
        n_jittered=factor.n_jittered,
        dtype=_name(gp.dtype),
        memory=memory_needed(gp, factor.largest),
        flops=factor.flops,
        seconds=perf_counter() - started,
    )


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


# ---------------------------------------------------------------------------------------------------- memory


def memory_needed(gp: GP, n: int) -> int:
    """Bytes that a factor of n rows takes, with the rows themselves and what it works in."""
    # The triangle of L, U; then a block of rows against it, squared; X of a block in float64; tiles of the kernel
    b = min(PANEL, len(gp))
    factor, block = n * (n + b) // 2 + n * gp.n_features, 2 * b * n
    return gp.dtype.itemsize * (factor + block) + 8 * (3 * b * gp.n_features + 4 * b * b)


def memory_available(device: torch.device) -> int:
    """Bytes that can be taken now."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    limits = []
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        limits.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # of a container; "max" where there is none
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text(encoding="ascii")))
    return min(limits) if limits else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def amount(n_bytes: int) -> str:
    return f"{n_bytes / 2**30:.1f} GiB" if n_bytes >= 2**30 else f"{n_bytes / 2**20:.1f} MiB"


def check_memory(gp: GP, n: int) -> None:
    """Raise InputError where a factor of n rows does not fit into memory."""
    need, have = memory_needed(gp, n), memory_available(gp.device)
    if need > have:
        half = "dtype='float32' for half of that, " if gp.dtype == torch.float64 else ""
        raise InputError(
            f"A factor of {n} rows in {_name(gp.dtype)} needs {amount(need)} of memory. Got {amount(have)} that are "
            f"free. Use {half}fewer rows, or method='sas'."
        )
