"""The settings of estimators: one declaration for the constructor, the command line, the help text and the saved file.

Nothing heavy is imported here, so that the command line can show its help at once.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

__all__ = [
    "InducingSettings",
    "NetworkSettings",
    "Settings",
    "SupervisedSettings",
    "TargetSettings",
    "documented",
]

FEW_STEPS = 300  # shorter runs learn faster: docs/measurements.md


@dataclass(eq=False, repr=False)
class Settings:
    """What a user may choose.

    Parameters
    ----------
    n_components
        Dimensions of the latent space, Q. "auto" trains with up to twelve, each with its own lengthscale, and keeps
        those that the decoder uses, the most relevant first. It needs Bayesian latents, and SASGP or GPLVM.
    latents
        "bayesian": a Gaussian posterior for each latent (Eq. 8). "point": one position each, under a N(0, I) prior.
    encoder
        "network": an amortised encoder D-512-256-Q. "conv": convolutions, for images; better if latents start from a
        layout of neighbours. "table": a free latent for each training row. In Python also any torch module that maps
        rows [B, D] to z [B, Q], or to (mean, variance).
    kernel
        "rbf" (the default), "matern12", "matern32" or "matern52", or with one lengthscale per dimension "rbf-ard",
        "matern32-ard" or "matern52-ard". Each has an amplitude. In Python also any gpytorch.kernels.Kernel, which
        starts from the values it has.
    noise
        "shared": one noise variance for all features. "feature": a learned scale for each feature, for features that
        differ in units or in how predictable they are. "auto": "shared" for images and for arrays whose features have
        one unit, otherwise "feature", as for standardised ones. "local": trained as "shared"; afterwards a second pass
        over all rows measures the noise of each feature at each place in the latent space. It needs SASGP or GPLVM.
    active_set_size
        Active points per batch, A; at most half of the batch if the data are few. None makes all rows active: the exact
        GP-LVM, whose cost grows with the cube of the number of rows.
    batch_size
        Rows per batch, B.
    support_size
        Positions in the latent space through which the trained decoder is conditioned on all rows; at most as many as
        there are rows. "auto": as many as the rows need, up to 1000, and every row if there are at most 500. None:
        every row, which is the exact Gaussian process.
    max_epochs
        Passes over the data. None: about 1000 steps, but at least 3 and at most 1000 passes.
    learning_rate
        Peak of the one-cycle schedule for the encoder. None: 2e-3 for a network and 2e-2 for a table. If latents
        start from a layout of neighbours and `layout_weight` is 0, None means 3e-4 and 2e-3, so that the layout is not
        lost. A network that starts from a projection and has fewer than 300 steps learns faster, at up to 4e-3.
    hyper_learning_rate
        Peak of the schedule for kernel and noise.
    init
        Layout that the latents start from. "pca" and "random" are projections. "spectral", "tsne" and "umap" keep
        neighbours together; the last two need the extra `layouts`. In Python also an array [N, Q], or any object with
        scikit-learn's fit_transform.
    dtype
        Precision of the arithmetic: "float32" or "float64". For arrays whose squares do not fit into float32 it is
        always float64.
    device
        "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
    random_state
        Seed: fits with the same seed are identical. None draws a new seed each time.
    verbose
        Show progress.
    encoder_noise
        Noise on the encoder's input during training, in standard deviations of the decoder's noise (less if there are
        few features). It keeps the encoder from memorising rows, so that new rows land where they belong. "auto": 1 for
        up to 10 000 rows, then less the more there are, and 0 from 50 000 on; always 1 with `layout_weight`.
    early_stopping
        Stop after this many epochs without improvement on held-out rows, and keep the best epoch. None: never.
    validation_fraction
        Share of the rows held out for early_stopping.
    layout_weight
        Strength of the pull towards the initial layout during training, in nats per value. 0 turns it off. 0.7 keeps
        the neighbourhoods that "umap" finds in large data, and helps new rows to land there. It needs an `init` that
        keeps neighbours together.
    image_shape
        Shape of a row as an image, for encoder="conv": (H, W), (C, H, W) or (H, W, C). None: squares of pixels are
        recognised.
    columns
        How the columns of a table are taken. "auto": the columns of a DataFrame are recognised, as numbers, counts,
        categories and so on, unless they are numbers of one unit. A mapping such as {"age": "count", "id": "drop"} says
        what some columns hold: real, skewed, count, binary, ordinal, category, date, id or drop. None: numbers as they
        are.
    precision
        Precision of the encoder's matrix products in training. "float32": as everything else. "mixed": bfloat16 with
        sums in float32, about twice as fast on processors and GPUs that have it. "auto": "mixed" for arrays of at
        least 64 features if the hardware has it, the encoder is "network" or "conv", and `dtype` is "float32".
    """

    n_components: int | Literal["auto"] = 2
    latents: Literal["bayesian", "point"] = "bayesian"
    encoder: Literal["network", "conv", "table"] | Any = "network"
    kernel: Literal["rbf", "rbf-ard", "matern12", "matern32", "matern52", "matern32-ard", "matern52-ard"] | Any = None
    noise: Literal["auto", "shared", "feature", "local"] = "auto"
    active_set_size: int | None = 400
    batch_size: int = 1024
    support_size: int | Literal["auto"] | None = "auto"
    max_epochs: int | None = None
    learning_rate: float | None = None
    hyper_learning_rate: float = 2e-2
    init: Literal["pca", "random", "spectral", "tsne", "umap"] | Any = "pca"
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "auto"
    random_state: int | None = None
    verbose: bool = False
    encoder_noise: float | Literal["auto"] = "auto"
    early_stopping: int | None = None
    validation_fraction: float = 0.1
    layout_weight: float = 0.0
    image_shape: tuple[int, ...] | None = None
    columns: Literal["auto"] | Mapping[str, str] | None = "auto"
    precision: Literal["auto", "float32", "mixed"] = "auto"

    def encoder_rate(self, n_steps: int | None = None) -> float:
        """The learning rate of the encoder, also if `learning_rate` is None.

        Parameters
        ----------
        n_steps : int, optional
            Steps of the run. None: many.
        """
        if self.learning_rate is not None:
            return float(self.learning_rate)
        kind = self.encoder if isinstance(self.encoder, str) else "own"
        table, projected = kind == "table", isinstance(self.init, str) and self.init in ("pca", "random")
        if n_steps and kind in ("network", "conv") and projected and not self.layout_weight:
            return 2e-3 * min(max(math.sqrt(FEW_STEPS / n_steps), 1.0), 2.0)
        if projected or self.layout_weight:
            return 2e-2 if table else 2e-3
        return 2e-3 if table else 3e-4

    def torch_device(self) -> "torch.device":
        """The device that `device` names."""
        return _device(self.device)


@dataclass(eq=False, repr=False)
class InducingSettings:
    """What a user may choose about inducing points.

    Parameters
    ----------
    n_inducing
        Inducing points; at most as many as there are rows.
    """

    n_inducing: int = 400


@dataclass(eq=False, repr=False)
class NetworkSettings:
    """What a user may choose about a decoder that is a network.

    Parameters
    ----------
    output
        Last layer of the decoder's mean: "sigmoid" for data in [0, 1], or "linear" around the training mean. None:
        decided by the data.
    variance
        Variance of an observation given its latent. "shared": one learned number. "head": a layer of its own, with one
        output per feature. "mean": softplus of the mean, as in the paper.
    """

    output: Literal["linear", "sigmoid"] | None = None
    variance: Literal["shared", "head", "mean"] = "shared"


@dataclass(eq=False, repr=False)
class SupervisedSettings:
    """What a user may choose about regression and classification.

    Parameters
    ----------
    kernel
        "matern32-ard" (the default): each input has its own lengthscale. Also "rbf-ard", "matern52-ard", or without
        lengthscales of their own "rbf", "matern12", "matern32" or "matern52". "deep": a small network makes up to eight
        features, with an "rbf-ard" kernel on them. In Python also any gpytorch.kernels.Kernel, which starts from the
        values it has and works on the inputs as they are.
    prediction
        What a prediction is conditioned on. "nearest": the training rows nearest to each query, under the learned
        lengthscales. "all-rows": all rows, through `support_size` positions. "exact": all rows, exactly. "auto":
        "exact" for up to 2000 rows, then "nearest".
    neighbours
        Rows that a prediction is conditioned on, with "nearest".
    support_size
        Positions that "all-rows" uses, at most.
    active_set_size
        Active rows per batch, A; at most half of the batch if the data are few.
    batch_size
        Rows per batch, B.
    max_epochs
        Passes over the data. None: about 500 steps. If the data have more rows than these steps need, a random part of
        the rows trains the kernel.
    learning_rate
        Peak of the one-cycle schedule for the network of a deep kernel.
    hyper_learning_rate
        Peak of the schedule for kernel and noise.
    dtype
        Precision of training: "float32" or "float64". For inputs whose squares do not fit into float32 it is always
        float64. Predictions are always computed in float64.
    device
        "auto" (a GPU if there is one), "cpu", "cuda", "cuda:1", ...
    random_state
        Seed: fits with the same seed are identical. None draws a new seed each time.
    verbose
        Show progress.
    columns
        How the columns of a table are taken: as for SASGP.
    """

    kernel: (
        Literal["matern32-ard", "rbf-ard", "matern52-ard", "rbf", "matern12", "matern32", "matern52", "deep"] | Any
    ) = "matern32-ard"
    prediction: Literal["auto", "nearest", "all-rows", "exact"] = "auto"
    neighbours: int = 256
    support_size: int = 1000
    active_set_size: int = 512
    batch_size: int = 1024
    max_epochs: int | None = None
    learning_rate: float = 1e-3
    hyper_learning_rate: float = 0.1
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "auto"
    random_state: int | None = None
    verbose: bool = False
    columns: Literal["auto"] | Mapping[str, str] | None = "auto"

    def torch_device(self) -> "torch.device":
        """The device that `device` names."""
        return _device(self.device)


@dataclass(eq=False, repr=False)
class TargetSettings:
    """What a user may choose about the targets of a regression.

    Parameters
    ----------
    target
        "auto": a target of odd shape, such as a skewed amount, is learned through a monotone map, if that explains it
        clearly better. "plain": as it is.
    """

    target: Literal["auto", "plain"] = "auto"


def _device(name: str) -> "torch.device":
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    return torch.device(name)


def documented(*parts: type, without: tuple[str, ...] = ()) -> str:
    """The "Parameters" section of a docstring for the fields that these classes declare."""
    text = "".join((part.__doc__ or "").partition("----------\n")[2].rstrip(" ") for part in parts)
    entries = re.split(r"^    (?=\w)", text, flags=re.MULTILINE)[1:]
    chosen = [entry for entry in entries if entry.partition("\n")[0] not in without]
    return "\n    Parameters\n    ----------\n" + "".join(f"    {entry}" for entry in chosen)
