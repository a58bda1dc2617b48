"""What tests of files share."""

from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a file into an empty working folder, and returns its name."""
    monkeypatch.chdir(tmp_path)

    def write(content, name="data.csv"):
        Path(name).write_bytes(content if isinstance(content, bytes) else content.encode())
        return name

    return write
