"""Every error that a user can put right is one line, and leaves nothing behind."""

import io
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import shell, table, without_progress
from processes import Process

from sasgp import SASGP, cli


def test_a_damaged_run_json_or_a_lost_one(home, here, sasgp, error):
    subprocess.run(["cp", "-r", f"{home}/run", "copy"], check=True)
    for damaged in ("{", "[]", '{"data": []}', '{"data": {"table": [{"name": 3}]}}', '{"updates": [7]}'):
        Path("copy/run.json").write_text(damaged)
        assert "run.json" in error("sample", "copy", "--out", "x.npy")
    Path("copy/run.json").unlink()
    sasgp("sample", "copy", "--out", "x.csv")
    assert pl.read_csv("x.csv").columns == ["x0", "x1", "x2", "x3"]
    Path("copy/embedding.csv").write_text("nonsense\n1\n")
    assert "embedding.csv" in error("evaluate", "copy", home / "table.csv", "--labels", "species")


def test_a_custom_kernel_cannot_be_loaded_here(here, error):
    from gpytorch.kernels import RBFKernel

    class Mine(RBFKernel):
        pass

    SASGP(kernel=Mine(), encoder="table", max_epochs=1).fit(np.random.default_rng(0).normal(size=(9, 2))).save(
        "m.safetensors"
    )
    assert "Python" in error("sample", "m.safetensors", "--out", "x.npy")


BAD_FILES = {
    "bare.csv": (
        "a,b\n1.5,.2\n.3,\n,nan\n.7,.8\n",
        ("bare.csv has 1 row without any value", "row 2"),
    ),
    "inf.csv": ("a,b\n1,2\n3,inf\n", ("Column 'b' has infinite values",)),
    "empty.csv": ("", ("empty",)),
    "header.csv": ("a,b\n", ("no rows",)),
    "one.csv": ("a,b\n1,2\n", ("No column of the table is left", "'a' (constant: always 1)")),
    "ragged.csv": ("a,b\n1,2\n3\n", ("line 3",)),
    "odd.xyz": ("1", (".xyz",)),
}


@pytest.mark.parametrize("name", BAD_FILES)
def test_bad_files_are_one_line(here, error, name):
    content, words = BAD_FILES[name]
    Path(name).write_text(content)
    message = error("fit", name, "--out", "run")
    assert all(word in message for word in words), message
    assert [file.name for file in here.iterdir()] == [name]


def test_an_infinite_value_is_named_by_every_command(home, here, error):
    table(9).with_columns(c=pl.lit(float("inf"), pl.Float64)).write_csv("holes.csv")
    words = "holes.csv contains 9 infinite values, the first (inf) in row 0, column 2 ('c')"
    assert words in error("embed", home / "run", "holes.csv", "--labels", "species", "--out", "z.npy")
    assert words in error("evaluate", home / "run", "holes.csv", "--labels", "species")


