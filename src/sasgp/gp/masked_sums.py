"""All rows in sums of fixed size (`sasgp.gp.row_sums`) where values are missing, which are NaN.

Each feature sums over the rows that have it. With o_nd = 1 where x_nd is observed,

    S_d = Σ_n o_nd a_n a_nᵀ [M, M]     b_d = Σ_n o_nd x_nd a_n [M]     t_d = Σ_n o_nd (k_nn − ‖a_n‖²)     n_d = Σ_n o_nd

and the decoder of feature d is that of `row_sums` with its own I + S_d/σ². `PatternSums` keeps them all; features that
were observed in the same rows share one S. That is exact, and takes D M² numbers.

`FilledSums` is for too many features. Its means are exact as well: V_d = (I + S_d/σ²)⁻¹ b_d/σ² is solved for by
conjugate gradients, for all features together, with one pass over the rows per step. A missing value is then filled in
with the decoder's mean a_nᵀ V_d, which changes no prediction, and the sums are those of complete rows. Variances come
from the mean of all S_d, so they are those of a typical feature.
"""

from collections.abc import Callable
from copy import deepcopy
from math import isqrt

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from sasgp.gp.linalg import cholesky, inverse, times_upper
from sasgp.gp.masked import patterns
from sasgp.gp.objective import LOG_2PI
from sasgp.gp.posterior import Posterior, whitened_mean, whitened_root
from sasgp.gp.row_sums import RowSums

__all__ = ["MOST_NUMBERS", "FilledSums", "PatternPosterior", "PatternSums", "masked_copy", "most_positions"]

MOST_NUMBERS = 2**24  # D M² up to which each feature keeps its own S: 128 MB
FEWEST = 150  # positions for which that is worth it; with more features, missing values are filled in
PASSES = 10  # over the rows at most, to fill in values
ACCURACY = 1e-3  # of the filled-in values, relative


