"""The geometry of a decoder's latent space: `metric` measures, `graph` and `paths` find the shortest way."""

from sasgp.gp.geometry.space import LatentSpace

__all__ = ["LatentSpace"]
