"""What is not imported until it is used. A process that loads less starts sooner; no test asserts a time."""

import gc
import json
import subprocess
import sys

import pytest

import sasgp

# For pictures, files, downloads, the command line and torch's compiler. scikit-learn imports scipy and pandas
UNUSED = {"matplotlib", "polars", "pooch", "cyclopts", "rich", "PIL", "h5py", "anndata", "umap", "torch._dynamo"}

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


def loaded(code):
    """The modules that a new process has after some code."""
    done = subprocess.run([sys.executable, "-c", SCRIPT.format(code)], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_the_package_alone_loads_nothing_heavy():
    assert not loaded("import sasgp") & {"numpy", "torch", "sklearn", *UNUSED}


def test_training_and_inference_load_no_more_than_they_use():
    modules = loaded(FIT)
    assert {"torch", "gpytorch", "sklearn", "sasgp.estimators.sas"} <= modules
    assert not modules & UNUSED
    assert not {f"sasgp.estimators.{name}" for name in ("classifier", "regressor", "imputer", "vae")} & modules


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
