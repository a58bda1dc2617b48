"""Data as rows of numbers, from data sets by name, files and arrays.

    from sasgp.data import load

    load("digits")                                      # digits, mnist, fashion-mnist, cifar10, oil-flow
    load("measurements.csv", labels="species")          # text, Parquet, Excel, …: `sasgp.data.tables`
    load("images.npy", labels="classes.txt")            # memory-mapped; [N, 28, 28] becomes [N, 784]
    load("cells.h5ad", labels="cell_type")              # single cells: `sasgp.data.h5ad`
    load("photographs")                                 # a folder of images: `sasgp.data.folders`

Nothing is ever unpickled: loading a file runs no code.
"""

from sasgp.data.named import NAMES, Dataset
from sasgp.data.readers import load

__all__ = ["NAMES", "Dataset", "load"]
