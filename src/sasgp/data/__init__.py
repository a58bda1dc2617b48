"""Data as rows of numbers, from data sets by name, files and arrays.

One function reads them all::

    from sasgp.data import load

    load("digits")                              # or mnist, fashion-mnist, cifar10, oil-flow
    load("measurements.csv", labels="species")  # a table: text, Parquet, Excel, …
    load("images.npy", labels="classes.txt")    # memory-mapped; [N, 28, 28] becomes [N, 784]
    load("cells.h5ad", labels="cell_type")      # single cells
    load("photographs")                         # a folder of images

Nothing is ever unpickled: loading a file runs no code.
"""

# The names below are loaded when they are first used, because the command line needs `sasgp.data.files` before it needs
# any numbers. `sasgp.data.tables`, `sasgp.data.h5ad` and `sasgp.data.folders` say more about each kind of file.

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sasgp.data.named import NAMES, Dataset
    from sasgp.data.readers import load

__all__ = ["NAMES", "Dataset", "load"]

_MODULES = {"NAMES": "named", "Dataset": "named", "load": "readers"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sasgp.data' has no attribute {name!r}")
    return getattr(import_module(f"sasgp.data.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
