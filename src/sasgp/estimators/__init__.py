"""The scikit-learn estimators: SASGP, GPLVM, SASGPImputer, SASGPRegressor, SASGPClassifier, BayesianGPLVM and VAE.

    model = SASGP(random_state=0).fit(X)
    Z = model.transform(X_new)
    mean, std = model.predict(Z, return_std=True)

Arrays go in and come out; tensors stay inside.
"""

from sasgp.estimators.classifier import SASGPClassifier
from sasgp.estimators.imputer import SASGPImputer
from sasgp.estimators.inducing import BayesianGPLVM
from sasgp.estimators.regressor import SASGPRegressor
from sasgp.estimators.sas import GPLVM, SASGP
from sasgp.estimators.vae import VAE

__all__ = ["GPLVM", "SASGP", "VAE", "BayesianGPLVM", "SASGPClassifier", "SASGPImputer", "SASGPRegressor"]
