"""Principal components as a decoder: the floor that every table should have."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sasgp.gp.linalg import principal_axes

__all__ = ["PCA", "OfNumbers"]

Array = NDArray[Any]


class OfNumbers:
    """What evaluation asks of a model besides `predict`, for models whose rows are numbers of one unit."""

    columns_, noise_kind_ = None, "shared"
    n_features_in_: int

    def predict(self, Z: Array, return_std: bool = False) -> Any:
        """Decode."""
        raise NotImplementedError

    @property
    def n_scores_(self) -> int:
        return self.n_features_in_

    def predict_scores(self, Z: Array, return_std: bool = False) -> Any:
        """What `predict` returns, as for all models of numbers."""
        return self.predict(Z, return_std)


class PCA(OfNumbers, BaseEstimator):
    """PCA with the methods of a decoder: a prediction varies as training rows do around theirs.

    Parameters
    ----------
    n_components : int
    random_state : int, optional
        Nothing is random here; every model of the tables takes one.
    """

    def __init__(self, n_components: int = 2, *, random_state: int | None = None) -> None:
        self.n_components = n_components
        self.random_state = random_state

    def fit(self, X: Array, y: Any = None) -> Self:
        """Find the components, and what they leave."""
        if self.n_components < 1:
            raise ValueError(f"n_components must be at least 1. Got {self.n_components}.")
        self.mean_, self.n_features_in_ = X.mean(0), X.shape[1]
        self.axes_ = principal_axes(torch.as_tensor(X - self.mean_), self.n_components)[1].numpy()  # [D, Q]
        self.embedding_ = self.transform(X)
        self.std_ = float(np.sqrt(np.mean(np.square(X - self.predict(self.embedding_)))))
        self.history_: list[dict[str, float]] = []
        return self

    def transform(self, X: Array) -> Array:
        """Coordinates of rows along the components."""
        return (X - self.mean_) @ self.axes_

    def predict(self, Z: Array, return_std: bool = False) -> Any:
        """Decode; the standard deviation is the same everywhere."""
        mean = Z @ self.axes_.T + self.mean_
        return (mean, np.full_like(mean, self.std_)) if return_std else mean
