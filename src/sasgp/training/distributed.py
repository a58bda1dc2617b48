"""Several processes that work together: torch.distributed, gloo on CPUs and nccl on CUDA.

    torchrun --nproc-per-node 2 -m sasgp fit mnist --out runs/mnist

In training, every process runs the same program and takes its own batch in each step. Gradients are averaged by one
all-reduce of a flat buffer, which also carries the loss and the request for a pause. torch's DistributedDataParallel
would start to send before the backward pass ends. But sending takes only a few per cent of a step on CPUs, and this way
the loop needs no second kind of model. `sasgp.training.shares` shares rows out.
"""

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from importlib import import_module

import torch
import torch.distributed as dist
from torch import Tensor

from sasgp.data.progress import from_torchrun
from sasgp.training.loop import Alone, Ranks

__all__ = [
    "FailedElsewhereError",
    "Group",
    "RankError",
    "agreed",
    "anywhere",
    "failing_together",
    "joined",
    "meet",
    "same_everywhere",
]

TIMEOUT = timedelta(minutes=10)  # for a process that runs but does not answer; one that dies is noticed at once
UNREACHABLE = 30  # seconds without any sign of life from another host: the kernel there answers for a busy process
RESUME = "Start all of them again from the last checkpoint; their number may change."


class RankError(RuntimeError):
    """Another process of the group is gone or does not answer."""


class FailedElsewhereError(RuntimeError):
    """Another process of the group has failed. It says why, so that this one has nothing to add."""


class Group:
    """The processes of torch's default group. `again` says what to do if one of them is lost."""

    def __init__(self, again: str = RESUME) -> None:
        self.rank, self.world, self.again = dist.get_rank(), dist.get_world_size(), again
        self.device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")  # of what is sent

    def mean_(self, tensors: Sequence[Tensor]) -> None:
        flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
        self.sum_(flat)
        flat /= self.world
        start = 0
        for tensor in tensors:
            tensor.copy_(flat[start : start + tensor.numel()].view_as(tensor))
            start += tensor.numel()

    def sum_(self, tensor: Tensor) -> None:
        self._try(lambda: dist.all_reduce(tensor))

    def from_first_(self, tensor: Tensor) -> None:
        """Replace a tensor with that of rank 0."""
        self.from_(tensor, 0)

    def from_(self, tensor: Tensor, rank: int) -> None:
        """Replace a tensor with that of a rank."""
        self._try(lambda: dist.broadcast(tensor, rank))

    def _try(self, collective: object) -> None:
        assert callable(collective)
        try:
            collective()
        except RuntimeError as error:  # gloo: "Connection closed by peer"; also torch's DistBackendError
            raise RankError(
                f"One of the {self.world} processes that work together is gone: rank {self.rank} got no answer. The "
                f"other process was killed, failed (see its own message), cannot be reached, or did not answer for "
                f"{TIMEOUT.total_seconds() / 60:g} minutes. {self.again} ({str(error).splitlines()[0]})"
            ) from error


@contextmanager
def joined(device: torch.device, again: str = RESUME) -> Iterator[Ranks]:
    """The group of this process: torch's group if there is one, else that of torchrun, else the process alone.

    `again` ends the message of the error if a process is lost: it says what to do.
    """
    if not dist.is_available():
        yield Alone()
        return
    if dist.is_initialized():
        yield Group(again) if dist.get_world_size() > 1 else Alone()
        return
    if from_torchrun("WORLD_SIZE", 1) == 1 or "RANK" not in os.environ:
        yield Alone()
        return
    # The first use of an optimiser would load this module after the group is made, and its default arguments would keep
    # the group for ever. Then the group's threads outlive the interpreter, and one that frees a tensor aborts the
    # process.
    import_module("torch.distributed.nn.functional")
    if device.type == "cuda":
        torch.cuda.set_device(from_torchrun("LOCAL_RANK", 0))
    before = _open_files()
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    _notice_lost_hosts(_open_files() - before)
    try:
        group = Group(again)
        yield group
        # All leave together, because the others still use the store that rank 0 keeps
        group.sum_(torch.zeros((), device=device))
    finally:
        dist.destroy_process_group()


def _open_files() -> set[int]:
    """The numbers of this process's open files; none where the system does not list them."""
    with suppress(OSError):
        return {int(name) for name in os.listdir("/proc/self/fd")}  # noqa: PTH208
    return set()


def _notice_lost_hosts(files: set[int]) -> None:
    """Let the kernel close those of the connections whose other end cannot be reached. By itself it takes 15 minutes.

    The kernel of the other host answers, so a process there that works for long is not lost.
    """
    for file in files:
        with suppress(OSError), socket.socket(fileno=os.dup(file)) as end:
            if end.family in (socket.AF_INET, socket.AF_INET6) and end.type == socket.SOCK_STREAM:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                for option, value in (("KEEPIDLE", UNREACHABLE // 3), ("KEEPINTVL", UNREACHABLE // 6), ("KEEPCNT", 4)):
                    end.setsockopt(socket.IPPROTO_TCP, getattr(socket, f"TCP_{option}"), value)
                end.setsockopt(
                    socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 1000 * UNREACHABLE
                )  # ms, of data on its way


def agreed(ranks: Ranks, value: float, device: torch.device) -> float:
    """The value of rank 0, in every process."""
    if not isinstance(ranks, Group):
        return value
    tensor = torch.tensor(value, dtype=torch.float64, device=device)
    ranks.from_first_(tensor)
    return float(tensor)


@torch.no_grad()
def same_everywhere(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """Give all processes the numbers of rank 0, whatever the rounding of their machines."""
    if isinstance(ranks, Group):
        for tensor in tensors:
            ranks.from_first_(tensor)


def anywhere(ranks: Ranks, flag: bool, device: torch.device) -> bool:
    """Whether the flag is set in any process."""
    if not isinstance(ranks, Group):
        return flag
    tensor = torch.tensor(float(flag), device=device)
    ranks.sum_(tensor)
    return bool(tensor)


def meet(ranks: Ranks, *, failed: bool = False) -> None:
    """Wait for the other processes. Raises FailedElsewhereError if one has failed, except in the lowest rank that has.

    Inside `failing_together`, this must come right before every exchange of data: a process that has failed does not
    take part in the exchange, but it comes to the meeting.
    """
    if not isinstance(ranks, Group):
        return
    failures = torch.zeros(ranks.world, device=ranks.device)
    failures[ranks.rank] = float(failed)
    ranks.sum_(failures)
    first = next((rank for rank, failure in enumerate(failures.tolist()) if failure), None)
    if first is not None and not (failed and first == ranks.rank):
        raise FailedElsewhereError(f"Rank {first} has failed and says why.")


@contextmanager
def failing_together(ranks: Ranks) -> Iterator[None]:
    """If the block fails in one process, it fails in all: one raises its error, the others FailedElsewhereError."""
    try:
        yield
    except (RankError, FailedElsewhereError):  # the others are gone, or know already
        raise
    except Exception:
        with suppress(RankError):  # if the others are gone, this error is the one that helps
            meet(ranks, failed=True)
        raise
    meet(ranks)
