"""From settings to a model of the right structure, whose values are not set yet.

Fitting, resuming and loading all start here. Then `sasgp.training.initialise` sets the values for a fit, and a
checkpoint or a model file sets them otherwise.
"""

import copy
import math

import torch
from torch import nn

from sasgp.data.images import planes
from sasgp.models.base import LatentModel, ModelSettings
from sasgp.models.encoders import Custom, Encoder, Network, Picture, Table

__all__ = ["auto_noise", "build", "noise_share"]

NOISE_ROWS = (10_000, 50_000)  # the most rows with all of the encoder's noise, and the fewest with none


def build(settings: ModelSettings, D: int, Q: int) -> LatentModel:
    """The model for D features and Q latent dimensions."""
    encoder_noise = settings.encoder_noise * noise_share(D, Q)
    model = settings.kind.build(build_encoder(settings, D, Q), encoder_noise, settings, D, Q)
    model.missing = settings.missing
    return model.to(settings.device, settings.dtype)


def build_encoder(settings: ModelSettings, D: int, Q: int) -> Encoder:
    """The encoder that the settings ask for; the user's own module is copied."""
    mixed = settings.precision == "mixed"
    if isinstance(settings.encoder, nn.Module):
        return Custom(copy.deepcopy(settings.encoder), Q, variance=settings.bayesian, mixed=mixed)
    if settings.encoder == "table":
        return Table(torch.zeros(settings.n_rows, Q), variance=settings.bayesian)
    picture = None
    if settings.encoder == "conv":
        assert settings.image_shape is not None
        sizes, last = planes(settings.image_shape)
        picture = Picture(*sizes, last=last)
    return Network(
        D,
        Q,
        variance=settings.bayesian,
        by_feature=settings.by_feature,
        picture=picture,
        masks=settings.missing > 0,
        mixed=mixed,
    )


def auto_noise(n_rows: int, *, held: bool) -> float:
    """The encoder's noise for `encoder_noise="auto"`: 1 for few rows, 0 for many, linear in log N in between.

    A network memorises few rows, and noise prevents it. With many rows, noise costs more than it brings, except if rows
    are `held` near a layout: then it is always 1. docs/measurements.md has the table that this was chosen by.
    """
    if held:
        return 1.0
    low, high = NOISE_ROWS
    # s = log(high / N) / log(high / low), within [0, 1]
    return min(1.0, max(0.0, math.log(high / n_rows) / math.log(high / low)))


def noise_share(n_features: int, n_components: int) -> float:
    """The factor s on the encoder's noise, below 1 if there are few features.

    The part of the noise along the Q latent directions reaches z, and comes back as an error of s²σ²·Q/D per feature.
    An error up to σ²/20 does no harm, so s² is reduced if there are fewer than 20 features per latent dimension.
    """
    return min(1.0, math.sqrt(n_features / (20 * n_components)))
