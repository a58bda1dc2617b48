"""Tables of mixed columns on the command line: recognised, trained on, evaluated, decoded, scored."""

import csv
import json
import re

import numpy as np
import polars as pl
import pytest

from sasgp import SASGP, cli
from sasgp.data import blocks

FAST = ("--max-epochs", "3")
N = 90


def mixed(n=N, seed=0):
    draw = np.random.default_rng(seed)
    group = draw.integers(3, size=n)
    return pl.DataFrame(
        {
            "bird": [f"bird-{i:03d}" for i in range(n)],
            "species": np.array(["Adelie", "Gentoo", "Chinstrap"])[group],
            "mass_g": 3000 + 1000 * group + 200 * draw.normal(size=n),
            "bill_mm": 40 + 5 * group + draw.normal(size=n),
            "eggs": draw.poisson(1 + group),
            "sex": np.array(["male", "female"])[draw.integers(2, size=n)],
            "planet": ["Earth"] * n,
        }
    )


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    home = tmp_path_factory.mktemp("birds")
    mixed().write_csv(home / "birds.csv", separator=";")
    mixed(20, seed=1).write_csv(home / "new.csv")
    arguments = ["--labels", "species", "--id", "bird", "--out", f"{home}/run", *FAST]
    assert cli.main(["fit", f"{home}/birds.csv", *arguments]) == 0
    return home


def test_the_report_comes_first_and_is_kept(birds, capsys, tmp_path):
    assert cli.main(["fit", str(birds / "birds.csv"), "--out", str(tmp_path / "run"), *FAST]) == 0
    out = capsys.readouterr().out
    report, _, rest = out.partition("Trained SASGP on birds")
    assert "species  category            3 levels" in report
    assert "eggs     count               whole numbers from 0 to" in report or "eggs     ordinal" in report
    assert "bird     left out: id        81 different texts in 81 rows" in report
    assert "planet   left out: constant  always Earth" in report
    assert "--kind COLUMN=KIND" in report
    assert "in standard deviations of each column" in rest
    assert "accuracy" in rest
    assert "log loss" in rest
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert {one["name"]: one["kind"] for one in info["data"]["table"]}["planet"] == "constant"
    assert info["training"]["noise_kind"] == "feature"
    assert next(one["column"] for one in info["metrics"]["by_column"]) == "species"


def test_columns_as_the_user_says(birds, sasgp, error, tmp_path):
    asked = ["--kind", "eggs=skewed", "--drop", "sex", "planet", "--out", tmp_path / "run", *FAST]
    sasgp("fit", birds / "birds.csv", *asked)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    kinds = {one["name"]: (one["kind"], one["why"]) for one in info["data"]["table"]}
    assert kinds["eggs"] == ("skewed", "you said so")
    assert kinds["sex"] == ("drop", "you said so")
    sasgp("fit", birds / "birds.csv", "--only", "mass_g", "bill_mm", "--out", tmp_path / "two", *FAST)
    with np.errstate(all="ignore"):
        header = pl.read_csv(tmp_path / "two" / "embedding.csv").columns
    assert header[:3] == ["row", "z0", "z1"]
    place = ("--out", tmp_path / "no")
    assert "no column egs. Did you mean eggs?" in error("fit", birds / "birds.csv", "--drop", "egs", *place)
    assert "--kind must be COLUMN=KIND" in error("fit", birds / "birds.csv", "--kind", "eggs", *place)
    assert "'many' is no kind of column" in error("fit", birds / "birds.csv", "--kind", "eggs=many", *place)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(30, 3)))
    assert "is an array of numbers" in error("fit", tmp_path / "x.npy", "--drop", "a", *place)
    assert not (tmp_path / "no").exists()


def test_ids_go_along(birds, sasgp, tmp_path):
    assert pl.read_csv(birds / "run" / "embedding.csv")["id"].to_list()[:2] == ["bird-000", "bird-001"]
    sasgp("embed", birds / "run", birds / "new.csv", "--out", tmp_path / "z.csv")
    assert pl.read_csv(tmp_path / "z.csv")["id"].to_list()[-1] == "bird-019"


def test_evaluate_by_column(birds, sasgp, error, home):
    out = sasgp("evaluate", birds / "run", birds / "new.csv", "--labels", "species", "--by-column")
    assert "20 rows (all rows of the file)" in out
    head, _, by_column = out.partition("By column")
    assert "1-NN accuracy" in head
    assert "mass_g   RMSE" in by_column
    assert "sex      accuracy" in by_column
    found = json.loads(sasgp("evaluate", birds / "run", birds / "new.csv", "--labels", "species", "--json"))
    assert found["units"] == "standard deviations"
    assert [one["column"] for one in found["by_column"]] == ["mass_g", "bill_mm", "eggs", "sex"]
    assert found["nlpd"] > 0
    assert "--by-column needs a model of a table" in error("evaluate", home / "run", home / "table.csv", "--by-column")


