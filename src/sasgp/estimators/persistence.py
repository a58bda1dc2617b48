"""Saving an estimator to one file, and loading it.

The header holds the settings and what `fit` decided, as JSON. The model's values are its `state_dict`. Loading builds
the model from the settings and sets its values, as resuming does. If a kernel, encoder or layout is of the user's own
class, the file has only the name of the class: loading a file runs no code.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from gpytorch.kernels import Kernel
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

from sasgp import __version__
from sasgp.data.columns import Columns
from sasgp.errors import InputError
from sasgp.estimators import storage
from sasgp.gp import kernels
from sasgp.gp.linalg import NotPositiveDefiniteError
from sasgp.models.base import ModelSettings
from sasgp.models.build import build
from sasgp.models.settings import Settings

__all__ = [
    "Persistence",
    "check_contents",
    "class_name",
    "fits",
    "is_size",
    "own_part",
    "set_fitted",
    "subclasses",
    "wrong_file",
]

T = TypeVar("T")
Tensors = dict[str, Tensor]


class Persistence(Settings, BaseEstimator):
    """`save` and `load` of an estimator."""

    # Attributes that `fit` sets and a file keeps, besides tensors
    _SAVED: ClassVar[tuple[str, ...]] = (
        "n_features_in_",
        "dtype_",
        "batch_size_",
        "encoder_noise_",
        "noise_kind_",
        "precision_",
        "missing_share_",
        "seed_",
        "history_",
        "image_shape_",
        "size_factor_",
        "_n_features_out",
        "_data_parts",
    )

    model_: Any
    posterior_: Any
    embedding_: Any
    n_features_in_: int
    feature_names_in_: Any
    seed_: int
    columns_: Columns | None
    frame_kind_: str | None

    def _model_settings(self, n_rows: int) -> ModelSettings:
        raise NotImplementedError

    def _posterior_tensors(self) -> Tensors:
        """Tensors of the trained decoder that are not in the model."""
        return {}

    def _posterior_shapes(self, tensors: Tensors) -> dict[str, tuple[int | None, ...]]:
        """The names and shapes that `_restore_posterior` needs; None is any size."""
        return {}

    def _restore_posterior(self, tensors: Tensors) -> None:
        """Set the trained decoder from the model and the tensors of `_posterior_tensors`."""
        raise NotImplementedError

    def save(self, path: str | Path) -> None:
        """Write the fitted model to one .safetensors file.

        The file holds the settings, the parameters of encoder and decoder, the latents of the training rows and, with
        SASGP and GPLVM, sums over all rows. It holds no rows of the data, no code, and loading it runs none.

        Parameters
        ----------
        path : path
            The file to write. An existing one is replaced in one step.
        """
        check_is_fitted(self)
        storage.write(path, *self._contents())

    def _contents(self) -> tuple[dict[str, Any], Tensors]:
        """The header and the tensors of the file."""
        settings, arrays = self._described_settings()
        model = {f"model.{name}": value for name, value in self.model_.state_dict().items()}
        tensors = model | arrays | self._posterior_tensors() | {"embedding": torch.from_numpy(self.embedding_)}
        names = getattr(self, "feature_names_in_", None)
        header = {
            "class": type(self).__name__,
            "sasgp": __version__,
            "settings": settings,
            "fitted": {name: getattr(self, name) for name in self._SAVED},
            "feature_names": None if names is None else [str(name) for name in names],
            "columns": None if self.columns_ is None else self.columns_.as_json() | {"frame": self.frame_kind_},
        }
        return header, {name: tensor.detach().cpu() for name, tensor in tensors.items()}

    def _described_settings(self) -> tuple[dict[str, Any], Tensors]:
        """The settings as JSON, and those that are arrays."""
        settings, arrays = dict(self.get_params(deep=False)), {}
        if isinstance(self.kernel, Kernel):
            try:
                settings["kernel"] = kernels.describe(self.kernel)
            except kernels.CustomKernelError:
                settings["kernel"] = {"custom": class_name(self.kernel)}
        if isinstance(self.encoder, nn.Module):
            settings["encoder"] = {"custom": class_name(self.encoder)}
        if hasattr(self.init, "fit_transform"):
            settings["init"] = {"custom": class_name(self.init)}
        elif not isinstance(self.init, str | dict):
            settings["init"] = {"array": "init"}
            arrays["init"] = torch.as_tensor(np.asarray(self.init, np.float64))
        if not isinstance(self.random_state, int | np.integer | None):
            settings["random_state"] = self.seed_
        if isinstance(self.columns, Mapping):
            settings["columns"] = dict(self.columns)
        if self.image_shape is not None:
            settings["image_shape"] = [int(size) for size in self.image_shape]
        # Settings may be NumPy numbers, for example from a grid search over np.arange; JSON has only Python's
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in settings.items()}
        return plain, arrays

    @classmethod
    def load(
        cls, path: str | Path, *, kernel: Kernel | None = None, encoder: nn.Module | None = None, device: str = "auto"
    ) -> Self:
        """Read a model written by `save`.

        Parameters
        ----------
        path : path
            The file to read.
        kernel, encoder : optional
            An instance of the user's own class, if the model was made with one. The file holds its parameters, never
            its code.
        device : str
            Device for the model; the file does not store it.
        """
        header, tensors = storage.read(path)
        known: dict[str, type[Self]] = {c.__name__: c for c in (cls, *subclasses(cls))}
        name = header.get("class")
        if not isinstance(name, str):
            raise wrong_file(path, "it names no class")
        if name not in known:
            raise InputError(
                f"{path} holds a {name} model, which {cls.__name__}.load cannot read. Load it with sasgp.{name}.load."
            )
        with wrong_parts(path):
            _check_header(path, header, tensors, known[name])
            settings = header["settings"] | {"device": device}
            for part, instance in (("kernel", kernel), ("encoder", encoder)):
                settings[part] = own_part(path, part, settings.get(part), instance)
                if part not in header["settings"]:
                    del settings[part]
            # The object that made a layout stays a name, because only another fit needs it
            if isinstance(settings["init"], dict) and "array" in settings["init"]:
                settings["init"] = tensors["init"].numpy()
            self = known[name](**settings)
            set_fitted(self, path, header)
            self.embedding_ = tensors["embedding"].numpy()
            self._restore(path, tensors)
            check_contents(path, (header, tensors), self._contents())
        return self

    def _restore(self, path: str | Path, tensors: Tensors) -> None:
        """Build the model and set its values from a file's tensors."""
        (N, Q), device = self.embedding_.shape, self.torch_device()
        D = self.n_features_in_ if self.columns_ is None else self.columns_.n_scores
        state = {name.removeprefix("model."): value for name, value in tensors.items() if name.startswith("model.")}
        _check_shapes(path, self._model_settings(N), D, Q, state)
        for name, shape in self._posterior_shapes(tensors).items():
            if name not in tensors or not fits(tensors[name], shape):
                raise wrong_file(path, f"its tensor {name} is missing or has another shape")
        model = build(self._model_settings(N), D, Q)
        try:
            model.load_state_dict(state)
        except RuntimeError as error:
            raise InputError(
                f"The tensors in {path} do not fit the model that its settings describe: "
                f"{' '.join(str(error).split())}. Pass a kernel and an encoder as they were when the model was made."
            ) from error
        self.model_ = model.eval()
        try:
            self._restore_posterior({name: tensor.to(device) for name, tensor in tensors.items()})
        except NotPositiveDefiniteError as error:
            raise wrong_file(path, "its sums over the rows cannot be those of data") from error


