"""`sasgp embed` and `evaluate` in several processes: what one process gives, one message, and nothing half-written.

Processes are real. This file is also the program that each of them runs: python tests/cli/test_together.py HOME FOLDER.
"""

import io
import json
import os
import signal
import sys
import time
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import processes
import pytest
import torch
from command_line import table

from sasgp import SASGP, cli
from sasgp.data import blocks
from sasgp.data import load as load_data
from sasgp.errors import InputError
from sasgp.estimators import inference
from sasgp.training import shares
from sasgp.training.distributed import joined

N = 151  # 10 blocks of 16 rows, or 22 of 7: shares that are not equal, and several rounds
# Rows encoded at a time, rows of a round, and values of a block: 63 support points make 7 rows refined at a time
SMALL = ((inference, "ENCODE_ROWS", 16), (shares, "ROUND_ROWS", 40), (blocks, "VALUES_AT_ONCE", 28 * 63))

RESULTS = {  # of each: the command, and the file that it writes if there is one
    "csv": ("embed {home}/run {folder}/x.npy --out {out}.csv", ".csv"),
    "npy": ("embed {home}/run {folder}/x.npy --out {out}.npy", ".npy"),
    "refined": ("embed {home}/run {folder}/x.npy --refine 3 --out {out}.npy", ".npy"),
    "searched": ("embed {home}/pictures {home}/images.npy --out {out}.npy", ".npy"),
    "labels": ("embed {home}/run {home}/table.csv --labels species --out {out}.csv", ".csv"),
    "split": ("embed {folder}/digits.safetensors digits --out {out}.csv", ".csv"),
    "one block": ("embed {home}/run {folder}/few.npy --out {out}.npy", ".npy"),
    "evaluate": ("evaluate {home}/run {folder}/x.npy --json", None),
    "evaluate refined": ("evaluate {home}/run {folder}/x.npy --json --refine 3", None),
    "evaluate nearest": ("evaluate {home}/run {folder}/x.npy --json --neighbours 9", None),
    "evaluate held out": ("evaluate {home}/run {home}/table.csv --json", None),
    "table": ("evaluate {home}/run {folder}/x.npy", None),
}
FAILURES = {
    "nan": "embed {home}/run {folder}/nan.npy --out {out}.csv",
    "no file": "embed {home}/run {folder}/missing.npy --out {out}.csv",
    "no folder": "embed {home}/run {folder}/x.npy --out {folder}/missing/z.csv",
    "late": "embed {home}/run {folder}/x.npy --out {out}.csv",
    "option": "embed {home}/run {folder}/x.npy --out {out}.csv --refine some",
}


def tokens(command, home, folder, out):
    return [token.format(home=home, folder=folder, out=out) for token in command.split()]


# ---------------------------------------------------------------------------------------------------- what a rank runs


def observed(arguments):
    """Run a command. Returns its exit code, what it printed, and the rows that `transform` got in each call."""
    usual, seen = SASGP.transform, []

    def transform(self, X, **options):
        seen.append([len(X), isinstance(X, np.memmap)])
        return usual(self, X, **options)

    out, err = io.StringIO(), io.StringIO()
    SASGP.transform = transform
    try:
        with redirect_stdout(out), redirect_stderr(err):
            code = cli.main(arguments)
    finally:
        SASGP.transform = usual
    return {"code": code, "out": out.getvalue(), "err": err.getvalue(), "seen": seen}


def fail_in_the_second_round(before=[]):  # noqa: B006
    if before:
        raise InputError("This process has failed.")
    before.append("the first round")


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def disturbed(what):
    """Let something happen before the latents of some rows are found."""
    usual = inference.Inference._rows

    def rows(self, X):
        what()
        return usual(self, X)

    inference.Inference._rows = rows
    return usual


def run_all(home, folder, rank):
    found = {}
    for name, (command, _) in RESULTS.items():
        found[name] = observed(tokens(command, home, folder, folder / "two" / name.replace(" ", "-")))
    for name, command in FAILURES.items():
        usual = disturbed(fail_in_the_second_round) if name == "late" and rank == 1 else inference.Inference._rows
        found[name] = observed(tokens(command, home, folder, folder / "failed" / name.replace(" ", "-")))
        inference.Inference._rows = usual
    found["after"] = observed(tokens(RESULTS["npy"][0], home, folder, folder / "two" / "after"))
    (folder / f"rank-{rank}.json").write_text(json.dumps(found))


