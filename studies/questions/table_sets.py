"""Tables that questions ask about, their splits, and what is measured of a prediction, column by column.

Penguins, mpg and titanic are seaborn's, and are read from penguins.csv, mpg.csv and titanic.csv in a folder that the
user names; rows with missing cells are left out. Wine, breast cancer and diabetes are scikit-learn's, and all numbers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import polars as pl
from numpy.typing import NDArray
from sklearn import datasets
from sklearn.model_selection import train_test_split

from sasgp.data.columns import Category, Column, Columns, Discrete, Number
from sasgp.errors import InputError

__all__ = ["FILES", "NUMBERS", "Guess", "is_level", "measured", "rows", "split"]

Array = NDArray[Any]
# Columns that are left out: free text, a column that is mostly empty, and copies of other columns in other words
FILES = {"penguins": (), "mpg": ("name",), "titanic": ("deck", "alive", "class", "embark_town")}
NUMBERS = {"wine": datasets.load_wine, "breast-cancer": datasets.load_breast_cancer, "diabetes": datasets.load_diabetes}
TEST_SHARE = 0.25


@dataclass(frozen=True)
class Guess:
    """What a model says about the cells of a column.

    Parameters
    ----------
    value : array [N]
        The expected number, or the code of the most probable level.
    log_density : array [N], optional
        Log density of the true number, or log probability of the true level.
    """

    value: Array
    log_density: Array | None = None


def rows(name: str, folder: str | None) -> pl.DataFrame:
    """The rows of a table that have no missing cells."""
    if name in NUMBERS:
        data = NUMBERS[name]()
        return pl.DataFrame(data.data, schema=list(data.feature_names), orient="row")
    path = None if folder is None else Path(folder) / f"{name}.csv"
    if path is None or not path.is_file():
        there = "" if path is None else f" {path} is no file."
        raise InputError(
            f"The table {name} is read from a folder.{there} Say --file FOLDER, which has {name}.csv in it."
        )
    return pl.read_csv(path).drop(FILES[name]).drop_nulls()


def split(frame: pl.DataFrame, seed: int | None) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Three quarters of the rows, and the others."""
    one, other = train_test_split(np.arange(frame.height), test_size=TEST_SHARE, random_state=seed)
    return frame[one], frame[other]


def is_level(column: Column) -> TypeGuard[Discrete | Category]:
    """Whether a column holds levels and not numbers."""
    return not (isinstance(column, Number) or (isinstance(column, Discrete) and column.numeric))


def measured(columns: Columns, values: Array, guesses: Mapping[str, Guess]) -> dict[str, float]:
    """The metrics of predictions of values [N, C], over all cells of a sort.

    Parameters
    ----------
    columns : Columns
        As they are recognised in the training rows. They say what is a number and what a level for all models.
    values : array [N, C]
    guesses : mapping
        By the names of the columns.

    Returns
    -------
    dict
        nlpd of the columns that have a density, per value; rmse of all numbers, in standard deviations; accuracy and
        log_loss of levels. What there is no column for, or what a model does not say, is left out.
    """
    densities, errors, hits, losses = [], [], [], []
    for place, column, _ in columns.parts():
        x, guess = values[:, place], guesses[column.name]
        if is_level(column):
            hits.append(guess.value == x)
            losses.append(guess.log_density)
        else:
            errors.append((guess.value - x) / column.sd)
            densities += [guess.log_density] if isinstance(column, Number) else []
    found = {"rmse": float(np.sqrt(np.mean(np.square(errors))))} if errors else {}
    found |= {"accuracy": float(np.mean(hits))} if hits else {}
    for name, some in (("nlpd", densities), ("log_loss", losses)):
        if some and all(one is not None for one in some):
            found[name] = -float(np.mean([one for one in some if one is not None]))
    return found
