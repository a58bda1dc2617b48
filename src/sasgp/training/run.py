"""A training run: the loop with history, held-out loss, checkpoints, signals and several processes.

The loop itself (`sasgp.training.loop`) knows no history, files or signals.
"""

import copy
import math
import signal
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from sasgp.data.progress import progress_bar
from sasgp.models.anchor import Anchor
from sasgp.models.base import Objective
from sasgp.training.checkpoint import Checkpointer, Interrupted, Signals
from sasgp.training.distributed import agreed, anywhere, same_everywhere
from sasgp.training.loop import Epoch, Ranks, Rows, Training
from sasgp.training.restored import check_training

__all__ = ["Plan", "TrainingRun", "default_epochs"]

MAX_EPOCHS = 1000


class DeviceRows(Rows, Protocol):
    """Rows on a device."""

    device: torch.device


Record = dict[str, Any]  # the numbers of one epoch: epoch, loss, noise and so on


@dataclass(frozen=True)
class Plan:
    """How a model is trained.

    Parameters
    ----------
    batch_size : int
        B, per process.
    max_epochs : int or None
        None: `default_epochs` decides.
    learning_rate, hyper_learning_rate : float
        Peaks of the schedule, for the encoder and for everything else.
    early_stopping : int or None
        Epochs without improvement on held-out rows after which training stops.
    seed : int
    verbose : bool
        Whether progress is shown.
    """

    batch_size: int
    max_epochs: int | None
    learning_rate: float
    hyper_learning_rate: float
    early_stopping: int | None
    seed: int
    verbose: bool = False


def default_epochs(steps_per_epoch: int) -> int:
    """The number of epochs that makes about 1000 steps, but at least 3 and at most 1000."""
    return min(max(3, math.ceil(1000 / steps_per_epoch)), MAX_EPOCHS)


