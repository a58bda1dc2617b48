"""The geometry of a decoder's latent space: `metric` measures, `graph` and `paths` find shortest paths."""

from sasgp.gp.geometry.graph import Graph
from sasgp.gp.geometry.metric import Geometry
from sasgp.gp.geometry.paths import geodesics

__all__ = ["Geometry", "Graph", "geodesics"]