CHOICES: dict[str, tuple[str | None, ...]] = {
    "dtype": ("float32", "float64"),
    "encoder": ("network", "conv", "table"),
    "kernel": (None, *kernels.NAMES),
    "latents": ("bayesian", "point"),
    "noise": ("auto", "shared", "feature", "local"),
    "output": (None, "linear", "sigmoid"),
    "precision": ("auto", "float32", "mixed"),
    "variance": ("shared", "head", "mean"),
}
SIZES = ("n_features_in_", "batch_size_", "_n_features_out", "active_set_size_", "n_inducing_")


def wrong_file(path: str | Path, reason: str) -> InputError:
    """The error for a file whose checksum is right, but whose content `save` cannot have written."""
    return InputError(
        f"{path} is damaged, or something other than sasgp made it: {reason}. Copy it again from its source, or save "
        "the model again."
    )


@contextmanager
def wrong_parts(path: str | Path) -> Iterator[None]:
    """Turn whatever wrong parts of a file lead to into one sentence."""
    try:
        yield
    except InputError:
        raise
    except Exception as error:  # there are many ways to be wrong
        reason = (str(error) or type(error).__name__).splitlines()[0].rstrip(".")
        raise wrong_file(path, reason) from error


def check_contents(path: str | Path, *contents: tuple[dict[str, Any], Tensors]) -> None:
    """Raise InputError unless what was read is what saving would write: then nothing was ignored or converted."""
    (header, tensors), (same_header, same_tensors) = contents
    same_header = json.loads(json.dumps(same_header))  # lists for tuples
    free = {"sasgp": None, "settings": None}  # the version; and the device, which the caller chooses
    settings, same = (dict(one["settings"], device=None) for one in (header, same_header))
    if header | free != same_header | free or settings != same:
        raise wrong_file(path, "its settings, or what fit decided, are not what sasgp writes")
    for name in tensors.keys() | same_tensors.keys():
        one, other = tensors.get(name), same_tensors.get(name)
        if one is None or other is None or one.dtype != other.dtype or not torch.equal(one, other):
            raise wrong_file(path, f"its tensor {name} is not one that sasgp writes")
        if one.is_floating_point() and not one.isfinite().all() and not name.endswith("_bound"):  # of a constraint
            raise wrong_file(path, f"its tensor {name} has values that are not finite")


