"""`sasgp embed`: the latents that `transform` gives, and columns found by name."""

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from command_line import FAST, ROWS, table

from sasgp import SASGP
from sasgp.evaluation import reconstruction


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


def test_columns_without_names_are_not_chosen_from(here, sasgp, error):
    X = table(9, seed=1).drop("species").to_numpy()
    np.savetxt("four.csv", X, delimiter=",")
    np.savetxt("five.csv", np.hstack([X, X[:, :1]]), delimiter=",")
    sasgp("fit", "four.csv", "--out", "four", *FAST)
    assert "the model was trained on 4 features" in error("embed", "four", "five.csv", "--out", "z.npy")


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


def test_the_labels_are_not_overwritten(home, here, error):
    labels = Path("labels.csv")
    labels.write_text("x\n" * ROWS)
    Path("link.csv").symlink_to(labels)
    for out in ("labels.csv", "link.csv", "./labels.csv"):
        message = error("embed", home / "run", home / "table.csv", "--labels", "labels.csv", "--out", out)
        assert "which the command reads" in message
    assert labels.read_text() == "x\n" * ROWS
