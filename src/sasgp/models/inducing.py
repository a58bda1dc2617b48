"""The Bayesian GP-LVM with inducing points, trained by stochastic variational inference.

The functions are summarised by their values u = f(Z_u) at A inducing inputs, which are learned. With K_uu = L Lᵀ,
u = L v and φ_n = L⁻¹ k_un, the posterior of v is N(M, S) with one covariance S for all D outputs, and

    Σ_n E_q(z_n)[ log N(x_n | Mᵀφ_n, σ²I) − D/(2σ²) (k_nn − φ_nᵀφ_n + φ_nᵀSφ_n) ] − KL[q(v) ‖ p(v)]

is a lower bound on E_q log p(X|Z) (Hensman et al. 2013, Lalchand et al. 2022). A batch estimates the sum with the
weight N/B. Encoder, kernel, noise and Z_u follow its gradient. M and S take natural-gradient steps: each goes a share
of the way to the optimum for the batch, which is known in closed form. Jitter on K_uu acts as noise on u, so the bound
remains a bound.
"""

from collections.abc import Iterable
from copy import deepcopy
from typing import Self

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from sasgp.gp import kernels
from sasgp.gp.covariance import covariances
from sasgp.gp.linalg import cholesky
from sasgp.gp.objective import LOG_2PI
from sasgp.gp.posterior import Posterior, whitened_mean, whitened_root
from sasgp.models.base import ModelSettings
from sasgp.models.encoders import Encoder
from sasgp.models.sas import SASModel

__all__ = ["InducingModel", "inducing_bound"]

JITTER = {torch.float32: 1e-4, torch.float64: 1e-8}  # added to the diagonal of K_uu, relative to the amplitude


