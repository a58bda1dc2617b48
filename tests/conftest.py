"""What tests share: a seeded generator, so that nothing draws from global state, and a short start of training."""

import os

import numpy as np
import pytest
import starts
import torch

from sasgp.data import progress

# Matrices here are small, and threads that wait for each other on a busy machine cost tenfold
torch.set_num_threads(1)
os.environ["OMP_NUM_THREADS"] = "1"  # and so for the processes that tests start
starts.shorten_every_start()
BRIEF = 8  # epochs, or steps

progress.PATIENCE = progress.SHORTEST = 1e6  # seconds: however slow the machine is, no test prints lines of a log


def pytest_addoption(parser):
    parser.addoption("--seeds", type=int, help="seeds per test in tests/fuzz, instead of a few")


@pytest.fixture
def rng():
    return torch.Generator().manual_seed(20220607)


@pytest.fixture
def whole_start():
    """The start that a user's fit has, for a test that says how good a model is."""
    with starts.whole_start():
        yield


@pytest.fixture
def brief(monkeypatch):
    """Training that is over soon, and no browser: for pages and examples, which train to the end when they are read."""
    import webbrowser

    from sasgp.estimators import imputer, supervised
    from sasgp.training import columns, regression
    from sasgp.training import run as fitting

    monkeypatch.setattr(fitting, "MAX_EPOCHS", BRIEF)
    monkeypatch.setattr(supervised, "STEPS", BRIEF)
    monkeypatch.setattr(regression, "SHARP_STEPS", 2)
    monkeypatch.setattr(columns, "STEPS", BRIEF)
    monkeypatch.setattr(imputer, "EPOCHS", BRIEF)
    monkeypatch.setattr(webbrowser, "open", lambda address: True)
    starts.shorten_start(monkeypatch, BRIEF)


@pytest.fixture(scope="session")
def mnist_sized():
    """A page of MNIST's size: 60 000 points, 784 features, and 1000 positions, the most that "auto" takes."""
    from explorer_models import KERNELS, Decoder

    from sasgp.estimators.all_rows import MOST
    from sasgp.explorer import explore
    from sasgp.gp import positions
    from sasgp.gp.row_sums import RowSums

    model = Decoder(KERNELS["matern32"](), D=784, N=60_000)
    old, Z = model.posterior_, torch.from_numpy(model.embedding_[:4000])
    U = Z[positions.choose(old.kernel, Z, MOST, torch.Generator().manual_seed(0))]
    assert len(U) == MOST
    sums = RowSums(old.kernel, U, 784)
    sums.add(torch.from_numpy(model.X[:4000]) - old.mean, Z)
    model.posterior_ = sums.posterior(old.noise, old.mean)
    return explore(model, model.X, labels=np.arange(60_000) % 10, title="as large as MNIST")


@pytest.fixture(scope="session")
def mixed():
    """A model of a table with columns of all kinds, and the table."""
    from explorer_models import mixed_table

    return mixed_table()
