"""The training loop: batches, Adam, schedule, several processes, failing steps. It knows no Gaussian processes.

`Training` is an iterable. It yields a record after every epoch, and None within an epoch if `pause` asks for it, so
that the caller decides what to show, when to save and when to stop. At each of these moments `state_dict` holds all
that another process needs to go on with the same bits.

All randomness is an argument: batches come from a generator made from (seed, epoch), the noise of a step from one made
from (seed, rank, step). Nothing draws from torch's global state, so there is no random state to save.
"""

import hashlib
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor, nn

__all__ = ["Adam", "Alone", "DivergedError", "Epoch", "Ranks", "Rows", "Training", "generator", "one_cycle", "train"]

# A step whose loss or gradient is not finite is dropped
IN_A_ROW = 5  # after so many in a row, training returns to the last good state ...
LOWER = 0.3  # ... with this factor on the learning rate
MAX_RETURNS = 4  # .3⁴ = .008 of the learning rate: if that does not help, the learning rate is not the problem
GOOD_STEPS = 100  # steps in a row that make a good state: often enough, and copying it takes a thousandth of the time


class DivergedError(ArithmeticError):
    """Training gives no finite numbers any more. The message says which are not finite, and what the model reports."""


class Rows(Protocol):
    """The training data as the loop sees them: rows that can be read by index.

    Data that are slow to read may have two more methods: `segments(generator)` yields all indices in a random order
    that suits the disk, one segment at a time, and `stream(batches)` yields the indices and the rows of each batch.
    """

    def __len__(self) -> int: ...

    def gather(self, index: Tensor) -> Tensor:
        """Rows by index, [B] → [B, D], in the model's dtype and on its device."""
        ...


class Ranks(Protocol):
    """The processes that train together."""

    rank: int
    world: int

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        """Replace each tensor with its mean over the processes."""
        ...

    def sum_(self, tensor: Tensor) -> None:
        """Replace a tensor with its sum over the processes."""
        ...


class Alone:
    """One process."""

    rank, world = 0, 1

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        pass

    def sum_(self, tensor: Tensor) -> None:
        pass


class Adam(torch.optim.Adam):
    """torch's Adam, with the same state and the same bits, but without its compiler.

    torch marks these methods for torch.compile, and imports its compiler when the first of them is called. That takes
    about as long as importing torch itself, and nothing is compiled here. So the marks are taken off.
    """

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)
    step = torch.no_grad()(inspect.unwrap(torch.optim.Adam.step))


@dataclass(frozen=True)
class Epoch:
    """The record of one epoch. `loss` is the mean over its steps, except the `dropped` ones, which were not finite.

    `monitored` holds the numbers that the model reports.
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
    """How far training is. `batch` counts those of all processes in this epoch, so that their number may change."""

    epoch: int = 0
    batch: int = 0
    step: int = 0
    seconds: float = 0.0
    sum_of_losses: float = 0.0  # of this epoch
    n_losses: int = 0
    dropped: int = 0
    last_loss: float = math.nan  # of an epoch: used again if all steps of the next one are dropped
    bad_in_a_row: int = 0
    returns: int = 0
    good_steps: int = 0  # since the last dropped step or good state
    factor: float = 1.0  # on the learning rate


def generator(*key: int | str) -> torch.Generator:
    """A CPU random generator that depends only on the key, so that step 1000 can be drawn without steps 0 to 999."""
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
    """Row indices of the batches of an epoch. Each row occurs at least once; each batch is full and a uniform draw.

    The last batch is filled up from the start of the same permutation, with rows that it does not hold yet. With fewer
    rows than batch_size, a batch has all of them.

    Parameters
    ----------
    n_rows, batch_size, seed, epoch : int
    segments : callable, optional
        Yields the permutation piece by piece. By default it is one piece, a uniform permutation of all rows.
    first : int
        Batches to skip at the start, because they were done before.
    group : int
        The number of batches after these is a multiple of `group`, so that all processes have equally many.
    at_least : int
        The least number of batches in the epoch, so that a process with fewer rows has as many batches as the others.
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
        # An incomplete batch is filled up from the start. Further batches are new draws, each with its own active set
        again = head if len(rest) else head[torch.randperm(len(head), generator=draw)]
        if done >= first:
            yield torch.cat([rest, again])[:batch_size]
        rest, done = rest[:0], done + 1