# ---------------------------------------------------------------------------------------------------- tests


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Files to embed, some of them bad, and a model of digits."""
    folder = tmp_path_factory.mktemp("together")
    X = table(N, seed=1).drop("species").to_numpy().astype(np.float32)
    np.save(folder / "x.npy", X)
    np.save(folder / "x.labels.npy", np.where(np.arange(N) % 2, "cat", "dog"))
    np.save(folder / "few.npy", X[:5])
    X[-2, 1] = np.inf  # in the share of the last process
    np.save(folder / "nan.npy", X)
    SASGP(max_epochs=1, random_state=0).fit(load_data("digits").X[:60]).save(folder / "digits.safetensors")
    for name in ("one", "two", "failed"):
        (folder / name).mkdir()
    return folder


@pytest.fixture(scope="module")
def two(home, folder):
    """What each of two processes did in each command."""
    processes.finish(processes.start(__file__, home, folder))
    return [json.loads((folder / f"rank-{rank}.json").read_text()) for rank in range(2)]


@pytest.fixture(scope="module")
def one(home, folder):
    """What one process did."""
    with pytest.MonkeyPatch.context() as patch:
        for module, name, value in SMALL:
            patch.setattr(module, name, value)
        return {
            name: observed(tokens(command, home, folder, folder / "one" / name.replace(" ", "-")))
            for name, (command, _) in RESULTS.items()
        }


@pytest.mark.parametrize("name", RESULTS)
def test_two_processes_give_what_one_gives(one, two, folder, name):
    first, second = (found[name] for found in two)
    assert (first["code"], first["err"], second["code"]) == (0, "", 0)
    assert second["out"] == second["err"] == ""
    suffix = RESULTS[name][1]
    if suffix is not None:
        file = name.replace(" ", "-") + suffix
        assert (folder / "two" / file).read_bytes() == (folder / "one" / file).read_bytes()
        assert first["out"].replace("/two/", "/one/") == one[name]["out"]
    elif name == "table":
        assert first["out"] == one[name]["out"]
    else:
        got, expected = json.loads(first["out"]), json.loads(one[name]["out"])
        assert list(got) == list(expected)
        for key in [key for key, value in expected.items() if not isinstance(value, int | float)]:
            assert got.pop(key) == expected.pop(key)
        assert got == pytest.approx(expected, rel=1e-9)


def test_results_have_what_the_commands_promise(one, folder):
    # The comparison above would not notice what both lack
    header, *lines = (folder / "one" / "csv.csv").read_text().splitlines()
    assert header == "row,z0,z1,label"
    assert len(lines) == N
    header, *lines = (folder / "one" / "split.csv").read_text().splitlines()
    assert header == "row,z0,z1,label,split"
    assert len(lines) == 1797
    assert {"rmse", "mae", "nlpd", "coverage_90", "pit", "knn_1", "trustworthiness"} <= set(
        json.loads(one["evaluate"]["out"])
    )


@pytest.mark.parametrize(("name", "block"), [("npy", 16), ("refined", 7)])
def test_each_process_takes_its_share_from_the_map(one, two, name, block):
    assert one[name]["seen"] == [[N, True]]
    # 10 blocks of 16 rows are 5 and 5, 22 blocks of 7 are 11 and 11; the last is short in both. A round of 40 rows has
    # two blocks of 16, or five of 7
    n_blocks = -(-N // block) // 2
    rows = [[n for n, _ in found[name]["seen"]] for found in two]
    assert [sum(part) for part in rows] == [n_blocks * block, N - n_blocks * block]
    assert max(map(max, rows)) == {16: 32, 7: 35}[block]
    assert all(mapped for found in two for _, mapped in found[name]["seen"])


@pytest.mark.parametrize(
    ("name", "codes", "words"),
    [
        ("nan", [1, 2], "The part of the data from row 75 to row 150 contains 1 infinite value, the first (inf) "
                        "in row 149, column 1"),
        ("no file", [2, 1], "missing.npy"),
        ("no folder", [2, 1], "--out must be in a folder that exists"),
        ("late", [1, 2], "This process has failed."),
        ("option", [2, 2], "--refine"),
    ],
)  # fmt: skip
def test_an_error_in_one_process_ends_all_with_one_message(two, folder, name, codes, words):
    both = [found[name] for found in two]
    assert [one["code"] for one in both] == codes
    message = both[0]["err"] + both[1]["err"]
    assert message.startswith("sasgp: error: ")
    assert message.count("\n") == 1
    assert words in message
    assert both[0]["out"] == both[1]["out"] == ""
    assert list((folder / "failed").iterdir()) == []


def test_processes_are_in_step_after_errors(one, two, folder):
    assert [found["after"]["code"] for found in two] == [0, 0]
    assert (folder / "two" / "after.npy").read_bytes() == (folder / "one" / "npy.npy").read_bytes()


def test_the_command_itself_writes_one_file(home, tmp_path, sasgp):
    # Larger than a block of 4096 rows, so that both processes have some
    np.save(tmp_path / "x.npy", table(9001, seed=2).drop("species").to_numpy())
    two = processes.start("-m", "sasgp", "embed", home / "run", tmp_path / "x.npy", "--out", tmp_path / "two.npy")
    processes.finish(two)
    said = "".join(process.communicate()[0] for process in two)
    assert said == sasgp("embed", home / "run", tmp_path / "x.npy", "--out", tmp_path / "one.npy").replace(
        "one.npy", "two.npy"
    )
    np.testing.assert_array_equal(np.load(tmp_path / "two.npy"), np.load(tmp_path / "one.npy"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.npy", "two.npy", "x.npy"]


def test_a_process_that_is_killed_ends_the_others(home, folder):
    started = time.monotonic()
    first, other = processes.start(__file__, home, folder, "die")
    message = first.communicate(timeout=120)[1]
    other.communicate(timeout=60)
    assert (first.returncode, other.returncode) == (1, -signal.SIGKILL)
    assert "sasgp: error: One of the 2 processes that work together is gone" in message
    assert "nothing was written" in message
    assert time.monotonic() - started < 60
    assert list((folder / "failed").iterdir()) == []


if __name__ == "__main__":
    torch.set_num_threads(1)
    for module, constant, value in SMALL:
        setattr(module, constant, value)
    home, folder, rank = *map(Path, sys.argv[1:3]), int(os.environ["RANK"])
    if "die" in sys.argv:
        if rank == 1:
            disturbed(die)
        sys.exit(cli.main(tokens(RESULTS["csv"][0], home, folder, folder / "failed" / "z")))
    with joined(torch.device("cpu")):
        run_all(home, folder, rank)
