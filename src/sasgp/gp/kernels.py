"""GPyTorch kernels by name, and as JSON.

`make` builds a kernel by its name in the settings. `describe` turns a kernel that is composed of GPyTorch's own classes
into plain JSON, hyperparameters included, and `rebuild` makes an equal kernel from that, which gives the same bits.
Class names in a description are looked up only in the tables below, so a file cannot name code to run.
"""

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import torch
from gpytorch.constraints import GreaterThan, Interval, LessThan, Positive
from gpytorch.kernels import (
    AdditiveKernel,
    ConstantKernel,
    CosineKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PeriodicKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.priors import (
    GammaPrior,
    HalfCauchyPrior,
    HalfNormalPrior,
    HorseshoePrior,
    LogNormalPrior,
    NormalPrior,
    Prior,
    SmoothedBoxPrior,
    UniformPrior,
)
from gpytorch.utils.transforms import inv_sigmoid, inv_softplus
from torch import Tensor, nn
from torch.nn.functional import softplus

from sasgp.errors import InputError

__all__ = [
    "NAMES",
    "CustomKernelError",
    "describe",
    "lengthscales",
    "make",
    "rebuild",
    "scale_lengthscales",
    "units_of",
]

NAMES = ("rbf", "rbf-ard", "matern12", "matern32", "matern52", "matern32-ard", "matern52-ard")

# Classes that a description may name, and those arguments of the constructor that a kernel keeps under the same name
_KERNELS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "AdditiveKernel": (AdditiveKernel, ()),
    "ConstantKernel": (ConstantKernel, ()),
    "CosineKernel": (CosineKernel, ("ard_num_dims",)),
    "LinearKernel": (LinearKernel, ("ard_num_dims",)),
    "MaternKernel": (MaternKernel, ("nu", "ard_num_dims")),
    "PeriodicKernel": (PeriodicKernel, ("ard_num_dims",)),
    "PiecewisePolynomialKernel": (PiecewisePolynomialKernel, ("q", "ard_num_dims")),
    "PolynomialKernel": (PolynomialKernel, ("power", "ard_num_dims")),
    "ProductKernel": (ProductKernel, ()),
    "RBFKernel": (RBFKernel, ("ard_num_dims",)),
    "RQKernel": (RQKernel, ("ard_num_dims",)),
    "ScaleKernel": (ScaleKernel, ()),
    "SpectralMixtureKernel": (SpectralMixtureKernel, ("num_mixtures", "ard_num_dims")),
}
_CONSTRAINTS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "GreaterThan": (GreaterThan, ("lower_bound",)),
    "Interval": (Interval, ("lower_bound", "upper_bound")),
    "LessThan": (LessThan, ("upper_bound",)),
    "Positive": (Positive, ()),
}
# Arguments of priors: name in the constructor → name of the attribute
_PRIORS: dict[str, tuple[Any, dict[str, str]]] = {
    "GammaPrior": (GammaPrior, {"concentration": "concentration", "rate": "rate"}),
    "HalfCauchyPrior": (HalfCauchyPrior, {"scale": "scale"}),
    "HalfNormalPrior": (HalfNormalPrior, {"scale": "scale"}),
    "HorseshoePrior": (HorseshoePrior, {"scale": "scale"}),
    "LogNormalPrior": (LogNormalPrior, {"loc": "loc", "scale": "scale"}),
    "NormalPrior": (NormalPrior, {"loc": "loc", "scale": "scale"}),
    "SmoothedBoxPrior": (SmoothedBoxPrior, {"a": "a", "b": "b", "sigma": "sigma"}),
    "UniformPrior": (UniformPrior, {"a": "low", "b": "high"}),
}
_TRANSFORMS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "exp": (torch.exp, torch.log),
    "sigmoid": (torch.sigmoid, inv_sigmoid),
    "softplus": (softplus, inv_softplus),
}
_DTYPES = {"float32": torch.float32, "float64": torch.float64}

