"""Held-out rows and metrics, against what they must be."""

import numpy as np
import pytest
import torch

from sasgp import SASGP
from sasgp.data import load
from sasgp.evaluation import (
    ReconstructionSums,
    eight_bit_levels,
    hold_out,
    knn_cross_validated,
    pca_rmse,
    reconstruction,
    reconstruction_sums,
    tidy_labels,
)
from sasgp.evaluation.geodesic import knn_by_distance
from sasgp.metrics import bits_per_value, knn_accuracy, knn_r2


def dataset(tmp_path, X):
    np.save(tmp_path / "x.npy", X)
    return load(tmp_path / "x.npy")


def test_held_out_rows_are_a_seeded_part_of_the_file(tmp_path):
    data = dataset(tmp_path, np.arange(400.0).reshape(200, 2))
    one, again, other = (hold_out(data, None, seed) for seed in (0, 0, 1))
    assert len(one.test.rows) == 20
    np.testing.assert_array_equal(one.test.rows, again.test.rows)
    assert set(one.test.rows) != set(other.test.rows)
    assert sorted([*one.train.rows, *one.test.rows]) == list(range(200))
    np.testing.assert_array_equal(one.test.X, data.X[one.test.rows])
    assert len(hold_out(data, 0.25, 0).test.rows) == 50
    assert hold_out(data, 0, 0).test is None


def test_large_data_stay_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("sasgp.evaluation.MAX_COPIED", 1000)
    split = hold_out(dataset(tmp_path, np.zeros((200, 2))), None, 0)
    assert isinstance(split.train.X, np.memmap)
    assert np.shares_memory(split.train.X, split.train.X.base)
    assert list(split.test.rows) == list(range(180, 200))


SHADES = np.random.default_rng(0).integers(0, 256, size=(60, 16)).astype(np.uint8)


@pytest.mark.parametrize("X", [SHADES, (SHADES / 255).astype(np.float32), SHADES / 255], ids=["uint8", "32", "64"])
def test_bits_are_those_of_eight_bit_data_also_in_blocks(X, monkeypatch):
    model = SASGP(max_epochs=2, random_state=0).fit(X)
    levels = np.arange(256) if X.dtype == np.uint8 else np.arange(256) / 255
    mean, std = model.predict(model.embedding_, return_std=True)
    found = reconstruction(model, X, model.embedding_)["bits"]
    assert found == pytest.approx(bits_per_value(X, mean, std.astype(float) ** 2, levels), rel=1e-6)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", 7 * 16)
    assert reconstruction(model, X, model.embedding_)["bits"] == pytest.approx(found, rel=1e-6)
    # And in parts, of which a small one does not look like 8-bit data by itself
    one, other = (
        reconstruction_sums(model, X[p], model.embedding_[p], None, levels) for p in np.split(np.arange(60), [2])
    )
    assert (one + other).metrics()["bits"] == pytest.approx(found, rel=1e-6)
    assert "bits" not in (one + reconstruction_sums(model, X[2:], model.embedding_[2:])).metrics()


@pytest.mark.parametrize(
    "X",
    [
        SHADES % 2,  # two classes
        load("digits").X,  # 17 levels
        SHADES % 18 / 17,  # 17ths, and
        SHADES % 86 / 85,  # 85ths, are multiples of 1/255
        SHADES / 256,
        SHADES / 254,
        SHADES / 255 - 0.5,
        SHADES.astype(np.int64),  # counts, for all that one can know
        np.random.default_rng(0).random((60, 16)),
    ],
    ids=["classes", "digits", "17ths", "85ths", "256ths", "beyond 1", "centred", "counts", "numbers"],
)
def test_other_data_have_no_bits(X):
    assert eight_bit_levels(X) is None


def test_levels_of_a_file_are_looked_up_in_a_sample(tmp_path):
    np.save(tmp_path / "x.npy", np.tile(SHADES, (1000, 4)))
    array = np.load(tmp_path / "x.npy", mmap_mode="r")
    np.testing.assert_array_equal(eight_bit_levels(array), np.arange(256))


def test_reconstruction_is_the_same_in_blocks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 4))
    model = SASGP(encoder="table", max_epochs=2, random_state=0, noise="shared").fit(X)
    whole = reconstruction(model, X, model.embedding_)
    monkeypatch.setattr("sasgp.data.blocks.VALUES_AT_ONCE", 28)  # seven rows
    in_blocks = reconstruction(model, X, model.embedding_)
    assert in_blocks.pop("pit") == whole.pop("pit")
    assert in_blocks == pytest.approx(whole, rel=1e-5)
    assert pca_rmse(X, X, 4, 0) == pytest.approx(0, abs=1e-12)  # as many components as features
    assert torch.is_grad_enabled()


