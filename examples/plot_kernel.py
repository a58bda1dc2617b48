"""
A kernel of your own: seasons, trends and circles
=================================================

Compose a kernel with GPyTorch: forecast a series with trend and seasons, and give a latent space a period.
"""

# %%
# A monthly series rises, swings with the year, and wobbles over some years, like carbon dioxide on a mountain. It is
# made up, so that the future is known: 25 years to learn from, and 10 to predict. A kernel says what may happen: here a
# smooth trend, *plus* a season that may slowly change its shape (periodic *times* smooth), *plus* a wobble. Kernels of
# your own start from the values they have and work on inputs as they are, so give them sensible values, in years.

import matplotlib.pyplot as plt
import numpy as np
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from sklearn.manifold import SpectralEmbedding

from sasgp import SASGP, SASGPRegressor, metrics, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
years = np.arange(0, 35, 1 / 12)
season = 3.0 * np.cos(2 * np.pi * years) + 1.2 * np.sin(4 * np.pi * years)
wobble = 0.8 * np.sin(2 * np.pi * years / 3.7) + 0.5 * np.cos(2 * np.pi * years / 2.3)
series = 340 + 1.3 * years + 0.014 * years**2 + season + wobble + draw.normal(0, 0.3, len(years))
past = years < 25
t, y = years[:, None], series


def smooth(lengthscale, amplitude):
    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.lengthscale, kernel.outputscale = lengthscale, amplitude
    return kernel


yearly = PeriodicKernel()
yearly.period_length, yearly.lengthscale = 1.0, 0.7
composed = smooth(30.0, 10.0) + ScaleKernel(yearly * smooth(40.0, 1.0)) + smooth(1.0, 0.05)

# %%
# Both models see the same 300 months. The first has the default kernel, which knows nothing of seasons.

models = {
    "default kernel": SASGPRegressor(max_epochs=120, random_state=0),
    "trend + season + wobble": SASGPRegressor(kernel=composed, max_epochs=120, random_state=0),
}
figure, axes = plt.subplots(2, 1, figsize=(8.6, 6.2), sharex=True)
for panel, (name, model) in zip(axes, models.items(), strict=True):
    model.fit(t[past], y[past])
    mean, low, high = model.predict(t, return_interval=0.9)
    error = np.sqrt(np.mean((mean - y)[~past] ** 2))
    inside = np.mean(((low <= y) & (y <= high))[~past])
    print(f"{name:24} RMSE of the future {error:5.2f}, {inside:.0%} of it in the 90 % intervals")
    panel.axvspan(25, 35, color="#f2f2f2")
    panel.fill_between(years, low, high, color="C1", alpha=0.5, lw=0, label="90 % interval")
    panel.plot(years, mean, color="C0", lw=1.2, label="mean")
    panel.plot(years, y, ".", color="C4", ms=2.5, label="observed; grey: not used in training")
    panel.set(title=name, ylabel="value", ylim=(325, 425), xlim=(0, 35))
axes[1].set_xlabel("years")
axes[0].legend(loc="upper left")
plt.show()

# %%
# The composed kernel forecasts far better. Its intervals are somewhat too narrow in the end, because the series rises
# faster and faster, which a smooth trend does not expect. The fitted kernel can be read: each part has its learned
# numbers.

trend, swing, rest = models["trend + season + wobble"].kernel_.kernels
print(f"period of the season {swing.base_kernel.kernels[0].period_length.item():.3f} years")
print(f"lengthscale of the trend {trend.base_kernel.lengthscale.item():.0f} years, of the wobble ", end="")
print(f"{rest.base_kernel.lengthscale.item():.2f} years")

# %%
# Latent spaces take the same kernels. Twenty sensors stand around a machine that turns, and each row is one moment. The
# phase of the turn is a circle. A periodic kernel says that z and z + period are the same place, so one latent
# dimension can hold a circle. From the default start the circle may tear, so start from the circle: ``init`` takes an
# array [N, 1], here the angle of each row in a spectral embedding with two dimensions. Initial latents are scaled to a
# standard deviation of 1. Evenly spread angles then have a range of √12, so that is the first period. A network cannot
# jump where the circle is cut open, so each row gets a z of its own: ``encoder="table"``.

place = np.linspace(0, 2 * np.pi, 20, endpoint=False)
phase = draw.uniform(0, 2 * np.pi, 300)
apart = phase[:, None] - place
X = np.exp(2.5 * (np.cos(apart) - 1)) + 0.25 * np.cos(2 * apart + 1) + draw.normal(0, 0.05, apart.shape)

plane = SpectralEmbedding(2, n_neighbors=10, random_state=0).fit_transform(X)
start = np.arctan2(plane[:, 1], plane[:, 0])

turn = PeriodicKernel()
turn.period_length, turn.lengthscale = np.sqrt(12), 0.5
circle = SASGP(
    n_components=1,
    kernel=ScaleKernel(turn),
    init=start[:, None],
    encoder="table",
    active_set_size=100,
    batch_size=300,
    max_epochs=150,
    random_state=0,
)
Z = circle.fit_transform(X)
period = circle.kernel_.base_kernel.period_length.item()
angle = 2 * np.pi * Z[:, 0] / period
on_circle = np.column_stack([np.cos(angle), np.sin(angle)])
r2 = [metrics.knn_r2(on_circle[:200], f(phase[:200]), on_circle[200:], f(phase[200:])) for f in (np.cos, np.sin)]
print(f"learned period {period:.2f}; R² of the true phase from its neighbours on the circle {np.mean(r2):.3f}")

# %%
# On the left, z follows the phase once around. It jumps where a period ends, and has a small gap where the circle was
# cut open. On the right, the pulse passes all twenty sensors in each period. The second period repeats the first, also
# where there are no training rows. An ordinary kernel would end where its rows end.

figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.8), width_ratios=[1, 1.5])
left.scatter(np.degrees(phase), Z[:, 0] % period, s=9, color="C0")
left.set(xlabel="true phase, degrees", ylabel="$z$ modulo the period", xticks=[0, 90, 180, 270, 360])
line = np.linspace(-period, period, 160)[:, None]
shown = right.imshow(circle.predict(line).T, aspect="auto", cmap="viridis", extent=(-period, period, 19.5, -0.5))
right.plot(Z[:, 0], np.full(len(Z), 19.0), "|", color="white", ms=5)
right.set(xlabel="$z$; white ticks are the training rows", ylabel="sensor")
right.grid(visible=False)
figure.colorbar(shown, label="decoded signal")
plt.show()

# %%
# **What to read next.** :doc:`/kernels-and-encoders` lists the named kernels. :doc:`plot_encoder` has an encoder of
# your own, and :doc:`plot_motion` has a circle in two latent dimensions, without a period.
