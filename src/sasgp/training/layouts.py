"""Layouts: positions of rows that keep neighbours together, as initial latents.

A layout is made by name, repeatably for a seed, or by any object with scikit-learn's `fit_transform`. For large data,
only a random subset of the rows is used, and the encoder generalises from it. "umap" and "tsne" need packages of the
extra `layouts`, which are imported only when they are used.
"""

import copy
import importlib.util
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone

from sasgp.errors import InputError

__all__ = ["NAMES", "check_installed", "fitted", "lay_out", "max_rows", "threads_kept"]

NAMES = ("spectral", "tsne", "umap")
PACKAGES = {"tsne": ("openTSNE", "openTSNE"), "umap": ("umap", "umap-learn")}  # module, and its name for pip
MAX_ROWS = 60_000  # takes minutes; the encoder hardly learns more from more rows
SPECTRAL_ROWS = 5000  # a dense matrix: 200 MB, a few seconds
MAX_VALUES = 200_000_000  # in a subset: 800 MB in float32

NEIGHBOURS = 15  # UMAP's default; also used for the scales of the spectral layout
COUPLING = 1e-6  # between any two rows, so that a disconnected graph has one layout

Array = NDArray[np.floating[Any]]


def max_rows(init: object, n_features: int) -> int:
    """The largest number of rows in a layout."""
    return min(SPECTRAL_ROWS if init == "spectral" else MAX_ROWS, max(1000, MAX_VALUES // n_features))


def check_installed(name: str) -> None:
    """Raise InputError if a layout needs a package that is not installed."""
    module, package = PACKAGES.get(name, ("sasgp", "sasgp"))
    if importlib.util.find_spec(module) is None:
        raise InputError(
            f"init={name!r} needs the package {package}, which is not installed. Run pip install {package}, or choose "
            "init='spectral' or 'pca'.",
            argument="init",
        )


def lay_out(init: Any, X: Array, n_components: int, seed: int) -> Array:
    """Positions [N, Q] of rows X [N, D].

    Parameters
    ----------
    init : str or object
        "spectral", "tsne", "umap", or an object with `fit_transform`. The object is copied; one with a `random_state`
        that is None gets the seed.
    X : ndarray [N, D]
    n_components : int
        Q.
    seed : int
        NumPy's global random state is restored afterwards, whatever a package does with it.
    """
    X = X - X.mean(0)  # distances stay the same, and float32 keeps more of their digits
    named = {"spectral": _spectral, "tsne": _tsne, "umap": lambda *how: _umap(*how).embedding_}
    if isinstance(init, str) and (len(X) <= 2 * NEIGHBOURS or not X.any()):
        init = "spectral"  # the others fail if all rows are neighbours of all
    with _global_numpy_state_restored(seed), threads_kept():
        Z = named[init](X, n_components, seed) if isinstance(init, str) else _own(init, X, seed)
    Z = np.asarray(Z, np.float64)
    if Z.shape != (len(X), n_components) or not np.isfinite(Z).all():
        got = f"shape {Z.shape}" if Z.shape != (len(X), n_components) else "values that are not finite"
        raise InputError(
            f"The layout of init must have n_components={n_components} finite numbers for each of the {len(X)} rows. "
            f"{init if isinstance(init, str) else type(init).__name__} returned {got}.",
            argument="init",
        )
    return Z


@contextmanager
def threads_kept() -> Iterator[None]:
    """Restore torch's number of threads: numba, which UMAP uses, gives OpenMP all cores."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fitted(name: str, X: Array, n_components: int, seed: int) -> Any:
    """A "tsne" or "umap" object fitted to centred rows X [N, D]; its `transform` places new rows."""
    check_installed(name)
    with _global_numpy_state_restored(seed):
        return {"tsne": _tsne, "umap": _umap}[name](X, n_components, seed)


def _own(layout: Any, X: Array, seed: int) -> Any:
    layout = clone(layout) if hasattr(layout, "get_params") else copy.deepcopy(layout)
    if hasattr(layout, "get_params") and layout.get_params().get("random_state", seed) is None:
        layout.set_params(random_state=seed)
    return layout.fit_transform(X)


def _spectral(X: Array, n_components: int, seed: int) -> Array:
    """Laplacian eigenmaps of a graph in which each row has its own scale (Zelnik-Manor & Perona, 2004).

    The weight between two rows is w_ij = exp(−‖x_i − x_j‖² / s_i s_j), with s_i the distance to the 15th neighbour.
    """
    from sklearn.manifold import spectral_embedding
    from sklearn.metrics import euclidean_distances

    N, Q = len(X), n_components
    squares = euclidean_distances(X.astype(np.float64), squared=True)  # [N, N]
    s = np.sqrt(np.partition(squares, min(NEIGHBOURS, N - 1), axis=1)[:, min(NEIGHBOURS, N - 1)])
    s = np.maximum(s, 1e-6 * s.max() or 1.0)  # a row with 15 copies of itself has no scale
    W = np.exp(-squares / np.outer(s, s)) + COUPLING
    # For few rows, scikit-learn computes all eigenvectors if it is told lobpcg
    solver = "lobpcg" if N <= 5 * (Q + 1) else "arpack"
    Z = spectral_embedding(W, n_components=Q, eigen_solver=solver, random_state=seed)
    Z /= np.maximum(Z.std(0), np.finfo(float).tiny)  # the length of an eigenvector means nothing
    return np.pad(Z, ((0, 0), (0, Q - Z.shape[1])))  # Q rows or fewer span fewer dimensions


def _tsne(X: Array, n_components: int, seed: int) -> Any:
    from openTSNE import TSNE

    if n_components > 2:
        raise InputError(
            f"init='tsne' makes layouts of 1 or 2 dimensions, but n_components is {n_components}. Use init='umap' or "
            "'spectral'.",
            argument="init",
        )
    return TSNE(
        n_components=n_components,
        perplexity=min(30.0, (len(X) - 1) / 3),  # openTSNE's default, if there are enough rows
        random_state=seed,
    ).fit(X)


def _umap(X: Array, n_components: int, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # about missing tensorflow
        from umap import UMAP

    return UMAP(
        n_components=n_components,
        n_neighbors=NEIGHBOURS,
        random_state=seed,
        n_jobs=1,  # UMAP needs this for a seed to have an effect, and warns without it
    ).fit(X.astype(np.float32))


@contextmanager
def _global_numpy_state_restored(seed: int) -> Iterator[None]:
    """Seed and restore NumPy's global state, because some packages draw from it although they were given a seed."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
