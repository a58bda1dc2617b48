"""--json: one object on standard output and nothing else, with all digits; and `info`, which reads what is there."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from command_line import FAST, table

from sasgp import SASGP, __version__, evaluation
from sasgp.cli.arguments import app
from sasgp.cli.printing import as_json
from sasgp.gp import kernels

COMMANDS: dict[str, dict[str, object]] = {
    "embed RUN TABLE --out z.csv": {"wrote": "z.csv", "rows": 70, "dimensions": 2},
    "decode RUN z.npy --out x.npz": {"wrote": "x.npz", "rows": 3, "features": 4},
    "sample RUN -n 5 --out x.npy": {"wrote": "x.npy", "rows": 5, "features": 4},
    "impute RUN TABLE --out x.csv": {"wrote": "x.csv", "rows": 70, "filled": 0, "samples": 0},
    "explore RUN --out x.html": {"wrote": "x.html", "points": 70},
    "plot RUN --curve --out figures": {"wrote": ["figures/curve.png"], "left_out": {}},
    "evaluate RUN TABLE --labels species": {"rows": 7, "which": "the rows that `sasgp fit` held out"},
    "evidence RUN --labels species": {"rows": 63, "which": "the training rows", "method": "exact"},
    "score RUN TABLE --top 0 --out s.csv": {"rows": 70, "top": [], "wrote": "s.csv"},
    "update COPY new.csv": {"updated": "copy", "rows": 20, "rows_in_all": 83},
    "info RUN": {"what": "run", "model": "SASGP"},
}


def prepared(home, line):
    from shutil import copytree

    np.save("z.npy", np.zeros((3, 2)))
    if "COPY" in line:
        copytree(home / "run", "copy")
        table(20, seed=1).write_csv("new.csv")
    names = {"RUN": home / "run", "TABLE": home / "table.csv", "COPY": "copy"}
    return [names.get(token, token) for token in line.split()]


@pytest.mark.parametrize("line", COMMANDS)
def test_json_is_one_object_and_all_that_is_printed(home, here, sasgp, line):
    out = sasgp(*prepared(home, line), "--json", "--quiet")
    found = json.loads(out, parse_constant=pytest.fail)  # no NaN, no Infinity
    assert out.count("\n") == 1
    assert {name: found[name] for name in COMMANDS[line]} == COMMANDS[line]


def test_every_command_has_quiet_and_json():
    commands = [name for name in app if not name.startswith("-")]
    assert len(commands) == 14
    for name in commands:
        assert {"--quiet", "--json"} <= {argument.name for argument in app[name].assemble_argument_collection()}


def test_fit_prints_what_run_json_holds_and_the_files_it_wrote(home, here, sasgp):
    found = json.loads(sasgp("fit", home / "table.csv", "--labels", "species", "--out", "run", *FAST, "--json"))
    assert (found.pop("run"), set(found.pop("wrote"))) == (
        "run",
        {f"run/{file.name}" for file in Path("run").iterdir()},
    )
    assert found == json.loads(Path("run/run.json").read_text())


def test_numbers_have_all_their_digits(home, sasgp):
    found = json.loads(sasgp("evaluate", home / "run", home / "table.csv", "--labels", "species", "--json"))
    model = SASGP.load(home / "run" / "model.safetensors")
    held_out = [int(line.split(",")[0]) for line in (home / "run/embedding.csv").read_text().split() if "test" in line]
    X = table().drop("species").to_numpy()[held_out]
    assert found["rmse"] == evaluation.reconstruction(model, X, model.transform(X))["rmse"]  # not only nearly


def test_what_json_cannot_say_is_null_or_text():
    odd = {
        "a": math.nan,
        "b": [np.float32(np.inf), 1.5],
        "c": np.int64(3),
        "d": Path("x"),
        5: np.array([True]),
        "e": None,
    }
    assert as_json(odd) == '{"a": null, "b": [null, 1.5], "c": 3, "d": "x", "5": [true], "e": null}'


# ---------------------------------------------------------------------------------------------------- info


def test_info_says_what_the_model_and_the_run_know(home, sasgp):
    found, model = json.loads(sasgp("info", home / "run", "--json")), SASGP.load(home / "run" / "model.safetensors")
    info = json.loads((home / "run" / "run.json").read_text())
    assert found["settings"] == {"max_epochs": 2, "random_state": 0}
    assert found["data"]["columns"] == [{"name": name, "kind": "number"} for name in "abcd"]
    assert (found["data"]["rows"], found["data"]["held_out"], found["data"]["labels"]) == (63, 7, "species")
    fitted = found["fitted"]
    assert fitted["noise"] == model.model_.monitor()["noise"] == info["training"]["noise"]
    assert fitted["lengthscale"] == kernels.lengthscales(model.kernel_, 2)[0]
    assert fitted["missed_share"] == model.missed_share_
    assert fitted["objective"] == info["training"]["objective"]
    assert found["metrics"] == info["metrics"]
    assert found["versions"]["sasgp"] == __version__
    assert found["files"] == {file.name: file.stat().st_size for file in (home / "run").iterdir()}


def test_info_for_people_has_the_same(home, sasgp):
    out = sasgp("info", home / "run")
    info = json.loads((home / "run" / "run.json").read_text())
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert f"{info['training']['noise']:.4g}" in lines["noise"]
    assert f"{info['metrics']['rmse']:.4f}" in lines["RMSE"]
    assert lines["command"].endswith(info["command"])
    assert f"{home / 'run'}: SASGP, trained on table" in lines
    assert "kB" in lines["embedding.csv"]


def test_info_of_a_file_with_a_class_of_the_user(here, sasgp):
    from gpytorch.kernels import RBFKernel

    class Mine(RBFKernel):
        pass

    X = np.random.default_rng(0).normal(size=(9, 2))
    SASGP(kernel=Mine(), encoder="table", max_epochs=1).fit(X).save("m.safetensors")
    found = json.loads(sasgp("info", "m.safetensors", "--json"))
    assert (found["what"], found["settings"]["encoder"]) == ("model", "table")
    assert "Mine" in found["settings"]["kernel"]["custom"]
    assert found["data"]["features"] == 2


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["nowhere"], "There is no nowhere"),
        (["x.csv"], "x.csv is not a model file that sasgp wrote"),
        (["."], "has no model.safetensors"),
        (["damaged"], "is not the JSON that `sasgp fit` wrote"),
        (["damaged", "--config"], "is not the JSON that `sasgp fit` wrote"),
        (["cut.pt"], "cut.pt cannot be read as one"),
        (["RUN", "--config", "--json"], "Leave one of them out"),
        (["RUN/model.safetensors", "--config"], "--config needs a run"),
    ],
)
def test_info_of_something_else_is_one_line(home, here, error, tokens, words):
    Path("x.csv").write_text("a,b\n1,2\n")
    Path("cut.pt").write_bytes(b"sasgp checkpoint 2\nshort")
    Path("damaged/unfinished").mkdir(parents=True)
    Path("damaged/unfinished/run.json").write_text("[]")
    assert words in error("info", *(token.replace("RUN", str(home / "run")) for token in tokens))
