"""The public surface, written down once: a name that comes or goes has to come or go here, too."""

import importlib
import re
from pathlib import Path

import pytest

import sasgp

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]

SURFACE = {
    "sasgp": {
        "GPLVM",
        "SASGP",
        "VAE",
        "BayesianGPLVM",
        "InputError",
        "SASGPClassifier",
        "SASGPImputer",
        "SASGPRegressor",
        "__version__",
    },
    "sasgp.data": {"NAMES", "Dataset", "load"},
    "sasgp.metrics": {
        "bits_per_value",
        "continuity",
        "coverage",
        "knn_accuracy",
        "knn_r2",
        "mae",
        "neighbour_recall",
        "nlpd",
        "pit_counts",
        "rmse",
        "silhouette",
        "triplet_accuracy",
        "trustworthiness",
    },
    "sasgp.evaluation": {"structure"},
    "sasgp.plots": {
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
    },
    "sasgp.explorer": {"Explorer", "explore"},
    "sasgp.anndata": {"embed"},
    "sasgp.estimators.callbacks": {"Callback", "History", "TensorBoard", "combined"},
}
# Of an estimator: what `dir` shows beyond scikit-learn's own, besides settings and fitted attributes
METHODS = {
    "explorer",
    "fit",
    "fit_transform",
    "impute",
    "inverse_transform",
    "load",
    "posterior_samples",
    "predict",
    "predict_scores",
    "probabilities",
    "reconstruct",
    "sample",
    "save",
    "score",
    "score_features",
    "score_samples",
    "transform",
}
GEOMETRY = {"distance", "geodesic", "length", "metric", "volume"}
OWN_METHODS = {
    "SASGP": {"evidence", "evidence_curve", "update"} | GEOMETRY,
    "GPLVM": {"evidence", "evidence_curve", "update"} | GEOMETRY,
    "BayesianGPLVM": GEOMETRY,
    "VAE": set(),
}


@pytest.mark.parametrize("module", SURFACE)
def test_a_module_offers_what_is_written_down(module):
    found = importlib.import_module(module)
    assert set(found.__all__) == SURFACE[module]
    assert all(hasattr(found, name) for name in SURFACE[module])
    assert set(dir(sasgp)) == SURFACE["sasgp"]


def test_the_package_names_its_public_modules():
    assert set(re.findall(r"`(sasgp\.[a-z.]+)`", sasgp.__doc__ or "")) == set(SURFACE) - {"sasgp"}


@pytest.mark.parametrize("name", OWN_METHODS)
def test_an_estimator_has_the_methods_that_are_written_down(name):
    cls = getattr(sasgp, name)
    ours = {key for base in cls.__mro__ if base.__module__.startswith("sasgp.") for key in vars(base)}
    methods = {key for key in ours if not key.startswith("_") and callable(getattr(cls, key)) and not key.endswith("_")}
    theirs = {"set_fit_request", "set_predict_request", "set_transform_request"}  # made by scikit-learn
    settings = {"encoder_rate", "torch_device"} | set(cls.__init__.__annotations__) | theirs
    assert methods - settings == METHODS | OWN_METHODS[name]
    fields = set(cls.__dataclass_fields__)
    attributes = {key for key in ours if isinstance(getattr(cls, key), property) and not key.startswith("_")} - fields
    kernel = {"kernel_", "relevance_"} if name != "VAE" else set()
    positions = {"support_size_", "missed_share_"} if "update" in OWN_METHODS[name] else set()
    assert attributes == {"n_components_", "n_scores_", "noise_"} | kernel | positions


@pytest.mark.parametrize("page", PAGES, ids=[page.name for page in PAGES])
def test_pages_name_only_what_is_public(page):
    for module, names in re.findall(r"from (sasgp[\w.]*) import ([\w, ]+)", page.read_text()):
        for name in re.split(r",\s*", names.strip()):
            assert name in SURFACE.get(module, ()) or f"{module}.{name}" in SURFACE, f"{module}.{name} is private"
