"""Rows that several processes share out: every row once, in whole blocks. tests/cli/test_together.py has processes."""

import numpy as np
import pytest

from sasgp.training import shares
from sasgp.training.loop import Alone

CASES = [(151, 2, 16), (151, 3, 7), (5, 2, 16), (64, 4, 16), (1, 3, 1), (1000, 2, 64)]


@pytest.mark.parametrize(("n", "world", "block"), CASES)
def test_every_row_is_in_one_share_and_shares_have_whole_blocks(n, world, block):
    parts = shares.shares(n, world, block)
    assert [row for part in parts for row in range(n)[part]] == list(range(n))
    assert all(part.start % block == 0 or part.start == n for part in parts)
    sizes = [-(-(part.stop - part.start) // block) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("n", "world", "block"), CASES)
def test_rounds_walk_through_the_shares(n, world, block, monkeypatch):
    monkeypatch.setattr(shares, "ROUND_ROWS", 40)
    rounds = list(shares.rounds(n, world, block))
    for rank, share in enumerate(shares.shares(n, world, block)):
        walked = [row for parts in rounds for row in range(n)[parts[rank]]]
        assert walked == list(range(n)[share])
    # Of two blocks of 16, five of 7, forty of 1; and of one block that is larger than a round
    most = max(part.stop - part.start for parts in rounds for part in parts)
    assert most <= max(40, block)
    assert all(part.start % block == 0 or part.start == part.stop for parts in rounds for part in parts)


def test_one_process_computes_everything_at_once():
    seen = []

    def compute(part):
        seen.append(part)
        return np.arange(100.0)[part]

    np.testing.assert_array_equal(shares.rows_of_all(Alone(), compute, (100,), "float64", block=7), np.arange(100.0))
    assert shares.sum_of_all(Alone(), lambda part: compute(part).sum(keepdims=True), 100, 1) == 4950
    assert seen == [slice(0, 100), slice(0, 100)]
