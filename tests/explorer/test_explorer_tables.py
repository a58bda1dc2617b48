"""The explorer of tables: what is packed, and in a real Chromium that JavaScript says what Python's methods say."""

import csv
import datetime
import io
from dataclasses import asdict

import numpy as np
import polars as pl
import pytest
from chromium import HOSTILE, needs_chromium, overlapping
from scipy.special import log_ndtr
from test_explorer import decode

from sasgp import SASGP
from sasgp.data.columns import Category, Discrete, Number
from sasgp.data.columns.maps import MonotoneMap
from sasgp.errors import InputError
from sasgp.explorer import explore
from sasgp.explorer.packing import unpack


def with_gaps(frame):
    """The first row without its length and its island."""
    gone = np.arange(len(frame)) == 0
    return frame.with_columns(pl.when(~pl.Series(gone)).then(pl.col(name)).alias(name) for name in ("length", "island"))


# ---------------------------------------------------------------------------------------------------- what is packed


def test_the_page_holds_the_rows_in_the_user_s_units(mixed):
    model, frame = mixed
    found = explore(model, with_gaps(frame), Z=model.embedding_).content
    cells = unpack(found["observed"]["X"])
    names = list(model.columns_.names)
    assert np.isnan(cells[0, names.index("length")])
    np.testing.assert_array_equal(cells[1:, names.index("length")], frame["length"].to_numpy()[1:])
    born = [datetime.date(1970, 1, 1) + datetime.timedelta(seconds=s) for s in cells[:, names.index("born")]]
    assert born == frame["born"].to_list()
    levels = found["table"]["columns"][names.index("island")]["levels"]
    assert [levels[int(code)] for code in cells[1:, names.index("island")]] == frame["island"].to_list()[1:]

    by_name = {column["name"]: column for column in found["columns"]}
    assert list(by_name) == names
    island = by_name["island"]
    assert island["classes"] == ["Biscoe", "Dream", "Torgersen", "missing"]
    assert island["others"] == 1  # the last is grey
    shown = [island["classes"][code] for code in unpack(island["codes"])]
    assert shown == ["missing", *frame["island"].to_list()[1:]]
    assert by_name["grade"]["classes"] == ["1", "2", "3", "4", "5"]
    assert (by_name["visits"]["low"], by_name["visits"]["high"]) == (frame["visits"].min(), frame["visits"].max())


def test_scores_are_rounded_less_than_features(mixed):
    # An error δ of a score whose standard deviation is 0.1 changes a probability at 3 of these by 30 δ, relatively
    model, frame = mixed
    packed = explore(model, frame, Z=model.embedding_).content["decoder"]
    assert max(packed["error"].values()) <= 1e-5
    Z = np.random.default_rng(0).normal(size=(50, 2)).astype(np.float32)
    (mean, sd), (expected, std) = decode(packed, Z.astype(float)), model.predict_scores(Z, return_std=True)
    np.testing.assert_allclose(mean, expected, atol=3e-5)
    np.testing.assert_allclose(sd * unpack(packed["scales"]), std, atol=3e-5)


def test_rare_levels_of_a_column_to_colour_by_are_one_class(mixed, monkeypatch):
    model, frame = mixed
    monkeypatch.setattr("sasgp.explorer.MAX_CLASSES", 3)
    grade = explore(model, frame, Z=model.embedding_).content["columns"][8]
    counts = frame["grade"].value_counts().sort("count", descending=True)["grade"].to_list()
    kept = sorted(counts[:2])
    assert grade["classes"] == [*map(str, kept), f"{len(counts) - 2} others"]
    expected = [kept.index(value) if value in kept else 2 for value in frame["grade"]]
    np.testing.assert_array_equal(unpack(grade["codes"]), expected)


def test_frames_of_pandas_and_polars_give_the_same_page(mixed):
    pytest.importorskip("pandas")
    import pandas as pd

    model, frame = mixed
    same = pd.DataFrame({name: frame[name].to_numpy() for name in reversed(frame.columns)})
    pages = [model.explorer(X, Z=model.embedding_).content for X in (frame, same)]
    assert pages[0] == pages[1]
    np.testing.assert_array_equal(unpack(model.explorer(frame[:5]).content["Z"]), model.transform(frame[:5]))


def test_a_column_without_any_cell_keeps_a_range(mixed):
    model, frame = mixed
    empty = frame.with_columns(pl.lit(None, pl.Float64).alias("length"))
    length = explore(model, empty, Z=model.embedding_).content["table"]["columns"][0]
    # 95 % of the training values, by the map that was fitted to them
    inside = frame["length"].is_between(length["low"], length["high"])
    assert inside.mean() == pytest.approx(0.95, abs=0.04)


