"""Fingerprints: what must be the same to go on from a checkpoint, and what a model knows its training rows by."""

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from sasgp.data.rows import row_blocks, take_rows

__all__ = ["differences", "fingerprint", "sample_fingerprint"]


def fingerprint(array: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The shape, type and values of rows [N, D], which are read once, and the settings."""
    values = hashlib.blake2b(digest_size=16)
    for _, block in row_blocks(array):
        values.update(np.ascontiguousarray(block).data)
    return {
        "rows of data": array.shape[0],
        "features": array.shape[1],
        "type of data": str(array.dtype),
        "values of data": values.hexdigest(),
        **{name: described(value) for name, value in settings.items()},
    }


def sample_fingerprint(array: Any, dtype: str, part: slice = slice(None)) -> str:
    """A hash of 256 rows spread over an array or a part of it, as a model of this dtype sees them, however stored."""
    start, stop, _ = part.indices(len(array))
    rows = np.unique(np.linspace(start, stop - 1, 256).astype(np.int64))
    values = np.ascontiguousarray(take_rows(array, rows), dtype=dtype) + 0.0  # −0 is 0
    return hashlib.blake2b(values.tobytes(), digest_size=8).hexdigest()


def differences(then: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """What differs, in words; an empty string if nothing does."""
    names = [name for name in {**then, **now} if then.get(name) != now.get(name)]
    return "; ".join(f"{name}: {then.get(name)!r} in the checkpoint, {now.get(name)!r} now" for name in names)


def described(value: object) -> Any:
    """A setting as a JSON value: modules by their structure, arrays by a hash."""
    if isinstance(value, np.generic):  # first, because NumPy's float64 is also a float
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple | list) and all(isinstance(size, int | np.integer) for size in value):
        return [int(size) for size in value]
    if isinstance(value, nn.Module):
        return f"{type(value).__name__} {_digest(_structure(value))}"
    if isinstance(value, np.random.RandomState):
        return "RandomState"
    if hasattr(value, "fit_transform"):
        settings = value.get_params(deep=False) if hasattr(value, "get_params") else {}
        plain = {k: v for k, v in sorted(settings.items()) if v is None or isinstance(v, bool | int | float | str)}
        return f"{type(value).__name__} {_digest(plain)}"
    array = np.ascontiguousarray(value)
    return f"array {array.shape} {_digest(array.tobytes())}"


def _digest(content: object) -> str:
    return hashlib.blake2b(content if isinstance(content, bytes) else repr(content).encode(), digest_size=8).hexdigest()


def _structure(module: nn.Module) -> list[object]:
    """What a module computes, as far as it can be seen, but not the values of its parameters, which are trained."""
    own = vars(nn.Module()).keys()
    parts: list[object] = [(name, tuple(value.shape), str(value.dtype)) for name, value in module.named_parameters()]
    parts += [(name, _plain(value)) for name, value in module.named_buffers()]
    for name, part in module.named_modules():
        attributes = {key: _plain(value) for key, value in sorted(vars(part).items()) if key not in own}
        parts.append((name, _name(type(part)), part.extra_repr(), attributes))
    return parts


def _plain(value: object) -> object:
    """A module's attribute in a form that is the same in every process: no addresses, no order of sets."""
    if isinstance(value, Tensor):
        content = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return tuple(value.shape), str(value.dtype), _digest(content)
    if isinstance(value, np.ndarray):
        return value.shape, str(value.dtype), _digest(np.ascontiguousarray(value).tobytes())
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | torch.dtype | np.generic):
        return repr(value)
    if isinstance(value, Mapping):
        return [(repr(key), _plain(entry)) for key, entry in value.items()]
    if isinstance(value, tuple | list):
        return [_plain(entry) for entry in value]
    return _name(value if hasattr(value, "__qualname__") else type(value))  # a function, a class, or an object's class


def _name(thing: Any) -> str:
    return f"{thing.__module__}.{thing.__qualname__}"
