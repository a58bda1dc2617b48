"""An index of rows whose latents are known. The nearest rows of a new row are more starts for its refinement.

The index keeps at most 64 principal coordinates per row, in float32. That is enough, because they only propose starts
and the density decides. Up to `EXACT_ROWS` rows, the nearest are found by one matrix product, which takes less time
than one step of refinement. Beyond that, pynndescent's graph is searched. The graph is never in a file, because
pynndescent can only pickle it, and a pickle runs code. It is built again from the coordinates when it is first needed.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators import storage
from sasgp.gp.linalg import principal_axes

__all__ = ["Neighbours", "build", "companion", "read", "write"]

EXACT_ROWS = 200_000
N_NEIGHBOURS = 10
MAX_COORDINATES = 64
PCA_ROWS = 20_000  # rows from which the principal axes are computed
BLOCK_ELEMENTS = 16_000_000  # distances computed at a time: 64 MB


class Neighbours:
    """An index of N rows.

    Parameters
    ----------
    mean, axes : Tensor [D], [P, D]
        They map a row to its coordinates, (x − mean) axesᵀ.
    coordinates : Tensor [N, P]
        Coordinates of the indexed rows.
    Z : Tensor [N, Q]
        Their latents.
    """

    def __init__(self, mean: Tensor, axes: Tensor, coordinates: Tensor, Z: Tensor) -> None:
        self.mean, self.axes, self.coordinates, self.Z = mean, axes, coordinates, Z
        self.half_squares = 0.5 * coordinates.square().sum(1)
        self._graph: Any = None

    def __len__(self) -> int:
        return len(self.Z)

    def nearest(self, X: Tensor) -> Tensor:
        """Indices [M, n] of the rows nearest to each of X [M, D]."""
        at = (X.float() - self.mean) @ self.axes.T  # [M, P]
        n = min(N_NEIGHBOURS, len(self))
        if len(self) > EXACT_ROWS:
            found, _ = self.graph.query(at.numpy(force=True), k=n)
            return torch.from_numpy(np.asarray(found, np.int64)).to(X.device)
        # ½‖a − b‖² = ½‖a‖² − a·b + ½‖b‖²; the first term does not change the order
        blocks = at.split(max(1, BLOCK_ELEMENTS // len(self)))  # type: ignore[no-untyped-call]
        return torch.cat([(part @ self.coordinates.T - self.half_squares).topk(n, dim=1).indices for part in blocks])

    def __call__(self, X: Tensor) -> Tensor:
        """Latents [M, n, Q] of the rows nearest to each of X [M, D]."""
        return self.Z[self.nearest(X)]

    @property
    def graph(self) -> Any:
        """The graph of the coordinates by pynndescent, built when it is first needed."""
        if self._graph is None:
            self._graph = _pynndescent().NNDescent(self.coordinates.numpy(force=True), random_state=0)
        return self._graph

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_graph": None}  # compiled code cannot be pickled


def build(rows: ArrayRows, Z: NDArray[Any], seed: int) -> Neighbours:
    """Index rows [N, D] whose latents are Z [N, Q]; they are read twice, one block at a time."""
    if len(rows) > EXACT_ROWS:
        _pynndescent()  # fail before the work, not after it
    draw = torch.Generator().manual_seed(seed)
    some = rows.gather(torch.randperm(len(rows), generator=draw)[:PCA_ROWS].sort().values).float()
    mean = some.mean(0)
    to_axes = principal_axes(some - mean, MAX_COORDINATES)[1].T.contiguous()  # [P, D]
    coordinates = torch.cat([(block.float() - mean) @ to_axes.T for block in rows.blocks(4096)])
    return Neighbours(mean, to_axes, coordinates, torch.as_tensor(Z, device=rows.device))


def _pynndescent() -> Any:
    try:
        import pynndescent
    except ImportError as error:
        raise InputError(
            f"An index of more than {EXACT_ROWS} rows needs pynndescent, which is not installed. Run "
            "pip install pynndescent, or index fewer rows."
        ) from error
    return pynndescent


# ---- the file next to a model ----


def companion(model: str | Path) -> Path:
    """The path of a model's index: model.safetensors → model.neighbours.safetensors."""
    model = Path(model)
    return model.with_name(f"{model.name.removesuffix('.safetensors')}.neighbours.safetensors")


def mark(embedding: NDArray[Any]) -> str:
    """A digest of the training rows' latents, by which an index recognises its model: every fit changes it."""
    return hashlib.sha256(np.ascontiguousarray(embedding).tobytes()).hexdigest()


def write(model: str | Path, index: Neighbours | None, embedding: NDArray[Any]) -> None:
    """Write the index next to the model file, or remove the one that an earlier model left there."""
    path = companion(model)
    if index is None:
        if path.exists() and storage.read(path)[0].get("class") == "Neighbours":  # and not a model of that name
            path.unlink()
        return
    tensors = {"mean": index.mean, "axes": index.axes, "coordinates": index.coordinates, "Z": index.Z}
    storage.write(path, {"class": "Neighbours", "model": mark(embedding)}, tensors)


def read(model: str | Path, embedding: NDArray[Any], device: torch.device) -> Neighbours | None:
    """The index next to a model file, or None if there is none. Raises InputError if it belongs to another model."""
    path = companion(model)
    if not path.exists():
        return None
    header, tensors = storage.read(path)
    if header.get("class") != "Neighbours" or header.get("model") != mark(embedding):
        raise InputError(
            f"{path} is the index of another model. Remove it, or put back the file that was saved with this model."
        )
    return Neighbours(*(tensors[name].to(device) for name in ("mean", "axes", "coordinates", "Z")))
