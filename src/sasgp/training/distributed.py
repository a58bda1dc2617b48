"""Several processes that train one model: torch.distributed, gloo on CPUs and nccl on CUDA.

    torchrun --nproc-per-node 2 -m sasgp fit mnist --out runs/mnist

Every process runs the same program and takes its own batch in each step. Gradients are averaged by one all-reduce of a
flat buffer, which also carries the loss and the wish to pause. torch's DistributedDataParallel would start to send
before the backward pass has ended; on CPUs the whole of it costs a few per cent of a step, and this way the loop needs
no second kind of model.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from importlib import import_module

import torch
import torch.distributed as dist
from torch import Tensor

from sasgp.training.loop import Alone, Ranks

__all__ = ["Group", "RankError", "agreed", "anywhere", "joined", "same_everywhere"]

TIMEOUT = timedelta(minutes=10)  # for a process that lives but does not answer; one that dies is noticed at once


class RankError(RuntimeError):
    """Another process of the group is gone or does not answer."""


class Group:
    """The processes of torch's default group."""

    def __init__(self) -> None:
        self.rank, self.world = dist.get_rank(), dist.get_world_size()

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
        """Replace a tensor by that of rank 0."""
        self._try(lambda: dist.broadcast(tensor, 0))

    def _try(self, collective: object) -> None:
        assert callable(collective)
        try:
            collective()
        except RuntimeError as error:  # gloo: "Connection closed by peer"; torch's DistBackendError is one, too
            raise RankError(
                f"Expected an answer from each of the {self.world} processes that train together. Got none in rank "
                f"{self.rank}: another one was killed, failed (see its own message), or did not answer for "
                f"{TIMEOUT.total_seconds() / 60:g} minutes. Start them again from the last checkpoint, with as many "
                f"processes or others. ({str(error).splitlines()[0]})"
            ) from error


@contextmanager
def joined(device: torch.device) -> Iterator[Ranks]:
    """The group that this process belongs to: torch's, if there is one, else that of torchrun, else it is alone."""
    if not dist.is_available():
        yield Alone()
        return
    if dist.is_initialized():
        yield Group() if dist.get_world_size() > 1 else Alone()
        return
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield Alone()
        return
    # Loaded after the group, as an optimiser's first use does, this module keeps the group in its default arguments for
    # ever. Its worker threads then outlive the interpreter, and one that lets go of a tensor aborts the process.
    import_module("torch.distributed.nn.functional")
    if device.type == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    dist.init_process_group("nccl" if device.type == "cuda" else "gloo", timeout=TIMEOUT)
    try:
        group = Group()
        yield group
        group.sum_(torch.zeros((), device=device))  # all leave together: rank 0 keeps the store that others still ask
    finally:
        dist.destroy_process_group()


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
