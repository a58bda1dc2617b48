"""Tables in and tables out: DataFrames through the estimators."""

import warnings

import numpy as np
import pandas as pd
import polars as pl
import pytest
from oracles import assert_close
from scipy.stats import norm
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from starts import shorten_start

from sasgp import GPLVM, SASGP, VAE, BayesianGPLVM, SASGPImputer
from sasgp.data.units import is_array, one_unit
from sasgp.errors import InputError

FAST = {"max_epochs": 20, "random_state": 0, "dtype": "float64"}
N = 120


def mixed(n=N, seed=0):
    draw = np.random.default_rng(seed)
    z = draw.normal(size=n)
    where = np.digitize(z + 0.3 * draw.normal(size=n), [-0.5, 0.5])
    return pd.DataFrame(
        {
            "mass": 4000 + 800 * z + 100 * draw.normal(size=n),
            "length": np.exp(z + 0.3 * draw.normal(size=n)),
            "eggs": draw.poisson(np.exp(0.5 * z)),
            "female": draw.normal(size=n) < 2 * z,
            "island": np.array(["Dream", "Biscoe", "Torgersen"])[where],
            "seen": pd.Timestamp("2020-01-01") + pd.to_timedelta(np.rint(100 * draw.random(n)), "D"),
            "name": [f"bird number {i}" for i in range(n)],
        }
    )


@pytest.fixture(scope="module")
def table():
    return mixed()


@pytest.fixture(scope="module")
def model(table):
    with pytest.MonkeyPatch.context() as patch:
        shorten_start(patch, 50)
        return SASGP(**FAST).fit(table)


def test_columns_are_recognised_and_noise_is_by_feature(model, table):
    assert {one.name: one.kind for one in model.columns_.findings} == {
        "mass": "real",
        "length": "skewed",
        "eggs": "count",
        "female": "binary",
        "island": "category",
        "seen": "date",
        "name": "text",
    }
    assert model.noise_kind_ == "feature"
    assert model.n_features_in_ == 7
    assert model.n_scores_ == 8  # three for the island
    assert list(model.feature_names_in_) == list(table.columns)
    assert model.embedding_.shape == (N, 2)


@pytest.mark.parametrize("kind", [pd, pl])
def test_tables_come_out_as_they_went_in(model, table, kind):
    frame = table if kind is pd else pl.DataFrame({name: table[name].to_numpy() for name in table})
    fitted = model if kind is pd else clone(model).fit(frame)
    mean, std, low, high = fitted.reconstruct(frame, return_std=True, return_interval=0.9)
    assert all(isinstance(part, kind.DataFrame) for part in (mean, std, low, high))
    assert list(mean.columns) == ["mass", "length", "eggs", "female", "island", "seen"]
    assert set(np.asarray(mean["island"])) <= {"Dream", "Biscoe", "Torgersen"}
    assert np.asarray(mean["female"]).dtype == bool
    assert np.asarray(mean["seen"]).dtype.kind == "M"
    for name in ("mass", "length", "eggs"):
        assert (np.asarray(low[name]) <= np.asarray(high[name])).all()
    assert (np.asarray(low["eggs"]) >= 0).all()
    assert (np.asarray(low["length"]) > 0).all()
    inside = (np.asarray(low["mass"]) <= table["mass"]) & (table["mass"] <= np.asarray(high["mass"]))
    assert inside.mean() > 0.8
    assert (np.asarray(std["female"]) <= 0.5).all()  # the probability that the other level is right
    p = fitted.probabilities(fitted.embedding_)
    assert list(p.columns)[-5:] == [
        "female=False",
        "female=True",
        *(f"island={i}" for i in ("Biscoe", "Dream", "Torgersen")),
    ]
    islands = np.asarray(p)[:, -3:]
    assert ((islands.sum(1) > 0.9) & (islands.sum(1) <= 1)).all()  # the rest is for islands that nobody has seen
    drawn = fitted.sample(50, random_state=0)
    assert isinstance(drawn, kind.DataFrame)
    eggs = np.asarray(drawn["eggs"])
    assert (eggs == np.rint(eggs)).all()
    assert (eggs >= 0).all()


