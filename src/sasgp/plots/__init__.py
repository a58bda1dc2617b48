"""Figures of a fitted model: its latent space and what is decoded there, its predictions, and how it was trained.

Each figure takes one call::

    from sasgp import plots

    plots.latent_space(model, labels=y).savefig("latent.png")
    plots.decoded_grid(model, (28, 28)).savefig("grid.png")
    plots.latent_with_images(model, (28, 28), labels=y).savefig("both.png")
    plots.reconstructions(model, X[:12], image_shape=(28, 28)).savefig("reconstructions.png")
    plots.training_curve(model.history_).savefig("curve.png")
    plots.relevance(model).savefig("relevance.png")
    plots.calibration(metrics.pit_counts(X, mean, std**2)).savefig("calibration.png")
    plots.evidence_curve(model.evidence_curve(X)).savefig("evidence.png")
    plots.geometry(model, labels=y).savefig("geometry.png")

    mean, low, high = regressor.predict(X, return_interval=0.9)
    plots.predicted(y, mean, low, high).savefig("predicted.png")
    plots.input_relevance(regressor.relevance_, names).savefig("inputs.png")
    plots.partial_dependence(regressor, X, ["age", "income"]).savefig("partial_dependence.png")
    plots.confusion(y, classifier.predict(X)).savefig("confusion.png")
    plots.reliability(classifier.predict(X) == y, classifier.predict_proba(X).max(1)).savefig("reliability.png")

    plt.style.use(plots.STYLE)  # for figures of your own, in the same colours

Every function returns a `matplotlib.figure.Figure`. A notebook shows it if it is the value of a cell; `display(figure)`
shows it elsewhere. None of them uses pyplot, so they need no display, and no figure has to be closed. Only
scikit-learn's display of partial dependence imports it.
"""

from sasgp.plots.calibration import calibration
from sasgp.plots.dependence import partial_dependence
from sasgp.plots.evidence import evidence_curve
from sasgp.plots.geometry import geometry
from sasgp.plots.latent import decoded_grid, latent_space, latent_with_images
from sasgp.plots.regression import confusion, input_relevance, predicted, reliability
from sasgp.plots.rows import contact_sheet, reconstructions
from sasgp.plots.style import STYLE
from sasgp.plots.training import relevance, training_curve

__all__ = [
    "STYLE",
    "calibration",
    "confusion",
    "contact_sheet",
    "decoded_grid",
    "evidence_curve",
    "geometry",
    "input_relevance",
    "latent_space",
    "latent_with_images",
    "partial_dependence",
    "predicted",
    "reconstructions",
    "relevance",
    "reliability",
    "training_curve",
]
