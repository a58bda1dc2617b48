"""Progress: bars in a terminal, and lines of a log elsewhere, as often as somebody who reads the log needs."""

import logging
import os
import re
import subprocess
import sys
import time
from contextlib import suppress

import pytest

from sasgp.data import progress
from sasgp.data.progress import alive, progress_bar


@pytest.fixture
def hasty(monkeypatch):
    """Lines come after hundredths of seconds."""
    monkeypatch.setattr(progress, "PATIENCE", 0.02)
    monkeypatch.setattr(progress, "SHORTEST", 0.02)


@pytest.fixture
def lines(hasty, caplog):
    """What is logged."""
    caplog.set_level(logging.INFO, "sasgp")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "sasgp"]


def until(met):
    """Wait until something is so."""
    for _ in range(500):
        if met():
            return
        time.sleep(0.01)
    raise AssertionError("it did not happen")


def test_long_work_is_logged_with_its_share_its_note_and_its_end(lines, capsys):
    with progress_bar("training", 40) as update:
        update(5, "epoch 1/8")
        update(10, "epoch 2/8  objective -1.5")
        until(lines)
    assert re.fullmatch(r"training:  25 %  epoch 2/8  objective -1.5  \d:\d\d elapsed  \d:\d\d left", lines()[0])
    assert re.fullmatch(r"training: done in \d:\d\d  epoch 2/8  objective -1.5", lines()[-1])
    assert capsys.readouterr().err == ""  # the program has handlers of its own


def test_work_of_unknown_length_is_logged_without_any_update(lines):
    with progress_bar("layout", None):
        until(lambda: len(lines()) >= 2)
    assert re.fullmatch(r"layout:  \d:\d\d elapsed", lines()[0])


def test_short_work_and_work_that_fails_say_no_more(lines, monkeypatch):
    with suppress(ZeroDivisionError), progress_bar("division", None):
        until(lines)
        raise ZeroDivisionError
    assert not any("done" in line for line in lines())
    monkeypatch.setattr(progress, "PATIENCE", 1e6)
    before = len(lines())
    with progress_bar("short", 3) as update:
        update(3)
    assert len(lines()) == before


def test_brief_work_has_no_bar_but_lines_if_it_takes_long(lines, monkeypatch):
    with progress_bar("pass", 3, brief=True):
        until(lines)
    monkeypatch.setattr(progress, "_surface", lambda: progress._in_terminal)
    monkeypatch.setattr(progress, "_in_terminal", None)  # would fail if it were called
    with progress_bar("pass", 3, brief=True) as update:
        update(1)


def test_of_nested_work_only_the_innermost_speaks(lines):
    with alive("fit"):
        until(lines)
        before = len(lines())
        with progress_bar("training", 2) as update:
            update(1)
            until(lambda: len(lines()) > before + 2)
        inner = lines()[before:]
        until(lambda: lines()[-1].startswith("fit:  "))
    assert sum(line.startswith("fit") for line in inner) <= 1  # one may have been on its way
    assert not any(line.startswith("fit: done") for line in lines())


def test_the_time_that_is_left_counts_from_where_a_resumed_run_began(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    line = progress._Lines("training", 100, 1.0)
    now[0] += 5  # reading the checkpoint
    line.update(50)
    now[0] += 10
    line.update(60)
    # 10 steps in 10 seconds, and 40 to go
    assert line._line() == "training:  60 %  0:15 elapsed  0:40 left"


@pytest.mark.parametrize(("seconds", "text"), [(0.4, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3661, "1:01:01")])
def test_times_are_those_of_a_clock(seconds, text):
    assert progress._clock(seconds) == text


def test_without_any_handler_lines_go_to_standard_error(hasty, capsys, monkeypatch):
    monkeypatch.setattr(progress.LOG, "propagate", False)  # pytest has handlers at the root
    with progress_bar("training", None):
        until(lambda: progress._Lines.under_way[-1].spoke)
    assert capsys.readouterr().err.startswith("sasgp: training:  0:00 elapsed\n")


def test_the_level_of_the_logger_turns_progress_off(hasty, capsys, caplog):
    caplog.set_level(logging.ERROR, "sasgp")
    with progress_bar("training", None), alive("fit"):
        time.sleep(0.1)
    assert (caplog.records, capsys.readouterr().err) == ([], "")


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
@pytest.mark.parametrize(("term", "bar"), [("xterm", True), ("dumb", False)])
def test_a_terminal_has_a_bar_and_a_dumb_one_has_lines(term, bar):
    import pty

    code = (
        "import time; from sasgp.data import progress as p; p.PATIENCE = .05\n"
        "with p.progress_bar('training', 10) as update: update(5, 'epoch 1/2'); time.sleep(.3)"
    )
    ours, theirs = pty.openpty()
    subprocess.run([sys.executable, "-c", code], stderr=theirs, check=True, env=os.environ | {"TERM": term})
    os.close(theirs)
    shown = os.read(ours, 100_000).decode()
    os.close(ours)
    assert ("━" in shown) is bar
    assert ("elapsed" in shown) is not bar
    assert "epoch 1/2" in shown
