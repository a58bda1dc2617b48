"""Columns of tables: what they are taken for, and their way to scores and back."""

import json
from dataclasses import replace
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
import polars as pl
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from sasgp.data.columns import Category, Columns, Discrete, Number
from sasgp.data.columns import levels as intervals
from sasgp.data.columns.column import log_mass
from sasgp.data.columns.maps import MonotoneMap, best_map, curved_map, straight_map
from sasgp.errors import InputError

N = 400
RNG = np.random.default_rng(0)
SHAPES = {
    "normal": RNG.normal(3, 2, N),
    "lognormal": RNG.lognormal(0, 1, N),
    "two humps": np.concatenate([RNG.normal(-3, 0.5, N // 2), RNG.normal(3, 0.5, N // 2)]),
    "uniform": RNG.uniform(0, 1, N),
    "long tails": RNG.standard_t(2, N),
    "large": RNG.exponential(1e6, N),
}
STRANGERS = RNG.integers(N, size=(N, 15))  # neighbours that say nothing about a row


def kinds(frame, **said):
    return {one.name: one.kind for one in Columns.recognised(frame, said).findings}


@pytest.fixture(scope="module")
def table():
    z = RNG.normal(size=N)
    return pl.DataFrame(
        {
            "height": 170 + 10 * z + RNG.normal(size=N),
            "income": np.exp(8 + z + RNG.normal(size=N)),
            "children": RNG.poisson(np.exp(0.5 * z)),
            "smokes": RNG.normal(size=N) < z,
            "satisfied": np.clip(np.rint(3 + z + 0.5 * RNG.normal(size=N)), 1, 5).astype(int),
            "region": np.array(["north", "south", "west"])[RNG.integers(3, size=N)],
            "born": [date(1980, 1, 1) + timedelta(days=int(300 * v)) for v in RNG.normal(size=N)],
            "id": np.arange(N) + 1000,
            "planet": ["Earth"] * N,
            "remark": [f"a few words about row {i}" for i in range(N)],
            "nothing": [None] * N,
        }
    )


# Maps


@pytest.mark.parametrize("base", ["identity", "log", "asinh"])
@pytest.mark.parametrize("name", list(SHAPES))
def test_maps_are_increasing_with_the_slope_they_say_and_an_inverse(name, base):
    x = SHAPES[name]
    if base == "log" and x.min() <= 0:
        return
    g = curved_map(x, base)
    s = g(x)
    assert (np.diff(g(np.sort(x))) > 0).all()
    np.testing.assert_allclose(g.inverse(s), x, rtol=1e-9, atol=1e-9 * x.std())
    # log dg/dx by central differences, away from the knots, where the slope has a kink
    h = 1e-6 * np.minimum(np.abs(x) + 1e-3 * x.std(), x.std())
    difference = np.log((g(x + h) - g(x - h)) / (2 * h))
    assert np.median(np.abs(difference - g.log_slope(x))) < 1e-6
    # Beyond the outer knots, the tails are linear in h(x): the density integrates to 1 all the same
    grid = g.inverse(np.linspace(-8, 8, 40_001))
    density = np.exp(norm.logpdf(g(grid)) + g.log_slope(grid))
    assert np.trapezoid(density, grid) == pytest.approx(1, abs=2e-4)


@pytest.mark.parametrize(
    ("g", "log_unit"), [(MonotoneMap("log", 0, 1), 0.0), (MonotoneMap("asinh", 0, 1, unit=1e6), 13.8)]
)
def test_moments_of_values_whose_squares_are_no_numbers(g, log_unit):
    # x = e^s, or 1e6 sinh(s) = 5e5 e^s, with s ~ N(m, v) is lognormal: its deviation is its mean times √(e^v − 1)
    column, var = Number(name="y", kind="skewed", map=g), 0.09
    mean, m = np.full((1, 1), 500.0 - log_unit), 500.0 - log_unit
    factor = 0.5e6 if g.base == "asinh" else 1.0
    expected = factor * np.exp(m + var / 2)
    np.testing.assert_allclose(column.predict(mean, np.full((1, 1), var)), expected, rtol=1e-6)
    np.testing.assert_allclose(column.std(mean, np.full((1, 1), var)), expected * np.sqrt(np.expm1(var)), rtol=1e-5)
    assert np.isfinite(column.std(1e4 * mean, np.full((1, 1), 1e6)))


@pytest.mark.parametrize("name", list(SHAPES))
def test_scores_are_nearly_standard_normal(name):
    g = curved_map(SHAPES[name], "identity" if SHAPES[name].min() <= 0 else "log")
    s = np.sort(g(SHAPES[name]))
    expected = norm.ppf((np.arange(N) + 0.5) / N)
    # As far as a sample of 400 can tell (1.36 / √N); two humps have a gap that few knots cannot follow
    assert np.abs(norm.cdf(s) - norm.cdf(expected)).max() < (0.1 if name == "two humps" else 0.068)


def test_slopes_are_the_most_likely_ones():
    # The loss is convex: no other slopes, however found, do better
    from scipy.optimize import minimize

    from sasgp.data.columns import maps

    u = np.sort(SHAPES["long tails"])
    u = (u - u.mean()) / u.std()
    knots = np.quantile(u, [0.05, 0.35, 0.65, 0.95])
    slopes, offset = maps._most_likely(u, knots.tolist())

    def loss(theta):
        g = MonotoneMap("identity", 0.0, 1.0, tuple(knots), tuple(np.exp(theta[1:])), theta[0])
        v = np.exp(theta[1:])
        rough = 0.5 * (np.diff(v) ** 2).sum() / maps.ROUGHNESS**2
        return 0.5 * (g(u) ** 2).sum() - g.log_slope(u).sum() + rough - maps.BARRIER * theta[1:].sum()

    found = loss(np.concatenate([[offset], np.log(slopes)]))
    other = minimize(
        loss, np.zeros(5), method="Nelder-Mead", options={"maxiter": 20_000, "fatol": 1e-10, "xatol": 1e-8}
    )
    assert found == pytest.approx(other.fun, abs=1e-5)


def test_a_normal_column_is_shifted_and_scaled_and_a_skewed_one_is_not():
    assert best_map(SHAPES["normal"], STRANGERS) == straight_map(SHAPES["normal"])
    assert best_map(SHAPES["lognormal"], STRANGERS).base == "log"
    assert best_map(SHAPES["long tails"], STRANGERS).base == "asinh"


@pytest.mark.parametrize("n", range(2, 20))
def test_few_rows_are_recognised_however_few(n):
    # 16 rows are as many as a row and the neighbours that its value is compared with
    draw = np.random.default_rng(n)
    frame = pl.DataFrame({"a": draw.normal(size=n), "b": draw.lognormal(size=n)})
    assert Columns.recognised(frame, {}).names == ("a", "b")


def test_humps_that_the_rest_of_the_row_explains_are_left_alone():
    x, half = SHAPES["two humps"], N // 2
    alike = np.concatenate([RNG.integers(half, size=(half, 15)), half + RNG.integers(half, size=(half, 15))])
    assert best_map(x, alike) == straight_map(x)
    assert best_map(x, STRANGERS).knots  # without that, they are not normal


def test_values_that_come_back_again_and_again_get_no_knots():
    fine, coarse = (np.round(SHAPES["two humps"], digits) for digits in (2, 1))
    assert len(np.unique(fine)) > N / 4 > len(np.unique(coarse)) > 20
    assert best_map(fine, STRANGERS).knots
    assert not best_map(coarse, STRANGERS).knots


def test_units_do_not_matter():
    for x in SHAPES.values():
        one, other = best_map(x, STRANGERS), best_map(1000 * x, STRANGERS)
        np.testing.assert_allclose(one(x), other(1000 * x), atol=1e-6)
        np.testing.assert_allclose(one.log_slope(x), other.log_slope(1000 * x) + np.log(1000), atol=1e-6)


# Levels


def test_intervals_have_the_mass_of_their_level_and_its_mean():
    counts = np.array([50, 200, 5, 45])
    cut = intervals.cuts(counts)
    low, high = intervals.bounds(cut)
    # (cumulative + ½) / (n + 1), the smoothing of the docstring
    np.testing.assert_allclose(norm.cdf(cut), (np.cumsum(counts)[:-1] + 0.5) / 301, atol=1e-12)
    np.testing.assert_allclose(intervals.interval_mass(low, high), norm.cdf(high) - norm.cdf(low), atol=1e-12)
    for target, a, b in zip(intervals.targets(cut), low, high, strict=True):
        mass = norm.cdf(b) - norm.cdf(a)
        assert target == pytest.approx(quad(lambda s: s * norm.pdf(s), max(a, -12), min(b, 12))[0] / mass, abs=1e-9)
    within = sum(
        quad(lambda s, t=t: (s - t) ** 2 * norm.pdf(s), max(a, -12), min(b, 12))[0]
        for t, a, b in zip(intervals.targets(cut), low, high, strict=True)
    )
    assert intervals.spread(cut) == pytest.approx(np.sqrt(within), abs=1e-9)


def test_counts_that_did_not_occur_have_a_probability():
    counts = np.bincount([0, 0, 0, 1, 1, 4, 7], minlength=12)
    cut = intervals.extended_cuts(counts)
    assert (np.diff(cut) > 0).all()
    mass = intervals.interval_mass(*intervals.bounds(cut))
    assert (mass > 0).all()
    assert mass.sum() == pytest.approx(1)
    assert mass[8:].sum() < 0.1
    shifted = intervals.extended_cuts(np.bincount([3, 3, 5], minlength=9))  # nothing below 3 has occurred
    assert (np.diff(shifted) > 0).all()


def test_log_mass_far_out():
    assert log_mass(np.array(-1.0), np.array(1.0)) == pytest.approx(np.log(norm.cdf(1) - norm.cdf(-1)))
    assert log_mass(np.array(40.0), np.array(np.inf)) == pytest.approx(norm.logsf(40))
    assert log_mass(np.array(-np.inf), np.array(-40.0)) == pytest.approx(norm.logcdf(-40))
    assert log_mass(np.array(30.0), np.array(31.0)) == pytest.approx(norm.logsf(30), rel=1e-6)


@pytest.mark.parametrize("var", [0.01, 0.5, 4.0])
@pytest.mark.parametrize("mean", [-2.0, 0.3, 6.0])
def test_probabilities_sum_to_one_and_densities_integrate_to_one(table, mean, var):
    columns: Any = Columns.recognised(table, {})
    for _, column, part in columns.parts():
        m, c = np.full((1, part.stop - part.start), mean), np.full((1, part.stop - part.start), var)
        if isinstance(column, Discrete | Category):
            assert np.exp(column.log_probabilities(m, c)).sum() == pytest.approx(1)
            codes = np.arange(len(column.levels) + isinstance(column, Category), dtype=float)
            each = np.exp([column.log_density(np.array([code]), m, c)[0] for code in codes])
            assert each.sum() == pytest.approx(1)
        else:
            edges = column.map.inverse(mean + np.sqrt(var) * np.linspace(-8, 8, 20_001))
            n = len(edges)
            density = np.exp(column.log_density(edges, np.repeat(m, n, 0), np.repeat(c, n, 0)))
            assert np.trapezoid(density, edges) == pytest.approx(1, abs=1e-3)


def test_moments_and_quantiles_are_those_of_draws(table):
    columns: Any = Columns.recognised(table, {})
    draw = np.random.default_rng(1)
    D, n = columns.n_scores, 200_000
    mean, var = draw.normal(size=(1, D)), np.full((1, D), 0.3)
    scores = mean + np.sqrt(var) * draw.normal(size=(n, D))
    values = columns.sample(scores, np.repeat(mean, n, 0), np.repeat(var, n, 0), draw)
    predicted, std, median = (
        columns.predict(mean, var)[0],
        columns.std(mean, var)[0],
        columns.quantile(mean, var, 0.5)[0],
    )
    for place, column, _ in columns.parts():
        x = values[:, place]
        if isinstance(column, Number) or column.kind == "count":
            assert predicted[place] == pytest.approx(x.mean(), abs=0.02 * column.sd)
            assert std[place] == pytest.approx(x.std(), rel=0.05, abs=0.01 * column.sd)
            assert abs((x < median[place]).mean() - 0.5) < (0.02 if isinstance(column, Number) else 0.5)
        else:
            share = np.bincount(x.astype(int), minlength=len(column.levels)) / n
            part = next(part for at, _, part in columns.parts() if at == place)
            p = np.exp(column.log_probabilities(mean[:, part], var[:, part]))[0, : len(column.levels)]
            np.testing.assert_allclose(share, p / p.sum(), atol=0.01)
            assert column.kind == "ordinal" or predicted[place] == p.argmax()


def test_a_straight_column_gives_what_the_plain_model_gives():
    x = SHAPES["normal"]
    column = Number(name="x", kind="real", sd=float(x.std()), map=straight_map(x))
    m, c = RNG.normal(size=(N, 1)), RNG.uniform(0.1, 1, size=(N, 1))
    mean, sd = x.mean() + x.std() * m[:, 0], x.std() * np.sqrt(c[:, 0])
    np.testing.assert_allclose(column.log_density(x, m, c), norm.logpdf(x, mean, sd), atol=1e-10)
    np.testing.assert_allclose(column.predict(m, c), mean)
    np.testing.assert_allclose(column.std(m, c), sd)
    np.testing.assert_allclose(column.quantile(m, c, 0.9), norm.ppf(0.9, mean, sd))


# Recognition


def test_what_columns_are_taken_for(table):
    assert kinds(table) == {
        "height": "real",
        "income": "skewed",
        "children": "count",
        "smokes": "binary",
        "satisfied": "ordinal",
        "region": "category",
        "born": "date",
        "id": "id",
        "planet": "constant",
        "remark": "text",
        "nothing": "empty",
    }
    report = {name: (kind, why) for name, kind, why in Columns.recognised(table, {}).report()}
    assert report["id"] == ("left out: id", "a different number in each row")
    assert report["planet"] == ("left out: constant", "always Earth")
    assert report["region"] == ("category", "3 levels")
    assert report["income"][1] == "numbers, on a logarithmic scale"


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, 2] * 30, "binary"),
        (["yes", "no"] * 30, "binary"),
        (list(range(60)), "id"),
        ([f"u{i:04d}" for i in range(60)], "id"),
        ([0.5, 1.0, 1.5, 2.0, 2.5, 3.0] * 10, "ordinal"),
        (np.repeat(np.arange(1, 4), 20), "ordinal"),
        (RNG.poisson(3, 600), "count"),
        (np.rint(RNG.normal(200, 14, 300)).astype(int), "real"),
        (RNG.normal(size=60), "real"),
        ([datetime(2020, 1, 1 + i % 28, i % 24) for i in range(60)], "date"),
        ([str(i % 7) for i in range(60)], "category"),
        ([f"name {i % 45}" for i in range(60)], "text"),
    ],
)
def test_kinds_by_example(values, kind):
    assert kinds(pl.DataFrame({"x": values, "other": RNG.normal(size=len(values))}))["x"] == kind