def test_decode_and_sample_write_tables(birds, sasgp, error, tmp_path):
    sasgp("decode", birds / "run", birds / "run" / "embedding.csv", "--std", "--out", tmp_path / "d.csv")
    decoded = pl.read_csv(tmp_path / "d.csv")
    assert decoded.columns[:4] == ["mass_g", "bill_mm", "eggs", "sex"]
    assert {"mass_g_std", "mass_g_low", "mass_g_high", "sex=female", "sex=male"} <= set(decoded.columns)
    assert (decoded["mass_g_low"] < decoded["mass_g"]).all()
    np.testing.assert_allclose(decoded["sex=female"] + decoded["sex=male"], 1)
    sasgp("sample", birds / "run", "-n", "7", "--out", tmp_path / "s.parquet")
    assert pl.read_parquet(tmp_path / "s.parquet").shape == (7, 4)
    message = error("sample", birds / "run", "--out", tmp_path / "s.npy")
    assert "which .csv and .parquet files can hold" in message


def test_score_names_the_odd_column(birds, sasgp, tmp_path):
    odd = mixed(20, seed=1).with_columns(pl.when(pl.int_range(20) == 5).then(9e4).otherwise("mass_g").alias("mass_g"))
    odd.write_csv(tmp_path / "odd.csv")
    out = sasgp("score", birds / "run", tmp_path / "odd.csv", "--top", "1", "--out", tmp_path / "scores.csv")
    assert "percentiles among 81 training rows" in out
    assert "bird-005" in out
    assert "mass_g" in out
    scores = pl.read_csv(tmp_path / "scores.csv")
    assert scores.columns == ["row", "id", "log_density", "percentile", "unusual"]
    assert scores["log_density"].arg_min() == 5
    assert scores["unusual"][5].startswith("mass_g")
    assert scores["percentile"][5] == 0
    found = json.loads(sasgp("score", birds / "run", tmp_path / "odd.csv", "--top", "2", "--json"))
    assert found["top"][0]["id"] == "bird-005"
    assert found["rows"] == 20
    # Why it is odd: the value, and in brackets what is decoded, which lies among the masses of the training rows
    cell = found["top"][0]["cells"][0]
    assert (cell["column"], cell["value"]) == ("mass_g", 9e4)
    assert cell["decoded"] < 9e4
    assert f"mass_g 90000 ({cell['decoded']:.4g})" in out


def test_what_is_left_out_is_not_counted_as_a_feature(birds, sasgp, tmp_path):
    # mass_g, bill_mm, eggs and sex, as in the decoded table; not the id
    info = json.loads((birds / "run" / "run.json").read_text())
    assert info["data"]["features"] == 4
    found = json.loads(sasgp("sample", birds / "run", "-n", "2", "--out", tmp_path / "s.csv", "--json"))
    assert found["features"] == 4


def test_score_of_an_array_and_without_the_training_data(home, birds, sasgp, error, tmp_path):
    out = sasgp("score", home / "run", home / "table.csv", "--labels", "species", "--top", "3")
    assert "The most unusual, by row" in out
    model = tmp_path / "m.safetensors"
    model.write_bytes((birds / "run" / "model.safetensors").read_bytes())
    assert "because the training data cannot be read" in sasgp("score", model, birds / "new.csv")
    assert "--top must be at least 0" in error("score", model, birds / "new.csv", "--top", "-1")
    assert "It lacks mass_g" in error("score", model, home / "table.csv")


def test_update_takes_more_of_the_table(birds, sasgp, tmp_path):
    sasgp("fit", birds / "birds.csv", "--labels", "species", "--out", tmp_path / "run", *FAST)
    sasgp("embed", tmp_path / "run", birds / "new.csv", "--out", tmp_path / "new.csv")
    before, new = (pl.read_csv(tmp_path / name) for name in ("run/embedding.csv", "new.csv"))
    sasgp("update", tmp_path / "run", birds / "new.csv", "--labels", "species")
    after = pl.read_csv(tmp_path / "run" / "embedding.csv")
    # The encoder is the same: old rows stay where they are, and new ones follow where `embed` puts them
    assert after[:N].equals(before)
    np.testing.assert_allclose(after[N:].select("z0", "z1"), new.select("z0", "z1"), atol=1e-5)
    assert after[N:]["label"].to_list() == pl.read_csv(birds / "new.csv")["species"].to_list()


