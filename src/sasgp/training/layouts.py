"""Layouts: positions for rows that keep neighbours together, for the latents to start from.

Some are by name, which a seed makes repeatable; any object with scikit-learn's `fit_transform` makes one, too. Large
data are laid out by a random subset, which the encoder then generalises from. `umap` and `tsne` need packages of the
extra `layouts`, imported where they are used alone.
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
PACKAGES = {"tsne": ("openTSNE", "openTSNE"), "umap": ("umap", "umap-learn")}  # module, and what pip calls it
MAX_ROWS = 60_000  # all of MNIST: minutes. The encoder hardly learns more from more
SPECTRAL_ROWS = 5000  # a dense matrix of so many rows: 200 MB, and a few seconds
MAX_VALUES = 200_000_000  # of a subset, 800 MB in float32

NEIGHBOURS = 15  # UMAP's default; also the scale of a row's surroundings in the spectral layout
COUPLING = 1e-6  # between any two rows, so that a graph in pieces has one layout
PERPLEXITY = 30.0  # openTSNE's default

Array = NDArray[np.floating[Any]]


def max_rows(init: object, n_features: int) -> int:
    """Rows that are laid out at the most."""
    return min(SPECTRAL_ROWS if init == "spectral" else MAX_ROWS, max(1000, MAX_VALUES // n_features))


def check_installed(name: str) -> None:
    """Raise InputError where a layout needs a package that is not there."""
    module, package = PACKAGES.get(name, ("sasgp", "sasgp"))
    if importlib.util.find_spec(module) is None:
        raise InputError(
            f"init={name!r} needs the package {package}. Got an installation without it: pip install {package}, "
            "or choose init='spectral' or 'pca'."
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
        numpy's global random state is as before in the end, whatever a package does with it.
    """
    X = X - X.mean(0)  # distances are the same, and float32 keeps more of their digits
    named = {"spectral": _spectral, "tsne": _tsne, "umap": lambda *how: _umap(*how).embedding_}
    if isinstance(init, str) and (len(X) <= 2 * NEIGHBOURS or not X.any()):
        init = "spectral"  # where all are neighbours of all, the others have nothing to go by, and fail
    with _global_numpy_state_restored(seed), threads_kept():
        Z = named[init](X, n_components, seed) if isinstance(init, str) else _own(init, X, seed)
    Z = np.asarray(Z, np.float64)
    if Z.shape != (len(X), n_components) or not np.isfinite(Z).all():
        got = f"shape {Z.shape}" if Z.shape != (len(X), n_components) else "values that are not finite"
        raise InputError(
            f"The layout of init must hold finite numbers, a row of n_components={n_components} for each of the "
            f"{len(X)} rows that it was given. Got {got} from {init if isinstance(init, str) else type(init).__name__}."
        )
    return Z


@contextmanager
def threads_kept() -> Iterator[None]:
    """Leave torch the threads that it has: numba, which UMAP is made with, gives all programs of OpenMP all cores."""
    threads = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def fitted(name: str, X: Array, n_components: int, seed: int) -> Any:
    """What "tsne" or "umap" leaves of centred rows X [N, D]: it has a `transform`, which places new ones."""
    check_installed(name)
    with _global_numpy_state_restored(seed):
        return {"tsne": _tsne, "umap": _umap}[name](X, n_components, seed)


def _own(layout: Any, X: Array, seed: int) -> Any:
    layout = clone(layout) if hasattr(layout, "get_params") else copy.deepcopy(layout)
    if hasattr(layout, "get_params") and layout.get_params().get("random_state", seed) is None:
        layout.set_params(random_state=seed)
    return layout.fit_transform(X)


def _spectral(X: Array, n_components: int, seed: int) -> Array:
    """Laplacian eigenmaps of a graph in which every row has its own scale (Zelnik-Manor & Perona, 2004).

    w_ij = exp(−‖x_i − x_j‖² / s_i s_j) with s_i the distance of the 15th neighbour; d_i = Σ_j w_ij. The layout is the
    solutions of w z = λ d z with the largest λ, but for the first, which is constant.
    """
    from scipy.sparse.linalg import eigsh
    from sklearn.metrics import euclidean_distances

    N, Q = len(X), n_components
    squares = euclidean_distances(X.astype(np.float64), squared=True)  # [N, N]
    s = np.sqrt(np.partition(squares, min(NEIGHBOURS, N - 1), axis=1)[:, min(NEIGHBOURS, N - 1)])
    s = np.maximum(s, 1e-6 * s.max() or 1.0)  # a row with as many copies has none
    W = np.exp(-squares / np.outer(s, s)) + COUPLING
    d = np.sqrt(W.sum(1))
    W /= np.outer(d, d)  # symmetric, with the same λ and v = √d z
    if N <= 10 * (Q + 1):
        values, V = np.linalg.eigh(W)
        V = V[:, ::-1][:, 1 : Q + 1]
    else:
        values, V = eigsh(W, Q + 1, which="LA", v0=np.random.default_rng(seed).normal(size=N))
        V = V[:, np.argsort(-values)[1:]]
    Z = V / d[:, None]
    Z /= np.maximum(Z.std(0), np.finfo(float).tiny)  # an eigenvector has no length ...
    Z *= np.where(Z[np.abs(Z).argmax(0), np.arange(Z.shape[1])] < 0, -1.0, 1.0)  # ... and no sign
    return np.pad(Z, ((0, 0), (0, Q - Z.shape[1])))  # of Q rows or fewer there are no more


def _tsne(X: Array, n_components: int, seed: int) -> Any:
    from openTSNE import TSNE

    if n_components > 2:
        raise InputError(
            f"init='tsne' makes layouts of 1 or 2 dimensions. Got n_components={n_components}; use init='umap' or "
            "'spectral'."
        )
    return TSNE(
        n_components=n_components,
        perplexity=min(PERPLEXITY, (len(X) - 1) / 3),
        random_state=seed,
    ).fit(X)


def _umap(X: Array, n_components: int, seed: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ImportWarning)  # that there is no tensorflow
        from umap import UMAP

    return UMAP(
        n_components=n_components,
        n_neighbors=NEIGHBOURS,
        random_state=seed,
        n_jobs=1,  # what a seed means for UMAP; said, lest it warns
    ).fit(X.astype(np.float32))


@contextmanager
def _global_numpy_state_restored(seed: int) -> Iterator[None]:
    """For packages that draw from numpy's global state although they were given a seed."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
