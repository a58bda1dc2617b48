"""Eq. 6 and Eq. 8 of Moreno-Muñoz, Feldager & Hauberg (2022): the stochastic active set (SAS) estimate.

A batch of B rows is split into A active rows, which come first, and R = B − A others. The estimate of log p(X | Z) is

    L̂ = log p(X_A | Z_A)  +  (N−A)/(B−A) · Σ_{n∈R} log N(x_n | m_n, c_n I)

    m_n = k_nA (K_AA + σ²I)⁻¹ X_A          c_n = k_nn + σ² − k_nA (K_AA + σ²I)⁻¹ k_An

Each feature may have a scale s_d: then x_d / s_d replaces x_d, and − N Σ_d log s_d is added for the change of units.

The gradient is written by hand. It needs one Cholesky factor, its inverse L⁻¹ and plain matrix products; autograd would
differentiate through the factorisation and solve triangular systems with D right-hand sides. If there are more features
than active rows, the residuals themselves are not computed, but their products with others, which is less work.
"""

import math

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from sasgp.gp.linalg import cholesky, gram, inverse, lower_times, times_lower, times_upper, upper_times

__all__ = ["LOG_2PI", "check_first_derivative", "kl_to_prior", "prior_log_density", "sas_estimate"]

LOG_2PI = math.log(2 * math.pi)


class _SASEstimate(torch.autograd.Function):
    """L̂ of a batch from K_BA = k(Z, Z_A), k_RR = diag k(Z_R, Z_R), σ² and s. See the module for the equations."""

    @staticmethod
    def forward(
        ctx: FunctionCtx, X: Tensor, K_BA: Tensor, k_RR: Tensor, noise: Tensor, scales: Tensor | None, N: int
    ) -> Tensor:
        (B, A), D = K_BA.shape, X.shape[1]
        X = X if scales is None else X / scales
        w = (N - A) / (B - A) if B > A else 0.0

        # K = K_AA + σ²I = L Lᵀ          V = K_RA L⁻ᵀ          c = k_RR + σ² − rowsum(V²)
        # Products with L⁻¹, never with K⁻¹: the entries of K⁻¹ are as large as 1/σ², and in float32 they do not cancel
        # as they should. docs/measurements.md has the error.
        K = K_BA[:A].clone()
        K.diagonal().add_(noise)
        L = cholesky(K)  # [A, A]
        L_inv = inverse(L)  # [A, A]
        V = times_upper(K_BA[A:], L_inv)  # [R, A]
        # With small noise, rounding may make k_RR − k K⁻¹ k slightly negative; c is never below σ²
        c = noise + (k_RR - torch.linalg.vector_norm(V, dim=1).square()).clamp_min(0)  # [R]

        # With U = L⁻¹ X_A and r = X_R − V U, all that is needed of X:  H = U Uᵀ,  S = r Uᵀ,  e = rowsum(r²)
        by_feature = scales is not None or ctx.needs_input_grad[0]  # type: ignore[attr-defined]
        # With more features than active rows it is less work without r; gradients by feature need U and r themselves
        terms = None if by_feature or D <= A else _without_residuals(X, V, L_inv)
        H, S, e, *U_and_r = terms or _by_residual(X, V, L_inv)

        # log p(X_A|Z_A) = −½ [ A D log 2π + D log|K| + ‖L⁻¹ X_A‖² ]
        log_det = 2 * L.diagonal().log().sum()
        log_p_A = -0.5 * (A * D * LOG_2PI + D * log_det + H.diagonal().sum())
        # Σ_R log N(x_n | m_n, c_n I) = −½ Σ_R [ D log 2π c_n + e_n / c_n ]
        log_p_R = -0.5 * (D * (LOG_2PI + c.log()) + e / c).sum()
        log_s = 0.0 if scales is None else scales.log().sum()

        ctx.save_for_backward(L_inv, V, c, H, S, e, scales, *(U_and_r if by_feature else ()))  # type: ignore[arg-type]
        ctx.w, ctx.N, ctx.D = w, N, D  # type: ignore[attr-defined]
        return log_p_A + w * log_p_R - N * log_s

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        L_inv, V, c, H, S, e, scales, *by_feature = ctx.saved_tensors  # type: ignore[attr-defined]
        w, N, D = ctx.w, ctx.N, ctx.D  # type: ignore[attr-defined]

        # g = ∂L̂/∂c = −½ w (D/c − e/c²)          Y = diag(w/c) S − diag(g) V          α = L⁻ᵀ U, so that r αᵀ = S L⁻¹
        # The incoming gradient multiplies the small ones: g, w/c and H
        w_c = grad * w / c  # [R]
        g = -0.5 * w_c * (D - e / c)  # [R]
        gV = g[:, None] * V  # [R, A]
        Y = (w_c[:, None] * S).sub_(gV)  # [R, A]

        # ∂L̂/∂K = −½ (D K⁻¹ − α αᵀ) − ½ (WᵀP + PᵀW) + Wᵀ diag(g) W = L⁻ᵀ [ ½ (H − D I) − ½ (VᵀY + YᵀV) ] L⁻¹
        # K changes only by symmetric matrices, so VᵀY can replace ½ (VᵀY + YᵀV)
        Q = (0.5 * grad * H).addmm_(V.T, Y, alpha=-1)  # [A, A]
        Q.diagonal().sub_(0.5 * grad * D)

        # ∂L̂/∂K_RA = P − 2 diag(g) W = (Y − diag(g) V) L⁻¹          the same factor L⁻¹, so it is one product for both
        A = len(L_inv)
        left = V.new_empty(A + len(V), A)
        upper_times(L_inv, Q, out=left[:A])
        torch.sub(Y, gV, out=left[A:])
        d_K_BA = times_lower(left, L_inv)  # [B, A]

        # σ² is on the diagonal of K and in every c_n
        d_noise = d_K_BA[:A].diagonal().sum() + g.sum()

        d_X = d_scales = None
        if by_feature:
            U, r = by_feature
            scaled = w_c[:, None] * r  # [R, D]
            if ctx.needs_input_grad[0]:  # type: ignore[attr-defined]
                # ∂L̂/∂X_R = −diag(w/c) r          ∂L̂/∂X_A = −α + Wᵀ diag(w/c) r = L⁻ᵀ (Vᵀ diag(w/c) r − U)
                d_X = torch.cat([upper_times(L_inv, V.T @ scaled - grad * U), -scaled])
                d_X = d_X if scales is None else d_X / scales
            if scales is not None:
                # ∂L̂/∂log s_d = colsum(U²) + Σ_R w r²/c − N          products with V cancel, as V U = X_R − r
                d_scales = (grad * (U.square().sum(0) - N) + (scaled * r).sum(0)) / scales
        return d_X, d_K_BA, g, d_noise, d_scales, None


