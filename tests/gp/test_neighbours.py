"""The nearest positions: against sorting all distances, in one tile or many, and in cells."""

import pytest
import torch
from oracles import assert_close

from sasgp.gp import neighbours
from sasgp.gp.neighbours import Neighbours

UNITS = torch.tensor([1.0, 0.2, 5.0], dtype=torch.float64)


@pytest.fixture
def positions(rng):
    return 3 + torch.randn(3000, 3, generator=rng, dtype=torch.float64)


@pytest.fixture
def queries(rng):
    return 3 + torch.randn(200, 3, generator=rng, dtype=torch.float64)


@pytest.fixture
def small_cells(monkeypatch):
    monkeypatch.setattr(neighbours, "EXACT", 500)
    monkeypatch.setattr(neighbours, "CELL", 30)
    monkeypatch.setattr(neighbours, "GROUP", 64)


def by_sorting(Z, queries, k):
    squared = ((queries[:, None] - Z) / UNITS).square().sum(2)
    return squared.argsort(1)[:, :k].sort(1).values


def recall(found, expected):
    return sum(len(set(a) & set(b)) for a, b in zip(found.tolist(), expected.tolist(), strict=True)) / expected.numel()


@pytest.mark.parametrize("k", [1, 7, 3000])
def test_exact_search_is_sorting(positions, queries, k, monkeypatch):
    monkeypatch.setattr(neighbours, "TILE", 100)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", 10_000)
    assert torch.equal(Neighbours(positions, UNITS).nearest(queries, k), by_sorting(positions, queries, k))


@pytest.mark.usefixtures("small_cells")
def test_all_cells_are_an_exact_search(positions, queries, monkeypatch):
    monkeypatch.setattr(neighbours, "PROBED", 100)
    index = Neighbours(positions, UNITS)
    assert index.centres is not None
    assert len(index.centres) == 100
    assert torch.equal(index.nearest(queries, 10), by_sorting(positions, queries, 10))


@pytest.mark.usefixtures("small_cells")
def test_some_cells_find_nearly_all(positions, queries):
    # 16 of 100 cells: in three dimensions a ball around the query touches few more
    found = Neighbours(positions, UNITS).nearest(queries, 10)
    assert recall(found, by_sorting(positions, queries, 10)) > 0.97
    assert (found.diff(dim=1) > 0).all()  # no position twice


@pytest.mark.usefixtures("small_cells")
def test_more_neighbours_than_a_few_cells_hold(positions, queries):
    # 30 to a cell: for 150, of which 16 times as many are looked at, 80 of 100 cells instead of 16
    found = Neighbours(positions, UNITS).nearest(queries, 150)
    assert recall(found, by_sorting(positions, queries, 150)) > 0.999
    assert (found.diff(dim=1) > 0).all()


def test_centres_are_those_of_lloyds_algorithm(rng, monkeypatch):
    # Few rows for each centre, so that cells with one row and without any are among them
    monkeypatch.setattr(neighbours, "LLOYD_ROWS", 2)
    places = torch.randn(60, 2, generator=rng, dtype=torch.float64)
    found = neighbours._k_means(places, 12)
    sample = places[torch.randperm(60, generator=torch.Generator().manual_seed(0))[:24]]
    centres, sizes = sample[:12].clone(), set()
    for _ in range(neighbours.LLOYD_STEPS):
        cell = torch.cdist(sample, centres).argmin(1)
        for i in range(12):
            sizes.add(int((cell == i).sum()))
            if (cell == i).any():
                centres[i] = sample[cell == i].mean(0)
    assert 1 in sizes
    assert_close(found, centres)


@pytest.mark.usefixtures("small_cells")
def test_centres_from_a_file_give_the_same_answer(positions, queries):
    index = Neighbours(positions, UNITS)
    again = Neighbours(positions, UNITS, index.centres)
    assert torch.equal(again.nearest(queries, 10), index.nearest(queries, 10))


@pytest.mark.usefixtures("small_cells")
def test_positions_that_coincide(queries):
    same = torch.zeros(2000, 3, dtype=torch.float64)
    found = Neighbours(same, UNITS).nearest(queries, 5)
    assert (found.diff(dim=1) > 0).all()
    assert int(found.max()) < 2000
