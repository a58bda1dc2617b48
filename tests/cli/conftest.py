"""Fixtures of the command line: a folder with runs, and commands that must succeed or fail."""

import numpy as np
import pytest
from command_line import FAST, table

from sasgp import cli


@pytest.fixture(scope="session")
def home(tmp_path_factory):
    """A folder with table.csv, images.npy, and a run of each."""
    home = tmp_path_factory.mktemp("home")
    table().write_csv(home / "table.csv")
    images = np.random.default_rng(0).random((40, 3, 5)).astype(np.float32)
    np.save(home / "images.npy", images)
    assert cli.main(["fit", f"{home}/table.csv", "--labels", "species", "--out", f"{home}/run", *FAST]) == 0
    assert cli.main(["fit", f"{home}/images.npy", "--out", f"{home}/pictures", "--encoder", "table", *FAST]) == 0
    return home


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sasgp(capsys):
    """Runs a command that must succeed, and returns what it printed."""

    def sasgp(*tokens):
        code = cli.main([str(token) for token in tokens])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return out

    return sasgp


@pytest.fixture
def error(capsys):
    """Runs a command that must fail with code 2 and one line, and returns that line."""

    def error(*tokens, code=2):
        capsys.readouterr()
        assert cli.main([str(token) for token in tokens]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("sasgp: error: ")
        assert err.count("\n") == 1
        return err

    return error