def check_first_derivative() -> None:
    """Raise RuntimeError in a backward pass that is to be differentiated again.

    torch's once_differentiable allows this if L̂ is one term of a sum, and leaves out its curvature silently.
    """
    if torch.is_grad_enabled():
        raise RuntimeError(
            "The SAS estimate is differentiable once, but create_graph=True asks for a second derivative. Take first "
            "derivatives only, or write Eq. 6 in plain torch."
        )


def _by_residual(X: Tensor, V: Tensor, L_inv: Tensor) -> tuple[Tensor, ...]:
    """H, S, e, U and r, in about 2D (1½A² + 2RA) operations."""
    A = len(L_inv)
    U = lower_times(L_inv, X[:A])  # [A, D]
    r = torch.addmm(X[A:], V, U, alpha=-1)  # [R, D]
    return gram(U), r @ U.T, torch.linalg.vector_norm(r, dim=1).square(), U, r


def _without_residuals(X: Tensor, V: Tensor, L_inv: Tensor) -> tuple[Tensor, ...] | None:
    """H, S and e, in about 2D (1¼A² + RA) + 2RA² operations or, for large D, 2D (⅝A² + RA) + 2A² (1¼A + 1⅝R).

    e is then a difference. The smaller the residuals are compared with the data, the fewer digits of it float32 keeps.
    Returns None where they are too small, below 10⁻⁴ of the signal.
    """
    (B, D), A = X.shape, len(L_inv)
    # H = U Uᵀ          F = X_R Uᵀ          S = r Uᵀ = F − V H
    if D < A + B:
        U = lower_times(L_inv, X[:A])  # [A, D]
        H, F = gram(U), X[A:] @ U.T  # [A, A], [R, A]
    else:  # from the Gram matrix of the batch: H = L⁻¹ (X_A X_Aᵀ) L⁻ᵀ, F = (X_R X_Aᵀ) L⁻ᵀ
        H = times_upper(lower_times(L_inv, gram(X[:A])), L_inv)  # [A, A]
        F = times_upper(X[A:] @ X[:A].T, L_inv)  # [R, A]
    S = torch.addmm(F, V, H, alpha=-1)  # [R, A]
    # e = ‖x‖² − 2 rowsum(V∘F) + rowsum(V∘(V H)) = ‖x‖² − rowsum(V∘(F + S))
    energy = torch.linalg.vector_norm(X[A:], dim=1).square()
    e = (energy - F.add_(S).mul_(V).sum(1)).clamp_min_(0)  # [R]
    if X.dtype == torch.float32 and e.sum() < 1e-4 * energy.sum():
        return None
    return H, S, e


def sas_estimate(
    X: Tensor, K_BA: Tensor, k_RR: Tensor, noise: Tensor, n_total: int, scales: Tensor | None = None
) -> Tensor:
    """Estimate log p(X | Z) of all N rows from one batch (Eq. 6); differentiable in every tensor.

    Parameters
    ----------
    X : Tensor [B, D]
        The batch, centred; its first A rows are the active set.
    K_BA : Tensor [B, A]
        Kernel between the batch and its active rows, without noise.
    k_RR : Tensor [B − A]
        Kernel of each remaining row with itself; only this diagonal is computed.
    noise : Tensor []
        σ², the variance of the likelihood.
    n_total : int
        N. The weights are right if the batch is a uniform draw from the N rows. With A = B = N or A = N − 1, the result
        is exact.
    scales : Tensor [D], optional
        s_d, positive: the units of each feature's signal and noise. None: all are 1.
    """
    B, A = K_BA.shape
    if A == B and n_total != B:
        raise ValueError(
            f"The active set must be smaller than the batch, or both must be all of the data. Got {A} active rows in a "
            f"batch of {B}, with {n_total} rows in all: no row would be left to predict. Use a smaller active set."
        )
    return _SASEstimate.apply(X, K_BA, k_RR, noise, scales, n_total)  # type: ignore[no-untyped-call]


def kl_to_prior(mu: Tensor, var: Tensor) -> Tensor:
    """KL[N(mu, diag var) ‖ N(0, I)] of each row: [B, Q], [B, Q] → [B]."""
    # KL = ½ Σ_q ( μ² + v − log v − 1 )
    return 0.5 * (mu.square() + var - var.log() - 1).sum(-1)


def prior_log_density(Z: Tensor) -> Tensor:
    """The log density log N(z | 0, I) of each row: [B, Q] → [B]."""
    return -0.5 * (Z.square().sum(-1) + Z.shape[-1] * LOG_2PI)
