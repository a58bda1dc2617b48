"""Single cells from the command line: counts, barcodes, columns of obs, and latents in a copy of the file."""

import os
import re
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import polars as pl
import pytest
from command_line import FAST
from scipy.sparse import csr_matrix

from sasgp import SASGP
from sasgp.data.counts import SizeFactors

N, D = 60, 8

pytestmark = pytest.mark.filterwarnings("ignore:.*chained_assignment")  # anndata's own, when it makes a view


def cells(n=N, seed=0):
    draw = np.random.default_rng(seed)
    counts = draw.poisson(draw.gamma(1, 3, (n, 1)) * draw.gamma(2, 1, D)).astype(np.float32)
    obs = pd.DataFrame(
        {"kind": pd.Categorical(draw.choice(["B", "T"], n)), "batch": pd.Categorical(draw.choice(["x", "y"], n))},
        index=pd.Index([f"ACGT-{seed}-{i}" for i in range(n)], dtype=object),
    )
    var = pd.DataFrame({"highly_variable": np.arange(D) % 4 != 0}, index=[f"gene{d}" for d in range(D)])
    return anndata.AnnData(csr_matrix(counts), obs=obs, var=var)


@pytest.fixture(scope="module", autouse=True)
def text_of_pandas():
    """Let anndata write the text of pandas 3, which it reads either way."""
    with anndata.settings.override(allow_write_nullable_strings=True):
        yield


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a file of counts, a run on it, and what the command printed."""
    from sasgp import cli

    folder, before = tmp_path_factory.mktemp("cells"), Path.cwd()
    os.chdir(folder)
    try:
        cells().write_h5ad("cells.h5ad")
        assert cli.main(["fit", "cells.h5ad", "--labels", "kind", "--out", "run", *FAST]) == 0
    finally:
        os.chdir(before)
    return folder


def test_counts_are_recognised_and_scaled_to_the_median_of_training_cells(run, here, sasgp):
    adata, frame = cells(), pl.read_csv(run / "run" / "embedding.csv")
    model = SASGP.load(run / "run" / "model.safetensors")
    totals = np.asarray(adata.X.sum(1)).ravel()
    train = frame.filter(pl.col("split") == "train")["row"].to_numpy()
    assert 0 < len(train) < N
    assert model.size_factor_ == np.median(np.maximum(totals[train], 1))
    # Barcodes name the rows
    assert frame["id"].to_list() == adata.obs_names[frame["row"].to_numpy()].tolist()
    # A model of the command line finds its genes in an AnnData object
    np.testing.assert_allclose(model.transform(adata[:, ::-1])[train], model.embedding_, rtol=1e-5, atol=1e-6)
    assert model.feature_names_in_.tolist() == adata.var_names[adata.var["highly_variable"]].tolist()


def test_the_summary_says_that_counts_were_recognised(here, sasgp):
    cells().write_h5ad("cells.h5ad")
    out = sasgp("fit", "cells.h5ad", "--out", "run", "--test-fraction", "0", *FAST)
    total = SASGP.load("run/model.safetensors").size_factor_
    assert f"X holds counts x, and log(1 + x · {total:g} / total of the cell) is modelled" in out


def test_pages_are_coloured_by_columns_of_obs(run, here, sasgp):
    page = (run / "run" / "explorer.html").read_text()
    assert re.search(r'"name": ?"batch"', page)
    sasgp("explore", run / "run", "--data", run / "cells.h5ad", "--labels", "batch", "--out", "page.html")
    assert re.search(r'"name": ?"kind"', Path("page.html").read_text())


@pytest.mark.parametrize("refine", [0, 2])
def test_latents_go_into_a_copy_of_the_file(run, here, sasgp, refine):
    new = cells(20, seed=1)
    new.obsm["X_pca"] = np.ones((20, 3))
    new.write_h5ad("new.h5ad")
    before = Path("new.h5ad").read_bytes()
    sasgp("embed", run / "run", "new.h5ad", "--refine", str(refine), "--out", "with.h5ad")
    assert Path("new.h5ad").read_bytes() == before
    back, model = anndata.read_h5ad("with.h5ad"), SASGP.load(run / "run" / "model.safetensors")
    Z, std = model.transform(new, refine=refine, return_std=True)
    np.testing.assert_allclose(back.obsm["X_sasgp"], Z, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(back.obsm["X_sasgp_std"], std, rtol=1e-4, atol=1e-6)
    assert back.uns["X_sasgp"]["class"] == "SASGP"
    assert back.uns["X_sasgp"]["params"]["latents"] == "bayesian"
    np.testing.assert_array_equal(back.obsm["X_pca"], new.obsm["X_pca"])
    np.testing.assert_array_equal(back.X.toarray(), new.X.toarray())
    back.write_h5ad("again.h5ad")
    sasgp("embed", run / "run", "again.h5ad", "--out", "twice.h5ad")  # the older latents are replaced
    assert anndata.read_h5ad("twice.h5ad").obsm.keys() == back.obsm.keys()


def test_another_files_obsm_is_never_written_to(run, here, sasgp, error):
    cells(20, seed=1).write_h5ad("new.h5ad")
    with h5py.File("victim.h5", "w") as file:
        file.create_group("obsm")
    with h5py.File("new.h5ad", "a") as file:
        del file["obsm"]
        file["obsm"] = h5py.ExternalLink("victim.h5", "/obsm")
    assert "link to another file" in error("embed", run / "run", "new.h5ad", "--out", "with.h5ad")
    assert not Path("with.h5ad").exists()
    with h5py.File("victim.h5") as file:
        assert not len(file["obsm"])


def test_update_goes_on_with_barcodes_and_counts(run, here, sasgp):
    cells().write_h5ad("cells.h5ad")
    sasgp("fit", "cells.h5ad", "--labels", "kind", "--test-fraction", "0", "--out", "run", *FAST)
    before = SASGP.load("run/model.safetensors")
    new = cells(20, seed=1)
    new.write_h5ad("new.h5ad")
    sasgp("update", "run", "new.h5ad")
    model, frame = SASGP.load("run/model.safetensors"), pl.read_csv("run/embedding.csv")
    assert frame["id"].to_list()[-20:] == new.obs_names.tolist()
    assert model.size_factor_ == before.size_factor_
    np.testing.assert_allclose(model.embedding_, before.update(new).embedding_, rtol=1e-5, atol=1e-6)


def test_what_is_no_file_of_counts(run, here, error):
    new = cells(20, seed=1)
    new.X = csr_matrix(SizeFactors(10.0).scores(new.X, np.asarray(new.X.sum(1)).ravel()))
    new.write_h5ad("new.h5ad")
    assert "trained on counts, but new.h5ad holds none" in error("embed", run / "run", "new.h5ad", "--out", "z.csv")
    np.save("new.npy", np.zeros((3, 6), "float32"))
    message = error("embed", run / "run", "new.npy", "--out", "z.h5ad")
    assert "DATA must be a .h5ad file, too. Got new.npy" in message
