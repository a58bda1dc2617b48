"""What evaluation, plots and the explorer need from an estimator. All estimators of sasgp provide it."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Decoder"]


class Decoder(Protocol):
    """A latent space that can be decoded."""

    embedding_: NDArray[np.floating[Any]]

    @property
    def n_components_(self) -> int: ...

    @property
    def n_features_in_(self) -> int: ...

    @property
    def n_scores_(self) -> int: ...

    @property
    def columns_(self) -> Any: ...

    @property
    def noise_kind_(self) -> str: ...

    def transform(self, X: Any) -> Any: ...

    def predict(self, Z: Any, return_std: bool = False) -> Any: ...

    def predict_scores(self, Z: Any, return_std: bool = False) -> Any: ...
