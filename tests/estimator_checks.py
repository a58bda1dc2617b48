"""Estimators as scikit-learn's checks know them: without `predict`, which takes latents where the checks pass rows."""

from dataclasses import dataclass

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM


class _NoPredict:
    @property
    def predict(self):
        raise AttributeError("predict takes latents, not rows")


@dataclass(eq=False, repr=False)
class CheckedSASGP(_NoPredict, SASGP): ...


@dataclass(eq=False, repr=False)
class CheckedGPLVM(_NoPredict, GPLVM): ...


@dataclass(eq=False, repr=False)
class CheckedBayesianGPLVM(_NoPredict, BayesianGPLVM): ...


@dataclass(eq=False, repr=False)
class CheckedVAE(_NoPredict, VAE): ...
