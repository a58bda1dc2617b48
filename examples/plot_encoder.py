"""
An encoder of your own: a small convolutional network
=====================================================

Replace the network between rows and latents with any torch module, and compare it on held-out rows.
"""

# %%
# The default encoder is a perceptron that takes pixels for unrelated columns. A convolutional network knows which
# pixels are neighbours. Any module will do that maps rows [B, D] to z [B, Q] or, for Bayesian latents, to a pair (mean,
# variance). It sees rows as they are, neither centred nor scaled.

import matplotlib.pyplot as plt
import numpy as np
import torch
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sasgp import SASGP, metrics, plots


class Convolutional(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Unflatten(1, (1, 8, 8)),
            torch.nn.Conv2d(1, 16, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(16, 32, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.Flatten(),
            torch.nn.Linear(32 * 16, 64),
            torch.nn.ReLU(),
        )
        self.mean, self.raw_variance = torch.nn.Linear(64, 2), torch.nn.Linear(64, 2)

    def forward(self, X):
        features = self.features(X)
        return self.mean(features), torch.nn.functional.softplus(self.raw_variance(features)) + 1e-6


X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, train_size=900, random_state=0)

# %%
# The encoder is an argument, like any setting. The rest of the model does not change, and neither do its methods.
# Parameters of the module are copied for ``fit``, so the same object can be used again.

torch.manual_seed(0)  # the module's own first weights
settings = {"active_set_size": 150, "batch_size": 450, "max_epochs": 60, "random_state": 0}
models = {
    "perceptron (the default)": SASGP(**settings).fit(X_train),
    "convolutional": SASGP(encoder=Convolutional(), **settings).fit(X_train),
}
for name, model in models.items():
    Z_test = model.transform(X_test)
    mean, std = model.predict(Z_test, return_std=True)
    weights = sum(p.numel() for p in model.model_.encoder.parameters())
    print(
        f"{name:25} {weights:7} weights, held-out RMSE {metrics.rmse(X_test, mean):.3f}, "
        f"NLPD {metrics.nlpd(X_test, mean, std**2):.2f}, "
        f"1-NN {metrics.knn_accuracy(model.embedding_, y_train, Z_test, y_test):.3f}"
    )

# %%
# Held-out digits in both latent spaces.

plt.style.use(plots.STYLE)
figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.6))
for panel, (name, model) in zip(axes, models.items(), strict=True):
    Z_test = model.transform(X_test)
    for digit in range(10):
        panel.scatter(*Z_test[y_test == digit].T, s=8, color=f"C{digit}", label=str(digit))
    panel.set(title=name, xlabel="$z_0$", ylabel="$z_1$")
axes[1].legend(loc="center left", bbox_to_anchor=(1, 0.5), markerscale=2)
plt.show()

# %%
# What does it buy? Shift the held-out images by one pixel. Convolutions and pooling should be hurt less than a
# perceptron.

images = X_test.reshape(-1, 8, 8)
for name, model in models.items():
    accuracy = [
        metrics.knn_accuracy(
            model.embedding_, y_train, model.transform(np.roll(images, s, 2).reshape(-1, 64)), y_test, k=15
        )
        for s in (-1, 0, 1)
    ]
    print(f"{name:25} 15-NN accuracy {accuracy[1]:.3f}; shifted left {accuracy[0]:.3f}, right {accuracy[2]:.3f}")

# %%
# A file holds the weights and never code, so pass the module again to load it.

import tempfile
from pathlib import Path

path = Path(tempfile.mkdtemp()) / "convolutional.safetensors"
models["convolutional"].save(path)
again = SASGP.load(path, encoder=Convolutional())
print("the same latents:", np.array_equal(again.transform(X_test), models["convolutional"].transform(X_test)))

# %%
# **What to read next.** ``encoder="conv"`` is a ready-made convolutional encoder, and ``encoder="table"`` has no
# network at all: :doc:`/settings`. :doc:`plot_kernel` composes a kernel of your own.