def inducing_bound(
    X: Tensor,
    Phi: Tensor,
    k: Tensor,
    noise: Tensor,
    M: Tensor,
    L_C: Tensor,
    n_total: int,
    seen: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """The bound on log p(X|Z) of all N rows, estimated from one batch, and the residuals [B, D].

    Parameters
    ----------
    X : Tensor [B, D]
        The centred batch, a uniform draw from the N rows.
    Phi : Tensor [B, A]
        φ_n = L⁻¹ k_un of each row.
    k : Tensor [B]
        k_nn.
    noise : Tensor []
        σ².
    M, L_C : Tensor [A, D], [A, A]
        q(v) = N(M, S), with the Cholesky factor of its precision S⁻¹ = L_C L_Cᵀ.
    n_total : int
        N.
    seen : Tensor [B, D], optional
        1 where a value is observed and 0 where it is missing, and X is 0. None: all are observed.
    """
    (B, D), A = X.shape, len(M)
    R = torch.linalg.solve_triangular(L_C, torch.eye(A, dtype=X.dtype, device=X.device), upper=False)  # S = RᵀR
    # v_n = k_nn − ‖φ_n‖² + ‖R φ_n‖²          r = X − Φ M
    v = (k - Phi.square().sum(1)).clamp_min(0) + (Phi @ R.T).square().sum(1)  # [B]
    r = torch.addmm(X, Phi, M, alpha=-1)  # [B, D]
    # Σ_n E log N(x_n | f_n, σ²I) = −½ Σ_n [ D log 2πσ² + (‖r_n‖² + D v_n) / σ² ]
    n: Tensor | int = B * D
    if seen is None:
        e = torch.linalg.vector_norm(r).square() + D * v.sum()
    else:  # the sums skip missing values; S stays one for all features, which keeps the bound a bound
        r, n = seen * r, seen.sum()
        e = torch.linalg.vector_norm(r).square() + (seen.sum(1) * v).sum()
    log_p = -0.5 * (n * (LOG_2PI + noise.log()) + e / noise)
    # KL[N(M, S) ‖ N(0, I)], D times = ½ [ D (tr S − log|S| − A) + ‖M‖² ]
    log_det = -2 * L_C.diagonal().log().sum()
    kl = 0.5 * (D * (R.square().sum() - log_det - A) + M.square().sum())
    return n_total / B * log_p - kl, r


class InducingModel(SASModel):
    """A `SASModel` with another objective: it has inducing points instead of active rows.

    Parameters
    ----------
    encoder, kernel, noise, mean, encoder_noise, by_feature
        As for `SASModel`.
    Z : Tensor [A, Q]
        The initial inducing inputs.
    """

    M: Tensor
    L_C: Tensor
    steps: Tensor

    def __init__(
        self,
        encoder: Encoder,
        kernel: Kernel,
        *,
        noise: float,
        mean: Tensor,
        Z: Tensor,
        encoder_noise: float = 0.0,
        by_feature: bool = False,
    ) -> None:
        A, D = len(Z), len(mean)
        super().__init__(
            encoder,
            kernel,
            noise=noise,
            mean=mean,
            active_set_size=None,
            encoder_noise=encoder_noise,
            by_feature=by_feature,
        )
        self.Z = nn.Parameter(Z.detach().clone())
        # q(v) starts as the prior. The factor of its precision is kept, not the precision itself, whose eigenvalues go
        # from 1 to N/σ². Rounding that would spoil the directions of small eigenvalues much more.
        self.register_buffer("M", mean.new_zeros(A, D))
        self.register_buffer("L_C", mean.new_zeros(A, A).fill_diagonal_(1))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64, device=mean.device))

    @classmethod
    def build(cls, encoder: Encoder, encoder_noise: float, settings: ModelSettings, D: int, Q: int) -> Self:
        return cls(
            encoder,
            kernels.build(settings.kernel, Q),
            noise=1.0,
            mean=torch.zeros(D),
            Z=torch.zeros(settings.n_inducing, Q),
            encoder_noise=encoder_noise,
            by_feature=settings.by_feature,
        )

    @property
    def decoder_parameters(self) -> list[nn.Parameter]:
        """Everything that gradients teach except the encoder."""
        return [*super().decoder_parameters, self.Z]

    def forward(self, X: Tensor, index: Tensor, n_total: int, generator: torch.Generator) -> Tensor:
        """The negative bound in nats per value, estimated from a batch. In training mode, q(u) takes a step."""
        B, D = X.shape
        Z, log_prior = self.draw_latents(X, index, generator)
        Phi, k = self._features(Z)
        seen = (~X.isnan()).to(X) if self.missing else None
        rows = self.dithered(X, generator)
        # Missing values are the mean before they are divided by scales, or the gradient of the scales would be NaN
        rows = self.centred(rows if seen is None else torch.where(rows.isnan(), self.mean, rows))
        log_p, r = inducing_bound(rows, Phi, k, self.noise, self.M, self.L_C, n_total, seen)
        if self.training:
            share = None if seen is None else seen.mean(1, keepdim=True)
            self._natural_step(Phi.detach(), r.detach(), n_total, share)
        objective = log_p + n_total / B * log_prior.sum() + self._hyperprior()
        if self.scales is not None:
            log_s = self.scales.log() if seen is None else seen.mean(0) * self.scales.log()
            objective = objective - n_total * log_s.sum()
        return -objective / (n_total * D * (1 - self.missing))

    def _features(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """φ_n of each row [B, A], and k_nn [B]."""
        A = len(self.Z)
        K, k = covariances(self.kernel, torch.cat([self.Z, Z]), A)  # [A + B, A], [A + B]
        eye = torch.eye(A, dtype=Z.dtype, device=Z.device)
        L = cholesky(K[:A] + JITTER[Z.dtype] * k[:A].mean() * eye)
        return K[A:] @ torch.linalg.solve_triangular(L, eye, upper=False).T, k[A:]

    @torch.no_grad()
    def _natural_step(self, Phi: Tensor, r: Tensor, n_total: int, share: Tensor | None = None) -> None:
        """Move q(v) by a share ρ of the way to its optimum for the batch.

        With missing values, a row counts for S by the `share` [B, 1] of features that it has.
        """
        # S⁻¹ ← (1−ρ) S⁻¹ + ρ (I + w ΦᵀΦ)          M ← M + ρ S (w Φᵀr − M)          w = N/(B σ²)
        # With ρ = .05, q(v) remembers about twenty batches
        rho = max(len(Phi) / n_total, 0.05, 1 / (1 + int(self.steps)))
        w = n_total / len(Phi) / self.noise
        L_C = self.L_C.double()
        weighted = Phi if share is None else share * Phi
        C = (1 - rho) * (L_C @ L_C.T) + (rho * w * (Phi.T @ weighted)).double()
        C.diagonal().add_(rho)
        L_C = cholesky(C)
        step = torch.cholesky_solve((w * (Phi.T @ r) - self.M).double(), L_C)
        # New tensors, as the gradient of this step still needs the old ones. Contiguous, as those from a file are, so
        # that a resumed run has the same bits
        M = self.M + rho * step.to(self.M.dtype)
        self.M, self.L_C = M.contiguous(), L_C.to(M.dtype).contiguous()
        self.steps.add_(1)

    @torch.no_grad()
    def settle(self, batches: Iterable[tuple[Tensor, Tensor]], draws: int = 1) -> None:
        """Set q(v) to its optimum for all rows X [B, D] with latents Z [B, Q]. Each row comes `draws` times."""
        # S⁻¹ = I + 1/σ² Σ E φφᵀ          M = S 1/σ² Σ E φ xᵀ
        A, D = self.M.shape
        C, P = (torch.zeros(A, n, dtype=torch.float64, device=self.M.device) for n in (A, D))
        for X, Z in batches:
            Phi = self._features(Z)[0].double()
            if not self.missing:
                C.addmm_(Phi.T, Phi)
                P.addmm_(Phi.T, self.centred(X).double())
                continue
            # S_d of each feature would take D A² numbers; M is left as training found it
            C.addmm_(Phi.T, (~X.isnan()).double().mean(1, keepdim=True) * Phi)
        noise = draws * self.noise.double()
        L_C = cholesky(C / noise + torch.eye(A, dtype=C.dtype, device=C.device))
        self.L_C.copy_(L_C)
        if self.missing:
            return
        self.M.copy_(torch.cholesky_solve(P / noise, L_C))

    @torch.no_grad()
    def posterior(self) -> Posterior:
        """The decoder with the present q(u)."""
        Z = self.Z.detach().double()
        K, k = covariances(deepcopy(self.kernel).double(), Z, len(Z))
        # The same jitter as in training, so that φ is the same
        K.diagonal().add_(JITTER[self.Z.dtype] * k.mean())
        L = cholesky(K)
        alpha = whitened_mean(L, self.M) * (1 if self.scales is None else self.scales)
        return Posterior(self.kernel, self.noise, self.Z, alpha, whitened_root(L, self.L_C), self.mean, self.scales)