def test_the_user_knows_better(table):
    said = {"height": "skewed", "children": "ordinal", "planet": "drop", "id": "real", "region": "drop"}
    found = kinds(table, **said)
    assert found | said == found
    with pytest.raises(InputError, match=r"no column 'weight'.*'hair' is no kind of column, for 'height'"):
        Columns.recognised(table, {"weight": "real", "height": "hair"})
    with pytest.raises(InputError, match=r"'height' cannot be a count: .*'region' cannot be real: it holds text"):
        Columns.recognised(table, {"region": "real", "height": "count"})
    with pytest.raises(InputError, match=r"No column of the table is left .* 'planet' \(constant: always Earth\)"):
        Columns.recognised(table.select("planet", "id"), {})


def test_ordered_categories_keep_their_order():
    sizes = pl.Enum(["small", "medium", "large"])
    frame = pl.DataFrame({"size": pl.Series(["large", "small", "medium", "small"] * 10, dtype=sizes)})
    found: Any = Columns.recognised(frame, {}, ordered={"size"})
    (column,) = found.columns
    assert (column.kind, column.levels) == ("ordinal", ("small", "medium", "large"))
    assert (np.diff(column.targets) > 0).all()


def test_a_category_with_many_levels_keeps_the_frequent_ones():
    values = [f"level {i % 40}" for i in range(2000)] + [f"rare {i}" for i in range(200)]
    frame = pl.DataFrame({"x": values})
    columns: Any = Columns.recognised(frame, {})
    (column,) = columns.columns
    assert len(column.levels) == 49
    codes = columns.values(frame)[:, 0]
    assert (codes[-100:] == 49).any()  # any other level
    assert columns.frame(codes[-100:, None])["x"].to_list().count("other") == (codes[-100:] == 49).sum()


