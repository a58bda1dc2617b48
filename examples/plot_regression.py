"""
Regression with intervals that hold
===================================

Predict a number, say how far off it may be, and see which inputs matter.
"""

# %%
# Friedman's function has ten inputs, of which five matter, and noise of a known size. So what the model says can be
# compared with the truth: the errors, the intervals and the relevant inputs.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_friedman1
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import train_test_split

from sasgp import SASGPRegressor, plots

plt.style.use(plots.STYLE)
X, y = make_friedman1(1000, n_features=10, noise=1.0, random_state=0)
X_train, X_test, y_train, y_test = train_test_split(X, y, train_size=300, random_state=0)

model = SASGPRegressor(max_epochs=250, random_state=0).fit(X_train, y_train)
mean, low, high = model.predict(X_test, return_interval=0.9)

# %%
# Held-out rows, beside gradient boosting and a linear model. The noise has a standard deviation of 1, and no method can
# have an RMSE below that.


def rmse(guess):
    return np.sqrt(np.mean((guess - y_test) ** 2))


print(f"RMSE: SASGPRegressor {rmse(mean):.2f}, ", end="")
for other in (HistGradientBoostingRegressor(random_state=0), RidgeCV()):
    print(f"{type(other).__name__} {rmse(other.fit(X_train, y_train).predict(X_test)):.2f}", end=", ")
print("the true function 1.00")
for level in (0.5, 0.9, 0.99):
    _, a, b = model.predict(X_test, return_interval=level)
    print(f"{np.mean((a <= y_test) & (y_test <= b)):.1%} of the held-out targets in {level:.0%} intervals")

# %%
# Predictions against observations, with 90 % intervals.

plots.predicted(y_test, mean, low, high, name="y")

# %%
# The spread of the inputs in lengthscales of the kernel says along which inputs the function bends: x0, x1 and x2. A
# straight line has a long lengthscale, so x3 and x4 look here like the five inputs that do not matter. Read this figure
# together with the next.

names = [f"x{i}" for i in range(10)]
plots.input_relevance(model.relevance_, names)

# %%
# Partial dependence: the average prediction if one input has a given value. The truth is drawn in orange: a parabola in
# x2, a line in x3, nothing in x7.

figure = plots.partial_dependence(model, X_train, [2, 3, 7], n_rows=300)
t = np.linspace(0.05, 0.95, 50)
average = {2: 20 * (t - 0.5) ** 2, 3: 10 * t, 7: 0 * t}
base = {2: 20 / 12, 3: 5.0, 7: 0.0}  # means of these terms
for axes, d in zip(figure.axes, average, strict=False):
    axes.plot(t, y_train.mean() + average[d] - base[d], color="#EE7733", lw=1.5, ls="--")
figure

# %%
# Where there are no training rows, the interval widens. A model that is asked far from its data should say so.

slice_ = np.full((200, 10), 0.5)
slice_[:, 3] = np.linspace(-2, 3, 200)
mean, low, high = model.predict(slice_, return_interval=0.9)
figure, axes = plt.subplots(figsize=(6.4, 3.4))
axes.axvspan(0, 1, color="#eeeeee", label="where the training rows are")
axes.fill_between(slice_[:, 3], low, high, color="C1", alpha=0.8, lw=0, label="90 % interval")
axes.plot(slice_[:, 3], mean, color="C0", lw=1.8, label="mean")
axes.set(xlabel="x3, all other inputs at ½", ylabel="y")
axes.legend(loc="upper left")
plt.show()

# %%
# **What to read next.** :doc:`/regression` says how it works and when gradient boosting is better, and
# :doc:`/how-good-prediction` compares them on seven tables. :doc:`plot_classification` is about classes.
