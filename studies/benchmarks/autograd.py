"""A training step against the same objective written plainly, as one would in an afternoon, and left to autograd.

Same rows, encoder, encoder noise, batch and active set, and a GPyTorch kernel; but a Cholesky factor that autograd goes
through, solves with it, the kernel of AA and RA evaluated one after the other, and Adam as it comes. Ours is measured
in float32 and in mixed precision.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import gpytorch
import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal, kl_divergence

from sasgp.models.encoders import Network
from studies.benchmarks.measure import compared, interleaved, spread
from studies.benchmarks.step import one_step, random_rows, trainer
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["Plain", "execute", "plain_estimate", "plain_step", "table"]

B, Q = 1024, 2
SIZES = ((100, 784), (400, 784), (800, 784), (400, 64), (400, 3072))  # A, D
QUICK_SIZES = ((100, 64), (400, 784))
EPOCH = 8  # batches


def plain_estimate(X: Tensor, Z: Tensor, kernel: gpytorch.kernels.Kernel, noise: Tensor, A: int, N: int) -> Tensor:
    """Eq. 6 of a centred batch X [B, D] at latents Z [B, Q], the first A of which are active."""
    X_A, X_R, Z_A, Z_R = X[:A], X[A:], Z[:A], Z[A:]
    D = X.shape[1]

    # log p(X_A|Z_A) = −½ [ A D log 2π + D log|K| + tr(X_Aᵀ K⁻¹ X_A) ]
    K = kernel(Z_A).to_dense() + noise * torch.eye(A, dtype=X.dtype)
    L = torch.linalg.cholesky(K)  # [A, A]
    alpha = torch.cholesky_solve(X_A, L)  # [A, D]
    log_det = 2 * L.diagonal().log().sum()
    log_p_A = -0.5 * (A * D * math.log(2 * math.pi) + D * log_det + (X_A * alpha).sum())

    # m = K_RA K⁻¹ X_A          c = k_RR + σ² − diag(K_RA K⁻¹ K_AR)
    K_RA = kernel(Z_R, Z_A).to_dense()  # [R, A]
    V = torch.linalg.solve_triangular(L, K_RA.T, upper=False)  # [A, R]
    c = kernel(Z_R, diag=True) + noise - V.square().sum(0)  # [R]
    log_p_R = Normal(K_RA @ alpha, c.sqrt()[:, None]).log_prob(X_R).sum()
    return log_p_A + (N - A) / len(X_R) * log_p_R


class Plain(nn.Module):
    """Encoder, kernel and noise under Eq. 6 or Eq. 8, with nothing by hand."""

    def __init__(self, mean: Tensor, scale: Tensor, *, bayesian: bool, active: int, encoder_noise: float) -> None:
        super().__init__()
        draw = torch.Generator().manual_seed(0)
        self.encoder = Network(len(mean), Q, variance=bayesian).start_from(mean, scale, draw)
        self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
        self.log_noise = nn.Parameter(2 * scale.log())
        self.mean, self.active, self.encoder_noise = mean, active, encoder_noise

    def forward(self, X: Tensor, N: int) -> Tensor:
        noise = self.log_noise.exp()
        mu, var = self.encoder(X + self.encoder_noise * noise.detach().sqrt() * torch.randn_like(X))
        prior = Independent(Normal(torch.zeros_like(mu), 1.0), 1)
        if var is None:
            Z, log_prior = mu, prior.log_prob(mu)
        else:
            q = Independent(Normal(mu, var.sqrt()), 1)
            Z, log_prior = q.rsample(), -kl_divergence(q, prior)
        log_p = plain_estimate(X - self.mean, Z, self.kernel, noise, self.active, N)
        return -(log_p + N / len(X) * log_prior.sum()) / (N * X.shape[1])


def plain_step(X: Tensor, *, latents: str, active: int, encoder_noise: float) -> Callable[[], Tensor]:
    """A call that makes one step of the plain model on rows X, and returns its loss."""
    N, model = (
        len(X),
        Plain(X.mean(0), X.std(), bayesian=latents == "bayesian", active=active, encoder_noise=encoder_noise),
    )
    adam = torch.optim.Adam(model.parameters(), lr=1e-4)  # as slow as the schedule of ours is at its start
    batches: list[Tensor] = []

    def step() -> Tensor:
        if not batches:
            batches.extend(torch.randperm(N).split(B))
        adam.zero_grad()
        loss = model(X[batches.pop()], N)
        loss.backward()
        adam.step()
        return loss.detach()

    return step


def execute(run: Run) -> dict[str, Any]:
    """Both steps at every size."""
    quick = run.settings["quick"]
    rounds, seconds = (3, 0.1) if quick else (11, 0.25)
    rows = []
    for A, D in QUICK_SIZES if quick else SIZES:
        X = random_rows(EPOCH * B, D)
        for latents in ("point", "bayesian"):
            asked: dict[str, Any] = {"latents": latents, "active_set_size": A, "batch_size": B, "n_components": Q}
            ours, mixed = (trainer(X, **asked, precision=precision) for precision in ("float32", "mixed"))
            encoder_noise: Any = ours.model.encoder_noise
            plain = plain_step(torch.from_numpy(X), latents=latents, active=A, encoder_noise=encoder_noise)
            contenders = {"ours": one_step(ours), "mixed": one_step(mixed), "autograd": plain}
            title = f"autograd  {latents} A={A} D={D}"
            found = interleaved(contenders, rounds=rounds, seconds=seconds, title=title, bare={"autograd"})
            rows.append(
                {
                    "latents": latents,
                    "A": A,
                    "B": B,
                    "D": D,
                    "Q": Q,
                    **{f"{name}, ms": spread([1e3 * s for s in found[name]]) for name in contenders},
                    **{f"autograd / {name}": compared(found, "autograd", name) for name in ("ours", "mixed")},
                }
            )
    return {"rows": rows}


def table(records: Sequence[Record]) -> str:
    """One line per size."""
    result = records[0]["results"]
    return of_rows(
        [
            {
                **{name: row[name] for name in ("latents", "A", "D")},
                **{f"{name}, ms": row[f"{name}, ms"]["median"] for name in ("ours", "mixed", "autograd")},
                **{f"autograd / {name} (quartiles)": row[f"autograd / {name}"] for name in ("ours", "mixed")},
            }
            for row in result["rows"]
        ]
    )