def test_a_large_parquet_file_stays_on_disk(sasgp, tmp_path, monkeypatch):
    from sasgp.data.tables import disk, file

    monkeypatch.setattr(file, "LARGE", 100)
    monkeypatch.setattr(disk, "BLOCK", 17)
    mixed(200).write_parquet(tmp_path / "birds.parquet")
    sasgp("fit", tmp_path / "birds.parquet", "--labels", "species", "--id", "bird", "--out", tmp_path / "run", *FAST)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["data"]["how"] == "the last rows"
    embedding = pl.read_csv(tmp_path / "run" / "embedding.csv")
    assert embedding["id"].to_list() == mixed(200)["bird"].to_list()
    on_disk = json.loads(sasgp("evaluate", tmp_path / "run", tmp_path / "birds.parquet", "--json"))
    monkeypatch.setattr(file, "LARGE", 1 << 40)
    assert json.loads(sasgp("evaluate", tmp_path / "run", tmp_path / "birds.parquet", "--json")) == on_disk


def test_impute_completes_the_users_own_table(birds, sasgp, error, tmp_path):
    gaps = mixed(30, seed=2).with_columns(
        pl.when(pl.int_range(30) % 5 == 0).then(None).otherwise("mass_g").alias("mass_g"),
        pl.when(pl.int_range(30) % 7 == 0).then(None).otherwise("sex").alias("sex"),
        pl.when(pl.int_range(30) % 6 == 0).then(None).otherwise("eggs").alias("eggs"),
    )
    gaps.write_csv(tmp_path / "gaps.csv")
    out = sasgp("impute", birds / "run", tmp_path / "gaps.csv", "--std", "--out", tmp_path / "full.csv")
    assert "30 rows, 16 cells filled in" in out
    full = pl.read_csv(tmp_path / "full.csv")
    assert full.columns[:7] == gaps.columns  # labels, ids and constants too
    assert not full.select(gaps.columns).null_count().sum_horizontal().item()
    for name in ("mass_g", "sex", "eggs", "bill_mm"):
        seen = gaps[name].is_not_null()
        assert (full[name].filter(seen) == gaps[name].filter(seen)).all()
    assert full["eggs"].dtype == pl.Int64
    missing = gaps["mass_g"].is_null()
    assert full["mass_g_std"].is_not_null().to_list() == missing.to_list()
    assert (full["mass_g_low"].filter(missing) < full["mass_g"].filter(missing)).all()
    assert set(full["sex"].filter(gaps["sex"].is_null())) <= {"male", "female"}
    sasgp("impute", birds / "run", tmp_path / "gaps.csv", "--samples", "3", "--out", tmp_path / "three.parquet")
    three = pl.read_parquet(tmp_path / "three.parquet")
    assert three["draw"].to_list() == [1] * 30 + [2] * 30 + [3] * 30
    draws = three["mass_g"].to_numpy().reshape(3, 30)[:, missing.to_numpy()]
    assert (draws.std(0) > 0).all()
    assert "goes without --std" in error(
        *("impute", birds / "run", tmp_path / "gaps.csv", "--samples", "2", "--std", "--out", tmp_path / "x.csv")
    )


@pytest.fixture(scope="module")
def in_one_unit(tmp_path_factory):
    """A run of a table whose many numbers have one unit, so that it is taken as an array, with gaps and labels."""
    folder = tmp_path_factory.mktemp("numbers")
    draw = np.random.default_rng(0)
    z, weights = draw.normal(size=120), draw.uniform(8, 12, 64)
    rows = np.rint(np.outer(z, weights) + draw.normal(size=(120, 64))).astype(int)
    names = [f"x{d}" for d in range(64)]
    table = pl.DataFrame(rows, schema=names).with_columns(pl.Series("class", np.where(z > 0, "up", "down")))
    gaps = table.with_columns(
        pl.when(pl.Series(draw.random(120) < 0.3)).then(None).otherwise(name).alias(name) for name in names[1:]
    )
    gaps.write_csv(folder / "gaps.csv")
    assert cli.main(["fit", f"{folder}/gaps.csv", "--out", f"{folder}/run", "--max-epochs", "60"]) == 0
    assert SASGP.load(folder / "run" / "model.safetensors").columns_ is None
    return folder, gaps


def test_impute_keeps_all_columns_and_types_of_a_table_in_one_unit(in_one_unit, sasgp, tmp_path):
    folder, gaps = in_one_unit
    sasgp("impute", folder / "run", folder / "gaps.csv", "--out", tmp_path / "full.parquet")
    full = pl.read_parquet(tmp_path / "full.parquet")
    assert full.schema == gaps.schema
    for name in gaps.columns:
        seen = gaps[name].is_not_null()
        assert full[name].null_count() == 0
        assert (full[name].filter(seen) == gaps[name].filter(seen)).all()
    lacking = gaps["x5"].is_null()
    assert np.corrcoef(full["x5"].filter(lacking), full["x0"].filter(lacking))[0, 1] > 0.8  # both follow z