def fits(tensor: Tensor, shape: tuple[int | None, ...]) -> bool:
    """Whether a tensor has this shape, in which None is any size."""
    return tensor.ndim == len(shape) and all(n in (None, m) for n, m in zip(shape, tensor.shape, strict=True))


def is_size(value: object) -> bool:
    """Whether a value of a header is a whole number above 0."""
    return type(value) is int and value > 0


def _check_header(path: str | Path, header: Any, tensors: Tensors, cls: type[Persistence]) -> None:
    """Raise InputError if `save` cannot have written this. The checksum is right, so this is no accident."""
    settings, fitted, names = (header.get(name) for name in ("settings", "fitted", "feature_names"))
    if isinstance(settings, dict) and isinstance(fitted, dict):
        fitted.setdefault("missing_share_", 0.0)  # files from before missing values were allowed
        settings.setdefault("precision", "auto")  # files from before there was a choice
        fitted.setdefault("precision_", "float32")
        fitted.setdefault("dtype_", settings.get("dtype"))  # files from before it could differ
    if "feature_names" not in header or "columns" not in header:
        raise wrong_file(path, "its feature names are missing")
    if not isinstance(settings, dict) or settings.keys() != cls().get_params(deep=False).keys():
        raise wrong_file(path, "its settings are not those of the model")
    if not isinstance(fitted, dict) or fitted.keys() != set(cls._SAVED):
        raise wrong_file(path, "what fit decided is incomplete")
    for name, choices in CHOICES.items():
        value = settings.get(name, choices[0])
        custom = value.get("custom", "" if name == "kernel" else None) if isinstance(value, dict) else None
        is_part = name in ("kernel", "encoder") and isinstance(custom, str)  # the user's own, or a description
        if not is_part and value not in choices:
            raise wrong_file(path, f"its setting {name} cannot be {value!r}")
    if fitted.get("output_", "linear") not in ("linear", "sigmoid"):
        raise wrong_file(path, "its output_ is none that a model has")
    if fitted["noise_kind_"] not in ("shared", "feature", "local"):
        raise wrong_file(path, "its noise_kind_ is none that a model has")
    if fitted["dtype_"] not in (settings["dtype"], "float64"):
        raise wrong_file(path, "its dtype_ does not fit its setting dtype")
    if fitted["precision_"] not in ("float32", "mixed"):
        raise wrong_file(path, "its precision_ is none that a model has")
    if any(name in fitted and not is_size(fitted[name]) for name in SIZES) or type(fitted["seed_"]) is not int:
        raise wrong_file(path, "its sizes are not whole numbers above 0")
    history, shape, D = fitted["history_"], fitted["image_shape_"], fitted["n_features_in_"]
    if not isinstance(history, list) or not all(isinstance(record, dict) for record in history):
        raise wrong_file(path, "its history is not a list of records")
    if shape is not None and not (isinstance(shape, list) and all(map(is_size, shape)) and math.prod(shape) == D):
        raise wrong_file(path, "its image_shape does not fit its features")
    if settings["encoder"] == "conv" and shape is None:
        raise wrong_file(path, "its image_shape is missing")
    if names is not None and not (
        isinstance(names, list) and len(names) == D and all(isinstance(name, str) for name in names)
    ):
        raise wrong_file(path, "its feature names do not fit its features")
    embedding = tensors.get("embedding")
    if embedding is None or not embedding.numel() or not fits(embedding, (None, fitted["_n_features_out"])):
        raise wrong_file(path, "its tensor embedding is missing or has another shape")
    for name in ("embedding", "support.U", "places"):  # latents, as the model computes with them
        if name in tensors and tensors[name].dtype != getattr(torch, fitted["dtype_"]):
            raise wrong_file(path, f"its tensor {name} is not {fitted['dtype_']}")
    if isinstance(settings["init"], dict) and "array" in settings["init"] and "init" not in tensors:
        raise wrong_file(path, "its tensor init is missing")
    if not all(type(number) in (int, float) for number in (fitted["encoder_noise_"], settings["layout_weight"])):
        raise wrong_file(path, "its encoder_noise_ or layout_weight is no number")
    factor = fitted["size_factor_"]
    if factor is not None and not (type(factor) in (int, float) and 0 < factor < math.inf):
        raise wrong_file(path, "its size_factor_ is no positive number")
    if type(fitted["missing_share_"]) is not float or not 0 <= fitted["missing_share_"] < 1:
        raise wrong_file(path, "its missing_share_ is no share")