class Training:
    """Trains `model`, and yields after every epoch.

    Parameters
    ----------
    model : Module
        `model(X, index, n_total, generator)` returns the loss of a batch; an ArithmeticError counts as a loss that is
        not finite. Two methods are optional: `monitor()` returns numbers for the record, `diagnose(X, index)` those
        for the message if training fails.
    data : Rows
        The rows to train on.
    groups : sequence of mappings
        Parameter groups for Adam, each with its `lr`: the peak of the schedule. A group with `by_row=True` has one
        entry per row of data. Each process then owns a random share of the rows, and only it moves their entries.
    batch_size, max_epochs, seed : int
        A batch holds at most as many rows as there are. With several processes, each takes its own batch in every step.
    schedule : callable
        Maps the progress of training, 0 to 1, to a factor on every group's learning rate.
    on_step : callable, optional
        Called with (step, total steps, mean loss of this epoch) after each step.
    pause : callable, optional
        Called after each step. If it returns True in any process, all of them yield None.
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
        self.optimiser = Adam([dict(group) for group in groups], fused=True)
        self.peaks = [group["lr"] for group in self.optimiser.param_groups]
        by_row = [p for group in self.optimiser.param_groups for p in group["params"] if group.get("by_row")]
        self.by_row = by_row if self.ranks.world > 1 else []
        everything = [p for group in self.optimiser.param_groups for p in group["params"]]
        self.shared = [p for p in everything if not any(p is other for other in self.by_row)]
        self.parameters = [*self.shared, *self.by_row]
        self.names = {id(parameter): name for name, parameter in model.named_parameters()}

        N, world = len(data), self.ranks.world
        self.owned: Tensor | None = None
        if self.by_row:
            # Shares are random, so a batch from one is a uniform draw from all N rows, with the weights of N rows
            order = torch.randperm(N, generator=generator(seed, "share", world))
            self.owned = torch.zeros(N, dtype=torch.bool).index_fill_(0, order[self.ranks.rank :: world], True)
            self.batch_size = min(batch_size, N // world)
            self.n_batches = world * math.ceil(math.ceil(N / world) / self.batch_size)
        else:
            self.batch_size = min(batch_size, N)
            self.n_batches = math.ceil(N / self.batch_size)
        self.total_steps = max_epochs * math.ceil(self.n_batches / world)
        self.position = Position()
        self.good: dict[str, Any] | None = None  # the last good state, None if it is the present one

    # ---------------------------------------------------------------------------------------------- state

    def state_dict(self) -> dict[str, Any]:
        """All that is needed to go on. All processes must call it. The state does not depend on their number."""
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
        """Give all processes the same entries of rows, of which each process moves only its own."""
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
            for index, X in stream(self._plan()):
                progress = (here.epoch * self.n_batches + here.batch) / max(self.max_epochs * self.n_batches - 1, 1)
                factor = here.factor * self.schedule(min(progress, 1.0))
                for group, peak in zip(self.optimiser.param_groups, self.peaks, strict=True):
                    group["lr"] = peak * factor
                paused = self._step(X, index, N)
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
        if math.isnan(here.last_loss):
            raise DivergedError(
                f"Training failed: the loss or its gradient was not finite in any of its {here.step} steps. Use "
                "dtype='float64' or a smaller learning rate, and look for extreme values in the data."
            )

    def _gathered(self, plan: Iterable[Tensor]) -> Iterator[tuple[Tensor, Tensor]]:
        return ((index, self.data.gather(index)) for index in plan)

    def _plan(self) -> Iterator[Tensor]:
        """The batches of this process in the rest of the epoch."""
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
            at_least=self.n_batches // world,  # shares differ by at most one row, which may need one more batch
        )

    def _step(self, X: Tensor, index: Tensor, n_total: int) -> bool:
        """Take one step, or drop it if its numbers are not finite. Returns whether some process wants a pause."""
        here = self.position
        if self.good is None and here.good_steps == 0:
            self._collect()
            self.good = deepcopy(self._tensors())
        self.optimiser.zero_grad(set_to_none=True)
        reason = ""
        try:
            loss = self.model(X, index, n_total, generator(self.seed, self.ranks.rank, here.step))
            loss.backward()
            loss = loss.detach()
        except ArithmeticError as error:  # such as a matrix without a factor; other processes see NaN
            loss, reason = torch.full((), math.nan, dtype=X.dtype, device=X.device), str(error)
        paused = self.pause is not None and self.pause()
        if self.ranks.world > 1:
            for parameter in self.parameters:
                parameter.grad = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
            flag = loss.new_tensor(float(paused))
            # A mean with NaN in it is NaN, so all processes drop the same step
            self.ranks.mean_([*(p.grad for p in self.shared if p.grad is not None), loss, flag])
            for parameter in self.by_row:
                # In (1/W) Σ_r L̂_r, only one L̂_r has this row
                assert parameter.grad is not None
                parameter.grad /= self.ranks.world
            paused = bool(flag)
        # Only one process has the gradient of a row, but all must know whether it is finite
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
            self._return(lambda: self._trouble(value, known, sizes, reason, X, index))
        return paused

    def _return(self, trouble: Callable[[], str]) -> None:
        """Return to the last good state with a lower learning rate. Training goes on with the next rows."""
        here = self.position
        if here.returns == MAX_RETURNS:
            raise DivergedError(trouble())
        assert self.good is not None
        self.model.load_state_dict(self.good["model"])
        self.optimiser.load_state_dict(deepcopy(self.good["optimiser"]))
        here.bad_in_a_row, here.returns, here.factor = 0, here.returns + 1, here.factor * LOWER

    def _trouble(
        self, loss: float, parameters: list[nn.Parameter], sizes: list[float], reason: str, X: Tensor, index: Tensor
    ) -> str:
        here = self.position
        bad = [self.names.get(id(p), "?") for p, size in zip(parameters, sizes, strict=True) if not math.isfinite(size)]
        gradient = f"The gradient of {', '.join(bad[:5])} was not finite"
        what = gradient if math.isfinite(loss) else f"The loss was {loss}"
        diagnose = getattr(self.model, "diagnose", None)
        known = diagnose(X, index) if diagnose is not None else getattr(self.model, "monitor", dict)()
        says = ", ".join(f"{name} {value:.3g}" for name, value in known.items())
        return (
            f"Training failed at step {here.step}. {what}, {IN_A_ROW} times in a row, although training returned to an "
            f"earlier state {here.returns} times and lowered the learning rate to {here.factor:.2g} of its setting."
            f"{f' The model has {says}.' if says else ''}{f' {reason}' if reason else ''} "
            "Use dtype='float64' or a smaller learning rate, and look for extreme values in the data."
        )


def train(model: nn.Module, data: Rows, groups: Sequence[Mapping[str, Any]], **options: Any) -> Iterator[Epoch]:
    """Train from start to end, and yield after every epoch. The arguments are those of `Training`."""
    for epoch in Training(model, data, groups, **options):
        if epoch is not None:
            yield epoch
