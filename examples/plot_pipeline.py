"""
Pipelines, grid searches and DataFrames
=======================================

Use ``SASGP`` as a step of a scikit-learn pipeline, choose its settings by cross-validation, and get DataFrames back.
"""

# %%
# ``SASGP`` is a transformer. ``set_output`` decides what its latents come back as. With so few rows, each has a free
# latent (``encoder="table"``): that trains quickly, and new rows are placed by a search.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.base import clone
from sklearn.datasets import load_wine
from sklearn.decomposition import PCA
from sklearn.model_selection import GridSearchCV, StratifiedKFold, train_test_split
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import StandardScaler

from sasgp import SASGP, plots

plt.style.use(plots.STYLE)
X, y = load_wine(return_X_y=True, as_frame=True)
X_train, X_test, y_train, y_test = train_test_split(X, y, stratify=y, random_state=0)
quick = {"encoder": "table", "active_set_size": 60, "max_epochs": 60, "random_state": 0}

embed = Pipeline([("scale", StandardScaler()), ("latents", SASGP(**quick))]).set_output(transform="pandas")
print(embed.fit_transform(X_train).head(4))

# %%
# ``score`` is the mean log density of rows, so a grid search without labels maximises held-out log p(x). A classifier
# on top sees the latents alone. Each fold fits everything again on its own training rows, so nothing leaks from the
# rows it is judged by.

folds = StratifiedKFold(3, shuffle=True, random_state=0)
grid = {"latents__n_components": [1, 2, 3]}


def searched(*last):
    steps = [("scale", StandardScaler()), ("latents", last[0]), *(("classify", step) for step in last[1:])]
    return GridSearchCV(Pipeline(steps), grid, cv=folds).fit(X_train, y_train)


searches = {
    "SASGP, 7 neighbours": searched(SASGP(**quick), KNeighborsClassifier(7)),
    "PCA, 7 neighbours": searched(PCA(), KNeighborsClassifier(7)),
    "SASGP": searched(SASGP(**quick)),
    "PCA": searched(PCA()),  # its score is a log density, too
}
for name, search in searches.items():
    print(f"{name:20} best with {search.best_params_['latents__n_components']} components; ", end="")
    print(
        f"test rows: {search.score(X_test, y_test):.3f}",
        "nats a row" if search.score(X_test, y_test) < 0 else "accuracy",
    )

# %%
# The searches in a picture. Bars are standard deviations over the folds. The probabilistic PCA of scikit-learn is the
# linear model with the same number of dimensions; the difference in log p(x) is what nonlinear functions and a noise
# for each column bring.

figure, axes = plt.subplots(1, 2, figsize=(9.6, 3.8))
for i, (name, search) in enumerate(searches.items()):
    found, panel = search.cv_results_, axes[i // 2]
    place, colour = np.array([1, 2, 3]) + 0.04 * (i % 2), ["C0", "C4"][i % 2]
    panel.errorbar(
        place, found["mean_test_score"], found["std_test_score"], fmt="o-", capsize=3, color=colour, label=name
    )
    panel.set(xlabel="components", xticks=[1, 2, 3])
    panel.legend(loc="lower right")
axes[0].set_ylabel("accuracy in cross-validation")
axes[1].set_ylabel("held-out log p(x), nats a row")
plt.show()

# %%
# ``clone``, ``get_params`` and nested names work as for any estimator, so changing one setting is one line. Here a
# longer training with two dimensions, and the test wines in its latent space:

best = (
    clone(searches["SASGP"].best_estimator_).set_params(latents__n_components=2, latents__max_epochs=150).fit(X_train)
)
plots.latent_space(best[-1], best.transform(X_test), labels=load_wine().target_names[y_test])

# %%
# **What to read next.** :doc:`/guide` has all methods. :doc:`plot_imputation` shows ``SASGPImputer``, which is a step
# of pipelines, too, and :doc:`plot_regression` a regressor. ``n_components="auto"`` chooses the number of dimensions
# without a search: :doc:`/trust`.
