"""Models that a question asks about, loaded where the user has them."""

from pathlib import Path

from sasgp import SASGP
from sasgp.data import load
from studies.records import EARLIER

__all__ = ["trained"]


def trained(data: str, runs: str | None, *, quick: bool) -> SASGP:
    """The default model of a data set: RUNS/data/model.safetensors where it exists, as `sasgp fit` leaves it."""
    path = None if runs is None else Path(runs) / data / "model.safetensors"
    if path is not None and path.is_file():
        return SASGP.load(path)
    return SASGP(random_state=0, max_epochs=1 if quick else None, verbose=True, **EARLIER).fit(load(data).X)
