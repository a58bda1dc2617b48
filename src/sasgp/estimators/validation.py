"""Checks of what a user passes to an estimator: settings, rows and latents."""

import difflib
import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import Kernel
from scipy.sparse import issparse
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import validate_data
from torch import Tensor, nn
from torch.utils.data import Dataset

from sasgp.data.cells import is_anndata
from sasgp.data.images import check_shape, flat_images, guess_shape, same_shape
from sasgp.data.memory import amount, available
from sasgp.data.rows import DatasetArray, check_values, moments, row_blocks, take_rows, unmasked
from sasgp.data.sparse import SparseArray
from sasgp.errors import InputError
from sasgp.estimators.cells import rows_of_cells
from sasgp.estimators.tables import table_scores
from sasgp.gp import kernels
from sasgp.models.settings import NetworkSettings, Settings, SupervisedSettings
from sasgp.training import layouts
from sasgp.training.initialise import LEAST_VARIANCE

__all__ = [
    "check_choice",
    "check_count",
    "check_curve",
    "check_device",
    "check_evidence",
    "check_image_shape",
    "check_latents",
    "check_missing",
    "check_number",
    "check_rows",
    "check_settings",
    "seed_of",
]

LARGEST = {"float32": 1e17, "float64": 1e150}  # value whose square fits, also summed over a batch
SMALL = 1e-8  # float32 cannot tell larger values from each other if their variance is below LEAST_VARIANCE


def check_rows(estimator: BaseEstimator, X: Any, *, reset: bool) -> Any:
    """X as a two-dimensional array of real numbers. Arrays, memory maps and Datasets are not copied.

    Missing values are NaN. All others must be finite, and each row must have at least one. Images [N, H, W] or
    [N, C, H, W] are flattened, and sparse matrices stay sparse. A table becomes its scores (`sasgp.estimators.tables`).
    With `reset`, the number and names of the features are stored, and the dtype to compute with. Otherwise they must be
    the same as before, and values must fit the dtype.
    """
    X = unmasked(X)
    scores = table_scores(estimator, X, reset=reset)
    X = X if scores is None else scores
    if isinstance(X, Tensor):
        X = X.numpy(force=True)
    from_cells = is_anndata(X)
    if from_cells:
        X = rows_of_cells(estimator, X, reset=reset)
    X = flat_images(X, None if reset else getattr(estimator, "image_shape_", None))
    if isinstance(X, Dataset):
        X = DatasetArray(X)
        if reset:
            estimator.n_features_in_ = X.shape[1]
            vars(estimator).pop("feature_names_in_", None)
        elif X.shape[1] != estimator.n_features_in_:
            raise InputError(
                f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
                "features as input.",
                argument="X",
            )
    if isinstance(X, DatasetArray) or scores is not None:
        pass
    elif from_cells:  # whose genes have been compared by name
        X = check_array(X, dtype="numeric", ensure_all_finite=False, accept_sparse="csr")
    elif _is_plain(X):
        validate_data(estimator, X, reset=reset, skip_check_array=True)
    else:  # lists, data frames, sparse or empty input: scikit-learn has the messages
        X = validate_data(estimator, X, reset=reset, dtype="numeric", ensure_all_finite=False, accept_sparse="csr")
    X = SparseArray(X) if issparse(X) else X
    if X.dtype.kind == "f" and X.dtype.itemsize > 8 and isinstance(X, np.ndarray):  # torch has no such numbers
        X = X.astype(np.float64)
    if reset and len(X) < 2:
        raise InputError(f"Training needs at least 2 rows, but X has n_samples = {len(X)}. Add rows.", argument="X")
    largest = _largest(X, check_values(X))
    if reset:
        estimator.dtype_ = _dtype_for(X, largest, estimator.dtype)
    if largest > LARGEST.get(estimator.dtype_, math.inf):
        other = "the data" if estimator.dtype_ == "float64" else "it, or fit the model with dtype='float64'"
        raise InputError(
            f"X has a value of size {largest:.3g}, whose square does not fit into {estimator.dtype_}. Rescale {other}.",
            argument="X",
        )
    return X


def _is_plain(X: Any) -> bool:
    """Whether X is an array [N, D] of numbers that need not be converted. A matrix has other rules for its products."""
    is_array = isinstance(X, np.ndarray) and not isinstance(X, np.matrix)
    return is_array and X.ndim == 2 and X.dtype.kind in "fiub" and X.size > 0


