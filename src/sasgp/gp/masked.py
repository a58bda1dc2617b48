"""Eq. 6 for rows with missing values (NaN): every feature is a Gaussian process that sees only its observed rows.

With o_nd = 1 where x_nd is observed and o_d [A] the pattern of feature d over the active rows, Eq. 6 becomes

    L̂ = Σ_d log N(x_Ad | 0, K_d)  +  (N−A)/(B−A) · Σ_{n∈R} Σ_d o_nd log N(x_nd | m_nd, c_nd)

    m_nd = k_nA α_d     α_d = K_d⁻¹ x_Ad     c_nd = k_nn + σ² − k_nA K_d⁻¹ k_An     K_d = (K_AA + σ²I) of observed rows

A missing row leaves K_d: its off-diagonal entries are 0 and its diagonal is 1. Features with the same pattern share a
factor. That is exact, and takes A²(A + R) operations per pattern.

If there are too many patterns for that, the missing active values are filled in with the decoder's own mean. A filled
value changes no prediction, so α_d is still exact; it is found by conjugate gradients for all features at once, with
products by one shared factor. Determinants and variances then come from a second factor, of K_AA + σ² diag(1/ρ), where
ρ_n is the share of features that row n has: Σ_d S_d / D takes the place of each feature's own information S_d. As log
det is concave, this makes log p(X_A|Z_A) a lower bound.

The gradient is written by hand, as in `sasgp.gp.objective`. If nothing is missing, that module computes the estimate.
"""

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from sasgp.gp.linalg import cholesky, cholesky_each, inverse, lower_times, times_lower, times_upper, upper_times
from sasgp.gp.objective import LOG_2PI, check_first_derivative, sas_estimate

__all__ = ["EXACT_WORK", "masked_estimate", "masked_solve", "patterns"]

EXACT_WORK = 3e8  # patterns · A² · B up to which every pattern gets its own factor: about 40 ms a step with one thread
ITERATIONS = 50  # of conjugate gradients at most; a few are enough if most values are observed
ACCURACY = {torch.float32: 5e-3, torch.float64: 1e-8}  # of their result, relative


def masked_estimate(
    X: Tensor,
    K_BA: Tensor,
    k_RR: Tensor,
    noise: Tensor,
    n_total: int,
    scales: Tensor | None = None,
    *,
    exact_work: float = EXACT_WORK,
) -> Tensor:
    """Estimate the log density of all observed values from one batch (Eq. 6); differentiable in all tensors but X.

    Parameters
    ----------
    X : Tensor [B, D]
        The batch, centred, with NaN where a value is missing. Its first A rows are the active set.
    K_BA, k_RR, noise, n_total, scales
        As for `sas_estimate`. − log s_d is counted once for each observed value of feature d.
    exact_work : float
        The largest number of patterns · A² · B for which each pattern gets its own factor. With more, missing values
        are filled in.
    """
    seen = ~X.isnan()
    if seen.all():
        return sas_estimate(X, K_BA, k_RR, noise, n_total, scales)
    B, A = K_BA.shape
    if A == B and n_total != B:
        raise ValueError(f"The active set must be smaller than the batch. Got {A} active rows in a batch of {B}.")
    X = torch.where(seen, X, 0.0)
    found, which = patterns(seen[:A])
    if len(found) * A * A * B <= exact_work:
        log_p: Tensor = _ByPattern.apply(X, seen.to(X), K_BA, k_RR, noise, scales, n_total, found.to(X), which)  # type: ignore[no-untyped-call]
    else:
        log_p = _Filled.apply(X, seen.to(X), K_BA, k_RR, noise, scales, n_total)  # type: ignore[no-untyped-call]
    return log_p


def patterns(seen: Tensor) -> tuple[Tensor, Tensor]:
    """The different columns of a mask [A, D] as rows [P, A], and which of them each column has, [D]."""
    # Columns are compared by a weighted sum of their entries, which random weights make different for different columns
    draw = torch.Generator().manual_seed(0)
    weights = torch.randint(2**40, (len(seen),), generator=draw).to(seen.device)
    key = (seen * weights[:, None]).sum(0)  # [D]
    which = key.unique(return_inverse=True)[1]  # type: ignore[no-untyped-call]
    first = torch.zeros(int(which.max()) + 1, dtype=torch.long, device=seen.device)
    first[which] = torch.arange(seen.shape[1], device=seen.device)
    return seen.T[first], which


