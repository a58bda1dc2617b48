"""What a trained model answers, against the matrix products of the answer, executed alone.

The products of a row are those that its method cannot do without: the layers of the encoder in float32; in float64,
with P positions, K α [P, D] for a mean and K Tᵀ [P, P] for a variance. A search evaluates the density of a row at many
z, each by one product [P, 2P]. For nearest rows it is a factor [k, k] and a product [k, D] for each row. What is above
the floor are the kernel itself, gathering, rounding, and Python.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.gp.refine import N_STARTS
from sasgp.models.encoders import HIDDEN
from studies.benchmarks.measure import compared, interleaved, spread
from studies.benchmarks.step import DATA
from studies.records import Record, Run
from studies.tables import of_rows

__all__ = ["Products", "evaluations", "execute", "table"]

EPOCHS = 2
ROWS, SEARCHED, NEAR = 10_000, 1000, 500  # rows of the quick methods, of searches, and of nearest rows
REFINE, SCORE_STEPS, SAMPLES, NEIGHBOURS = 20, 4, 16, 128


@dataclass(frozen=True)
class Products:
    """What rows cost at the least.

    Parameters
    ----------
    layers
        Sizes (inner, columns) of the encoder's products, in float32.
    double
        Sizes of products in float64, and how often a row goes through each.
    nearest
        Sizes (k, D) of a factor [k, k] and a product with k rows, for each row.
    """

    layers: tuple[tuple[int, int], ...] = ()
    double: tuple[tuple[int, int, int], ...] = ()
    nearest: tuple[int, int] | None = None

    def call(self, M: int, block: int) -> Callable[[], None]:
        """A call that executes them for M rows, a block at a time, into memory that is there already."""
        sizes = [(*layer, 1, torch.float32) for layer in self.layers]
        sizes += [(*product, torch.float64) for product in self.double]
        work = [
            (
                torch.ones(block, inner, dtype=dtype),
                torch.ones(inner, columns, dtype=dtype),
                torch.empty(block, columns, dtype=dtype),
                round(often * M / block),
            )
            for inner, columns, often, dtype in sizes
        ]
        k, D = self.nearest or (0, 0)
        K, X = torch.eye(k, dtype=torch.float64).repeat(block, 1, 1), torch.ones(block, k, D)
        weights = torch.ones(block, 1, k)

        def execute() -> None:
            for left, right, out, times in work:
                for _ in range(times):
                    torch.mm(left, right, out=out)
            for _ in range(round(M / block) if k else 0):
                torch.linalg.cholesky_ex(K)
                torch.bmm(weights, X)

        return execute


def evaluations(steps: int, Q: int, samples: int = 0) -> int:
    """How often the density of a row is evaluated by a search of some steps, and then by an integral over z."""
    # All starts, then the best of them for a quarter of the steps, then the best one; a last look after each climb
    search = (N_STARTS + 1) + N_STARTS * (steps // 4 + 1) + (steps - steps // 4 + 1)
    # The curvature takes two gradients a dimension. Half of the samples are the same z for all rows
    return search + (2 * Q + (samples + 1) // 2 if samples else 0)


def methods(model: Any, X: Any, X_new: Any) -> dict[str, tuple[int, int, Callable[[], object], Products]]:
    """Each method by name: how many rows it gets, how many at a time, the call, and its products."""
    P, Q, D = model.support_size_, model.n_components_, X.shape[1]
    Z_new = model.transform(X_new)
    encoder = tuple(pairwise((D, *HIDDEN, Q)))
    starts = ((D, P, 3),)  # scores of all positions, two products, and α x̃

    def search(times: int) -> Products:
        return Products(encoder, (*starts, (P, 2 * P, times)))

    some, few = X_new[:SEARCHED], Z_new[:NEAR]
    block = min(len(some), max(1, model.posterior_.block_size // N_STARTS))
    each = min(len(X_new), 1024)
    refine, score = evaluations(REFINE, Q), evaluations(SCORE_STEPS, Q, SAMPLES)
    return {
        "transform": (len(X_new), each, lambda: model.transform(X_new), Products(encoder)),
        "predict": (len(Z_new), each, lambda: model.predict(Z_new), Products((), ((P, D, 1),))),
        "predict(return_std=True)": (
            len(Z_new),
            each,
            lambda: model.predict(Z_new, return_std=True),
            Products((), ((P, D, 1), (P, P, 1))),
        ),
        f"transform(refine={REFINE})": (len(some), block, lambda: model.transform(some, refine=REFINE), search(refine)),
        "score_samples": (len(some), block, lambda: model.score_samples(some), search(score)),
        f"predict(neighbours={NEIGHBOURS})": (
            len(few),
            len(few),
            lambda: model.predict(few, neighbours=NEIGHBOURS, data=X),
            Products(nearest=(NEIGHBOURS, D)),
        ),
    }


def execute(run: Run) -> dict[str, Any]:
    """One training, then each method and its products in turns."""
    quick = run.settings["quick"]
    data: Any = load("digits" if quick else DATA)
    X, X_new = (np.asarray(part, np.float32) for part in (data.X, data.X_test))
    X_new = X_new[:ROWS]
    model = SASGP(max_epochs=EPOCHS, random_state=0).fit(X)
    rows = []
    for name, (n, block, call, products) in methods(model, X, X_new).items():
        found = interleaved(
            {"method": call, "floor": products.call(n, block)}, rounds=2 if quick else 5, seconds=0, title=name
        )
        rows.append(
            {
                "method": name,
                "rows": n,
                "µs a row": spread([1e6 * s / n for s in found["method"]])["median"],
                "its products alone": spread([1e6 * s / n for s in found["floor"]])["median"],
                "ratio (quartiles)": compared(found, "method", "floor"),
            }
        )
    return {"positions": model.support_size_, "features": X.shape[1], "rows": rows}


def table(records: Sequence[Record]) -> str:
    """One line per method."""
    result = records[0]["results"]
    return f"{of_rows(result['rows'])}\n\n{result['positions']} positions, {result['features']} features."
