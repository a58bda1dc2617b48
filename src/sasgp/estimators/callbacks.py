"""Callbacks for `fit(callback=...)`. They are called after every epoch, with the estimator and the record.

For example::

    from sasgp.estimators.callbacks import TensorBoard

    SASGP().fit(X, callback=TensorBoard("logs", X[:2000], y[:2000]))  # needs tensorboard
"""

import json
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from sasgp.errors import InputError

__all__ = ["Callback", "History", "TensorBoard", "combined"]

Callback = Callable[[Any, dict[str, Any]], None]
"""What `fit` calls after every epoch, with the estimator and the record of the epoch, as in `history_`."""


class History:
    """A file with one line of JSON per epoch, written during training.

    Parameters
    ----------
    path
        The file. What it held before is replaced.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.begun, self.warned = path, False, False

    def __call__(self, estimator: Any, record: dict[str, Any]) -> None:
        # The first call writes the whole history: after a resume, the file may hold epochs from after the checkpoint
        records = [record] if self.begun else estimator.history_
        try:
            with self.path.open("a" if self.begun else "w", encoding="utf-8") as file:
                file.writelines(json.dumps(line) + "\n" for line in records)
            self.begun = True
        except OSError as error:  # training goes on; the whole history is tried again after the next epoch
            if not self.warned:
                warnings.warn(f"{self.path} cannot be written ({error.strerror}), but training goes on.", stacklevel=2)
            self.begun, self.warned = False, True


class TensorBoard:
    """Event files for TensorBoard: the numbers of each record and, if rows are given, a picture of their latents.

    Parameters
    ----------
    folder : path
        Where the event files go.
    X : array [M, D], optional
        Rows to draw; a few thousand are enough.
    labels : array [M], optional
        Labels of these rows, for their colours.
    """

    def __init__(self, folder: str | Path, X: NDArray[Any] | None = None, labels: NDArray[Any] | None = None) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise InputError(
                "Event files for TensorBoard need the package tensorboard, which is not installed. Run pip install "
                "tensorboard."
            ) from error
        self.writer: Any = SummaryWriter(str(folder))
        self.X, self.labels = X, labels

    def __call__(self, estimator: Any, record: dict[str, Any]) -> None:
        for name, value in record.items():
            if name != "epoch" and value is not None:
                self.writer.add_scalar(name, value, record["epoch"])
        if self.X is not None and estimator.model_.encoder.amortised:
            self.writer.add_figure("latents", self._picture(estimator), record["epoch"])
        self.writer.flush()

    def _picture(self, estimator: Any) -> Any:
        from matplotlib.figure import Figure

        mean = estimator.model_.mean
        with torch.no_grad():
            Z = estimator.model_.encoder.position(torch.as_tensor(np.asarray(self.X)).to(mean.device, mean.dtype)).cpu()
        figure = Figure(figsize=(6, 6))
        axes = figure.add_subplot()
        colours: dict[str, Any] = {}
        if self.labels is not None:
            known, which = np.unique(self.labels, return_inverse=True)
            colours = {"c": which, "cmap": "tab10" if len(known) <= 10 else None}
        axes.scatter(Z[:, 0], Z[:, min(1, Z.shape[1] - 1)], s=3, **colours)
        return figure


def combined(callbacks: Sequence[Callback]) -> Callback:
    """One callback that calls several.

    Parameters
    ----------
    callbacks
        They are called in this order.
    """

    def call(estimator: Any, record: dict[str, Any]) -> None:
        for callback in callbacks:
            callback(estimator, record)

    return call
