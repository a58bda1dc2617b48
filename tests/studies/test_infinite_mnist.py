"""Infinite MNIST: rows that depend on the seed and their index alone."""

import numpy as np
import pytest

from sasgp.data import blocks, load, named
from sasgp.errors import InputError
from studies import infinite_mnist
from studies.__main__ import main
from studies.infinite_mnist import InfiniteDigits, write_infinite


@pytest.fixture(scope="module")
def images():
    draw = np.random.default_rng(0)
    pictures = np.zeros((11, 28, 28), np.uint8)
    pictures[:, 8:20, 10:18] = draw.integers(100, 255, (11, 12, 8))
    return pictures


def test_a_row_does_not_depend_on_the_others(images):
    digits = InfiniteDigits(images, seed=3)
    together = digits.rows(0, 50)
    np.testing.assert_array_equal(np.concatenate([digits.rows(i, i + 1) for i in range(50)]), together)
    np.testing.assert_array_equal(InfiniteDigits(images, seed=3).rows(20, 50), together[20:])
    assert (InfiniteDigits(images, seed=4).rows(0, 50) != together).any(1).all()
    assert len(np.unique(together, axis=0)) == 50  # each is another


def test_without_deformation_rows_are_shifted_images(images, monkeypatch):
    monkeypatch.setattr(infinite_mnist, "LARGEST", 0.0)
    rows = InfiniteDigits(images).rows(0, 300).reshape(-1, 28, 28)
    shifts = set()
    for i, row in enumerate(rows):
        found = [
            (dy, dx)
            for dy in (-1, 0, 1)
            for dx in (-1, 0, 1)
            if np.array_equal(row, np.roll(images[i % 11], (dy, dx), axis=(0, 1)))
        ]
        assert len(found) == 1
        shifts |= set(found)
    assert len(shifts) == 9


def test_one_deformed_row_is_the_equation(images):
    # x'(p) = x(p − s − a u(p)) by a naive loop with bilinear interpolation
    digits = InfiniteDigits(images, seed=1)
    i = 23
    u = infinite_mnist._uniform(1, np.array([i]), 5)[0]
    j, k = (np.floor(infinite_mnist.N_FIELDS * u[:2])).astype(int)
    a, (sy, sx) = np.float32(infinite_mnist.LARGEST * u[2]), np.floor(3 * u[3:]) - 1
    expected = np.zeros((28, 28))
    padded = np.pad(images[i % 11].astype(float), 20)
    for y in range(28):
        for x in range(28):
            py, px = y - sy - a * digits.fields[j, y, x] + 20, x - sx - a * digits.fields[k, y, x] + 20
            t, l = int(np.floor(py)), int(np.floor(px))  # noqa: E741 top and left
            fy, fx = py - t, px - l
            expected[y, x] = (1 - fy) * ((1 - fx) * padded[t, l] + fx * padded[t, l + 1]) + fy * (
                (1 - fx) * padded[t + 1, l] + fx * padded[t + 1, l + 1]
            )
    assert np.abs(digits.rows(i, i + 1).reshape(28, 28) - expected).max() <= 0.51  # rounded to bytes


def test_uniform_numbers_are_uniform():
    u = infinite_mnist._uniform(0, np.arange(20_000), 5)
    # Mean of 20 000: ½ ± 1/√(12·20 000) = .002; columns uncorrelated within 5/√20 000
    assert np.abs(u.mean(0) - 0.5).max() < 5 * 0.00204
    assert np.abs(np.corrcoef(np.vstack([u.T, np.roll(u[:, 0], 1)])) - np.eye(6)).max() < 5 / np.sqrt(20_000)


def test_files_are_whole_and_found_with_their_labels(images, tmp_path, monkeypatch):
    monkeypatch.setattr(blocks, "VALUES_AT_ONCE", 7 * 784)
    out = tmp_path / "big.npy"
    seen = []
    labels = write_infinite(images, np.arange(11), 40, out, update=seen.append)
    assert seen == [7, 14, 21, 28, 35, 40]
    data = load(out)
    assert (data.X.shape, data.X.dtype, data.image_shape) == ((40, 784), np.uint8, (28, 28))
    np.testing.assert_array_equal(data.X, InfiniteDigits(images).rows(0, 40))
    np.testing.assert_array_equal(data.y, np.arange(40) % 11)
    assert labels.name == "big.labels.npy"
    assert {file.name for file in tmp_path.iterdir()} == {"big.npy", "big.labels.npy"}
    for rows, path in ((0, out), (5, tmp_path / "x.csv"), (5, tmp_path / "no" / "x.npy")):
        with pytest.raises(InputError, match="Got"):
            write_infinite(images, np.arange(11), rows, path)
    with pytest.raises(InputError, match=f"create {tmp_path / 'no'} first"):
        write_infinite(images, np.arange(11), 5, tmp_path / "no" / "x.npy")
    for seed in (-1, 2**64):
        with pytest.raises(InputError, match="--seed must be from 0"):
            write_infinite(images, np.arange(11), 5, out, seed=seed)


def test_the_command(images, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(named, "fetch", lambda name: dict.fromkeys(named.IDX, b""))
    monkeypatch.setattr(named, "read_idx", lambda raw, name: images if "images" in name else np.arange(11))
    assert main(["data", "infinite-mnist", "--rows", "30", "--out", str(tmp_path / "x.npy"), "--seed", "5"]) == 0
    assert "30 rows of 28×28" in capsys.readouterr().out
    np.testing.assert_array_equal(load(tmp_path / "x.npy").X, InfiniteDigits(images, 5).rows(0, 30))
    assert main(["data", "infinite-mnist", "--rows", "0", "--out", str(tmp_path / "x.npy")]) == 2
    assert capsys.readouterr().err == "studies: error: --rows must be at least 1. Got 0.\n"
