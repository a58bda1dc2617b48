"""
Motion capture: a walk is a circle
==================================

Embed the poses of a walking figure, draw them along the latent circle, and complete a leg that the camera did not
see.
"""

# %%
# The figure has 13 joints. Their places follow from angles that swing with the phase of the step, and from how fast the
# figure goes. A row holds the 26 coordinates of one pose, in metres, with noise of one centimetre. The model is told
# neither phase nor speed.

import matplotlib.pyplot as plt
import numpy as np

from sasgp import SASGP, metrics, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
# 0 hip, 1 neck, 2 head; knee, ankle and toe: 3 to 5 and 6 to 8; elbow and hand: 9, 10 and 11, 12
BONES = [(0, 1), (1, 2), (0, 3), (3, 4), (4, 5), (0, 6), (6, 7), (7, 8), (1, 9), (9, 10), (1, 11), (11, 12)]


def poses(phase, speed):
    """Coordinates [N, 26] of the joints, with the hip at the origin."""
    joints = np.zeros((len(phase), 13, 2))

    def attach(joint, parent, angle, length):  # at an angle of 0 a bone hangs down
        joints[:, joint] = joints[:, parent] + length * np.column_stack([np.sin(angle), -np.cos(angle)])

    lean = 0.05 + 0.15 * speed
    attach(1, 0, np.pi - lean, 0.50)
    attach(2, 1, np.pi - lean, 0.22)
    for knee, elbow, t in ((3, 11, phase), (6, 9, phase + np.pi)):  # the arm of the other side swings with a leg
        thigh = 0.1 + (0.30 + 0.30 * speed) * np.sin(t)
        shin = thigh - 0.08 - (0.25 + 0.40 * speed) * (1 + np.cos(t + 0.4))
        arm = (0.25 + 0.40 * speed) * np.sin(t) - lean
        attach(knee, 0, thigh, 0.42)
        attach(knee + 1, knee, shin, 0.42)
        attach(knee + 2, knee + 1, shin + 1.45, 0.15)
        attach(elbow, 1, arm, 0.30)
        attach(elbow + 1, elbow, arm + 0.3 + 0.8 * speed, 0.27)
    return joints.reshape(len(phase), -1)


def recording(n):
    phase, speed = draw.uniform(0, 2 * np.pi, n), draw.uniform(0.3, 0.7, n)
    return poses(phase, speed) + draw.normal(0, 0.01, (n, 26)), phase, speed


X, phase, speed = recording(600)
X_test, phase_test, speed_test = recording(300)
model = SASGP(active_set_size=150, batch_size=600, max_epochs=150, random_state=0).fit(X)
Z, Z_test = model.embedding_, model.transform(X_test)
print(f"held-out poses: RMSE {100 * metrics.rmse(X_test, model.predict(Z_test)):.1f} cm, of which the noise is 1.0 cm")

# %%
# The latent space is a ring. The angle on it is the phase of the step, and the distance from its middle is the speed.

figure, axes = plt.subplots(1, 2, figsize=(9.6, 4.2))
for panel, colour, name, cmap in zip(
    axes,
    (np.degrees(phase_test), speed_test),
    ("phase, degrees", "speed"),
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
print(f"held-out R² of the speed, from the neighbours in z: {metrics.knn_r2(Z, speed, Z_test, speed_test):.2f}")

# %%
# Poses that are decoded around the ring: a walk that was never recorded as such, because every training row had a phase
# and a speed of its own.


def draw_pose(panel, row, at=(0.0, 0.0), size=1.0, **line):
    joints = np.asarray(row).reshape(13, 2) * size + at
    for near, bones in ((False, BONES[5:8] + BONES[8:10]), (True, BONES[:5] + BONES[10:])):
        for a, b in bones:
            panel.plot(
                *joints[[a, b]].T, **{"color": "C0" if near else "C1", "lw": 2, "solid_capstyle": "round"} | line
            )
    panel.plot(*joints[2], "o", ms=5 * size**0.5, color=line.get("color", "C0"), alpha=line.get("alpha", 1))


circle = np.linspace(0, 2 * np.pi, 13)[:-1]
radius = np.median(ring(Z)[:, 2])
stops = middle + radius * np.column_stack([np.cos(circle), np.sin(circle)])
decoded, std = model.predict(stops, return_std=True)
figure, panel = plt.subplots(figsize=(7, 7))
panel.scatter(*Z.T, s=6, color="#d5d5d5")
panel.plot(*np.vstack([stops, stops[:1]]).T, color="#999999", lw=1)
size = 0.5 * radius
for place, row in zip(stops, decoded, strict=True):
    draw_pose(panel, row, middle + 1.8 * (place - middle), size)
panel.set(aspect="equal", xlabel="$z_0$", ylabel="$z_1$", title="poses decoded at twelve places of the ring")
plt.show()
print(f"standard deviation of a coordinate: {100 * std.mean():.1f} cm on the ring, ", end="")
print(f"{100 * model.predict(middle[None], return_std=True)[1].mean():.1f} cm in its middle")

# %%
# One leg of each held-out pose is hidden behind a table. The rest of the body says where it is.

hidden = X_test.copy()
leg = np.repeat([3, 4, 5], 2) * 2 + np.tile([0, 1], 3)
hidden[:, leg] = np.nan
completed, spread = model.impute(hidden, return_std=True)
error = completed[:, leg] - X_test[:, leg]
print(f"RMSE of the hidden leg {100 * np.sqrt(np.mean(error**2)):.1f} cm, ", end="")
print(f"of the average pose {100 * np.sqrt(np.mean((X[:, leg].mean(0) - X_test[:, leg]) ** 2)):.1f} cm")
print(f"inside two standard deviations: {np.mean(np.abs(error) < 2 * spread[:, leg]):.0%}")
figure, axes = plt.subplots(1, 6, figsize=(9.6, 3.2), sharey=True)
for i, panel in enumerate(axes):
    for sample in model.impute(hidden[i : i + 1], n_samples=12, random_state=i)[:, 0]:
        joints = sample.reshape(13, 2)
        panel.plot(*joints[[0, 3, 4, 5]].T, color="C9", lw=1, alpha=0.35)
    draw_pose(panel, X_test[i])
    panel.set(aspect="equal", xlim=(-0.7, 0.7), xticks=[], yticks=[])
figure.suptitle("the true pose, and twelve draws of its hidden leg in orange", fontsize=10)
plt.show()

# %%
# **What to read next.** :doc:`plot_geodesic` finds ways along such a ring, :doc:`plot_kernel` gives a latent dimension
# a period, and :doc:`/missing-values` explains ``impute``. Faces, spectra or any other rows work in the same way.
