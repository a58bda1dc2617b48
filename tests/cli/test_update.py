"""`sasgp update`: what the files of a run say afterwards, and that at any moment they are the old ones or the new."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import FAST, ROWS, content_of, table

from sasgp import SASGP, VAE, cli
from sasgp.cli import runs, unfinished

NEW = 12  # rows of an update
TRAIN = 63  # rows of the run in `home` that were not held out


@pytest.fixture
def run(home, here):
    """A copy of a run, and new rows beside it."""
    shutil.copytree(home / "run", "run")
    shutil.copy(home / "table.csv", "table.csv")
    table(NEW, seed=1).write_csv("new.csv")
    return Path("run")


def values(file):
    return pl.read_csv(file).select("a", "b", "c", "d").to_numpy()


def contents(run):
    return {file.name: file.read_bytes() for file in Path(run).iterdir()}


def test_the_files_of_the_run_know_the_new_rows(run, sasgp):
    before, old = SASGP.load("run/model.safetensors"), pl.read_csv("run/embedding.csv")
    lines = Path("run/embedding.csv").read_text().splitlines()
    said = sasgp("update", "run", "new.csv")  # the labels are in the column that the run has them from
    model = SASGP.load("run/model.safetensors")
    expected = before.update(values("new.csv"))
    np.testing.assert_array_equal(model.predict(model.embedding_), expected.predict(expected.embedding_))
    np.testing.assert_array_equal(model.embedding_, expected.embedding_)

    # The old lines stay as they were, to the byte; the new rows follow, and their numbers go on
    assert Path("run/embedding.csv").read_text().splitlines()[: len(lines)] == lines
    frame = pl.read_csv("run/embedding.csv")
    new = frame.slice(len(old))
    assert new["row"].to_list() == list(range(ROWS, ROWS + NEW))
    assert new["split"].unique().to_list() == ["train"]
    assert new["label"].to_list() == pl.read_csv("new.csv")["species"].to_list()
    np.testing.assert_array_equal(new.select(pl.col("z0", "z1").cast(pl.Float32)).to_numpy(), model.embedding_[-NEW:])
    info = json.loads(Path("run/run.json").read_text())
    (record,) = info["updates"]
    assert record["file"] == str(Path("new.csv").resolve())
    assert record["rows"] == NEW
    assert record["command"] == "sasgp update run new.csv"
    assert record["date"].endswith("+00:00")
    assert 0 <= record["missed_share"] < 1
    assert info["data"]["rows"] == TRAIN  # what training had

    for words in (
        f"{NEW} ",
        f"new; the decoder is given {TRAIN + NEW} now",
        "positions",
        f"{record['missed_share']:.2g}",
    ):
        assert words in said
    assert {file.name for file in run.iterdir()} == set(runs.FILES)
    page = content_of("run/explorer.html")
    assert (page["n_points"], page["features"]) == (ROWS + NEW, ["a", "b", "c", "d"])


def test_updates_add_up(run, sasgp):
    before = SASGP.load("run/model.safetensors")
    for seed, n in ((1, NEW), (2, 5)):
        table(n, seed=seed).write_csv(f"{seed}.csv")
        sasgp("update", "run", f"{seed}.csv")
    model = SASGP.load("run/model.safetensors")
    before.update(np.concatenate([values("1.csv"), values("2.csv")]))
    np.testing.assert_allclose(model.predict(model.embedding_), before.predict(model.embedding_), atol=1e-4)
    assert [update["rows"] for update in json.loads(Path("run/run.json").read_text())["updates"]] == [NEW, 5]
    assert pl.read_csv("run/embedding.csv")["row"].to_list() == list(range(ROWS + NEW + 5))


def test_rows_without_labels(run, sasgp):
    pl.read_csv("new.csv").drop("species").write_csv("bare.csv")
    assert "for the new rows; the run has some" in sasgp("update", "run", "bare.csv")
    frame = pl.read_csv("run/embedding.csv")
    assert frame["label"].to_list()[-NEW:] == [""] * NEW
    assert content_of("run/explorer.html")["columns"][0]["classes"] == ["cat", "dog", "no label"]
    sasgp("explore", "run")
    sasgp("plot", "run", "--latent", "--out", "figures")
    # They have no vote among the nearest neighbours
    table(9, seed=3).write_csv("test.csv")
    found = json.loads(sasgp("evaluate", "run", "test.csv", "--labels", "species", "--json"))
    labelled = runs.find(run).embedding().only("train").labelled()
    assert len(labelled.Z) == TRAIN
    assert found["neighbours"] == "neighbours among the run's training rows"


def test_labels_that_are_numbers_stay_numbers(here, sasgp):
    X = table(60).drop("species")
    X.with_columns(age=pl.Series(np.linspace(1, 2, 60))).write_csv("x.csv")
    sasgp("fit", "x.csv", "--labels", "age", "--out", "run", *FAST)
    X[:5].with_columns(pl.col("a") + 0.1).write_csv("bare.csv")
    sasgp("update", "run", "bare.csv")
    assert content_of("run/explorer.html")["columns"][0]["low"] == 1


def test_a_run_without_labels_or_a_model_alone(home, here, sasgp):
    shutil.copytree(home / "pictures", "run")
    images = np.random.default_rng(1).random((6, 3, 5)).astype(np.float32)
    np.save("new.npy", images)
    shutil.copy("run/model.safetensors", "m.safetensors")
    sasgp("update", "run", "new.npy")
    sasgp("update", "m.safetensors", "new.npy")
    one, other = SASGP.load("run/model.safetensors"), SASGP.load("m.safetensors")
    np.testing.assert_array_equal(one.predict(one.embedding_), other.predict(one.embedding_))
    assert len(one.embedding_) == 46
    assert "label" not in pl.read_csv("run/embedding.csv").columns
    assert content_of("run/explorer.html")["image"]["width"] == 5


def test_later_commands_know_which_rows_are_which(home, run, sasgp, error):
    data = home / "table.csv"
    held_out = json.loads(sasgp("evaluate", "run", data, "--json"))
    sasgp("update", "run", "new.csv")
    again = json.loads(sasgp("evaluate", "run", data, "--json"))
    assert (again["rows"], again["which"]) == (held_out["rows"], "the rows that `sasgp fit` held out")
    assert "the rows that `sasgp update` added" in sasgp("evaluate", "run", "new.csv")
    assert json.loads(sasgp("evidence", "run", "--json"))["rows"] == TRAIN + NEW

    # The nearest rows are among all of them, wherever they are
    near = ("evaluate", "run", data, "--neighbours", "20", "--json")
    from_parts = json.loads(sasgp(*near))
    pl.concat([table(), table(NEW, seed=1)]).write_csv("all.csv")
    assert json.loads(sasgp(*near, "--train", "all.csv")) == from_parts
    model = SASGP.load("run/model.safetensors")
    rows = np.concatenate([values("table.csv"), values("new.csv")])
    frame = pl.read_csv("run/embedding.csv")
    train = rows[frame.filter(pl.col("split") == "train")["row"].to_numpy()]
    test = rows[frame.filter(pl.col("split") == "test")["row"].to_numpy()]
    decoded = model.reconstruct(test, neighbours=20, data=train)
    assert from_parts["rmse"] == pytest.approx(np.sqrt(np.square(test - decoded).mean()), rel=1e-5)

    Path("new.csv").unlink()
    assert "new.csv" in error(*near)
    table(NEW, seed=5).write_csv("new.csv")
    assert "other values. Name the right data with --train" in error(*near)


def test_pictures_that_were_deleted_are_drawn_with_all_rows(run, sasgp):
    sasgp("update", "run", "new.csv")
    Path("run/explorer.html").unlink()
    sasgp("fit", "--resume", "run")
    assert content_of("run/explorer.html")["n_points"] == ROWS + NEW


# ---------------------------------------------------------------------------------------------------- refused


def test_rows_do_not_count_twice(home, run, sasgp, error):
    before = contents(run)
    assert "is what the run was trained on" in error("update", "run", home / "table.csv")
    assert contents(run) == before
    sasgp("update", "run", "new.csv")
    before = contents(run)
    shutil.copy("new.csv", "copy.csv")
    assert "has the rows of an earlier update of run" in error("update", "run", "copy.csv")
    assert contents(run) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda t: t.rename({"a": "z"}), "It lacks a, and has z instead"),
        (lambda t: t.drop("b"), "has 3 features, but the model was trained on 4"),
        (
            lambda t: t.with_columns(pl.when(pl.int_range(NEW) == 4).then(None).otherwise(pl.col(*"abcd")).name.keep()),
            "row 4",
        ),
    ],
)
def test_wrong_rows_change_nothing(run, error, change, words):
    change(table(NEW, seed=1)).write_csv("wrong.csv")
    before = contents(run)
    assert words in error("update", "run", "wrong.csv", "--labels", "species")
    assert contents(run) == before


def test_other_refusals(run, here, error):
    before = contents(run)
    assert "nothing.csv" in error("update", "run", "nothing.csv")
    assert "species2" in error("update", "run", "new.csv", "--labels", "species2")
    assert "has no model.safetensors" in error("update", here, "new.csv")
    assert contents(run) == before
    VAE(max_epochs=1).fit(values("table.csv")).save("vae.safetensors")
    assert "SASGP or GPLVM, can be updated, and vae.safetensors is a VAE" in error(
        "update", "vae.safetensors", "new.csv"
    )


def test_a_run_is_locked_while_it_is_updated(run, error):
    before, fit = contents(run), ("fit", "table.csv", "--labels", "species", "--out", "run", *FAST)
    with unfinished.held(run.resolve()):
        assert "is training or updating the run" in error("update", "run", "new.csv")
        assert "is training or updating the run" in error(*fit, "--overwrite")
        assert "already holds a run" in error(*fit)
    assert contents(run) == before


def test_an_interrupted_fit_over_the_run_comes_first(run, error):
    Path("run/unfinished").mkdir()
    begun = {"data": "table.csv", "model": "sasgp", "command": "sasgp fit table.csv --out run --overwrite"}
    Path("run/unfinished/run.json").write_text(json.dumps(begun))
    assert "Continue it with `sasgp fit --resume" in error("update", "run", "new.csv")
    assert Path("run/unfinished/run.json").exists()


def test_rows_far_away_are_warned_of(run, capsys):
    table(NEW, seed=1).with_columns(pl.col("a", "b", "c", "d") + 1e4).write_csv("far.csv")
    with pytest.warns(UserWarning, match="Fit the model again with all rows"):
        assert cli.main(["update", "run", "far.csv"]) == 0
    assert json.loads(Path("run/run.json").read_text())["updates"][0]["missed_share"] > 0.5


# ---------------------------------------------------------------------------------------------------- whole or not


def test_ctrl_c_leaves_the_old_run(run, error, monkeypatch):
    before = contents(run)

    def stop(*_, **__):
        raise KeyboardInterrupt

    for target in ("sasgp.gp.row_sums.RowSums.add", "sasgp.cli.update.explorer_page", "sasgp.cli.runs.Embedding.write"):
        with monkeypatch.context() as patch:
            patch.setattr(target, stop)
            assert "interrupted" in error("update", "run", "new.csv", code=130)
        assert contents(run) == before


# Each line that comes in asks for an update by a process that kills itself before it changes the disk for the n-th time
KILLED = """
import os, signal, sys
from sasgp import cli
from sasgp.cli import update
import polars, safetensors.torch, torch, sasgp.cli.runs, sasgp.data, sasgp.estimators, sasgp.evaluation, sasgp.explorer
torch.set_num_threads(1)
update.draw_latent = lambda *args: args[-1].write_text("latent")

