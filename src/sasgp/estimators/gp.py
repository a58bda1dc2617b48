"""The base class of estimators whose decoder is a Gaussian process: kernel, noise, relevance of dimensions."""

from typing import Any

import numpy as np
from gpytorch.kernels import Kernel
from numpy.typing import NDArray

from sasgp.estimators.geometry import GeometryMethods
from sasgp.estimators.nearest_rows import NearestRowsMethods
from sasgp.gp import kernels

__all__ = ["GPEstimator"]


class GPEstimator(GeometryMethods, NearestRowsMethods):
    """A latent space with a Gaussian process as its decoder."""

    @property
    def kernel_(self) -> Kernel:
        """The trained kernel."""
        return self.model_.kernel

    @property
    def noise_(self) -> float | NDArray[np.floating[Any]]:
        """Trained noise variance, one per feature if `noise_kind_` is "feature"; with "local", the noise far from data.

        With noise="local", `predict` returns the local one.
        """
        noise = self.model_.feature_noise.numpy(force=True)
        return noise if self.noise_kind_ == "feature" else float(noise[0])

    @property
    def relevance_(self) -> NDArray[np.floating[Any]]:
        """How much the decoder uses each latent dimension, [Q]: the spread of the latents, in lengthscales."""
        return np.array(kernels.relevance(self.kernel_, self.embedding_))
