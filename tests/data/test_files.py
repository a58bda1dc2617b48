"""The one atomic writer, and results that are written through it."""

import os
import stat
import time
from pathlib import Path

import numpy as np
import pytest

from sasgp.data.files import real_path, remove_leftovers, replacing
from sasgp.data.outputs import Sink

FLOAT = np.dtype(np.float32)


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    with replacing(path) as temporary:
        assert (temporary.parent, temporary.suffix) == (tmp_path, ".txt")
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("existed", [True, False])
def test_after_an_error_everything_is_as_before(tmp_path: Path, existed: bool, error: type[BaseException]) -> None:
    path = tmp_path / "a.txt"
    if existed:
        path.write_text("old")

    def fail() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(error):
        fail()
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"] * existed


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such modes")
def test_the_mode_of_the_old_file_is_kept_from_the_start(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("secret")
    path.chmod(0o600)
    with replacing(path) as temporary:
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
        temporary.write_text("new secret")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_target_of_a_link_is_replaced_and_not_the_link(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "a.txt", tmp_path / "link.txt"
    target.write_text("old")
    link.symlink_to(target)
    assert real_path(link) == real_path(target)
    with replacing(link) as temporary:
        assert temporary.parent == real_path(target).parent  # on the same file system, so that it can be renamed
        temporary.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_the_file_is_synced_before_its_new_name_and_the_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    path.write_text("old")
    synced = []

    def fsync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.read_text()))

    monkeypatch.setattr(os, "fsync", fsync)
    with replacing(path) as temporary:
        temporary.write_text("new")
        inode = temporary.stat().st_ino
    assert synced == [(inode, "old"), (tmp_path.stat().st_ino, "new")]


@pytest.mark.parametrize(("age", "left"), [(599, True), (600.5, False)])
def test_a_leftover_of_ten_minutes_is_abandoned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, age: float, left: bool
) -> None:
    leftover = tmp_path / ".run.0123abcd.pt"
    leftover.touch()
    now = leftover.stat().st_mtime + age
    monkeypatch.setattr(time, "time", lambda: now)
    remove_leftovers(tmp_path / "run.pt")
    assert leftover.exists() is left


def test_only_abandoned_leftovers_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "run[1].pt"
    names = {
        "abandoned": ".run[1].0123abcd.pt",
        "fresh": ".run[1].89abcdef.pt",
        "of another file": ".run1.0123abcd.pt",
        "of another type": ".run[1].0123abcd.txt",
        "no token": ".run[1].notatoken.pt",
    }
    for name in (path.name, *names.values()):
        (tmp_path / name).touch()
        if name != names["fresh"]:
            os.utime(tmp_path / name, (0, time.time() - 3600))
    remove_leftovers(path)
    assert {file.name for file in tmp_path.iterdir()} == {path.name, *names.values()} - {names["abandoned"]}


def test_what_a_killed_writer_leaves_is_found(tmp_path: Path) -> None:
    """The names that `replacing` makes are those that `remove_leftovers` looks for."""
    path = tmp_path / "a.txt"
    with replacing(path) as temporary:
        left = temporary.name
    (tmp_path / left).touch()
    os.utime(tmp_path / left, (0, 0))
    remove_leftovers(path)
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


# Results, block by block


def test_a_sink_collects_blocks(tmp_path: Path) -> None:
    X = np.arange(15, dtype=FLOAT).reshape(5, 3)
    own = np.zeros((5, 3))
    for out in (None, own, tmp_path / "x.npy", str(tmp_path / "y.npy")):
        with Sink(out, X.shape, FLOAT) as sink:
            for start in (0, 2, 4):
                sink.add(X[start : start + 2])
        np.testing.assert_array_equal(sink.result, X)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["x.npy", "y.npy"]
    assert isinstance(sink.result, np.memmap)


def test_a_sink_that_fails_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.ones(2))

    def fail() -> None:
        with Sink(path, (4,), FLOAT) as sink:
            sink.add(np.zeros(2, FLOAT))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    np.testing.assert_array_equal(np.load(path), np.ones(2))
    assert [file.name for file in tmp_path.iterdir()] == ["x.npy"]
