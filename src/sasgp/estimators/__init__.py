"""The scikit-learn estimators: SASGP, GPLVM, SASGPImputer, SASGPRegressor, SASGPClassifier, BayesianGPLVM and VAE.

    model = SASGP(random_state=0).fit(X)
    Z = model.transform(X_new)
    mean, std = model.predict(Z, return_std=True)

Arrays go in and come out; tensors stay inside. Each class is loaded when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sasgp.estimators.classifier import SASGPClassifier
    from sasgp.estimators.imputer import SASGPImputer
    from sasgp.estimators.inducing import BayesianGPLVM
    from sasgp.estimators.regressor import SASGPRegressor
    from sasgp.estimators.sas import GPLVM, SASGP
    from sasgp.estimators.vae import VAE

__all__ = ["GPLVM", "SASGP", "VAE", "BayesianGPLVM", "SASGPClassifier", "SASGPImputer", "SASGPRegressor"]

_MODULES = {
    "GPLVM": "sas",
    "SASGP": "sas",
    "VAE": "vae",
    "BayesianGPLVM": "inducing",
    "SASGPClassifier": "classifier",
    "SASGPImputer": "imputer",
    "SASGPRegressor": "regressor",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'sasgp.estimators' has no attribute {name!r}")
    return getattr(import_module(f"sasgp.estimators.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
