"""An estimator's settings: one declaration for the constructor, the command line, the help text and the saved file.

Nothing heavy is imported here, so that the command line can show its help at once.
"""

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import torch

__all__ = ["InducingSettings", "NetworkSettings", "Settings", "documented"]


@dataclass(eq=False, repr=False)
class Settings:
    """What a user may choose.

    Parameters
    ----------
    n_components
        Dimensions of the latent space, Q. "auto" trains with up to twelve and a lengthscale for each, then keeps those
        that the decoder uses, the most relevant first; it needs Bayesian latents.
    latents
        "bayesian": a Gaussian posterior for every latent (Eq. 8). "point": one position each, under a N(0, I) prior.
    encoder
        "network": an amortised encoder D-512-256-Q. "conv": the same with convolutions, for images, and the better one
        where they start from a layout of neighbours. "table": a free latent for every training row. From Python also
        any torch module that maps rows [B, D] to z [B, Q], or to (mean, variance).
    kernel
        "rbf" (the default), "rbf-ard", "matern12", "matern32" or "matern52", each with an amplitude. From Python also
        any gpytorch.kernels.Kernel, which starts from the values it has.
    noise
        "shared": one noise variance for all features. "feature": units of its own for every feature's signal and
        noise, learnt; for tables whose columns differ in scale or in how predictable they are.
    active_set_size
        Active points in every batch, A; at most half of the batch where the data are few. None makes everything
        active: the exact GP-LVM, whose cost grows with the cube of the rows.
    batch_size
        Rows in every batch, B.
    support_size
        Training rows that the trained decoder is conditioned on, at the most.
    max_epochs
        Passes over the data. None: as many as make about 1000 steps, but at least 3 and at most 1000.
    learning_rate
        Peak of the one-cycle schedule for the encoder. None: 2e-3 for a network; 2e-2 for a table, in which every
        number has to go all of its way by itself; less, 3e-4 and 2e-3, where they start from a layout of neighbours (an
        `init` other than "pca" and "random") and nothing holds them there (`neighbours`): they would unlearn it.
    hyper_learning_rate
        The same for kernel and noise.
    init
        Layout that the latents start from, to which the encoder is fitted first. "pca" and "random": projections.
        "spectral", "tsne" and "umap": layouts that keep neighbours together; the last two need the extra `layouts`.
        From Python also an array [N, Q], or any object with scikit-learn's fit_transform.
    dtype
        Precision of the arithmetic: "float32" or "float64".
    device
        "auto" (a GPU where there is one), "cpu", "cuda", "cuda:1", ...
    random_state
        Seed: fits with the same seed are identical. None draws a new one each time.
    verbose
        Show progress.
    encoder_noise
        Uniform noise on the encoder's input while it trains, in standard deviations of the decoder's own noise (fewer
        where features are few). It keeps the encoder from memorising rows, so that new rows land where they belong.
    early_stopping
        Stop after this many epochs without improvement on held-out rows, and keep the best epoch. None: never.
    validation_fraction
        Share of the rows held out for early_stopping.
    support
        How the rows of the support set are chosen: "random", or "kmeans++", which spreads them over the latent space.
        The latter is better where support_size is a few hundred, and no worse where it is thousands.
    neighbours
        Weight of staying near the layout while all is trained, in nats for each value of the data, as the objective is,
        from which it is taken off. 0: the layout is where training starts, and no more. 0.7 keeps what "umap" makes of
        large data, and lets new rows land better. Needs an `init` that keeps neighbours together.
    image_shape
        Shape of a row as an image, which encoder="conv" needs: (H, W), (C, H, W) or (H, W, C). None: squares of pixels
        are recognised.
    """

    n_components: int | Literal["auto"] = 2
    latents: Literal["bayesian", "point"] = "bayesian"
    encoder: Literal["network", "conv", "table"] | Any = "network"
    kernel: Literal["rbf", "rbf-ard", "matern12", "matern32", "matern52"] | Any = None
    noise: Literal["shared", "feature"] = "shared"
    active_set_size: int | None = 400
    batch_size: int = 1024
    support_size: int = 2000
    max_epochs: int | None = None
    learning_rate: float | None = None
    hyper_learning_rate: float = 2e-2
    init: Literal["pca", "random", "spectral", "tsne", "umap"] | Any = "pca"
    dtype: Literal["float32", "float64"] = "float32"
    device: str = "auto"
    random_state: int | None = None
    verbose: bool = False
    encoder_noise: float = 1.0
    early_stopping: int | None = None
    validation_fraction: float = 0.1
    support: Literal["random", "kmeans++"] = "random"
    neighbours: float = 0.0
    image_shape: tuple[int, ...] | None = None

    def encoder_rate(self) -> float:
        """The learning rate that `learning_rate` means."""
        if self.learning_rate is not None:
            return float(self.learning_rate)
        table = isinstance(self.encoder, str) and self.encoder == "table"
        if self.neighbours or (isinstance(self.init, str) and self.init in ("pca", "random")):
            return 2e-2 if table else 2e-3
        return 2e-3 if table else 3e-4

    def torch_device(self) -> "torch.device":
        """The device that `device` names."""
        import torch

        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


@dataclass(eq=False, repr=False)
class InducingSettings:
    """What a user may choose of inducing points.

    Parameters
    ----------
    n_inducing
        Inducing points, A; at most as many as there are rows.
    """

    n_inducing: int = 400


@dataclass(eq=False, repr=False)
class NetworkSettings:
    """What a user may choose of a decoder that is a network.

    Parameters
    ----------
    output
        Last layer of the decoder's mean: "sigmoid" for data in [0, 1], or "linear", around the training mean. None
        looks at the data.
    variance
        Of an observation, given its latent. "shared": one number for all, learnt. "head": from a layer of its own, for
        every feature. "mean": softplus of the mean, as the paper has it.
    """

    output: Literal["linear", "sigmoid"] | None = None
    variance: Literal["shared", "head", "mean"] = "shared"


def documented(*parts: type, without: tuple[str, ...] = ()) -> str:
    """The section of a docstring on the parameters that these classes declare."""
    text = "".join((part.__doc__ or "").partition("----------\n")[2].rstrip(" ") for part in parts)
    entries = re.split(r"^    (?=\w)", text, flags=re.MULTILINE)[1:]
    chosen = [entry for entry in entries if entry.partition("\n")[0] not in without]
    return "\n    Parameters\n    ----------\n" + "".join(f"    {entry}" for entry in chosen)
