"""A Gaussian over all columns of a table, fitted by EM to rows with missing values, and what it says of each cell.

    x ~ N(μ, Σ)          P_n = (Σ_oo)⁻¹ on the observed columns o of row n, zero elsewhere

The E-step has E[x_n] = μ + Σ P_n (x_n − μ) and Cov[x_n] = Σ − Σ P_n Σ. The M-step averages both over rows. Some rows'
worth of uncorrelated columns are added to Σ, and how many is chosen by how well one half of the rows predicts the
other, or nine tenths the rest if there are few: with few rows, correlations are mostly chance.

A regression of column d on the others needs a row's other columns as they would be known if column d were missing, or
it would be told its answer. Leaving one cell out of a Gaussian has a closed form (`leave_one_out`).
"""

from typing import NamedTuple

import torch
from torch import Tensor

from sasgp.data.blocks import slices
from sasgp.gp.linalg import cholesky_each

__all__ = ["LeftOut", "MaskedGaussian"]

ITERATIONS = 50
TOLERANCE = 1e-4  # change of a standardised covariance
PRIOR_ROWS = (1.0, 10.0, 100.0, 1000.0, 1e6)  # candidates for the rows' worth of uncorrelated columns
CHOICE_ROWS, CHOICE_ITERATIONS = 1000, 15
FEW_ROWS, MANY_PARTS = 100, 10  # half of so few rows would say that all of them need more of the prior than they do
LEAST_PRIOR = 0.1  # one more candidate for few rows; of more than a hundred, one row is too few to matter
LEAST_VARIANCE = 1e-4  # of a column, in its own standard deviations
LEAST = 1e-12


class LeftOut(NamedTuple):
    """What is known of each cell from the other cells of its row."""

    inputs: Tensor  # [N, D, D]: the expectation of each column (last) without column d (middle)
    variances: Tensor  # [N, D, D]: its variance, 0 where it is observed
    mean: Tensor  # [N, D]: the expectation of the cell itself
    var: Tensor  # [N, D]


class MaskedGaussian:
    """μ and Σ of standardised rows with NaN for missing values.

    Parameters
    ----------
    X : Tensor [N, D]
        Float64.
    generator : torch.Generator
        Of the halves that choose the prior.

    Attributes
    ----------
    mean : Tensor [D]
    covariance : Tensor [D, D]
    prior_rows : float
        Rows' worth of uncorrelated columns in the covariance.
    """

    def __init__(self, X: Tensor, generator: torch.Generator) -> None:
        self.prior_rows = _choose(X, generator) if X.shape[1] > 1 and len(X) > 3 else PRIOR_ROWS[0]
        self.mean, self.covariance = _fit(X, self.prior_rows, ITERATIONS)

    def conditional(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """Expectation and covariance, [M, D] and [M, D, D], of the cells of rows given the observed ones."""
        seen = ~X.isnan()
        r = torch.where(seen, X - self.mean, 0.0)
        W = self.covariance @ _precision(self.covariance, seen)  # [M, D, D]
        mean = torch.where(seen, X, self.mean + (W @ r[:, :, None])[:, :, 0])
        hole = (~seen).to(X)
        C = (self.covariance - W @ self.covariance) * hole[:, :, None] * hole[:, None]
        return mean, C

    def leave_one_out(self, X: Tensor) -> LeftOut:
        """What each cell of X [N, D], observed or not, would be given the others of its row."""
        S, seen = self.covariance, ~X.isnan()
        hole = (~seen).to(X)
        r = torch.where(seen, X - self.mean, 0.0)
        P = _precision(S, seen)
        W = S @ P  # [N, D, D]: weights of observed columns (last) in missing ones
        # Without cell d: its residual (P r)_d / P_dd and its variance 1 / P_dd; missing ones move by W_md times these
        alone = torch.where(seen, 1 / P.diagonal(dim1=1, dim2=2).clamp_min(LEAST), 0.0)  # [N, D]
        residual = (P @ r[:, :, None])[:, :, 0] * alone
        filled = torch.where(seen, X, self.mean + (W @ r[:, :, None])[:, :, 0])
        open_ = (S.diagonal() - (W * S).sum(2)).clamp_min(0) * hole  # [N, D]
        W_T = W.mT * hole[:, None]  # [N, d, m]
        return LeftOut(
            filled[:, None] - residual[:, :, None] * W_T,
            open_[:, None] + alone[:, :, None] * W_T.square(),
            filled - residual,
            open_ + alone,
        )


def _precision(S: Tensor, seen: Tensor) -> Tensor:
    """(Σ_oo)⁻¹ of each row's observed columns, [N, D, D], with zeros elsewhere."""
    both = seen[:, :, None] & seen[:, None]
    # Missing columns leave the factor: zeros beside them, ones on their diagonal
    K = torch.where(both, S, torch.diag_embed((~seen).to(S)))
    return torch.where(both, torch.cholesky_inverse(cholesky_each(K)), 0.0)


def _fit(X: Tensor, prior_rows: float, iterations: int) -> tuple[Tensor, Tensor]:
    """μ [D] and Σ [D, D] by EM."""
    N, D = X.shape
    seen = ~X.isnan()
    count = seen.sum(0)
    mean = X.nan_to_num().sum(0) / count.clamp_min(1)
    var = torch.where(seen, X - mean, 0.0).square().sum(0) / count.clamp_min(1)
    var = torch.where(count > 0, var.clamp_min(LEAST_VARIANCE), 1.0)
    S = torch.diag(var)
    for _ in range(iterations):
        first, second, P_sum = torch.zeros_like(mean), torch.zeros_like(S), torch.zeros_like(S)
        for block in slices(N, 4 * D * D):
            P = _precision(S, seen[block])
            r = torch.where(seen[block], X[block] - mean, 0.0)
            dev = torch.where(seen[block], r, (P @ r[:, :, None])[:, :, 0] @ S)  # E[x] − μ
            first, second, P_sum = first + dev.sum(0), second + dev.T @ dev, P_sum + P.sum(0)
        step = first / N
        # Σ_n Cov[x_n] = N Σ − Σ (Σ_n P_n) Σ
        scatter = second - N * torch.outer(step, step) + N * S - S @ P_sum @ S
        new = (scatter + prior_rows * torch.diag(var)) / (N + prior_rows)
        new = 0.5 * (new + new.T)
        change = (new - S).abs().max()
        mean, S = mean + step, new
        if change < TOLERANCE:
            break
    return mean, S


def _choose(X: Tensor, generator: torch.Generator) -> float:
    """The candidate whose fit to some parts of the rows makes the cells of the part left out most likely."""
    some = X[torch.randperm(len(X), generator=generator)[:CHOICE_ROWS]]
    few = len(X) <= FEW_ROWS
    n_parts = min(len(X), MANY_PARTS) if few else 2
    part = torch.arange(len(some)) % n_parts

    def log_density(rows: float) -> float:
        total = 0.0
        for i in range(n_parts):
            model, other = MaskedGaussian.__new__(MaskedGaussian), some[part == i]
            model.mean, model.covariance = _fit(some[part != i], rows, CHOICE_ITERATIONS)
            for block in slices(len(other), 8 * X.shape[1] ** 2):
                found = model.leave_one_out(other[block])
                log_p = -0.5 * (found.var.log() + (other[block] - found.mean).square() / found.var)
                total += float(log_p.nansum())
        return total

    return max((LEAST_PRIOR, *PRIOR_ROWS) if few else PRIOR_ROWS, key=log_density)
