"""Embeddings of single cells, where scanpy keeps them.

One function trains a model, and places other cells::

    import sasgp.anndata

    model = sasgp.anndata.embed(adata, random_state=0)  # writes adata.obsm["X_sasgp"]
    sasgp.anndata.embed(other, model)                   # the same latent space

Then `scanpy.pl.embedding(adata, "X_sasgp")` draws it, and `scanpy.pp.neighbors(adata, use_rep="X_sasgp")` uses it.
"""

from typing import Any

from sasgp.data.cells import is_anndata
from sasgp.errors import InputError
from sasgp.estimators import SASGP
from sasgp.estimators.cells import provenance

__all__ = ["embed"]


def embed(adata: Any, model: Any = None, key_added: str = "X_sasgp", *, refine: int = 0, **settings: Any) -> Any:
    """Write the latents of cells to `adata.obsm[key_added]`, and train a model for them if there is none.

    `adata.obsm[key_added + "_std"]` gets the standard deviations of Bayesian latents, and `adata.uns[key_added]` the
    version, class and settings of the model.

    Parameters
    ----------
    adata : AnnData
        If genes are marked as highly variable and there is no model, these are used. A model finds its genes by name.
    model : SASGP, GPLVM, BayesianGPLVM or VAE, optional
        A fitted model, or one to be fitted. None: SASGP with the `settings`.
    key_added : str
        Name of the latents in `adata.obsm`.
    refine : int
        As for `transform`.
    **settings
        Settings of SASGP, if there is no model.

    Returns
    -------
    SASGP or the class of `model`
        The fitted model.
    """
    if not is_anndata(adata):
        raise InputError(f"adata must be an AnnData object. Got {type(adata).__name__}.", argument="adata")
    if model is not None and settings:
        raise InputError(
            f"Settings are for a new model, but there is one. Leave out {', '.join(settings)}, or leave out the model.",
            argument="model",
        )
    model = SASGP(**settings) if model is None else model
    if not model.__sklearn_is_fitted__():
        model.fit(adata)
    if model.latents == "bayesian":
        Z, std = model.transform(adata, refine=refine, return_std=True)
        adata.obsm[f"{key_added}_std"] = std
    else:
        Z = model.transform(adata, refine=refine)
    adata.obsm[key_added] = Z
    adata.uns[key_added] = provenance(model)
    return model