def test_sums_of_parts_add_up_to_those_of_the_whole():
    X = np.random.default_rng(0).normal(size=(50, 4))
    model = SASGP(encoder="table", max_epochs=2, random_state=0, noise="shared").fit(X)
    Z, parts = model.embedding_, (slice(0, 11), slice(11, 50))
    one, other = (reconstruction_sums(model, X[part], Z[part]) for part in parts)
    whole, added = reconstruction(model, X, Z), (one + other).metrics()
    assert added.pop("pit") == whole.pop("pit")
    assert added == pytest.approx(whole, rel=1e-6)
    assert (one + other).rows == 50
    vector = (one + other).as_vector()
    assert vector.shape == (ReconstructionSums.LENGTH,)
    np.testing.assert_array_equal(ReconstructionSums.from_vector(vector).as_vector(), vector)


def test_cross_validated_neighbours_never_vote_for_themselves():
    # Every point has its twin of the other class: the nearest other point is always wrong
    Z = np.repeat(np.random.default_rng(0).normal(size=(50, 2)), 2, axis=0)
    Z += 1e-9 * np.arange(100)[:, None]
    assert knn_cross_validated(Z, np.tile([0, 1], 50))["knn_1"] < 0.4


def test_cross_validation_counts_every_fold_or_none():
    # Folds of 18 rows leave 14 or 15 to vote: too few for fifteen neighbours in some
    for n, names in ((18, {"knn_1"}), (19, {"knn_1", "knn_15"})):
        found = knn_cross_validated(np.random.default_rng(0).normal(size=(n, 2)), np.zeros(n, dtype=np.int64))
        assert found == dict.fromkeys(names, pytest.approx(1))


@pytest.mark.parametrize(
    ("labels", "tidy"),
    [([1.0, 2.0], [1, 2]), ([1.5, 2], [1.5, 2]), ([True, False], ["true", "false"]), ([b"a", b"b"], ["a", "b"])],
)
def test_labels_are_as_a_file_gives_them_back(labels, tidy):
    assert tidy_labels(np.array(labels)).tolist() == tidy


class Flat:
    """A decoder whose geometry is that of its latent space, stretched."""

    def distance(self, Z, Z_train):
        return 3 * np.linalg.norm(Z[:, None] - Z_train, axis=2)


def test_neighbours_by_distance_vote_as_others_do():
    # Where both distances agree, both give the accuracy and R² of scikit-learn's neighbours
    rng = np.random.default_rng(0)
    Z, Z_train = rng.normal(size=(50, 2)), rng.normal(size=(80, 2))
    y, y_train = ((points[:, 0] > 0) + rng.integers(0, 2, len(points)) for points in (Z, Z_train))
    found, rows = knn_by_distance(Flat(), Z, y, Z_train, y_train)
    assert rows == "neighbours of 50 rows among 80 training rows"
    for k in (1, 15):
        expected = pytest.approx(knn_accuracy(Z_train, y_train, Z, y, k))
        assert found[f"geodesic_knn_{k}"] == found[f"euclidean_knn_{k}"] == expected
    found, _ = knn_by_distance(Flat(), Z, Z[:, 0], Z_train, Z_train[:, 0])
    expected = pytest.approx(knn_r2(Z_train, Z_train[:, 0], Z, Z[:, 0], 15))
    assert found["geodesic_knn_r2_15"] == found["euclidean_knn_r2_15"] == expected


def test_a_row_is_not_its_own_neighbour():
    Z = np.array([[0.0, 0.0], [0.1, 0.0], [5.0, 0.0], [5.1, 0.0]])
    found, rows = knn_by_distance(Flat(), Z, np.array(["a", "b", "c", "c"]))
    assert found == {"geodesic_knn_1": 0.5, "euclidean_knn_1": 0.5}
    assert rows == "neighbours of 4 rows among themselves"


def test_of_many_rows_some_are_measured(monkeypatch):
    monkeypatch.setattr("sasgp.evaluation.geodesic.MOST", 20)
    monkeypatch.setattr("sasgp.evaluation.geodesic.MOST_NEIGHBOURS", 30)
    Z = np.random.default_rng(0).normal(size=(50, 2))
    y = (Z[:, 0] > 0).astype(int)
    found, rows = knn_by_distance(Flat(), Z, y, Z, y)
    assert rows == "neighbours of 20 rows among 30 training rows"
    assert found == knn_by_distance(Flat(), Z, y, Z, y)[0]
