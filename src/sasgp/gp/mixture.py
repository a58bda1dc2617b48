"""A mixture of Gaussians over the latent space: where the rows of the data are, if that is not N(0, I).

Training pulls latents towards the prior N(0, I), but those of clusters stay clusters. For a row with few observed
values the prior decides much, so `impute` uses such a mixture in its place.
"""

import math

import torch
from torch import Tensor

from sasgp.gp.objective import LOG_2PI, prior_log_density
from sasgp.gp.posterior import Predictive

__all__ = ["Mixture", "WithMixture"]


class Mixture:
    """p(z) = Σ_k w_k N(z | μ_k, C_k).

    Parameters
    ----------
    weights : Tensor [K]
    means : Tensor [K, Q]
    covariances : Tensor [K, Q, Q]
    """

    def __init__(self, weights: Tensor, means: Tensor, covariances: Tensor) -> None:
        self.log_weights, self.means = weights.double().log(), means.double()
        self.L = torch.linalg.cholesky(covariances.double())  # [K, Q, Q]
        self.L_inv = torch.linalg.inv(self.L)

    def log_density(self, Z: Tensor) -> Tensor:
        """The log density log p(z) of each row, [M], in float64; differentiable in Z."""
        # log N(z | μ, L Lᵀ) = −½ ‖L⁻¹(z − μ)‖² − Σ_q log L_qq − ½ Q log 2π
        white = (self.L_inv @ (Z.double()[:, None] - self.means)[..., None])[..., 0]  # [M, K, Q]
        constant = self.log_weights - self.L.diagonal(dim1=1, dim2=2).log().sum(1) - 0.5 * Z.shape[1] * LOG_2PI
        return torch.logsumexp(constant - 0.5 * white.square().sum(2), 1)

    def placed(self, epsilon: Tensor) -> Tensor:
        """Points [n, Q] of the mixture from points of N(0, I); the components share them by their weights."""
        shares = self.log_weights.exp().cumsum(0).clamp_max(1)
        which = torch.searchsorted(shares, (torch.arange(len(epsilon)) + 0.5).to(shares) / max(1, len(epsilon)))
        which = which.clamp_max(len(shares) - 1)
        return self.means[which] + (self.L[which] @ epsilon.to(self.means)[:, :, None])[:, :, 0]


class WithMixture(Predictive):
    """A decoder under another prior: its log density has log p(z) − log N(z | 0, I) added.

    What climbs log p(x|z) + log N(z | 0, I) of this decoder then climbs log p(x|z) + log p(z).
    """

    def __init__(self, decoder: Predictive, mixture: Mixture) -> None:
        self.decoder, self.mixture = decoder, mixture
        self.Z, self.mean = decoder.Z, decoder.mean

    @property
    def block_size(self) -> int:
        """Queries answered at a time."""
        return self.decoder.block_size

    def predict(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        """Those of the decoder."""
        return self.decoder.predict(Z)

    def log_density(self, X: Tensor, Z: Tensor) -> Tensor:
        """The log density of each row, [M], and the difference between the priors."""
        prior = self.mixture.log_density(Z) - prior_log_density(Z.double())
        return self.decoder.log_density(X, Z) + prior.to(X.dtype)

    def draws(self, X: Tensor, Z: Tensor, F: Tensor, epsilon: Tensor, near: int) -> tuple[Tensor, Tensor]:
        """Draws [K, M, Q] of each row's z, and the logarithms [K, M] of the weights that make them draws from p(z|x).

        The first `near` are z* + F ε, with points ε [K, Q] from N(0, I). The others come from the mixture, because
        p(z|x) may have other modes.
        """
        # p(z|x) ∝ p(x|z) p(z)          q = a N(z*, F Fᵀ) + (1−a) p(z)          weight p(x|z) p(z) / q(z)
        X, Z, F, K = X.double(), Z.double(), F.double(), len(epsilon)
        F = F + 1e-6 * torch.eye(Z.shape[1]).to(F)  # a spread of 0 has no inverse
        F_inv, log_det = torch.linalg.inv(F), torch.linalg.slogdet(F).logabsdet
        log_a, log_b = math.log(near / K), math.log1p(-near / K) if near < K else -math.inf
        others = self.mixture.placed(epsilon[near:])
        found, log_w = [], []
        for k in range(K):
            z = Z + F @ epsilon[k].to(F) if k < near else others[k - near].expand_as(Z)
            log_prior = self.mixture.log_density(z)  # [M]
            log_near = prior_log_density((F_inv @ (z - Z)[:, :, None])[:, :, 0]) - log_det
            found.append(z)
            log_q = torch.logaddexp(log_a + log_near, log_b + log_prior)
            log_w.append(self.decoder.log_density(X, z) + log_prior - log_q)
        return torch.stack(found), torch.stack(log_w)
