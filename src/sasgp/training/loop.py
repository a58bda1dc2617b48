"""The training loop: batches, Adam, schedule, several processes, trouble. It knows nothing about Gaussian processes.

`Training` is iterated over: it yields a record after every epoch, and None in the middle of one where `pause` asks for
it, so that its caller decides what to show, when to save and when to stop. At every such moment `state_dict` says all
that another process needs to go on to the same bits.

All randomness is an argument: batches come from a generator made from (seed, epoch), a step's noise from one made from
(seed, rank, step). Nothing draws from torch's global state, so there is no random state to save.
"""

import hashlib
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn

__all__ = ["Alone", "DivergedError", "Epoch", "Ranks", "Rows", "Training", "generator", "one_cycle", "train"]

# Trouble: a step whose loss or gradient is not finite is dropped
IN_A_ROW = 5  # such steps until training returns to the last good state ...
LOWER = 0.3  # ... with this factor on the learning rate
MAX_RETURNS = 4  # .3⁴ = .008 of the learning rate: whatever is wrong then, it is not that
GOOD_STEPS = 100  # without trouble make a good state: a copy then costs a thousandth of the time


class DivergedError(ArithmeticError):
    """Training that meets no finite numbers any more. The message says which quantity, and what the model says."""


class Rows(Protocol):
    """The training data as the loop sees it: a number of rows, any of which can be asked for.

    Where reading costs time, two methods more are used: `segments(generator)` yields all indices in a random order that
    suits the disk, a segment at a time, and `stream(batches)` yields the indices and the rows of one batch after the
    other.
    """

    def __len__(self) -> int: ...

    def gather(self, rows: Tensor) -> Tensor:
        """Rows by index, [B] → [B, D], in the model's dtype and on its device."""
        ...


class Ranks(Protocol):
    """The processes that train together."""

    rank: int
    world: int

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        """Replace every tensor by its mean over the processes."""
        ...

    def sum_(self, tensor: Tensor) -> None:
        """Replace a tensor by its sum over the processes."""
        ...


class Alone:
    """One process."""

    rank, world = 0, 1

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        pass

    def sum_(self, tensor: Tensor) -> None:
        pass


