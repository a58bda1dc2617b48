"""Damaged and made-up checkpoints: training goes on as it would have, or says why not."""

import hashlib
import json

import numpy as np
import pytest
import safetensors.torch
from mutation import attempt, changed, damaged, generator, other_tensors, walls

from sasgp import SASGP
from sasgp.errors import InputError
from sasgp.training.checkpoint import CHECKSUM_BYTES, FORMAT, START
from sasgp.training.loop import DivergedError

FEW = 25
X = np.random.default_rng(0).normal(size=(30, 3))


def model():
    return SASGP(max_epochs=3, batch_size=16, active_set_size=4, random_state=0)


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A checkpoint after two of three epochs."""
    path = tmp_path_factory.mktemp("checkpoint") / "checkpoint.pt"

    def stop(estimator, epoch):
        if len(estimator.history_) == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model().fit(X, checkpoint=path, callback=stop)
    return path.read_bytes()


def with_checksum(content):
    return START + f"{FORMAT}\n".encode() + hashlib.sha256(content).digest() + content


def test_checkpoints_with_damaged_bytes_are_refused(content, tmp_path, seed):
    path = tmp_path / "checkpoint.pt"
    wrong = damaged(content, generator("bytes", seed))
    path.write_bytes(wrong)
    if wrong != content:
        with walls(), pytest.raises(InputError):
            model().fit(X, resume=path)


def test_checkpoints_with_a_right_checksum_and_wrong_parts(content, tmp_path, seed):
    draw = generator("parts", seed)
    start = len(START) + len(f"{FORMAT}\n") + CHECKSUM_BYTES
    end = start + 8 + int.from_bytes(content[start : start + 8], "little")
    outline, tensors = json.loads(content[start + 8 : end]), safetensors.torch.load(content[end:])
    if draw.random() < 0.6:
        outline = changed(outline, draw)
    else:
        tensors = other_tensors(tensors, draw)
    text = json.dumps(outline).encode()
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(with_checksum(len(text).to_bytes(8, "little") + text + safetensors.torch.save(tensors)))
    with walls():
        try:
            found = attempt(lambda: model().fit(X, resume=path))
        except DivergedError:  # which says so
            return
    assert found is None or np.isfinite(found.embedding_).all()


def test_an_intact_checkpoint_goes_on_to_the_same_numbers(content, tmp_path):
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with walls():
        found = model().fit(X, resume=path)
    np.testing.assert_array_equal(found.embedding_, model().fit(X).embedding_)
