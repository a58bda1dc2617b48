"""`sasgp explore`: what the page shows."""

import subprocess
from pathlib import Path

import numpy as np
import polars as pl
from command_line import FAST, ROWS, content_of, table

from sasgp import SASGP, cli
from sasgp.explorer.packing import unpack, unpack_text


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
    assert len(unpack(page["observed"]["places"])) == 0  # a model keeps no rows to show

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


def test_columns_are_shown_and_not_trained_on(here, sasgp, error):
    day = pl.date_range(pl.date(2020, 1, 1), pl.date(2020, 3, 10), eager=True)[:ROWS]
    frame = table().with_columns(
        site=pl.Series([None if i == 5 else f"site {i % 3}" for i in range(ROWS)]), day=day, age=pl.arange(ROWS) / 7
    )
    frame.write_csv("x.csv")
    pl.DataFrame({"who": [f"w{i}" for i in range(ROWS)]}).write_parquet("about.parquet")
    sasgp("fit", "x.csv", "--labels", "species", "--columns", "site", "day", "about.parquet", "--out", "run", *FAST)
    assert SASGP.load("run/model.safetensors").n_features_in_ == 5  # a, b, c, d and age
    sasgp("explore", "run", "--data", "x.csv", "--out", "again.html")  # the columns of training are known
    sasgp("explore", "run", "--data", "x.csv", "--columns", "day", "age", "--out", "other.html")
    pages = [content_of(f"{name}.html") for name in ("run/explorer", "again", "other")]
    for page in pages[:2]:
        named = {column["name"]: column for column in page["columns"]}
        assert named["site"]["classes"] == ["missing", "site 0", "site 1", "site 2"]
        assert (named["day"]["unit"], named["day"]["low"]) == ("date", 1577836800)  # 2020-01-01
        rows, who = unpack(page["rows"]), named["who"]
        assert [unpack_text(who["levels"])[cell] for cell in unpack(who["cells"])] == [f"w{i}" for i in rows]
    names = [column["name"] for column in pages[2]["columns"]]
    assert {"day", "age"} <= set(names)  # a column that was trained on can be named, too
    assert "site" not in names

    assert "--columns must be a column of x.csv (a, b, c" in error("fit", "x.csv", "--columns", "no", "--out", "r")
    assert "Name them with --data" in error("explore", "run", "--columns", "site")
    pl.DataFrame({"who": ["a"]}).write_csv("short.csv")
    assert f"each of the {ROWS} rows of x.csv. short.csv has 1" in error(
        "explore", "run", "--data", "x.csv", "--columns", "short.csv"
    )


def test_names_of_rows_are_on_the_page(here, sasgp):
    table().with_columns(code=pl.Series([f"no. {i}" for i in range(ROWS)])).write_csv("x.csv")
    sasgp("fit", "x.csv", "--labels", "species", "--id", "code", "--kind", "*=real", "--out", "run", *FAST)
    sasgp("explore", "run", "--out", "again.html")
    for name in ("run/explorer", "again"):
        page = content_of(f"{name}.html")
        assert unpack_text(page["ids"]) == [f"no. {i}" for i in unpack(page["rows"])]
