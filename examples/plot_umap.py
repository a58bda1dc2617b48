"""
UMAP's neighbourhoods, with a density and a way back
====================================================

Start a latent space from UMAP's layout, keep it there, and get what UMAP does not have: a decoder, uncertainty and
log p(x).
"""

# %%
# UMAP makes maps that people like to read, but a map is all there is. A Gaussian-process decoder hardly cares how its
# latent space is arranged, so it can take UMAP's arrangement. ``init="umap"`` starts there, and ``layout_weight`` keeps
# the latents near it while everything else is trained. This needs the extra ``layouts``.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sasgp import SASGP, metrics, plots

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, train_size=700, random_state=0)

settings = {"active_set_size": 120, "batch_size": 350, "max_epochs": 40, "random_state": 0}
model = SASGP(init="umap", layout_weight=0.3, **settings).fit(X_train)
plain = SASGP(**settings).fit(X_train)  # from PCA, free to move

# %%
# Held-out rows, in both. The neighbourhoods of UMAP are better, at no price in density (NLPD, lower is better).

for name, each in (("from PCA", plain), ("from UMAP", model)):
    Z, Z_test = each.embedding_, each.transform(X_test)
    mean, std = each.predict(Z_test, return_std=True)
    print(
        f"{name:10} 15-NN accuracy {metrics.knn_accuracy(Z, y_train, Z_test, y_test, k=15):.3f}, "
        f"silhouette {metrics.silhouette(Z_test, y_test):.2f}, RMSE {metrics.rmse(X_test, mean):.3f}, "
        f"NLPD {metrics.nlpd(X_test, mean, std**2):.2f} nats a pixel"
    )

# %%
# The layout is UMAP's. The grey and the pictures are the decoder's: it knows that there is nothing between the islands.

plots.latent_with_images(model, (8, 8), labels=y_train)

# %%
# A density makes the map useful for more than looking. New rows are scored by log p(x): upside-down digits and images
# with a stain land somewhere on the map, as all rows do, but most of them have a far lower density. Some digits look
# like digits upside down, too.

plt.style.use(plots.STYLE)
few = X_test[:200]
stained = few.reshape(-1, 8, 8).copy()
stained[:, 2:5, :3] = 0.9
sets = {
    "held-out digits": few,
    "upside down": few.reshape(-1, 8, 8)[:, ::-1].reshape(-1, 64),
    "with a stain": stained.reshape(-1, 64),
}
scores = {name: model.score_samples(rows) for name, rows in sets.items()}
figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 4.4))
left.scatter(*model.embedding_.T, s=6, color="#cccccc")
for i, (name, rows) in enumerate(sets.items()):
    left.scatter(*model.transform(rows).T, s=9, color=["C0", "C4", "C9"][i], label=name)
    right.hist(scores[name], np.linspace(-75, 55, 53), color=["C0", "C4", "C9"][i], alpha=0.7, label=name)
left.set(title="where they land on the map", xlabel="$z_0$", ylabel="$z_1$")
right.set(title="how probable they are", xlabel="log p(x), nats", ylabel="rows")
right.legend(loc="upper left")
plt.show()
limit = np.quantile(scores["held-out digits"], 0.05)
for name in ("upside down", "with a stain"):
    print(f"{np.mean(scores[name] < limit):.0%} of the images {name} are below the 5th percentile of held-out digits")

# %%
# **What to read next.** :doc:`/layouts` has the recipe for MNIST and explains each step. :doc:`plot_digits` does the
# same without a layout.
