"""`sasgp fit`: the files of a run, its numbers, and what is left when it fails."""

import errno
import json
import os
import re
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import FAST, ROWS, table
from processes import Process, wait_for

from sasgp import SASGP, cli
from sasgp.cli import runs
from sasgp.gp.linalg import NotPositiveDefiniteError
from sasgp.metrics import knn_accuracy, mae, nlpd, rmse


def test_a_run_holds_its_files_and_nothing_else(home):
    assert {file.name for file in (home / "run").iterdir()} == set(runs.FILES)
    assert not [file for file in home.iterdir() if file.name.startswith(".")]
    for picture in ("latent.png", "loss.png"):
        assert (home / "run" / picture).read_bytes().startswith(b"\x89PNG")


def test_embedding_csv_has_every_row_in_order_with_the_model_s_latents(home):
    frame = pl.read_csv(home / "run" / "embedding.csv")
    assert frame.columns == ["row", "z0", "z1", "label", "split"]
    assert frame["row"].to_list() == list(range(ROWS))
    assert frame["label"].to_list() == table()["species"].to_list()
    assert frame["split"].value_counts().sort("split")["count"].to_list() == [7, 63]  # a tenth is test
    model = SASGP.load(home / "run" / "model.safetensors")
    Z = frame.select(pl.col("z0", "z1").cast(pl.Float32)).to_numpy()
    np.testing.assert_allclose(Z, model.transform(table().drop("species").to_numpy()), atol=1e-6)


def test_history_has_a_line_an_epoch(home):
    lines = [json.loads(line) for line in (home / "run" / "history.jsonl").read_text().splitlines()]
    assert lines == SASGP.load(home / "run" / "model.safetensors").history_
    assert [line["epoch"] for line in lines] == [1, 2]


def test_run_json_has_the_metrics_that_the_public_functions_give(home):
    info = json.loads((home / "run" / "run.json").read_text())
    assert info["data"]["source"] == str((home / "table.csv").resolve())
    assert info["data"]["columns"] == ["a", "b", "c", "d"]
    model = SASGP.load(home / "run" / "model.safetensors")
    frame = pl.read_csv(home / "run" / "embedding.csv")
    test = (frame["split"] == "test").to_numpy()
    X, y = table().drop("species").to_numpy(), table()["species"].to_numpy()
    Z = model.transform(X)
    mean, std = model.predict(Z[test], return_std=True)
    expected = {
        "rows": 7,
        "rmse": rmse(X[test], mean),
        "mae": mae(X[test], mean),
        "nlpd": nlpd(X[test], mean, std**2.0),
        "knn_1": knn_accuracy(Z[~test], y[~test], Z[test], y[test], 1),
        "knn_15": knn_accuracy(Z[~test], y[~test], Z[test], y[test], 15),
    }
    assert {key: info["metrics"][key] for key in expected} == pytest.approx(expected, rel=1e-4)
    # PCA by hand: axes of the centred training rows
    centre = X[~test].mean(0)
    axes = np.linalg.svd(X[~test] - centre)[2][:2]
    rest = (X[test] - centre) - (X[test] - centre) @ axes.T @ axes
    assert info["metrics"]["pca_rmse"] == pytest.approx(np.sqrt(np.mean(rest**2)))


def test_fit_prints_plain_lines_with_what_it_wrote_and_how_good_it_is(home, here, sasgp):
    out = sasgp("fit", home / "table.csv", "--labels", "species", "--out", "runs/deep/run", *FAST)
    info = json.loads(Path("runs/deep/run/run.json").read_text())
    assert "\x1b" not in out
    assert "through the latent space, z = encoder(x)" in out
    lines = {line.split("  ")[0]: line for line in out.splitlines()}
    assert f"{info['metrics']['nlpd']:.4f}" in lines["NLPD"]
    assert f"PCA with 2 components: {info['metrics']['pca_rmse']:.4f}" in lines["RMSE"]
    assert "7 more held out" in lines["rows"]
    assert "runs/deep/run/model.safetensors" in out
    assert out.splitlines()[-4:-2] == [
        "Open",
        f"  {'runs/deep/run/explorer.html':<27}  explore the latent space in a browser",
    ]


