"""What tests share: a seeded generator, so that nothing draws from global state."""

import pytest
import torch

torch.set_num_threads(1)  # matrices here are small, and threads that wait for each other on a busy machine cost tenfold


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20220607)