def _weight(A: int, B: int, N: int) -> float:
    return (N - A) / (B - A) if B > A else 0.0


def _counted(seen: Tensor, A: int, w: float) -> Tensor:
    """How many observed rows each feature has among all N, estimated from the batch, [D]."""
    return seen[:A].sum(0) + w * seen[A:].sum(0)


class _ByPattern(torch.autograd.Function):
    """L̂ with a factor for each of the patterns [P, A]; feature d has pattern which[d]."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        X: Tensor,
        seen: Tensor,
        K_BA: Tensor,
        k_RR: Tensor,
        noise: Tensor,
        scales: Tensor | None,
        N: int,
        found: Tensor,
        which: Tensor,
    ) -> Tensor:
        B, A = K_BA.shape
        X, w = X if scales is None else X / scales, _weight(A, B, N)
        n = torch.bincount(which, minlength=len(found)).to(X)  # features of each pattern, [P]

        # K_p = o_p (K_AA + σ²I) o_p + (1 − o_p) = L_p L_pᵀ          V_p = K_RA o_p L_p⁻ᵀ
        K = found[:, :, None] * K_BA[:A] * found[:, None, :]
        K.diagonal(dim1=1, dim2=2).add_(noise * found + (1 - found))
        L = cholesky_each(K)  # [P, A, A]
        L_inv = torch.linalg.solve_triangular(L, torch.eye(A, dtype=X.dtype, device=X.device), upper=False)
        V = (K_BA[A:] * found[:, None, :]) @ L_inv.mT  # [P, R, A]
        c = noise + (k_RR - V.square().sum(2)).clamp_min(0)  # [P, R]

        alpha = _solve(L_inv, which, X[:A])  # [A, D]
        r = seen[A:] * torch.addmm(X[A:], K_BA[A:], alpha, alpha=-1)  # [R, D]
        c_d = c.T[:, which]  # [R, D]

        # log p(X_A|Z_A) = −½ Σ_d [ |o_d| log 2π + log|K_d| + x_dᵀ α_d ]
        log_det = 2 * (L.diagonal(dim1=1, dim2=2).log().sum(1) * n).sum()
        quadratic = (X[:A] * alpha).sum(0)  # [D]
        log_p_A = -0.5 * (LOG_2PI * seen[:A].sum() + log_det + quadratic.sum())
        # Σ_R Σ_d o_nd log N(x_nd | m_nd, c_nd)
        log_p_R = -0.5 * (seen[A:] * (LOG_2PI + c_d.log()) + r.square() / c_d).sum()
        log_s = 0.0 if scales is None else (_counted(seen, A, w) * scales.log()).sum()

        ctx.save_for_backward(quadratic, seen, K_BA, L_inv, V, c, alpha, r, scales, found, which, n)  # type: ignore[arg-type]
        ctx.w = w  # type: ignore[attr-defined]
        return log_p_A + w * log_p_R - log_s

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        quadratic, seen, K_BA, L_inv, V, c, alpha, r, scales, found, which, n = ctx.saved_tensors  # type: ignore[attr-defined]
        w, A = ctx.w, K_BA.shape[1]  # type: ignore[attr-defined]
        c_d = c.T[:, which]
        # G = ∂L̂/∂m = w r/c          g_p = ∂L̂/∂c_p = −½ w Σ_{d∈p} (o/c − r²/c²)          β_d = K_d⁻¹ K_AR G_d
        G = grad * w * r / c_d  # [R, D]
        each = -0.5 * grad * w * (seen[A:] - r.square() / c_d) / c_d  # [R, D]
        g = torch.zeros_like(c).index_add_(0, which, each.T)  # [P, R]
        beta = _solve(L_inv, which, seen[:A] * (K_BA[A:].T @ G))  # [A, D]
        W = (V @ L_inv).flatten(0, 1)  # K_RA K_p⁻¹, [P R, A]
        gW = g.flatten()[:, None] * W

        # ∂L̂/∂K = ½ Σ_d (α_d α_dᵀ − K_d⁻¹) − Σ_d β_d α_dᵀ + Σ_p W_pᵀ diag(g_p) W_p, over observed rows
        root = (L_inv * found[:, None, :] * n.sqrt()[:, None, None]).flatten(0, 1)  # [P A, A]
        d_K_BA = torch.empty_like(K_BA)
        d_K = d_K_BA[:A]
        torch.mm(0.5 * grad * alpha - beta, alpha.T, out=d_K)
        d_K.addmm_(W.T, gW).addmm_(root.T, root * (-0.5 * grad))
        # ∂L̂/∂K_RA = G αᵀ − 2 Σ_p diag(g_p) W_p
        torch.mm(G, alpha.T, out=d_K_BA[A:])
        d_K_BA[A:].sub_(gW.view(len(c), -1, A).sum(0), alpha=2)
        d_noise = d_K.diagonal().sum() + g.sum()
        d_scales = None if scales is None else _scale_gradient(quadratic, seen, r, G, scales, w, grad)
        return None, None, d_K_BA, g.sum(0), d_noise, d_scales, None, None, None


def _solve(L_inv: Tensor, which: Tensor, T: Tensor) -> Tensor:
    """K_p⁻¹ t_d for the pattern p of each feature d, where t_d [A] is 0 at missing rows: [A, D]."""
    if len(L_inv) == T.shape[1]:  # every feature has its own pattern
        return (L_inv[which].mT @ (L_inv[which] @ T.T[:, :, None]))[:, :, 0].T
    found = torch.empty_like(T)
    for p, factor in enumerate(L_inv):
        chosen = (which == p).nonzero()[:, 0]
        found[:, chosen] = factor.T @ (factor @ T[:, chosen])
    return found


def _scale_gradient(
    quadratic: Tensor, seen: Tensor, r: Tensor, G: Tensor, scales: Tensor, w: float, grad: Tensor
) -> Tensor:
    # ∂L̂/∂log s_d = x_dᵀ α_d + Σ_R w r²/c − (observed rows of d)
    A = len(seen) - len(r)
    return (grad * (quadratic - _counted(seen, A, w)) + (G * r).sum(0)) / scales


class _Filled(torch.autograd.Function):
    """L̂ with missing active values filled in: α by conjugate gradients, determinants and variances by shares ρ."""

    @staticmethod
    def forward(
        ctx: FunctionCtx,
        X: Tensor,
        seen: Tensor,
        K_BA: Tensor,
        k_RR: Tensor,
        noise: Tensor,
        scales: Tensor | None,
        N: int,
    ) -> Tensor:
        (B, A), D = K_BA.shape, X.shape[1]
        X, w = X if scales is None else X / scales, _weight(A, B, N)
        K = K_BA[:A].clone()
        K.diagonal().add_(noise)
        L_inv = inverse(cholesky(K))  # [A, A]
        # K_ρ = K_AA + σ² diag(1/ρ) = L Lᵀ          V = K_RA L⁻ᵀ          c = k_RR + σ² − rowsum(V²)
        rho = seen[:A].mean(1).clamp_min(1 / D)  # a row without values would have none
        K = K_BA[:A].clone()
        K.diagonal().add_(noise / rho)
        L = cholesky(K)
        M_inv = inverse(L)  # [A, A]
        V = times_upper(K_BA[A:], M_inv)  # [R, A]
        c = noise + (k_RR - V.square().sum(1)).clamp_min(0)  # [R]

        alpha, filled = masked_solve(L_inv, X[:A], seen[:A])  # [A, D] each
        r = seen[A:] * torch.addmm(X[A:], K_BA[A:], alpha, alpha=-1)  # [R, D]

        # Σ_d log|K_d| ≈ D [ log|K_ρ| + Σ_n ( log ρ_n − (1 − ρ_n) log σ² ) ]
        log_det = D * (2 * L.diagonal().log().sum() + (rho.log() - (1 - rho) * noise.log()).sum())
        # x_dᵀ α_d over observed rows is the least value of x̃_dᵀ K⁻¹ x̃_d over all fillings x̃, so an error of the filling
        # changes it only by the square
        quadratic = (filled * alpha).sum(0)  # [D]
        log_p_A = -0.5 * (LOG_2PI * seen[:A].sum() + log_det + quadratic.sum())
        n, e = seen[A:].sum(1), r.square().sum(1)  # values and squared residuals of each row, [R]
        log_p_R = -0.5 * (n * (LOG_2PI + c.log()) + e / c).sum()
        log_s = 0.0 if scales is None else (_counted(seen, A, w) * scales.log()).sum()

        ctx.save_for_backward(quadratic, seen, K_BA, noise, L_inv, M_inv, V, c, alpha, r, rho, n, e, scales)  # type: ignore[arg-type]
        ctx.w = w  # type: ignore[attr-defined]
        return log_p_A + w * log_p_R - log_s

    @staticmethod
    def backward(ctx: FunctionCtx, grad: Tensor) -> tuple[Tensor | None, ...]:
        check_first_derivative()
        quadratic, seen, K_BA, noise, L_inv, M_inv, V, c, alpha, r, rho, n, e, scales = ctx.saved_tensors  # type: ignore[attr-defined]
        w, A, D = ctx.w, K_BA.shape[1], seen.shape[1]  # type: ignore[attr-defined]
        # G = ∂L̂/∂m = w r/c          g = ∂L̂/∂c = −½ w (n/c − e/c²)          β_d = K_d⁻¹ K_AR G_d
        G = (grad * w / c)[:, None] * r  # [R, D]
        g = -0.5 * grad * w * (n - e / c) / c  # [R]
        beta, _ = masked_solve(L_inv, seen[:A] * (K_BA[A:].T @ G), seen[:A])  # [A, D]
        gV = g[:, None] * V

        # ∂L̂/∂K_ρ = −½ D K_ρ⁻¹ + W_ρᵀ diag(g) W_ρ = L⁻ᵀ [ Vᵀ diag(g) V − ½ D I ] L⁻¹
        Q = V.T @ gV
        Q.diagonal().sub_(0.5 * grad * D)
        d_K_rho = times_lower(upper_times(M_inv, Q), M_inv)  # [A, A]
        # ∂L̂/∂K = ½ Σ_d α_d α_dᵀ − Σ_d β_d α_dᵀ, over observed rows
        d_K = (0.5 * grad * alpha - beta) @ alpha.T
        d_noise = (
            d_K.diagonal().sum() + (d_K_rho.diagonal() / rho).sum() + g.sum() + 0.5 * grad * D * (1 - rho).sum() / noise
        )
        # ∂L̂/∂K_RA = G αᵀ − 2 diag(g) W_ρ
        d_K_RA = torch.addmm(times_lower(gV, M_inv), G, alpha.T, beta=-2)
        d_scales = None if scales is None else _scale_gradient(quadratic, seen, r, G, scales, w, grad)
        return None, None, torch.cat([d_K.add_(d_K_rho), d_K_RA]), g, d_noise, d_scales, None


def masked_solve(L_inv: Tensor, T: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """K_d⁻¹ t_d for every feature d, where K_d has only the observed rows, and t_d with its missing values filled in.

    The first, [A, D], is K⁻¹ times the second. It is about 0 at missing rows. What is left there is what the filled-in
    values lack, and belongs to the result: without it, products with K would be far off.

    Parameters
    ----------
    L_inv : Tensor [A, A]
        L⁻¹ of K = L Lᵀ, of all rows.
    T : Tensor [A, D]
        Right-hand sides, 0 at missing rows.
    seen : Tensor [A, D]
        1 where a value is observed, otherwise 0.
    """

    # K⁻¹ (t + u) with u at missing rows is the solution if it is 0 there: (K⁻¹)_MM u_M = −(K⁻¹ t)_M. The matrix on the
    # left is the precision of the missing values given the observed ones. If these say most about them it is about 1/σ²
    # everywhere, and conjugate gradients need few steps. Its diagonal is the preconditioner
    def times_inverse(Y: Tensor) -> Tensor:
        return upper_times(L_inv, lower_times(L_inv, Y))

    missing = 1 - seen
    h = missing / L_inv.square().sum(0)[:, None]  # [A, D]
    Y, filled = times_inverse(T), T.clone()
    r = -missing * Y
    z = h * r
    p, rz = z.clone(), (r * z).sum(0)  # [A, D], [D]
    tiny = torch.finfo(T.dtype).tiny
    target = ACCURACY[T.dtype] ** 2 * (h * Y.square()).sum()
    for _ in range(ITERATIONS):
        if not rz.sum() > target:
            break
        q = times_inverse(p)
        step = rz / (p * q).sum(0).clamp_min(tiny)
        Y.addcmul_(q, step)
        filled.addcmul_(p, step)
        r.addcmul_(missing * q, step, value=-1)
        z = h * r
        before, rz = rz, (r * z).sum(0)
        p = torch.addcmul(z, p, rz / before.clamp_min(tiny))
    return Y, filled
