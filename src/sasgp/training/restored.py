"""What a checkpoint must hold so that training can go on: the parts that a run saves, in the form that they have here.

A right checksum does not mean that sasgp wrote a file. torch's fused Adam trusts the shapes of its averages, and would
write outside its memory if they were others than those of the parameters.
"""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from sasgp.errors import InputError
from sasgp.training.loop import Position, Training

__all__ = ["check_run", "check_training"]

PARTS = {"fingerprint": dict, "seed": int, "epochs": int, "history": list, "best": dict, "anchor": dict | None}
BEST = {"loss": float, "state": dict | None, "stale_epochs": int}
STATE = {"position": dict, "model": dict, "optimiser": dict, "good": dict | None}
GOOD = {"model": dict, "optimiser": dict}
OPTIMISER = {"state": dict, "param_groups": list}
ANCHOR = {"targets": Tensor, "rows": Tensor | None, "n_rows": int, "weight": float}
AVERAGES = {"step": Tensor, "exp_avg": Tensor, "exp_avg_sq": Tensor}


def check_run(saved: Mapping[str, Any]) -> None:
    """Raise InputError if the parts of a checkpoint are not those of a run."""
    _check(saved, PARTS | {"training": dict})
    _check(saved["best"], BEST)
    _check(saved["training"], STATE)
    position = asdict(Position())
    _check(saved["training"]["position"], {name: type(value) for name, value in position.items()})
    counts = [saved["seed"], saved["epochs"] - 1, *saved["training"]["position"].values()]
    if any(type(count) is int and count < 0 for count in counts):
        raise _made_up("it counts something below 0")
    for record in saved["history"]:
        _check(record, dict.fromkeys(record, bool | int | float | None) if isinstance(record, dict) else {})


def check_training(saved: Mapping[str, Any], training: Training) -> None:
    """Raise InputError if the states in a checkpoint have another form than those of this model and its optimiser."""
    state, best, anchor = saved["training"], saved["best"]["state"], saved["anchor"]
    for part in (state, state["good"]):
        if part is not None:
            _check({name: part.get(name) for name in GOOD}, GOOD)
            _check_model(part["model"], training)
            _check_optimiser(part["optimiser"], training)
    if best is not None:
        _check_model(best, training)
    if anchor is not None:
        _check(anchor, ANCHOR)
        targets, n_rows = anchor["targets"], len(training.data)
        rows = torch.arange(n_rows) if anchor["rows"] is None else anchor["rows"]
        inside = rows.ndim == 1 and not rows.is_floating_point() and ((rows >= 0) & (rows < n_rows)).all()
        if not inside or targets.ndim != 2 or len(targets) != len(rows) or anchor["n_rows"] != n_rows:
            raise _made_up("its layout is not that of the rows")


def _check_model(found: Mapping[str, Any], training: Training) -> None:
    expected = training.model.state_dict()
    if found.keys() != expected.keys() or not all(_alike(found[name], value) for name, value in expected.items()):
        raise _made_up("its model has other parameters")
    if not all(found[name].isfinite().all() for name, _ in training.model.named_parameters()):
        raise _made_up("its model has parameters that are not finite")


def _check_optimiser(found: Mapping[str, Any], training: Training) -> None:
    _check(found, OPTIMISER)
    parameters = [parameter for group in training.optimiser.param_groups for parameter in group["params"]]
    same = training.optimiser.state_dict()["param_groups"]
    for group, other in zip(found["param_groups"], same, strict=False):
        _check(group, {name: type(value) for name, value in other.items()})
    if [group | {"lr": None} for group in found["param_groups"]] != [group | {"lr": None} for group in same]:
        raise _made_up("its optimiser has other settings")
    for place, averages in found["state"].items():
        if place not in range(len(parameters)):
            raise _made_up("its optimiser has other parameters")
        _check(averages, AVERAGES)
        if averages["step"].ndim or not all(_alike(averages[n], parameters[place]) for n in ("exp_avg", "exp_avg_sq")):
            raise _made_up("its optimiser has averages of another form")


def _check(found: Any, kinds: Mapping[str, Any]) -> None:
    """Raise InputError unless this is a mapping with these names, and its values have these types."""
    if not isinstance(found, Mapping) or found.keys() != kinds.keys():
        raise _made_up("its parts are not those that a run saves")
    for name, kind in kinds.items():
        if not isinstance(found[name], kind) or (kind in (int, float) and isinstance(found[name], bool)):
            raise _made_up(f"{name} is not what a run saves")


def _alike(found: Any, expected: Tensor) -> bool:
    return isinstance(found, Tensor) and found.shape == expected.shape and found.dtype == expected.dtype


def _made_up(reason: str) -> InputError:
    return InputError(
        f"resume must name a checkpoint that sasgp wrote for this model, but {reason}. Start again without resume.",
        argument="resume",
    )
