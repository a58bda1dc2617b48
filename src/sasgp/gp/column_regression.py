"""Regression of each column of a table on the others, by Gaussian processes that are trained with Eq. 6.

Column d of row n is what a Gaussian over all columns expects from the rest of the row (`masked_gaussian`), plus a
function of it:

    x_nd = m_nd + f_d(u_n) + ε,   Var ε = σ² + b c_nd,   f_d ~ GP(0, v a_n a_n′ Matérn-3/2(‖(u_n − u_n′) / l‖))

u_n are the other columns, with expectations in place of missing ones, and c_nd is the variance of x_nd under the
Gaussian. An input with variance s² says less: a_n = Π_p (1 + s²_np / l_p²)^(−¼), as if the kernel were averaged over
it. What f_d loses by that, v (1 − a_n²), counts as noise. Lengthscales, v, σ² and b belong to the column. Several
columns are trained as one batch; each prediction is conditioned on the k nearest rows.
"""

import math

import torch
from torch import Tensor, nn

from sasgp.data.blocks import slices
from sasgp.gp.linalg import cholesky_each
from sasgp.gp.objective import LOG_2PI

__all__ = ["ColumnKernels", "ColumnRegression", "column_estimate"]

JITTER = 1e-4  # of the whole variance
PRIOR_LOG_LENGTH, PRIOR_SPREAD = math.log(3.0), 1.5  # of log l, for standardised columns


