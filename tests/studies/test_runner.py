"""What all studies share: records, the queue, the command, tables and the parts of pages."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from sasgp.errors import InputError
from studies import catalogue, records, runner, tables
from studies.__main__ import main
from studies.catalogue import GROUPS, Study
from studies.records import Run

ROOT = Path(__file__).parents[2]


def one(execute=lambda run: {"twice": 2 * run.seed}, name="one"):
    """A study without a module."""

    class Own(Study):
        def execute(self, run):
            return execute(run)

    return Own("questions", name, (0, 1), lambda seed, quick: [Run(name, {"quick": quick}, seed)], "")


# ---- records ----


def test_a_record_says_what_was_asked_for_where_it_ran_and_what_came_out(tmp_path):
    run = Run("one", {"sizes": (1, 2)}, 3)
    study = one(lambda run: {"mean": np.float32(0.5), "arrays": {"Z": np.ones(2)}})
    record = runner.perform(study, run, tmp_path, command="python -m studies one", jobs=2)
    assert record == json.loads((tmp_path / "one-seed3.json").read_text())
    assert tuple(record) == records.FIELDS
    assert (record["name"], record["seed"], record["settings"]) == ("one", 3, {"sizes": [1, 2]})
    assert record["command"] == "python -m studies one"
    assert record["date"].startswith("20")
    assert {"sasgp", "python", "torch"} <= set(record["versions"])
    assert {"processor", "cores", "threads", "load before", "load after"} <= set(record["machine"])
    assert record["machine"]["jobs"] == 2
    assert record["results"] == {"mean": 0.5}
    with np.load(tmp_path / "one-seed3.npz") as arrays:
        assert arrays["Z"].tolist() == [1, 1]
    assert {path.name for path in tmp_path.iterdir()} == {"one-seed3.json", "one-seed3.npz"}, "no temporary file"


def test_a_run_is_finished_if_its_record_has_the_same_settings_and_seed(tmp_path):
    run = Run("one", {"sizes": (1, 2)}, 3)
    assert records.finished(run, tmp_path) is None
    runner.perform(one(), run, tmp_path, command="")
    assert records.finished(run, tmp_path) is not None
    assert records.finished(replace(run, file="other.npy"), tmp_path) is not None
    assert records.finished(replace(run, settings={"sizes": (1, 3)}), tmp_path) is None
    assert records.finished(replace(run, seed=4), tmp_path) is None
    assert records.seeds(tmp_path) == [3]


def test_every_committed_record_has_the_one_form():
    paths = sorted(records.RESULTS.rglob("*.json"))
    paths = [path for path in paths if "quick" not in path.parts]
    assert len(paths) > 250
    for path in paths:
        record = records.read(path)
        assert tuple(record) == records.FIELDS, path
        assert Run(record["name"], record["settings"], record["seed"]).title == path.stem
        assert isinstance(record["results"], dict)


def test_every_committed_record_names_its_commit_versions_threads_and_settings():
    # Old records did not keep their commit. Theirs is the first that holds the result, `… or before`, and versions are
    # those that it pins; how many threads they had is not known
    for path in sorted(records.RESULTS.rglob("*.json")):
        record = records.read(path)
        assert record["settings"], path
        found = re.fullmatch(r"([0-9a-f]{12})(-dirty)?( or before)?", record["commit"])
        assert found, path
        assert {"python", "torch"} <= record["versions"].keys(), path
        assert found[3] or record["machine"]["threads"] >= 1, path


def test_a_table_marks_runs_of_several_commits_and_cells_of_fewer_records():
    one, other = {"commit": "a"}, {"commit": "b"}
    assert [tables.count(some) for some in ([], [one], [one, one], [one, other])] == ["0", "1", "2", "2†"]
    assert tables.of_some("5", [1, 2], [one, other]) == "5"
    assert tables.of_some("5", [1], [one, other]) == "5 (1 of 2)"
    assert tables.of_some(tables.NOTHING, [], [one]) == tables.NOTHING
    assert tables.footnotes("| 5 | 2 |") == "| 5 | 2 |"
    assert tables.footnotes("| 5 (1 of 2) | 2† |") == (
        "| 5 (1 of 2) | 2† |\n\n† Runs of several commits; each record names its own. "
        "(1 of 2): 1 of 2 records have this number."
    )


def test_the_commit_is_that_of_the_project():
    command = ["git", "-C", str(ROOT), "rev-parse", "HEAD"]
    commit = records.commit()
    if not (ROOT / ".git").exists():
        assert commit is None
    else:
        head = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert head.startswith(commit.removesuffix("-dirty"))


# ---- the queue ----


def test_the_queue_has_every_run_once_seed_by_seed_and_each_study_its_own_seeds():
    both = [one(), replace(one(name="two"), seeds=(1, 2))]
    titles = [task.run.title for task in runner.queue(both)]
    assert titles == ["one-seed0", "one-seed1", "two-seed1", "two-seed2"]
    assert [task.run.title for task in runner.queue(both, [5])] == ["one-seed5", "two-seed5"]
    assert [task.run.title for task in runner.queue(both, quick=True)] == ["one-seed0", "two-seed0"]
    same = replace(one(), runs=lambda seed, quick: [Run("same", {})])
    assert [task.run.title for task in runner.queue([same], [0, 1], file="x")] == ["same"]
    assert runner.queue([same], [0], file="x")[0].run.file == "x"


def test_a_run_that_another_process_has_done_meanwhile_is_not_done_again(tmp_path):
    done = []
    first, second = runner.queue([one(lambda run: done.append(run.seed) or {})])
    found = runner.work([first, second], tmp_path, command="")
    next(found)
    runner.perform(one(), second.run, tmp_path, command="")
    assert next(found).record["results"] == {"twice": 2}
    assert done == [0]


# ---- the catalogue and the command ----


@pytest.mark.parametrize("group", GROUPS)
def test_the_list_has_one_line_for_every_study(group, capsys):
    assert main(["list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in catalogue.names(group):
        (line,) = [line for line in lines if line.startswith(f"  {name} ")]
        assert len(line.split(maxsplit=1)[1]) > 10, f"{name} says nothing about itself"


@pytest.mark.parametrize("group", ["questions", "benchmarks"])
def test_every_module_with_runs_is_in_the_catalogue(group):
    folder = ROOT / "studies" / group
    modules = {path.stem.replace("_", "-") for path in folder.glob("*.py") if "def execute(" in path.read_text()}
    assert modules == set(catalogue.names(group))


@pytest.mark.parametrize(
    "line",
    [
        *(["paper", "table3"], ["paper", "fig2", "--seeds", "0", "1.2"], ["papers"], []),
        ["data", "infinite-mnist", "--rows", "9.5", "--out", "x.npy"],
    ],
)
def test_a_line_that_cannot_be_read_is_refused(line, capsys):
    with pytest.raises(SystemExit):
        main(line)
    assert "error: " in capsys.readouterr().err.splitlines()[-1]


def test_negative_seeds_are_refused_on_one_line(capsys):
    assert main(["paper", "table1", "--seeds", "-1", "--list"]) == 2
    assert capsys.readouterr().err == "studies: error: --seeds must not be negative. Got -1.\n"


def test_wrong_requests_for_data_are_refused_on_one_line(capsys):
    line = ["data", "infinite-mnist", "--rows", "9", "--out"]
    assert main([*line, "x.npy", "--seed", "-1"]) == 2
    assert main([*line, "nowhere/x.npy"]) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert "--seed must be from 0" in first
    assert "create nowhere first" in second


def test_help_and_lists_do_not_wait_for_torch():
    code = (
        "import sys; from studies.__main__ import main; code = main(sys.argv[1:]); "
        "print({'torch', 'matplotlib'} & {*sys.modules}); sys.exit(code)"
    )
    for tokens in (["list"], ["paper", "all", "--list"]):
        done = subprocess.run(
            [sys.executable, "-c", code, *tokens], capture_output=True, text=True, check=True, cwd=ROOT
        )
        assert done.stdout.splitlines()[-1] == "set()"


# ---- tables and pages ----


def test_a_table_is_straight():
    assert tables.table(["a", "bc"], [["long", "1"]]) == "| a    | bc |\n|------|----|\n| long | 1  |"
    assert tables.of_rows([{"a": 0.0123456, "b": "x"}]).splitlines()[2] == "| 0.0123 | x |"


def test_numbers_over_seeds():
    # −.2, −.3, −.4: mean −.3, standard deviation √((.01 + 0 + .01) / 2) = .1
    assert tables.mean_and_deviation([-0.2, -0.3, -0.4]) == "−0.3000 ± 0.1000"
    assert tables.mean_and_deviation([0.25], 2) == "0.25"
    assert tables.mean_and_deviation([]) == tables.NOTHING


def test_parts_of_a_page_are_written_anew_and_the_rest_stays():
    page = "before\n<!-- one: made by x -->\nold\n<!-- end of one -->\nafter\n"
    new = tables.filled(page, {"one": "new"})
    assert new == page.replace("old", "new")
    assert tables.parts(new) == {"one": "new"}
    assert tables.filled(new, {"one": "new"}) == new
    for wrong, count in (("empty", 0), (page + page, 2)):
        with pytest.raises(InputError, match=f"has {count} parts called one, and needs one"):
            tables.filled(wrong, {"one": "new"})
