"""The scikit-learn face: SASGP and GPLVM.

    model = SASGP(random_state=0).fit(X)
    Z = model.transform(X_new)
    mean, std = model.predict(Z, return_std=True)

Arrays go in and come out; tensors stay inside.
"""

from sasgp.estimators.sas import GPLVM, SASGP

__all__ = ["GPLVM", "SASGP"]
