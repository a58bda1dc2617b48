"""k(Z, Z_A) and k(z, z), which are all that Eq. 6 asks of a kernel.

Any GPyTorch kernel can be called for them. The default, a scaled RBF kernel, has a faster way to the same numbers: one
product of narrow matrices and one exponential forward, two narrow products backward.
"""

import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.autograd.function import FunctionCtx

__all__ = ["covariances"]


def covariances(kernel: Kernel, Z: Tensor, A: int) -> tuple[Tensor, Tensor]:
    """The kernel between latents Z [B, Q] and the first A of them, [B, A], and of each with itself, [B]."""
    if _is_scaled_rbf(kernel):
        s = kernel.outputscale
        return _ScaledRBF.apply(Z / kernel.base_kernel.lengthscale, s, A), s.expand(len(Z))  # type: ignore[no-untyped-call]
    # GPyTorch expands ‖z − z'‖², so rounding leaves a point √ε away from itself. A Matérn-1/2 kernel then loses part of
    # its diagonal, as if there were less noise. So the diagonal is set to k(z, z), which is exact.
    k = kernel(Z, diag=True)  # [B]
    return kernel(Z, Z[:A]).to_dense().diagonal_scatter(k[:A]), k


def _is_scaled_rbf(kernel: Kernel) -> bool:
    """Whether k(z, z') = s exp(−½ ‖(z − z')/ℓ‖²), and nothing else; a subclass might compute something else."""
    return (
        type(kernel) is ScaleKernel
        and type(kernel.base_kernel) is RBFKernel
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
        if torch.is_grad_enabled():  # see `objective`: once_differentiable would leave out the curvature silently
            raise RuntimeError(
                "These covariances are differentiable once, but create_graph=True asks for a second derivative. Call "
                "the kernel itself instead."
            )
        # E = ∂K ∘ K          ∂z_b = Σ_a E_ba (z_a − z_b)          ∂z_a = Σ_b E_ba (z_b − z_a)          ∂s = ΣE / s
        Z, s, K = ctx.saved_tensors  # type: ignore[attr-defined]
        E, A, Q = d_K * K, K.shape[1], Z.shape[1]
        Z1 = torch.cat([Z, Z.new_ones(len(Z), 1)], 1)  # the column of ones gives the sums
        by_row, by_column = E @ Z1[:A], E.T @ Z1  # [B, Q + 1], [A, Q + 1]
        d_Z = torch.addcmul(by_row[:, :Q], by_row[:, Q:], Z, value=-1)
        d_Z[:A] += torch.addcmul(by_column[:, :Q], by_column[:, Q:], Z[:A], value=-1)
        return d_Z, by_row[:, Q].sum() / s, None
