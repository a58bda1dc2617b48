"""An index over rows: nearest ones against brute force; a file beside the model, its own and whole or refused."""

import copy
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import NearestNeighbors

from sasgp import SASGP
from sasgp.data.rows import ArrayRows
from sasgp.errors import InputError
from sasgp.estimators import neighbours

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def X():
    return (load_digits().data / 16).astype(np.float32)


@pytest.fixture(scope="module")
def model(X):
    return SASGP(encoder=torch.nn.Linear(64, 2), latents="point", max_epochs=2, random_state=0).fit(X[:200])


def index(X, Z=None):
    return neighbours.build(ArrayRows(X, torch.float32, CPU), np.arange(len(X))[:, None] if Z is None else Z, seed=0)


def recall(found, X, queries):
    expected = NearestNeighbors(n_neighbors=neighbours.N_NEIGHBOURS).fit(X).kneighbors(queries, return_distance=False)
    return np.mean([len(set(a) & set(b)) / len(b) for a, b in zip(found.tolist(), expected, strict=True)])


def test_nearest_are_those_of_brute_force(X):
    # 64 features, 64 coordinates: a rotation, which keeps all distances
    rows, queries = X[:1500], X[1500:]
    found = index(rows).nearest(torch.from_numpy(queries))
    assert found.shape == (len(queries), neighbours.N_NEIGHBOURS)
    assert recall(found, rows, queries) > 0.99  # but for ties: pixels have 17 values


def test_rows_find_themselves_and_bring_their_latents(X):
    Z = np.random.default_rng(0).standard_normal((300, 2)).astype(np.float32)
    starts = index(X[:300], Z)(torch.from_numpy(X[:300]))
    assert starts.shape == (300, neighbours.N_NEIGHBOURS, 2)
    np.testing.assert_array_equal(starts[:, 0], Z)


def test_fewer_rows_than_neighbours(X):
    assert index(X[:3]).nearest(torch.from_numpy(X[:5])).shape == (5, 3)


class NNDescent:
    """In place of pynndescent's, which compiles itself for a minute: the same call, answered by scikit-learn."""

    def __init__(self, data, *, random_state):
        assert isinstance(data, np.ndarray)
        assert data.dtype == np.float32
        self.search = NearestNeighbors().fit(data)

    def query(self, queries, k):
        distances, found = self.search.kneighbors(queries, k)
        return found.astype(np.int32), distances


def test_many_rows_are_searched_by_pynndescent(X, monkeypatch):
    monkeypatch.setattr(neighbours, "EXACT_ROWS", 1000)
    monkeypatch.setitem(sys.modules, "pynndescent", SimpleNamespace(NNDescent=NNDescent))
    rows, queries = X[:1500], X[1500:]
    many = index(rows)
    found = many.nearest(torch.from_numpy(queries))
    assert found.dtype == torch.int64
    assert recall(found, rows, queries) > 0.99
    assert many.graph is many.graph, "built once"
    assert copy.deepcopy(many)._graph is None


def test_without_pynndescent_the_error_says_how_to_get_it(X, monkeypatch):
    monkeypatch.setattr(neighbours, "EXACT_ROWS", 100)
    monkeypatch.setitem(sys.modules, "pynndescent", None)
    with pytest.raises(InputError, match=r"more than 100 rows needs pynndescent.*pip install pynndescent"):
        index(X[:200])


def test_more_starts_are_never_worse(model, X):
    def value(Z):
        from sasgp.gp.refine import log_joint

        return log_joint(model.posterior_, torch.from_numpy(X[200:260]), torch.as_tensor(Z)).numpy()

    without = value(model.transform(X[200:260], refine=1))
    model.build_index(X[:200])
    try:
        with_index = value(model.transform(X[200:260], refine=1))
    finally:
        del model.neighbours_
    assert with_index.mean() >= without.mean() - 1e-3


def test_the_index_is_saved_beside_the_model(model, X, tmp_path):
    path = tmp_path / "m.safetensors"
    model.build_index(X[:200])
    try:
        model.save(path)
        expected = model.transform(X[200:230], refine=4)
    finally:
        del model.neighbours_
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.neighbours.safetensors", "m.safetensors"]
    again = SASGP.load(path, encoder=torch.nn.Linear(64, 2))
    np.testing.assert_array_equal(again.transform(X[200:230], refine=4), expected)
    # A model without an index, saved to the same name, does not leave the old one beside it
    model.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]
    assert not hasattr(SASGP.load(path, encoder=torch.nn.Linear(64, 2)), "neighbours_")


def test_an_index_that_is_damaged_or_of_another_model_is_refused(model, X, tmp_path):
    path = tmp_path / "m.safetensors"
    model.build_index(X[:50])
    try:
        model.save(path)
    finally:
        del model.neighbours_
    beside = neighbours.companion(path)
    content = beside.read_bytes()
    beside.write_bytes(content[:-5] + b"12345")
    with pytest.raises(InputError, match=r"m\.neighbours\.safetensors.*damaged"):
        SASGP.load(path, encoder=torch.nn.Linear(64, 2))
    beside.write_bytes(content)
    other = SASGP(encoder=torch.nn.Linear(64, 2), latents="point", max_epochs=1, random_state=1).fit(X[:60])
    other.save(tmp_path / "other.safetensors")
    beside.rename(tmp_path / "other.neighbours.safetensors")
    with pytest.raises(InputError, match=r"other\.neighbours\.safetensors is the index of another model. Remove it"):
        SASGP.load(tmp_path / "other.safetensors", encoder=torch.nn.Linear(64, 2))


def test_a_new_fit_forgets_the_index(X):
    model = SASGP(encoder="table", latents="point", max_epochs=1, random_state=0).fit(X[:40])
    with pytest.raises(InputError, match=r"must be the 40 training rows.*Got 39 rows"):
        model.build_index(X[:39])
    model.build_index(X[:40])
    np.testing.assert_array_equal(model.neighbours_.Z, model.embedding_)
    assert not hasattr(model.fit(X[:40]), "neighbours_")
