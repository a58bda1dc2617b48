"""
Geodesics: distances as the data see them
=========================================

Measure how far apart rows are, find the shortest path between them, and check both against a truth that is known.
"""

# %%
# A satellite turns, and twenty light sensors on its body each measure the cosine of the angle to the sun, with a little
# noise. The sun is a direction, a point on a sphere, so the true distance between two rows is known: the angle between
# the directions. Most of the time the satellite keeps its working position, so most rows are near one another.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from sasgp import SASGP, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
sensors = np.linalg.qr(draw.normal(size=(20, 3)))[0]  # [20, 3]: lengths in the data are angles in radians


def directions(n):
    """Unit vectors [N, 3] in a cap of 80 degrees; two thirds of them are close to a working position."""
    polar = np.arccos(draw.uniform(np.cos(np.radians(80)), 1, n))
    azimuth = draw.uniform(0, 2 * np.pi, n)
    anywhere = np.column_stack([np.sin(polar) * np.cos(azimuth), np.sin(polar) * np.sin(azimuth), np.cos(polar)])
    working = np.array([0.45, 0.3, 0.84]) + draw.normal(0, 0.12, (n, 3))
    chosen = np.where(draw.random((n, 1)) < 0.67, working, anywhere)
    return chosen / np.linalg.norm(chosen, axis=1, keepdims=True)


sun = directions(500)
X = sun @ sensors.T + draw.normal(0, 0.02, (500, 20))
model = SASGP(active_set_size=150, batch_size=500, max_epochs=120, random_state=0).fit(X)

# %%
# The latent space gives much room to the many rows of the working position. Behind the points is the volume element:
# dark where a step in z changes the data much. So equal distances on this map are not equal distances in the data.
# Solid lines are geodesics, dashed ones are straight.

Z = model.embedding_
corners = [
    int(np.argmin(((sun - np.array(to)) ** 2).sum(1))) for to in ((-0.9, 0, 0.3), (0.3, -0.9, 0.3), (0.2, 0.9, 0.3))
]
starts, ends = Z[corners], Z[np.roll(corners, 1)]
paths = model.geodesic(starts, ends, n=60)
lines = np.linspace(starts, ends, 60, axis=1)
plots.geometry(model, paths=paths)

# %%
# Decode both and look at the sphere from above. The decoded geodesics lie close to the great circles, which are the
# shortest paths between directions. Where a geodesic is bent most, the straight line of the latent space is a long way
# round.

figure, panel = plt.subplots(figsize=(6.2, 6.2))
panel.plot(*sun[:, :2].T, ".", ms=3, color="#c9c9c9")
for i, (path, line) in enumerate(zip(paths, lines, strict=True)):
    a, b = sun[corners[i]], sun[np.roll(corners, 1)[i]]
    angle = np.arccos(a @ b)
    t = np.linspace(0, 1, 60)[:, None]
    circle = (np.sin((1 - t) * angle) * a + np.sin(t * angle) * b) / np.sin(angle)
    on_sphere, off = model.predict(path) @ sensors, model.predict(line) @ sensors
    panel.plot(*circle[:, :2].T, color="C9", lw=5, alpha=0.5, label="great circle" if i == 0 else None)
    panel.plot(*off[:, :2].T, color="C4", lw=1.4, ls="--", label="straight line in z, decoded" if i == 0 else None)
    panel.plot(*on_sphere[:, :2].T, color="C0", lw=1.8, label="geodesic, decoded" if i == 0 else None)
    lengths = model.length(path), model.length(line), angle
    print("lengths in radians: geodesic {:.3f}, straight line {:.3f}, great circle {:.3f}".format(*lengths))
panel.set(xlabel="direction of the sun, x", ylabel="y", aspect="equal")
panel.legend(loc="upper right")
plt.show()

# %%
# New rows, 200 random pairs. Geodesic distances are angles in radians, without any calibration. Straight distances in
# the latent space and in two principal components are not: the first are stretched where the rows are many, the others
# cut through the sphere.

one, other = directions(200), directions(200)
rows = [each @ sensors.T + draw.normal(0, 0.02, (200, 20)) for each in (one, other)]
truth = np.arccos(np.clip((one * other).sum(1), -1, 1))
z_one, z_other = (model.transform(each, refine=20) for each in rows)
pca = PCA(2).fit(X)
found = {
    "geodesic": model.length(model.geodesic(z_one, z_other, n=20)),
    "straight in z": np.linalg.norm(z_one - z_other, axis=1),
    "straight in PCA": np.linalg.norm(pca.transform(rows[0]) - pca.transform(rows[1]), axis=1),
}
figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.5))
for panel, (name, distance) in zip(axes, found.items(), strict=True):
    scale = (distance @ truth) / (distance @ distance)  # the best factor that turns these distances into angles
    off = np.abs(scale * distance - truth)
    print(f"{name:16} best factor {scale:.2f}, then off by {np.degrees(off).mean():.1f} degrees on average")
    panel.plot(np.degrees(truth), distance, "o", ms=3, color="C0", alpha=0.6)
    panel.plot([0, np.degrees(truth.max())], [0, truth.max() / scale], color="#777777", lw=1, ls="--")
    panel.set(title=name, xlabel="true angle, degrees", ylabel="distance")
plt.show()

# %%
# **What to read next.** :doc:`/geometry` defines metric, volume, length, geodesic and distance, and says how they are
# computed. :doc:`plot_single_cells` uses a geodesic as a trajectory.
