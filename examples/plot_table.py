"""
A table with missing values and categories
==========================================

Fit a table as it comes, see what each column was taken for, read the map, and decode patients with intervals and
probabilities.
"""

# %%
# The table is made up, but looks like many in a clinic: ages, a skewed blood value, counts, yes or no, categories, and
# cells that are empty. Each patient has a diagnosis, on which nearly all columns depend. It is kept apart: the model
# does not see it.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from sasgp import SASGP, metrics, plots

plt.style.use(plots.STYLE)
draw = np.random.default_rng(0)
n = 700
group = draw.choice(3, n, p=[0.45, 0.3, 0.25])  # healthy, diabetes, heart failure
ill = np.where(group == 0, draw.normal(-0.6, 0.5, n), draw.normal(0.9, 0.6, n))
age = np.clip(draw.normal([48, 57, 70], 11, (n, 3))[np.arange(n), group], 18, 96)
sugar = np.array([5.1, 8.2, 5.7])[group] + 0.9 * ill * (group == 1) + draw.normal(0, 0.45, n)
heart = np.array([65, 62, 38])[group] - 5 * ill * (group == 2) + draw.normal(0, 4, n)
chances = np.array([[0.6, 0.35, 0.05], [0.1, 0.8, 0.1], [0.05, 0.2, 0.75]])[group]
ward = (draw.random((n, 1)) > chances.cumsum(1)).sum(1)
patients = pd.DataFrame(
    {
        "age": age.round(),
        "sex": draw.choice(["female", "male"], n),
        "bmi": (25 + 4.5 * (group == 1) + 1.5 * ill + draw.normal(0, 2.2, n)).round(1),
        "glucose": sugar.round(1),
        "ejection": heart.round(),
        "crp": np.exp(0.6 + 0.8 * ill + draw.normal(0, 0.4, n)).round(2),  # mg/l: skewed
        "ward": np.array(["surgery", "internal", "cardiology"])[ward],
        "visits": draw.poisson(np.exp(0.5 + 0.7 * ill + 0.008 * (age - 50))),
        "walks_alone": (heart + draw.normal(0, 6, n) > 42) & (age + draw.normal(0, 6, n) < 82),
    }
)
diagnosis = np.array(["healthy", "diabetes", "heart failure"])[group]
for name in ("glucose", "ejection", "crp", "bmi", "ward"):
    patients.loc[draw.random(n) < 0.15, name] = None  # not measured, not asked
train, test = patients[:550], patients[550:]
print(train.head(4).to_string(index=False))
print(f"\n{train.isna().to_numpy().sum()} of {train.size} cells are missing")

# %%
# ``fit`` takes the DataFrame as it is: no encoding, no scaling, no imputation. The report says what each column was
# taken for. If one is wrong, say what it holds: ``columns={"visits": "real"}``.

model = SASGP(active_set_size=100, batch_size=300, max_epochs=80, random_state=0).fit(train)
for name, kind, why in model.columns_.report():
    print(f"{name:12} {kind:9} {why}")

# %%
# The diagnosis was not in the table, but the map finds it: for held-out patients, the 15 nearest patients on the map
# tell it.

Z, Z_test = model.embedding_, model.transform(test)
accuracy = metrics.knn_accuracy(Z, diagnosis[:550], Z_test, diagnosis[550:], k=15)
most_frequent = np.mean(diagnosis[550:] == "healthy")
print(f"diagnoses that the neighbours tell: {accuracy:.0%}; always 'healthy': {most_frequent:.0%}")
plots.latent_space(model, labels=diagnosis[:550], title="550 patients")

# %%
# What does a place on the map mean? One small map for each column, in its own units. Glucose is high in one part and
# the ejection fraction of the heart low in another.

plots.decoded_grid(model)

# %%
# A held-out patient of the cardiology ward with a weak heart, decoded with 90 % intervals, and the probabilities of the
# levels. Empty cells would be no obstacle: the encoder reads what is there.

patient = test[(test["ward"] == "cardiology") & (test["ejection"] < 45)].iloc[[0]]
z = model.transform(patient)
decoded, low, high = (part.round(1) for part in model.predict(z, return_interval=0.9))
side_by_side = pd.concat([patient, decoded, low, high]).T
side_by_side.columns = ["patient", "decoded", "low", "high"]
print(side_by_side.to_string(), end="\n\n")
print(model.probabilities(z).filter(regex="sex|walks").round(2).to_string(index=False))

# %%
# An honest test: hide one value from each held-out patient and predict it from the others of the row. The numbers are
# compared with the mean of the column, and the intervals with what they promise.

figure, axes = plt.subplots(1, 3, figsize=(9.6, 3.4))
for panel, name, unit in zip(axes, ["glucose", "ejection", "crp"], ["mmol/l", "%", "mg/l"], strict=True):
    known = test[test[name].notna()]
    filled, low, high = model.impute(known.assign(**{name: np.nan}), return_interval=0.9)
    truth, guess = known[name].to_numpy(float), filled[name].to_numpy(float)
    ends = [low[name].to_numpy(float), high[name].to_numpy(float)]
    inside = np.mean((ends[0] <= truth) & (truth <= ends[1]))
    error = np.sqrt(np.mean((guess - truth) ** 2))
    print(f"{name:9} RMSE {error:.2f}, of the mean {np.std(truth):.2f}; {inside:.0%} of the truth in 90 % intervals")
    panel.plot([truth.min(), truth.max()], [truth.min(), truth.max()], color="#777777", lw=1, ls="--")
    panel.vlines(truth, *ends, color="C1", alpha=0.6, lw=1)
    panel.plot(truth, guess, "o", ms=3.5, color="C0")
    panel.set(xlabel=f"{name} that was hidden, {unit}", ylabel="predicted, with 90 % intervals")
axes[2].set(xscale="log", yscale="log")
plt.show()

# %%
# **What to read next.** :doc:`/tables` lists the kinds of columns and how they are recognised. :doc:`plot_imputation`
# fills in what is missing, and :doc:`plot_anomalies` finds rows that do not fit.
