"""Principal components as a decoder: the floor that every table should have."""

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn import decomposition

__all__ = ["PCA"]

Array = NDArray[Any]


class PCA(decomposition.PCA):
    """scikit-learn's, with the methods of a decoder: a prediction varies as training rows do around theirs."""

    def __init__(self, n_components: int = 2, *, random_state: int | None = None) -> None:
        super().__init__(n_components, random_state=random_state)

    def fit(self, X: Array, y: Any = None) -> Self:
        """Find the components, and what they leave."""
        super().fit(X)
        self.embedding_ = self.transform(X)
        self.std_ = float(np.sqrt(np.mean(np.square(X - self.inverse_transform(self.embedding_)))))
        self.history_: list[dict[str, float]] = []
        return self

    def predict(self, Z: Array, return_std: bool = False) -> Any:
        """Decode; the standard deviation is the same everywhere."""
        mean = self.inverse_transform(Z)
        return (mean, np.full_like(mean, self.std_)) if return_std else mean