def test_the_named_row_is_that_of_the_file_not_of_the_shuffle(here, error):
    X = np.zeros((200, 3))
    X[123, 2] = np.inf
    np.save("x.npy", X)
    assert "row 123, column 2" in error("fit", "x.npy", "--out", "run")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["fit", "digits", "--out", "run", "--n-component", "3"], "Did you mean --n-components?"),
        (
            ["fit", "digits", "--out", "run", "--n-components", "two"],
            "expected auto or a whole number. Got two.",
        ),
        (["fit", "digits", "--out", "run", "--encoder-noise", "auot"], "noise: expected auto or a number. Got auot."),
        (["fit", "digits", "--out", "run", "--encoder-noise="], "--encoder-noise: expected auto or a number. Got noth"),
        (["fit", "digits", "--out", "run", "--encoder-noise=-1"], "--encoder-noise must be 'auto' or a number of at l"),
        (
            ["fit", "digits", "--out", "run", "--encoder-noise", "nan"],
            "Got nan. Leave it out, and the number of rows",
        ),
        (
            ["fit", "digits", "--out", "run", "--n-components", "1.5"],
            "components: expected auto or a whole number. Got 1.5",
        ),
        (["fit", "digits", "--out", "run", "--active-set-size=1.5"], "--active-set-size: expected a whole number"),
        (["fit", "digits", "--out", "run", "--image-shape", "8", "8.4"], "--image-shape: expected a whole number"),
        (["embed", "RUN", "digits", "--out", "z.npy", "--refine", "2.6"], "--refine: expected a whole number"),
        (["sample", "RUN", "-n", "2.5", "--out", "x.npy"], "-n: expected a whole number"),
        (["fit", "digits", "--out", "run", "--n-components", "0"], "at least 1"),
        (["fit", "digits", "--out", "run", "--init", "pcq"], '"pca"'),
        (["fit", "digits", "--out", "run", "--kernel", "rbff"], '"rbf"'),
        (["fit", "digits", "--out", "run", "--active-set-size", "2000"], "smaller than --batch-size"),
        (
            ["fit", "digits", "--out", "run", "--test-fraction", "0.5"],
            "digits has its own test split. Leave out --test-fraction 0.5.",
        ),
        (["fit", "digits", "--out", "run", "--device", "toaster"], "toaster"),
        (
            ["fit", "digits", "--out", "run", "--device", "meta"],
            "--device must be 'auto', 'cpu' or a device",
        ),
        (
            ["fit", "~nosuchuser/x.csv", "--out", "run"],
            "~nosuchuser/x.csv starts with ~nosuchuser, but no user has that name",
        ),
        (["fit", "TABLE", "--out", "~nosuchuser/run"], "no user has that name"),
        (["fit", "TABLE", "--labels", "~nosuchuser/l.csv", "--out", "run"], "no user has that name"),
        (["fit", "TABLE", "--labels", "blank.txt", "--out", "run"], "but all its lines are blank"),
        (["fit", "digits"], "`sasgp fit digits --out runs/digits`"),
        (["fit", "--out", "run"], "`sasgp fit DATA --out run`"),
        (["fit", "digist", "--out", "run"], "Did you mean 'digits'?"),
        (["fit", "nowhere.csv", "--out", "run"], "no file 'nowhere.csv'"),
        (["fit", "one.png", "--out", "run"], "one.png is a single image. Name a folder of images"),
        (["fti", "digits"], 'Did you mean "fit"?'),
        (["embed", "nowhere", "digits", "--out", "z.csv"], "There is no nowhere. Name the --out of"),
        (["embed", "nan.cvs", "digits", "--out", "z.csv"], "Did you mean nan.csv?"),
        (["embed", ".", "digits", "--out", "z.csv"], "model.safetensors"),
        (["embed", "RUN", "digits", "--out", "z.csv"], "4 features"),
        (["embed", "RUN", "digits", "--out", "z.txt"], ".csv, .npy or .h5ad"),
        (["embed", "RUN", "digits", "--out", "nowhere/z.csv"], "nowhere"),
        (["embed", "RUN", "TABLE", "--out", "TABLE"], "which the command reads"),
        (["decode", "RUN", "wide.npy", "--out", "x.csv"], "2 columns"),
        (["decode", "RUN", "nan.csv", "--out", "x.csv"], "row 1, column z1"),
        (["decode", "RUN", "TABLE", "--out", "x.npz"], "2 columns of latents (z0, z1) for this model, but has others"),
        (["decode", "RUN", "z.npy", "--std", "--out", "x.npy"], ".npz"),
        (["decode", "RUN", "nowhere.csv", "--out", "x.npy"], "nowhere.csv"),
        (["decode", "RUN", "here.parquet", "--out", "x.npy"], ".csv or .npy"),
        (["sample", "RUN", "-n", "0", "--out", "x.npy"], "at least 1"),
        (["sample", "RUN", "-n", "1000000000000", "--out", "x.npy"], "not enough memory for 1000000000000 rows of 4"),
        (["sample", "TABLE", "--out", "x.npy"], "sasgp wrote"),
        (["evidence", "RUN", "--labels", "species", "--method", "exakt"], 'Choose from: "exact", "bound", "sas"'),
        (["evidence", "RUN", "--labels", "species", "--rows", "64"], "at most 63"),
        (["evidence", "RUN", "--labels", "species", "--method", "sas", "--active-set-size", "63"], "below the 63 rows"),
        (["evidence", "RUN", "--labels", "species", "--curve", "curve.gif"], ".png"),
        (["evidence", "RUN", "--curve", "nowhere/c.png"], "--curve must be in a folder that exists. Create"),
        (["evidence", "RUN", "--active-set-size", "5"], "--active-set-size needs --method sas or --method unbiased"),
        (["evidence", "RUN", "--method", "exact", "--n-estimates", "1"], "--n-estimates needs --method sas or"),
        (["evidence", "RUN", "--curve", "c.png", "--active-set-size", "5"], "--active-set-size needs"),
        (["evaluate", "RUN", "TABLE", "--labels", "specis"], "Did you mean 'species'?"),
        (["explore", "RUN", "--labels", "species"], "Name them with --data"),
        (["explore", "RUN", "--out", "x.png"], ".html"),
        (["explore", "RUN", "--data", "digits", "--out", "x.html"], "4 features"),
        (["plot", "RUN", "--out", "nan.csv"], "nan.csv"),
        (["plot", "RUN", "--out", "latent.png"], "--out is a folder"),
        (["plot", "RUN", "--labels", "species", "--out", "figures"], "Name them with --data"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_bad_commands_are_one_line_and_leave_nothing(home, here, error, tokens, words):
    np.save("wide.npy", np.zeros((2, 3)))
    Path("nan.csv").write_text("z0,z1\n0,0\n0,nan\n")
    Path("here.parquet").write_text("")
    Path("blank.txt").write_text("\n\n\n")
    Path("one.png").write_bytes(b"\x89PNG")
    before = {file.name for file in here.iterdir()}
    names = {"RUN": home / "run", "TABLE": home / "table.csv"}
    assert words in error(*[names.get(token, token) for token in tokens])
    assert {file.name for file in here.iterdir()} == before


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_full_disk_is_one_line_that_names_the_file(home, here, error):
    disk = here / "disk"
    disk.mkdir()
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mount is not permitted here: {done.stderr.decode().strip()}")
    np.save("z.npy", np.zeros((1000, 2)))
    np.save("x.npy", np.zeros((1000, 4)))
    commands = {
        "a.npy": ("sample", home / "run", "-n", "1000"),
        "a.csv": ("sample", home / "run", "-n", "1000"),
        "a.npz": ("decode", home / "run", "z.npy"),
        "b.npy": ("embed", home / "run", "x.npy"),
        "a.html": ("explore", home / "run"),
        "new/folder": ("plot", home / "run", "--curve"),
    }
    try:
        for name, tokens in commands.items():
            message = error(*tokens, "--out", disk / name)
            assert f"{disk / name}" in message
            assert "could not be written" in message
            assert "Free some space or choose another place" in message
            assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_errors_of_a_process_are_one_line_and_code_two():
    done = shell("fit", "nowhere.csv", "--out", "/proc/nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sasgp: error: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["WORLD_SIZE", "RANK"])
def test_an_environment_that_torchrun_did_not_set_is_one_line(error, monkeypatch, name):
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv(name, "abc")
    for tokens in (["fit", "digits", "--out", "run"], ["fit", "--nonsense"], ["embed", "run", "digits", "--out", "z"]):
        assert f"{name} must be a whole number, as torchrun sets it. Got 'abc'" in error(*tokens)


def test_closed_outputs_are_no_trouble(home, here):
    # As Python begins after `>&- 2>&-`. The file may get number 1 or 2 then, and must hold samples alone
    code = (
        "import os, sys; sys.stdout = sys.stderr = None; os.close(1); os.close(2); "
        "from sasgp.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    process = Process("-c", code, "sample", home / "run", "-n", 2, "--out", "x.npy")
    process.communicate()
    assert process.returncode == 0
    assert len(np.load("x.npy")) == 2


@pytest.mark.parametrize("columns", ["0", "1"])
def test_a_narrow_terminal_still_shows_help(columns):
    done = shell("fit", "--help", env=os.environ | {"COLUMNS": columns}, timeout=60)
    assert "--n-components" in done.stdout


def test_what_a_terminal_cannot_write_is_replaced(home, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert cli.main(["evidence", f"{home}/pictures", "--method", "sas", "--n-estimates", "2"]) == 0
    assert b" ? " in written.getvalue()  # the ± of the standard error


def test_a_warning_is_one_line_and_shown_once(home, here):
    code = (
        "import sys, warnings, sasgp; from sasgp.cli import main; sample = sasgp.SASGP.sample; "
        # Python forgets what it has shown when filters change
        "warn = lambda: [warnings.filterwarnings('default', 'x'), warnings.filterwarnings('default', 'y'), "
        "warnings.warn('rather odd')]; "
        "sasgp.SASGP.sample = lambda *a, **b: [[warn(), warn()], sample(*a, **b)][1]; main(sys.argv[1:])"
    )
    _, err = Process("-c", code, "sample", home / "run", "--out", "x.npy").communicate()
    assert without_progress(err) == "sasgp: warning: rather odd\n"


def test_a_broken_pipe_is_quiet(home):
    # As in `sasgp evaluate … | true`. Python flushes what is left at its end, and would complain then
    code = (
        "import os, sys; r, w = os.pipe(); os.close(r); sys.stdout = os.fdopen(w, 'w'); from sasgp.cli import main; "
        "code = main(sys.argv[1:]); sys.stdout.flush(); sys.exit(code)"
    )
    process = Process("-c", code, "evaluate", home / "run", home / "table.csv", "--labels", "species")
    assert without_progress(process.communicate()[1]) == ""
    assert process.returncode == 141


@pytest.mark.parametrize("command", [("fit", "table.csv", "--out", "r"), ("evidence", "run", "--rows", "5")])
def test_a_seed_below_zero(home, here, error, command):
    tokens = [home / token if token in ("table.csv", "run") else token for token in command]
    assert "--random-state must be from 0" in error(*tokens, "--labels", "species", "--random-state", "-1")


def test_a_bug_still_shows_its_traceback(home, monkeypatch):
    monkeypatch.setattr(SASGP, "transform", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["evaluate", f"{home}/pictures", f"{home}/images.npy"])