MAX_SIZE = 1_000_000  # of a hyperparameter, so that a short description cannot fill the memory


class CustomKernelError(InputError):
    """The kernel has parts that are not GPyTorch's own, so it cannot be described."""


class OneScaleKernel(ScaleKernel):
    """GPyTorch's ScaleKernel, if it is one kernel and not a batch of them.

    Asked for an empty batch_shape, GPyTorch's own imports sympy (torch.broadcast_shapes): half a second per process.
    """

    batch_shape = torch.Size()


def is_scaled(kernel: Kernel) -> bool:
    """Whether a kernel is s k(z, z') of its base kernel, and nothing else: a subclass might compute something else."""
    return type(kernel) in (ScaleKernel, OneScaleKernel)


def make(name: str, n_components: int) -> Kernel:
    """A kernel by name. All kernels have an amplitude; amplitude and lengthscales start at 1.

    Parameters
    ----------
    name : str
        One of `NAMES`. Those that end in "-ard" have one lengthscale per dimension.
    n_components : int
        Q, the number of latent dimensions.
    """

    # On a log scale, a step of Adam is a relative change, whatever the units of the data
    def positive() -> Interval:
        return Positive(torch.exp, torch.log)

    if name in NAMES and torch.get_default_device().type == "meta":  # GPyTorch's constraints look at their values
        with torch.device("cpu"):
            return make(name, n_components)
    base: Kernel
    ard = n_components if str(name).endswith("-ard") else None
    match str(name).removesuffix("-ard") if name in NAMES else None:
        case "rbf":
            base = RBFKernel(ard_num_dims=ard, lengthscale_constraint=positive())
        case "matern12" | "matern32" | "matern52" as shape:
            base = MaternKernel(nu=int(shape[-2]) / 2, ard_num_dims=ard, lengthscale_constraint=positive())
        case _:
            near = difflib.get_close_matches(str(name), NAMES, n=1)
            cure = f"Did you mean {near[0]!r}?" if near else "Choose one of these, or pass a gpytorch.kernels.Kernel."
            raise InputError(f"kernel must be one of {', '.join(map(repr, NAMES))}. Got {name!r}. {cure}")
    return OneScaleKernel(base, outputscale_constraint=positive())


def build(kernel: str | Kernel, n_components: int) -> Kernel:
    """The kernel for a setting: one by name, or a copy of the user's own, which must work on Q dimensions."""
    if not isinstance(kernel, Kernel):
        return make(kernel, n_components)
    own: Kernel = deepcopy(kernel)
    point = torch.zeros(2, n_components, dtype=next((p.dtype for p in own.parameters()), torch.float32))
    try:
        own(point, point[:1]).to_dense()
    except (RuntimeError, ValueError, IndexError) as error:
        raise InputError(
            f"kernel must be a kernel on a latent space of n_components={n_components} dimensions, but "
            f"{type(own).__name__} fails there: {error}. Make its ard_num_dims and active_dims fit.",
            argument="kernel",
        ) from error
    return own


def relevance(kernel: Kernel | None, Z: Any) -> list[float]:
    """How much each dimension is used: the spread of latents Z [N, Q] in it, in lengthscales. 0 if it has none."""
    Z = torch.as_tensor(Z, dtype=torch.float64)
    spread = Z.std(0, correction=0).tolist()
    return [float(sd) / scale for sd, scale in zip(spread, lengthscales(kernel, Z.shape[1]), strict=True)]


def with_dimensions(kernel: Kernel, dims: Sequence[int]) -> Kernel:
    """A copy of a kernel that `make("rbf-ard")` made, with only these dimensions, in this order."""
    found = make("rbf-ard", len(dims)).to(kernel.raw_outputscale)
    found.outputscale = kernel.outputscale.detach()
    found.base_kernel.lengthscale = kernel.base_kernel.lengthscale.detach()[:, dims]
    return found


