"""Saving a regressor or classifier to one file, and loading it: the format of `sasgp.estimators.storage`.

The file holds the training rows, as the kernel sees them, and their targets: predictions are made from them.
"""

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp import __version__
from sasgp.data.columns import Columns
from sasgp.errors import InputError
from sasgp.estimators import storage
from sasgp.estimators.persistence import (
    check_contents,
    class_name,
    fits,
    is_size,
    own_part,
    set_fitted,
    subclasses,
    wrong_file,
    wrong_parts,
)
from sasgp.gp import kernels
from sasgp.models.regression import RegressionModel, RegressionSettings

__all__ = ["SupervisedPersistence"]


class SupervisedPersistence(BaseEstimator):
    """`save` and `load` of a regressor or classifier."""

    _SAVED: ClassVar[tuple[str, ...]]

    model_: RegressionModel
    posterior_: Any
    n_features_in_: int
    dtype_: str
    feature_names_in_: Any
    columns_: Columns | None
    frame_kind_: str | None
    batch_size_: int
    active_set_size_: int
    holed_: list[int]
    seed_: int
    _targets: Tensor
    _places: Tensor

    def _structure(self, n_targets: int) -> RegressionSettings:
        raise NotImplementedError

    def _condition(self, centres: Tensor | None = None) -> None:
        raise NotImplementedError

    def _described_targets(self) -> Any:
        """What is known about the targets, as JSON."""
        raise NotImplementedError

    def _restore_targets(self, found: Any) -> None:
        """Set what `_described_targets` returned. Raises an error if it is something else."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one .safetensors file.

        The file holds settings, kernel, noise, and all training rows with their targets, because predictions are made
        from them: whoever has the file has the data. It holds no code, and loading it runs none.

        Parameters
        ----------
        path : path
            The file to write. An existing one is replaced in one step.
        """
        check_is_fitted(self)
        storage.write(path, *self._contents())

    def _contents(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """The header and the tensors of the file."""
        settings = dict(self.get_params(deep=False))
        if isinstance(self.kernel, Kernel):
            try:
                settings["kernel"] = kernels.describe(self.kernel)
            except kernels.CustomKernelError:
                settings["kernel"] = {"custom": class_name(self.kernel)}
        if not isinstance(self.random_state, int | np.integer | None):
            settings["random_state"] = self.seed_
        settings["columns"] = dict(self.columns) if not isinstance(self.columns, str | None) else self.columns
        names = getattr(self, "feature_names_in_", None)
        header = {
            "class": type(self).__name__,
            "sasgp": __version__,
            "settings": {k: v.item() if isinstance(v, np.generic) else v for k, v in settings.items()},
            "fitted": {name: getattr(self, name) for name in self._SAVED},
            "feature_names": None if names is None else [str(name) for name in names],
            "columns": None if self.columns_ is None else self.columns_.as_json() | {"frame": self.frame_kind_},
            "targets": self._described_targets(),
        }
        tensors = {f"model.{name}": value for name, value in self.model_.state_dict().items()}
        tensors |= {"places": self._places, "targets": self._targets}
        if (centres := getattr(getattr(self.posterior_, "index", None), "centres", None)) is not None:
            tensors["centres"] = centres
        return header, {name: tensor.detach().cpu() for name, tensor in tensors.items()}

    @classmethod
    def load(cls, path: str | Path, *, kernel: Kernel | None = None, device: str = "auto") -> Self:
        """Read a model written by `save`.

        Parameters
        ----------
        path : path
            The file to read.
        kernel : optional
            An instance of the user's own class, if the model was made with one.
        device : str
            Device for the model; the file does not store it.
        """
        header, tensors = storage.read(path)
        known: dict[str, type[Self]] = {c.__name__: c for c in (cls, *subclasses(cls))}
        name = header.get("class")
        if not isinstance(name, str) or name not in known:
            raise InputError(
                f"{path} holds a {name} model, which {cls.__name__}.load cannot read. Load it with sasgp.{name}.load."
            )
        with wrong_parts(path):
            _check_header(path, header, tensors, known[name])
            settings = header["settings"] | {"device": device}
            settings["kernel"] = own_part(path, "kernel", settings["kernel"], kernel)
            self = known[name](**settings)
            set_fitted(self, path, header)
            self._check_settings()
            self._restore_targets(header["targets"])
            self._restore(path, tensors)
            check_contents(path, (header, tensors), self._contents())
        return self

    def _check_settings(self) -> None:
        raise NotImplementedError

    def _restore(self, path: str | Path, tensors: dict[str, Tensor]) -> None:
        """Build the model, set its values, and condition it on the rows."""
        structure = self._structure(tensors["targets"].shape[1])
        if self.holed_ != sorted({*self.holed_}) or any(column >= structure.n_inputs for column in self.holed_):
            raise wrong_file(path, "its columns with missing values are not columns of its inputs, in order")
        N, Q = len(tensors["targets"]), structure.n_places
        wanted: dict[str, tuple[int | None, ...]] = {"places": (N, Q), "targets": (N, None)}
        wanted |= {"centres": (None, Q)} if "centres" in tensors else {}
        for name, shape in wanted.items():
            right = name in tensors and tensors[name].is_floating_point() and fits(tensors[name], shape)
            if not right or not tensors[name].isfinite().all():
                raise wrong_file(path, f"its tensor {name} is missing or has other values or another shape")
        self.model_ = RegressionModel.build(structure)
        state = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        try:
            self.model_.load_state_dict(state)
        except RuntimeError as error:
            raise wrong_file(path, "its tensors do not fit its settings") from error
        self.model_.eval()
        self._places, self._targets = tensors["places"].to(self.model_.centre), tensors["targets"].double()
        centres = tensors.get("centres")
        self._condition(None if centres is None else centres.to(self.model_.centre))


def _check_header(path: str | Path, header: Any, tensors: dict[str, Tensor], cls: type[SupervisedPersistence]) -> None:
    """Raise InputError if `save` cannot have written this. The checksum is right, so this is no accident."""
    settings, fitted = header.get("settings"), header.get("fitted")
    if isinstance(settings, dict) and isinstance(fitted, dict):
        fitted.setdefault("dtype_", settings.get("dtype"))  # files from before it could differ
    if not {"feature_names", "columns", "targets"} <= header.keys():
        raise wrong_file(path, "a part of its header is missing")
    if not isinstance(settings, dict) or settings.keys() != cls().get_params(deep=False).keys():
        raise wrong_file(path, "its settings are not those of the model")
    if not isinstance(fitted, dict) or fitted.keys() != set(cls._SAVED):
        raise wrong_file(path, "what fit decided is incomplete")
    if fitted["dtype_"] not in (settings["dtype"], "float64"):
        raise wrong_file(path, "its dtype_ does not fit its setting dtype")
    if not all(is_size(fitted[name]) for name in ("n_features_in_", "batch_size_", "active_set_size_")):
        raise wrong_file(path, "its sizes are not whole numbers above 0")
    holed, names, P = fitted["holed_"], header["feature_names"], fitted["n_features_in_"]
    if not isinstance(holed, list) or not all(type(column) is int and column >= 0 for column in holed):
        raise wrong_file(path, "its columns with missing values are no list of columns")
    history = fitted["history_"]
    if type(fitted["seed_"]) is not int or not isinstance(history, list):
        raise wrong_file(path, "what fit decided has other types")
    if names is not None and not (isinstance(names, list) and len(names) == P):
        raise wrong_file(path, "its feature names do not fit its features")
    if "targets" not in tensors or tensors["targets"].ndim != 2:
        raise wrong_file(path, "its tensor targets is missing or has another shape")