def _largest(X: Any, missing: int) -> float:
    """The largest absolute value of rows, or 0 if all numbers of their type are small."""
    if X.dtype.itemsize < (4 if X.dtype.kind == "f" else 8):
        return 0.0
    blocks = [X.stored] if isinstance(X, SparseArray) else (block for _, block in row_blocks(X))
    low, high = (np.nanmin, np.nanmax) if missing else (np.min, np.max)
    return max((max(-float(low(block)), float(high(block))) for block in blocks if block.size), default=0.0)


def _dtype_for(X: Any, largest: float, dtype: str) -> str:
    """The dtype to compute with: float64 in the place of float32 if the squares of the data are too large or small."""
    if dtype != "float32" or not largest:
        return dtype
    wide = largest > LARGEST[dtype]
    narrow = largest < SMALL and 0 < moments(X)[1].mean() < LEAST_VARIANCE[torch.float32]
    return "float64" if wide or narrow else dtype


def check_missing(settings: Settings, X: Any) -> float:
    """The share of the values of rows X that are missing."""
    missing = check_values(X)
    if missing and isinstance(settings.encoder, nn.Module):
        raise InputError(
            f"An encoder of your own reads complete rows, but {missing} values of X are missing. Use "
            "encoder='network', 'conv' or 'table', or fill in the values.",
            argument="encoder",
        )
    return missing / (len(X) * X.shape[1])


def check_latents(estimator: Any, Z: Any) -> Tensor:
    """Latents [M, Q] as a tensor."""
    Z = check_array(Z.numpy(force=True) if isinstance(Z, Tensor) else Z, input_name="Z", order="C")
    Q, D = estimator.n_components_, estimator.n_features_in_
    if Z.shape[1] != Q:
        rows = " To decode rows of data, use reconstruct." if Z.shape[1] == D else ""
        raise InputError(
            f"Z must have n_components={Q} columns, one per latent dimension. Got {Z.shape[1]}.{rows}", argument="Z"
        )
    Z = np.require(Z, requirements="W")  # torch has no read-only tensors, and warns
    return torch.as_tensor(Z, dtype=getattr(torch, estimator.dtype_), device=estimator.torch_device())


def check_settings(settings: Settings, N: int) -> None:
    """Check each setting by itself, then those that must fit each other and the N rows."""
    applies = {field.name for field in fields(settings) if field.init}
    if settings.n_components == "auto" and "support_size" in applies:
        _check_auto(settings)
    else:
        check_count("n_components", settings.n_components)
    for name in {"batch_size", "n_inducing"} & applies:
        check_count(name, getattr(settings, name))
    if "support_size" in applies and settings.support_size is not None and settings.support_size != "auto":
        check_count("support_size", settings.support_size, also=", or 'auto' or None")
    for name in {"active_set_size", "max_epochs", "early_stopping"} & applies:
        if getattr(settings, name) is not None:
            check_count(name, getattr(settings, name))
    for name in ("learning_rate", "hyper_learning_rate")[settings.learning_rate is None :]:
        check_number(name, getattr(settings, name), "a positive number", lambda x: 0 < x < math.inf)
    _check_encoder_noise(settings.encoder_noise)
    check_number("validation_fraction", settings.validation_fraction, "a number between 0 and 1", lambda x: 0 < x < 1)
    check_choice("latents", settings.latents, ("bayesian", "point"))
    check_choice("noise", settings.noise, ("auto", "shared", "feature", "local"))
    if settings.noise == "local" and "support_size" not in applies:
        raise InputError(
            "noise='local' needs a decoder that is conditioned on all rows after training, as in SASGP and GPLVM. "
            f"{type(settings).__name__} has none. Use one of these, or noise='shared'.",
            argument="noise",
        )
    check_choice("dtype", settings.dtype, ("float32", "float64"))
    _check_precision(settings)
    if not isinstance(settings.encoder, nn.Module):
        check_choice("encoder", settings.encoder, ("network", "conv", "table"), "or a torch module")
    if settings.kernel is not None and not isinstance(settings.kernel, Kernel):
        check_choice("kernel", settings.kernel, kernels.NAMES, "or a gpytorch.kernels.Kernel")
    if isinstance(settings, NetworkSettings):
        check_choice("variance", settings.variance, ("shared", "head", "mean"))
        if settings.output is not None:
            check_choice("output", settings.output, ("linear", "sigmoid"), "or None")
    check_number("layout_weight", settings.layout_weight, "a number of at least 0", lambda x: 0 <= x < math.inf)
    _check_init(settings, N)
    if settings.layout_weight and isinstance(settings.init, str) and settings.init not in layouts.NAMES:
        raise InputError(
            f"layout_weight={settings.layout_weight} needs an init that keeps neighbours together, such as 'umap', but "
            f"init={settings.init!r} is a projection. Choose another init, or leave layout_weight at 0.",
            argument="layout_weight",
        )
    check_device(settings)
    if settings.early_stopping is not None and settings.encoder == "table":
        raise InputError(
            "early_stopping needs an encoder that can encode held-out rows, and encoder='table' cannot. Use "
            "encoder='network', or set max_epochs instead.",
            argument="early_stopping",
        )
    if settings.active_set_size is None:
        _check_memory(N, getattr(torch, settings.dtype))
    elif settings.active_set_size >= settings.batch_size:
        raise InputError(
            f"active_set_size must be smaller than batch_size. Got {settings.active_set_size} with batch_size="
            f"{settings.batch_size}: no row would be left to predict. Lower active_set_size or raise batch_size.",
            argument="active_set_size",
        )