def lengthscales(kernel: Kernel | None, n_components: int) -> list[float]:
    """The shortest lengthscale of any part of a kernel in each latent dimension; infinite if no part has one."""
    shortest = [math.inf] * n_components

    def visit(part: Kernel, dims: Sequence[int]) -> None:
        if part.has_lengthscale:
            for q, length in zip(dims, part.lengthscale.detach().flatten().expand(len(dims)).tolist(), strict=True):
                shortest[q] = min(shortest[q], length)
        for inner in _parts(part) or [child for child in part.children() if isinstance(child, Kernel)]:
            # A ScaleKernel has taken over the active_dims of its base
            visit(inner, dims if isinstance(part, ScaleKernel) else chosen(inner, dims))

    def chosen(part: Kernel, dims: Sequence[int]) -> Sequence[int]:
        return dims if part.active_dims is None else [dims[d] for d in part.active_dims.tolist()]

    if kernel is not None:
        visit(kernel, chosen(kernel, range(n_components)))
    return shortest


@torch.no_grad()
def scale_lengthscales(kernel: Kernel, factor: float) -> bool:
    """Multiply the lengthscales of all parts of a kernel that are learned, and say whether there are any."""
    parts = [part for part in kernel.modules() if isinstance(part, Kernel) and part.has_lengthscale]
    learned = [part for part in parts if part.raw_lengthscale.requires_grad]
    for part in learned:
        part.lengthscale = factor * part.lengthscale
    return bool(learned)


def units_of(kernel: Kernel, n_components: int) -> Tensor:
    """Units of distance in the latent space [Q], in float64: the `lengthscales`, and 1 where there are none."""
    found = [length if math.isfinite(length) else 1.0 for length in lengthscales(kernel, n_components)]
    return torch.tensor(found, dtype=torch.float64)


def describe(kernel: Kernel) -> dict[str, Any]:
    """The kernel as plain JSON; `rebuild` makes an equal one.

    Raises
    ------
    CustomKernelError
        If a part is not exactly one of the GPyTorch classes in the tables above, or was changed by hand.
    """
    if len(list(kernel.named_parameters(remove_duplicate=False))) != len(list(kernel.parameters())):
        raise _custom("two of its parts share a parameter")
    description = _describe(kernel)
    # Parts that are in no table, such as a parameter registered by hand, would be lost silently
    try:
        state, rebuilt = kernel.state_dict(), rebuild(description).state_dict()
    except InputError as error:
        raise _custom(str(error.__cause__ or error)) from error
    if state.keys() != rebuilt.keys():
        raise _custom(f"it differs from GPyTorch's own in {', '.join(sorted(state.keys() ^ rebuilt.keys()))}")
    for name, value in state.items():
        if not torch.equal(value.detach().cpu().double(), rebuilt[name].double()):
            raise _custom(f"its {name} is not where GPyTorch keeps it")
    return description


def rebuild(description: Mapping[str, Any]) -> Kernel:
    """The kernel that `describe` described, on the CPU. Raises InputError if the description is malformed."""
    try:
        return _rebuild(description)
    except InputError:
        raise
    except (AttributeError, KeyError, OverflowError, RuntimeError, TypeError, ValueError) as error:
        # GPyTorch's constructors raise all of these; too deep a nesting is a RuntimeError, too
        raise InputError(
            f"The description of the kernel is malformed: {type(error).__name__}: {error}. It must be one that sasgp "
            "wrote. Save the model again."
        ) from error


def _custom(reason: str) -> CustomKernelError:
    return CustomKernelError(
        "Only kernels composed of GPyTorch's own classes can be described in a file. "
        f"This one cannot: {reason}. Keep the code that makes it, and pass the kernel when loading."
    )


def _class_name(table: Mapping[str, tuple[Any, Any]], thing: object) -> str:
    """The name of a thing's class, if exactly that class is in the table. A subclass might compute something else."""
    cls = ScaleKernel if type(thing) is OneScaleKernel else type(thing)
    if cls.__name__ not in table or table[cls.__name__][0] is not cls:
        raise _custom(f"{cls.__module__}.{cls.__qualname__} is not one of {', '.join(table)}")
    return cls.__name__


