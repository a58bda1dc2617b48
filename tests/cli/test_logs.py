"""A log file shows that a command lives, while it lives; --quiet is silent; and `info` says what was left."""

import json
import re
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest

from sasgp import cli
from sasgp.data import progress
from sasgp.data.progress import LOG


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory):
    """A run that was stopped after the log spoke of it, and its log at that moment and in the end."""
    home = tmp_path_factory.mktemp("log")
    command = [sys.executable, "-m", "sasgp", "fit", "digits", "--max-epochs", "100000", "--out", "run"]
    with (home / "log").open("w") as log, subprocess.Popen(command, stderr=log, stdout=log, cwd=home) as process:
        try:
            for _ in range(1200):
                meanwhile = (home / "log").read_text()
                if " training: " in meanwhile or process.poll() is not None:
                    break
                time.sleep(0.1)
            alive = process.poll() is None
            process.send_signal(signal.SIGINT)
            process.wait(120)
        finally:
            process.kill()
    return home / "run", alive, meanwhile, (home / "log").read_text()


def test_a_log_file_shows_the_course_of_training_while_it_goes_on(interrupted):
    _, alive, meanwhile, end = interrupted
    assert alive, end
    line = next(line for line in meanwhile.splitlines() if " training: " in line)
    date, clock, what = line.split(" ", 2)
    assert abs(time.mktime(time.strptime(f"{date} {clock}", "%Y-%m-%d %H:%M:%S")) - time.time()) < 3600
    assert re.fullmatch(
        r"training:  \d+ %  epoch \d+/100000  objective -?[\d.]+  noise [\d.e-]+  0:\d\d elapsed  [\d:]+ left", what
    )
    assert "\x1b" not in end
    assert "\r" not in end
    assert "Continue it with `sasgp fit --resume" in end.splitlines()[-1]


def test_info_of_an_unfinished_run_and_of_its_checkpoint(interrupted, sasgp):
    run = interrupted[0]
    found = json.loads(sasgp("info", run, "--json"))
    epochs = len((run / "unfinished" / "history.jsonl").read_text().splitlines())
    assert (found["what"], found["epochs"]) == ("unfinished run", epochs)
    assert found["settings"] == {"data": "digits", "max-epochs": 100000}
    assert f"sasgp fit --resume {run}" in sasgp("info", run)
    assert sasgp("info", run, "--config") == 'data = "digits"\nmax-epochs = 100000\n'
    found = json.loads(sasgp("info", run / "unfinished" / "checkpoint.pt", "--json"))
    assert (found["what"], found["epochs"], found["epochs_planned"]) == ("checkpoint", epochs, 100000)
    assert found["settings"]["rows of data"] == 1437  # scikit-learn's digits without those that are held out
    assert f"{epochs} of 100000" in sasgp("info", run / "unfinished" / "checkpoint.pt")


def test_quiet_commands_print_nothing_but_write_and_fail_as_others(home, here, sasgp, error):
    assert sasgp("embed", home / "run", home / "table.csv", "--out", "z.csv", "--quiet") == ""
    assert Path("z.csv").read_text().startswith("row,z0,z1")
    assert "no file 'nowhere.csv'" in error("embed", home / "run", "nowhere.csv", "--out", "z.csv", "--quiet")


@pytest.mark.parametrize("quiet", [True, False])
def test_quiet_shows_no_warning_and_no_line(home, here, capsys, monkeypatch, quiet):
    def slow(*_):
        warnings.warn("odd", stacklevel=1)
        time.sleep(0.2)

    monkeypatch.setattr(progress, "SHORTEST", 0.01)
    monkeypatch.setattr("sasgp.cli.sample._check_memory", slow)
    flag = ["--quiet"] if quiet else []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        assert cli.main(["sample", f"{home}/run", "--out", "x.npy", *flag]) == 0
    err = capsys.readouterr().err
    assert [str(one.message) for one in warned] == ([] if quiet else ["odd"])
    assert (" sample:  0:00 elapsed" in err) is not quiet
    assert (LOG.level, LOG.propagate, len(LOG.handlers)) == (0, True, 1)  # as a program finds it that calls `main`
