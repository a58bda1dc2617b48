"""Single cells in files that anndata itself writes."""

import sys
from pathlib import Path

import anndata
import h5py
import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csc_matrix, csr_matrix
from test_readers import message

from sasgp import cli
from sasgp.data import blocks, h5ad, load

N, D = 7, 5
TYPES = ["B", "T", "B", "NK", "T", "B", "B"]
GENES = [f"gene{d}" for d in range(D)]


@pytest.fixture
def cells(tmp_path, monkeypatch):
    """Writes a file into an empty working folder, with columns of obs and var as given."""
    monkeypatch.chdir(tmp_path)
    X = np.random.default_rng(0).poisson(0.7, size=(N, D)).astype(np.float32)

    def cells(kind=np.asarray, obs=None, var=None, name="cells.h5ad", text=object):
        frames = {
            part: pd.DataFrame(columns or {}, index=pd.Index(list(names), dtype=text))
            for part, names, columns in (("obs", "abcdefg", obs), ("var", GENES, var))
        }
        with anndata.settings.override(allow_write_nullable_strings=True):
            anndata.AnnData(kind(X), **frames).write_h5ad(name)
        return X, name

    return cells


@pytest.mark.parametrize("block", [blocks.VALUES_AT_ONCE, 10, 1])
@pytest.mark.parametrize("text", [object, "string"])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix, csc_matrix])
def test_what_anndata_writes(cells, monkeypatch, kind, text, block):
    monkeypatch.setattr(blocks, "VALUES_AT_ONCE", block)
    X, name = cells(kind, text=text)
    data = load(name)
    np.testing.assert_array_equal(data.X, X)
    assert data.X.dtype == np.float32
    assert (data.name, data.columns, data.y, data.image_shape) == ("cells", tuple(GENES), None, None)


@pytest.mark.parametrize("kind", [np.asarray, csr_matrix, csc_matrix])
def test_highly_variable_genes_or_those_asked_for(cells, kind):
    X, name = cells(kind, var={"highly_variable": [True, False, False, True, True]})
    data = load(name)
    np.testing.assert_array_equal(data.X, X[:, [0, 3, 4]])
    assert data.columns == ("gene0", "gene3", "gene4")
    asked = load(name, columns=["gene4", "gene1"])
    np.testing.assert_array_equal(asked.X, X[:, [4, 1]])
    assert asked.columns == ("gene4", "gene1")
    assert load(name, columns=["others"]).columns == data.columns
    assert "lacks 1 of the 2 genes that are needed: other." in message(name, columns=["gene4", "other"])


@pytest.mark.parametrize(
    "values",
    [
        pd.Categorical(TYPES),
        np.array(TYPES, dtype=object),
        np.array(TYPES, dtype=object).astype("U2"),
        np.arange(N),
        pd.Categorical(np.arange(N) % 3),
        pd.array(np.arange(N), dtype="Int64"),
        np.arange(N) / 2,
        pd.array(np.arange(N) % 2 == 0, dtype="boolean"),
    ],
    ids=lambda values: f"{type(values).__name__}-{values.dtype}",
)
def test_labels_of_every_kind(cells, values):
    _, name = cells(obs={"cell_type": values, "other": np.zeros(N)})
    y = load(name, labels="cell_type").y
    np.testing.assert_array_equal(y, np.asarray(values))
    assert y.dtype.kind in "Uifb"
    assert load(name).y is None


def test_labels_by_their_name(cells):
    _, name = cells(obs={"label": pd.Categorical(TYPES)})
    assert load(name).y.tolist() == TYPES
    Path("y.txt").write_text("\n".join("0123456"))
    assert load(name, labels="y.txt").y.tolist() == list(range(N))
    cells(obs={"label": pd.Categorical(TYPES), "class": np.arange(N)})
    assert "class, label of obs may all hold the labels. Choose one with labels='class'." in message(name)


