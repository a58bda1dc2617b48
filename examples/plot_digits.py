"""
Handwritten digits: a latent space that knows what it does not know
===================================================================

Embed images in two dimensions, look at the latent space, decode it, and generate new images.
"""

# %%
# The data are 1797 images of 8×8 pixels that come with scikit-learn. A fifth of them is held out. Training here takes
# fewer steps than by default, so that this page is quick to make: leave out all settings but ``random_state`` on your
# own data.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from sasgp import SASGP, metrics, plots

X, y = load_digits(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(X / 16, y, test_size=0.2, random_state=0)

model = SASGP(n_components=2, active_set_size=200, batch_size=512, max_epochs=70, random_state=0)
Z_train = model.fit_transform(X_train)
Z_test = model.transform(X_test)

# %%
# How good is it on held-out images? Each is encoded to two numbers and decoded again. PCA with two components is the
# natural thing to compare with.

mean, std = model.predict(Z_test, return_std=True)
pca = PCA(2).fit(X_train)
pca_mean = pca.inverse_transform(pca.transform(X_test))
inside = metrics.coverage(metrics.pit_counts(X_test, mean, std**2), 0.9)
print(f"RMSE of held-out images: {metrics.rmse(X_test, mean):.3f}, PCA {metrics.rmse(X_test, pca_mean):.3f}")
print(f"1-NN accuracy of digits: {metrics.knn_accuracy(Z_train, y_train, Z_test, y_test):.3f}, ", end="")
print(f"PCA {metrics.knn_accuracy(pca.transform(X_train), y_train, pca.transform(X_test), y_test):.3f}")
print(f"pixels inside their 90 % intervals: {inside:.1%}")

# %%
# On the left is the latent space. The background is grey where the decoder is uncertain: between the digits, and far
# from all of them. On the right is what it decodes there. Pictures fade where it does not know.

plots.latent_with_images(model, (8, 8), Z_train, y_train)

# %%
# Every decoded pixel comes with a standard deviation. Near the data it is close to the noise. Far away it returns to
# that of all images, and the mean to the average image: the model does not invent digits where it has seen none.

far = Z_train.max(0) + 3
_, near_std = model.predict(Z_train[:200], return_std=True)
_, far_std = model.predict(far[None], return_std=True)
print(f"standard deviation of a pixel: {near_std.mean():.2f} near the data, {far_std.mean():.2f} far from it")

# %%
# Held-out images in the upper row, and below them what two numbers have kept of each.

plots.reconstructions(model, X_test[:14], image_shape=(8, 8))

# %%
# New images: z is drawn from the prior, then the decoder's function is drawn there. ``noise=False`` leaves out the
# noise of the pixels.

made = model.sample(36, noise=False, random_state=1)
plots.contact_sheet(np.clip(made, 0, 1), (8, 8))

# %%
# **What to read next.** :doc:`/guide` explains every step of this page, and :doc:`/how-good` has the numbers of full
# training. :doc:`plot_geodesic` measures distances in a latent space, :doc:`plot_anomalies` looks for rows that do not
# belong, and :doc:`plot_umap` starts from a layout of UMAP.