def most_positions(n_features: int) -> int:
    """The number of positions for which each feature may keep its own sums, or 0 if there are too many features."""
    M = isqrt(MOST_NUMBERS // n_features)
    return M if M >= FEWEST else 0


class PatternSums(RowSums):
    """The sums of each feature over the rows that have it; parameters as for `RowSums`.

    Attributes
    ----------
    S : Tensor [G, M, M]
        One for each group of features that were observed in the same rows so far.
    group : Tensor [D]
        The group of each feature.
    t_g, n_g : Tensor [G]
        t_d and n_d of each group.
    """

    def __init__(self, kernel: Kernel, U: Tensor, n_features: int, L: Tensor | None = None) -> None:
        super().__init__(kernel, U, n_features, L)
        self.S = self.S[None].clone()
        self.group = torch.zeros(n_features, dtype=torch.long, device=U.device)
        self.t_g, self.n_g = self.L.new_zeros(1), self.L.new_zeros(1)

    @classmethod
    def from_complete(cls, sums: RowSums) -> "PatternSums":
        """Sums of rows of which none has missing values, to which others can be added."""
        found = cls(sums.kernel, sums.U, sums.b.shape[1], sums.L)
        for name, tensor in sums.tensors.items():
            setattr(found, name, tensor.clone())
        found.S, found.t_g, found.n_g = found.S[None], found.t[None].clone(), found.n[None].clone()
        return found

    @property
    def tensors(self) -> dict[str, Tensor]:
        return super().tensors | {"t_g": self.t_g, "n_g": self.n_g}

    def separate(self) -> None:
        """Give each feature a group of its own, so that the sums of several processes have the same shape."""
        self._regroup(self.group, torch.arange(len(self.group), device=self.group.device))

    def _regroup(self, old: Tensor, group: Tensor) -> None:
        """New groups, each of which was part of the group old[g]."""
        if len(old) != len(self.S) or not torch.equal(old, torch.arange(len(old), device=old.device)):
            self.S, self.t_g, self.n_g = self.S[old], self.t_g[old], self.n_g[old]
        self.group = group

    def _add(self, X: Tensor, Z: Tensor, L_inv: Tensor) -> None:
        seen = ~X.isnan()
        A = times_upper(self.kernel(Z, self.U.double()).to_dense(), L_inv)  # [B, M]
        k = self.kernel(Z, diag=True)  # [B]
        left = (k - A.square().sum(1)).clamp_min(0)
        X = X.nan_to_num()
        self.b.addmm_(A.T, X)
        self.t += left.sum()
        self.e += X.square().sum()
        self.k += k.sum()
        self.n += len(X)

        # A group of features stays one as long as its features are observed in the same rows
        found, which = patterns(seen)  # [P, B], [D]
        key, group = (self.group * len(found) + which).unique(return_inverse=True)  # type: ignore[no-untyped-call]
        self._regroup(key // len(found), group)
        everything = A.T @ A
        for g, rows in enumerate(found[key % len(found)]):
            n = int(rows.sum())
            # From the rows that are fewer: the observed ones, or those that are not
            if 2 * n >= len(rows):
                self.S[g] += everything
                self.S[g].addmm_(A[~rows].T, A[~rows], alpha=-1)
            else:
                self.S[g].addmm_(A[rows].T, A[rows])
            self.t_g[g] += left[rows].sum()
            self.n_g[g] += n

    def _factors(self, noise: Tensor) -> Tensor:
        """L_B of each group, [G, M, M]."""
        B = self.S / noise
        B.diagonal(dim1=1, dim2=2).add_(1)
        return torch.stack([cholesky(one) for one in B])

    @torch.no_grad()
    def posterior(self, noise: Tensor, mean: Tensor, scales: Tensor | None = None) -> "PatternPosterior":
        """Each feature's Gaussian process given its values in all rows added so far."""
        noise = noise.detach().double()
        L_B = self._factors(noise)
        V = torch.empty_like(self.b)
        for g, factor in enumerate(L_B):
            chosen = self.group == g
            V[:, chosen] = torch.cholesky_solve(self.b[:, chosen] / noise, factor)
        alpha = whitened_mean(self.L, V)
        alpha = alpha if scales is None else alpha * scales.detach()
        share = torch.bincount(self.group, minlength=len(self.S)).to(self.S) / len(self.group)
        typical = torch.einsum("g,gij->ij", share, self.S) / noise  # the mean information of a feature
        typical.diagonal().add_(1)
        root = whitened_root(self.L, cholesky(typical))
        roots = torch.stack([inverse(one) for one in L_B])
        shared = Posterior(self.kernel, noise, self.U, alpha, root, mean, scales)
        return PatternPosterior(shared, inverse(self.L), roots, self.group)

    def bound(self, noise: Tensor | float) -> float:
        """The lower bound on the log density of all values added so far, with the noise variance σ²."""
        noise = torch.as_tensor(noise).detach().to(self.S)
        L_B = self._factors(noise)
        total = self.e / noise
        for g, factor in enumerate(L_B):
            b = self.b[:, self.group == g]
            log_det = 2 * factor.diagonal().log().sum()
            each = self.n_g[g] * (LOG_2PI + noise.log()) + log_det + self.t_g[g] / noise
            fit = torch.linalg.solve_triangular(factor, b, upper=False).square().sum()
            total = total + b.shape[1] * each - fit / noise.square()
        return float(-0.5 * total)


class PatternPosterior(Posterior):
    """A posterior with a variance of its own for each feature, because each was observed in other rows.

    Parameters
    ----------
    shared : Posterior
        The same means, with the variance of a typical feature. The search for latents uses it, which evaluates the
        density of a row many times; and so does the explorer.
    L_inv : Tensor [M, M]
        L⁻¹ of K_UU = L Lᵀ.
    roots : Tensor [G, M, M]
        L_B⁻¹ of each group of features.
    group : Tensor [D]
        The group of each feature.
    """

    def __init__(self, shared: Posterior, L_inv: Tensor, roots: Tensor, group: Tensor) -> None:
        self.__dict__.update(shared.__dict__)
        self.shared, self.L_inv, self.roots, self.group = shared, L_inv, roots, group

    @property
    def search(self) -> Posterior:
        self.shared.local_noise = self.local_noise
        return self.shared

    def _moments(self, Z: Tensor) -> tuple[Tensor, Tensor]:
        # c_f = k_** − ‖a‖² + ‖L_B⁻¹ a‖², in units of s²
        K = self.kernel(Z, self.Z.double()).to_dense()  # [B, M]
        mean = torch.addmm(self.mean.double(), K, self.alpha)  # [B, D]
        A = K @ self.L_inv.T
        left = (self.kernel(Z, diag=True) - A.square().sum(1)).clamp_min(0)  # [B]
        c_f = torch.stack([left + (A @ root.T).square().sum(1) for root in self.roots], 1)  # [B, G]
        return mean, c_f[:, 0] if len(self.roots) == 1 else c_f[:, self.group]

    def knowledge(self) -> Tensor:
        # Σ_g w_g L⁻ᵀ (I − L_B⁻ᵀ L_B⁻¹) L⁻¹, where w_g = Σ_d s_d² over the features of a group
        scales = self.scales.square().expand(len(self.mean))
        w = scales.new_zeros(len(self.roots)).index_add(0, self.group, scales)  # [G]
        known = -torch.einsum("g,gij,gik->jk", w, self.roots, self.roots)
        known.diagonal().add_(w.sum())
        values, U = torch.linalg.eigh(known)
        root = values.clamp_min(0).sqrt()[:, None] * (U.T @ self.L_inv)
        return root.T @ root

    @property
    def _width(self) -> int:
        return super()._width if len(self.roots) == 1 else len(self.mean)

    def _sample(self, Z: Tensor, generator: torch.Generator, noise: bool) -> Tensor:
        # As for `Posterior`, with C = K_** − A Aᵀ + (A L_B⁻ᵀ)(A L_B⁻ᵀ)ᵀ of each group of features
        Z = Z.double()
        A = self.kernel(Z, self.Z.double()).to_dense() @ self.L_inv.T
        left = self.kernel(Z).to_dense() - A @ A.T
        if noise and self.local_noise is None:
            left.diagonal().add_(self.noise)
        mean, _ = self.predict(Z)
        white = torch.randn(2, *mean.shape, generator=generator, dtype=mean.dtype).to(mean.device)
        drawn = mean.clone()
        for g, root in enumerate(self.roots):
            chosen = self.group == g
            V = A @ root.T
            scales = self.scales[chosen] if len(self.scales) > 1 else self.scales
            drawn[:, chosen] += scales.to(mean.dtype) * (cholesky(left + V @ V.T).to(mean.dtype) @ white[0][:, chosen])
        if noise and self.local_noise is not None:
            drawn += self.local_noise(Z).sqrt().to(mean.dtype) * white[1]
        return drawn


class FilledSums(RowSums):
    """The sums of rows whose missing values are filled in with the decoder's mean; parameters as for `RowSums`.

    Rows are added in two steps. `add` takes their observed values. Then `fill` takes a few more passes over the rows,
    and puts what is missing into b. Rows that were filled in before stay as they are.

    Attributes
    ----------
    S_seen : Tensor [M, M]
        Σ_n ρ_n a_n a_nᵀ, where ρ_n is the share of features that row n has: the mean of all S_d.
    n_seen, t_seen : Tensor []
        The number of observed values, and Σ_nd o_nd (k_nn − ‖a_n‖²).
    """

    def __init__(self, kernel: Kernel, U: Tensor, n_features: int, L: Tensor | None = None) -> None:
        super().__init__(kernel, U, n_features, L)
        self.S_seen = torch.zeros_like(self.S)
        self.n_seen, self.t_seen = self.L.new_zeros(2)
        self.held = torch.zeros_like(self.S)  # S of the rows that were filled in before

    @classmethod
    def from_complete(cls, sums: RowSums) -> "FilledSums":
        """Sums of rows of which none has missing values, to which others can be added."""
        D = sums.b.shape[1]
        found = cls(sums.kernel, sums.U, D, sums.L)
        for name, tensor in sums.tensors.items():
            setattr(found, name, tensor.clone())
        found.S_seen, found.n_seen, found.t_seen = found.S.clone(), D * found.n, D * found.t
        found.held = found.S.clone()
        return found

    @property
    def tensors(self) -> dict[str, Tensor]:
        return super().tensors | {"S_seen": self.S_seen, "n_seen": self.n_seen, "t_seen": self.t_seen}

    def _add(self, X: Tensor, Z: Tensor, L_inv: Tensor) -> None:
        seen = ~X.isnan()
        A, left = self._projected(Z, L_inv)
        rho = seen.double().mean(1)
        self.S.addmm_(A.T, A)
        self.S_seen.addmm_(A.T, rho[:, None] * A)
        X = X.nan_to_num()
        self.b.addmm_(A.T, X)
        k = self.kernel(Z, diag=True)
        self.t += left.sum()
        self.t_seen += seen.shape[1] * (rho * left).sum()
        self.n_seen += seen.sum()
        self.e += X.square().sum()
        self.k += k.sum()
        self.n += len(X)

    def _projected(self, Z: Tensor, L_inv: Tensor) -> tuple[Tensor, Tensor]:
        """a_n of each row [B, M], and what the positions cannot express, [B]."""
        A = times_upper(self.kernel(Z, self.U.double()).to_dense(), L_inv)
        return A, (self.kernel(Z, diag=True) - A.square().sum(1)).clamp_min(0)

    @torch.no_grad()
    def seen_products(self, X: Tensor, Z: Tensor, V: Tensor) -> Tensor:
        """Σ_n a_n (o_n ∘ a_nᵀ V) over rows X [B, D] with latents Z [B, Q], for V [M, D]: [M, D]."""
        if self._L_inv is None:
            self._L_inv = inverse(self.L)
        A, _ = self._projected(Z.double(), self._L_inv)
        return A.T @ ((A @ V) * ~X.isnan())

    @torch.no_grad()
    def fill(self, noise: Tensor, products: Callable[[Tensor], Tensor]) -> None:
        """Fill in the missing values of the rows added since the last call.

        `products` is the sum of `seen_products` over these rows: a pass over them.
        """
        # (I + S_d/σ²) V_d = b_d/σ², where S_d V_d is that of old rows, which are complete, and a pass over new ones
        noise = noise.detach().double()
        precision = self.S_seen / noise
        precision.diagonal().add_(1)
        factor = cholesky(precision)

        def times(V: Tensor) -> Tensor:
            return V + (self.held @ V + products(V)) / noise

        target = self.b / noise
        V = torch.cholesky_solve(target, factor)
        r = target - times(V)
        z = torch.cholesky_solve(r, factor)
        p, rz = z.clone(), (r * z).sum(0)
        scale = (target * V).sum()
        for _ in range(PASSES):
            if not rz.sum() > ACCURACY**2 * scale:
                break
            q = times(p)
            step = rz / (p * q).sum(0).clamp_min(torch.finfo(torch.float64).tiny)
            V.addcmul_(p, step)
            r.addcmul_(q, step, value=-1)
            z = torch.cholesky_solve(r, factor)
            before, rz = rz, (r * z).sum(0)
            p = torch.addcmul(z, p, rz / before.clamp_min(torch.finfo(torch.float64).tiny))
        # With the missing values filled in, (I + S/σ²) V = b/σ²
        self.b = noise * V + self.S @ V
        self.held = self.S.clone()

    @torch.no_grad()
    def posterior(self, noise: Tensor, mean: Tensor, scales: Tensor | None = None) -> Posterior:
        """The Gaussian process given all rows added so far, with the variance of a typical feature."""
        noise = noise.detach().double()
        V = torch.cholesky_solve(self.b / noise, self._precision(noise))
        alpha = whitened_mean(self.L, V)
        alpha = alpha if scales is None else alpha * scales.detach()
        typical = self.S_seen / noise
        typical.diagonal().add_(1)
        return Posterior(self.kernel, noise, self.U, alpha, whitened_root(self.L, cholesky(typical)), mean, scales)

    def bound(self, noise: Tensor | float) -> float:
        raise NotImplementedError("filled-in values are not data: use PatternSums of some features")


def masked_copy(sums: RowSums) -> RowSums:
    """A copy of sums, to which rows with missing values can be added."""
    if isinstance(sums, PatternSums | FilledSums):
        return deepcopy(sums)
    kind = PatternSums if len(sums.U) <= most_positions(sums.b.shape[1]) else FilledSums
    return kind.from_complete(sums)
