"""Callbacks: history as it goes, and TensorBoard where it is installed."""

import json
import sys
from types import ModuleType

import numpy as np
import pytest

from sasgp import SASGP, cli, start
from sasgp.errors import InputError
from sasgp.watching import History, TensorBoard, every


@pytest.fixture
def X(monkeypatch):
    monkeypatch.setattr(start, "FIT_STEPS", 5)
    return np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def test_history_grows_by_a_line_an_epoch(X, tmp_path):
    lengths = []
    path = tmp_path / "h.jsonl"
    path.write_text("of an earlier attempt\n")
    count = lambda model, record: lengths.append(len(path.read_text().splitlines()))  # noqa: E731
    model = SASGP(max_epochs=4, random_state=0).fit(X, callback=every([History(path), count]))
    assert lengths == [1, 2, 3, 4]
    assert [json.loads(line) for line in path.read_text().splitlines()] == model.history_


class Writer:
    """What TensorBoard's writer is asked to do."""

    def __init__(self, folder):
        self.folder, self.scalars, self.figures = folder, [], []

    def add_scalar(self, *news):
        self.scalars.append(news)

    def add_figure(self, name, figure, step):
        self.figures.append((name, len(figure.axes[0].collections[0].get_offsets()), step))

    def flush(self):
        pass


def test_tensorboard_gets_every_number_and_the_latents(X, monkeypatch):
    module = ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    board = TensorBoard("logs", X[:25], np.arange(25) % 3)
    model = SASGP(max_epochs=2, random_state=0).fit(X, callback=board)
    expected = [
        (name, value, record["epoch"]) for record in model.history_ for name, value in record.items() if name != "epoch"
    ]
    assert board.writer.scalars == expected
    assert board.writer.figures == [("latents", 25, 1), ("latents", 25, 2)]


def test_real_event_files(X, tmp_path):
    pytest.importorskip("tensorboard", reason="the extra is not installed")
    SASGP(max_epochs=2, random_state=0).fit(X, callback=TensorBoard(tmp_path, X))
    assert [file for file in tmp_path.iterdir() if "tfevents" in file.name]


def test_a_missing_extra_is_named(X, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"sasgp\[tensorboard\]"):
        TensorBoard("logs")
    np.save(tmp_path / "x.npy", X)
    assert cli.main(["fit", f"{tmp_path}/x.npy", "--out", f"{tmp_path}/run", "--tensorboard"]) == 2
    assert "sasgp[tensorboard]" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