def _look_up(table: Mapping[str, Any], name: object) -> Any:
    if not isinstance(name, str) or name not in table:
        raise InputError(
            f"The description of a kernel must name one of {', '.join(table)}. Got {name!r}. "
            "If a newer sasgp wrote it, upgrade sasgp."
        )
    return table[name]


def _parts(kernel: Kernel) -> list[Kernel]:
    if isinstance(kernel, ScaleKernel):
        return [kernel.base_kernel]
    return list(kernel.kernels) if isinstance(kernel, AdditiveKernel | ProductKernel) else []


def _describe(kernel: Kernel) -> dict[str, Any]:
    name = _class_name(_KERNELS, kernel)
    if len(kernel.batch_shape):
        raise _custom(f"{name} has batch_shape {tuple(kernel.batch_shape)}, and a decoder uses one kernel, not a batch")
    arguments = {key: getattr(kernel, key) for key in _KERNELS[name][1]}
    parameters = dict(kernel.named_parameters(recurse=False))
    unknown = kernel._priors.keys() - {_prior_name(key) for key in parameters}
    if unknown:
        raise _custom(f"{name} has a prior on something other than a hyperparameter: {', '.join(sorted(unknown))}")
    return {
        "class": name,
        # .item(): a number may be a NumPy scalar
        "arguments": {k: v.item() if hasattr(v, "item") else v for k, v in arguments.items()},
        "active_dims": None if kernel.active_dims is None else kernel.active_dims.tolist(),
        "parameters": {
            key: {
                **_describe_tensor(parameter, key),
                "trainable": parameter.requires_grad,
                "constraint": _describe_constraint(kernel.constraint_for_parameter_name(key)),
                "prior": _describe_prior(kernel, key),
            }
            for key, parameter in parameters.items()
        },
        "kernels": [_describe(part) for part in _parts(kernel)],
    }


def _rebuild(description: Mapping[str, Any]) -> Kernel:
    name = description["class"]
    cls, known = _look_up(_KERNELS, name)
    kernel = cls(*_rebuild_parts(name, description["kernels"]), **_check_arguments(description["arguments"], known))
    kernel.active_dims = _rebuild_active_dims(description["active_dims"])
    parameters = dict(kernel.named_parameters(recurse=False))
    if description["parameters"].keys() != parameters.keys():
        raise ValueError(f"{name} with {', '.join(description['parameters'])} for {', '.join(parameters)}")
    for key, parameter in parameters.items():
        entry = description["parameters"][key]
        value = _rebuild_tensor(entry)
        if value.shape != parameter.shape:
            raise ValueError(f"{key} of shape {tuple(value.shape)} for {tuple(parameter.shape)}")
        kernel.register_constraint(key, _rebuild_constraint(entry["constraint"], value.dtype))
        setattr(kernel, key, nn.Parameter(value, requires_grad=_check_bool(entry["trainable"])))
        if entry["prior"] is not None:
            kernel.register_prior(_prior_name(key), _rebuild_prior(entry["prior"]), _public_name(key))
    return kernel


def _rebuild_parts(name: str, descriptions: list[Any]) -> list[Kernel]:
    n = len(descriptions)
    if not (n == 1 if name == "ScaleKernel" else n > 0 if name in ("AdditiveKernel", "ProductKernel") else n == 0):
        raise ValueError(f"{name} of {n} kernels")
    return [_rebuild(description) for description in descriptions]


def _check_arguments(arguments: dict[str, Any], known: tuple[str, ...]) -> dict[str, int | float]:
    if arguments.keys() != set(known):
        raise ValueError(f"arguments {', '.join(arguments)} for {', '.join(known)}")
    # PeriodicKernel does not accept None
    given = {key: value for key, value in arguments.items() if value is not None}
    for key, value in given.items():
        if type(value) not in (int, float):
            raise TypeError(f"argument {key} = {value!r}")
    if given.get("num_mixtures", 1) * given.get("ard_num_dims", 1) > MAX_SIZE:
        raise ValueError(f"more than {MAX_SIZE} values in a hyperparameter")
    return given