# There and back


def test_tables_come_back_as_they_were(table):
    gaps = table.with_columns(pl.when(pl.int_range(N) % 7 == 0).then(None).otherwise(pl.all()).name.keep())
    for frame in (table, gaps):
        columns: Any = Columns.recognised(frame, {})
        values = columns.values(frame)
        back = columns.frame(values)
        assert back.columns == list(columns.names)
        for name in back.columns:
            assert back[name].null_count() == frame[name].null_count()
            same = (frame[name].cast(back[name].dtype) == back[name]).drop_nulls()
            assert same.all() or np.allclose(frame[name].drop_nulls().to_numpy(), back[name].drop_nulls().to_numpy())
        scores = columns.scores(values)
        assert np.isnan(scores).any() == (frame is gaps)
        assert (
            np.isnan(scores) == np.isnan(values[:, [p for p, c, part in columns.parts() for _ in range(c.width)]])
        ).all()


def test_columns_survive_json(table):
    columns: Any = Columns.recognised(table, {})
    again = Columns.from_json(json.loads(json.dumps(columns.as_json())))
    assert again == columns
    assert np.array_equal(again.scores(again.values(table)), columns.scores(columns.values(table)))


def test_renaming_and_rescaling_change_nothing_but_names(table):
    columns: Any = Columns.recognised(table, {})
    other = table.with_columns(
        pl.col("income") * 1000, pl.col("region").replace({"north": "a", "south": "b", "west": "c"})
    ).rename({"height": "tall"})
    changed = Columns.recognised(other, {})
    np.testing.assert_allclose(changed.scores(changed.values(other)), columns.scores(columns.values(table)), atol=1e-6)


