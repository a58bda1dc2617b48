"""AnnData objects where arrays go: genes by name, counts as scores, and latents where scanpy keeps them."""

import re
import sys

import anndata
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_matrix, csr_matrix

import sasgp.anndata
from sasgp import SASGP, InputError
from sasgp.data.counts import SizeFactors

N, D = 60, 12
SETTINGS = {"max_epochs": 3, "random_state": 0}


def cells(X, **var):
    frames = {
        "obs": pd.DataFrame(index=pd.Index([f"cell{n}" for n in range(X.shape[0])], dtype=object)),
        "var": pd.DataFrame(var, index=pd.Index([f"gene{d}" for d in range(D)], dtype=object)),
    }
    return anndata.AnnData(X, **frames)


@pytest.fixture(scope="module")
def counts():
    draw = np.random.default_rng(0)
    return draw.poisson(draw.gamma(1, 2, (N, 1)) * draw.gamma(2, 1, D)).astype(np.float32)


@pytest.fixture(scope="module")
def values(counts):
    return np.log1p(counts) / 2


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix, csc_matrix])
def test_values_are_taken_as_they_are(values, kind):
    model = SASGP(**SETTINGS).fit(cells(kind(values)))
    assert model.size_factor_ is None
    np.testing.assert_array_equal(model.embedding_, SASGP(**SETTINGS).fit(values).embedding_)
    assert model.feature_names_in_.tolist() == [f"gene{d}" for d in range(D)]


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix])
def test_genes_are_found_by_name(values, kind, tmp_path):
    marked = np.arange(D) % 3 == 0
    model = SASGP(**SETTINGS).fit(cells(kind(values), highly_variable=marked))
    np.testing.assert_array_equal(model.embedding_, SASGP(**SETTINGS).fit(values[:, marked]).embedding_)
    model.save(tmp_path / "m.safetensors")
    other = cells(kind(values))[:, ::-1]  # a view, in another order and without marks
    for each in (model, SASGP.load(tmp_path / "m.safetensors")):
        np.testing.assert_array_equal(each.transform(other), model.transform(cells(values)))
    with pytest.raises(InputError, match=re.escape("lacks 2 of the 4 genes that are needed: gene6, gene9")):
        model.transform(cells(values)[:, :6])
    renamed = cells(values)
    renamed.var_names = [f"ENSG{d}" for d in range(D)]
    with pytest.raises(InputError, match="has none of the 4 genes"):
        model.transform(renamed)
    with pytest.raises(InputError, match="fitted without gene names, so it cannot choose its 4 features among the 12"):
        SASGP(max_epochs=1).fit(values[:, marked]).transform(other)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix, csc_matrix])
def test_counts_become_scores(counts, kind, tmp_path):
    marked = np.arange(D) % 3 == 0
    model = SASGP(**SETTINGS).fit(cells(kind(counts), highly_variable=marked))
    totals = counts.sum(1)  # over all genes
    assert model.size_factor_ == np.median(np.maximum(totals, 1))
    scores = SizeFactors(model.size_factor_).scores(counts[:, marked], totals)
    np.testing.assert_array_equal(model.embedding_, SASGP(**SETTINGS).fit(scores).embedding_)
    # Another set of cells is scaled to the median of the training cells
    model.save(tmp_path / "m.safetensors")
    loaded = SASGP.load(tmp_path / "m.safetensors")
    assert loaded.size_factor_ == model.size_factor_
    some = cells(kind(counts))[5:20]
    np.testing.assert_array_equal(loaded.transform(some), _quiet(loaded.transform, scores[5:20]))
    with pytest.raises(InputError, match="trained on counts, but X of the AnnData object does not hold counts"):
        model.transform(cells(counts + 0.5))


