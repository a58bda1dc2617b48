"""Distances as the data see them: the methods of GP decoders that lead to `sasgp.gp.geometry`."""

from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from sasgp.errors import InputError
from sasgp.estimators.base import LatentEstimator
from sasgp.estimators.inference import Array
from sasgp.estimators.validation import check_count, check_latents
from sasgp.gp.geometry import LatentSpace
from sasgp.gp.posterior import Posterior

__all__ = ["GeometryMethods"]

# What was computed for a decoder is kept as long as the decoder is, but in no file
_SPACES: WeakKeyDictionary[Posterior, LatentSpace] = WeakKeyDictionary()


class GeometryMethods(LatentEstimator):
    """`metric`, `volume`, `length`, `geodesic` and `distance`."""

    def metric(self, Z: Any) -> Array:
        """The expected metric G(z) = E[JᵀJ] at latents Z [M, Q], where J = ∂f/∂z and f is the decoder's function.

        A small step dz changes what is decoded by E‖f(z + dz) − f(z)‖² = dzᵀ G dz, in squared units of the data. Where
        the decoder knows little, G is large. The noise of observations does not enter. For a model of a table, the
        units are those of the scores that its columns are mapped to.

        Parameters
        ----------
        Z : array-like [M, Q]
            Latents.

        Returns
        -------
        ndarray [M, Q, Q]
        """
        space = self._space()
        return self._as_array(space.metric(check_latents(self, Z)))

    def volume(self, Z: Any) -> Array:
        """The volume element √det G [M] at latents Z [M, Q]: how much a small region there is stretched by the decoder.

        Parameters
        ----------
        Z : array-like [M, Q]
            Latents.

        Returns
        -------
        ndarray [M]
        """
        space = self._space()
        return self._as_array(space.volume(check_latents(self, Z)))

    def length(self, path: Any) -> Any:
        """The length of a path in units of the data: ∫ √(żᵀ G ż) dt.

        Parameters
        ----------
        path : array-like [n, Q] or [R, n, Q]
            At least two points, joined by straight lines; or R paths with the same number of points.

        Returns
        -------
        float or ndarray [R]
        """
        space, points = self._space(), np.asarray(path)
        if points.ndim not in (2, 3) or points.shape[-2] < 2:
            raise InputError(
                f"path must have shape [n, {self.n_components_}] with at least two points, or [R, n, "
                f"{self.n_components_}] for several paths. Got {points.shape}.",
                argument="path",
            )
        flat = check_latents(self, points.reshape(-1, points.shape[-1]))
        found = self._as_array(space.length(flat.double().reshape(-1, points.shape[-2], flat.shape[1])))
        return found if points.ndim == 3 else float(found[0])

    def geodesic(self, z0: Any, z1: Any, n: int = 50) -> Array:
        """The shortest path from z0 to z1, as the data see it. It avoids regions of which the decoder knows little.

        It starts from the shortest path over a graph, and is then moved until its energy is least. That is a local
        minimum, not longer than the straight line if n is at least 20. Straight lines between fewer points may leave
        the path that the points lie on. The same call gives the same path, and the path from z1 to z0 is its reverse.

        Parameters
        ----------
        z0, z1 : array-like [Q] or [R, Q]
            The ends of one path, or of R paths. One may be a single point from which all paths start.
        n : int
            Points of a path, with equal lengths between them.

        Returns
        -------
        ndarray [n, Q] or [R, n, Q]
        """
        space = self._space()
        check_count("n", n, 2)
        single = np.ndim(z0) == 1 and np.ndim(z1) == 1
        Z0, Z1 = (check_latents(self, np.atleast_2d(np.asarray(z))) for z in (z0, z1))
        R = max(len(Z0), len(Z1))
        if {len(Z0), len(Z1)} - {1, R}:
            raise InputError(
                f"z0 and z1 must hold as many points, or one of them a single point. Got {len(Z0)} and {len(Z1)}.",
                argument="z1",
            )
        paths = self._as_array(space.geodesics(Z0.expand(R, -1), Z1.expand(R, -1), int(n)))
        return paths[0] if single else paths

    def distance(self, Z0: Any, Z1: Any = None) -> Array:
        """Distances [M0, M1] between latents, as the data see them: the lengths of shortest paths over a graph.

        They are some per cent longer than geodesics, and take much less time. In two dimensions the work grows with the
        smaller of M0 and M1; in more, straight lines between points are measured as well, and it grows with M0 M1. For
        two points, `length(geodesic(z0, z1))` is more accurate.

        Parameters
        ----------
        Z0 : array-like [M0, Q]
            Latents.
        Z1 : array-like [M1, Q], optional
            Other latents. None: Z0, which gives the distances of all points from each other.

        Returns
        -------
        ndarray [M0, M1]
        """
        space = self._space()
        first = check_latents(self, Z0)
        return self._as_array(space.distances(first, first if Z1 is None else check_latents(self, Z1)))

    def _space(self) -> LatentSpace:
        check_is_fitted(self)
        posterior: Posterior = self.posterior_
        if posterior not in _SPACES:
            _SPACES[posterior] = LatentSpace(posterior)
        return _SPACES[posterior]

    def _as_array(self, found: Tensor) -> Array:
        array: Array = found.to(self._dtype).numpy(force=True)
        return array
