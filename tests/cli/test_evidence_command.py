"""`sasgp evidence`: the number that Python gives, of the rows that the model was trained on."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import table

from sasgp import SASGP
from sasgp.cli import runs


def test_evidence_is_of_the_training_rows_and_printed_as_python_gives_it(home, sasgp):
    model, labels = SASGP.load(home / "run" / "model.safetensors"), ("--labels", "species")
    train = runs.Embedding.read(home / "run" / "embedding.csv").only("train").rows
    X = table().drop("species").to_numpy()
    expected = model.evidence(X[train])
    found = json.loads(sasgp("evidence", home / "run", *labels, "--json"))
    assert (found["rows"], found["which"]) == (63, "the training rows")
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
    assert (few["rows"], few["which"]) == (12, "12 of the training rows, drawn at random")


@pytest.mark.parametrize("method", ["sas", "unbiased"])
def test_evidence_by_estimates_has_a_standard_error(home, sasgp, method):
    options = ("evidence", home / "pictures", "--method", method, "--n-estimates", "5", "--active-set-size", "7")
    found = json.loads(sasgp(*options, "--json"))
    assert (found["n_estimates"], found["active_set_size"]) == (5, 7)
    assert found["standard_error"] > 0
    assert "±" in sasgp(*options)


def test_evidence_has_a_bound_that_needs_no_options(home, sasgp, error):
    bound = ("evidence", home / "run", "--method", "bound")
    found = json.loads(sasgp(*bound, "--json"))
    exact = json.loads(sasgp("evidence", home / "run", "--json"))
    assert found["mean"] <= exact["mean"] + 1e-6 * abs(exact["mean"])
    assert 0 <= found["missed_share"] < 1
    assert "--n-estimates needs --method sas" in error(
        "evidence", home / "run", "--method", "bound", "--n-estimates", "3"
    )


def test_evidence_draws_the_curve_alone_or_beside_the_number(home, here, sasgp):
    found = json.loads(sasgp("evidence", home / "pictures", "--curve", "c.png", "--n-estimates", "3", "--json"))
    assert Path("c.png").read_bytes().startswith(b"\x89PNG")
    assert "mean" not in found
    assert len(found["curve"]["sizes"]) == len(found["curve"]["mean"])
    out = sasgp("evidence", home / "pictures", "--curve", "c.png", "--method", "sas", "--n-estimates", "3")
    assert "SAS, A = 20" in out
    assert "nats per value." in out


def test_evidence_that_does_not_fit_into_memory_is_one_sentence(home, error, monkeypatch):
    monkeypatch.setattr("sasgp.gp.factor.memory_available", lambda device: 1000)
    assert "A factor of 40 rows in float64 needs" in error("evidence", home / "pictures")
    assert "Add DATA" in error("evidence", home / "pictures" / "model.safetensors")
