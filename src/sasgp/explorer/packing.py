"""Arrays as text for a page: rounded as far as their use allows, compressed, in base64.

    pack(A, "int16")    16-bit integers times one scale per column
    pack(A, "float32")  the numbers themselves

The browser decompresses with its DecompressionStream. `unpack` does the same here, so that the numbers of a page are
known before it is written.
"""

import base64
import json
import math
import zlib
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Kind", "Packed", "pack", "pack_text", "unpack", "unpack_text"]

Array = NDArray[Any]
Kind = Literal["uint8", "int16", "int32", "float32", "float64"]
Packed = dict[str, Any]

STEPS = 32767  # of int16, on either side of 0


def pack(array: Array, kind: Kind) -> Packed:
    """An array as JSON. int16 rounds it to multiples of 1/32767 of the largest value in each column."""
    packed: Packed = {"kind": kind, "shape": list(array.shape)}
    if kind == "int16":
        columns = array.reshape(-1, array.shape[-1] if array.ndim > 1 else 1)
        scale = np.abs(columns).max(0, initial=0.0) / STEPS
        array = np.rint(columns / np.where(scale > 0, scale, 1))
        packed["scale"] = [float(s) for s in scale]
    raw = np.ascontiguousarray(array, dtype=np.dtype(kind).newbyteorder("<"))
    # All first bytes, then all second bytes, …: the bytes of the exponents are similar, and compress well together
    planes = raw.view(np.uint8).reshape(-1, raw.itemsize).T
    return packed | {"data": _compressed(planes.tobytes())}


def pack_text(names: Sequence[str]) -> Packed:
    """A list of text as JSON, compressed."""
    text = json.dumps(list(names), ensure_ascii=False, separators=(",", ":"))
    return {"kind": "text", "data": _compressed(text.encode("utf-8", "replace"))}


def unpack_text(packed: Packed) -> list[str]:
    """The list of text as the browser reads it."""
    found: list[str] = json.loads(zlib.decompress(base64.b64decode(packed["data"])))
    return found


def _compressed(raw: bytes) -> str:
    return base64.b64encode(zlib.compress(raw, 6)).decode()


def unpack(packed: Packed) -> Array:
    """The array as the browser reads it. Rounded numbers are float32."""
    dtype, shape = np.dtype(packed["kind"]).newbyteorder("<"), packed["shape"]
    planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["data"])), np.uint8)
    array: Array = planes.reshape(dtype.itemsize, math.prod(shape)).T.copy().view(dtype).reshape(shape)
    if "scale" not in packed:
        return array
    columns = array.reshape(-1, shape[-1] if len(shape) > 1 else 1) * np.array(packed["scale"])
    return columns.astype(np.float32).reshape(shape)  # as in the page
