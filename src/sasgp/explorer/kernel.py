"""A kernel for the browser: a tree of plain numbers, with constrained hyperparameters such as the lengthscale.

`tree` reads a GPyTorch kernel, and `evaluate` computes the tree as the page does. The tree is used only if that agrees
with the kernel itself. If another release of GPyTorch changes a formula, the page falls back to a grid.
"""

import math
from collections.abc import Sequence
from typing import Any

import gpytorch.kernels as gpk
import numpy as np
import torch
from numpy.typing import NDArray

from sasgp.gp import kernels

__all__ = ["evaluate", "tree"]

Array = NDArray[Any]
Tree = dict[str, Any]

AGREEMENT = 1e-6  # of the kernel's largest value; GPyTorch's distances in float64 are good to about 1e-8


def tree(kernel: gpk.Kernel, Z: torch.Tensor) -> Tree | None:
    """The kernel as a tree, or None if the browser does not know it. It is checked at the points `Z` [M, Q]."""
    try:
        kernels.describe(kernel)  # raises if any part is not one of GPyTorch's own kernels
    except kernels.CustomKernelError:
        return None
    found = _node(kernel, range(Z.shape[1]))
    if found is None:
        return None
    with torch.no_grad():
        expected = kernel(Z).to_dense().numpy(force=True)
    points = Z.numpy(force=True)
    error = np.abs(evaluate(found, points, points) - expected).max()
    return found if error <= AGREEMENT * np.abs(expected).max() else None


def _node(kernel: gpk.Kernel, dims: Sequence[int], *, select: bool = True) -> Tree | None:
    """One part of the kernel on the dimensions `dims`, from which it selects its active dimensions."""
    if select and kernel.active_dims is not None:
        dims = [dims[i] for i in kernel.active_dims.tolist()]
    kind = "Scale" if kernels.is_scaled(kernel) else type(kernel).__name__.removesuffix("Kernel")
    match kind:
        case "Scale":
            # The scale has already selected the base kernel's dimensions
            return _composed(
                "product",
                [{"kind": "constant", "value": kernel.outputscale.item()}],
                [kernel.base_kernel],
                dims,
                select=False,
            )
        case "Additive" | "Product":
            return _composed("sum" if kind == "Additive" else "product", [], list(kernel.kernels), dims)
        case "Constant":
            return {"kind": "constant", "value": kernel.constant.item()}
        case "Linear":
            return {"kind": "linear", "dims": [*dims], "variance": _each(kernel.variance, dims)}
        case "Polynomial":
            return {"kind": "polynomial", "dims": [*dims], "offset": kernel.offset.item(), "power": int(kernel.power)}
        case "RBF":
            return {"kind": "rbf", "dims": [*dims], "lengthscale": _each(kernel.lengthscale, dims)}
        case "Matern":
            return {"kind": "matern", "dims": [*dims], "lengthscale": _each(kernel.lengthscale, dims), "nu": kernel.nu}
        case "RQ":
            lengthscale = _each(kernel.lengthscale, dims)
            return {"kind": "rq", "dims": [*dims], "lengthscale": lengthscale, "alpha": kernel.alpha.item()}
        case "Periodic":
            period, lengthscale = _each(kernel.period_length, dims), _each(kernel.lengthscale, dims)
            return {"kind": "periodic", "dims": [*dims], "lengthscale": lengthscale, "period": period}
        case "Cosine":
            return {"kind": "cosine", "dims": [*dims], "lengthscale": _each(kernel.period_length, dims)}
    return None


def _composed(
    kind: str, known: list[Tree], parts: list[gpk.Kernel], dims: Sequence[int], *, select: bool = True
) -> Tree | None:
    nodes = [_node(part, dims, select=select) for part in parts]
    if any(node is None for node in nodes):
        return None
    return {"kind": kind, "parts": [*known, *(node for node in nodes if node is not None)]}


def _each(value: torch.Tensor, dims: Sequence[int]) -> list[float]:
    """A hyperparameter for each dimension, also if they share one."""
    return [float(v) for v in value.detach().double().flatten().expand(len(dims))]


def evaluate(node: Tree, A: Array, B: Array) -> Array:
    """k(a, b) [M, N] of points [M, Q] and [N, Q]. `decoder.js` has the same formulas."""
    kind = node["kind"]
    if kind == "constant":
        return np.full((len(A), len(B)), node["value"])
    if kind in ("sum", "product"):
        parts = [evaluate(part, A, B) for part in node["parts"]]
        return np.sum(parts, 0) if kind == "sum" else np.prod(parts, 0)
    A, B = A[:, node["dims"]], B[:, node["dims"]]
    if kind == "linear":
        return np.asarray(A * node["variance"] @ B.T)
    if kind == "polynomial":
        return np.asarray((A @ B.T + node["offset"]) ** node["power"])
    difference = A[:, None] - B  # [M, N, Q]
    if kind == "periodic":
        sines = np.sin(math.pi * difference / node["period"]) ** 2 / node["lengthscale"]
        return np.exp(-2 * sines.sum(-1))
    r2 = np.square(difference / node["lengthscale"]).sum(-1)
    r = np.sqrt(r2)
    match kind:
        case "rbf":
            return np.exp(-r2 / 2)
        case "rq":
            return (1 + r2 / (2 * node["alpha"])) ** -node["alpha"]
        case "cosine":
            return np.cos(math.pi * r)
        case "matern":
            s = math.sqrt(2 * node["nu"]) * r
            polynomial = {0.5: 1.0, 1.5: 1 + s, 2.5: 1 + s + s**2 / 3}[node["nu"]]
            return np.asarray(polynomial * np.exp(-s))
    raise AssertionError(kind)