class Page:
    def save(self, file):
        file.write_text("page")

update.explorer_page = lambda *_: Page()
CHANGES = {"os.rename", "os.mkdir", "os.rmdir", "os.remove", "os.chmod"}
for line in sys.stdin:
    run, new, n = line.split()
    pid = os.fork()
    if not pid:
        left = [int(n)]

        def hook(event, args):
            if event in CHANGES or event == "open" and run in str(args[0]) and args[1] and set(args[1]) & set("wxa+"):
                left[0] -= 1
                if not left[0]:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        os._exit(cli.main(["update", run, new]))
    print("done", os.waitpid(pid, 0)[1], flush=True)
"""


def rows_of(run):
    """The number of training rows in each file of a run, which a command has read."""
    found = runs.find(Path(run))
    model = SASGP.load(found.model)
    return len(model.embedding_), len(found.embedding().only("train").rows), TRAIN + found.n_added


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_killed_at_any_moment_the_run_is_the_old_one_or_the_new_one(run, capsys):
    with subprocess.Popen(
        [sys.executable, "-c", KILLED], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    ) as helper:  # fmt: skip
        states = killed_one_after_another(helper, run)
    new = (TRAIN + NEW,) * 3
    assert states[-1] == new
    assert states == sorted(states)  # old until one moment, new from then on
    assert states.count(new) > 3  # some of them were killed while files were moved
    assert len(states) > 12


def killed_one_after_another(helper, run):
    """What is left of copies of a run, each killed one change of the disk later, until one is not killed any more."""
    old, new, states = contents(run), (TRAIN + NEW,) * 3, []
    for n in range(1, 200):
        one = Path(f"killed{n}").resolve()
        shutil.copytree(run, one)
        helper.stdin.write(f"{one} {Path('new.csv').resolve()} {n}\n")
        helper.stdin.flush()
        while not (said := helper.stdout.readline()).startswith("done"):
            assert said
        code = int(said.split()[1])
        assert code in (0, signal.SIGKILL)
        found = rows_of(one)
        states.append(found)
        if found != new:
            assert found == (TRAIN,) * 3
            assert contents_but_unfinished(one) == old
        else:
            assert {(one / name).read_text() for name in (runs.LATENT, runs.EXPLORER)} == {"latent", "page"}
        assert not (one / unfinished.FOLDER / unfinished.READY).exists()
        if n % 8 == 1:  # what is left is in nobody's way
            assert cli.main(["update", str(one), "new.csv"]) == (2 if found == new else 0)
            assert rows_of(one) == new
            assert {file.name for file in one.iterdir()} == set(runs.FILES)
        if not code:
            break
    return states


def contents_but_unfinished(run):
    return {file.name: file.read_bytes() for file in Path(run).iterdir() if file.name != unfinished.FOLDER}


@pytest.mark.skipif(sys.platform != "linux", reason="mounts a tmpfs")
def test_a_full_disk_leaves_the_old_run(run, error):
    size = sum(file.stat().st_size for file in run.iterdir())
    Path("disk").mkdir()
    room = (size // 4096 + 60) * 4  # KiB: for the run and a little more
    mount = ["mount", "-t", "tmpfs", "-o", f"size={room}k", "tmpfs", "disk"]
    done = subprocess.run(mount, capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"mount is not permitted here: {done.stderr.decode().strip()}")
    try:
        shutil.copytree(run, "disk/run")
        before = contents("disk/run")
        said = error("update", "disk/run", "new.csv")
        assert "disk/run could not be updated: No space left on device. It is as it was before" in said
        assert contents("disk/run") == before
    finally:
        subprocess.run(["umount", "disk"], check=True)


def test_a_private_file_stays_private(run, sasgp):
    Path("run/model.safetensors").chmod(0o600)
    Path("run/embedding.csv").chmod(0o640)
    sasgp("update", "run", "new.csv")
    modes = [(run / name).stat().st_mode & 0o777 for name in (runs.MODEL, runs.EMBEDDING)]
    assert modes == [0o600, 0o640]
