"""`sasgp evaluate`: which rows, and the numbers that the public functions give."""

import json
import re

import numpy as np
import polars as pl
import pytest
from command_line import FAST, table

from sasgp import SASGP
from sasgp.cli.loading import rows_to_evaluate
from sasgp.cli.runs import Embedding, RunFolder
from sasgp.data import load
from sasgp.evaluation import structure
from sasgp.metrics import rmse


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


def test_held_out_rows_that_are_neighbours_stay_on_disk(here):
    np.save("x.npy", np.arange(40.0).reshape(20, 2))
    data, run = load("x.npy"), RunFolder(here, info={"data": {"source": str(here / "x.npy")}})

    def held_out(rows):
        split = np.isin(np.arange(20), rows)
        known = Embedding(np.arange(20), np.zeros((20, 2)), None, np.where(split, "test", "train"))
        return rows_to_evaluate("x.npy", data, run, known)[0]

    for rows in ([17, 18, 19], [4], [3, 5, 6]):
        X = held_out(rows)
        np.testing.assert_array_equal(X, data.X[rows])
        assert np.shares_memory(X, data.X) == (len(rows) == max(rows) - min(rows) + 1)


def test_evaluate_of_rows_that_the_model_knows_says_so(home, sasgp):
    assert "training rows" in sasgp("evaluate", home / "pictures", home / "images.npy")


# ---------------------------------------------------------------------------------------------------- nearest rows


def test_evaluate_from_the_nearest_rows(home, here, sasgp):
    # Rows of the run's own file that fit held out, decoded from those that it did not
    result = json.loads(sasgp("evaluate", home / "run", home / "table.csv", "--neighbours", "9", "--json"))
    X = table().drop("species").to_numpy()
    split = pl.read_csv(home / "run" / "embedding.csv")["split"].to_numpy()
    model = SASGP.load(home / "run" / "model.safetensors")
    train, test = X[split == "train"], X[split == "test"]
    mean = model.reconstruct(test, neighbours=9, data=train)
    assert result["rmse"] == pytest.approx(rmse(test, mean), rel=1e-5)
    scores = model.score_samples(test, n_samples=0, neighbours=9, data=train)
    assert result["nlpd"] == pytest.approx(-scores.mean() / 4, rel=1e-4)
    assert result["nearest_rows"] == 9
    plain = json.loads(sasgp("evaluate", home / "run", home / "table.csv", "--json"))
    assert "nearest_rows" not in plain
    assert plain["rmse"] != result["rmse"]
    assert {key: result[key] for key in ("knn_1", "triplets") if key in plain} == pytest.approx(
        {key: plain[key] for key in ("knn_1", "triplets") if key in plain}
    )
    assert "from the 9 nearest training rows" in sasgp(
        "evaluate", home / "run", home / "table.csv", "--neighbours", "9"
    )


def test_training_data_may_have_moved(home, here, sasgp, error):
    table(30, seed=1).write_csv("new.csv")
    command = ("evaluate", home / "run", "new.csv", "--neighbours", "9", "--json")
    expected = sasgp(*command)
    (home / "table.csv").rename("moved.csv")
    try:
        assert "--train" in error(*command)
        assert sasgp(*command, "--train", "moved.csv") == expected
    finally:
        (here / "moved.csv").rename(home / "table.csv")


def test_a_model_without_its_run_is_told_the_training_rows(home, here, sasgp, error):
    table(30, seed=1).write_csv("new.csv")
    split = pl.read_csv(home / "run" / "embedding.csv")["split"]
    table().filter(split == "train").drop("species").write_csv("train.csv")
    bare = home / "run" / "model.safetensors"
    command = ("evaluate", bare, "new.csv", "--labels", "species", "--neighbours", "9", "--json")
    assert "does not say where they are. Name them with --train" in error(*command)
    whole = json.loads(sasgp("evaluate", home / "run", "new.csv", "--neighbours", "9", "--json"))
    assert json.loads(sasgp(*command, "--train", "train.csv"))["rmse"] == pytest.approx(whole["rmse"])


def test_latents_of_a_table_have_nearest_rows(home, sasgp):
    out = json.loads(sasgp("evaluate", home / "pictures", home / "images.npy", "--neighbours", "40", "--json"))
    assert out["nearest_rows"] == 40


def test_wrong_use_of_neighbours(home, here, sasgp, error):
    table(30, seed=1).write_csv("new.csv")
    command = ("evaluate", home / "run", "new.csv")
    assert "--neighbours must be a whole number of at least 1. Got 0" in error(*command, "--neighbours", "0")
    assert "--neighbours must be from 1 to 63, the number of training rows. Got 64" in error(
        *command, "--neighbours", "64"
    )
    assert "only used with --neighbours" in error(*command, "--train", "new.csv")
    other = error(*command, "--neighbours", "9", "--train", "new.csv")
    assert "new.csv cannot be used" in other
    assert "Got 30 rows" in other
    sasgp("fit", "new.csv", "--labels", "species", "--model", "vae", "--out", "vae", *FAST)
    assert "is a VAE" in error("evaluate", "vae", "new.csv", "--neighbours", "9")


def test_neighbours_by_geodesic_distance_stand_beside_the_others(home, here, sasgp, error):
    table(40, seed=1).write_csv("new.csv")
    new = (home / "run", "new.csv", "--labels", "species", "--geodesic")
    result = json.loads(sasgp("evaluate", *new, "--json"))
    # Euclidean neighbours of the same rows, among all training rows: the accuracy that is always printed
    assert result["euclidean_knn_1"] == result["knn_1"]
    model = SASGP.load(home / "run" / "model.safetensors")
    frame = table(40, seed=1)
    Z, y = model.transform(frame.drop("species").to_numpy()), frame["species"].to_numpy()
    known = pl.read_csv(home / "run" / "embedding.csv").filter(pl.col("split") == "train")
    nearest = model.distance(Z, known.select("z0", "z1").to_numpy()).argmin(1)
    assert result["geodesic_knn_1"] == pytest.approx((known["label"].to_numpy()[nearest] == y).mean())
    assert f"1-NN, geodesic     {result['geodesic_knn_1']:.4f}" in sasgp("evaluate", *new)
    bare = json.loads(sasgp("evaluate", home / "run" / "model.safetensors", *new[1:], "--json"))
    assert bare["geodesic_rows"] == "neighbours of 40 rows among themselves"
    np.save("x.npy", frame.drop("species").to_numpy())
    assert "Name the labels with --labels." in error("evaluate", home / "run", "x.npy", "--geodesic")
    sasgp("fit", "new.csv", "--labels", "species", "--model", "vae", "--out", "vae", *FAST)
    assert "--geodesic needs a Gaussian process" in error("evaluate", "vae", *new[1:])
