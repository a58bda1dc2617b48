"""
Classification with probabilities to act on
===========================================

Predict classes with probabilities, compare these with the true ones, and leave the unclear cases to somebody else.
"""

# %%
# Three species are told apart by two measurements, and they overlap. The data are drawn from known densities, so the
# true probability of each species is known at every place, and no classifier can have a lower log loss than the one
# that knows it.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from sasgp import SASGPClassifier, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
SPECIES = np.array(["alba", "nigra", "rubra"])
bend = np.linspace(0, np.pi, 9)
CENTRES = np.stack(
    [
        np.column_stack([np.cos(bend), np.sin(bend)]),
        np.column_stack([1 - np.cos(bend), 0.4 - np.sin(bend)]),
        np.column_stack([2.1 + 0.0 * bend, bend / 2 + 0.4]),
    ]
)  # [3, 9, 2]: each species is a mixture of nine Gaussians along a curve
WIDTH = 0.28


def flowers(n):
    y = draw.integers(0, 3, n)
    return CENTRES[y, draw.integers(0, 9, n)] + draw.normal(0, WIDTH, (n, 2)), y


def truth(X):
    """The true probabilities [N, 3]."""
    squares = ((X[:, None, None] - CENTRES) ** 2).sum(3)  # [N, 3, 9]
    density = np.exp(-squares / (2 * WIDTH**2)).mean(2) + 1e-300
    return density / density.sum(1, keepdims=True)


X, y = flowers(350)
X_test, y_test = flowers(2000)
model = SASGPClassifier(max_epochs=150, random_state=0).fit(X, SPECIES[y])
p = model.predict_proba(X_test)

# %%
# The log loss judges the whole probability: it punishes being sure and wrong. The last line is the best that can be
# had.

found = {"SASGPClassifier": p}
for other in (HistGradientBoostingClassifier(random_state=0), RandomForestClassifier(random_state=0)):
    found[type(other).__name__] = other.fit(X, y).predict_proba(X_test)
found["the true probabilities"] = truth(X_test)
for name, q in found.items():
    loss = -np.log(np.clip(q[np.arange(2000), y_test], 1e-6, 1)).mean()
    off = np.abs(q - truth(X_test)).mean()
    print(f"{name:31} accuracy {np.mean(q.argmax(1) == y_test):.3f}, ", end="")
    print(f"log loss {loss:.3f}, off the truth by {off:.3f}")

# %%
# The probabilities as colours: what the model learned from 350 flowers beside the truth, and beside a forest. Grey is
# uncertain. Far from all flowers the model returns to the frequencies of the species, because it has seen nothing
# there. The forest is sure in many such places. The true probabilities are sure nearly everywhere.

side = np.linspace(-2.5, 4.5, 120)
places = np.stack(np.meshgrid(side, side - 0.6), -1).reshape(-1, 2)
colours = np.array([[0.20, 0.13, 0.53], [0.87, 0.80, 0.47], [0.80, 0.40, 0.47]])
grey = np.array([0.85, 0.85, 0.85])
figure, axes = plt.subplots(1, 3, figsize=(10, 3.7), sharey=True)
maps = (model.predict_proba(places), truth(places), other.predict_proba(places))
for panel, q, name in zip(axes, maps, ("SASGPClassifier", "the truth", "random forest"), strict=True):
    sure = ((q.max(1) - 1 / 3) * 1.5)[:, None]
    shades = sure * (q @ colours) + (1 - sure) * grey
    panel.imshow(shades.reshape(120, 120, 3), origin="lower", extent=(-2.5, 4.5, -3.1, 3.9), interpolation="bilinear")
    for i in range(3):
        panel.scatter(*X[y == i].T, s=11, color=colours[i], edgecolors="white", linewidths=0.5, label=SPECIES[i])
    panel.set(title=name, xlabel="petal length", xlim=(-2.5, 4.5), ylim=(-3.1, 3.9))
    panel.grid(visible=False)
axes[0].set_ylabel("petal width")
axes[0].legend(loc="lower left", markerscale=1.8, frameon=True, facecolor="white", framealpha=1)
plt.show()

# %%
# Do the probabilities mean what they say? Of the flowers that are given 80 %, about 80 % should be right. Most flowers
# are in the last bin, which is on the diagonal. In the middle the model is somewhat too sure; the bars show how few
# flowers those bins have.

plots.reliability(p.argmax(1) == y_test, p.max(1))

# %%
# Uncertainty that can be acted on: if the least certain cases go to a botanist, how good is the rest? The curves show
# the errors among the cases that a model keeps.

figure, axes = plt.subplots(figsize=(6.4, 3.8))
for (name, q), colour in zip(found.items(), ("C0", "C1", "C4", "#777777"), strict=True):
    wrong = (q.argmax(1) != y_test)[np.argsort(-q.max(1), kind="stable")]
    kept = np.arange(1, len(wrong) + 1)
    style = "--" if name.startswith("the true") else "-"
    axes.plot(100 * kept / len(wrong), 100 * np.cumsum(wrong) / kept, style, lw=1.8, color=colour, label=name)
axes.set(xlabel="cases that are decided by the model, %", ylabel="errors among them, %", xlim=(20, 100), ylim=(0, None))
axes.legend(loc="upper left")
plt.show()

# %%
# **What to read next.** :doc:`/regression` explains how classes become targets, and :doc:`/how-good-prediction` has
# MNIST with ten classes. :doc:`plot_regression` predicts numbers.
