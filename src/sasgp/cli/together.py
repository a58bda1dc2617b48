"""One command in several processes.

    torchrun --nproc-per-node 2 -m sasgp embed runs/big new.npy --out latents.csv

    with together() as processes:
        ...  # load, and share the work out
    if not processes.first:
        return
    ...  # print and write

The first process works on alone after the block: the others have left by then and do not wait for it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sasgp.data.progress import from_torchrun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from sasgp.estimators import SASGP
    from sasgp.training.loop import Ranks

__all__ = ["ALONE", "Processes", "together"]

AGAIN = "Start all of them again; nothing was written."


@dataclass(frozen=True)
class Processes:
    """The processes that torchrun started for a command. `ranks` is None if there is only this one."""

    ranks: "Ranks | None" = None

    @property
    def first(self) -> bool:
        """Whether this process is the one that prints and writes."""
        return self.ranks is None or self.ranks.rank == 0

    def transform(self, estimator: "SASGP", X: Any, refine: int = 0) -> "NDArray[Any]":
        """The latents of all rows, in every process. Each finds those of its share of the rows."""
        if self.ranks is None:
            return estimator.transform(X, refine=refine)

        from sasgp.estimators.inference import transform_together

        self._check_finite(X, self.ranks)
        return transform_together(estimator, X, self.ranks, refine=refine)

    def rows(self, compute: Callable[[slice], "NDArray[Any]"], shape: tuple[int, ...]) -> "NDArray[Any]":
        """An array of float64, in every process. Each computes the rows of its share."""
        if self.ranks is None:
            return compute(slice(0, shape[0]))

        from sasgp.training.shares import rows_of_all

        return rows_of_all(self.ranks, compute, shape, "float64", block=1, show=True)

    def sum(self, compute: "Callable[[slice], NDArray[np.float64]]", n_rows: int, length: int) -> "NDArray[np.float64]":
        """The sum of `compute` [length] over all rows, in every process. Each computes that of its share."""
        if self.ranks is None:
            return compute(slice(0, n_rows))

        from sasgp.training.shares import sum_of_all

        return sum_of_all(self.ranks, compute, n_rows, length, show=True)

    @staticmethod
    def _check_finite(X: Any, ranks: "Ranks") -> None:
        """Raise InputError for a value that is not finite. `transform` would count its row from the share's start."""
        from sasgp.data.rows import check_values
        from sasgp.training.shares import shares

        part = shares(len(X), ranks.world, 1)[ranks.rank]
        name = f"The part of the data from row {part.start} to row {part.stop - 1}"
        if part.start < part.stop:
            check_values(X[part], name, first_row=part.start)


ALONE = Processes()


@contextmanager
def together() -> Iterator[Processes]:
    """The processes of this command. If one of them fails in the block, all end, and one of them says why."""
    if from_torchrun("WORLD_SIZE", 1) == 1:
        yield ALONE  # without torch, which takes long to import
        return

    import torch

    from sasgp.training.distributed import failing_together, joined

    if torch.cuda.is_available():
        torch.cuda.set_device(from_torchrun("LOCAL_RANK", 0) % torch.cuda.device_count())
    # Results are arrays in memory, so they are sent from there, wherever they were computed
    with joined(torch.device("cpu"), AGAIN) as ranks, failing_together(ranks):
        yield Processes(ranks if ranks.world > 1 else None)
