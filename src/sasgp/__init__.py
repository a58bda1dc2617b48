"""sasgp: Gaussian-process decoders trained with stochastic active sets.

    from sasgp import SASGP

The public surface is `sasgp.__all__` and the `__all__` of these modules: `sasgp.data`, `sasgp.metrics`,
`sasgp.evaluation`, `sasgp.plots`, `sasgp.explorer`, `sasgp.anndata` and `sasgp.estimators.callbacks`. Everything else
is private: it may change in any release.

Public names are loaded when they are first used, so that importing the package (and `sasgp --help`) does not wait for
torch.
"""

import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.estimators import GPLVM as GPLVM
    from sasgp.estimators import SASGP as SASGP
    from sasgp.estimators import VAE as VAE
    from sasgp.estimators import BayesianGPLVM as BayesianGPLVM
    from sasgp.estimators import SASGPClassifier as SASGPClassifier
    from sasgp.estimators import SASGPImputer as SASGPImputer
    from sasgp.estimators import SASGPRegressor as SASGPRegressor

__version__ = "0.1.0.dev0"

_ESTIMATORS = ("SASGP", "GPLVM", "BayesianGPLVM", "VAE", "SASGPImputer", "SASGPRegressor", "SASGPClassifier")

__all__ = [
    "GPLVM",
    "SASGP",
    "VAE",
    "BayesianGPLVM",
    "InputError",
    "SASGPClassifier",
    "SASGPImputer",
    "SASGPRegressor",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _ESTIMATORS:
        raise AttributeError(f"module 'sasgp' has no attribute {name!r}")
    # Importing makes hundreds of thousands of objects, all to stay. The collector would look at them again and again,
    # and find nothing, for a fifth of the time
    collects = gc.isenabled()
    gc.disable()
    try:
        return getattr(import_module("sasgp.estimators"), name)
    finally:
        if collects:
            gc.enable()


def __dir__() -> list[str]:
    return sorted(__all__)
