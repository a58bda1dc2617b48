"""sasgp: Gaussian-process decoders trained with stochastic active sets.

    from sasgp import SASGP

Public names are loaded when they are first asked for, so that importing the package (and `sasgp --help`) does not
wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sasgp.estimators import GPLVM as GPLVM
    from sasgp.estimators import SASGP as SASGP
    from sasgp.estimators import VAE as VAE
    from sasgp.estimators import BayesianGPLVM as BayesianGPLVM

__version__ = "0.1.0.dev0"

_HOME = dict.fromkeys(("SASGP", "GPLVM", "BayesianGPLVM", "VAE"), "sasgp.estimators")

__all__ = ["GPLVM", "SASGP", "VAE", "BayesianGPLVM", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'sasgp' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
