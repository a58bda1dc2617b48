"""A training step against its unavoidable matrix products, executed alone.

The floor is one matrix product after the other into memory that is there already, at the sizes of the step: forward and
backward of the encoder (one network for point latents, two for Bayesian ones), K⁻¹X_A, K_RA α, r αᵀ, α αᵀ, W, WᵀP,
Wᵀ diag(g) W, and the factor and inverse of an A × A matrix. The step is what `fit` does: gathering the batch, encoder
noise, kernel, objective, gradient, Adam. It can fall below the floor, for the objective has fewer operations: WᵀP
and Wᵀ diag(g) W are one product there, products with triangular matrices leave their zeros out, and with more features
than active rows there are no residuals. The step in mixed precision is measured against the same floor in float32.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch

from sasgp.models.encoders import HIDDEN
from studies.benchmarks.measure import compared, interleaved, spread
from studies.benchmarks.step import one_step, random_rows, trainer
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["Product", "execute", "floor", "products", "table"]

LARGE = ((100, 1024), (400, 1024), (800, 1024))  # A, B
SIZES = {16: ((100, 256), (400, 1024)), 64: ((100, 256), *LARGE), 784: LARGE, 3072: LARGE}  # by D
QUICK_SIZES = {16: ((100, 256),), 784: ((400, 1024),)}
Q = 2
PRECISIONS = {"float32": "step", "mixed": "mixed"}  # and what the record calls such a step
ROWS = 8 * 1024  # in an epoch: few enough for memory at D = 3072


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
    """Floor and steps at every size."""
    quick = run.settings["quick"]
    rounds, seconds = (3, 0.05) if quick else (11, 0.2)
    return {
        "rows": [
            _measured(random_rows(ROWS, D), latents, A, B, rounds, seconds)
            for D, sizes in (QUICK_SIZES if quick else SIZES).items()
            for latents in ("point", "bayesian")
            for A, B in sizes
        ]
    }


def _measured(X: Any, latents: str, A: int, B: int, rounds: int, seconds: float) -> dict[str, Any]:
    D = X.shape[1]
    sizes = (A, B, D, Q, 1 if latents == "point" else 2)
    asked: dict[str, Any] = {"latents": latents, "active_set_size": A, "batch_size": B, "n_components": Q}
    steps = {name: one_step(trainer(X, **asked, precision=kind)) for kind, name in PRECISIONS.items()}
    title = f"floor  {latents} A={A} B={B} D={D}"
    found = interleaved({"floor": floor(*sizes), **steps}, rounds=rounds, seconds=seconds, title=title)
    return {
        "latents": latents,
        **dict(zip(("A", "B", "D", "Q"), sizes, strict=False)),
        "GFLOP": flops(*sizes) / 1e9,
        **{f"{name}, ms": spread([1e3 * s for s in found[name]]) for name in found},
        **{f"{name} / floor": compared(found, name, "floor") for name in steps},
    }


def table(records: Sequence[Record]) -> str:
    """One line per size."""
    result = records[0]["results"]
    return of_rows(
        [
            {
                **{name: row[name] for name in ("latents", "D", "A", "B", "GFLOP")},
                **{f"{name}, ms": row[f"{name}, ms"]["median"] for name in ("floor", *PRECISIONS.values())},
                **{f"{name} / floor (quartiles)": row[f"{name} / floor"] for name in PRECISIONS.values()},
                "floor, GFLOP/s": 1e3 * row["GFLOP"] / row["floor, ms"]["median"],
            }
            for row in result["rows"]
        ]
    )
