"""Models of mixed tables beside simpler ones: test rows through two dimensions, and cells from the rest of their row.

Three quarters of the rows train. "through": a test row is encoded to two numbers and decoded again. NLPD is that of
numbers in the table's own units, RMSE that of numbers in standard deviations; levels have an accuracy and a log loss.
"cells": each cell of a test row is predicted from the other cells of the row. A decoder's answer is an average over a
grid of its latent space, weighted by p(z) and the density of the other cells; its encoder has no part in it.

    tables     sasgp, columns as they are recognised
    plain      sasgp, all numbers and counts with a shift and a scale instead of a map
    shared     sasgp, the numbers as an array, with one noise for all of them
    feature    sasgp, the numbers as an array, with a scale for each
    pca        two principal components of numbers and indicators of levels, all standardised
    knn        the average of the 15 training rows that are nearest in these two components
    copula     a Gaussian copula (gcimpute, of the extra `bench`): all cells at once, not two dimensions
    usual      the mean, or the most frequent level

Penguins, mpg and titanic are read from the folder of --file.
"""

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import logsumexp, softmax
from sklearn.neighbors import NearestNeighbors

from sasgp import SASGP
from sasgp.data.columns import Category, Columns, Discrete, Number
from studies.questions.table_sets import FILES, NUMBERS, Guess, is_level, measured, rows, split
from studies.records import Record, Run
from studies.tables import count, mean_and_deviation, of_some
from studies.tables import table as markdown

Array = NDArray[Any]
Guesses = dict[str, Guess]

MODELS = ("tables", "plain", "shared", "feature", "pca", "knn", "copula", "usual")
ARRAYS = ("shared", "feature")  # models that need a table of numbers alone
# Titanic's levels determine each other, which makes the copula singular. Diabetes has one column of levels; while it is
# hidden, gcimpute 0.0.4 takes the minimum of nothing
WITH_COPULA = ("penguins", "mpg", "wine", "breast-cancer")
QUESTIONS = {"through": "through two dimensions", "cells": "each cell from the others"}
SHOWN = {"nlpd": "NLPD", "rmse": "RMSE", "log_loss": "log loss", "accuracy": "accuracy"}
NEIGHBOURS = 15
SIDE, REACH = 101, 4.0  # points along a side of the grid, and how far it goes
DRAWS = 50  # of a copula, whose mean is the prediction
SMOOTHING = 0.5  # added to the neighbours of each level


def runs(seed: int, quick: bool) -> list[Run]:
    """Every model of every table that it can take."""
    data_sets, models, epochs = (("wine",), ("tables", "knn"), 1) if quick else ((*FILES, *NUMBERS), MODELS, None)
    return [
        Run(f"tables-{data}-{model}", {"data": data, "model": model, "max_epochs": epochs}, seed)
        for data, model in product(data_sets, models)
        if (data in NUMBERS or model not in ARRAYS) and (data in WITH_COPULA or model != "copula")
    ]


def execute(run: Run) -> dict[str, Any]:
    """Fit one model, and measure what it says about the test rows."""
    model, seed, epochs = run.settings["model"], run.seed or 0, run.settings["max_epochs"]
    train, test = split(rows(run.settings["data"], run.file), run.seed)
    columns = Columns.recognised(train, {})
    guessed = _sasgp if model in ("tables", "plain", *ARRAYS) else OTHERS[model]
    found = guessed(model, columns, train, test, seed, epochs)
    values = columns.values(test)
    return {"rows": train.height, **{name: measured(columns, values, guesses) for name, guesses in found.items()}}


# ---- sasgp ----


def _sasgp(
    model: str, columns: Columns, train: pl.DataFrame, test: pl.DataFrame, seed: int, epochs: int | None
) -> dict[str, Guesses]:
    settings: dict[str, Any] = {"max_epochs": epochs, "random_state": seed}
    if model in ARRAYS:
        fitted = SASGP(**settings | {"columns": None, "noise": model}).fit(train.to_numpy())
        mean, std = fitted.reconstruct(test.to_numpy(), return_std=True)
        return {"through": _gaussian(columns, test, mean.astype(float), np.square(std, dtype=np.float64))}
    # {} and not "auto", which takes diabetes for an array because its columns have one spread
    plain = {column.name: "real" for column in columns.columns if not is_level(column)}
    fitted = SASGP(columns=plain if model == "plain" else {}, **settings).fit(train)
    own = fitted.columns_
    assert own is not None
    values = own.values(test)
    mean, std = fitted.predict_scores(fitted.transform(test), return_std=True)
    m, c = mean.astype(np.float64), np.square(std, dtype=np.float64)
    through = {
        column.name: Guess(
            column.predict(m[:, part], c[:, part]), column.log_density(values[:, place], m[:, part], c[:, part])
        )
        for place, column, part in own.parts()
    }
    return {"through": through, "cells": cells_of(fitted, values)}


