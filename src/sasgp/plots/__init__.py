"""Figures of a fitted decoder: its latent space, what is decoded there, and how it was trained.

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

Every function returns a `matplotlib.figure.Figure`. None of them uses pyplot, so they need no display, and no
figure has to be closed.
"""

from sasgp.plots.calibration import calibration
from sasgp.plots.evidence import evidence_curve
from sasgp.plots.geometry import geometry
from sasgp.plots.latent import decoded_grid, latent_space, latent_with_images
from sasgp.plots.rows import contact_sheet, reconstructions
from sasgp.plots.training import relevance, training_curve

__all__ = [
    "calibration",
    "contact_sheet",
    "decoded_grid",
    "evidence_curve",
    "geometry",
    "latent_space",
    "latent_with_images",
    "reconstructions",
    "relevance",
    "training_curve",
]
