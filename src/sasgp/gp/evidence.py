"""How probable the data are: log p(X|Z), exactly, as a bound, by stochastic active sets, or by an unbiased estimate.

Let s(a) be the mean of log p(x_n | x_A) over active sets A of size a and rows n outside A. Then

    log p(X|Z) = Σ_{a<N} s(a)          E[SAS_A] = Σ_{a<A} s(a) + (N−A) s(A).

The unbiased estimate is SAS_A plus a random part of what it misses. The bound is that of `sasgp.gp.row_sums`.
docs/evidence.md explains all of them in words.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from sasgp.data.blocks import VALUES_AT_ONCE, slices
from sasgp.data.memory import amount
from sasgp.gp.factor import GP, Factor, Update, check_memory, dtype_name, memory_needed, operations, parts, silent
from sasgp.gp.masked_factor import MaskedFactor, MaskedGP, factor_of
from sasgp.gp.masked_sums import PatternSums
from sasgp.gp.row_sums import RowSums

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Evidence", "EvidenceCurve", "bound", "curve", "doublings", "exact", "sas", "unbiased"]

HELD_OUT = 1024  # rows that a large factor predicts: each costs a² operations, the factor itself a³/3
PER_STRATUM = 4  # draws from each range of sizes, enough to estimate their variance


# ---------------------------------------------------------------------------------------------------- results


@dataclass(frozen=True)
class Evidence:
    """An estimate of log p(X|Z), in nats, and what it cost.

    Attributes
    ----------
    method : str
        "exact", "bound", "sas" or "unbiased".
    mean, standard_error : float
        The estimate, and the standard deviation of its error. With "sas", the error is relative to the mean of SAS_A,
        which is not the evidence itself.
    n_rows, n_features : int
        N and D.
    n_estimates : int
        Number of independent estimates that were averaged.
    active_set_size : int or None
        A, for the methods that use one.
    largest_factor : int
        Rows of the largest matrix that was factored.
    n_jittered : int
        Rows whose covariance had no Cholesky factor without jitter on its diagonal; usually 0. If it is not 0, the
        result is that of slightly more noise: use float64.
    dtype : str
        Precision of the factor.
    memory : int
        Bytes that the largest factor and its work space take.
    flops : int
        Floating-point operations.
    seconds : float
    missed_share : float or None
        With "bound", the share of the prior's variance at the rows that the positions cannot express. The bound is
        tight if it is small.
    n_missing : int
        Values that are missing. They add nothing.
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
    missed_share: float | None = None
    n_missing: int = 0

    @property
    def per_value(self) -> float:
        """Nats per observed value, N·D if none is missing: the unit of the training objective."""
        return self.mean / (self.n_rows * self.n_features - self.n_missing)

    @property
    def standard_error_per_value(self) -> float:
        return self.standard_error / (self.n_rows * self.n_features - self.n_missing)

    def lines(self) -> list[tuple[str, str | Path, str]]:
        """The result as lines of name, value and note."""
        repeated = self.n_estimates > 1
        error = f" ± {self.standard_error:.2g}" if repeated else ""
        each = f" ± {self.standard_error_per_value:.2g}" if repeated else ""
        names = {"sas": f"SAS, A = {self.active_set_size}", "bound": "log p(X|Z), at least"}
        name = names.get(self.method, f"log p(X|Z), {self.method}")
        estimates = f"{self.n_estimates} estimates, " * repeated
        work = f"{self.flops:.2g} operations in {self.dtype}"
        size = f"largest factor {self.largest_factor} rows, {amount(self.memory)}"
        holes = f", of which {self.n_missing} are missing" if self.n_missing else ""
        lines: list[tuple[str, str | Path, str]] = [
            (name, f"{self.mean:.2f}{error}", "nats"),
            ("per value", f"{self.per_value:.5f}{each}", f"nats, {self.n_rows} × {self.n_features} values{holes}"),
            ("took", f"{self.seconds:.1f} s", f"{estimates}{work}, {size}"),
        ]
        if self.missed_share is not None:
            missed = f"of the variance, by {self.largest_factor} positions: the bound is tight if this is small"
            lines.append(("missed", f"{self.missed_share:.2%}", missed))
        if self.n_jittered:
            lines.append(("jitter", f"{self.n_jittered} rows", "had a singular covariance: use float64"))
        return lines

    def __str__(self) -> str:
        return "\n".join(f"{name:<22}{value!s:<24}{note}" for name, value, note in self.lines())