def _gaussian(columns: Columns, test: pl.DataFrame, mean: Array, var: Array) -> Guesses:
    """Of arrays, whose features are the columns in their order. A level is the nearest one."""
    X, found = test.to_numpy(), {}
    for place, column, _ in columns.parts():
        m, c = mean[:, place], var[:, place]
        if isinstance(column, Discrete):
            found[column.name] = Guess(np.abs(m[:, None] - column.numbers).argmin(1))
        else:
            found[column.name] = Guess(m, -0.5 * (np.log(2 * np.pi * c) + (X[:, place] - m) ** 2 / c))
    return found


def cells_of(model: Any, values: Array, side: int = SIDE, block: int = 16) -> Guesses:
    """Each cell of rows [N, C] given the others: E[x_c | x_−c] and log p(x_c | x_−c), by a sum over a grid of z."""
    line = np.linspace(-REACH, REACH, side)
    Z = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)  # [G, 2]
    mean, std = model.predict_scores(Z, return_std=True)
    m, c = mean.astype(np.float64), np.square(std, dtype=np.float64)
    columns: Columns = model.columns_
    known = [_known(column, m[:, part], c[:, part]) for _, column, part in columns.parts()]
    value, density = np.empty((2, *values.shape))
    for start in range(0, len(values), block):
        x = values[start : start + block]
        # log p(x_nd | z_g), [C, n, G]
        each = np.stack([log_density(x[:, place]) for place, (log_density, _) in enumerate(known)])
        joint = each.sum(0) - 0.5 * (Z**2).sum(1)
        for place, (_, expected) in enumerate(known):
            # p(z | x_−d) ∝ p(z) Π_{e≠d} p(x_e | z)
            w = softmax(joint - each[place], axis=1)  # [n, G]
            answer = w @ expected
            value[start : start + block, place] = answer if answer.ndim == 1 else answer.argmax(1)
            density[start : start + block, place] = logsumexp(each[place], axis=1, b=w)
    return {name: Guess(value[:, place], density[:, place]) for place, name in enumerate(columns.names)}


def _known(column: Any, m: Array, c: Array) -> tuple[Callable[[Array], Array], Array]:
    """Of a column on a grid: x [n] → log p(x_n | z_g) [n, G], and expected numbers [G] or probabilities [G, L]."""
    if isinstance(column, Number):

        def log_density(x: Array) -> Array:
            s, slope = column.scores(x), column.log_slope(x)
            found: Array = -0.5 * (np.log(2 * np.pi * c.T) + (s - m.T) ** 2 / c.T) + slope[:, None]
            return found

        return log_density, column.predict(m, c)
    log_p = column.log_probabilities(m, c)  # [G, L]
    return lambda x: log_p.T[x.astype(int)], np.exp(log_p) if is_level(column) else column.predict(m, c)


# ---- others ----


def indicators(columns: Columns, values: Array) -> tuple[Array, list[slice]]:
    """Numbers, and one indicator for each level; and where each column is."""
    return _joined(
        [
            (values[:, [place]] == np.arange(len(column.levels))).astype(float)
            if is_level(column)
            else values[:, [place]]
            for place, column, _ in columns.parts()
        ]
    )


def _joined(parts: Sequence[Array]) -> tuple[Array, list[slice]]:
    ends = np.cumsum([part.shape[1] for part in parts])
    return np.concatenate(parts, axis=1), [slice(end - p.shape[1], end) for end, p in zip(ends, parts, strict=True)]


def _linear(
    model: str, columns: Columns, train: pl.DataFrame, test: pl.DataFrame, seed: int, epochs: int | None
) -> dict[str, Guesses]:
    """Two principal components, and either what they say or what the rows near them say."""
    values = columns.values(test)
    X, parts = indicators(columns, columns.values(train))
    X_test = indicators(columns, values)[0]
    centre, spread = X.mean(0), np.where(X.std(0) > 0, X.std(0), 1)
    axes = np.linalg.svd((X - centre) / spread, full_matrices=False)[2][:2]
    P, P_test = ((rows_ - centre) / spread @ axes.T for rows_ in (X, X_test))
    if model == "pca":
        mean, again = (centre + spread * (p @ axes) for p in (P_test, P))
    else:
        near = NearestNeighbors(n_neighbors=NEIGHBOURS).fit(P)
        # Without arguments, a training row is not its own neighbour
        mean, again = (X[near.kneighbors(p, return_distance=False)].mean(1) for p in (P_test, None))
    var = ((X - again) ** 2).mean(0)  # of what is left of the training rows, for each column
    found = {}
    for (place, column, _), part in zip(columns.parts(), parts, strict=True):
        x, m, c = values[:, place], mean[:, part], var[part]
        if not is_level(column):
            density = -0.5 * (np.log(2 * np.pi * c) + (x - m[:, 0]) ** 2 / c)
            found[column.name] = Guess(m[:, 0], density)
        elif model == "pca":
            found[column.name] = Guess(m.argmax(1))
        else:
            found[column.name] = Guess(m.argmax(1), _log_share(NEIGHBOURS * m, x))
    return {"through": found}


