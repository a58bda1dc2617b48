"""The precision of the encoder's products: float32, or "mixed" with bfloat16.

In a mixed product both factors are rounded to bfloat16, which has eight significant bits and the range of float32, and
the sum is kept in float32. New processors and GPUs multiply such numbers at twice the speed of float32 or more. Only
the hidden layers of an encoder are computed so, and only in training: weights, their gradients' averages in Adam, the
layer that gives z, the Gaussian process, and the encoder after training are never below float32.
"""

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Any, Literal

import torch

__all__ = ["Precision", "auto_precision", "has_bfloat16", "rounded_products"]

Precision = Literal["float32", "mixed"]

CPU_FLAGS = {"avx512_bf16", "amx_bf16"}  # processors with one of these multiply bfloat16
FEWEST_FEATURES = 64  # docs/measurements.md says why


def auto_precision(encoder: Any, dtype: torch.dtype, n_features: int, device: torch.device) -> Precision:
    """What precision="auto" means: "mixed" for our networks on wide rows, where the hardware multiplies bfloat16."""
    ours = isinstance(encoder, str) and encoder in ("network", "conv")
    wide = n_features >= FEWEST_FEATURES
    return "mixed" if ours and wide and dtype == torch.float32 and has_bfloat16(device) else "float32"


def has_bfloat16(device: torch.device) -> bool:
    """Whether the hardware has products of bfloat16. Elsewhere torch computes them, but more slowly than float32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    onednn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    return device.type == "cpu" and onednn and not CPU_FLAGS.isdisjoint(_cpu_flags())


@cache
def _cpu_flags() -> frozenset[str]:
    """What the processor can do, as Linux says it; nothing on other systems."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((line.partition(":")[2] for line in lines if line.startswith("flags")), "").split())


def rounded_products(device: torch.device, wanted: bool) -> AbstractContextManager[Any]:
    """Inside the block, layers compute with bfloat16 if it is wanted, forward and backward."""
    return torch.autocast(device.type, torch.bfloat16) if wanted else nullcontext()