@dataclass(frozen=True)
class EvidenceCurve:
    """The curve s(a): the mean log density of a row, given `a` others drawn at random.

    Attributes
    ----------
    sizes : ndarray [S]
        Sizes a of the active set.
    scores : ndarray [R, S]
        Nats per row, in each of R independent repetitions. In one repetition, the held-out rows are the same for all
        sizes and the active set only grows, so differences between sizes vary much less than the values.
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
        """Nats per row, [S]."""
        return self.scores.mean(0)

    @property
    def standard_error(self) -> "NDArray[Any]":
        """Standard error of `mean`, [S]."""
        return self.scores.std(0, ddof=1) / len(self.scores) ** 0.5

    def gain(self) -> tuple[int, int, float, float] | None:
        """What more active points would gain.

        Returns the sizes A and 2A, or those nearest to them on the curve, the gain from one to the other in nats per
        value, and its standard error. None if the curve has no size above A.
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
        """What the curve shows, in one sentence."""
        found = self.gain()
        if found is None:
            return f"No size above A = {self.active_set_size} was tried."
        small, large, gain, error = found
        how = f"{'Doubling' if large == 2 * small else 'Raising'} A from {small} to {large}"
        if abs(gain) <= 2 * error:
            return f"{how} would gain nothing that can be told from 0: {gain:+.2g} ± {error:.1g} nats per value."
        return f"{how} would gain {gain:+.2g} ± {error:.1g} nats per value."


# ---------------------------------------------------------------------------------------------------- estimates


@torch.no_grad()
def exact(gp: GP, update: Update = silent) -> Evidence:
    """The log evidence log p(X|Z) itself: the sum of all terms of the chain rule."""
    N, started = len(gp), perf_counter()
    check_memory(gp, N)
    every = torch.arange(N, device=gp.device)
    if isinstance(gp, MaskedGP):  # one pattern after the other, so that memory holds one factor
        total, empty = 0.0, MaskedFactor(gp)
        for i, (one, rows) in enumerate(gp.parts):
            factor = Factor(one, int(rows.sum()))
            total += float(factor.add(every[rows]).sum())
            empty.flops, empty.largest = empty.flops + factor.flops, max(empty.largest, len(factor))
            empty.n_jittered += factor.n_jittered
            update((i + 1) / len(gp.parts))
        return _result("exact", empty, total, 0.0, 1, None, started)
    factor = Factor(gp, N, operations(gp, N), update)
    return _result("exact", factor, float(factor.add(every).sum()), 0.0, 1, None, started)


@torch.no_grad()
def bound(gp: GP, U: Tensor, update: Update = silent) -> Evidence:
    """A lower bound on log p(X|Z) from M positions U [M, Q], in one pass over the rows; exact if U are all latents."""
    N, M, D, started = len(gp), len(U), gp.n_features, perf_counter()
    masked = isinstance(gp, MaskedGP)
    sums = (PatternSums if masked else RowSums)(gp.kernel, U, D)
    for block in slices(N, max(M, D)):
        index = torch.arange(block.start, block.stop, device=gp.device)
        sums.add(gp.take(index), gp.Z[index])
        update(block.stop / N)
    return Evidence(
        method="bound",
        mean=sums.bound(gp.noise) + (gp.total_offset if isinstance(gp, MaskedGP) else N * gp.row_offset),
        standard_error=0.0,
        n_rows=N,
        n_features=D,
        n_estimates=1,
        active_set_size=None,
        largest_factor=M,
        n_jittered=0,
        dtype="float64",
        memory=8 * (3 * M * M + M * D + VALUES_AT_ONCE),
        flops=N * (4 * M * M + 2 * M * D),  # a_n, S and b
        seconds=perf_counter() - started,
        missed_share=sums.missed_share,
        n_missing=_n_missing(gp),
    )


def sas_evidence_estimate(factor: Factor, order: Tensor, A: int) -> float:
    """Eq. 6 with the first A rows of `order` as the active set, added to an empty factor; it predicts the R others."""
    # log p(X_A|Z_A) + (N−A)/R Σ_{n∈R} log p(x_n|x_A)
    N, R = len(factor.gp), len(order) - A
    log_p = float(factor.add(order[:A]).sum())
    rest = sum(float(factor.score(part, [A]).sum()) for part in parts(order[A:]))
    return log_p + (N - A) / R * rest


@torch.no_grad()
def sas(
    gp: GP, A: int, n_estimates: int, draw: torch.Generator, *, B: int | None = None, update: Update = silent
) -> Evidence:
    """The mean of SAS_A (Eq. 6) over random active sets of A rows. Each predicts all other rows, or B − A of them.

    Its expectation is Σ_{a<A} s(a) + (N−A) s(A).
    """
    N, started = len(gp), perf_counter()
    check_memory(gp, A)
    factor = factor_of(gp, 0, n_estimates * operations(gp, A, (B or N) - A), update)
    values = [sas_evidence_estimate(factor.restart(A), _permutation(gp, draw)[:B], A) for _ in range(n_estimates)]
    found = torch.tensor(values, dtype=torch.float64)
    error = float(found.std()) / n_estimates**0.5
    return _result("sas", factor, float(found.mean()), error, n_estimates, A, started)


