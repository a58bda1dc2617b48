"""log p(x|z) of given rows as a function of their latents, for searches that evaluate it many times.

A decoder answers for any rows. For the same rows at many z, most of the work can be done once: with K = k(z, Z),
x̃ = (x − mean)/s and α in units of s, the squared residual is

    ‖x̃ − Kα‖² = ‖x̃‖² − 2 K·(α x̃) + K (α αᵀ) Kᵀ          c = k_zz − K (TᵀT) Kᵀ + σ²

so that a z costs products with two [M, M] matrices, which also give the gradient, instead of two with α [M, D] and two
with T. The difference of large numbers loses digits, so it is measured first how many.
"""

from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from sasgp.gp.objective import LOG_2PI, prior_log_density
from sasgp.gp.posterior import Posterior, Predictive

__all__ = ["GramDensity", "Grams", "RowDensity", "row_density"]

PROBES = 64  # positions where both forms are compared
TOLERANCE = 1e-6  # error of a squared residual in noise variances that is allowed there: half of it in nats


def row_density(posterior: Predictive, X: Tensor) -> "RowDensity":
    """The log density of rows X [M, D] as a function of their latents, in the fastest form that is exact."""
    if type(posterior) is Posterior and posterior.local_noise is None and not X.isnan().any():
        grams = GRAMS.get(posterior)
        if grams is None:
            grams = GRAMS[posterior] = Grams(posterior)
        if grams.exact:
            return GramDensity.of_rows(posterior, grams, X)
    return RowDensity(posterior, X)


class RowDensity:
    """log p(x|z) as the decoder computes it."""

    def __init__(self, posterior: Predictive, X: Tensor) -> None:
        self.posterior, self.X = posterior, X

    def __call__(self, Z: Tensor) -> Tensor:
        """The log density [M] of each row at its z [M, Q]. It is differentiable in Z."""
        return self.posterior.log_density(self.X, Z)

    def joint(self, Z: Tensor) -> Tensor:
        """The log joint density log p(x|z) + log p(z) of each row, [M]."""
        return self(Z) + prior_log_density(Z)

    def at_one(self, z: Tensor) -> Tensor:
        """The log density [M] of all rows at one z [Q]."""
        return self(z.expand(len(self.X), -1))

    def repeated(self, n: int) -> "RowDensity":
        """The same for each row n times in succession."""
        return RowDensity(self.posterior, self.X.repeat_interleave(n, 0))


class Grams:
    """What does not depend on the rows: α [M, D] in units of s, and α αᵀ and TᵀT side by side, [M, 2M].

    `exact` says whether the squared residual is as good as without them.
    """

    def __init__(self, posterior: Posterior) -> None:
        self.alpha = posterior.alpha / posterior.scales
        G, C = self.alpha @ self.alpha.T, posterior.root.T @ posterior.root  # [M, M]
        self.both = torch.cat([G, C], 1)
        K = posterior.kernel(posterior.Z[:PROBES].double(), posterior.Z.double()).to_dense()  # [P, M]
        lost = ((K @ G) * K).sum(1) - (K @ self.alpha).square().sum(1)
        self.exact = bool(lost.abs().max() <= TOLERANCE * posterior.noise)


GRAMS: WeakKeyDictionary[Posterior, Grams] = WeakKeyDictionary()  # of decoders that are still in use


class GramDensity(RowDensity):
    """log p(x|z) through the Gram matrices of the decoder."""

    posterior: Posterior

    def __init__(self, posterior: Posterior, grams: Grams, X: Tensor, Y: Tensor, e: Tensor) -> None:
        super().__init__(posterior, X)
        self.grams, self.Y, self.e = grams, Y, e
        self.constant = X.shape[1] * (LOG_2PI + posterior.scales.square().log().mean())

    @classmethod
    def of_rows(cls, posterior: Posterior, grams: Grams, X: Tensor) -> "GramDensity":
        x = (X - posterior.mean.double()) / posterior.scales  # [M, D]
        return cls(posterior, grams, X, x @ grams.alpha.T, x.square().sum(1))  # α x̃ [M, P], ‖x̃‖² [M]

    def __call__(self, Z: Tensor) -> Tensor:
        kernel, Z, D = self.posterior.kernel, Z.double(), self.X.shape[1]
        K, k = kernel(Z, self.posterior.Z.double()).to_dense(), kernel(Z, diag=True)
        value = _Density.apply(K, k, self.Y, self.e, self.grams.both, self.posterior.noise, D)  # type: ignore[no-untyped-call]
        return (value - 0.5 * self.constant).to(self.X.dtype)

    def at_one(self, z: Tensor) -> Tensor:
        # One row of K serves all rows of X
        kernel, z, D = self.posterior.kernel, z.double()[None], self.X.shape[1]
        K = kernel(z, self.posterior.Z.double()).to_dense()  # [1, P]
        c = (kernel(z, diag=True) - (K @ self.posterior.root.T).square().sum()).clamp_min(0) + self.posterior.noise
        q = self.e - 2 * self.Y @ K[0] + (K @ self.grams.alpha).square().sum()
        return (-0.5 * (self.constant + D * c.log() + q.clamp_min(0) / c)).to(self.X.dtype)

    def repeated(self, n: int) -> "GramDensity":
        parts = (part.repeat_interleave(n, 0) for part in (self.X, self.Y, self.e))
        return GramDensity(self.posterior, self.grams, *parts)


class _Density(torch.autograd.Function):
    """−½ (D log c + q/c) of K [M, P] and k [M], and its gradient in them."""

    @staticmethod
    def forward(ctx: Any, K: Tensor, k: Tensor, Y: Tensor, e: Tensor, both: Tensor, noise: Tensor, D: int) -> Tensor:
        KG, KC = (K @ both).chunk(2, 1)  # [M, P] each
        # q = ‖x̃‖² − 2 K·y + K G Kᵀ          c = k − K C Kᵀ + σ², where rounding must not go below σ²
        q = (e + (K * (KG - 2 * Y)).sum(1)).clamp_min(0)
        c_f = k - (K * KC).sum(1)
        c = c_f.clamp_min(0) + noise
        if any(ctx.needs_input_grad):
            # ∂/∂K = (y − K G)/c + (D/c − q/c²) K C          ∂/∂k = −½ (D/c − q/c²)
            slope = torch.where(c_f > 0, D / c - q / c.square(), 0.0)
            ctx.save_for_backward(torch.addcmul((Y - KG) / c[:, None], slope[:, None], KC), -0.5 * slope)
        return -0.5 * (D * c.log() + q / c)

    @staticmethod
    def backward(ctx: Any, *slopes: Tensor) -> Any:
        (slope,) = slopes
        dK, dk = ctx.saved_tensors
        return slope[:, None] * dK, slope * dk, None, None, None, None, None
