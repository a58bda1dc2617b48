"""A training step against its unavoidable matrix products, executed alone.

The floor is one matrix product after the other into memory that is there already, at the sizes of the step: forward and
backward of the encoder (one network for point latents, two for Bayesian ones), K⁻¹X_A, K_RA α, r αᵀ, α αᵀ, W, WᵀP,
Wᵀ diag(g) W, and the factor and inverse of an A × A matrix. The step is what `fit` does: gathering the batch, encoder
noise, kernel, objective, gradient, Adam. It can fall below the floor, for the objective has fewer operations: WᵀP
and Wᵀ diag(g) W are one product there, products with triangular matrices leave their zeros out, and with many features
the batch's Gram matrix takes the place of the residuals.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise, product
from typing import Any

import torch

from sasgp.models.encoders import HIDDEN
from studies.benchmarks.measure import compared, interleaved, spread
from studies.benchmarks.step import one_step, random_rows, trainer
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["Product", "execute", "floor", "products", "table"]

A_SIZES, D_SIZES, B, Q = (100, 400, 800), (64, 784, 3072), 1024, 2
QUICK_A, QUICK_D = (100, 400), (64, 784)
EPOCH = 8  # batches in an epoch of the rows: few enough for memory at D = 3072


@dataclass(frozen=True)
class Product:
    """A product [rows, inner] × [inner, columns]; the factor on the left or right may be stored transposed."""

    name: str
    rows: int
    inner: int
    columns: int
    transposed: str = ""

    @property
    def flops(self) -> int:
        return 2 * self.rows * self.inner * self.columns


def products(A: int, B: int, D: int, Q: int, networks: int) -> list[Product]:
    """The matrix products of a step."""
    R, found = B - A, []
    for network in range(networks):
        for layer, (n_in, n_out) in enumerate(pairwise((D, *HIDDEN, Q))):
            where = f"network {network}, layer {layer}"
            found.append(Product(f"X Wᵀ, {where}", B, n_in, n_out, "right"))
            found.append(Product(f"dYᵀ X, {where}", n_out, B, n_in, "left"))
            if layer:  # nobody asks for the gradient in the data
                found.append(Product(f"dY W, {where}", B, n_out, n_in))
    return [
        *found,
        Product("K⁻¹ X_A", A, A, D),
        Product("K_RA α", R, A, D),
        Product("r αᵀ", R, D, A, "right"),
        Product("α αᵀ", A, D, A, "right"),
        Product("W = K_RA K⁻¹", R, A, A),
        Product("Wᵀ P", A, R, A, "left"),
        Product("Wᵀ diag(g) W", A, R, A, "left"),
    ]


def flops(A: int, B: int, D: int, Q: int, networks: int) -> int:
    """Operations of the floor. A factor takes A³/3 of them and the inverse made from it 2A³/3."""
    return sum(p.flops for p in products(A, B, D, Q, networks)) + A**3


def floor(A: int, B: int, D: int, Q: int, networks: int) -> Callable[[], None]:
    """A call that executes the products, the factor and the inverse, and nothing else."""
    draw = torch.Generator().manual_seed(0)

    def matrix(rows: int, columns: int, transposed: bool) -> torch.Tensor:
        stored = torch.randn((columns, rows) if transposed else (rows, columns), generator=draw)
        return stored.T if transposed else stored

    work = [
        (
            matrix(p.rows, p.inner, p.transposed == "left"),
            matrix(p.inner, p.columns, p.transposed == "right"),
            torch.empty(p.rows, p.columns),
        )
        for p in products(A, B, D, Q, networks)
    ]
    half = matrix(A, A, False)
    K, L, K_inv = half @ half.T + A * torch.eye(A), torch.empty(A, A), torch.empty(A, A)
    info = torch.empty((), dtype=torch.int32)

    def execute() -> None:
        torch.linalg.cholesky_ex(K, out=(L, info))
        torch.cholesky_inverse(L, out=K_inv)
        for left, right, out in work:
            torch.mm(left, right, out=out)

    return execute


def execute(run: Run) -> dict[str, Any]:
    """Floor and step at every size."""
    quick = run.settings["quick"]
    rounds, seconds = (3, 0.05) if quick else (11, 0.5)
    rows = []
    for D in QUICK_D if quick else D_SIZES:
        X = random_rows(EPOCH * B, D)
        for latents, A in product(("point", "bayesian"), QUICK_A if quick else A_SIZES):
            sizes = (A, B, D, Q, 1 if latents == "point" else 2)
            training = trainer(X, latents=latents, active_set_size=A, batch_size=B, n_components=Q)
            contenders = {"floor": floor(*sizes), "step": one_step(training)}
            title = f"floor  {latents} A={A} D={D}"
            found = interleaved(contenders, rounds=rounds, seconds=seconds, title=title)
            rows.append(
                {
                    "latents": latents,
                    "A": A,
                    "B": B,
                    "D": D,
                    "Q": Q,
                    "GFLOP": flops(*sizes) / 1e9,
                    "floor, ms": spread([1e3 * s for s in found["floor"]]),
                    "step, ms": spread([1e3 * s for s in found["step"]]),
                    "step / floor": compared(found, "step", "floor"),
                }
            )
    return {"rows": rows}


def table(records: Sequence[Record]) -> str:
    """One line per size."""
    result = records[0]["results"]
    return of_rows(
        [
            {
                **{name: row[name] for name in ("latents", "A", "D", "GFLOP")},
                "floor, ms": row["floor, ms"]["median"],
                "step, ms": row["step, ms"]["median"],
                "step / floor (quartiles)": row["step / floor"],
                "floor, GFLOP/s": 1e3 * row["GFLOP"] / row["floor, ms"]["median"],
            }
            for row in result["rows"]
        ]
    )
