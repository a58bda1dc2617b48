"""
Geodesics: the shortest way as the data see it
==============================================

Measure distances in a latent space, walk along a shortest path and along a straight line, and compare what is
decoded.
"""

# %%
# Images of a clock hand have one degree of freedom, the angle, which runs in a circle. So the right distance between
# two images is known: the angle between them. A latent space with two dimensions holds this circle, with nothing
# inside. ``init="spectral"`` starts from a layout of neighbours, which finds the circle at once.

import matplotlib.pyplot as plt
import numpy as np

from sasgp import SASGP, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
grid = np.linspace(-1, 1, 14)
across, up = np.meshgrid(grid, -grid)


def clock(angle):
    """Images [N, 196] of a hand at these angles."""
    c, s = np.cos(angle)[:, None, None], np.sin(angle)[:, None, None]
    along, aside = across * c + up * s, -across * s + up * c
    tip = np.exp(-((along - 0.62) ** 2 + aside**2) / 0.05)
    hand = np.exp(-(aside**2) / 0.02) / (1 + np.exp(-12 * along)) / (1 + np.exp(12 * (along - 0.7)))
    return np.clip(0.6 * hand + 0.6 * tip, 0, 1).reshape(len(angle), -1)


angle = draw.uniform(0, 2 * np.pi, 400)
X = clock(angle) + draw.normal(0, 0.08, (400, 196))
model = SASGP(init="spectral", active_set_size=150, batch_size=400, max_epochs=60, random_state=0).fit(X)
Z = model.embedding_

# %%
# Behind the points is the volume element: how much the decoder stretches the latent space, or how little it knows
# there. The shortest path goes around the circle. The straight line, dashed, crosses the inside.

near = [int(np.argmin(np.abs(angle - a))) for a in np.radians([20, 165])]
path = model.geodesic(Z[near[0]], Z[near[1]], n=60)
line = np.linspace(Z[near[0]], Z[near[1]], 60)
plots.geometry(model, labels=np.degrees(angle), paths=path)

# %%
# What is decoded along both. The hand turns along the geodesic. Along the straight line it dissolves: there are no such
# images, and the decoder's standard deviation, written below each picture, says so.

figure, axes = plt.subplots(2, 9, figsize=(9.6, 2.9))
for panels, way, name in zip(axes, (path, line), ("geodesic", "straight line"), strict=True):
    stops = way[np.linspace(0, 59, 9).astype(int)]
    mean, std = model.predict(stops, return_std=True)
    for panel, image, spread in zip(panels, mean, std.mean(1), strict=True):
        panel.imshow(image.reshape(14, 14), cmap="gray_r", vmin=0, vmax=1)
        panel.set(xticks=[], yticks=[], xlabel=f"{spread:.3f}")
        panel.grid(visible=False)
    panels[0].set_ylabel(name)
plt.show()

# %%
# Lengths are in units of the data. Against the true angle between 150 random pairs of new images, the geodesic distance
# is proportional, while the straight line is not: it takes the short cut through the circle.

other = draw.uniform(0, 2 * np.pi, (2, 150))
ends = [model.transform(clock(each) + draw.normal(0, 0.08, (150, 196))) for each in other]
turn = np.abs((other[0] - other[1] + np.pi) % (2 * np.pi) - np.pi)
distance = np.array([model.distance(a[None], b[None])[0, 0] for a, b in zip(*ends, strict=True)])
straight = np.linalg.norm(ends[0] - ends[1], axis=1)
pixels = np.linalg.norm(clock(other[0]) - clock(other[1]), axis=1)
for name, found in (("geodesic", distance), ("straight line in z", straight), ("pixels", pixels)):
    print(f"{name:20} correlation with the true angle {np.corrcoef(found, turn)[0, 1]:.3f}")
figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.3))
for panel, name, found in zip(
    axes, ("geodesic", "straight line in z", "pixels"), (distance, straight, pixels), strict=True
):
    panel.plot(np.degrees(turn), found, "o", ms=4, color="C0", alpha=0.7)
    panel.set(title=name, xlabel="true angle, degrees", ylabel="distance", ylim=(0, None), xticks=[0, 60, 120, 180])
plt.show()

# %%
# **What to read next.** :doc:`/geometry` defines metric, volume, length, geodesic and distance, and measures how right
# they are. :doc:`plot_single_cells` uses a geodesic as a trajectory, and :doc:`plot_kernel` gives such data a periodic
# kernel.