@dataclass(frozen=True)
class Epoch:
    """What one epoch did. `loss` is its mean over the steps, of which `dropped` were left out for not being finite.

    `monitored` is what the model reports of itself.
    """

    epoch: int
    step: int
    loss: float
    learning_rate: float
    seconds: float
    dropped: int = 0
    monitored: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Position:
    """Where training stands. `batch` counts what all processes did of this epoch, so that their number may change."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    sum_of_losses: float = 0.0  # of this epoch
    n_losses: int = 0
    dropped: int = 0
    last_loss: float = math.nan  # of an epoch: stands in where every step of the next one is dropped
    bad_in_a_row: int = 0
    returns: int = 0
    good_steps: int = 0  # since the last trouble or good state
    factor: float = 1.0  # on the learning rate


def generator(*key: int | str) -> torch.Generator:
    """A CPU random generator that depends on the key alone, so that step 1000 can be drawn without steps 0 to 999."""
    digest = hashlib.blake2b("/".join(map(str, key)).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def one_cycle(progress: float, warm_up: float = 0.3, start: float = 0.04, end: float = 1e-4) -> float:
    """Factor on the learning rate at a point of training, 0 to 1: cosine up to 1, then cosine down (Smith, 2018)."""
    if progress < warm_up:
        low, high, t = start, 1.0, progress / warm_up
    else:
        low, high, t = 1.0, end, (progress - warm_up) / (1 - warm_up)
    return low + (high - low) * 0.5 * (1 - math.cos(math.pi * t))


def batches(
    n_rows: int,
    batch_size: int,
    seed: int,
    epoch: int,
    *,
    segments: Callable[[torch.Generator], Iterable[Tensor]] | None = None,
    first: int = 0,
    group: int = 1,
    at_least: int = 0,
) -> Iterator[Tensor]:
    """Row indices of an epoch's batches: every row at least once, every batch of full size and a uniform draw.

    What the last batch lacks is filled up from the start of the same permutation, whose rows it cannot hold yet. With
    fewer rows than batch_size a batch is all of them.

    Parameters
    ----------
    n_rows, batch_size, seed, epoch : int
    segments : callable, optional
        Yields the permutation piece by piece. By default it is one piece, a uniform permutation of all rows.
    first : int
        Batches to leave out at the start: they were done before.
    group : int
        The number of those that follow is a multiple of this, so that every process has as many.
    at_least : int
        Batches of the whole epoch, where that is more than the rows make: a process with a smaller share of the rows
        has as many as the others.
    """
    batch_size = min(batch_size, n_rows)
    n_batches = max(math.ceil(n_rows / batch_size), at_least)
    n_batches = first + math.ceil((n_batches - first) / group) * group
    draw = generator(seed, "epoch", epoch)
    rest = head = torch.empty(0, dtype=torch.int64)
    done = 0
    for segment in [torch.randperm(n_rows, generator=draw)] if segments is None else segments(draw):
        if len(head) < group * batch_size:
            head = torch.cat([head, segment[: group * batch_size - len(head)]])
        rest = torch.cat([rest, segment])
        for _ in range(len(rest) // batch_size):
            if done >= first:
                yield rest[:batch_size]
            rest, done = rest[batch_size:], done + 1
    while done < n_batches:
        # What is left over is filled up from the start; whole batches more are drawn anew, each with its own active set
        again = head if len(rest) else head[torch.randperm(len(head), generator=draw)]
        if done >= first:
            yield torch.cat([rest, again])[:batch_size]
        rest, done = rest[:0], done + 1


class Training:
    """Trains `model`, yielding after every epoch.

    Parameters
    ----------
    model : Module
        `model(X, rows, n_total, generator)` returns the loss of a batch; an ArithmeticError counts as one that is not
        finite. A method `monitor()`, where there is one, returns numbers for the record, and `diagnose(X, rows)` for
        the message when training fails.
    data : Rows
        Where the rows come from.
    groups : sequence of mappings
        Parameter groups for Adam, each with its `lr`: the peak of the schedule. A group with `rows=True` holds one
        entry for every row of data. Each process owns a random share of the rows then, and moves their entries alone.
    batch_size, max_epochs, seed : int
        A batch holds at most as many rows as there are. With several processes each takes such a batch in every step.
    schedule : callable
        Maps the progress of training, 0 to 1, to a factor on every group's learning rate.
    on_step : callable, optional
        Called with (step, total steps, mean loss of this epoch) after each step.
    pause : callable, optional
        Asked after each step; where it is true in any process, all yield None.
    ranks : Ranks
        The processes that train together. Each estimates the objective of all rows from its own batch; the mean of
        their gradients is the gradient of the mean estimate.
    """

    def __init__(
        self,
        model: nn.Module,
        data: Rows,
        groups: Sequence[Mapping[str, Any]],
        *,
        batch_size: int,
        max_epochs: int,
        seed: int,
        schedule: Callable[[float], float] = one_cycle,
        on_step: Callable[[int, int, float], None] | None = None,
        pause: Callable[[], bool] | None = None,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self.data, self.seed, self.max_epochs = model, data, seed, max_epochs
        self.schedule, self.on_step, self.pause = schedule, on_step, pause
        self.ranks: Ranks = Alone() if ranks is None else ranks
        self.optimiser = torch.optim.Adam([dict(group) for group in groups], fused=True)
        self.peaks = [group["lr"] for group in self.optimiser.param_groups]
        by_row = [p for group in self.optimiser.param_groups for p in group["params"] if group.get("rows")]
        self.by_row = by_row if self.ranks.world > 1 else []
        everything = [p for group in self.optimiser.param_groups for p in group["params"]]
        self.shared = [p for p in everything if not any(p is other for other in self.by_row)]
        self.parameters = [*self.shared, *self.by_row]
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}

        N, world = len(data), self.ranks.world
        self.owned: Tensor | None = None
        if self.by_row:
            # Shares are random, so a batch from one is a uniform draw from all N rows, and its weights are those of N
            order = torch.randperm(N, generator=generator(seed, "share", world))
            self.owned = torch.zeros(N, dtype=torch.bool).index_fill_(0, order[self.ranks.rank :: world], True)
            self.batch_size = min(batch_size, N // world)
            self.n_batches = world * math.ceil(math.ceil(N / world) / self.batch_size)
        else:
            self.batch_size = min(batch_size, N)
            self.n_batches = math.ceil(N / self.batch_size)
        self.total_steps = max_epochs * math.ceil(self.n_batches / world)
        self.position = Position()
        self.good: dict[str, Any] | None = None  # the last good state, None where it is the present one

    # ---------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on. Every process must call it; what it holds does not depend on their number."""
        self._collect()
        return {"position": asdict(self.position), **self._tensors(), "good": self.good}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.position = Position(**state["position"])
        self.model.load_state_dict(state["model"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.good = state["good"]

    def _tensors(self) -> dict[str, Any]:
        return {"model": self.model.state_dict(), "optimiser": self.optimiser.state_dict()}

    def _collect(self) -> None:
        """Make rows' entries, of which each process moves its own, the same everywhere."""
        if self.owned is None:
            return
        for parameter in self.by_row:
            state = self.optimiser.state.get(parameter, {})
            for tensor in (parameter.data, *(value for value in state.values() if value.shape == parameter.shape)):
                tensor[~self.owned.to(tensor.device)] = 0
                self.ranks.sum_(tensor)

    # ---------------------------------------------------------------------------------------------- the loop

    def __iter__(self) -> Iterator[Epoch | None]:
        here, N = self.position, len(self.data)
        started = time.monotonic() - here.seconds
        monitor: Callable[[], Mapping[str, float]] = getattr(self.model, "monitor", dict)
        self.model.train()
        while here.epoch < self.max_epochs:
            stream = getattr(self.data, "stream", None) or self._gathered
            for rows, X in stream(self._plan()):
                progress = (here.epoch * self.n_batches + here.batch) / max(self.max_epochs * self.n_batches - 1, 1)
                factor = here.factor * self.schedule(min(progress, 1.0))
                for group, peak in zip(self.optimiser.param_groups, self.peaks, strict=True):
                    group["lr"] = peak * factor
                paused = self._step(X, rows, N)
                here.seconds = time.monotonic() - started
                if self.on_step is not None:
                    mean = here.sum_of_losses / here.n_losses if here.n_losses else here.last_loss
                    self.on_step(here.step, self.total_steps, mean)
                if paused:
                    yield None
            if here.n_losses:
                here.last_loss = here.sum_of_losses / here.n_losses
            record = Epoch(
                epoch=here.epoch + 1,
                step=here.step,
                loss=here.last_loss,
                learning_rate=self.optimiser.param_groups[0]["lr"],
                seconds=here.seconds,
                dropped=here.dropped,
                monitored=dict(monitor()),
            )
            here.epoch, here.batch = here.epoch + 1, 0
            here.sum_of_losses, here.n_losses, here.dropped = 0.0, 0, 0
            self._collect()
            self.model.eval()
            yield record
            self.model.train()
        self.model.eval()

    def _gathered(self, plan: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        return ((rows, self.data.gather(rows)) for rows in plan)

    def _plan(self) -> Iterator[Tensor]:
        """Batches of this process in the rest of the epoch."""
        here, rank, world = self.position, self.ranks.rank, self.ranks.world
        segments = getattr(self.data, "segments", None)
        key = (self.batch_size, self.seed, here.epoch)
        if self.owned is None:
            every = batches(len(self.data), *key, segments=segments, first=here.batch, group=world)
            return islice(every, rank, None, world)
        whole: Callable[[torch.Generator], Iterable[Tensor]] = segments or (
            lambda draw: [torch.randperm(len(self.data), generator=draw)]
        )
        owned, n_owned = self.owned, int(self.owned.sum())
        return batches(
            n_owned,
            *key,
            segments=lambda draw: (segment[owned[segment]] for segment in whole(draw)),
            first=here.batch // world,
            at_least=self.n_batches // world,  # shares differ by a row at the most, and that may be a batch
        )

    def _step(self, X: Tensor, rows: Tensor, n_total: int) -> bool:
        """One step, or none where its numbers are not finite. Returns whether some process wants a pause."""
        here = self.position
        if self.good is None and here.good_steps == 0:
            self._collect()
            self.good = deepcopy(self._tensors())
        self.optimiser.zero_grad(set_to_none=True)
        reason = ""
        try:
            loss = self.model(X, rows, n_total, generator(self.seed, self.ranks.rank, here.step))
            loss.backward()
            loss = loss.detach()
        except ArithmeticError as error:  # a matrix that has no factor, for one: what other processes see as NaN
            loss, reason = torch.full((), math.nan, dtype=X.dtype, device=X.device), str(error)
        paused = self.pause is not None and self.pause()
        if self.ranks.world > 1:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            flag = loss.new_tensor(float(paused))
            # The mean of NaN and anything is NaN: all processes drop the same step
            self.ranks.mean_([*(p.grad for p in self.shared if p.grad is not None), loss, flag])
            for parameter in self.by_row:
                # (1/W) Σ_r L̂_r has this row in one L̂_r alone
                assert parameter.grad is not None
                parameter.grad /= self.ranks.world
            paused = bool(flag)
        # A rank's rows are its own: that their gradient is finite is for all to know
        known = [p for p in self.parameters if p.grad is not None]
        norms = torch._foreach_norm([p.grad for p in known if p.grad is not None]) if known else ()
        if self.by_row:
            worst = torch.stack(norms[-len(self.by_row) :]).sum()
            self.ranks.mean_([worst])
            norms = (*norms[: -len(self.by_row)], *[worst] * len(self.by_row))
        value, *sizes = torch.stack([loss, *(norm.to(loss.dtype) for norm in norms)]).tolist()
        here.step, here.batch = here.step + 1, here.batch + self.ranks.world
        if math.isfinite(value) and math.isfinite(math.fsum(sizes)):
            self.optimiser.step()
            here.sum_of_losses, here.n_losses = here.sum_of_losses + value, here.n_losses + 1
            here.bad_in_a_row, here.good_steps = 0, here.good_steps + 1
            if here.good_steps == GOOD_STEPS:
                self.good, here.good_steps, here.returns = None, 0, 0  # it is copied before the next step
            return paused
        here.dropped, here.bad_in_a_row, here.good_steps = here.dropped + 1, here.bad_in_a_row + 1, 0
        if here.bad_in_a_row >= IN_A_ROW:
            self._return(lambda: self._trouble(value, known, sizes, reason, X, rows))
        return paused

    def _return(self, trouble: Callable[[], str]) -> None:
        """Back to the last good state with a lower learning rate; the rows go on, lest the same ones fail again."""
        here = self.position
        if here.returns == MAX_RETURNS:
            raise DivergedError(trouble())
        assert self.good is not None
        self.model.load_state_dict(self.good["model"])
        self.optimiser.load_state_dict(deepcopy(self.good["optimiser"]))
        here.bad_in_a_row, here.returns, here.factor = 0, here.returns + 1, here.factor * LOWER

    def _trouble(
        self, loss: float, parameters: list[nn.Parameter], sizes: list[float], reason: str, X: Tensor, rows: Tensor
    ) -> str:
        here = self.position
        bad = [self.names.get(id(p), "?") for p, size in zip(parameters, sizes, strict=True) if not math.isfinite(size)]
        what = f"a loss of {loss}" if not math.isfinite(loss) else f"a gradient that is not, in {', '.join(bad[:5])}"
        diagnose = getattr(self.model, "diagnose", None)
        known = diagnose(X, rows) if diagnose is not None else getattr(self.model, "monitor", dict)()
        says = ", ".join(f"{name} {value:.3g}" for name, value in known.items())
        return (
            f"Expected finite numbers from step {here.step}. Got {what}, {IN_A_ROW} times in a row, after "
            f"{here.returns} returns to an earlier state and with the learning rate at {here.factor:.2g} of what was "
            f"asked for.{f' The model has {says}.' if says else ''}{f' {reason}' if reason else ''} "
            "Use dtype='float64' or a smaller learning rate, and look for extreme values in the data."
        )


def train(model: nn.Module, data: Rows, groups: Sequence[Mapping[str, Any]], **options: Any) -> Iterator[Epoch]:
    """Train from the start to the end, yielding after every epoch; the arguments are those of `Training`."""
    for epoch in Training(model, data, groups, **options):
        if epoch is not None:
            yield epoch