def test_impute_writes_in_blocks_what_it_writes_at_once(in_one_unit, sasgp, tmp_path, monkeypatch):
    folder, gaps = in_one_unit
    rows = gaps.drop("class")[:6].with_columns(pl.all().cast(pl.Float64).fill_null(np.nan)).to_numpy()
    np.save(tmp_path / "gaps.npy", rows)
    d = int(np.isnan(rows).sum(0).argmax())  # the column with the most gaps

    def written(name, *options):
        for at_once, prefix in ((1 << 40, "whole"), (64 * 4, "blocks")):
            monkeypatch.setattr(blocks, "VALUES_AT_ONCE", at_once)
            sasgp("impute", folder / "run", tmp_path / "gaps.npy", "--out", tmp_path / f"{prefix}{name}", *options)
        return [tmp_path / f"{prefix}{name}" for prefix in ("whole", "blocks")]

    one, other = map(np.load, written(".npy"))
    np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    assert (one == rows)[~np.isnan(rows)].all()
    one, other = map(pl.read_csv, written(".csv", "--std"))
    assert one.columns == other.columns
    assert one.null_count().equals(other.null_count())
    np.testing.assert_allclose(one[f"x{d}_std"].drop_nulls(), other[f"x{d}_std"].drop_nulls(), rtol=1e-3)
    one, other = map(pl.read_csv, written("s.csv", "--samples", "3"))
    assert other["draw"].to_list() == one["draw"].to_list() == [1] * 6 + [2] * 6 + [3] * 6
    missing = np.tile(np.isnan(rows[:, d]), 3)
    assert (one["x0"] == other["x0"]).all()
    assert (one[f"x{d}"].to_numpy() != other[f"x{d}"].to_numpy())[missing].any()  # blocks have seeds of their own


def test_impute_says_which_row_has_nothing(in_one_unit, error, tmp_path):
    folder, gaps = in_one_unit
    empty = gaps.with_columns(
        pl.when(pl.int_range(120) == 77).then(None).otherwise(name).alias(name) for name in gaps.columns[:-1]
    )
    empty.write_csv(tmp_path / "empty.csv")
    said = error("impute", folder / "run", tmp_path / "empty.csv", "--out", tmp_path / "x.csv")
    assert "row 77" in said
    assert "at least one value" in said


def test_a_table_with_gaps_is_trained_on(sasgp, tmp_path):
    gaps = mixed(90).with_columns(pl.when(pl.int_range(90) % 4 == 0).then(None).otherwise("bill_mm").alias("bill_mm"))
    gaps.write_csv(tmp_path / "gaps.csv")
    out = sasgp("fit", tmp_path / "gaps.csv", "--labels", "species", "--out", tmp_path / "run", *FAST)
    assert "missing" in out.partition("Trained")[0]
    assert len(pl.read_csv(tmp_path / "run" / "embedding.csv")) == 90
    sasgp("evaluate", tmp_path / "run", tmp_path / "gaps.csv", "--by-column")
    sasgp("score", tmp_path / "run", tmp_path / "gaps.csv")


def cells(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.reader(file))


def is_number(cell):
    return re.fullmatch(r"[+-]?[0-9.]+(e[+-]?[0-9]+)?", cell) is not None


def test_formulas_are_escaped_on_request(sasgp, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    kinds = [["=1+1", "@SUM(A1)", "-x", "safe"][i % 4] for i in range(40)]
    numbers = {"+a": draw.normal(size=40), "b": draw.normal(size=40)}
    pl.DataFrame({**numbers, "kind": kinds, "class": kinds}).write_csv("t.csv")
    sasgp("fit", "t.csv", "--out", "run", *FAST)
    sasgp("fit", "t.csv", "--out", "target", "--target", "kind", *FAST)
    for command, *words in (
        ("embed", "run", "t.csv"),
        ("score", "run", "t.csv"),
        ("decode", "run", "run/embedding.csv"),
        ("sample", "run"),
        ("impute", "run", "t.csv"),
        ("predict", "target", "t.csv"),
    ):
        sasgp(command, *words, "--out", "plain.csv")
        sasgp(command, *words, "--out", "safe.csv", "--escape-formulas")
        plain = cells(tmp_path / "plain.csv")
        safe = [
            [f"'{cell}" if cell[:1] in [*"=+-@"] and not is_number(cell) else cell for cell in line] for line in plain
        ]
        assert safe != plain, command
        assert cells(tmp_path / "safe.csv") == safe, command