class TrainingRun:
    """Trains a model from its start, or from what a checkpoint saved.

    Parameters
    ----------
    model : Objective
    rows : DeviceRows
        The rows to train on.
    plan : Plan
    ranks : Ranks
        The processes that train together.
    checkpointer : Checkpointer
        Writes checkpoints, in rank 0, if it has a path.
    fingerprint : mapping
        The fingerprint of data and settings, for the checkpoint.
    history : list
        One record per epoch is added to it.
    held_out_loss : callable, optional
        The loss that early stopping watches.
    on_epoch : callable, optional
        Called with the record of each epoch, in rank 0.
    saved : mapping, optional
        The contents of the checkpoint to go on from.
    """

    def __init__(
        self,
        model: Objective,
        rows: DeviceRows,
        plan: Plan,
        *,
        ranks: Ranks,
        checkpointer: Checkpointer,
        fingerprint: Mapping[str, Any],
        history: list[Record],
        held_out_loss: Callable[[], float] | None = None,
        on_epoch: Callable[[Record], None] | None = None,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.rows, self.plan, self.ranks = model, rows, plan, ranks
        self.checkpointer, self.fingerprint, self.history = checkpointer, dict(fingerprint), history
        self.held_out_loss, self.on_epoch = held_out_loss, on_epoch
        self.signals = Signals()
        self.best: dict[str, Any] = {"loss": math.inf, "state": None, "stale_epochs": 0}
        self.epochs = plan.max_epochs or default_epochs(math.ceil(len(rows) / (plan.batch_size * ranks.world)))
        if saved is not None:
            self.epochs, self.best = saved["epochs"], dict(saved["best"])
            history.extend(saved["history"])
            model.anchor = None
        elif ranks.world > 1:
            anchored = [] if model.anchor is None else [model.anchor.targets]
            same_everywhere([*model.state_dict().values(), *anchored], ranks)
        self.training = Training(
            model,
            rows,
            model.parameter_groups(plan.learning_rate, plan.hyper_learning_rate),
            batch_size=plan.batch_size,
            max_epochs=self.epochs,
            seed=plan.seed,
            pause=lambda: bool(self.signals.caught) or (self.first and checkpointer.due()),
            ranks=ranks,
        )
        if saved is not None:
            check_training(saved, self.training)
            if saved["anchor"] is not None:
                model.anchor = Anchor.from_state(saved["anchor"], rows.device)
            self.training.load_state_dict(saved["training"])

    @property
    def first(self) -> bool:
        """Whether this process is the one that shows and writes."""
        return self.ranks.rank == 0

    @property
    def out_of_patience(self) -> bool:
        return self.best["stale_epochs"] == self.plan.early_stopping

    def train(self) -> None:
        """Train to the end, and leave the model in its best state."""
        show = self.plan.verbose and self.first
        with (
            self.signals.watched(self.checkpointer.path is not None),
            progress_bar("training", self.training.total_steps, show=show) as update,
        ):
            self.training.on_step = self._shown(update) if show else None
            if not self.out_of_patience:  # a run may be resumed after its last epoch
                self._loop()
        if self.best["state"] is not None:
            self.model.load_state_dict(self.best["state"])
        self.model.anchor = None
        self.model.eval()

    def _loop(self) -> None:
        for epoch in self.training:
            if epoch is not None:
                self._after_epoch(epoch)
            self._save_if_due(epoch)
            if self.out_of_patience:
                return

    def _shown(self, update: Callable[..., None]) -> Callable[[int, int, float], None]:
        def on_step(step: int, total: int, loss: float) -> None:
            epoch, noise = self.training.position.epoch + 1, self.model.monitor()["noise"]
            update(step, f"epoch {epoch}/{self.epochs}  objective {-loss:.4f}  noise {noise:.3g}")

        return on_step

    def _after_epoch(self, epoch: Epoch) -> None:
        if self.ranks.world > 1:  # running means of a user's module follow the batches of each process
            same_everywhere(self.model.running_buffers(), self.ranks)
        record = {name: value for name, value in asdict(epoch).items() if name != "monitored"}
        record |= dict(epoch.monitored)
        for name, value in record.items():
            if isinstance(value, float) and not math.isfinite(value):
                record[name] = None  # JSON has no NaN
        self.history.append(record)
        if self.held_out_loss is not None:
            loss = agreed(self.ranks, self.held_out_loss(), self.rows.device)
            record["held_out_loss"] = loss if math.isfinite(loss) else None
            if loss < self.best["loss"]:
                self.best.update(loss=loss, stale_epochs=0, state=copy.deepcopy(self.model.state_dict()))
            else:
                self.best["stale_epochs"] += 1
        if self.on_epoch is not None and self.first:
            self.on_epoch(record)

    def _save_if_due(self, epoch: Epoch | None) -> None:
        """Write a checkpoint if one is due, if a signal asks to stop, and at the end."""
        device, position = self.rows.device, self.training.position
        last = self.out_of_patience or position.epoch == self.epochs
        stop = anywhere(self.ranks, bool(self.signals.caught), device)
        due = self.checkpointer.due() if epoch is None else self.checkpointer.due_after_epoch()
        if stop or last or anywhere(self.ranks, self.first and due, device):
            written = self._save()
            if stop and not last:  # a run that a signal meets at its end just ends
                raise Interrupted(self.signals.caught or signal.SIGTERM, self._checkpoint_left(written), position.step)

    def _save(self) -> bool:
        anchor = self.model.anchor
        state = {
            "fingerprint": self.fingerprint,
            "seed": self.plan.seed,
            "epochs": self.epochs,
            "history": self.history,
            "best": self.best,
            "anchor": None if anchor is None else anchor.state(),
            "training": self.training.state_dict(),  # called in all processes, as each has a part
        }
        written = self.checkpointer.save(state) if self.first and self.checkpointer.path is not None else False
        return anywhere(self.ranks, written, self.rows.device)  # all processes wait until the file is there

    def _checkpoint_left(self, written: bool) -> Path | None:
        """The checkpoint that is left after a stop: this one, or an older one if it could not be written."""
        path = self.checkpointer.path
        return path if written or (path is not None and path.exists()) else None