def test_bad_rows_are_named(mixed):
    model, frame = mixed
    with pytest.raises(InputError, match="each of the 120 latents"):
        explore(model, frame[:7])
    with pytest.raises(InputError, match="no column 'mass'"):
        explore(model, frame.drop("mass"))


# ---------------------------------------------------------------------------------------------------- in the browser


@needs_chromium
def test_javascript_says_what_predict_and_probabilities_say(page, mixed, tmp_path):
    model, frame = mixed
    page.open(model.explorer(frame, Z=model.embedding_), tmp_path / "x.html")
    Z = np.concatenate([model.embedding_[:4], [[0.3, -0.4], [3.0, 2.0]]]).astype(np.float32)  # the last is far away
    read = """
    return arguments[0].map((z) => {
      const decoded = explorer.decoder.decode(Float64Array.from(z));
      return explorer.table.map((column) => {
        const { value, code, low, high } = column.read(decoded);
        return [value ?? code, low, high, column.shares?.(decoded)];
      });
    })"""
    found = page.js(read, Z.astype(float).tolist())
    mean, low, high = model.predict(Z, return_interval=0.9)
    probabilities = model.probabilities(Z)
    kinds = set()
    for c, column in enumerate(model.columns_.columns):
        kinds.add(column.kind)
        said = [[row[c][k] for row in found] for k in range(4)]
        if isinstance(column, Number) or column.kind == "count":
            for numbers, ends in zip(said[:3], (mean, low, high), strict=True):
                expected = ends[column.name]
                if expected.dtype == pl.Date:  # of which a frame has whole days
                    days = [datetime.date(1970, 1, 1) + datetime.timedelta(seconds=s) for s in numbers]
                    assert days == expected.to_list()
                else:
                    seconds = expected.dt.epoch("us") / 1e6 if expected.dtype.is_temporal() else expected
                    # 1970 is an arbitrary zero, so that of dates the error is compared with their spread
                    tolerance = (
                        {"rtol": 0, "atol": 1e-3 * column.sd} if expected.dtype.is_temporal() else {"rtol": 1e-3}
                    )
                    np.testing.assert_allclose(numbers, seconds, **tolerance)
        else:
            assert [column.levels[code] for code in said[0]] == mean[column.name].to_list()
        if isinstance(column, Discrete | Category):
            expected = np.stack([probabilities[f"{column.name}={level}"] for level in column.levels], axis=1)
            shares = np.array(said[3])[:, : len(column.levels)]  # a category has one more, for any other level
            np.testing.assert_allclose(shares, expected, rtol=1e-3, atol=1e-6)
    assert kinds == {"real", "skewed", "count", "date", "binary", "ordinal", "category"}


@needs_chromium
def test_maps_and_probabilities_of_the_page_far_out(page, mixed, tmp_path):
    model, _ = mixed
    page.open(model.explorer(), tmp_path / "x.html")
    maps = [column.map for column in model.columns_.columns if isinstance(column, Number)]
    maps += [MonotoneMap("log", 1.0, 2.0), MonotoneMap("asinh", 0.5, 1.5, origin=3.0, unit=2.0)]
    scores = np.linspace(-9, 9, 37)
    inverse = "const map = new MonotoneMap(arguments[0]); return arguments[1].map((score) => map.inverse(score))"
    for one in maps:
        np.testing.assert_allclose(page.js(inverse, asdict(one), scores.tolist()), one.inverse(scores), rtol=1e-9)
    x = np.linspace(-40, 9, 200)
    np.testing.assert_allclose(page.js("return arguments[0].map(logNormalCdf)", x.tolist()), log_ndtr(x), rtol=1e-9)
    assert page.js("return document.querySelectorAll('.own:not([hidden])').length") == 0  # there are no rows