@pytest.mark.parametrize(("typed", "used"), [((), 1.0), (("auto",), 1.0), (("0.5",), 0.5), (("0",), 0.0)])
def test_fit_says_which_noise_its_encoder_had(home, here, sasgp, typed, used):
    options = [token for value in typed for token in ("--encoder-noise", value)]
    out = sasgp("fit", home / "table.csv", "--labels", "species", "--out", "run", *options, *FAST)
    assert re.search(rf"^encoder noise +{used:g} ", out, re.MULTILINE)
    assert json.loads(Path("run/run.json").read_text())["training"]["encoder_noise"] == used
    model = SASGP.load("run/model.safetensors")
    assert (model.encoder_noise, model.encoder_noise_) == ("auto" if typed in ((), ("auto",)) else used, used)


def test_fit_says_which_labels_it_took(home, here, sasgp):
    def labels(*tokens):
        lines = sasgp("fit", *tokens, "--out", "run", "--overwrite", "--encoder", "table", *FAST).splitlines()
        return [re.split("  +", line)[1:] for line in lines if line.startswith("labels ")]

    table(20).rename({"species": "y"}).write_csv("x.csv")
    assert labels("x.csv") == [["y", "from the data file, recognised by name; choose others with --labels"]]
    assert labels("x.csv", "--labels", "y") == [["y", "from the data file"]]
    assert labels(home / "images.npy") == []
    np.save("z.npy", np.arange(20.0).reshape(10, 2))
    Path("classes.txt").write_text("a\nb\n" * 5)
    assert labels("z.npy", "--labels", "classes.txt") == [["classes.txt", "from their own file"]]


def test_the_same_command_gives_the_same_embedding(home, here, sasgp):
    sasgp("fit", home / "table.csv", "--labels", "species", "--out", "again", *FAST)
    assert Path("again/embedding.csv").read_bytes() == (home / "run" / "embedding.csv").read_bytes()


def test_gplvm_keeps_its_own_default_latents(home, here, sasgp, error):
    data = ("fit", home / "images.npy", "--model", "gplvm", "--encoder", "table", "--out")
    sasgp(*data, "exact", *FAST)
    assert json.loads(Path("exact/run.json").read_text())["training"]["latents"] == "point"
    sasgp(*data, "bayesian", "--latents", "bayesian", *FAST)
    assert json.loads(Path("bayesian/run.json").read_text())["training"]["latents"] == "bayesian"
    assert "--batch-size" in error(*data, "wrong", "--batch-size", "10")
    sasgp("embed", "exact", home / "images.npy", "--out", "z.npy")
    assert len(np.load("z.npy")) == 40


def test_nothing_is_held_out_of_little_data_or_where_asked(home, here, sasgp):
    info = json.loads((home / "pictures" / "run.json").read_text())
    assert (info["data"]["rows"], info["data"]["held_out"], info["metrics"]["rows"]) == (40, 0, 40)
    out = sasgp("fit", home / "table.csv", "--labels", "species", "--test-fraction", "0", "--out", "all", *FAST)
    assert "On 70 training rows" in out
    assert "5-fold cross-validation" in out


@pytest.mark.parametrize("name", ["x.npz", "x.tsv", "x.parquet"])
def test_other_files_can_be_fitted(here, sasgp, name):
    frame = table(20)
    if name == "x.npz":
        np.savez(name, X=frame.drop("species").to_numpy(), y=np.arange(20) % 2.0)
    elif name == "x.tsv":
        frame.rename({"species": "label"}).write_csv(name, separator="\t")
    else:
        frame.rename({"species": "label"}).write_parquet(name)
    sasgp("fit", name, "--out", "run", "--encoder", "table", *FAST)
    labels = pl.read_csv("run/embedding.csv")["label"]
    assert labels.to_list() == ([0, 1] * 10 if name == "x.npz" else frame["species"].to_list())


