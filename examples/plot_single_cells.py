"""
Single cells: counts, size factors and a trajectory
===================================================

Embed an AnnData object of counts, place new cells, and read a gene along differentiation with its uncertainty.
"""

# %%
# The counts are simulated, so the truth is known. Stem cells differentiate into two lineages. Each of 250 genes follows
# the trajectory in its own way, and the depth of cells differs by a factor of ten, which is not biology and should not
# be on the map.

import anndata
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.decomposition import PCA

import sasgp.anndata
from sasgp import metrics, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
n, genes = 1000, 250
time = draw.uniform(0, 1, n)  # 0: stem cell, 1: mature
branch = draw.integers(0, 2, n)
after = np.clip(time - 0.4, 0, None) / 0.6  # progress after the fork
start, slope = draw.normal(0, 0.8, genes), draw.normal(0, 1.0, genes)
fates = draw.normal(0, 1.6, (2, genes)) * (draw.random((2, genes)) < 0.5)
bump = draw.normal(0, 1.2, genes) * (draw.random(genes) < 0.3)
log_rate = start + np.outer(time, slope) + after[:, None] * fates[branch] + np.outer(np.sin(np.pi * time), bump)
share = np.exp(log_rate) / np.exp(log_rate).sum(1, keepdims=True)
depth = np.exp(draw.normal(np.log(1200), 0.5, n))
rate = depth[:, None] * share * draw.gamma(4, 1 / 4, (n, genes))  # negative binomial counts
fate = np.where(time < 0.4, "stem", np.array(["A", "B"])[branch])
cells = anndata.AnnData(
    draw.poisson(rate).astype(np.float32),
    obs=pd.DataFrame({"time": time, "fate": fate}, index=[f"cell{i}" for i in range(n)]),
    var=pd.DataFrame(index=[f"gene{i}" for i in range(genes)]),
)
train, new = cells[:800].copy(), cells[800:].copy()

# %%
# One call normalises, trains, and writes the latents to ``obsm``, where scanpy looks for them. The counts stay counts:
# the model sees log(1 + count · median total / total). A second call places new cells in the same space.

model = sasgp.anndata.embed(train, active_set_size=200, batch_size=400, max_epochs=60, random_state=0)
sasgp.anndata.embed(new, model)
print(new)

# %%
# New cells, by what the nearest training cells say about them. The map should know fate and time, and should not know
# depth. PCA of log(1 + count) without size factors does the opposite.

naive = PCA(2).fit(np.log1p(train.X))
maps = {
    "sasgp": (train.obsm["X_sasgp"], new.obsm["X_sasgp"]),
    "PCA, log(1 + count)": (naive.transform(np.log1p(train.X)), naive.transform(np.log1p(new.X))),
}
for name, (Z, Z_new) in maps.items():
    fate = metrics.knn_accuracy(Z, train.obs["fate"], Z_new, new.obs["fate"], k=15)
    r2_time = metrics.knn_r2(Z, train.obs["time"], Z_new, new.obs["time"])
    r2_depth = metrics.knn_r2(Z, np.log(train.X.sum(1)), Z_new, np.log(new.X.sum(1)))
    print(f"{name:20} fate {fate:.2f}, R² of time {r2_time:.2f}, R² of depth {r2_depth:.2f}")

# %%
# The latent space, by fate. Stem cells fork into two arms.

plots.latent_space(model, labels=train.obs["fate"].to_numpy(), title="fate")

# %%
# The same, by time.

figure = plots.latent_space(model, labels=train.obs["time"].to_numpy())
figure.axes[0].child_axes[-1].set_ylabel("true time")
figure

# %%
# A trajectory is the shortest path, as the data measure it, from the youngest cells to the fork and on to the mature
# cells of a fate. Without the stop at the fork, a path may cut the corner, where there are no cells. Decoded along the
# path, a gene has a mean and a 90 % band. The points are new cells, at the place of the path that is nearest to their
# latents. The first two genes differ most between the fates; the third has the highest bump on the way.


def scores_of(adata):
    return np.log1p(adata.X * model.size_factor_ / adata.X.sum(1, keepdims=True))


Z, Z_new = train.obsm["X_sasgp"], new.obsm["X_sasgp"]
contrast = scores_of(train[train.obs["fate"] == "A"]).mean(0) - scores_of(train[train.obs["fate"] == "B"]).mean(0)
chosen = [int(contrast.argmax()), int(contrast.argmin()), int(np.abs(bump).argmax())]
youngest = Z[train.obs["time"] < 0.05].mean(0)
fork = Z[np.abs(train.obs["time"] - 0.4) < 0.04].mean(0)
figure, axes = plt.subplots(1, 3, figsize=(10, 3.5))
for i, fate in enumerate("AB"):
    mature = Z[(train.obs["fate"] == fate) & (train.obs["time"] > 0.95)].mean(0)
    path = np.vstack([model.geodesic(youngest, fork, n=21)[:-1], model.geodesic(fork, mature, n=20)])
    mean, std = model.predict(path, return_std=True)
    near = new[(new.obs["fate"] == fate) | (new.obs["fate"] == "stem")]
    gaps = np.linalg.norm(near.obsm["X_sasgp"][:, None] - path, axis=2)
    nearest = gaps.argmin(1)
    along = np.linspace(0, 1, 40)[nearest]
    inside = np.abs(scores_of(near) - mean[nearest]) < 1.645 * std[nearest]
    print(f"fate {fate}: correlation of place on the path with true time, new cells: ", end="")
    print(f"{np.corrcoef(along, near.obs['time'])[0, 1]:.2f}; in the bands of all genes: {inside.mean():.0%}")
    for panel, gene in zip(axes, chosen, strict=True):
        panel.plot(along, scores_of(near)[:, gene], "o", ms=2.5, color=f"C{i}", alpha=0.5)
        panel.plot(np.linspace(0, 1, 40), mean[:, gene], color=f"C{i}", lw=2, label=f"fate {fate}")
        band = mean[:, gene] - 1.645 * std[:, gene], mean[:, gene] + 1.645 * std[:, gene]
        panel.fill_between(np.linspace(0, 1, 40), *band, color=f"C{i}", alpha=0.15, lw=0)
        panel.set(title=f"gene{gene}", xlabel="place on the path")
axes[0].set_ylabel("log(1 + normalised count)")
axes[0].legend()
plt.show()

# %%
# **What to read next.** :doc:`/your-data` describes AnnData objects and ``.h5ad`` files. :doc:`plot_geodesic` explains
# shortest paths. With scanpy, ``sc.pp.neighbors(adata, use_rep="X_sasgp")`` builds on these latents.