def test_new_tables(table):
    columns: Any = Columns.recognised(table, {})
    shuffled = table.select(reversed(table.columns)).with_columns(pl.lit(1).alias("more"))
    assert np.array_equal(columns.values(shuffled), columns.values(table))
    with pytest.raises(InputError, match=r"has no column 'income', 'children'.*It has 'height', 'smokes'"):
        columns.values(table.drop("income", "children"))
    with pytest.warns(UserWarning, match=r"training did not see: 'region' \(east\)"):
        codes = columns.values(table.with_columns(pl.lit("east").alias("region")))
    assert (codes[:, columns.names.index("region")] == 3).all()
    wrong = table.with_columns(pl.col("height").cast(pl.String), pl.lit(3).alias("region"), pl.lit("x").alias("born"))
    with pytest.raises(InputError) as caught:
        columns.values(wrong)
    assert str(caught.value).count("in training, but holds") == 3  # all problems in one message
    assert columns.values(table.with_columns(pl.lit(900).alias("children")))[0, 2] == len(columns.columns[2].levels) - 1
    with pytest.raises(InputError, match="must hold counts"):
        columns.values(table.with_columns(pl.lit(-1).alias("children")))


def test_a_third_level_of_two_is_missing_with_a_warning():
    seen = pl.DataFrame({"gear": ["man.5", "man.6"] * 10, "size": np.arange(20.0) ** 1.5})
    columns = Columns.recognised(seen, {})
    assert columns.columns[0].kind == "binary"
    with pytest.warns(UserWarning, match=r"did not see: 'gear' \(man.4\)\..*as missing in .* two levels"):
        found = columns.values(pl.DataFrame({"gear": ["man.6", "man.4"], "size": [1.0, 2.0]}))
    np.testing.assert_array_equal(found, [[1, 1], [np.nan, 2]])


def test_an_unseen_level_is_less_probable_the_more_rows_there_were():
    def other(n):
        found: Any = Columns.recognised(pl.DataFrame({"x": ["a", "b", "c"] * n}), {})
        (column,) = found.columns
        return column.log_density(np.array([3.0]), np.zeros((1, 3)), np.ones((1, 3)))[0]

    assert other(1000) < other(100) < other(10) < np.log(0.2)


def test_bounds_are_kept():
    x = np.abs(RNG.normal(size=300))
    found: Any = Columns.recognised(pl.DataFrame({"x": x}), {"x": "real"})
    (column,) = found.columns
    low = column.quantile(np.array([[-9.0]]), np.array([[1.0]]), 0.05)
    assert low[0] == 0.0
    share = replace(column, high=1.0)
    assert share.quantile(np.array([[90.0]]), np.array([[1.0]]), 0.5)[0] == 1.0
