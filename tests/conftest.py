"""What tests share: a seeded generator, so that nothing draws from global state."""

import os

import pytest
import torch

# Matrices here are small, and threads that wait for each other on a busy machine cost tenfold
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # and so for the processes that tests start


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20220607)
