"""
Fill in missing values, and know how wrong they may be
======================================================

Complete a table with ``SASGPImputer``, complete images with a decoder, and check the intervals against the truth.
"""

# %%
# A fifth of the cells of scikit-learn's wine table is hidden at random, so the truth is known. ``SASGPImputer``
# regresses each column on the others by a Gaussian process. It stands beside three imputers of scikit-learn.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits, load_wine
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer, KNNImputer, SimpleImputer

from sasgp import SASGP, SASGPImputer, plots

plt.style.use(plots.STYLE)
wine = load_wine(as_frame=True).data
columns = ["alcohol", "total_phenols", "flavanoids", "color_intensity", "hue", "proline"]
truth = wine[columns].to_numpy()
hidden = np.random.default_rng(0).random(truth.shape) < 0.2
hidden[hidden.all(1)] = False
table = np.where(hidden, np.nan, truth)

imputer = SASGPImputer(random_state=0)
results = {
    "SASGPImputer": imputer.fit_transform(table),
    "MICE": IterativeImputer(max_iter=20, random_state=0).fit_transform(table),
    "10 neighbours": KNNImputer(n_neighbors=10).fit_transform(table / np.nanstd(table, 0)) * np.nanstd(table, 0),
    "column mean": SimpleImputer().fit_transform(table),
}
scale = truth.std(0)
for name, completed in results.items():
    error = np.sqrt(np.mean(((completed - truth) / scale)[hidden] ** 2))
    print(f"{name:14} RMSE of hidden cells {error:.3f} standard deviations")

# %%
# Each filled cell has a distribution. The 90 % intervals should hold nine of ten of the values that were hidden. They
# are wide where the rest of the row says little and narrow where it says much.

completed, low, high = imputer.impute(table, return_interval=0.9)
print(f"hidden cells inside their 90 % intervals: {np.mean(((low <= truth) & (truth <= high))[hidden]):.1%}")
figure, axes = plt.subplots(2, 3, figsize=(9.6, 5.8))
for d, (panel, name) in enumerate(zip(axes.flat, columns, strict=True)):
    cells = hidden[:, d]
    ends = [truth[cells, d].min(), truth[cells, d].max()]
    panel.plot(ends, ends, color="#777777", lw=1, ls="--")
    panel.vlines(truth[cells, d], low[cells, d], high[cells, d], color="C1", lw=1.4)
    panel.plot(truth[cells, d], completed[cells, d], "o", ms=4, color="C0")
    panel.set(title=name.replace("_", " "), xlabel="hidden value", ylabel="imputed, 90 % interval")
plt.show()

# %%
# Rows of many features, such as images, are completed by a decoder instead. Here 40 % of the pixels of all training
# images are missing, and the model is trained on what is left. Then the lower half of *new* images is hidden. The
# nearest images come as close, but only the decoder says how wrong each pixel may be.

digits = load_digits().data / 16
holed = np.where(np.random.default_rng(1).random((600, 64)) < 0.4, np.nan, digits[:600])
model = SASGP(n_components=4, active_set_size=60, batch_size=200, max_epochs=20, random_state=0).fit(holed)
new = digits[600:800]
half = new.copy()
half[:, 32:] = np.nan
filled, std = model.impute(half, return_std=True)
near = KNNImputer(n_neighbors=10).fit(holed).transform(half)
lower = np.s_[:, 32:]
average = np.broadcast_to(np.nanmean(holed, 0), new.shape)
for name, guess in (("decoder", filled), ("10 neighbours", near), ("mean image", average)):
    print(f"RMSE of the hidden half: {np.sqrt(np.mean((guess - new)[lower] ** 2)):.3f}  {name}")
inside = np.abs(new - filled)[lower] < 1.645 * std[lower]
print(f"hidden pixels within 1.645 standard deviations: {inside.mean():.1%} (90 % if Gaussian)")

# %%
# Draws show what an expectation hides. If the upper half could belong to two digits, the mean is a blur of both, while
# each draw decides for one. For multiple imputation, analyse each draw and pool the results.

shown = [0, 6, 8, 13, 17, 20]
draws = model.impute(half[shown], n_samples=4, random_state=0)
rows = [("truth", new[shown]), ("given", half[shown]), ("mean", filled[shown])]
rows += [(f"draw {i + 1}", draw) for i, draw in enumerate(draws)]
figure, axes = plt.subplots(len(shown), len(rows), figsize=(8, 6.6))
for line, panels in enumerate(axes):
    for panel, (name, images) in zip(panels, rows, strict=True):
        panel.set_facecolor("#cfe3f1")
        panel.imshow(images[line].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        panel.set(xticks=[], yticks=[], title=name if line == 0 else "")
        panel.grid(visible=False)
plt.show()

# %%
# **What to read next.** :doc:`/missing-values` says how it works, and :doc:`/how-good-imputation` has more tables, and
# what happens if values are not missing at random. :doc:`plot_table` fits a table of mixed columns with holes, and
# :doc:`plot_pipeline` puts estimators into pipelines.