def test_images_of_a_file_are_named_by_their_sides_and_a_run_goes_on_with_them(here, error, sasgp, monkeypatch):
    np.save("x.npy", np.random.default_rng(0).random((60, 64), np.float32))
    command = (
        "fit",
        "x.npy",
        "--out",
        "run",
        "--encoder",
        "conv",
        "--init",
        "spectral",
        "--layout-weight",
        "0.1",
        *FAST,
    )
    assert "give the sides of one row" in error(*command, "--image-shape", "4", "15")
    shape = ("--image-shape", "4", "16")
    with monkeypatch.context() as patch:
        patch.setattr(SASGP, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert "--resume" in error(*command, *shape, code=130)
    assert "image_shape: [4, 16] in the run, [16, 4] now" in error("fit", "--resume", "run", "--image-shape", "16", "4")
    assert "run is not finished, so there is no model yet. Continue it with `sasgp fit --resume run`." in error(
        "embed", "run", "x.npy", "--out", "z.npy"
    )
    sasgp("fit", "--resume", "run", *shape)
    assert json.loads(Path("run/run.json").read_text())["data"]["image_shape"] == [4, 16]
    assert SASGP.load("run/model.safetensors").model_.encoder.picture.sizes == (1, 4, 16)
    sasgp("sample", "run", "--out", "x.png")


def test_constant_columns_are_fine(here, sasgp):
    np.save("x.npy", np.column_stack([np.ones(20), np.zeros(20)]))
    sasgp("fit", "x.npy", "--out", "run", "--encoder", "table", *FAST)
    model = SASGP.load("run/model.safetensors")
    np.testing.assert_allclose(model.predict(model.embedding_[:3]), [[1, 0]] * 3, atol=1e-6)


def test_overwrite_replaces_the_run_and_nothing_else(home, here, sasgp, error):
    data = ("fit", home / "images.npy", "--encoder", "table", "--out", "run", *FAST)
    sasgp(*data)
    Path("run/notes.txt").write_text("mine")
    before = Path("run/model.safetensors").read_bytes()
    assert "--overwrite" in error(*data)
    assert Path("run/model.safetensors").read_bytes() == before
    sasgp(*data, "--overwrite", "--random-state", "1")
    assert Path("run/model.safetensors").read_bytes() != before
    assert {file.name for file in Path("run").iterdir()} == {*runs.FILES, "notes.txt"}


def test_a_folder_of_other_files_is_left_alone(home, here, error):
    Path("work").mkdir()
    Path("work/notes.txt").write_text("mine")
    assert "and no run" in error("fit", home / "images.npy", "--out", "work", *FAST)
    assert [file.name for file in Path("work").iterdir()] == ["notes.txt"]


def test_an_empty_folder_is_used_as_it_is(home, here, sasgp, monkeypatch):
    Path("work").mkdir()
    monkeypatch.chdir("work")
    sasgp("fit", home / "images.npy", "--encoder", "table", "--out", ".", *FAST)
    assert {file.name for file in Path().iterdir()} == set(runs.FILES)


@pytest.mark.parametrize("out", ["file/below", "/proc/run", "file"])
def test_an_unwritable_place_is_noticed_before_training(home, here, error, monkeypatch, out):
    Path("file").write_text("")
    monkeypatch.setattr(SASGP, "fit", lambda *_, **__: pytest.fail("trained for nothing"))
    assert out.split("/")[-1] in error("fit", home / "images.npy", "--out", out)
    assert [file.name for file in here.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("failure", "code"), [(KeyboardInterrupt, 130), (NotPositiveDefiniteError("K is not"), 1), (OSError(28, "Full"), 2)]
)
def test_a_failed_fit_leaves_nothing_or_a_way_to_go_on(home, here, error, sasgp, monkeypatch, failure, code):
    monkeypatch.setattr("tempfile.tempdir", str(home))

    def fail(*_, **__):
        raise failure

    data = ("fit", home / "images.npy", "--encoder", "table", "--out", "runs/new", *FAST)
    with monkeypatch.context() as patch:
        patch.setattr(SASGP, "fit", fail)
        error(*data, code=code)
    assert not list(here.iterdir())
    for stage in ((SASGP, "save"), (runs.Embedding, "write")):  # trained by then
        with monkeypatch.context() as patch:
            patch.setattr(*stage, fail)
            assert "--resume" in error(*data, "--overwrite", code=code)
        assert [file.name for file in Path("runs/new").iterdir()] == ["unfinished"]
    sasgp("fit", "--resume", "runs/new")
    assert {file.name for file in Path("runs/new").iterdir()} == set(runs.FILES)


def test_an_interrupted_process_leaves_nothing_or_a_way_to_go_on(home, here):
    tokens = ["fit", f"{home}/images.npy", "--out", "runs/new", "--max-epochs", "1000000"]
    process = Process("-m", "sasgp", *tokens)
    wait_for(Path("runs/new/unfinished/history.jsonl"), process)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert err.count("\n") == 1
    if "Nothing half-written is left" in err:  # before training
        assert not list(here.iterdir())
    else:
        assert "Continue it with `sasgp fit --resume" in err


def test_a_folder_in_which_another_process_trains_is_taken(home, here, error, sasgp, monkeypatch):
    fit = SASGP.fit

    def fit_slowly(model, X, **options):
        with monkeypatch.context() as patch:
            patch.setattr(SASGP, "fit", fit)
            assert "not finished" in error("fit", home / "images.npy", "--out", "run", *FAST)
        return fit(model, X, **options)

    monkeypatch.setattr(SASGP, "fit", fit_slowly)
    sasgp("fit", home / "images.npy", "--encoder", "table", "--out", "run", *FAST)
    assert {file.name for file in Path("run").iterdir()} == set(runs.FILES)


@pytest.mark.parametrize(("failure", "code"), [(KeyboardInterrupt, 130), (OSError(28, "Full"), 2)])
def test_a_picture_that_fails_costs_neither_the_numbers_nor_the_run(home, here, capsys, monkeypatch, failure, code):
    def fail(*_, **__):
        raise failure

    monkeypatch.setattr("sasgp.plots.training_curve", fail)
    assert cli.main(["fit", f"{home}/images.npy", "--encoder", "table", "--out", "my run", *FAST]) == code
    out, err = capsys.readouterr()
    assert "NLPD" in out
    assert "Open" not in out.splitlines()
    assert err.count("\n") == 1
    assert (
        "The run is complete. `sasgp explore 'my run'` and `sasgp plot 'my run' --out FOLDER` make its pictures" in err
    )
    SASGP.load("my run/model.safetensors")


def test_a_bug_in_a_picture_shows_its_traceback_and_keeps_the_model(home, here, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("sasgp.plots.training_curve", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["fit", f"{home}/images.npy", "--encoder", "table", "--out", "run", *FAST])
    SASGP.load("run/model.safetensors")


# ---------------------------------------------------------------------------------------------------- nothing is lost

TABLE = ("--encoder", "table", *FAST)


def contents(folder):
    return {path.name: path.read_bytes() for path in Path(folder).iterdir() if path.is_file()}


def test_a_run_is_assembled_inside_its_folder(home, here, sasgp, monkeypatch):
    # The folder may be a mount point, whose parent is on another device, or may belong to somebody else
    target = here / "volume"
    target.mkdir()
    inside = str(target) + os.sep
    rename, replace, mkdir = os.rename, os.replace, os.mkdir

    def inside_alone(true):
        def move(source, destination, **options):
            if str(source).startswith(inside) and str(destination).startswith(inside):
                return true(source, destination, **options)
            raise OSError(errno.EXDEV, "Invalid cross-device link", str(source))

        return move

    def make_inside(path, *arguments, **options):
        if str(path).startswith(str(here)) and not str(path).startswith(inside):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return mkdir(path, *arguments, **options)

    monkeypatch.setattr(os, "rename", inside_alone(rename))
    monkeypatch.setattr(os, "replace", inside_alone(replace))
    monkeypatch.setattr(os, "mkdir", make_inside)
    sasgp("fit", home / "images.npy", "--out", target, *TABLE)
    before = contents(target)
    assert before.keys() == set(runs.FILES)
    sasgp("fit", home / "images.npy", "--out", target, "--overwrite", "--random-state", 1, *TABLE)
    after = contents(target)
    assert after.keys() == set(runs.FILES)
    assert after[runs.MODEL] != before[runs.MODEL]
    assert [path.name for path in here.iterdir()] == ["volume"]


@pytest.mark.parametrize("name", [runs.EMBEDDING, runs.MODEL])
def test_a_move_that_fails_puts_the_old_run_back(home, here, sasgp, error, monkeypatch, name):
    monkeypatch.setattr("tempfile.tempdir", str(home))
    sasgp("fit", home / "images.npy", "--out", "run", *TABLE)
    before, rename = contents("run"), Path.rename

    def fail(self, target):
        if self.parent.name == "new" and self.name == name:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", fail)
    again = ("fit", home / "images.npy", "--out", "run", "--overwrite", "--random-state", 1, *TABLE)
    assert "Input/output error" in error(*again)
    assert contents("run") == before
    monkeypatch.undo()
    monkeypatch.chdir(here)
    sasgp("fit", "--resume", "run")
    assert {path.name for path in Path("run").iterdir()} == set(runs.FILES)


KILLED = """
import os, sys
from pathlib import Path
from sasgp import cli
rename = Path.rename
def killed(self, target):
    if self.parent.name == "new" and self.name == "run.json":
        os.kill(os.getpid(), 9)
    return rename(self, target)
Path.rename = killed
cli.main(sys.argv[1:])
"""


def test_a_kill_in_the_last_move_leaves_nothing_for_ever(home, here, sasgp):
    sasgp("fit", home / "images.npy", "--out", "whole", "--random-state", 1, *TABLE)
    sasgp("fit", home / "images.npy", "--out", "run", *TABLE)
    command = ["fit", f"{home}/images.npy", "--out", "run", "--overwrite", "--random-state", "1", *TABLE]
    process = Process("-c", KILLED, *command)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert Path("run/unfinished").is_dir()
    sasgp("fit", "--resume", "run")
    assert sorted(path.name for path in here.iterdir()) == ["run", "whole"]
    assert {path.name for path in Path("run").iterdir()} == set(runs.FILES)
    assert contents("run")[runs.EMBEDDING] == contents("whole")[runs.EMBEDDING]


@pytest.mark.parametrize("name", ["notes.txt", "run.json"])
def test_a_folder_of_the_user_called_unfinished_is_kept(home, here, error, monkeypatch, name):
    monkeypatch.setattr(SASGP, "fit", lambda *_, **__: pytest.fail("trained"))
    Path("work/unfinished").mkdir(parents=True)
    Path("work/unfinished", name).write_text("[1, 2]")
    for more in ((), ("--overwrite",)):
        message = error("fit", home / "images.npy", "--out", "work", *more, *FAST)
        assert ("and no run" if not more else "unfinished is not from sasgp") in message
    assert Path("work/unfinished", name).read_text() == "[1, 2]"


def test_a_folder_in_the_place_of_a_file_is_kept(home, here, error, monkeypatch):
    monkeypatch.setattr(SASGP, "fit", lambda *_, **__: pytest.fail("trained"))
    Path("work/latent.png").mkdir(parents=True)
    Path("work/latent.png/mine").write_text("mine")
    assert "latent.png is a folder" in error("fit", home / "images.npy", "--out", "work", "--overwrite", *FAST)
    assert Path("work/latent.png/mine").exists()


def test_a_run_does_not_overwrite_its_own_data(home, here, sasgp, error):
    sasgp("fit", home / "table.csv", "--labels", "species", "--out", "run", *FAST)
    before = contents("run")
    Path("link.csv").symlink_to("run/embedding.csv")
    for data in ("run/embedding.csv", "link.csv"):
        assert "which the command reads" in error("fit", data, "--out", "run", "--overwrite", *FAST)
    labels = ("--labels", "run/embedding.csv")
    assert "which the command reads" in error("fit", home / "table.csv", *labels, "--out", "run", "--overwrite", *FAST)
    assert contents("run") == before


# ---------------------------------------------------------------------------------------------------- one at a time


def test_a_run_that_is_under_way_is_locked(home, here, error, sasgp, monkeypatch):
    fit, refused = SASGP.fit, []

    def fit_slowly(model, X, **options):
        monkeypatch.setattr(SASGP, "fit", lambda *_, **__: pytest.fail("trained twice"))
        try:
            refused.append(error("fit", "--resume", "run"))
            refused.append(error("fit", home / "images.npy", "--out", "run", "--overwrite", *TABLE))
        finally:
            monkeypatch.setattr(SASGP, "fit", fit)
        return fit(model, X, **options)

    monkeypatch.setattr(SASGP, "fit", fit_slowly)
    sasgp("fit", home / "images.npy", "--out", "run", *TABLE)
    assert len(refused) == 2
    for message in refused:
        assert f"Another process is training or updating the run in {here / 'run'}. Wait until it ends" in message
    assert {path.name for path in Path("run").iterdir()} == set(runs.FILES)


def test_the_lock_of_a_dead_process_is_not_in_the_way(home, here, error, sasgp):
    tokens = ["fit", f"{home}/images.npy", "--out", "run", "--max-epochs", "1000000", "--encoder", "table"]
    process = Process("-m", "sasgp", *tokens)
    wait_for(Path("run/unfinished/checkpoint.pt"), process)
    assert "Another process is training" in error("fit", "--resume", "run")
    process.kill()
    process.communicate()
    assert Path("run/unfinished/lock").exists()
    sasgp("fit", home / "images.npy", "--out", "run", "--overwrite", *TABLE)
    assert {path.name for path in Path("run").iterdir()} == set(runs.FILES)


@pytest.mark.parametrize("which", ["table", "images"])
def test_a_run_killed_while_it_was_drawing_is_finished_by_resume(home, here, error, sasgp, monkeypatch, which):
    options = ("--labels", "species", *FAST) if which == "table" else TABLE
    sasgp("fit", home / ("table.csv" if which == "table" else "images.npy"), "--out", "run", *options)
    whole = contents("run")
    for lost in ([runs.EXPLORER], [runs.LATENT, runs.LOSS, runs.EXPLORER]):
        for name in lost:
            Path("run", name).unlink()
        with monkeypatch.context() as patch:
            patch.setattr(SASGP, "fit", lambda *_, **__: pytest.fail("trained again"))
            assert "already finished" in error("fit", "--resume", "run", "--max-epochs", "7")
            assert "explorer.html" in sasgp("fit", "--resume", "run")
        assert contents("run").keys() == whole.keys()
        for name in (runs.MODEL, runs.EMBEDDING, runs.LATENT, runs.EXPLORER):
            assert contents("run")[name] == whole[name], name
    assert "already finished" in error("fit", "--resume", "run")


def test_a_table_with_holes_is_trained_embedded_and_evaluated(here, sasgp):
    draw = np.random.default_rng(0)
    t = draw.uniform(-2, 2, 80)
    X = np.stack([t, np.sin(t), t**2, -t], 1)
    X[draw.random(X.shape) < 0.2] = np.nan
    X[np.isnan(X).all(1), 0] = 0.0
    np.savetxt("holes.csv", X, delimiter=",", header="a,b,c,d", comments="")
    sasgp("fit", "holes.csv", "--out", "run", "--max-epochs", "2")
    sasgp("embed", "run", "holes.csv", "--out", "z.npy")
    np.testing.assert_allclose(np.load("z.npy"), SASGP.load("run/model.safetensors").transform(X), atol=1e-6)
    sasgp("evaluate", "run", "holes.csv")
    sasgp("evidence", "run", "holes.csv")
