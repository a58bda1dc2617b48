"""What is not imported until it is used. A process that loads less starts sooner; no test asserts a time."""

import gc
import json
import subprocess
import sys

import pytest

import sasgp

# For pictures, files, downloads, the command line and torch's compiler. scikit-learn imports scipy and pandas
FOR_OTHERS = {"matplotlib", "polars", "pooch", "cyclopts", "rich", "PIL", "h5py", "anndata", "umap"}
COMPILER = {"sympy", "torch._dynamo"}
UNUSED = FOR_OTHERS | COMPILER

SCRIPT = """
import json, sys
{}
print(json.dumps(sorted(sys.modules)))
"""

FIT = """
import numpy as np
from sasgp import SASGP
X = np.random.default_rng(0).normal(size=(60, 3))
model = SASGP(max_epochs=1, random_state=0).fit(X)
model.predict(model.transform(X[:2], refine=1), return_std=True)
model.score_samples(X[:2])
"""

# The outline of each kind of model is made without memory, on torch's device "meta"
LOAD = (
    FIT
    + """
from sasgp import VAE, BayesianGPLVM
for kind, settings in [(SASGP, {}), (SASGP, {"encoder": "table"}), (BayesianGPLVM, {}), (VAE, {})]:
    kind(max_epochs=1, random_state=0, **settings).fit(X * [1, 2, 9]).save("model.safetensors")
    kind.load("model.safetensors")
"""
)


def loaded(code, folder=None):
    """The modules that a new process has after some code."""
    line = [sys.executable, "-c", SCRIPT.format(code)]
    done = subprocess.run(line, check=True, capture_output=True, text=True, cwd=folder)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_package_alone_loads_nothing_heavy():
    assert not loaded("import sasgp") & {"numpy", "torch", "sklearn", *UNUSED}


def test_training_and_inference_load_no_more_than_they_use():
    modules = loaded(FIT)
    assert {"torch", "gpytorch", "sklearn", "sasgp.estimators.sas"} <= modules
    assert not modules & UNUSED
    assert not {f"sasgp.estimators.{name}" for name in ("classifier", "regressor", "imputer", "vae")} & modules


def test_loading_a_model_needs_no_compiler(tmp_path):
    assert not loaded(LOAD, tmp_path) & COMPILER


def test_every_estimator_is_found_where_it_is_said_to_be():
    from sasgp import estimators

    assert set(estimators._MODULES) == set(estimators.__all__) == set(dir(estimators)) == set(sasgp._ESTIMATORS)
    for name in estimators.__all__:
        assert getattr(estimators, name) is getattr(sasgp, name)
        assert getattr(estimators, name).__module__ == f"sasgp.estimators.{estimators._MODULES[name]}"
    with pytest.raises(AttributeError, match=r"'sasgp\.estimators' has no attribute 'SGP'"):
        _ = estimators.SGP


@pytest.mark.parametrize("collects", [True, False])
def test_the_collector_is_left_as_it_was(collects):
    before = gc.isenabled()
    try:
        (gc.enable if collects else gc.disable)()
        _ = sasgp.SASGP
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
