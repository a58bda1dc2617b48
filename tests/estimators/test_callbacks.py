"""Callbacks: history as it goes, and TensorBoard where it is installed."""

import json
import sys

import numpy as np
import pytest

from sasgp import SASGP, cli
from sasgp.errors import InputError
from sasgp.estimators.callbacks import History, TensorBoard, combined
from sasgp.training import fit_encoder


@pytest.fixture
def X(monkeypatch):
    monkeypatch.setattr(fit_encoder, "FIT_STEPS", 5)
    return np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)


def test_history_grows_by_a_line_an_epoch(X, tmp_path):
    lengths = []
    path = tmp_path / "h.jsonl"
    path.write_text("of an earlier attempt\n")
    count = lambda model, record: lengths.append(len(path.read_text().splitlines()))  # noqa: E731
    model = SASGP(max_epochs=4, random_state=0).fit(X, callback=combined([History(path), count]))
    assert lengths == [1, 2, 3, 4]
    assert [json.loads(line) for line in path.read_text().splitlines()] == model.history_


@pytest.mark.parametrize("labels", [None, np.arange(25) % 3])
def test_tensorboard_gets_every_number_and_the_latents(X, tmp_path, labels):
    event_accumulator = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator", reason="the extra is not installed"
    )
    model = SASGP(max_epochs=2, random_state=0).fit(X, callback=TensorBoard(tmp_path, X[:25], labels))
    events = event_accumulator.EventAccumulator(str(tmp_path)).Reload()
    for name in ("loss", "noise", "learning_rate", "step"):
        read = [(event.step, event.value) for event in events.Scalars(name)]
        assert read == [(record["epoch"], pytest.approx(record[name], rel=1e-6)) for record in model.history_]
    assert [image.step for image in events.Images("latents")] == [1, 2]
    assert events.Images("latents")[0].encoded_image_string.startswith(b"\x89PNG")


def test_a_history_that_cannot_be_written_does_not_stop_training(X, tmp_path):
    path = tmp_path / "gone" / "history.jsonl"
    home = lambda model, record: path.parent.mkdir() if record["epoch"] == 3 else None  # noqa: E731
    with pytest.warns(UserWarning, match="training goes on"):
        model = SASGP(max_epochs=4, random_state=0).fit(X, callback=combined([home, History(path)]))
    # Once it can be written, all of it is there
    assert [json.loads(line) for line in path.read_text().splitlines()] == model.history_


def test_a_missing_extra_is_named(X, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"tensorboard"):
        TensorBoard("logs")
    np.save(tmp_path / "x.npy", X)
    assert cli.main(["fit", f"{tmp_path}/x.npy", "--out", f"{tmp_path}/run", "--tensorboard"]) == 2
    assert "tensorboard" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()
