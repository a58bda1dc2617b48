"""`sasgp evaluate`: which rows, and the numbers that the public functions give."""

import json
import re

import pytest
from command_line import table

from sasgp import SASGP
from sasgp.evaluation import structure


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
    assert "training rows" in sasgp("evaluate", home / "pictures", home / "images.npy")
