"""Support sets: which training rows the decoder is conditioned on, and how predictions from several sets are combined.

Both were chosen by the NLPD of test rows of digits and MNIST. `python -m studies questions supports` measures it, and
docs/guide.md has the numbers.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["CANDIDATES", "combine", "kmeans_plus_plus"]

CANDIDATES = 20  # rows considered per row chosen: more would take a pass over the data and gain nothing


def kmeans_plus_plus(Z: Tensor, size: int, draw: torch.Generator) -> Tensor:
    """Indices [size] of rows of Z [N, Q] that are spread out (Arthur & Vassilvitskii, 2007).

    The first row is drawn uniformly. Each further row is drawn with a probability proportional to its squared distance
    from the nearest row chosen before.
    """
    Z = Z.detach().double().cpu()
    chosen = [int(torch.randint(len(Z), (), generator=draw))]
    squared = (Z - Z[chosen[0]]).square().sum(1)
    while len(chosen) < size and squared.any():
        chosen.append(int(torch.multinomial(squared, 1, generator=draw)))
        squared = torch.minimum(squared, (Z - Z[chosen[-1]]).square().sum(1))
    # If there are fewer distinct positions than asked for, any rows fill up the rest
    rest = torch.ones(len(Z), dtype=torch.bool)
    rest[chosen] = False
    return torch.cat([torch.tensor(chosen), rest.nonzero()[:, 0]])[:size]


def combine(predictions: Sequence[tuple[Tensor, Tensor]], noise: Tensor) -> tuple[Tensor, Tensor]:
    """Combine the means and variances of an observation from k support sets. The noise is [1] or [D].

    The result is the normalised geometric mean of the k Gaussians of the noise-free function, plus the noise. Its
    variance lies between the smallest and the largest of the k. k sets that agree do not count as k times the evidence,
    because they share the encoder and the hyperparameters, whose errors are common to all.
    """
    if len(predictions) == 1:
        return predictions[0]
    # ∏ N(f | m_i, v_i)^(1/k):     1/v = 1/k Σ 1/v_i          m = v/k Σ m_i/v_i
    m = torch.stack([mean for mean, _ in predictions])  # [k, M, D]
    v = torch.stack([var for _, var in predictions]) - noise  # [k, M, 1] or [k, M, D]
    precision = 1 / torch.maximum(v, 1e-6 * noise)  # smaller variances are rounding errors
    mean = (precision * m).sum(0) / precision.sum(0)
    return mean, (1 / precision.mean(0) + noise).to(mean.dtype)
