"""What an estimator does while its model trains: history, held-out loss, checkpoints, signals, several processes.

The loop itself (`sasgp.training.loop`) knows none of this, and neither knows the other's files.
"""

import copy
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from sasgp.training.checkpoint import Interrupted, Keeper, Signals
from sasgp.training.distributed import agreed, anywhere
from sasgp.training.loop import Epoch, Ranks, Rows, Training
from sasgp.training.progress import progress_bar

__all__ = ["Callback", "fit_model"]

STEPS, MIN_EPOCHS, MAX_EPOCHS = 1000, 3, 1000  # max_epochs=None takes about so many steps, within these bounds

Callback = Callable[[Any, dict[str, Any]], None]  # called with the estimator and the record of an epoch


class Fitted(Protocol):
    """What of an estimator is needed here."""

    model_: Any
    history_: list[dict[str, Any]]
    seed_: int
    batch_size_: int
    max_epochs: int | None
    hyper_learning_rate: float
    early_stopping: int | None
    verbose: bool

    def encoder_rate(self) -> float: ...

    def torch_device(self) -> torch.device: ...


def fit_model(
    estimator: Fitted,
    rows: Rows,
    *,
    ranks: Ranks,
    held_out_loss: Callable[[], float] | None,
    keeper: Keeper,
    fingerprint: Mapping[str, Any],
    saved: Mapping[str, Any] | None,
    callback: Callback | None,
) -> None:
    """Train `estimator.model_` and fill `history_`, from the start or from a checkpoint's contents.

    Parameters
    ----------
    estimator, rows, ranks
    held_out_loss : callable, optional
        The loss that early stopping watches.
    keeper : Keeper
        Where checkpoints go, if anywhere. Rank 0 writes them.
    fingerprint : mapping
        Of data and settings, for the checkpoint.
    saved : mapping, optional
        The checkpoint to go on from.
    callback : callable, optional
        Called after every epoch, in rank 0.
    """
    model, device = estimator.model_, estimator.torch_device()
    # Plain numbers: numpy's own would make a checkpoint that `weights_only` refuses
    groups = model.parameter_groups(estimator.encoder_rate(), float(estimator.hyper_learning_rate))
    best: dict[str, Any] = {"loss": math.inf, "state": None, "patience": 0}
    estimator.history_ = []
    steps_per_epoch = math.ceil(len(rows) / (estimator.batch_size_ * ranks.world))
    epochs = int(estimator.max_epochs or 0) or min(max(MIN_EPOCHS, math.ceil(STEPS / steps_per_epoch)), MAX_EPOCHS)
    if saved is not None:
        epochs, best, estimator.history_ = saved["epochs"], dict(saved["best"]), list(saved["history"])
    elif ranks.world > 1:
        _same_everywhere(model.state_dict().values(), ranks)

    signals = Signals()
    first = ranks.rank == 0
    training = Training(
        model,
        rows,
        groups,
        batch_size=estimator.batch_size_,
        max_epochs=epochs,
        seed=estimator.seed_,
        pause=lambda: bool(signals.caught) or (first and keeper.due()),
        ranks=ranks,
    )
    if saved is not None:
        training.load_state_dict(saved["training"])

    def save() -> bool:
        state = {
            "fingerprint": dict(fingerprint),
            "seed": estimator.seed_,
            "epochs": epochs,
            "history": estimator.history_,
            "best": best,
            "training": training.state_dict(),  # in every process: each has a part
        }
        written = keeper.save(state) if first and keeper.path is not None else False
        return anywhere(ranks, written, device)  # all wait for it: none may go on from the file before it is there

    def after_epoch(epoch: Epoch) -> None:
        if ranks.world > 1:  # running means of a module of the user's own follow the batches of each process
            _same_everywhere(model.encoder.buffers(), ranks)
        record = {name: value for name, value in asdict(epoch).items() if name != "monitored"}
        record["loss"] = epoch.loss if math.isfinite(epoch.loss) else None  # JSON knows no NaN
        estimator.history_.append(record | dict(epoch.monitored))
        if held_out_loss is None:
            return
        loss = agreed(ranks, held_out_loss(), device)
        estimator.history_[-1]["held_out_loss"] = loss
        if loss < best["loss"]:
            best.update(loss=loss, patience=0, state=copy.deepcopy(model.state_dict()))
        else:
            best["patience"] += 1

    total = training.total_steps
    with (
        signals.watched(keeper.path is not None),
        progress_bar("training", total, show=estimator.verbose and first) as update,
    ):

        def on_step(step: int, total: int, loss: float) -> None:
            epoch = training.position.epoch + 1
            update(step, f"epoch {epoch}/{epochs}  objective {-loss:.4f}  noise {model.monitor()['noise']:.3g}")

        training.on_step = on_step if estimator.verbose and first else None
        stopped_early = best["patience"] == estimator.early_stopping
        for epoch in training if not stopped_early else ():
            if epoch is not None:
                after_epoch(epoch)
                if callback is not None and first:
                    callback(estimator, estimator.history_[-1])
                stopped_early = best["patience"] == estimator.early_stopping
            last = stopped_early or training.position.epoch == epochs
            stop = anywhere(ranks, bool(signals.caught), device)
            due = keeper.due() if epoch is None else keeper.due_after_epoch()
            if stop or last or anywhere(ranks, first and due, device):
                written = save()
                if stop and not last:
                    raise Interrupted(signals.caught, _left(keeper, written), training.position.step)
            if stopped_early:
                break
    if best["state"] is not None:
        model.load_state_dict(best["state"])
    model.eval()


def _left(keeper: Keeper, written: bool) -> Path | None:
    """The checkpoint that a stop leaves: this one, or an older one where it could not be written."""
    return keeper.path if written or (keeper.path is not None and keeper.path.exists()) else None


def _same_everywhere(tensors: Iterable[Tensor], ranks: Ranks) -> None:
    """All processes have the numbers of rank 0, whatever their machines' rounding."""
    with torch.no_grad():
        for tensor in tensors:
            if ranks.rank:
                tensor.zero_()
            ranks.sum_(tensor)