def set_fitted(model: Any, path: str | Path, header: dict[str, Any]) -> None:
    """Give an estimator what its fit decided: the attributes in `_SAVED`, names of features, and columns of a table."""
    for attribute in model._SAVED:
        setattr(model, attribute, header["fitted"][attribute])
    if header["feature_names"] is not None:
        model.feature_names_in_ = np.asarray(header["feature_names"], dtype=object)
    model.columns_, model.frame_kind_ = _table_columns(path, header["columns"], model.n_features_in_)


def _table_columns(path: str | Path, found: Any, n_features: int) -> tuple[Columns | None, str | None]:
    """The columns of a table, and the kind of frame that it was. Raises InputError if `save` cannot have written it."""
    if found is None:
        return None, None
    try:
        columns, kind = Columns.from_json(found), found["frame"]
        fits = kind in ("pandas", "polars") and len(columns.findings) == n_features
        columns.scores(np.zeros((1, len(columns))))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise wrong_file(path, "its columns are none that a table has") from error
    if not fits:
        raise wrong_file(path, "its columns do not fit its features")
    return columns, kind


def _check_shapes(path: str | Path, settings: ModelSettings, D: int, Q: int, state: Tensors) -> None:
    """Raise InputError if the tensors do not fit the settings, before a model of those settings takes any memory."""
    if isinstance(settings.encoder, nn.Module):
        return  # the user's own, which is in memory already
    with torch.device("meta"):
        outline = build(replace(settings, kernel="rbf", device=torch.device("meta")), D, Q).state_dict()
    for name, value in outline.items():
        if not name.startswith("kernel.") and (name not in state or state[name].shape != value.shape):
            raise wrong_file(path, f"its tensor {name} is missing, or does not fit its settings")


def own_part(path: str | Path, part: str, setting: Any, instance: Any) -> Any:
    """A kernel or an encoder for the constructor: by name, rebuilt from the file, or the user's instance."""
    custom = setting.get("custom") if isinstance(setting, dict) else None
    if custom and instance is None:
        raise InputError(
            f"The model in {path} was made with a {part} of the class {custom}, which is not part of the file. "
            f"Pass one: load(path, {part}={custom.rpartition('.')[2]}(...)).",
            argument=part,
        )
    if instance is not None and not custom:
        raise InputError(
            f"The {part} of the model in {path} is in the file. Load the model without {part}=.", argument=part
        )
    if custom:
        return instance
    return kernels.rebuild(setting) if part == "kernel" and isinstance(setting, dict) else setting


def class_name(instance: object) -> str:
    """The name of an object's class, with that of its module."""
    return f"{type(instance).__module__}.{type(instance).__qualname__}"


def subclasses(cls: type[T]) -> list[type[T]]:
    """All classes below a class."""
    return [found for sub in cls.__subclasses__() for found in (sub, *subclasses(sub))]
