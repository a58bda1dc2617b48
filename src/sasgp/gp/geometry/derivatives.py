"""Derivatives of a kernel k(z, z') in both of its arguments, which the geometry of its functions is made of.

RBF, Matérn-3/2 and Matérn-5/2 are functions φ(u) of u = Σ_q (z_q − z'_q)² / ℓ_q². With d_q = (z_q − z'_q) / ℓ_q²,

    ∂k/∂z_q = 2 φ′ d_q = −∂k/∂z'_q          ∂²k/∂z_q∂z'_p = −4 φ″ d_q d_p − 2 φ′ δ_qp / ℓ_q²

Scales, sums and products of kernels follow by the rules of calculus. All other kernels are differentiated by autograd.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, ProductKernel, RBFKernel
from torch import Tensor

from sasgp.errors import InputError
from sasgp.gp.kernels import is_scaled, units_of

__all__ = ["Derivatives", "check_differentiable", "derivatives"]

TINY = 1e-150  # instead of a distance of 0, by which a product with 0 is divided
OFFSET = 1e-5  # in lengthscales, from points at which autograd meets the norm of 0
TOLERANCE = 0.01  # by which second derivatives at two offsets may differ, if there is one

Profile = Callable[[Tensor], tuple[Tensor, Tensor, Tensor]]


class Derivatives(NamedTuple):
    """k(z, z') [...], its derivatives in z and z' [..., Q], and the mixed second one [..., Q, Q], if asked for."""

    k: Tensor
    left: Tensor
    right: Tensor
    mixed: Tensor | None


def derivatives(kernel: Kernel, Z: Tensor, W: Tensor, *, mixed: bool = False) -> Derivatives:
    """The kernel and its derivatives between points Z [..., Q] and W [..., Q], which are broadcast."""
    if not _has_closed_form(kernel):
        return _by_autograd(kernel, Z, W, OFFSET, mixed)
    dims = kernel.active_dims
    if dims is None:
        return _closed_form(kernel, Z, W, mixed)
    found = _closed_form(kernel, Z[..., dims], W[..., dims], mixed)
    # The kernel does not change along the other dimensions
    E = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device)[dims]  # [q, Q]
    second = None if found.mixed is None else E.T @ found.mixed @ E
    return Derivatives(found.k, found.left @ E, found.right @ E, second)


def check_differentiable(kernel: Kernel, z: Tensor) -> None:
    """Raise InputError if functions with this kernel have no derivative at z [1, Q]."""
    # The second derivative of such a kernel grows without bound towards z = z'
    near, nearer = (_by_autograd(kernel, z, z, offset, True).mixed for offset in (OFFSET, OFFSET / 10))
    if near is None or nearer is None or not (near - nearer).norm() <= TOLERANCE * nearer.norm():
        raise InputError(
            "Geometry needs functions that have a derivative, and those of this kernel have none; Matérn-1/2 is such a "
            "kernel. Train the model with kernel='rbf', 'matern52' or 'matern32'.",
            argument="kernel",
        )


# ---- closed forms ----


def _rbf(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # φ = exp(−u/2)
    k = (-0.5 * u).exp()
    return k, -0.5 * k, 0.25 * k


def _matern32(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # φ = (1 + r) exp(−r), r² = 3u          φ′ = −3/2 exp(−r)          φ″ = 9/4 exp(−r) / r
    r = (3 * u).sqrt()
    e = (-r).exp()
    return (1 + r) * e, -1.5 * e, 2.25 * e / r.clamp_min(TINY)


def _matern52(u: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    # φ = (1 + r + r²/3) exp(−r), r² = 5u          φ′ = −5/6 (1 + r) exp(−r)          φ″ = 25/12 exp(−r)
    r = (5 * u).sqrt()
    e = (-r).exp()
    return (1 + r + r.square() / 3) * e, -5 / 6 * (1 + r) * e, 25 / 12 * e


def _profile(kernel: Kernel) -> Profile | None:
    """φ, φ′ and φ″ of a stationary kernel; a subclass might compute something else."""
    if type(kernel) is RBFKernel:
        return _rbf
    return {1.5: _matern32, 2.5: _matern52}.get(kernel.nu) if type(kernel) is MaternKernel else None


def _has_closed_form(kernel: Kernel) -> bool:
    if len(kernel.batch_shape):
        return False
    if is_scaled(kernel):
        return _has_closed_form(kernel.base_kernel)
    return type(kernel) in (AdditiveKernel, ProductKernel) or _profile(kernel) is not None


def _closed_form(kernel: Kernel, Z: Tensor, W: Tensor, mixed: bool) -> Derivatives:
    """As `derivatives`, in the kernel's own dimensions."""
    if is_scaled(kernel):  # it has taken over the active_dims of its base
        found = _closed_form(kernel.base_kernel, Z, W, mixed)
        s, second = kernel.outputscale, found.mixed
        return Derivatives(s * found.k, s * found.left, s * found.right, None if second is None else s * second)
    if isinstance(kernel, AdditiveKernel | ProductKernel):
        first, *rest = (derivatives(part, Z, W, mixed=mixed) for part in kernel.kernels)
        join = _sum if isinstance(kernel, AdditiveKernel) else _product
        for other in rest:
            first = join(first, other)
        return first
    profile = _profile(kernel)
    assert profile is not None
    length = kernel.lengthscale[0]  # [1] or [Q]
    d = (Z - W) / length
    # A product with ones, because torch takes ten times as long for sums over so few numbers
    k, slope, bend = profile(d.square() @ torch.ones_like(d[(0,) * (d.ndim - 1)]))
    d = d / length
    left = 2 * slope[..., None] * d
    if not mixed:
        return Derivatives(k, left, -left, None)
    eye = torch.eye(Z.shape[-1], dtype=Z.dtype, device=Z.device) / length.square()
    outer = d[..., :, None] * d[..., None, :]
    return Derivatives(k, left, -left, -4 * bend[..., None, None] * outer - 2 * slope[..., None, None] * eye)


def _sum(a: Derivatives, b: Derivatives) -> Derivatives:
    second = None if a.mixed is None or b.mixed is None else a.mixed + b.mixed
    return Derivatives(a.k + b.k, a.left + b.left, a.right + b.right, second)


def _product(a: Derivatives, b: Derivatives) -> Derivatives:
    # ∂∂′(ab) = ∂∂′a b + ∂a ∂′b + ∂b ∂′a + a ∂∂′b
    def times(k: Tensor, vector: Tensor) -> Tensor:
        return k[..., None] * vector

    second = None
    if a.mixed is not None and b.mixed is not None:
        cross = a.left[..., :, None] * b.right[..., None, :] + b.left[..., :, None] * a.right[..., None, :]
        second = b.k[..., None, None] * a.mixed + cross + a.k[..., None, None] * b.mixed
    return Derivatives(
        a.k * b.k, times(b.k, a.left) + times(a.k, b.left), times(b.k, a.right) + times(a.k, b.right), second
    )


# ---- any kernel ----


def _by_autograd(kernel: Kernel, Z: Tensor, W: Tensor, offset: float, mixed: bool) -> Derivatives:
    """As `derivatives`, for any kernel."""
    Z, W = torch.broadcast_tensors(Z.detach(), W.detach())  # type: ignore[no-untyped-call]
    shape, Q = Z.shape, Z.shape[-1]
    Z, W = Z.reshape(-1, Q), W.reshape(-1, Q)
    k, left, right, _ = _gradients(kernel, Z, W, mixed=False)
    second = None
    if mixed:
        # Where z = z', a kernel of ‖z − z'‖ has no derivative for autograd. The mean over both sides of z' has an error
        # of the second order in the offset.
        h = offset / math.sqrt(Q) * units_of(kernel, Q).to(Z)
        sides = [_gradients(kernel, Z, W + side * h)[3] for side in (1, -1)]
        second = (0.5 * (sides[0] + sides[1])).reshape(*shape, Q)
    return Derivatives(k.reshape(shape[:-1]), left.reshape(shape), right.reshape(shape), second)


def _gradients(kernel: Kernel, Z: Tensor, W: Tensor, *, mixed: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The kernel between pairs of points [n, Q] [n], its derivatives [n, Q], and if asked for [n, Q, Q]."""
    with torch.enable_grad():
        Z, W = Z.clone().requires_grad_(), W.clone().requires_grad_()
        nothing = 0 * (Z + W)  # a kernel that does not depend on its arguments has derivatives, too
        k = kernel(Z, W, diag=True) + nothing.sum(1)
        left, right = torch.autograd.grad(k.sum(), (Z, W), create_graph=mixed)
        rows = (left + nothing).sum(0) if mixed else ()
        second = [torch.autograd.grad(row, W, retain_graph=True)[0] for row in rows]
    found = torch.stack(second, 1) if mixed else left.new_empty(0)
    return k.detach(), left.detach(), right.detach(), found