def _check_bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def _rebuild_active_dims(dims: Any) -> Tensor | None:
    if dims is None:
        return None
    if not dims or any(type(dim) is not int for dim in dims):
        raise ValueError(f"active_dims = {dims!r}")
    return torch.tensor(dims, dtype=torch.long)


def _describe_tensor(value: Tensor, name: str) -> dict[str, Any]:
    dtype = str(value.dtype).removeprefix("torch.")
    if dtype not in _DTYPES:
        raise _custom(f"{name} is {dtype}, not float32 or float64")
    if not value.isfinite().all():
        raise InputError(
            f"A kernel can be saved only with finite hyperparameters, but {name} = {value.tolist()}. "
            "If training led there, lower hyper_learning_rate or set dtype='float64'."
        )
    # Python's float holds a float32 exactly, and JSON reads back the same float
    return {"dtype": dtype, "values": value.tolist()}


def _rebuild_tensor(description: Mapping[str, Any]) -> Tensor:
    value = torch.tensor(description["values"], dtype=_look_up(_DTYPES, description["dtype"]))
    if not value.isfinite().all():
        raise ValueError(f"values = {description['values']!r}")
    return value


def _describe_constraint(constraint: Interval | None) -> dict[str, Any]:
    name = _class_name(_CONSTRAINTS, constraint)
    return {
        "class": name,
        "transform": _transform_name(constraint),
        **{bound: _describe_tensor(getattr(constraint, bound), bound) for bound in _CONSTRAINTS[name][1]},
    }


def _rebuild_constraint(description: Mapping[str, Any], dtype: torch.dtype) -> Interval:
    cls, names = _look_up(_CONSTRAINTS, description["class"])
    bounds = {name: _rebuild_tensor(description[name]) for name in names}
    transform = description["transform"]
    forward, inverse = (None, None) if transform is None else _look_up(_TRANSFORMS, transform)
    constraint = cls(**bounds, transform=forward, inv_transform=inverse).to(dtype)
    for name, bound in bounds.items():
        setattr(constraint, name, bound)  # the constructor rounds to torch's default dtype
    return constraint


def _transform_name(constraint: Interval) -> str | None:
    forward, inverse = constraint._transform, constraint._inv_transform
    if forward is None:
        return None
    # GPyTorch's default is a Softplus module, which a deep copy of the kernel copies too
    if type(forward) is nn.Softplus and (forward.beta, forward.threshold) == (1, 20):
        forward = softplus
    for name, pair in _TRANSFORMS.items():
        if (forward, inverse) == pair:
            return name
    raise _custom(f"its constraint {constraint} transforms by something other than {', '.join(_TRANSFORMS)}")


def _public_name(parameter: str) -> str:
    return parameter.removeprefix("raw_")


def _prior_name(parameter: str) -> str:
    return f"{_public_name(parameter)}_prior"


def _describe_prior(kernel: Kernel, parameter: str) -> dict[str, Any] | None:
    if _prior_name(parameter) not in kernel._priors:
        return None
    prior, closure, _ = kernel._priors[_prior_name(parameter)]
    name = _class_name(_PRIORS, prior)
    if prior._transform is not None or not torch.equal(closure(kernel), getattr(kernel, _public_name(parameter))):
        raise _custom(f"its {_prior_name(parameter)} is on a function of the hyperparameter")
    return {
        "class": name,
        "validate": prior._validate_args,
        **{argument: _describe_tensor(getattr(prior, kept), kept) for argument, kept in _PRIORS[name][1].items()},
    }


def _rebuild_prior(description: Mapping[str, Any]) -> Prior:
    cls, arguments = _look_up(_PRIORS, description["class"])
    values = {argument: _rebuild_tensor(description[argument]) for argument in arguments}
    return cls(**values, validate_args=_check_bool(description["validate"]))
