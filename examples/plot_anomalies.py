"""
Find strange rows, and say what is strange about them
=====================================================

Score rows by their log density, compare them with the training rows, and name the column that does not fit.
"""

# %%
# A pump has eight sensors. Load and room temperature drive them all, so each says something about the others. In some
# new rows one sensor drifts. The drifted value stays well inside the range of that sensor, so no threshold on a single
# column can find it: it is wrong only given the rest of the row.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.ensemble import IsolationForest
from sklearn.metrics import roc_auc_score

from sasgp import SASGP, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)


def readings(n):
    load, room = draw.uniform(0.2, 1.0, n), draw.normal(20, 4, n)
    flow = 60 * load * (1 - 0.12 * load)
    table = {
        "speed, rpm": 1450 + 1350 * load,
        "flow, l/s": flow,
        "pressure, bar": 7.5 - 3.2 * load**2,
        "power, kW": 4 + 22 * load**2.2,
        "motor, °C": room + 18 + 38 * load**1.7,
        "bearing, °C": room + 11 + 16 * load,
        "vibration, mm/s": 1.1 + 1.5 * np.exp(-(((load - 0.62) / 0.09) ** 2)) + 0.9 * load,
        "current, A": 9 + 33 * load**1.8,
    }
    table = pd.DataFrame(table)
    return table + draw.normal(size=table.shape) * 0.03 * table.std().to_numpy()


train, new = readings(600), readings(400)
faulty, sensor = np.arange(60), draw.integers(0, 8, 60)  # the first 60 new rows have a fault
spread = train.std().to_numpy()
for row, d in zip(faulty, sensor, strict=True):
    value, (low, high) = new.iat[row, d], np.quantile(train.iloc[:, d], [0.02, 0.98])
    drift = draw.choice([-1, 1]) * draw.uniform(0.1, 0.35) * spread[d]
    new.iat[row, d] = value + drift if low < value + drift < high else value - drift

# %%
# The model is trained on rows without faults. ``score_samples`` is log p(row), in nats. A score means little by itself,
# so compare it with those of training rows: the percentile is the share of training rows that are stranger.

model = SASGP(active_set_size=200, batch_size=512, max_epochs=120, random_state=0).fit(train)
usual, scores = model.score_samples(train), model.score_samples(new)
percentile = 100 * np.searchsorted(np.sort(usual), scores) / len(usual)

is_fault = np.isin(np.arange(len(new)), faulty)
forest = IsolationForest(random_state=0).fit(train)
alarm = percentile < 1
print(f"AUROC: sasgp {roc_auc_score(is_fault, -scores):.3f}, ", end="")
print(f"isolation forest {roc_auc_score(is_fault, -forest.score_samples(new)):.3f}")
caught, false = alarm[is_fault].mean(), alarm[~is_fault].mean()
print(f"alarm below the 1st percentile: {caught:.0%} of the faults, {false:.1%} of the others")

# %%
# ``score_features`` is the log density of each cell given the latent of its row. What is strange about a row is what
# has a lower density than it usually has.

surprise = model.score_features(train).mean(0) - model.score_features(new)
found = surprise[faulty].argmax(1) == sensor
print(f"the drifted sensor is the strangest cell in {found.mean():.0%} of the faulty rows, {1 / 8:.0%} by chance")

# %%
# On the left are the scores of new rows, on the right the twelve strangest of them. A ring marks the sensor that really
# drifted.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.4, 4.6), width_ratios=[1, 1.25])
edges = np.linspace(max(scores.min(), usual.mean() - 45), scores.max(), 40)
clipped = np.clip(scores, edges[0], None)
left.hist([clipped[~is_fault], clipped[is_fault]], edges, stacked=True, color=["C1", "C4"], label=["no fault", "fault"])
left.axvline(np.quantile(usual, 0.01), color="#333333", lw=1, ls="--", label="1st percentile of training rows")
left.set(xlabel="log density of the row, nats", ylabel="new rows")
left.legend(loc="upper left")
strangest = np.argsort(scores)[:12]
shown = right.imshow(
    surprise[strangest], cmap="Reds", vmin=0, vmax=np.quantile(surprise[strangest], 0.97), aspect="auto"
)
right.set_xticks(range(8), [name.split(",")[0] for name in train.columns], rotation=35, ha="right")
right.set_yticks(range(12), [f"row {row}" for row in strangest])
right.grid(visible=False)
for line, row in enumerate(strangest):
    if is_fault[row]:
        right.plot(sensor[row], line, "o", ms=14, mfc="none", mec="C1", mew=2)
figure.colorbar(shown, label="less probable than usual, nats")
plt.show()

# %%
# One row in detail. The decoder says what the sensor should have shown, with a standard deviation.

row = int(strangest[0])
mean, std = (np.asarray(part)[0] for part in model.reconstruct(new.iloc[[row]], return_std=True))
for d in np.argsort(-surprise[row])[:3]:
    print(f"{train.columns[d]:16} reads {new.iat[row, d]:8.2f}, expected {mean[d]:8.2f} ± {std[d]:.2f}")

# %%
# **What to read next.** :doc:`/trust` has more about unusual rows and calibration, and :doc:`/how-good` compares with a
# VAE, PCA and others on images. On the command line this page is ``sasgp fit pump.csv --out runs/pump`` and ``sasgp
# score runs/pump new.csv --top 20``.