class ColumnKernels(nn.Module):
    """The kernels of G columns with P inputs each.

    Parameters
    ----------
    variances : Tensor [G]
        Of the targets.
    n_inputs : int
        P.
    """

    def __init__(self, variances: Tensor, n_inputs: int) -> None:
        super().__init__()
        G = len(variances)
        start = math.log(1.5 * math.sqrt(max(1, n_inputs)))
        self.log_length = nn.Parameter(torch.full((G, n_inputs), start).to(variances))
        self.log_signal = nn.Parameter((0.3 * variances).log())
        self.log_noise = nn.Parameter((0.5 * variances).log())
        self.log_share = nn.Parameter(torch.full((G,), math.log(0.2)).to(variances))

    def places(self, u: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs in lengthscales [G, n, P], and a [G, n]."""
        inverse = (-self.log_length).exp()[:, None]  # [G, 1, P]
        return u * inverse, (-0.25 * torch.log1p(s * inverse.square()).sum(2)).exp()

    def total(self, c: Tensor) -> Tensor:
        """Prior variance of targets, noise included, from their variances c [G, n] under the Gaussian."""
        return (self.log_signal.exp() + self.log_noise.exp())[:, None] + self.log_share.exp()[:, None] * c

    def log_prior(self) -> Tensor:
        """Of the lengthscales, [G]."""
        return -0.5 * ((self.log_length - PRIOR_LOG_LENGTH) / PRIOR_SPREAD).square().sum(1)


def matern(at: Tensor, to: Tensor) -> Tensor:
    """Matérn-3/2 of places [..., n, P] and [..., m, P] in lengthscales, [..., n, m]."""
    squares = at.square().sum(-1)[..., None] + to.square().sum(-1)[..., None, :] - 2 * at @ to.mT
    r = (3 * squares.clamp_min(1e-10)).sqrt()
    return (1 + r) * (-r).exp()


def column_estimate(kernels: ColumnKernels, u: Tensor, s: Tensor, t: Tensor, c: Tensor, A: int, N: Tensor) -> Tensor:
    """Eq. 6 of each column, per row, [G], with the lengthscales' prior.

    Parameters
    ----------
    kernels : ColumnKernels
    u, s : Tensor [G, B, P]
        Inputs and their variances; the first A rows are active.
    t, c : Tensor [G, B]
        Targets x − m, and their variances under the Gaussian.
    A : int
    N : Tensor [G]
        Rows that have the column.
    """
    at, a = kernels.places(u, s)
    K = kernels.log_signal.exp()[:, None, None] * matern(at[:, :A], at) * a[:, :A, None] * a[:, None]  # [G, A, B]
    total = kernels.total(c)
    eye = torch.eye(A, dtype=torch.bool, device=u.device)
    L = cholesky_each(torch.where(eye, torch.diag_embed(total[:, :A] * (1 + JITTER)), K[:, :, :A]))
    # β = L⁻¹ t_A          V = L⁻¹ K_AR          m = Vᵀ β          c = total − colsum(V²)
    solved = torch.linalg.solve_triangular(L, torch.cat([t[:, :A, None], K[:, :, A:]], 2), upper=False)
    beta, V = solved[:, :, :1], solved[:, :, 1:]
    log_det = 2 * L.diagonal(dim1=1, dim2=2).log().sum(1)
    log_p_A = -0.5 * (beta.square().sum((1, 2)) + log_det + A * LOG_2PI)
    var = (total[:, A:] - V.square().sum(1)).clamp_min(1e-6)
    log_p_R = -0.5 * (LOG_2PI + var.log() + (t[:, A:] - (V * beta).sum(1)).square() / var)  # [G, R]
    return (log_p_A + (N - A) * log_p_R.mean(1) + kernels.log_prior()) / N


class ColumnRegression:
    """Predictions of one column from the k nearest of its rows.

    Parameters
    ----------
    kernels : ColumnKernels
        Trained.
    g : int
        Which of its columns.
    u, s : Tensor [n, P]
        Inputs of the rows that have the column, and their variances.
    t, c : Tensor [n]
        Targets, and their variances under the Gaussian.
    k : int
    """

    @torch.no_grad()
    def __init__(self, kernels: ColumnKernels, g: int, u: Tensor, s: Tensor, t: Tensor, c: Tensor, k: int) -> None:
        self.kernels = ColumnKernels(t.new_ones(1), u.shape[1]).requires_grad_(False)
        for mine, theirs in zip(self.kernels.parameters(), kernels.parameters(), strict=True):
            mine.copy_(theirs[g : g + 1])
        self.u, self.a = self.places(u, s)
        self.t, self.c, self.k = t, c, min(k, len(t))

    def places(self, u: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        """Inputs in lengthscales [n, P], and a [n]."""
        at, a = self.kernels.places(u[None], s[None])
        return at[0], a[0]

    @torch.no_grad()
    def predict(self, at: Tensor, a: Tensor, c: Tensor, own: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Mean and variance [M] of targets at places, in float64; `own` [M] are rows that are left out."""
        v, total = float(self.kernels.log_signal.exp()), self.kernels.total(c[None])[0].double()
        near = nearest(at, self.u, self.k - (own is not None), own, self.a)  # [M, k]
        mean, var = torch.empty_like(total), torch.empty_like(total)
        for block in slices(len(at), 4 * near.shape[1] ** 2):
            j = near[block]
            u_k, a_k = self.u[j].double(), self.a[j].double()
            K = v * matern(u_k, u_k) * a_k[:, :, None] * a_k[:, None]
            K.diagonal(dim1=1, dim2=2).copy_(self.kernels.total(self.c[j]) * (1 + JITTER))
            q, a_q = at[block].double()[:, None], a[block].double()[:, None]
            k_q = v * matern(u_k, q)[:, :, 0] * a_k * a_q  # [m, k]
            both = torch.stack([k_q, self.t[j].double()], 2)
            solved = torch.linalg.solve_triangular(cholesky_each(K), both, upper=False)
            mean[block] = solved.prod(2).sum(1)
            var[block] = (total[block] - solved[:, :, 0].square().sum(1)).clamp_min(1e-8)
        return mean, var


def nearest(at: Tensor, to: Tensor, k: int, own: Tensor | None = None, a: Tensor | None = None) -> Tensor:
    """Indices [M, k] of the places `to` [n, P] that are nearest; rows with a small `a` count as farther away."""
    far = to.square().sum(1) if a is None else to.square().sum(1) - 2 * a.log()
    found = []
    for block in slices(len(at), len(to)):
        closeness = 2 * at[block] @ to.T - far
        if own is not None:
            closeness[torch.arange(len(closeness), device=at.device), own[block]] = -math.inf
        found.append(closeness.topk(k, 1).indices)
    return torch.cat([torch.empty(0, k, dtype=torch.long, device=at.device), *found])
