"""The command line: every command, every kind of file, and one line for everything a user can put right."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
import torch

from sasgp import SASGP, cli
from sasgp.cli import runs
from sasgp.data import load
from sasgp.evaluation import hold_out, knn_cross_validated, pca_rmse, reconstruction, structure, tidy_labels
from sasgp.explorer.packing import unpack
from sasgp.gp.linalg import NotPositiveDefiniteError
from sasgp.metrics import knn_accuracy, mae, nlpd, rmse

FAST = ("--max-epochs", "2")
ROWS = 70


def table(n=ROWS, seed=0):
    """Two groups of four features, named, with text labels."""
    draw = np.random.default_rng(seed)
    group = np.arange(n) % 2
    X = draw.normal(size=(n, 4)) + 4 * group[:, None]
    return pl.DataFrame(dict(zip("abcd", X.T, strict=True)) | {"species": np.where(group == 1, "cat", "dog")})


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A folder with table.csv, images.npy, and a run of each."""
    home = tmp_path_factory.mktemp("home")
    table().write_csv(home / "table.csv")
    images = np.random.default_rng(0).random((40, 3, 5)).astype(np.float32)
    np.save(home / "images.npy", images)
    assert cli.main(["fit", f"{home}/table.csv", "--labels", "species", "--out", f"{home}/run", *FAST]) == 0
    assert cli.main(["fit", f"{home}/images.npy", "--out", f"{home}/pictures", "--encoder", "table", *FAST]) == 0
    return home


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sasgp(capsys):
    """Runs a command that must succeed, and returns what it printed."""

    def sasgp(*tokens):
        code = cli.main([str(token) for token in tokens])
        out, err = capsys.readouterr()
        assert (code, err) == (0, "")
        return out

    return sasgp


@pytest.fixture
def error(capsys):
    """Runs a command that must fail with code 2 and one line, and returns that line."""

    def error(*tokens, code=2):
        capsys.readouterr()
        assert cli.main([str(token) for token in tokens]) == code
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("sasgp: error: ")
        assert err.count("\n") == 1
        return err

    return error