def test_a_density_is_that_of_the_cells_and_adds_up(model, table):
    some = table[:10]
    Z = model.transform(some)
    mean, std = model.predict_scores(Z, return_std=True)
    columns = model.columns_
    by_hand = np.zeros(10)
    for place, column, part in columns.parts():
        x = columns.values(pl.DataFrame({name: some[name].to_numpy() for name in some}))[:, place]
        m, s = mean[:, part], std[:, part]
        if column.kind in ("real", "skewed", "date"):
            slope = (column.map(x + 1e-4 * column.sd) - column.map(x - 1e-4 * column.sd)) / (2e-4 * column.sd)
            by_hand += norm.logpdf(column.map(x), m[:, 0], s[:, 0]) + np.log(slope)
        elif column.kind == "category":
            yes = norm.cdf((m - np.array(column.cuts)) / s)
            by_hand += np.log(yes[np.arange(10), x.astype(int)] / (yes.sum(1) + np.exp(column.other)))
        else:
            edges = np.array([-np.inf, *column.cuts, np.inf])
            upper, lower = edges[x.astype(int) + 1], edges[x.astype(int)]
            by_hand += np.log(norm.cdf((upper - m[:, 0]) / s[:, 0]) - norm.cdf((lower - m[:, 0]) / s[:, 0]))
    assert_close(model.score_samples(some, n_samples=0), by_hand, 1e-4)
    by_column = model.score_features(some, refine=0)
    assert_close(by_column.sum(1), by_hand, 1e-4)
    # Integrated over z, it is at least within reach of the best z, and it does not depend on what else is asked for
    whole = model.score_samples(table)
    assert np.isfinite(whole).all()
    assert_close(model.score_samples(some), whole[:10], 1e-6)


def test_an_odd_cell_is_found(model, table):
    odd = table[:6].copy()
    odd.loc[2, "mass"] = 40_000.0
    scores = model.score_samples(odd)
    assert scores.argmin() == 2
    usual = model.score_features(table).mean(0)
    assert (usual - model.score_features(odd)[2]).argmax() == 0


def test_a_file_keeps_the_columns(model, table, tmp_path):
    model.save(tmp_path / "m.safetensors")
    again = SASGP.load(tmp_path / "m.safetensors")
    assert again.columns_ == model.columns_
    assert np.array_equal(again.transform(table), model.transform(table))
    pd.testing.assert_frame_equal(again.reconstruct(table), model.reconstruct(table))
    assert np.array_equal(again.score_samples(table[:5]), model.score_samples(table[:5]))


def test_names_are_what_counts(model, table):
    Z = model.transform(table)
    assert np.array_equal(model.transform(table[table.columns[::-1]].assign(more=1)), Z)
    assert np.array_equal(model.transform(table.drop(columns="name")), Z)  # it was left out
    with pytest.raises(InputError, match=r"no column 'mass', 'eggs', which the model was trained on"):
        model.transform(table.drop(columns=["mass", "eggs"]))
    with pytest.raises(InputError, match=r"'mass' held numbers in training, but holds text such as 'x'.*'island' held"):
        model.transform(table.assign(mass="x", island=3))
    with pytest.warns(UserWarning, match=r"'island' \(Atlantis\)"):
        found = model.score_features(table.assign(island="Atlantis"), refine=0)[:, 4]
    assert (found < np.log(0.1)).all()
    with pytest.raises(InputError, match="trained on a table with 7 columns"):
        model.transform(np.zeros((3, 4)))


def test_units_and_names_of_levels_change_nothing_else(model, table):
    names = {"Biscoe": "a", "Dream": "b", "Torgersen": "c"}
    other = table.assign(mass=table["mass"] * 1000, island=table["island"].map(names))
    model, changed = clone(model).fit(table), clone(model).fit(other)
    np.testing.assert_allclose(changed.embedding_, model.embedding_, atol=1e-6)
    expected = model.score_samples(table, n_samples=0) - np.log(1000)
    assert_close(changed.score_samples(other, n_samples=0), expected, 1e-5)


