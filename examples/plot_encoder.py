"""
An encoder of your own: what you know, as a torch module
========================================================

Replace the network between rows and latents with a module that knows what the rows are, and learn from a hundred of
them.
"""

# %%
# A camera watches a particle. Each frame has 14×14 pixels, most of them noise, and there are a hundred frames to learn
# from. The default encoder is a perceptron with some 465 000 weights that takes pixels for unrelated columns: plenty
# for many rows, too much for a hundred noisy ones.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.linear_model import LinearRegression

from sasgp import SASGP, metrics, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
SIDE, NOISE = 14, 0.2
line = np.linspace(-1, 1, SIDE)


def frames(n):
    """Frames [N, 196] of a spot of light, and where it is [N, 2]."""
    place = draw.uniform(-0.75, 0.75, (n, 2))
    across = np.exp(-((line - place[:, :1]) ** 2) / 0.06)
    up = np.exp(-((line - place[:, 1:]) ** 2) / 0.06)
    clean = up[:, :, None] * across[:, None, :]
    return clean.reshape(n, -1) + draw.normal(0, NOISE, (n, SIDE * SIDE)), place


X, place = frames(100)
X_test, place_test = frames(500)

# %%
# An encoder is any module that maps rows [B, D] to z [B, Q] or, for Bayesian latents, to a pair (mean, variance). This
# one has a convolution that smooths the frame, finds where it is brightest by a soft maximum, and maps that place to z.
# It has 35 weights, and all of them are trained. It sees rows as they are, neither centred nor scaled.


class Spot(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blur = torch.nn.Conv2d(1, 1, 5, padding=2)
        self.sharpness = torch.nn.Parameter(torch.tensor(15.0))
        self.to_mean = torch.nn.Linear(2, 2)
        self.raw_variance = torch.nn.Parameter(torch.full((2,), -3.0))
        torch.nn.init.constant_(self.blur.weight, 1 / 25)
        torch.nn.init.eye_(self.to_mean.weight)
        at = torch.linspace(-1.0, 1.0, SIDE)
        self.register_buffer("grid", torch.cartesian_prod(at, at))  # [196, 2]

    def forward(self, X):
        smooth = self.blur(X.view(-1, 1, SIDE, SIDE)).flatten(1)
        share = torch.softmax(self.sharpness * smooth, 1)  # of each pixel in the place of the spot
        mean = self.to_mean(share @ self.grid)
        return mean, torch.nn.functional.softplus(self.raw_variance).expand_as(mean) + 1e-6


models = {
    "perceptron (the default)": SASGP(max_epochs=250, random_state=0),
    "spot": SASGP(encoder=Spot(), learning_rate=1e-2, max_epochs=250, random_state=0),
}

# %%
# On 500 held-out frames: how well is a frame decoded again, and how much does z know about the true place of the
# particle? The place was never told to the models; a straight line from z to it is fitted to the training frames
# afterwards.

found = {}
for name, model in models.items():
    Z, Z_test = model.fit_transform(X), model.transform(X_test)
    mean, std = model.predict(Z_test, return_std=True)
    found[name] = LinearRegression().fit(Z, place).predict(Z_test)
    r2 = LinearRegression().fit(Z, place).score(Z_test, place_test)
    print(f"{name:25} RMSE {metrics.rmse(X_test, mean):.3f} (noise {NOISE}), ", end="")
    print(f"NLPD {metrics.nlpd(X_test, mean, std**2):.3f}, R² of the place {r2:.2f}")

# %%
# Where the particle is, and where the latents of held-out frames put it.

figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.7), sharey=True)
for panel, (name, guess) in zip(axes, found.items(), strict=True):
    for a, b in zip(place_test[:150], guess[:150], strict=True):
        panel.plot(*np.stack([a, b]).T, color="#bbbbbb", lw=0.8)
    panel.plot(*place_test[:150].T, "o", ms=4, color="C1", label="true place")
    panel.plot(*guess[:150].T, "o", ms=4, color="C0", label="from z")
    panel.set(title=name, xlabel="across", aspect="equal", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
axes[0].set_ylabel("up")
axes[0].legend(loc="lower left")
plt.show()

# %%
# Frames as they came, and decoded again: the decoder has learned from noisy frames what a spot looks like without the
# noise.

plots.reconstructions(models["spot"], X_test[:10], image_shape=(SIDE, SIDE))

# %%
# A file holds the weights and never code, so pass the module again to load it.

path = Path(tempfile.mkdtemp()) / "spot.safetensors"
models["spot"].save(path)
again = SASGP.load(path, encoder=Spot())
print("the same latents:", np.array_equal(again.transform(X_test), models["spot"].transform(X_test)))

# %%
# **What to read next.** :doc:`/kernels-and-encoders` says what an encoder must and may do. :doc:`/settings` compares
# networks with ``encoder="table"``, which has none. :doc:`plot_kernel` composes a kernel of your own.
