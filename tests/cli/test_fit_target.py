"""`sasgp fit --target`, `predict` and `explain`: regressions and classifications, from a table to predictions."""

import json
import shutil
import signal
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from processes import Process
from scipy.stats import norm
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score

from sasgp import SASGPClassifier, SASGPRegressor, cli
from sasgp.cli import predictions, runs, target_rows

FAST = ("--max-epochs", "2")
N, UNKNOWN = 130, 10  # rows, and those without a price


def houses(n=N, seed=0):
    draw = np.random.default_rng(seed)
    area, town = draw.uniform(40, 200, n), draw.integers(3, size=n)
    price = 1000 * (3 * area + 60 * town + 20 * draw.normal(size=n))
    return pl.DataFrame(
        {
            "address": [f"street {i:03d}" for i in range(n)],
            "area": area,
            "town": np.array(["Aa", "Bb", "Cc"])[town],
            "age": draw.uniform(0, 90, n),
            "price": [None if i % (N // UNKNOWN) == 0 and seed == 0 else value for i, value in enumerate(price)],
            "type": np.where(area + 10 * draw.normal(size=n) > 120, "house", np.where(area > 80, "flat", "studio")),
        }
    )


@pytest.fixture(scope="module")
def market(tmp_path_factory):
    """A folder with houses.csv and new.csv, and a run for a number and one for classes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sasgp.training.regression.SHARP_STEPS", 5)
        place = tmp_path_factory.mktemp("market")
        houses().write_csv(place / "houses.csv")
        houses(30, seed=1).write_csv(place / "new.csv")
        common = ["--id", "address", "--test-fraction", "0.25"]
        for target, run, epochs in (("price", "number", "40"), ("type", "classes", "10")):
            command = ["fit", f"{place}/houses.csv", "--target", target, *common, "--out", f"{place}/{run}"]
            assert cli.main([*command, "--max-epochs", epochs]) == 0
    return place


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Quick settings for what tests train and draw themselves."""
    monkeypatch.setattr("sasgp.training.regression.SHARP_STEPS", 5)


@pytest.fixture
def undrawn(monkeypatch):
    """Pictures of runs are empty files, for tests that look at something else."""
    monkeypatch.setattr("sasgp.cli.target_pictures.save_figure", lambda _, path: path.write_bytes(b""))


def held_out(place, run, target):
    """The model of a run, its predictions, and the rows that they are for."""
    found = pl.read_csv(place / run / "predictions.csv")
    rows = houses()[found["row"].to_list()]
    return found, rows.drop(target), rows[target].to_numpy()


# ---------------------------------------------------------------------------------------------------- fit


def test_a_run_of_a_regression_holds_the_predictions_of_its_model(market):
    found, X, y = held_out(market, "number", "price")
    model = SASGPRegressor.load(market / "number" / "model.safetensors")
    mean, low, high = model.predict(X, return_interval=0.9)
    assert found.columns == ["row", "id", "observed", "predicted", "std", "low", "high", "quantile"]
    assert found["id"].to_list() == X["address"].to_list()
    assert not np.isnan(y).any()  # rows are those of the file, also after rows without a price
    np.testing.assert_array_equal(found["observed"], y)
    np.testing.assert_allclose(found["predicted"], mean, rtol=1e-10)
    np.testing.assert_allclose(found["std"], model.predict(X, return_std=True)[1], rtol=1e-10)
    np.testing.assert_allclose(found["low"], low, rtol=1e-10)
    np.testing.assert_allclose(found["high"], high, rtol=1e-10)
    inside = (found["quantile"] >= 0.05) & (found["quantile"] <= 0.95)
    assert inside.to_list() == ((y >= low) & (y <= high)).tolist()
    files = {file.name for file in (market / "number").iterdir()}
    pictures = {"predicted.png", "calibration.png", "relevance.png", "loss.png"}
    assert files == {"model.safetensors", "run.json", "history.jsonl", "predictions.csv", *pictures}


def test_run_json_has_the_metrics_of_these_predictions_and_the_baselines_of_the_same_split(market):
    found, X, y = held_out(market, "number", "price")
    info = json.loads((market / "number" / "run.json").read_text())
    model = SASGPRegressor.load(market / "number" / "model.safetensors")
    known = houses().drop_nulls("price")
    train = known.filter(~pl.col("address").is_in(X["address"].to_list()))
    sd = train["price"].to_numpy().std()
    mean, std, low, high = (found[name].to_numpy() for name in ("predicted", "std", "low", "high"))
    residual = y - mean
    expected = {
        "rows": 30,
        "r2": r2_score(y, mean),
        "rmse": np.sqrt(np.mean(residual**2)),
        "rmse_sd": np.sqrt(np.mean(residual**2)) / sd,
        # Without a map of the target, predictions are Gaussian: −log N(y | m, s²), and of y / sd
        "nll": -norm.logpdf(y, mean, std).mean(),
        "nll_sd": -norm.logpdf(y / sd, mean / sd, std / sd).mean(),
        "coverage_90": ((y >= low) & (y <= high)).mean(),
    }
    assert {name: info["metrics"][name] for name in expected} == pytest.approx(expected, rel=1e-8)
    assert info["data"]["left_out"] == UNKNOWN
    assert info["data"]["target"] == "price"
    assert (info["data"]["rows"], info["data"]["held_out"]) == (90, 30)
    assert model.targets_.names == ("price",)
    one_hot = [(pl.col("town") == town).cast(pl.Float64).alias(town) for town in ("Aa", "Bb", "Cc")]
    inputs = [part.select("area", "age", *one_hot).to_numpy() for part in (train, X)]
    other = HistGradientBoostingRegressor(random_state=0).fit(inputs[0], train["price"].to_numpy())
    # Trees do not see the scale of a column, only its order; town has three levels in either
    scores = info["metrics"]["baselines"]["gradient_boosting"]
    assert scores["r2"] == pytest.approx(r2_score(y, other.predict(inputs[1])), abs=0.02)
    assert info["metrics"]["baselines"]["ridge"]["r2"] > 0.95  # prices are linear
    assert info["metrics"]["baselines"]["rows"] == 90


def test_a_run_of_a_classification_holds_probabilities(market):
    found, X, y = held_out(market, "classes", "type")
    model = SASGPClassifier.load(market / "classes" / "model.safetensors")
    P = found.select("type=flat", "type=house", "type=studio").to_numpy()
    np.testing.assert_allclose(P, model.predict_proba(X), rtol=1e-8)
    assert found["predicted"].to_list() == model.predict(X).tolist()
    metrics = json.loads((market / "classes" / "run.json").read_text())["metrics"]
    assert metrics["accuracy"] == np.mean(found["predicted"].to_numpy() == y)
    assert metrics["log_loss"] == pytest.approx(log_loss(y, P, labels=model.classes_))
    assert metrics["baselines"].keys() == {"rows", "logistic_regression", "gradient_boosting"}
    pictures = {"confusion.png", "calibration.png", "relevance.png", "loss.png"}
    files = {file.name for file in (market / "classes").iterdir()}
    assert files == {"model.safetensors", "run.json", "history.jsonl", "predictions.csv", *pictures}


def test_fit_says_what_it_chose_and_why(market, here, sasgp, undrawn):
    out = sasgp("fit", market / "houses.csv", "--target", "price", "--out", "run", *FAST)
    head, _, rest = out.partition("Trained SASGPRegressor on houses, to predict price")
    assert "price  regression  numbers; --kind price=category makes it a classification" in head
    assert f"{UNKNOWN}          rows without price are left out" in head
    assert "12 held-out rows" in rest
    assert "gradient boosting:" in rest
    assert "R²" in rest
    small = houses().with_columns(rooms=pl.int_range(N) % 5 + 1)
    small.write_csv("rooms.csv")
    head = sasgp("fit", "rooms.csv", "--target", "rooms", "--only", "area", "--out", "a", *FAST).partition("Trained")[0]
    assert "rooms  classification  5 whole numbers from 1 to 5; --kind rooms=real makes it a regression" in head
    arguments = ("--kind", "rooms=real", "--only", "area", "rooms", "--out", "b", "--test-fraction", "0")
    out = sasgp("fit", "rooms.csv", "--target", "rooms", *arguments, *FAST)
    assert "regression" in out
    assert "you said so" in out
    assert "nothing was held out" in out
    assert {file.name for file in Path("b").iterdir()} == {*runs.FILES, "relevance.png"} - {
        *("embedding.csv", "latent.png", "explorer.html")
    }


def test_settings_of_a_regression_have_its_own_defaults_unless_typed(market, here, sasgp, error, undrawn):
    data = ("fit", market / "houses.csv", "--target", "price", *FAST)
    sasgp(*data, "--active-set-size", "400", "--prediction", "nearest", "--target-map", "plain", "--out", "run")
    model = SASGPRegressor.load("run/model.safetensors")
    assert (model.active_set_size, model.hyper_learning_rate, model.kernel) == (400, 0.1, "matern32-ard")
    assert (model.prediction, model.neighbours, model.target) == ("nearest", 256, "plain")
    assert "SASGPRegressor has no option --n-components" in error(*data, "--n-components", "2", "--out", "x")
    assert "--labels is for models with latents" in error(*data, "--labels", "type", "--out", "x")
    assert "--columns is for models with latents" in error(*data, "--columns", "type", "--out", "x")
    assert "--model is for models with latents" in error(*data, "--model", "vae", "--out", "x")
    plain = ("fit", market / "houses.csv", "--out", "x", *FAST)
    assert "Name it with --target" in error(*plain, "--neighbours", "3")


def test_named_data_and_arrays_have_targets(here, sasgp, error, undrawn):
    draw = np.random.default_rng(0)
    X = draw.normal(size=(60, 3))
    np.save("x.npy", X)
    np.save("weight.npy", X.sum(1))
    sasgp("fit", "x.npy", "--target", "weight.npy", "--out", "run", *FAST)
    info = json.loads(Path("run/run.json").read_text())
    assert info["data"]["target_name"] == "weight"
    assert info["training"]["relevance"].keys() == {"x0", "x1", "x2"}
    out = sasgp("predict", "run", "x.npy", "--out", "p.csv")
    assert "On 60 rows with weight, which include rows that the model was trained on" in out
    np.testing.assert_allclose(
        pl.read_csv("p.csv")["predicted"], SASGPRegressor.load("run/model.safetensors").predict(X), rtol=1e-10
    )
    pl.DataFrame(X, schema=["a", "b", "c"]).with_columns(weight=X.sum(1)).write_csv("x.csv")
    assert "On 60 rows with weight\n" in sasgp("predict", "run", "x.csv", "--out", "again.csv")
    np.testing.assert_allclose(pl.read_csv("again.csv")["predicted"], pl.read_csv("p.csv")["predicted"], rtol=1e-10)
    sasgp("explain", "run", "x.npy", "--features", "x1,x2")
    assert "Say --target label. Got --target digit" in error("fit", "digits", "--target", "digit", "--out", "no")
    assert "has no labels" in error("fit", "x.npy", "--target", "label", "--out", "no")


@pytest.mark.parametrize(
    ("column", "tokens", "words"),
    [
        ("prize", (), "There is no 'prize'. Did you mean price?"),
        ("price,area", (), "--target takes one column. Got price,area. Train a run for each"),
        ("planet", (), "The target must vary, but 'planet' is always 1"),
        ("empty", (), "No row has a target: column 'empty' is empty"),
        ("address", (), "must hold numbers or classes, but its values are of the kind text: 130 different texts"),
        ("price", ("--drop", "price"), "is the --target, so it cannot be left out"),
        ("price", ("--kind", "price=date"), "A target can be real, skewed"),
        ("type", ("--kind", "type=real"), "cannot be real: it holds text"),
        ("price", ("--drop", "aera"), "no column aera. Did you mean area?"),
    ],
)
def test_a_wrong_target_is_one_sentence(here, error, monkeypatch, column, tokens, words):
    monkeypatch.setattr(SASGPRegressor, "fit", lambda *_, **__: pytest.fail("trained for nothing"))
    empty = pl.lit(None, dtype=pl.String).alias("empty")
    houses().with_columns(empty, planet=pl.lit(1)).write_csv("houses.csv")
    assert words in error("fit", "houses.csv", "--target", column, *tokens, "--out", "run")
    assert not Path("run").exists()


# ---------------------------------------------------------------------------------------------------- runs


def test_overwrite_replaces_one_kind_of_run_by_the_other(market, here, sasgp, error, undrawn):
    data = ("fit", market / "houses.csv", "--out", "run", *FAST)
    sasgp(*data, "--target", "price")
    Path("run/relevance.csv").write_text("of sasgp explain")
    Path("run/notes.txt").write_text("mine")
    assert "--overwrite" in error(*data, "--target", "price")
    sasgp(*data, "--labels", "type", "--overwrite")
    assert {file.name for file in Path("run").iterdir()} == {*runs.FILES, "notes.txt"}
    Path("run/relevance.csv").write_text("mine")  # the file of a user in the folder of a decoder
    sasgp(*data, "--target", "price", "--overwrite")
    assert "embedding.csv" not in {file.name for file in Path("run").iterdir()}
    assert Path("run/relevance.csv").read_text() == "mine"


KILLED = """
import os, sys
from sasgp import cli
from sasgp.training import regression
from sasgp.training.checkpoint import Checkpointer
regression.SHARP_STEPS = 5
save = Checkpointer.save
def killed(self, *arguments, **more):
    save(self, *arguments, **more)
    os.kill(os.getpid(), 9)
Checkpointer.save = killed
sys.exit(cli.main(sys.argv[1:]))
"""


def test_a_killed_fit_goes_on_to_the_same_model(market, here, sasgp, error, undrawn):
    command = ["fit", f"{market}/houses.csv", "--target", "price", "--active-set-size", "20", "--max-epochs", "3"]
    process = Process("-c", KILLED, *command, "--out", "run")
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert [file.name for file in Path("run").iterdir()] == ["unfinished"]
    assert "is not finished" in error("predict", "run", market / "new.csv", "--out", "p.csv")
    assert "target: 'price' in the run, 'type' now" in error("fit", "--resume", "run", "--target", "type")
    sasgp("fit", "--resume", "run")
    sasgp(*command, "--out", "whole")
    assert Path("run/predictions.csv").read_bytes() == Path("whole/predictions.csv").read_bytes()
    assert {file.name for file in Path("run").iterdir()} == {file.name for file in Path("whole").iterdir()}


def test_pictures_that_were_not_drawn_are_drawn_by_resume(market, here, sasgp, monkeypatch, error):
    for run in ("number", "classes"):
        names = json.loads((market / run / "run.json").read_text())["pictures"]
        before = {name: (market / run / name).read_bytes() for name in names}
        for name in names[:2]:
            (market / run / name).unlink()
        with monkeypatch.context() as patch:
            patch.setattr(SASGPRegressor, "fit", lambda *_, **__: pytest.fail("trained again"))
            assert names[0] in sasgp("fit", "--resume", market / run)
        assert {name: (market / run / name).read_bytes() for name in names} == before
        assert "already finished" in error("fit", "--resume", market / run)


# ---------------------------------------------------------------------------------------------------- predict, explain


def test_predict_writes_what_the_model_says(market, here, sasgp, monkeypatch):
    monkeypatch.setattr(target_rows, "BLOCK", 7)  # rows at a time
    new = houses(30, seed=1)
    new.drop("price").select(pl.all().reverse()).write_csv("inputs.csv")
    model = SASGPRegressor.load(market / "number" / "model.safetensors")
    out = sasgp("predict", market / "number", "inputs.csv", "--interval", "0.5", "--out", "p.csv")
    assert out.split() == ["wrote", "p.csv", "30", "rows"]
    found, X = pl.read_csv("p.csv"), new.reverse()
    assert found.columns == ["row", "id", "predicted", "std", "low", "high"]
    assert found["row"].to_list() == list(range(30))
    mean, low, high = model.predict(X, return_interval=0.5)
    for name, values in (("predicted", mean), ("low", low), ("high", high)):
        np.testing.assert_allclose(found[name], values, rtol=1e-10)
    new.write_parquet("new.parquet")
    out = sasgp("predict", market / "number" / "model.safetensors", "new.parquet", "--out", "p.csv")
    assert "On 30 rows with price" in out
    y = new["price"].to_numpy()
    assert f"{r2_score(y, model.predict(new)):.4f}" in out
    assert "id" not in pl.read_csv("p.csv").columns  # which only the run knows


def test_predict_classes_and_targets_that_are_missing_or_unseen(market, here, sasgp):
    new = houses(30, seed=1).with_columns(
        pl.when(pl.int_range(30) == 3)
        .then(None)
        .when(pl.int_range(30) == 4)
        .then(pl.lit("castle"))
        .otherwise("type")
        .alias("type")
    )
    new.write_csv("new.csv")
    out = sasgp("predict", market / "classes", "new.csv", "--out", "p.csv")
    found = pl.read_csv("p.csv")
    right = (found["predicted"] == new["type"]).fill_null(False).sum()
    assert "On 29 rows with type" in out
    assert f"{right / 29:.4f}" in out
    assert "unseen classes  1 " in out
    np.testing.assert_allclose(found.select(pl.sum_horizontal("^type=.*$")).to_series(), 1)


def test_a_large_table_is_predicted_from_disk(market, here, sasgp, monkeypatch, undrawn):
    from sasgp.data.tables import disk, file

    houses(90, seed=1).write_parquet("new.parquet")
    sasgp("predict", market / "number", "new.parquet", "--out", "whole.csv")
    monkeypatch.setattr(file, "LARGE", 100)
    monkeypatch.setattr(disk, "BLOCK", 17)
    sasgp("predict", market / "number", "new.parquet", "--out", "parts.csv")
    parts, whole = pl.read_csv("parts.csv"), pl.read_csv("whole.csv")
    assert parts["id"].to_list() == whole["id"].to_list()
    np.testing.assert_allclose(parts["predicted"], whole["predicted"], rtol=1e-8)
    sasgp("explain", market / "number", "new.parquet", "--features", "age", "--out", "more")
    houses(90, seed=0).write_parquet("all.parquet")
    sasgp("fit", "all.parquet", "--target", "type", "--out", "run", *FAST)
    assert json.loads(Path("run/run.json").read_text())["data"]["how"] == "the last rows"


def test_explain_writes_the_relevance_of_the_inputs(market, here, sasgp, error):
    out = sasgp("explain", market / "number", market / "new.csv", "--features", "town,area", "--out", "why")
    assert "town, area" in out
    model = SASGPRegressor.load(market / "number" / "model.safetensors")
    found = pl.read_csv("why/relevance.csv")
    assert dict(found.rows()) == pytest.approx(dict(zip(model.columns_.names, model.relevance_, strict=True)))
    assert found["relevance"].to_list() == sorted(found["relevance"], reverse=True)
    assert Path("why/partial_dependence.png").read_bytes().startswith(b"\x89PNG")
    assert "The model has no input aera. Did you mean area?" in error(
        *("explain", market / "number", market / "new.csv", "--features", "aera", "--out", "why")
    )
    sasgp("explain", market / "classes", market / "new.csv", "--out", "classes")


def test_plot_draws_the_figures_of_a_target(market, here, sasgp, error):
    sasgp("plot", market / "number", "--out", "figures")
    names = {"curve.png", "relevance.png", "calibration.png", "predicted.png"}
    assert {file.name for file in Path("figures").iterdir()} == names
    drawn, kept = Path("figures/predicted.png").read_bytes(), (market / "number" / "predicted.png").read_bytes()
    assert drawn == kept
    sasgp("plot", market / "classes", "--predicted", "--data", market / "new.csv", "--out", "new")
    assert [file.name for file in Path("new").iterdir()] == ["predicted.png"]
    assert "has no figure --latent" in error("plot", market / "number", "--latent", "--out", "no")
    model = market / "number" / "model.safetensors"
    assert "rows whose target is known" in error("plot", model, "--predicted", "--out", "no")


@pytest.mark.parametrize("run", ["number", "classes"])
def test_update_adds_the_rows_that_have_a_target(market, here, sasgp, error, run):
    shutil.copytree(market / run, "run")
    target, estimator = ("price", SASGPRegressor) if run == "number" else ("type", SASGPClassifier)
    known = houses(30, seed=1)
    known[:28].vstack(known[28:].with_columns(pl.lit(None).cast(known[target].dtype).alias(target))).write_csv(
        "more.csv"
    )
    before = estimator.load("run/model.safetensors")
    metrics = json.loads(sasgp("update", "run", "more.csv", "--json"))["metrics"]
    # The metrics are those of the old model, and the new one is the old one after `update`
    X, y = known[:28].drop(target), known[:28][target].to_numpy()
    assert metrics["r2" if run == "number" else "accuracy"] == pytest.approx(before.score(X, y))
    after = estimator.load("run/model.safetensors")
    expected = before.update(X, y).predict_scores(X)
    for found, right in zip(after.predict_scores(X), expected, strict=True):
        np.testing.assert_allclose(found, right, rtol=1e-10)
    [record] = json.loads(Path("run/run.json").read_text())["updates"]
    assert (record["rows"], record["left_out"]) == (28, 2)
    assert "earlier update" in error("update", "run", "more.csv")
    assert "count twice" in error("update", "run", market / "houses.csv")
    assert "Do without --labels" in error("update", "run", "more.csv", "--labels", "town")
    known.drop(target).write_csv("none.csv")
    assert f"must have the target '{target}'" in error("update", "run", "none.csv")
    assert "Name a file" in error("update", "run", "digits")


@pytest.mark.parametrize("command", ["embed", "explore", "decode", "score"])
def test_a_model_with_a_target_has_no_latents(market, here, error, command):
    more = {"explore": ()}.get(command, (market / "new.csv", "--out", "z.csv"))
    assert "predicts a target and has no latents. Use `sasgp predict`" in error(command, market / "number", *more)


def test_predict_needs_a_model_with_a_target_and_its_columns(market, home, here, error):
    message = error("predict", home / "run", home / "table.csv", "--out", "p.csv")
    assert "has latents and no target. Use `sasgp embed`" in message
    assert "`sasgp decode`" in message
    houses(20).drop("age").write_csv("few.csv")
    assert "It lacks age" in error("predict", market / "number", "few.csv", "--out", "p.csv")
    assert "--interval must be between 0 and 1" in error(
        *("predict", market / "number", market / "new.csv", "--out", "p.csv", "--interval", "90")
    )
    houses(20).with_columns(price=pl.lit("cheap")).write_csv("text.csv")
    assert "knows as a number, but it holds text" in error("predict", market / "number", "text.csv", "--out", "p.csv")
    assert not Path("p.csv").exists()


def test_metrics_have_their_baselines_beside_them():
    metrics = {"rmse": 2.0, "baselines": {"rows": 9, "ridge": {"rmse": 3.0}, "gradient_boosting": {"rmse": 12345.678}}}
    assert predictions.quality_lines(metrics) == [
        ("RMSE", "2.0000", "ridge: 3.0000; gradient boosting: 12345.7; in units of the target")
    ]
