"""What tests share: a seeded generator, so that nothing draws from global state."""

import os

import numpy as np
import pytest
import torch

# Matrices here are small, and threads that wait for each other on a busy machine cost tenfold
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # and so for the processes that tests start


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20220607)


@pytest.fixture(scope="session")
def mnist_sized():
    """A page of MNIST's size: 60 000 points, 2000 support points, 784 features."""
    from explorer_models import Decoder
    from gpytorch.kernels import RBFKernel

    from sasgp.explorer import explore

    model = Decoder(RBFKernel(), D=784, S=2000, N=60_000)
    return explore(model, model.X, labels=np.arange(60_000) % 10, title="as large as MNIST")
