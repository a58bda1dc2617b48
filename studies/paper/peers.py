"""Other ways to two dimensions, with the methods of a decoder as far as they have one, for the tables."""

from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from sasgp.models.encoders import draw_weights, perceptron
from sasgp.training.layouts import fitted, threads_kept
from sasgp.training.loop import generator, one_cycle
from studies.paper.pca import OfNumbers

__all__ = ["TSNE", "UMAP", "Autoencoder"]

Array = NDArray[Any]


class _Layout(BaseEstimator):
    """A layout that can place new rows, and decodes nothing."""

    name: str

    def __init__(self, *, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: Array, y: Any = None) -> Self:
        """Lay rows out, as `init` by that name does."""
        self.mean_ = X.mean(0)
        with threads_kept():
            self.layout_ = fitted(self.name, X - self.mean_, 2, self.random_state)
        self.embedding_ = np.asarray(getattr(self.layout_, "embedding_", self.layout_))  # openTSNE's is an array
        self.history_: list[dict[str, float]] = []
        return self

    def transform(self, X: Array) -> Array:
        """Places of new rows."""
        with threads_kept():
            return np.asarray(self.layout_.transform(X - self.mean_))


class UMAP(_Layout):
    """umap-learn's."""

    name = "umap"


class TSNE(_Layout):
    """openTSNE's."""

    name = "tsne"


class Autoencoder(OfNumbers, BaseEstimator):
    """Two perceptrons with squared error, D-512-256-2 and 2-400-D: as wide as the VAE's.

    Parameters
    ----------
    max_epochs : int
    batch_size : int
    learning_rate : float
        Peak of the one-cycle schedule.
    random_state : int
    """

    def __init__(
        self, max_epochs: int = 30, batch_size: int = 1024, learning_rate: float = 2e-3, random_state: int = 0
    ) -> None:
        self.max_epochs = max_epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: Array, y: Any = None) -> Self:
        """Train both."""
        rows, D = torch.as_tensor(X, dtype=torch.float32), X.shape[1]
        self.n_features_in_ = D
        self.mean_, draw = rows.mean(0), generator(self.random_state, "autoencoder")
        self.encoder_, self.decoder_ = (perceptron(widths) for widths in ((D, 512, 256, 2), (2, 400, D)))
        for network in (self.encoder_, self.decoder_):
            draw_weights(network, draw)
        both = [*self.encoder_.parameters(), *self.decoder_.parameters()]
        optimiser = torch.optim.Adam(both, lr=self.learning_rate, fused=True)
        steps, step = self.max_epochs * -(-len(rows) // self.batch_size), 0
        for _ in range(self.max_epochs):
            order = torch.randperm(len(rows), generator=draw)
            for batch in (order[i : i + self.batch_size] for i in range(0, len(rows), self.batch_size)):
                optimiser.param_groups[0]["lr"] = self.learning_rate * one_cycle(step / steps)
                x = rows[batch] - self.mean_
                loss = (self.decoder_(self.encoder_(x)) - x).square().mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                step += 1
        self.embedding_ = self.transform(X)
        self.std_ = float(np.sqrt(np.mean(np.square(X - self.predict(self.embedding_)))))
        self.history_: list[dict[str, float]] = []
        return self

    @torch.no_grad()
    def transform(self, X: Array) -> Array:
        """Encode."""
        return self.encoder_(torch.as_tensor(X, dtype=torch.float32) - self.mean_).numpy()

    @torch.no_grad()
    def predict(self, Z: Array, return_std: bool = False) -> Any:
        """Decode; the standard deviation is the same everywhere."""
        mean = (self.decoder_(torch.as_tensor(Z, dtype=torch.float32)) + self.mean_).numpy()
        return (mean, np.full_like(mean, self.std_)) if return_std else mean
