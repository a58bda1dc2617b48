"""k(Z, Z_A) and k(z, z), which are all that Eq. 6 asks of a kernel.

Any GPyTorch kernel answers through its own call. The default one, a scaled RBF kernel, has a shorter way to the same
numbers: one product of narrow matrices and one exponential forward, two narrow products backward.
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
    # GPyTorch expands ‖z − z'‖², so rounding leaves a point √ε away from itself: in float32 a Matérn-1/2 kernel at
    # ℓ = 0.1 loses .01 of its amplitude on the diagonal, as if the noise were less by that. There k(z, z) is exact.
    k = kernel(Z, diag=True)  # [B]
    return kernel(Z, Z[:A]).to_dense().diagonal_scatter(k[:A]), k


def _is_scaled_rbf(kernel: Kernel) -> bool:
    """Whether k(z, z') = s exp(−½ ‖(z − z')/ℓ‖²), and nothing else: a subclass may compute something else."""
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
        Z = Z - Z.mean(0)  # it drops out of differences, and with it the digits that it would cost
        one, log_s = Z.new_ones(len(Z), 1), s.log()
        half = -0.5 * Z.square().sum(1, keepdim=True)
        # log K = log s − ½ ‖z_b‖² − ½ ‖z_a‖² + z_b·z_a = [z_b, −½ ‖z_b‖², 1] · [z_a, 1, log s − ½ ‖z_a‖²]
        left = torch.cat([Z, half, one], 1)  # [B, Q + 2]
        right = torch.cat([Z[:A], one[:A], half[:A] + log_s], 1)  # [A, Q + 2]
        # Rounding may put a pair at a negative distance
        K = (left @ right.T).clamp_max_(log_s).exp_()  # [B, A]
        K.diagonal().copy_(s.expand(A))
        ctx.save_for_backward(Z, s, K)
        return K

    @staticmethod
    def backward(ctx: FunctionCtx, d_K: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # as in `objective`: once_differentiable would leave the curvature out unsaid
            raise RuntimeError(
                "The kernel of a step is differentiable once. Got create_graph=True; call the kernel itself."
            )
        # E = ∂K ∘ K          ∂z_b = Σ_a E_ba (z_a − z_b)          ∂z_a = Σ_b E_ba (z_b − z_a)          ∂s = ΣE / s
        Z, s, K = ctx.saved_tensors  # type: ignore[attr-defined]
        E, A, Q = d_K * K, K.shape[1], Z.shape[1]
        Z1 = torch.cat([Z, Z.new_ones(len(Z), 1)], 1)  # the last column sums up
        by_row, by_column = E @ Z1[:A], E.T @ Z1  # [B, Q + 1], [A, Q + 1]
        d_Z = torch.addcmul(by_row[:, :Q], by_row[:, Q:], Z, value=-1)
        d_Z[:A] += torch.addcmul(by_column[:, :Q], by_column[:, Q:], Z[:A], value=-1)
        return d_Z, by_row[:, Q].sum() / s, None