def test_what_is_wrong_with_a_file(cells, monkeypatch):
    _, name = cells(obs={"kind": pd.Categorical(["B", None, *TYPES[2:]])}, var={"highly_variable": np.zeros(D, bool)})
    assert "cell 2 has no label in column 'kind' of obs" in message(name, labels="kind")
    assert "a column of cells.h5ad (kind) or a file. Got 'kinds'. Did you mean 'kind'?" in message(name, labels="kinds")
    assert "marks no gene as highly_variable" in message(name)
    cells(obs={"kind": pd.Categorical([None] * N)})
    assert "cell 1 has no label" in message(name, labels="kind")
    with h5py.File(name, "a") as file:
        file["var"][file["var"].attrs["_index"]][1] = "gene0"
    assert "several genes are called 'gene0'. Call var_names_make_unique()" in message(name)
    Path("text.h5ad").write_text("no HDF5")
    assert "is damaged or not a .h5ad file" in message("text.h5ad")
    whole = Path(name).read_bytes()
    Path("half.h5ad").write_bytes(whole[: len(whole) // 2])
    assert "half.h5ad is damaged" in message("half.h5ad")
    with h5py.File("other.h5ad", "w") as file:
        file["X"] = np.ones((2, 2))
    assert "other.h5ad has no obs." in message("other.h5ad")
    with h5py.File("old.h5ad", "w") as file:  # as anndata did before 0.7
        file["X"] = np.ones((2, 2))
        for part in ("obs", "var"):
            file[part] = np.array([(b"a",), (b"b",)], dtype=[("index", "S1")])
    assert "before 0.7. Read it with a newer anndata and write it again" in message("old.h5ad")
    cells()
    with h5py.File(name, "a") as file:
        del file["X"]
        file.create_group("X").attrs["encoding-type"] = "new"
    assert "X has the encoding 'new'" in message(name)
    cells()
    monkeypatch.setattr(h5ad, "available", lambda: 100)
    assert "7 cells × 5 genes need 0.0 MiB of memory" in message(name)
    monkeypatch.setitem(sys.modules, "h5py", None)
    assert "pip install h5py" in message(name)


def test_a_run_finds_its_genes_in_another_file(cells, capsys):
    _, name = cells(obs={"cell_type": pd.Categorical(TYPES)}, var={"highly_variable": [True, False, False, True, True]})
    cells(csr_matrix, name="new.h5ad")  # which marks none
    fit = f"fit {name} --labels cell_type --max-epochs 2 --test-fraction 0 --random-state 0 --out run"
    for command in (fit, "embed run new.h5ad --out new.csv", f"embed run {name} --out same.csv"):
        assert cli.main(command.split()) == 0, capsys.readouterr().err
    new, same = (pd.read_csv(f"{part}.csv") for part in ("new", "same"))
    np.testing.assert_array_equal(new[["z0", "z1"]], same[["z0", "z1"]])
    assert same["label"].tolist() == TYPES


# ---------------------------------------------------------------------------------------------------- what comes along


def test_names_and_columns_of_cells(cells):
    columns = {
        "batch": pd.Categorical(["x", "y", "x", None, "y", "x", "x"]),
        "n_genes": np.arange(N) * 100,
        "share": np.arange(N) / 3,
        "type": np.array(TYPES, dtype=object),
    }
    _, name = cells(obs=columns)
    data = load(name, labels="type")
    assert data.ids.tolist() == list("abcdefg")
    assert list(data.metadata) == ["batch", "n_genes", "share"]  # classes first, and no labels twice
    assert data.metadata["batch"].tolist() == ["x", "y", "x", "missing", "y", "x", "x"]
    np.testing.assert_array_equal(data.metadata["n_genes"], columns["n_genes"])
    _, name = cells(obs={f"c{i:02}": np.arange(N) for i in range(14)})
    assert list(load(name).metadata) == [f"c{i:02}" for i in range(10)]


def test_a_column_that_nobody_asked_for_may_be_damaged(cells):
    _, name = cells(obs={"good": np.arange(N), "bad": np.arange(N)})
    with h5py.File(name, "a") as file:
        del file["obs/bad"]
        file["obs/bad"] = np.arange(3)
    assert list(load(name).metadata) == ["good"]


@pytest.mark.parametrize("block", [blocks.VALUES_AT_ONCE, 10])
@pytest.mark.parametrize("kind", [np.asarray, csr_matrix, csc_matrix])
def test_counts_have_totals_over_all_genes(cells, monkeypatch, kind, block):
    monkeypatch.setattr(blocks, "VALUES_AT_ONCE", block)
    X, name = cells(kind, var={"highly_variable": [True, False, False, True, True]})
    np.testing.assert_array_equal(load(name).totals, X.sum(1))
    cells(lambda X: kind(X / 2))
    assert load(name).totals is None
    cells(kind)
    with h5py.File(name, "a") as file:
        file["layers"].create_dataset("counts", data=X)
    assert load(name).totals is None
