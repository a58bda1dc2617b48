"""Options from a file: typed ones beat them, the same fit comes again from a run, and mistakes are one line."""

import json
import tomllib
from pathlib import Path

import pytest
from command_line import FAST

from sasgp.cli import config
from sasgp.cli.fit_options import DEFAULTS, chosen


def request(run):
    return json.loads(Path(run, "run.json").read_text())["request"]


def test_a_run_is_fitted_again_from_its_folder_and_from_its_own_file(home, here, sasgp):
    sasgp("fit", "--config", home / "run", "--out", "again")
    assert Path("again/embedding.csv").read_bytes() == (home / "run" / "embedding.csv").read_bytes()
    Path("run.toml").write_text(sasgp("info", home / "run", "--config"))
    assert tomllib.loads(Path("run.toml").read_text()) == {
        "data": str(home / "table.csv"),
        "labels": "species",
        "max-epochs": 2,
    }
    assert request("again") == request(home / "run")


def test_what_is_typed_beats_the_file_whatever_its_spelling(home, here, sasgp, monkeypatch):
    monkeypatch.setattr("sasgp.cli.fit._run", lambda asked, out, *_: {"asked": asked.as_json(), "out": out})
    Path("run.toml").write_text(
        f'data = "{home}/table.csv"\nlabels = "species"\nmax_epochs = 3\nbatch-size = 32\nactive-set-size = "none"\n'
        'drop = ["a", "b"]\nimage-shape = [8, 8]\ntensorboard = true\nencoder-noise = 0.5\nout = "there"\n'
    )
    typed = ("--max-epochs", "2", "--drop", "c", "--out", "here")
    found = json.loads(sasgp("fit", "--config", "run.toml", *typed, "--json"))
    expected = {"labels": "species", "max_epochs": 2, "batch_size": 32, "active_set_size": None, "drop": ["c"]}
    expected |= {"image_shape": [8, 8], "tensorboard": True, "encoder_noise": 0.5, "data": str(home / "table.csv")}
    assert found["out"] == "here"
    assert {name: found["asked"][name] for name in expected} == expected
    assert {name for name, value in found["asked"].items() if value != vars(DEFAULTS).get(name, value)} == {
        "max_epochs",
        "batch_size",
        "active_set_size",
        "image_shape",
        "encoder_noise",
    }


def test_options_in_a_file_count_as_typed(home, here, error):
    # Typed, an option of another model is an error even if its value is the default
    Path("run.toml").write_text(f'data = "{home}/table.csv"\nmodel = "vae"\nn-inducing = 400\n')
    assert "--model vae has no option --n-inducing" in error("fit", "--config", "run.toml", "--out", "x")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("bach-size = 5", "run.toml has the key bach-size, which is no option of sasgp fit. Did you mean batch-size?"),
        ("config = 'x'", "the key config, which is no option"),
        ("qqqq = 1", "`sasgp fit --help` lists the options"),
        ('max-epochs = "two"', "--max-epochs: expected a whole number. Got two in run.toml."),
        ("max-epochs = 2.5", "expected a whole number. Got 2.5 in run.toml"),
        ('model = "vea"', 'Invalid value "vea" for --model from run.toml'),
        ("[labels]\nx = 1", "labels must be text in quotes, a number, true, false, or a list of them. Got a table"),
        ("labels = 2020-01-01", "Got 2020-01-01"),
        ("labels = species", "run.toml is not TOML"),
        ("max-epochs = 2\nmax-epochs = 3", "run.toml is not TOML"),
        (b"\xff\xfe", "run.toml is not TOML"),
    ],
)
def test_mistakes_in_a_file_are_one_line(here, error, text, words):
    Path("run.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    assert words in error("fit", "digits", "--config", "run.toml", "--out", "x")


@pytest.mark.parametrize("content", [None, "{", "[]", "{}", '{"request": 3}'])
def test_a_folder_without_a_request_is_one_line(here, error, content):
    Path("run").mkdir()
    if content is not None:
        Path("run/run.json").write_text(content)
    assert "--config needs the folder of a finished run" in error("fit", "--config", "run", "--out", "x")
    assert "There is no file nowhere" in error("fit", "--config", "nowhere", "--out", "x")


def test_toml_is_read_back_as_it_was_written():
    odd = {"data": 'a "b" \\ \t \x7f ü', "drop": ["x", "y"], "learning-rate": 1e-05, "image-shape": [3, 4]}
    odd |= {"tensorboard": True, "random-state": -1}
    assert tomllib.loads(config.as_toml(odd)) == odd
    assert config.as_toml({"active-set-size": None}) == 'active-set-size = "none"\n'


def test_the_defaults_of_a_target_are_no_choices(home):
    asked = request(home / "run") | {"target": "a", "labels": None, "hyper_learning_rate": 0.1, "max_epochs": None}
    # 0.1 is the default with a target, and 0.02 without
    assert "hyper-learning-rate" not in chosen(asked)
    assert chosen(asked | {"target": None})["hyper-learning-rate"] == 0.1
    assert FAST[1] not in chosen(asked).values()