def shell(*tokens, **options):
    command = [sys.executable, "-m", "sasgp", *map(str, tokens)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


# ---------------------------------------------------------------------------------------------------- help


@pytest.mark.parametrize("tokens", [["--help"], ["fit", "--help"], ["--version"], []])
def test_help_does_not_wait_for_heavy_imports(tokens):
    code = (
        "import sys; from sasgp.cli import main; code = main(sys.argv[1:]); "
        "print({'torch', 'gpytorch', 'sklearn', 'matplotlib', 'plotly', 'polars'} & {*sys.modules}); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code, *tokens], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "set()"


def test_every_setting_is_an_option_with_its_own_help():
    done = shell("fit", "--help", env=os.environ | {"COLUMNS": "400"})
    for name in cli.Settings.__dataclass_fields__:
        assert f"--{name.replace('_', '-')} " in done.stdout
    assert "Dimensions of the latent space, Q." in done.stdout
    assert "ANY" not in done.stdout
    assert "--empty" not in done.stdout


@pytest.mark.parametrize("command", ["explore", "plot"])
def test_help_says_which_rows_are_shown_by_default(command):
    done = shell(command, "--help", env=os.environ | {"COLUMNS": "400"})
    assert "By default the points of the run's embedding.csv" in done.stdout


def test_the_command_line_is_reproducible_and_shows_progress_by_default():
    assert (cli.DEFAULTS.random_state, cli.DEFAULTS.verbose) == (0, True)
    settings = cli.Settings()
    changed = {name for name, value in vars(settings).items() if getattr(cli.DEFAULTS, name) != value}
    assert changed == {"latents", "random_state", "verbose"}


# ---------------------------------------------------------------------------------------------------- fit


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
    assert f"PCA with 2 components has {info['metrics']['pca_rmse']:.4f}" in lines["RMSE"]
    assert "7 held out" in lines["rows"]
    assert "runs/deep/run/model.safetensors" in out
    assert out.splitlines()[-4:-2] == [
        "open",
        f"  {'runs/deep/run/explorer.html':<27}  look around in the latent space",
    ]


def test_fit_says_which_labels_it_took(home, here, sasgp):
    def labels(*tokens):
        lines = sasgp("fit", *tokens, "--out", "run", "--overwrite", "--encoder", "table", *FAST).splitlines()
        return [re.split("  +", line)[1:] for line in lines if line.startswith("labels ")]

    table(20).rename({"species": "y"}).write_csv("x.csv")
    assert labels("x.csv") == [["y", "of the data's file, taken for its name; --labels names another"]]
    assert labels("x.csv", "--labels", "y") == [["y", "of the data's file"]]
    assert labels(home / "images.npy") == []
    np.save("z.npy", np.arange(20.0).reshape(10, 2))
    Path("classes.txt").write_text("a\nb\n" * 5)
    assert labels("z.npy", "--labels", "classes.txt") == [["classes.txt", "a file of its own"]]


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
    assert "on 70 training rows" in out
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
    command = ("fit", "x.npy", "--out", "run", "--encoder", "conv", "--init", "spectral", "--neighbours", "0.1", *FAST)
    assert "give the sides of one row" in error(*command, "--image-shape", "4", "15")
    shape = ("--image-shape", "4", "16")
    with monkeypatch.context() as patch:
        patch.setattr(SASGP, "save", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert "--resume" in error(*command, *shape, code=130)
    assert "image_shape: [4, 16] in the run, [16, 4] now" in error("fit", "--resume", "run", "--image-shape", "16", "4")
    assert "run is not finished, so there is no model yet; go on with `sasgp fit --resume run`." in error(
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
    images = np.load(home / "images.npy")
    SASGP.load("run/model.safetensors").build_index(images.reshape(len(images), -1)).save("run/model.safetensors")
    assert Path("run/model.neighbours.safetensors").exists()
    sasgp(*data, "--overwrite", "--random-state", "1")
    assert Path("run/model.safetensors").read_bytes() != before
    assert {file.name for file in Path("run").iterdir()} == {*runs.FILES, "notes.txt"}


def test_a_folder_of_other_files_is_left_alone(home, here, error):
    Path("work").mkdir()
    Path("work/notes.txt").write_text("mine")
    assert "no run" in error("fit", home / "images.npy", "--out", "work", *FAST)
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
    process = subprocess.Popen([sys.executable, "-m", "sasgp", *tokens], stderr=subprocess.PIPE, text=True)
    while not Path("runs/new/unfinished/history.jsonl").exists():
        assert process.poll() is None, process.communicate()
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert err.count("\n") == 1
    if "nothing half-written is left" in err:  # before training
        assert not list(here.iterdir())
    else:
        assert "go on with `sasgp fit --resume" in err


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
    assert "open" not in out.splitlines()
    assert err.count("\n") == 1
    assert "The run is whole: `sasgp explore 'my run'` and `sasgp plot 'my run' --out FOLDER` make its pictures" in err
    SASGP.load("my run/model.safetensors")


def test_a_bug_in_a_picture_shows_its_traceback_and_keeps_the_model(home, here, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("a bug")

    monkeypatch.setattr("sasgp.plots.training_curve", fail)
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["fit", f"{home}/images.npy", "--encoder", "table", "--out", "run", *FAST])
    SASGP.load("run/model.safetensors")


# ---------------------------------------------------------------------------------------------------- the others


def test_embed_writes_what_transform_gives(home, here, sasgp):
    new = table(9, seed=1)
    new.write_csv("new.csv")
    sasgp("embed", home / "run", "new.csv", "--labels", "species", "--out", "z.csv")
    sasgp("embed", home / "run" / "model.safetensors", "new.csv", "--labels", "species", "--out", "z.npy")
    Z = SASGP.load(home / "run" / "model.safetensors").transform(new.drop("species").to_numpy())
    np.testing.assert_array_equal(np.load("z.npy"), Z)
    frame = pl.read_csv("z.csv")
    assert frame.columns == ["row", "z0", "z1", "label"]
    np.testing.assert_array_equal(frame.select(pl.col("z0", "z1").cast(pl.Float32)).to_numpy(), Z)


def test_columns_in_another_order_are_found_by_name(home, here, sasgp):
    table(9, seed=1).drop("species").write_csv("new.csv")
    table(9, seed=1).select("d", "b", "a", "c").write_csv("mixed.csv")
    more = table(9, seed=1).with_columns(e=pl.lit(1.5), note=pl.lit("text"))  # which the model has never seen
    more.select("e", "d", "note", "b", "a", "species", "c").write_csv("more.csv")
    sasgp("embed", home / "run", "new.csv", "--out", "new.npy")
    for other in ("mixed", "more"):
        sasgp("embed", home / "run", f"{other}.csv", "--out", f"{other}.npy")
        np.testing.assert_array_equal(np.load(f"{other}.npy"), np.load("new.npy"))


def test_a_feature_that_is_called_like_labels(here, sasgp):
    named = table().rename({"b": "y"}).with_columns(pl.col("y").round().cast(pl.Int64))
    named.write_csv("named.csv")
    named.drop("species").write_csv("new.csv")
    sasgp("fit", "named.csv", "--labels", "species", "--out", "run", "--test-fraction", "0", *FAST)
    for name in ("named", "new"):
        sasgp("embed", "run", f"{name}.csv", "--out", f"{name}.npy")
    np.testing.assert_array_equal(np.load("new.npy"), np.load("named.npy"))


def test_latents_beside_columns_that_decode_does_not_need(home, here, sasgp):
    Path("z.csv").write_text("label,z1,class,z0\n,1,a,0\nb,0,,1\n")
    np.save("z.npy", np.array([[0.0, 1], [1, 0]]))
    for name in ("z.csv", "z.npy"):
        sasgp("decode", home / "run", name, "--out", f"{name}.out.npy")
    np.testing.assert_array_equal(np.load("z.csv.out.npy"), np.load("z.npy.out.npy"))


def test_columns_without_names_are_not_chosen_from(here, sasgp, error):
    X = table(9, seed=1).drop("species").to_numpy()
    np.savetxt("four.csv", X, delimiter=",")
    np.savetxt("five.csv", np.hstack([X, X[:, :1]]), delimiter=",")
    sasgp("fit", "four.csv", "--out", "four", *FAST)
    assert "must have 4 features" in error("embed", "four", "five.csv", "--out", "z.npy")


def test_as_many_columns_of_other_names_are_others(home, here, sasgp, error):
    frame = table(9, seed=1).drop("species")
    frame.rename({"c": "e", "d": "f"}).write_csv("other.csv")
    message = error("embed", home / "run", "other.csv", "--out", "z.npy")
    assert "It lacks c, d, and has e, f instead" in message
    # Where either side only counts its columns, they are those at the same place
    frame.write_csv("named.csv")
    frame.write_csv("bare.csv", include_header=False)
    frame.rename(dict(zip("abcd", "0123", strict=True))).write_csv("pandas.csv")
    np.save("plain.npy", frame.to_numpy())
    sasgp("embed", home / "run", "named.csv", "--out", "named-z.npy")
    for name in ("bare.csv", "pandas.csv", "plain.npy"):
        sasgp("embed", home / "run", name, "--out", "z.npy")
        np.testing.assert_array_equal(np.load("z.npy"), np.load("named-z.npy"))
    sasgp("fit", "bare.csv", "--out", "counted", *FAST)
    sasgp("embed", "counted", "named.csv", "--out", "z.npy")


def test_embed_and_evaluate_refine(home, here, sasgp):
    sasgp("embed", home / "run", home / "table.csv", "--labels", "species", "--out", "z.npy", "--refine", "3")
    model = SASGP.load(home / "run" / "model.safetensors")
    X = pl.read_csv(home / "table.csv").drop("species").to_numpy()
    np.testing.assert_allclose(np.load("z.npy"), model.transform(X, refine=3), atol=1e-4)
    arguments = ("evaluate", home / "run", home / "table.csv", "--labels", "species", "--json")
    result = json.loads(sasgp(*arguments, "--refine", "3"))
    frame = pl.read_csv(home / "run" / "embedding.csv").filter(pl.col("split") == "test")
    held_out = X[np.sort(frame["row"].to_numpy())]
    expected = reconstruction(model, held_out, model.transform(held_out, refine=3))
    assert result["nlpd"] == pytest.approx(expected["nlpd"], rel=1e-4)


def test_decode_after_embed_is_predict(home, here, sasgp):
    sasgp("embed", home / "run", home / "table.csv", "--labels", "species", "--out", "z.csv")
    sasgp("decode", home / "run", "z.csv", "--out", "x.npz")
    sasgp("decode", home / "run", "z.csv", "--out", "x.npy")
    sasgp("decode", home / "run", "z.csv", "--std", "--out", "x.csv")
    model = SASGP.load(home / "run" / "model.safetensors")
    X = load(home / "table.csv", labels="species").X
    mean, std = model.predict(model.transform(X), return_std=True)
    with np.load("x.npz") as archive:
        np.testing.assert_array_equal(archive["mean"], mean)
        np.testing.assert_array_equal(archive["std"], std)
    np.testing.assert_array_equal(np.load("x.npy"), mean)
    frame = pl.read_csv("x.csv")
    assert frame.columns == ["a", "b", "c", "d", "a_std", "b_std", "c_std", "d_std"]
    np.testing.assert_array_equal(frame.cast(pl.Float32).to_numpy(), np.hstack([mean, std]))


def test_decode_takes_a_run_s_embedding_and_plain_files(home, here, sasgp):
    Z = SASGP.load(home / "run" / "model.safetensors").transform(table().drop("species").to_numpy())
    np.save("plain.npy", Z)
    pl.DataFrame(Z).write_csv("plain.csv", include_header=False)
    for i, source in enumerate([home / "run" / "embedding.csv", "plain.npy", "plain.csv"]):
        sasgp("decode", home / "run", source, "--out", f"{i}.npy")
    np.testing.assert_allclose(np.load("1.npy"), np.load("0.npy"), atol=1e-5)
    np.testing.assert_array_equal(np.load("2.npy"), np.load("1.npy"))


def test_sample_writes_the_model_s_draws(home, here, sasgp):
    sasgp("sample", home / "run", "-n", "5", "--out", "x.npy")
    sasgp("sample", home / "run", "-n", "5", "--out", "x.csv")
    X = SASGP.load(home / "run" / "model.safetensors").sample(5, random_state=0)
    np.testing.assert_array_equal(np.load("x.npy"), X)
    assert pl.read_csv("x.csv").columns == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(pl.read_csv("x.csv").cast(pl.Float32).to_numpy(), X)
    sasgp("sample", home / "run", "-n", "5", "--no-noise", "--random-state", "3", "--out", "y.npy")
    smooth = SASGP.load(home / "run" / "model.safetensors").sample(5, noise=False, random_state=3)
    np.testing.assert_array_equal(np.load("y.npy"), smooth)


def test_sample_draws_images_for_a_run_of_images(home, here, sasgp, error):
    sasgp("sample", home / "pictures", "--out", "x.png")
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    assert "images" in error("sample", home / "run", "--out", "y.png")
    assert "images" in error("sample", home / "pictures" / "model.safetensors", "--out", "y.png")
    assert not Path("y.png").exists()


def test_evaluate_uses_the_rows_that_fit_held_out(home, here, sasgp):
    metrics = json.loads((home / "run" / "run.json").read_text())["metrics"]
    result = json.loads(sasgp("evaluate", home / "run", home / "table.csv", "--labels", "species", "--json"))
    assert {key: result[key] for key in metrics if key in result} == pytest.approx(
        {key: value for key, value in metrics.items() if key != "pca_rmse"}, rel=1e-4
    )
    out = sasgp("evaluate", home / "run", home / "table.csv", "--labels", "species")
    assert f"{result['nlpd']:.4f}" in out
    assert "held out" in out
    assert "90 % intervals" in out
    assert sum(result["pit"]) == 7 * 4  # a count for every value


def test_the_file_of_a_run_needs_its_labels_named_once(home, here, sasgp):
    with_labels = sasgp("evaluate", home / "run", home / "table.csv", "--labels", "species", "--json")
    assert sasgp("evaluate", home / "run", home / "table.csv", "--json") == with_labels
    assert json.loads(sasgp("evidence", home / "run", "--json"))["mean"] < 0


def test_evaluate_says_among_which_rows_the_neighbours_are(home, here, sasgp):
    table(30, seed=1).write_csv("new.csv")
    new = ("new.csv", "--labels", "species", "--json")
    run = json.loads(sasgp("evaluate", home / "run", *new))
    bare = json.loads(sasgp("evaluate", home / "run" / "model.safetensors", *new))
    assert run["rows"] == bare["rows"] == 30
    assert "training rows" in run["neighbours"]
    assert "cross-validation" in bare["neighbours"]
    assert run["rmse"] == bare["rmse"]


def test_evaluate_says_how_the_latents_are_arranged(home, here, sasgp):
    table(50, seed=1).write_csv("new.csv")
    result = json.loads(sasgp("evaluate", home / "run", "new.csv", "--labels", "species", "--json"))
    X, y = table(50, seed=1).drop("species").to_numpy(), table(50, seed=1)["species"].to_numpy()
    Z = SASGP.load(home / "run" / "model.safetensors").transform(X)
    expected = structure(X, Z, y)
    assert set(expected) == {"trustworthiness", "continuity", "neighbour_recall", "triplets", "silhouette"}
    assert {key: result[key] for key in expected} == pytest.approx(expected, rel=1e-4)
    out = sasgp("evaluate", home / "run", "new.csv", "--labels", "species")
    for key, name in (("trustworthiness", "trustworthiness"), ("triplets", "triplets in order")):
        assert re.search(rf"{name} +{result[key]:.4f}", out)


def test_evaluate_of_rows_that_the_model_knows_says_so(home, sasgp):
    assert "trained on" in sasgp("evaluate", home / "pictures", home / "images.npy")


def test_a_damaged_run_json_or_a_lost_one(home, here, sasgp, error):
    subprocess.run(["cp", "-r", f"{home}/run", "copy"], check=True)
    for damaged in ("{", "[]", '{"data": []}'):
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


# ---------------------------------------------------------------------------------------------------- evidence


def test_evidence_is_of_the_training_rows_and_printed_as_python_gives_it(home, sasgp):
    model, labels = SASGP.load(home / "run" / "model.safetensors"), ("--labels", "species")
    train = runs.Embedding.read(home / "run" / "embedding.csv").only("train").rows
    X = table().drop("species").to_numpy()
    expected = model.evidence(X[train])
    found = json.loads(sasgp("evidence", home / "run", *labels, "--json"))
    assert (found["rows"], found["which"]) == (63, "those that the model was trained on")
    assert (found["mean"], found["method"]) == (pytest.approx(expected.mean), "exact")
    out = sasgp("evidence", home / "run", home / "table.csv", *labels, "--dtype", "float32")
    assert f"{expected.mean:.2f}" in out
    assert "float32" in out
    other = ("evidence", home / "run" / "model.safetensors", home / "table.csv", *labels)
    assert json.loads(sasgp(*other, "--json"))["mean"] == pytest.approx(model.evidence(X).mean)


def test_evidence_of_a_table_uses_the_latents_that_are_its_parameters(home, sasgp):
    model = SASGP.load(home / "pictures" / "model.safetensors")
    X = np.load(home / "images.npy").reshape(40, -1)
    expected = model.evidence(X, Z=model.embedding_)
    assert json.loads(sasgp("evidence", home / "pictures", "--json"))["mean"] == pytest.approx(expected.mean)
    few = json.loads(sasgp("evidence", home / "pictures", "--rows", "12", "--json"))
    assert (few["rows"], few["which"]) == (12, "12 of those that the model was trained on, drawn at random")


@pytest.mark.parametrize("method", ["sas", "unbiased"])
def test_evidence_by_estimates_has_a_standard_error(home, sasgp, method):
    options = ("evidence", home / "pictures", "--method", method, "--n-estimates", "5", "--active-set-size", "7")
    found = json.loads(sasgp(*options, "--json"))
    assert (found["n_estimates"], found["active_set_size"]) == (5, 7)
    assert found["standard_error"] > 0
    assert "±" in sasgp(*options)


def test_evidence_draws_the_curve_alone_or_beside_the_number(home, here, sasgp):
    found = json.loads(sasgp("evidence", home / "pictures", "--curve", "c.png", "--n-estimates", "3", "--json"))
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    assert "mean" not in found
    assert len(found["curve"]["sizes"]) == len(found["curve"]["mean"])
    out = sasgp("evidence", home / "pictures", "--curve", "c.png", "--method", "sas", "--n-estimates", "3")
    assert "SAS, A = 20" in out
    assert "nats for each value." in out


def test_evidence_that_does_not_fit_into_memory_is_one_sentence(home, error, monkeypatch):
    monkeypatch.setattr("sasgp.gp.factor.memory_available", lambda device: 1000)
    assert "A factor of 40 rows in float64 needs" in error("evidence", home / "pictures")
    assert "add DATA" in error("evidence", home / "pictures" / "model.safetensors")


# ---------------------------------------------------------------------------------------------------- looking


def content_of(path):
    """What the page in a file shows."""
    text = Path(path).read_text().partition('id="content">')[2].partition("</script>")[0]
    return json.loads(text)


def test_fit_leaves_an_explorer_of_all_rows(home):
    page = content_of(home / "run" / "explorer.html")
    assert (page["title"], page["n_points"], page["features"]) == ("table", ROWS, ["a", "b", "c", "d"])
    label, split = page["columns"][:2]
    assert (label["classes"], split["classes"]) == (["cat", "dog"], ["test", "train"])
    frame = pl.read_csv(home / "run" / "embedding.csv")
    np.testing.assert_array_equal(unpack(page["Z"]), frame.select(pl.col("z0", "z1").cast(pl.Float32)).to_numpy())
    # A row beside its point is the row of the file
    places, X = unpack(page["observed"]["places"]), unpack(page["observed"]["X"])
    np.testing.assert_allclose(X, table().drop("species").to_numpy()[places], rtol=1e-6)
    image = content_of(home / "pictures" / "explorer.html")["image"]
    assert (image["height"], image["width"]) == (3, 5)


def test_explore_takes_a_run_a_model_or_other_data(home, here, sasgp):
    subprocess.run(["cp", "-r", f"{home}/run", "run"], check=True)
    Path("run/explorer.html").unlink()
    assert "run/explorer.html" in sasgp("explore", "run")
    page = content_of("run/explorer.html")
    assert page["columns"][0]["classes"] == ["cat", "dog"]
    assert page["observed"]["support"]

    sasgp("explore", "run/model.safetensors")
    assert content_of("run/model.html")["n_points"] == 63  # those of training: that is all a model knows

    table(9, seed=1).write_csv("new.csv")
    sasgp("explore", "run", "--data", "new.csv", "--labels", "species", "--out", "new.html")
    page = content_of("new.html")
    assert (page["title"], page["n_points"]) == ("new", 9)
    Z = SASGP.load("run/model.safetensors").transform(table(9, seed=1).drop("species").to_numpy())
    np.testing.assert_array_equal(unpack(page["Z"]), Z)


def test_numbers_as_labels_stay_numbers(here, sasgp):
    table(60).drop("species").with_columns(age=pl.Series(np.linspace(1, 2, 60))).write_csv("x.csv")
    sasgp("fit", "x.csv", "--labels", "age", "--out", "run", *FAST)
    sasgp("explore", "run")
    assert content_of("run/explorer.html")["columns"][0]["low"] == 1


def test_open_opens_the_page(home, here, sasgp, error, monkeypatch):
    opened = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or True)
    sasgp("explore", home / "run", "--out", "a b.html", "--open")
    sasgp("fit", home / "images.npy", "--encoder", "table", "--out", "run", "--open", *FAST)
    assert opened == [(here / "a b.html").as_uri(), (here / "run" / "explorer.html").as_uri()]
    monkeypatch.setattr("webbrowser.open", lambda _: False)
    assert cli.main(["explore", f"{home}/run", "--out", "x.html", "--open"]) == 2
    assert Path("x.html").exists()


def test_plot_draws_what_is_asked_for(home, here, sasgp):
    everything = {"latent.png", "grid.png", "curve.png", "reconstructions.png", "relevance.png"}
    for run in ("run", "pictures"):
        sasgp("plot", home / run, "--out", f"figures/{run}")
        assert {file.name for file in Path(f"figures/{run}").iterdir()} == everything
    for flag in everything:
        flag = flag.removesuffix(".png")
        sasgp("plot", home / "run", f"--{flag}", "--out", flag)
        assert [file.name for file in Path(flag).iterdir()] == [f"{flag}.png"]
    sasgp("plot", home / "run", "--data", home / "table.csv", "--labels", "species", "--reconstructions", "--out", "d")
    assert Path("d/reconstructions.png").read_bytes().startswith(b"\x89PNG")


def test_a_figure_that_a_kernel_does_not_have_is_left_out_unless_asked_for(here, sasgp, error):
    from gpytorch.kernels import LinearKernel

    X = np.random.default_rng(0).normal(size=(30, 3))
    SASGP(kernel=LinearKernel(), max_epochs=1).fit(X).save("m.safetensors")
    assert "left out" in sasgp("plot", "m.safetensors", "--out", "figures")
    assert not Path("figures/relevance.png").exists()
    assert "rbf-ard" in error("plot", "m.safetensors", "--relevance", "--out", "figures")


# ---------------------------------------------------------------------------------------------------- bad input


BAD_FILES = {
    "nan.csv": ("a,b\n1,2\n3,\n5,nan\n7,8\n", ("nan.csv contains 2 NaN", "row 1, column 1 ('b')")),
    "inf.csv": ("a,b\n1,2\n3,inf\n", ("1 NaN or infinite value", "(inf) in row 1")),
    "text.csv": ("a,b\n1,2\n3,four\n5,6\n", ("'b'", "'four'", "line 3")),
    "empty.csv": ("", ("empty",)),
    "header.csv": ("a,b\n", ("no rows",)),
    "one.csv": ("a,b\n1,2\n", ("2 rows", "1")),
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


def test_a_missing_value_is_named_by_every_command(home, here, error):
    table(9).with_columns(c=pl.lit(None, pl.Float64)).write_csv("holes.csv")
    words = "holes.csv contains 9 NaN or infinite values, the first (NaN) in row 0, column 2 ('c')"
    assert words in error("embed", home / "run", "holes.csv", "--labels", "species", "--out", "z.npy")
    assert words in error("evaluate", home / "run", "holes.csv", "--labels", "species")


def test_the_named_row_is_that_of_the_file_not_of_the_shuffle(here, error):
    X = np.zeros((200, 3))
    X[123, 2] = np.nan
    np.save("x.npy", X)
    assert "row 123, column 2" in error("fit", "x.npy", "--out", "run")


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["fit", "digits", "--out", "run", "--n-component", "3"], "Did you mean --n-components?"),
        (["fit", "digits", "--out", "run", "--n-components", "two"], "--n-components"),
        (["fit", "digits", "--out", "run", "--n-components", "1.5"], "components: expected a whole number. Got 1.5"),
        (["fit", "digits", "--out", "run", "--active-set-size=1.5"], "--active-set-size: expected a whole number"),
        (["fit", "digits", "--out", "run", "--image-shape", "8", "8.4"], "--image-shape: expected a whole number"),
        (["embed", "RUN", "digits", "--out", "z.npy", "--refine", "2.6"], "--refine: expected a whole number"),
        (["sample", "RUN", "-n", "2.5", "--out", "x.npy"], "-n: expected a whole number"),
        (["fit", "digits", "--out", "run", "--n-components", "0"], "at least 1"),
        (["fit", "digits", "--out", "run", "--init", "pcq"], '"pca"'),
        (["fit", "digits", "--out", "run", "--kernel", "rbff"], '"rbf"'),
        (["fit", "digits", "--out", "run", "--active-set-size", "2000"], "smaller than batch_size"),
        (["fit", "digits", "--out", "run", "--test-fraction", "0.5"], "test split of its own"),
        (["fit", "digits", "--out", "run", "--device", "toaster"], "toaster"),
        (["fit", "digits"], "--out"),
        (["fit", "--out", "run"], "DATA"),
        (["fit", "digist", "--out", "run"], "Did you mean 'digits'?"),
        (["fit", "nowhere.csv", "--out", "run"], "no file 'nowhere.csv'"),
        (["fti", "digits"], 'Did you mean "fit"?'),
        (["embed", "nowhere", "digits", "--out", "z.csv"], "nowhere"),
        (["embed", ".", "digits", "--out", "z.csv"], "model.safetensors"),
        (["embed", "RUN", "digits", "--out", "z.csv"], "4 features"),
        (["embed", "RUN", "digits", "--out", "z.txt"], ".csv or .npy"),
        (["embed", "RUN", "digits", "--out", "nowhere/z.csv"], "nowhere"),
        (["embed", "RUN", "TABLE", "--out", "TABLE"], "another file"),
        (["decode", "RUN", "wide.npy", "--out", "x.csv"], "2 columns"),
        (["decode", "RUN", "nan.csv", "--out", "x.csv"], "row 1, column z1"),
        (["decode", "RUN", "TABLE", "--out", "x.npz"], "2 columns of latents (z0, z1) for this model. Got others"),
        (["decode", "RUN", "z.npy", "--std", "--out", "x.npy"], ".npz"),
        (["decode", "RUN", "nowhere.csv", "--out", "x.npy"], "nowhere.csv"),
        (["decode", "RUN", "here.parquet", "--out", "x.npy"], ".csv or .npy"),
        (["sample", "RUN", "-n", "0", "--out", "x.npy"], "at least 1"),
        (["sample", "RUN", "-n", "1000000000000", "--out", "x.npy"], "not enough memory for 1000000000000 rows of 4"),
        (["sample", "TABLE", "--out", "x.npy"], "sasgp wrote"),
        (["evidence", "RUN", "--labels", "species", "--method", "exakt"], 'Choose from: "exact", "sas", "unbiased"'),
        (["evidence", "RUN", "--labels", "species", "--rows", "64"], "at most 63"),
        (["evidence", "RUN", "--labels", "species", "--method", "sas", "--active-set-size", "63"], "below the 63 rows"),
        (["evidence", "RUN", "--labels", "species", "--curve", "curve.gif"], ".png"),
        (["evidence", "RUN", "--curve", "nowhere/c.png"], "--curve must be in a folder that exists"),
        (["evidence", "RUN", "--active-set-size", "5"], "--active-set-size belongs to --method sas or unbiased"),
        (["evidence", "RUN", "--method", "exact", "--n-estimates", "1"], "--n-estimates belongs to --method sas or"),
        (["evidence", "RUN", "--curve", "c.png", "--active-set-size", "5"], "--active-set-size belongs to"),
        (["evaluate", "RUN", "TABLE", "--labels", "specis"], "Did you mean 'species'?"),
        (["explore", "RUN", "--labels", "species"], "add --data"),
        (["explore", "RUN", "--out", "x.png"], ".html"),
        (["explore", "RUN", "--data", "digits", "--out", "x.html"], "4 features"),
        (["plot", "RUN", "--out", "nan.csv"], "nan.csv"),
        (["plot", "RUN", "--out", "latent.png"], "--out is a folder"),
        (["plot", "RUN", "--labels", "species", "--out", "figures"], "add --data"),
    ],
    ids=lambda part: " ".join(part) if isinstance(part, list) else "",
)
def test_bad_commands_are_one_line_and_leave_nothing(home, here, error, tokens, words):
    np.save("wide.npy", np.zeros((2, 3)))
    Path("nan.csv").write_text("z0,z1\n0,0\n0,nan\n")
    Path("here.parquet").write_text("")
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
            assert "free some space or choose another place" in message
            assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_errors_of_a_process_are_one_line_and_code_two():
    done = shell("fit", "nowhere.csv", "--out", "/proc/nothing")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("sasgp: error: ")
    assert done.stderr.count("\n") == 1


def test_what_a_terminal_cannot_write_is_replaced(home):
    options = ("evidence", home / "pictures", "--method", "sas", "--n-estimates", "2")
    done = shell(*options, env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert " ? " in done.stdout  # the ± of the standard error


def test_a_warning_is_one_line(home, here):
    code = (
        "import sys, warnings, sasgp; from sasgp.cli import main; sample = sasgp.SASGP.sample; "
        "sasgp.SASGP.sample = lambda *a, **b: [warnings.warn('rather odd'), sample(*a, **b)][1]; main(sys.argv[1:])"
    )
    command = [sys.executable, "-c", code, "sample", f"{home}/run", "--out", "x.npy"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == "sasgp: warning: rather odd\n"


def test_a_broken_pipe_is_quiet(home):
    command = f"{sys.executable} -m sasgp evaluate {home}/run {home}/table.csv --labels species | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.parametrize("command", [("fit", "table.csv", "--out", "r"), ("evidence", "run", "--rows", "5")])
def test_a_seed_below_zero(home, here, error, command):
    tokens = [home / token if token in ("table.csv", "run") else token for token in command]
    assert "--random-state must be from 0" in error(*tokens, "--labels", "species", "--random-state", "-1")


def test_a_bug_still_shows_its_traceback(home, monkeypatch):
    monkeypatch.setattr(SASGP, "transform", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["evaluate", f"{home}/pictures", f"{home}/images.npy"])


# ---------------------------------------------------------------------------------------------------- evaluation


def dataset(tmp_path, X):
    np.save(tmp_path / "x.npy", X)
    return load(tmp_path / "x.npy")


def test_held_out_rows_are_a_seeded_part_of_the_file(tmp_path):
    data = dataset(tmp_path, np.arange(400.0).reshape(200, 2))
    one, again, other = (hold_out(data, None, seed) for seed in (0, 0, 1))
    assert len(one.test.rows) == 20
    np.testing.assert_array_equal(one.test.rows, again.test.rows)
    assert set(one.test.rows) != set(other.test.rows)
    assert sorted([*one.train.rows, *one.test.rows]) == list(range(200))
    np.testing.assert_array_equal(one.test.X, data.X[one.test.rows])
    assert len(hold_out(data, 0.25, 0).test.rows) == 50
    assert hold_out(data, 0, 0).test is None


def test_large_data_stay_on_disk(tmp_path, monkeypatch):
    monkeypatch.setattr("sasgp.evaluation.MAX_COPIED", 1000)
    split = hold_out(dataset(tmp_path, np.zeros((200, 2))), None, 0)
    assert isinstance(split.train.X, np.memmap)
    assert np.shares_memory(split.train.X, split.train.X.base)
    assert list(split.test.rows) == list(range(180, 200))


def test_reconstruction_is_the_same_in_blocks(monkeypatch):
    X = np.random.default_rng(0).normal(size=(50, 4))
    model = SASGP(encoder="table", max_epochs=2, random_state=0).fit(X)
    whole = reconstruction(model, X, model.embedding_)
    monkeypatch.setattr("sasgp.evaluation.VALUES_AT_ONCE", 28)  # seven rows
    in_blocks = reconstruction(model, X, model.embedding_)
    assert in_blocks.pop("pit") == whole.pop("pit")
    assert in_blocks == pytest.approx(whole, rel=1e-5)
    assert pca_rmse(X, X, 4, 0) == pytest.approx(0, abs=1e-12)  # as many components as features
    assert torch.is_grad_enabled()


def test_cross_validated_neighbours_never_vote_for_themselves():
    # Every point has its twin of the other class: the nearest other point is always wrong
    Z = np.repeat(np.random.default_rng(0).normal(size=(50, 2)), 2, axis=0)
    Z += 1e-9 * np.arange(100)[:, None]
    assert knn_cross_validated(Z, np.tile([0, 1], 50))["knn_1"] < 0.4


def test_cross_validation_counts_every_fold_or_none():
    # Folds of 18 rows leave 14 or 15 to vote: too few for fifteen neighbours in some
    for n, names in ((18, {"knn_1"}), (19, {"knn_1", "knn_15"})):
        found = knn_cross_validated(np.random.default_rng(0).normal(size=(n, 2)), np.zeros(n, dtype=np.int64))
        assert found == dict.fromkeys(names, pytest.approx(1))


@pytest.mark.parametrize(
    ("labels", "tidy"),
    [([1.0, 2.0], [1, 2]), ([1.5, 2], [1.5, 2]), ([True, False], ["true", "false"]), ([b"a", b"b"], ["a", "b"])],
)
def test_labels_are_as_a_file_gives_them_back(labels, tidy):
    assert tidy_labels(np.array(labels)).tolist() == tidy