def test_rows_can_be_added_and_neighbours_asked(table):
    more = mixed(30, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        model = SASGP(**FAST).fit(table)
        model.update(more)
    assert len(model.embedding_) == N + 30
    both = pd.concat([table, more], ignore_index=True)
    near = model.predict(model.embedding_[:3], neighbours=60, data=both)
    assert list(near.columns) == list(model.predict(model.embedding_[:3]).columns)


@pytest.mark.parametrize("kind", [GPLVM, BayesianGPLVM, VAE])
def test_the_other_models_take_tables_too(table, kind):
    model = kind(max_epochs=3, random_state=0).fit(table[:60])
    assert model.columns_ is not None
    assert list(model.reconstruct(table[:3]).columns) == list(model.columns_.names)
    assert np.isfinite(model.score_samples(table[:3], n_samples=0)).all()


def test_what_the_user_says_about_columns(table):
    model = SASGP(columns={"mass": "skewed", "island": "drop"}, max_epochs=1).fit(table)
    assert "island" not in model.columns_.names
    assert next(column.kind for column in model.columns_.columns if column.name == "mass") == "skewed"
    with pytest.raises(InputError, match="There is no column 'weight'"):
        SASGP(columns={"weight": "real"}).fit(table)
    with pytest.raises(InputError, match="columns must be 'auto', a mapping or None"):
        SASGP(columns="all").fit(table)
    numbers = table[["mass", "length"]]
    plain = SASGP(columns=None, max_epochs=1).fit(numbers)
    assert plain.columns_ is None
    assert plain.noise_kind_ == "feature"
    named = SASGP(columns={"x0": "count"}, max_epochs=1).fit(np.random.default_rng(0).poisson(3, size=(50, 3)))
    assert next(column.kind for column in named.columns_.columns) == "count"
    assert isinstance(named.predict(named.embedding_), pl.DataFrame)


def test_a_table_of_numbers_with_one_unit_is_an_array(table):
    X = np.random.default_rng(0).normal(size=(60, 5)) * [1, 1, 1, 2, 3]
    frame = pd.DataFrame(X, columns=list("abcde"))
    one, other = (SASGP(max_epochs=2, random_state=0).fit(data) for data in (X, frame))
    assert other.columns_ is None
    assert other.noise_kind_ == "shared"
    assert np.array_equal(one.embedding_, other.embedding_)
    assert isinstance(other.predict(other.embedding_), np.ndarray)
    pipe = make_pipeline(StandardScaler(), SASGP(max_epochs=1, random_state=0)).set_output(transform="pandas")
    assert pipe.fit_transform(frame).shape == (60, 2)


@pytest.mark.parametrize("load", [load_wine, load_breast_cancer, load_diabetes])
def test_standardised_columns_have_noise_of_their_own(load):
    X = load().data
    scaled = (X - X.mean(0)) / X.std(0)
    train = np.random.default_rng(0).permutation(len(X))[: 3 * len(X) // 4]
    for rows in (scaled, scaled.astype(np.float32), scaled[train]):
        assert not one_unit(rows)
    assert one_unit(scaled * np.linspace(1, 2, X.shape[1]))
    assert one_unit(scaled[:, :1])
    assert one_unit(np.concatenate([scaled[:90] * np.linspace(1, 2, X.shape[1]), np.full((1, X.shape[1]), 99)]))


def test_one_unit():
    draw = np.random.default_rng(0)
    assert one_unit(draw.normal(size=(50, 4)) * [1, 1, 2, 3])
    assert not one_unit(draw.normal(size=(50, 4)) * [1, 1, 1, 100])
    assert not one_unit(draw.normal(size=(50, 4)) * [1, 1, 1, 0.01])
    assert one_unit(draw.random((50, 100)) * (np.arange(100) > 20))  # the rim of an image
    assert one_unit(draw.integers(256, size=(50, 4)).astype(np.uint8))
    assert is_array(pl.DataFrame(draw.random((50, 4))))
    assert not is_array(pl.DataFrame(draw.integers(5, size=(50, 4))))
    assert is_array(pl.DataFrame(draw.integers(256, size=(50, 64))))
    levels = pl.DataFrame(draw.normal(size=(100, 3))).with_columns(sex=pl.Series(draw.choice([-0.04, 0.05], 100)))
    assert not is_array(levels)  # one unit, but yes or no


def test_fits_are_repeatable_and_do_not_warn(table):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        one, other = (SASGP(max_epochs=3, random_state=0).fit_transform(table) for _ in range(2))
    assert np.array_equal(one, other)


def test_counts_from_a_known_model_are_recovered():
    # eggs ~ Poisson(exp(1 + z / 2)) and a number that tells z: the mean of eggs at a row's z is exp(1 + z / 2)
    draw = np.random.default_rng(0)
    z = draw.normal(size=600)
    frame = pd.DataFrame({"a": z + 0.05 * draw.normal(size=600), "b": 100 * (z + 0.05 * draw.normal(size=600))})
    frame["eggs"] = draw.poisson(np.exp(1 + z / 2))
    model = SASGP(n_components=1, max_epochs=60, random_state=0).fit(frame)
    found = model.reconstruct(frame)["eggs"]
    inner = np.abs(z) < 1.5
    # The reconstruction has seen the count itself, so that it lies between the rate and the count
    assert np.corrcoef(found[inner], np.exp(1 + z / 2)[inner])[0, 1] > 0.9
    assert abs(found.mean() - frame["eggs"].mean()) < 0.15


# Missing cells


def test_missing_cells_are_filled_in_the_users_types(table):
    draw = np.random.default_rng(3)
    holes = table.drop(columns="name").copy()
    for name in holes:
        holes[name] = holes[name].where(draw.random(N) > 0.15)
    holes["island"] = holes["island"].astype("category")
    holes = holes[holes.notna().any(axis=1)].reset_index(drop=True)
    model = SASGP(**FAST).fit(holes)
    full, std, low, high = model.impute(holes, return_std=True, return_interval=0.9)
    assert not full.isna().any().any()
    assert full["island"].dtype == holes["island"].dtype
    for name in holes:
        seen = holes[name].notna()
        assert (full[name][seen] == holes[name][seen]).all()
        assert (std[name][seen] == 0).all()
        assert (std[name][~seen] >= 0).all()
    gone = holes["mass"].isna()
    assert (low["mass"][gone] < full["mass"][gone]).all()
    assert (full["mass"][gone] < high["mass"][gone]).all()
    eggs = full["eggs"][holes["eggs"].isna()]
    assert (eggs == eggs.round()).all()
    one, other = model.impute(holes, n_samples=2, random_state=0)
    assert (one["mass"][gone] != other["mass"][gone]).any()
    again = model.impute(holes)
    pd.testing.assert_frame_equal(again, full)


def test_what_is_imputed_is_better_than_the_mean(table):
    hidden = np.random.default_rng(4).random(N) < 0.2
    holes = table.assign(mass=table["mass"].where(~hidden))
    model = SASGP(random_state=0, max_epochs=150).fit(holes)
    error = model.impute(holes)["mass"][hidden] - table["mass"][hidden]
    spread = table["mass"][hidden] - table["mass"][~hidden].mean()
    assert np.sqrt((error**2).mean()) < 0.7 * np.sqrt((spread**2).mean())


def test_the_imputer_takes_tables(table):
    holes = table.drop(columns="name").copy()
    holes.loc[::4, "mass"] = np.nan
    holes.loc[1::5, "island"] = None
    imputer = SASGPImputer(max_epochs=5, random_state=0)
    full = imputer.fit_transform(holes)
    assert isinstance(full, pd.DataFrame)
    assert list(full.columns) == list(holes.columns)
    assert not full.isna().any().any()
    seen = holes["mass"].notna()
    assert (full["mass"][seen] == holes["mass"][seen]).all()
    new = imputer.transform(holes[:3])
    assert not new.isna().any().any()
    with pytest.raises(InputError, match="log_density is for tables of numbers"):
        imputer.log_density(holes, full)