@pytest.mark.parametrize("ask", [{}, {"n_samples": 0}, {"n_samples": 0, "neighbours": 9}])
def test_densities_are_of_counts(counts, ask):
    """p(x) = p(s(x)) |∂s/∂x|, here with the derivative by differences of s."""
    adata, totals = cells(counts), np.maximum(counts.sum(1, dtype="float64"), 1)
    model = SASGP(**SETTINGS, dtype="float64").fit(adata)

    def s(x):
        return np.log1p(x * model.size_factor_ / totals[:, None])

    x = counts.astype("float64")
    slope = (s(x + 1e-5) - s(x - 1e-5)) / 2e-5
    scores = SizeFactors(model.size_factor_).scores(counts, counts.sum(1))
    of_scores, of_counts = (
        _quiet(model.score_samples, X, **ask | ({"data": X} if "neighbours" in ask else {})) for X in (scores, adata)
    )
    np.testing.assert_allclose(of_counts, of_scores + np.log(slope).sum(1), rtol=1e-5, atol=1e-5)


def test_a_layer_of_counts_says_that_x_holds_something_else(counts):
    adata = cells(counts)
    adata.layers["counts"] = counts.copy()
    assert SASGP(max_epochs=1).fit(adata).size_factor_ is None


def test_what_cannot_be_used(values):
    with pytest.raises(InputError, match="marks no gene as highly_variable"):
        SASGP().fit(cells(values, highly_variable=np.zeros(D, bool)))
    with pytest.raises(InputError, match="has no X"):
        SASGP().fit(anndata.AnnData(obs=pd.DataFrame(index=["a", "b"])))
    twice = cells(values)
    twice.var_names = ["gene"] * D
    with pytest.raises(InputError, match="Several genes of the AnnData object are called 'gene'"):
        SASGP().fit(twice)


def test_a_file_that_stays_on_disk(counts, tmp_path):
    cells(csr_matrix(counts)).write_h5ad(tmp_path / "x.h5ad")
    backed = anndata.read_h5ad(tmp_path / "x.h5ad", backed="r")
    model = SASGP(**SETTINGS).fit(cells(counts))
    np.testing.assert_array_equal(model.transform(backed), model.embedding_)
    np.testing.assert_array_equal(model.score_samples(backed), model.score_samples(cells(counts)))


@pytest.mark.parametrize("latents", ["bayesian", "point"])
def test_embed_writes_what_scanpy_reads(counts, latents, tmp_path):
    adata = cells(csr_matrix(counts))
    model = sasgp.anndata.embed(adata, latents=latents, **SETTINGS)
    np.testing.assert_array_equal(adata.obsm["X_sasgp"], model.embedding_)
    adata.write_h5ad(tmp_path / "y.h5ad")
    back = anndata.read_h5ad(tmp_path / "y.h5ad")
    np.testing.assert_array_equal(back.obsm["X_sasgp"], model.embedding_)
    assert ("X_sasgp_std" in back.obsm) == (latents == "bayesian")
    if latents == "bayesian":
        np.testing.assert_array_equal(back.obsm["X_sasgp_std"], model.transform(adata, return_std=True)[1])
    uns = back.uns["X_sasgp"]
    assert (uns["sasgp"], uns["class"], uns["params"]["max_epochs"]) == (sasgp.__version__, "SASGP", 3)
    assert uns["size_factor"] == model.size_factor_
    other = cells(counts)[:7].copy()
    assert sasgp.anndata.embed(other, model, key_added="X_z", refine=2) is model
    np.testing.assert_array_equal(other.obsm["X_z"], model.transform(other, refine=2))
    with pytest.raises(InputError, match="Leave out max_epochs, or leave out the model"):
        sasgp.anndata.embed(other, model, max_epochs=3)
    with pytest.raises(InputError, match="must be an AnnData object"):
        sasgp.anndata.embed(counts)


def test_the_explorer_names_the_genes(values):
    page = SASGP(**SETTINGS).fit(cells(values)).explorer(cells(csr_matrix(values))).content
    assert page["features"] == [f"gene{d}" for d in range(D)]


def test_anndata_is_not_needed(values, monkeypatch):
    monkeypatch.setitem(sys.modules, "anndata", None)  # importing it would fail
    assert SASGP(max_epochs=1).fit(values).size_factor_ is None


def _quiet(method, X, **settings):
    """Without scikit-learn's warning about an array for a model that knows names."""
    names = method.__self__.__dict__.pop("feature_names_in_")
    try:
        return method(X, **settings)
    finally:
        method.__self__.feature_names_in_ = names
