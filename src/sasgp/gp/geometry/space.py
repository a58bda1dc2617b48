"""A latent space with the metric of its decoder: what `metric`, `graph` and `paths` make of it, in one place."""

from functools import cached_property

from torch import Tensor

from sasgp.gp.geometry.graph import Graph
from sasgp.gp.geometry.metric import Geometry
from sasgp.gp.geometry.paths import geodesics

__all__ = ["LatentSpace"]


class LatentSpace(Geometry):
    """The metric of a decoder, and shortest paths in it.

    Parameters
    ----------
    posterior : Posterior
        The decoder.
    """

    @cached_property
    def graph(self) -> Graph:
        """The graph that shortest paths start from, made when it is first needed."""
        return Graph(self)

    def geodesics(self, Z0: Tensor, Z1: Tensor, n: int) -> Tensor:
        """Shortest paths [R, n, Q] from each of Z0 [R, Q] to its counterpart in Z1 [R, Q]."""
        return geodesics(self, self.graph, Z0, Z1, n)

    def distances(self, Z0: Tensor, Z1: Tensor) -> Tensor:
        """Distances [M0, M1] over the graph, of all of Z0 [M0, Q] from all of Z1 [M1, Q]."""
        return self.graph.distances(Z0.double(), Z1.double())