def _log_share(counts: Array, codes: Array) -> Array:
    """Log probabilities of levels that were seen this often, [N, L]."""
    p = (counts + SMOOTHING) / (counts + SMOOTHING).sum(1, keepdims=True)
    found: Array = np.log(p[np.arange(len(p)), codes.astype(int)])
    return found


def _copula(
    model: str, columns: Columns, train: pl.DataFrame, test: pl.DataFrame, seed: int, epochs: int | None
) -> dict[str, Guesses]:
    """A column at a time is hidden in the test rows. Draws are averaged, which serves RMSE better than a median."""
    from gcimpute.gaussian_copula import GaussianCopula

    vars(np).setdefault("round_", np.round)  # gcimpute 0.0.4 calls it by a name that NumPy 2 has removed

    def joined(values: Array) -> tuple[Array, list[slice]]:
        # One indicator of a category follows from the others, and the copula would be singular: the first is left out
        return _joined(
            [
                (values[:, [place]] == np.arange(1, len(column.levels))).astype(float)
                if isinstance(column, Category)
                else values[:, [place]]
                for place, column, _ in columns.parts()
            ]
        )

    (X, parts), (X_test, _) = joined(columns.values(train)), joined(columns.values(test))
    number = np.zeros(X.shape[1], bool)
    for column, part in zip(columns.columns, parts, strict=True):
        number[part] = isinstance(column, Number)
    fitted = GaussianCopula(random_state=seed)
    sorts = {"continuous": np.flatnonzero(number).tolist(), "ordinal": np.flatnonzero(~number).tolist()}
    fitted.fit(X, **{name: places for name, places in sorts.items() if places})
    found = {}
    for column, part in zip(columns.columns, parts, strict=True):
        hidden = X_test.copy()
        hidden[:, part] = np.nan
        drawn = fitted.sample_imputation(hidden, num=DRAWS)[:, part]  # [N, width, draws]
        if isinstance(column, Category):
            p = drawn.mean(2)
            value = np.column_stack([1 - p.sum(1), p]).argmax(1)
        elif is_level(column):
            value = np.stack([(drawn[:, 0] == code).mean(1) for code in range(len(column.levels))], axis=1).argmax(1)
        else:
            value = drawn[:, 0].mean(1)
        found[column.name] = Guess(value)
    return {"cells": found}


def _usual(
    model: str, columns: Columns, train: pl.DataFrame, test: pl.DataFrame, seed: int, epochs: int | None
) -> dict[str, Guesses]:
    values, found = columns.values(test), {}
    X, parts = indicators(columns, columns.values(train))
    for (place, column, _), part in zip(columns.parts(), parts, strict=True):
        x, m = values[:, place], X[:, part].mean(0)
        if is_level(column):
            counts = np.tile(X[:, part].sum(0), (len(x), 1))
            found[column.name] = Guess(np.full(len(x), m.argmax()), _log_share(counts, x))
        else:
            c = X[:, part].var(0)
            found[column.name] = Guess(np.full(len(x), m[0]), -0.5 * (np.log(2 * np.pi * c) + (x - m) ** 2 / c))
    return {"through": found, "cells": found}


OTHERS: dict[str, Callable[..., dict[str, Guesses]]] = {
    "pca": _linear,
    "knn": _linear,
    "copula": _copula,
    "usual": _usual,
}


# ---- tables ----


def table(records: Sequence[Record]) -> str:
    """Both questions, mean and deviation over splits."""
    lines = []
    for question, data, model in product(QUESTIONS, (*FILES, *NUMBERS), MODELS):
        asked = [r for r in records if (r["settings"]["data"], r["settings"]["model"]) == (data, model)]
        some = [record for record in asked if question in record["results"]]
        found = [record["results"][question] for record in some]
        values = [[one[key] for one in found if key in one] for key in SHOWN]
        cells = [of_some(mean_and_deviation(these, 3), these, found) for these in values]
        lines += [[QUESTIONS[question], data, model, *cells, count(some)]] if found else []
    return markdown(["", "data", "model", *SHOWN.values(), "splits"], lines)