def check_image_shape(settings: Settings, X: Any, given: tuple[int, ...] | None = None) -> tuple[int, ...] | None:
    """The shape of rows X [N, D] as images. None if they are none.

    It is the setting, or the one that the data were `given` in or, if the encoder needs one, a guess.
    """
    if settings.image_shape is not None:
        asked = check_shape(settings.image_shape, X.shape[1])
        if given is not None and not same_shape(asked, given):
            raise InputError(
                f"image_shape={asked} is not the shape of the images in X, which is {given}. Leave image_shape out.",
                argument="image_shape",
            )
        return asked
    if given is not None:
        return given
    if not (isinstance(settings.encoder, str) and settings.encoder == "conv"):
        return None
    shape = guess_shape(take_rows(X, np.arange(0, len(X), max(1, len(X) // 1000))))
    if shape is None:
        raise InputError(
            f"encoder='conv' needs rows that are images, but {X.shape[1]} values per row do not look like the pixels "
            "of a square. Set image_shape=(H, W), (C, H, W) or (H, W, C), or use encoder='network'.",
            argument="image_shape",
        )
    return shape


def check_evidence(N: int, method: str, A: int, batch_size: int | None, n_estimates: int, dtype: str) -> None:
    """Check the arguments of `evidence` for N rows."""
    check_choice("method", method, ("exact", "bound", "sas", "unbiased"))
    check_choice("dtype", dtype, ("float64", "float32"))
    if method in ("exact", "bound"):
        return
    check_count("active_set_size", A, 0)
    check_count("n_estimates", n_estimates, 2)
    if A >= N:
        raise InputError(
            f"active_set_size must be below the {N} rows of X. Got {A}. Lower it, or use method='exact'.",
            argument="active_set_size",
        )
    if batch_size is not None:
        check_count("batch_size", batch_size)
        if method != "sas" or not A < batch_size <= N:
            raise InputError(
                f"batch_size is for method='sas', and must be more than active_set_size={A} and at most the {N} rows "
                f"of X. Got {batch_size} with method={method!r}. Leave it out to use all rows.",
                argument="batch_size",
            )


def check_curve(N: int, sizes: Sequence[int], n_estimates: int, dtype: str) -> None:
    """Check the arguments of `evidence_curve` for N rows."""
    check_choice("dtype", dtype, ("float64", "float32"))
    check_count("n_estimates", n_estimates, 2)
    for size in sizes:
        check_count("each of sizes", size, 0)
    if not sizes or max(sizes) >= N:
        raise InputError(
            f"sizes must be one or more, all below the {N} rows of X. Got {[*sizes]}. Leave sizes out for a default.",
            argument="sizes",
        )


def _check_auto(settings: Settings) -> None:
    for name, right in {
        "latents": settings.latents == "bayesian",  # point latents have no reason to leave a dimension unused
        "kernel": settings.kernel in (None, "rbf-ard") if not isinstance(settings.kernel, Kernel) else False,
        "encoder": not isinstance(settings.encoder, nn.Module),
        "init": isinstance(settings.init, str) and settings.init != "tsne",  # t-SNE makes at most two dimensions
    }.items():
        if not right:
            raise InputError(
                "n_components='auto' needs Bayesian latents, the kernel 'rbf-ard', an encoder by name, and an init by "
                f"name other than 'tsne'. Got {name}={getattr(settings, name)!r}. Leave it out, or set n_components to "
                "a number.",
                argument=name,
            )


def check_count(name: str, value: object, least: int = 1, also: str = "") -> None:
    """Raise InputError if the value is not a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise InputError(
            f"{name} must be a whole number of at least {least}{also}. Got {value!r}.",
            argument=name.rpartition(" ")[2],  # "each of sizes" is the argument sizes
        )


def check_number(name: str, value: object, expected: str, accepts: Callable[[Any], bool]) -> None:
    """Raise InputError if the value is not the number that is expected."""
    if not (isinstance(value, int | float | np.number) and accepts(value)):
        raise InputError(f"{name} must be {expected}. Got {value!r}.", argument=name)


def _check_encoder_noise(value: object) -> None:
    number = isinstance(value, int | float | np.number) and 0 <= value < math.inf
    if not (number or (isinstance(value, str) and value == "auto")):
        raise InputError(
            f"encoder_noise must be 'auto' or a number of at least 0. Got {value!r}. Leave it out, and the number of "
            "rows decides.",
            argument="encoder_noise",
        )


def _check_precision(settings: Settings) -> None:
    check_choice("precision", settings.precision, ("auto", "float32", "mixed"))
    if settings.precision != "mixed":
        return
    table = isinstance(settings.encoder, str) and settings.encoder == "table"
    if settings.dtype != "float32" or table:
        raise InputError(
            "precision='mixed' computes the products of an encoder network partly with bfloat16, around float32. Got "
            + ("encoder='table', which has none" if table else f"dtype={settings.dtype!r}")
            + ". Use precision='auto', which chooses what fits.",
            argument="precision",
        )


def check_choice(name: str, value: object, choices: Sequence[str], also: str = "") -> None:
    """Raise InputError if the value is none of the choices."""
    if isinstance(value, str) and value in choices:
        return
    close = difflib.get_close_matches(str(value), choices, 1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    expected = ("one of " if len(choices) > 1 else "") + ", ".join(map(repr, choices))
    raise InputError(f"{name} must be {expected}{', ' + also if also else ''}. Got {value!r}.{hint}", argument=name)


def _check_init(settings: Settings, N: int) -> None:
    init, Q = settings.init, settings.n_components
    if isinstance(init, str):
        names = ("pca", "random", *layouts.NAMES)
        check_choice("init", init, names, "an array [N, n_components] or an object with fit_transform")
        return layouts.check_installed(init)
    if isinstance(init, dict) and "custom" in init:
        raise InputError(
            f"init must be an object to train with, but a model file keeps only its class, {init['custom']}. Pass an "
            f"object: set_params(init={init['custom'].rpartition('.')[2]}(...)).",
            argument="init",
        )
    if isinstance(init, type):
        raise InputError(
            f"init must be an object with fit_transform, not the class {init.__name__}. Use {init.__name__}(...).",
            argument="init",
        )
    if hasattr(init, "fit_transform"):
        return None
    try:
        fits, finite = np.shape(init) == (N, Q), bool(np.isfinite(init).all())
    except (TypeError, ValueError):  # without a shape, or not of numbers
        fits, finite = False, False
    if not (fits and finite):
        raise InputError(
            f"init must be one of 'pca', 'random', {', '.join(map(repr, layouts.NAMES))}, an object with "
            f"fit_transform, or an array of finite numbers, n_components={Q} for each of the {N} rows of data. "
            f"Got {'values that are not finite' if fits else _shape_or_type(init)}.",
            argument="init",
        )
    return None


def _shape_or_type(value: object) -> str:
    return f"shape {np.shape(value)}" if isinstance(value, np.ndarray | Tensor) else type(value).__name__


def check_device(settings: Settings | SupervisedSettings) -> None:
    """Raise InputError if there is no such device."""
    try:
        torch.zeros(1, device=settings.torch_device()).item()  # the device "meta" has no numbers
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device must be 'auto', 'cpu' or a device that torch finds here. Got {settings.device!r}: "
            f"{str(error).splitlines()[0]}",
            argument="device",
        ) from error


def _check_memory(N: int, dtype: torch.dtype) -> None:
    """Raise InputError if a step of the exact model, with about eight N×N matrices, does not fit into memory."""
    need, have = 8 * N * N * dtype.itemsize, available()
    if need > have:
        raise InputError(
            f"An exact GP-LVM of {N} rows needs about {amount(need)} of memory, but only {amount(have)} are free. Use "
            "SASGP with an active_set_size, or fewer rows."
        )


def seed_of(random_state: Any) -> int:
    """A seed from scikit-learn's `random_state`. None: a new seed, without a draw from NumPy's global state."""
    if random_state is None:
        return secrets.randbelow(2**31)
    try:
        return int(check_random_state(random_state).randint(2**31))
    except ValueError as error:
        raise InputError(
            f"random_state must be a whole number from 0 to 2³² − 1, a RandomState or None. Got {random_state!r}.",
            argument="random_state",
        ) from error