@needs_chromium
def test_a_table_in_words(page, mixed, tmp_path):
    model, frame = mixed
    gaps = with_gaps(frame)
    page.open(explore(model, gaps, Z=model.embedding_, rows=100 + np.arange(120)), tmp_path / "x.html", height=900)
    z = model.embedding_[0]
    page.js("explorer.pointAt(arguments[0], arguments[1])", float(z[0]), float(z[1]))
    blocks = page.js(
        "return [...document.querySelectorAll('.column')].map((b) => [b.querySelector('.head .name').textContent,"
        " { value: b.querySelector('.value').textContent, own: b.querySelector('.own').textContent,"
        " levels: [...b.querySelectorAll('.level')].map((l) => l.innerText.split('\\n')),"
        " seen: [...b.querySelectorAll('.level.seen .name')].map((n) => n.textContent) }])"
    )
    assert [name for name, _ in blocks] == frame.columns
    blocks = dict(blocks)
    mean, low, high = model.predict(z[None], return_interval=0.9)
    # The row's own cells, and beside a missing one what is imputed there with its interval
    assert blocks["visits"]["own"] == str(frame["visits"][0])
    assert blocks["born"]["own"] == str(frame["born"][0])
    assert blocks["smokes"]["seen"] == [str(frame["smokes"][0])]
    numbers = " – ".join(f"{ends['length'][0]:.1f}" for ends in (low, high))
    assert blocks["length"]["own"] == f"missing; imputed {mean['length'][0]:.1f} ({numbers})"
    assert blocks["length"]["value"] == f"{mean['length'][0]:.1f} ({numbers})"  # the pointer is at this row
    assert blocks["island"]["own"].startswith(f"missing; imputed {mean['island'][0]}, ")
    assert blocks["born"]["value"] == f"{mean['born'][0]} ({low['born'][0]} – {high['born'][0]})"
    assert blocks["visits"]["value"].endswith(f"({low['visits'][0]:.0f} – {high['visits'][0]:.0f})")
    grade = model.probabilities(z[None])
    assert blocks["grade"]["levels"] == [[str(k), f"{100 * grade[f'grade={k}'][0]:.0f} %"] for k in range(1, 6)]
    assert overlapping(page) == []

    # Colours by each column, a path and samples: nothing that is no number appears (conftest looks)
    for i in range(len(frame.columns)):
        page.js("explorer.colourBy(explorer.columns[arguments[0]])", i)
    page.press("[data-mode=path]")
    page.mouse((-0.5, 0), "click", (0.5, 0.3), "click")
    page.until("return explorer.path.frames.length")
    page.press("#draw")
    samples = np.array(page.js("return explorer.samples"))
    names = list(frame.columns)
    assert (samples[:, names.index("visits")] >= 0).all()
    assert (samples[:, names.index("mass")] % 1 == 0).all()

    # What is exported is the table itself
    page.press("[data-mode=select]")
    page.press("#reset")
    page.press("#select-view")
    page.press("#csv")
    lines = list(csv.DictReader(io.StringIO(page.downloaded("selection.csv").decode())))
    assert [int(line["row"]) for line in lines] == list(range(100, 220))
    assert (lines[0]["length"], lines[0]["island"]) == ("", "")
    np.testing.assert_allclose([float(line["length"]) for line in lines[1:]], frame["length"][1:], rtol=1e-14)
    for name in ("born", "visits", "island", "grade", "smokes"):
        assert [line[name] for line in lines[1:]] == [str(cell) for cell in frame[name][1:]]
    assert [datetime.datetime.fromisoformat(line["seen"]) for line in lines] == frame["seen"].to_list()


@needs_chromium
def test_hostile_names_of_columns_and_levels_are_text(page, tmp_path):
    n = 60
    text = np.array(HOSTILE)[np.arange(n) % len(HOSTILE)]
    frame = pl.DataFrame({HOSTILE[0]: text, HOSTILE[1]: np.arange(n) / 7, HOSTILE[2]: (np.arange(n) % 2).astype(bool)})
    kinds = dict(zip(frame.columns, ("category", "real", "binary"), strict=True))
    model = SASGP(max_epochs=1, random_state=0, columns=kinds).fit(frame)
    gaps = frame.with_columns(pl.when(pl.Series(np.arange(n) > 0)).then(pl.col(HOSTILE[0])).alias(HOSTILE[0]))
    page.open(explore(model, gaps, Z=model.embedding_, title=HOSTILE[1]), tmp_path / "x.html")
    heads = page.js("return [...document.querySelectorAll('.column .head .name')].map((n) => n.textContent)")
    assert heads == frame.columns
    page.js("explorer.pointAt(arguments[0], arguments[1])", *(float(v) for v in model.embedding_[0]))
    levels = page.js("return [...document.querySelectorAll('.column .level .name')].map((n) => n.textContent)")
    assert sorted(levels) == sorted([*HOSTILE, "False", "True"])
    legend = page.js("return [...document.querySelectorAll('#legend button')].map((b) => b.textContent)")
    assert sorted(legend) == sorted([*HOSTILE, "missing"])
    page.press("#draw")
    page.press("[data-mode=path]")
    x = model.embedding_[:, 0]
    page.mouse((float(np.quantile(x, 0.2)), 0), "click", (float(np.quantile(x, 0.8)), 0), "click")
    page.until("return explorer.path.frames.length")
    assert page.js("return document.querySelectorAll('img, svg[onload]').length") == 0
    assert page.js("return document.querySelectorAll('script').length") == 2
