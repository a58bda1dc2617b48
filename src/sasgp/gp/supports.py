"""Support sets: which training rows the decoder is conditioned on, and what several such sets say together.

Both were chosen by the NLPD of test rows, on digits and MNIST: experiments/supports.py, whose numbers are in the guide.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

__all__ = ["CANDIDATES", "combine", "kmeans_plus_plus"]

CANDIDATES = 20  # rows looked at for each one chosen: more cost a pass over the data and gain nothing
LEAST_VARIANCE = 1e-6  # of the noise: what is left of a variance after rounding


def kmeans_plus_plus(Z: Tensor, size: int, draw: torch.Generator) -> Tensor:
    """Indices [size] of rows of Z [N, Q] that are spread out (Arthur & Vassilvitskii, 2007).

    The first is any row; each of the others is drawn with a probability proportional to the square of its distance to
    the nearest of those before.
    """
    Z = Z.detach().double().cpu()
    chosen = [int(torch.randint(len(Z), (), generator=draw))]
    squared = (Z - Z[chosen[0]]).square().sum(1)
    while len(chosen) < size and squared.any():
        chosen.append(int(torch.multinomial(squared, 1, generator=draw)))
        squared = torch.minimum(squared, (Z - Z[chosen[-1]]).square().sum(1))
    # Where fewer places are distinct than asked for, the rest are repetitions: any will do
    rest = torch.ones(len(Z), dtype=torch.bool)
    rest[chosen] = False
    return torch.cat([torch.tensor(chosen), rest.nonzero()[:, 0]])[:size]


def combine(predictions: Sequence[tuple[Tensor, Tensor]], noise: Tensor) -> tuple[Tensor, Tensor]:
    """One mean and one variance from those of k support sets, each of an observation; the noise in them is [1] or [D].

    The normalised geometric mean of the k Gaussians of the noise-free function, to which the noise is added. Its
    variance is never more than the largest of the k nor less than the smallest: k sets that all say the same are not
    taken for k times the evidence, because they share the encoder and the hyperparameters, and those err together.
    """
    if len(predictions) == 1:
        return predictions[0]
    # ∏ N(f | m_i, v_i)^(1/k):     1/v = 1/k Σ 1/v_i          m = v/k Σ m_i/v_i
    m = torch.stack([mean for mean, _ in predictions])  # [k, M, D]
    v = torch.stack([var for _, var in predictions]) - noise  # [k, M, 1] or [k, M, D]
    precision = 1 / torch.maximum(v, LEAST_VARIANCE * noise)
    mean = (precision * m).sum(0) / precision.sum(0)
    return mean, (1 / precision.mean(0) + noise).to(mean.dtype)