def corrected_estimate(factor: Factor, order: Tensor, A: int, a: int) -> float:
    """One unbiased estimate, from a random order of all rows and a size `a` drawn uniformly from A+1 … N−1.

    log p(X|Z) = Σ_i s(i) = [ Σ_{i<A} s(i) + (N−A) s(A) ]  +  Σ_{i>A} ( s(i) − s(A) )

    The bracket is the mean of SAS_A. The sum is (N−1−A) times what a row gains when its active set grows from A to a,
    averaged over sizes. The rows after the first `a` of a random order show that gain. Both scores in a difference are
    those of the same rows, which keeps the variance low. With A = 0 this is the N log p(x_n|x_a) of the docs, with
    log p(x_n), whose sum is known, as a control variate.
    """
    N = len(order)
    total = sas_evidence_estimate(factor, order, A)
    factor.add(order[A:a])
    small, large = factor.score(order[a : a + HELD_OUT], (A, a))
    return total + (N - 1 - A) * float((large - small).mean())


@torch.no_grad()
def unbiased(gp: GP, A: int, n_estimates: int, draw: torch.Generator, *, update: Update = silent) -> Evidence:
    """An estimate whose expectation is log p(X|Z). Sizes of the active set are stratified over A+1 … N−1."""
    N, started = len(gp), perf_counter()
    if A == N - 1:  # SAS misses nothing, whichever row is left out
        check_memory(gp, A)
        factor = factor_of(gp, A, operations(gp, A), update)
        value = sas_evidence_estimate(factor, torch.arange(N, device=gp.device), A)
        return _result("unbiased", factor, value, 0.0, 1, A, started)
    strata = strata_of(A, N, n_estimates)
    n_draws = [len(part) for part in torch.arange(n_estimates).tensor_split(len(strata))]
    # Drawn before anything is computed, so that memory and work are known
    sizes = [
        stratum[torch.randint(len(stratum), (n,), generator=draw)].tolist()
        for stratum, n in zip(strata, n_draws, strict=True)
    ]
    check_memory(gp, max(map(max, sizes)))
    work = sum(operations(gp, A, N - A) + operations(gp, a, HELD_OUT) for part in sizes for a in part)
    factor = factor_of(gp, 0, work, update)
    # mean = Σ_s w_s mean_s          variance = Σ_s w_s² variance_s / n_s          w_s: share of the sizes in stratum s
    mean = variance = 0.0
    for stratum, part in zip(strata, sizes, strict=True):
        values = [corrected_estimate(factor.restart(a), _permutation(gp, draw), A, a) for a in part]
        share, found = len(stratum) / (N - 1 - A), torch.tensor(values, dtype=torch.float64)
        mean += share * float(found.mean())
        variance += share**2 * float(found.var()) / len(values)
    return _result("unbiased", factor, mean, variance**0.5, n_estimates, A, started)


def strata_of(A: int, N: int, n_estimates: int) -> list[Tensor]:
    """The sizes A+1 … N−1, cut into ranges of about equal length; each gets at least `PER_STRATUM` draws if it can."""
    n_strata = max(1, min(n_estimates // PER_STRATUM, N - 1 - A))
    return list(torch.arange(A + 1, N).tensor_split(n_strata))


@torch.no_grad()
def curve(
    gp: GP, sizes: Sequence[int], A: int, n_estimates: int, draw: torch.Generator, *, update: Update = silent
) -> EvidenceCurve:
    """The curve s(a) at increasing sizes a. Each repetition needs only one factor."""
    started, scores = perf_counter(), []
    largest = sizes[-1]
    check_memory(gp, largest)
    factor = factor_of(gp, 0, n_estimates * operations(gp, largest, HELD_OUT), update)
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
    """Sizes for the curve: A, halved down to A/128 and doubled up to 4A, but at most nine tenths of the N rows."""
    most = max(1, 9 * N // 10)
    return sorted({min(max(1, round(A * 2.0**k)), most) for k in range(-7, 3)})


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
        dtype=dtype_name(gp.dtype),
        memory=memory_needed(gp, factor.largest),
        flops=factor.flops,
        seconds=perf_counter() - started,
        n_missing=_n_missing(gp),
    )


def _n_missing(gp: GP) -> int:
    return len(gp) * gp.n_features - gp.n_values if isinstance(gp, MaskedGP) else 0
