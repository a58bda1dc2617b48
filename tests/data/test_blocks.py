"""Walking through rows in blocks."""

from pathlib import Path

import numpy as np
import pytest

from sasgp.data import blocks
from sasgp.data.rows import row_blocks


@pytest.mark.parametrize("n_rows", [0, 1, 7, 8, 9])
@pytest.mark.parametrize("width", [0, 1, 3, 8, 100])
def test_blocks_cover_all_rows_once_and_in_order(monkeypatch: pytest.MonkeyPatch, n_rows: int, width: int) -> None:
    monkeypatch.setattr(blocks, "VALUES_AT_ONCE", 8)
    parts = [range(n_rows)[part] for part in blocks.slices(n_rows, width)]
    assert [row for part in parts for row in part] == list(range(n_rows))
    assert all(len(part) >= 1 for part in parts)
    # No more values than allowed, unless a single row has more
    assert all(len(part) == 1 or len(part) * width <= 8 for part in parts)


def test_a_block_has_at_least_one_row() -> None:
    assert blocks.rows_at_once(10 * blocks.VALUES_AT_ONCE) == 1
    assert blocks.rows_at_once(blocks.VALUES_AT_ONCE // 3) == 3
    assert blocks.rows_at_once(0) == blocks.VALUES_AT_ONCE


def test_rows_in_memory_and_in_a_file_come_in_the_same_blocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(blocks, "VALUES_AT_ONCE", 8)
    X = np.arange(21.0).reshape(7, 3)
    np.save(tmp_path / "x.npy", X)
    for array in (X, np.load(tmp_path / "x.npy", mmap_mode="r")):
        starts, parts = zip(*row_blocks(array), strict=True)
        assert starts == (0, 2, 4, 6)
        np.testing.assert_array_equal(np.concatenate(parts), X)
