"""k(Z, Z_A) and k(z, z), which are all that Eq. 6 asks of a kernel.

Any GPyTorch kernel can be called for them. Scaled RBF, Matérn-3/2 and Matérn-5/2 kernels have a faster way to the same
numbers: one product of narrow matrices and one exponential forward, two narrow products backward.
"""

import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel
from torch import Tensor
from torch.autograd.function import FunctionCtx

from sasgp.gp.kernels import is_scaled

__all__ = ["covariances"]


def covariances(kernel: Kernel, Z: Tensor, A: int) -> tuple[Tensor, Tensor]:
    """The kernel between latents Z [B, Q] and the first A of them, [B, A], and of each with itself, [B]."""
    if _is_scaled(kernel, RBFKernel):
        s = kernel.outputscale
        return _ScaledRBF.apply(Z / kernel.base_kernel.lengthscale, s, A), s.expand(len(Z))  # type: ignore[no-untyped-call]
    if _is_scaled(kernel, MaternKernel) and kernel.base_kernel.nu in (1.5, 2.5):
        s, nu = kernel.outputscale, kernel.base_kernel.nu
        return _ScaledMatern.apply(Z / kernel.base_kernel.lengthscale, s, A, nu), s.expand(len(Z))  # type: ignore[no-untyped-call]
    # GPyTorch expands ‖z − z'‖², so rounding leaves a point √ε away from itself. A Matérn-1/2 kernel then loses part of
    # its diagonal, as if there were less noise. So the diagonal is set to k(z, z), which is exact.
    k = kernel(Z, diag=True)  # [B]
    return kernel(Z, Z[:A]).to_dense().diagonal_scatter(k[:A]), k


def _is_scaled(kernel: Kernel, base: type[Kernel]) -> bool:
    """Whether a kernel is s k(‖(z − z')/ℓ‖) of this class, and nothing else: a subclass might compute others."""
    return (
        is_scaled(kernel)
        and type(kernel.base_kernel) is base
        and kernel.active_dims is None
        and kernel.base_kernel.active_dims is None
        and not len(kernel.batch_shape)
    )


class _ScaledRBF(torch.autograd.Function):
    """K = s exp(−½ ‖z_b − z_a‖²) [B, A] from latents Z [B, Q] in units of the lengthscale."""

    @staticmethod
    def forward(ctx: FunctionCtx, Z: Tensor, s: Tensor, A: int) -> Tensor:
        Z = Z - Z.mean(0)  # differences stay the same, and round less
        one, log_s = Z.new_ones(len(Z), 1), s.log()
        half = -0.5 * Z.square().sum(1, keepdim=True)
        # log K = log s − ½ ‖z_b‖² − ½ ‖z_a‖² + z_b·z_a = [z_b, −½ ‖z_b‖², 1] · [z_a, 1, log s − ½ ‖z_a‖²]
        left = torch.cat([Z, half, one], 1)  # [B, Q + 2]
        right = torch.cat([Z[:A], one[:A], half[:A] + log_s], 1)  # [A, Q + 2]
        # Rounding can make a squared distance negative
        K = (left @ right.T).clamp_max_(log_s).exp_()  # [B, A]
        K.diagonal().copy_(s.expand(A))
        ctx.save_for_backward(Z, s, K)
        return K

    @staticmethod
    def backward(ctx: FunctionCtx, d_K: Tensor) -> tuple[Tensor | None, ...]:
        _check_once()
        # −∂K/∂(½ r²) = K, so E = ∂K ∘ K, and ∂s = ΣE / s
        Z, s, K = ctx.saved_tensors  # type: ignore[attr-defined]
        d_Z, total = _pulled(d_K * K, Z)
        return d_Z, total / s, None


class _ScaledMatern(torch.autograd.Function):
    """K = s (1 + t) e⁻ᵗ for ν = 3/2, or s (1 + t + t²/3) e⁻ᵗ for ν = 5/2, with t = √(2ν) ‖z_b − z_a‖, as [B, A]."""

    @staticmethod
    def forward(ctx: FunctionCtx, Z: Tensor, s: Tensor, A: int, nu: float) -> Tensor:
        Z = Z - Z.mean(0)  # differences stay the same, and round less
        half = 0.5 * Z.square().sum(1)
        # r² = 2 (½ ‖z_b‖² + ½ ‖z_a‖² − z_b·z_a), which rounding can make negative
        t = (half[:, None] + half[:A] - Z @ Z[:A].T).mul_(4 * nu).clamp_min_(0)  # t² = 2ν r²
        t.diagonal().zero_()
        t.sqrt_()
        E = t.neg().exp_().mul_(s)  # s e⁻ᵗ
        if nu == 1.5:
            slope = 3 * E
            K = E.mul_(t.add_(1))
        else:
            slope = 5 / 3 * (1 + t) * E
            K = E.mul_(t.square().div_(3).add_(t).add_(1))
        ctx.save_for_backward(Z, s, K, slope)
        return K

    @staticmethod
    def backward(ctx: FunctionCtx, d_K: Tensor) -> tuple[Tensor | None, ...]:
        _check_once()
        # −∂K/∂(½ r²) = (2ν)/r ∂/∂t: 3 s e⁻ᵗ for ν = 3/2, and 5/3 s (1 + t) e⁻ᵗ for ν = 5/2
        Z, s, K, slope = ctx.saved_tensors  # type: ignore[attr-defined]
        d_Z, _ = _pulled(d_K * slope, Z)
        return d_Z, (d_K * K).sum() / s, None, None


def _pulled(E: Tensor, Z: Tensor) -> tuple[Tensor, Tensor]:
    """∂Z [B, Q] from E = −∂L/∂(½ r²) [B, A], and the sum of E."""
    # ∂z_b = Σ_a E_ba (z_a − z_b)          ∂z_a = Σ_b E_ba (z_b − z_a)
    A, Q = E.shape[1], Z.shape[1]
    Z1 = torch.cat([Z, Z.new_ones(len(Z), 1)], 1)  # the column of ones gives the sums
    # BLAS is three times as fast with the narrow factor stored like this
    by_row, by_column = E @ Z1[:A].T.contiguous().T, (Z1.T @ E).T  # [B, Q + 1], [A, Q + 1]
    d_Z = torch.addcmul(by_row[:, :Q], by_row[:, Q:], Z, value=-1)
    d_Z[:A] += torch.addcmul(by_column[:, :Q], by_column[:, Q:], Z[:A], value=-1)
    return d_Z, by_row[:, Q].sum()


def _check_once() -> None:
    if torch.is_grad_enabled():  # see `objective`: once_differentiable would leave out the curvature silently
        raise RuntimeError(
            "These covariances are differentiable once, but create_graph=True asks for a second derivative. Call the "
            "kernel itself instead."
        )
