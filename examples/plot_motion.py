"""
Motion capture: a walk is a circle
==================================

Embed the poses of a walking figure, draw them along the latent circle, and complete a leg that the camera did not
see.
"""

# %%
# A recording of a walk is a table of joint angles, one row for each moment. Here there are eleven angles of a figure in
# the plane, in degrees. They follow from the phase of the step and from how briskly the figure walks, with noise of two
# degrees. The model is told neither. Each pose has a free latent (``encoder="table"``), which starts from two principal
# components of equal spread; ``layout_weight`` keeps it near them.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA

from sasgp import SASGP, metrics, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)


def recording(n):
    """Joint angles [N, 11] in degrees, the phase in radians, and the pace."""
    phase, pace = draw.uniform(0, 2 * np.pi, n), draw.uniform(0.6, 1.4, n)
    columns = [4 + 4 * pace]  # the body leans forwards
    for t in (phase, phase + np.pi):  # near and far leg, with the arm of the other side
        thigh = 4 + 26 * pace * np.sin(t)
        knee = 8 + 26 * pace * (1 + np.cos(t + 0.4)) + 5 * pace * np.sin(2 * t)
        foot = 82 + 10 * pace * np.sin(t - 1)
        columns += [thigh, knee, foot, 22 * pace * np.sin(t), 20 + 14 * pace * (1 + np.cos(t - 0.6))]
    return np.column_stack(columns) + draw.normal(0, 2, (n, 11)), phase, pace


X, phase, pace = recording(500)
X_test, phase_test, pace_test = recording(300)
model = SASGP(
    encoder="table",
    init=PCA(2, whiten=True),
    layout_weight=0.1,
    active_set_size=100,
    batch_size=500,
    max_epochs=80,
    random_state=0,
).fit(X)
Z, Z_test = model.embedding_, model.transform(X_test)
error = X_test - model.predict(Z_test)
print(f"held-out poses: RMSE {np.sqrt(np.mean(error**2)):.1f} degrees, with noise of 2.0; ", end="")
print(f"spread of the angles {X_test.std(0).mean():.1f} degrees")

# %%
# The latent space is a ring. The angle on it is the phase of the step, and the distance from its middle is the pace.

figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2))
for panel, colour, name, cmap in zip(
    axes,
    (np.degrees(phase_test), pace_test),
    ("phase, degrees", "pace"),
    ("twilight_shifted", "viridis"),
    strict=True,
):
    points = panel.scatter(*Z_test.T, c=colour, s=16, cmap=cmap)
    panel.set(title="held-out poses", xlabel="$z_0$", ylabel="$z_1$", aspect="equal")
    figure.colorbar(points, ax=panel, label=name)
plt.show()
middle = Z.mean(0)


def ring(points):
    """Cosine and sine of the angle on the ring, and the distance from its middle."""
    apart = points - middle
    radius = np.linalg.norm(apart, axis=1, keepdims=True)
    return np.column_stack([apart / radius, radius])


turn = np.arctan2(*ring(Z_test)[:, 1::-1].T)
both_ways = [abs(np.mean(np.exp(1j * (turn - sign * phase_test)))) for sign in (1, -1)]
print(f"angle on the ring against the true phase: circular correlation {max(both_ways):.3f}")
print(f"held-out R² of the pace, from the neighbours in z: {metrics.knn_r2(Z, pace, Z_test, pace_test):.2f}")

# %%
# Poses that are decoded around the ring: a walk that was never recorded as such, because every training row had a phase
# and a pace of its own.


def skeleton(angles):
    """Bones of a pose as lines: body and head, near leg, far leg, and both arms."""
    lean, *limbs = np.radians(angles)

    def chain(start, turns, lengths):  # an angle of 0 points down, a positive one forwards
        steps = [length * np.array([np.sin(turn), -np.cos(turn)]) for turn, length in zip(turns, lengths, strict=True)]
        return np.cumsum([start, *steps], axis=0)

    body = chain(np.zeros(2), [np.pi - lean] * 2, [0.5, 0.2])
    legs = [chain(body[0], [a, a - b, a - b + c], [0.42, 0.42, 0.14]) for a, b, c in (limbs[:3], limbs[5:8])]
    arms = [chain(body[1], [a - lean, a - lean + b], [0.3, 0.27]) for a, b in (limbs[3:5], limbs[8:10])]
    return body, legs[0], legs[1], arms[1], arms[0]


def draw_pose(panel, angles, at=(0.0, 0.0), size=1.0):
    body, near, far, near_arm, far_arm = (size * bones + at for bones in skeleton(angles))
    for bones, colour in ((far, "C1"), (far_arm, "C1"), (body, "C0"), (near, "C0"), (near_arm, "C0")):
        panel.plot(*bones.T, color=colour, lw=2, solid_capstyle="round")
    panel.plot(*body[-1], "o", ms=6, color="C0")


circle = np.linspace(0, 2 * np.pi, 13)[:-1]
radius = np.median(ring(Z)[:, 2])
stops = middle + radius * np.column_stack([np.cos(circle), np.sin(circle)])
decoded = model.predict(stops)
figure, panel = plt.subplots(figsize=(7, 7))
panel.scatter(*Z.T, s=6, color="#d5d5d5")
panel.plot(*np.vstack([stops, stops[:1]]).T, color="#999999", lw=1)
size = 0.5 * radius
for place, row in zip(stops, decoded, strict=True):
    draw_pose(panel, row, middle + 1.8 * (place - middle), size)
panel.set(aspect="equal", xlabel="$z_0$", ylabel="$z_1$", title="poses decoded at twelve places of the ring")
plt.show()

# %%
# The near leg of each held-out pose is hidden behind a table. The rest of the body says where it is, and draws say how
# sure that is.

hidden = X_test.copy()
hidden[:, 1:4] = np.nan
completed, spread = model.impute(hidden, return_std=True)
error = (completed - X_test)[:, 1:4]
print(f"RMSE of the hidden angles {np.sqrt(np.mean(error**2)):.1f} degrees, ", end="")
print(f"of their average {np.sqrt(np.mean((X[:, 1:4].mean(0) - X_test[:, 1:4]) ** 2)):.1f}; ", end="")
print(f"inside two standard deviations: {np.mean(np.abs(error) < 2 * spread[:, 1:4]):.0%}")
figure, axes = plt.subplots(1, 6, figsize=(9.6, 3.2), sharey=True)
for i, panel in enumerate(axes):
    for sample in model.impute(hidden[i : i + 1], n_samples=12, random_state=i)[:, 0]:
        panel.plot(*skeleton(sample)[1].T, color="C9", lw=1, alpha=0.5)
    draw_pose(panel, X_test[i])
    panel.set(aspect="equal", xlim=(-0.7, 0.7), xticks=[], yticks=[])
figure.suptitle("the true pose, and twelve draws of its hidden leg in orange", fontsize=10)
plt.show()

# %%
# **What to read next.** :doc:`plot_geodesic` measures distances in a latent space, :doc:`plot_kernel` gives a latent
# dimension a period, and :doc:`/missing-values` explains ``impute``. Faces, spectra or any other rows work in the same
# way.
