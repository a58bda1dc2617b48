"""`sasgp score`: how unusual each row is, and which of its columns make it so."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.arguments import TEXT, Data, EscapeFormulas, Labels, Model, OptionalOut, Printed, command
from sasgp.cli.loading import count_features, feature_names, load_data, load_model, training_rows
from sasgp.cli.printing import Result, show
from sasgp.cli.together import Processes, together
from sasgp.errors import InputError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sasgp.cli.runs import RunFolder
    from sasgp.estimators import SASGP

__all__ = ["score"]

REFERENCE = 2000  # training rows that scores are compared with
N_COLUMNS = 3  # columns that are named for a row
NOTABLE = 2.0  # nats by which a column must be less probable than usual to be named


@command
def score(
    model: Model,
    data: Data,
    /,
    *,
    out: OptionalOut = None,
    labels: Labels = None,
    top: int = 10,
    escape_formulas: EscapeFormulas = False,
    printed: Printed = TEXT,
) -> Result:
    """Find unusual rows: the log density of each row, and the columns that make it low.

    For a table, the values in these columns are printed, too, and in brackets what the model decodes from the row. A
    row's percentile is the share of training rows with a lower log density. Under torchrun, each process scores a share
    of the rows, and the first writes and prints.

    Parameters
    ----------
    out
        A .csv file to write, one line per row: row, id and label if there are any, log_density, percentile and unusual,
        the columns that are least probable given the rest of the row.
    top
        How many of the most unusual rows to print.
    """
    import numpy as np

    from sasgp.cli import files

    if top < 0:
        raise InputError(f"--top must be at least 0. Got {top}.")
    with together() as processes:
        if out is not None and processes.first:
            files.check_suffix(out, (".csv",), data, labels)
            files.check_place(out)
        estimator, run = load_model(model)
        dataset = load_data(data, labels, estimator, run)
        X = dataset.X if dataset.X_test is None else dataset.X_test
        y = dataset.y if dataset.X_test is None else dataset.y_test
        found = _scored(estimator, X, processes)
        usual, reference = _usual(estimator, run, found)
    if not processes.first:
        return None
    named = _unusual(feature_names(run, estimator), found[:, 1:], np.nanmean(usual[:, 1:], axis=0))
    lines = _lines(found, usual, named, None if dataset.X_test is not None else dataset.ids, y)
    if out is not None:
        import polars as pl

        with files.replacing(out) as file:
            files.write_csv(pl.DataFrame(lines), file, escape_formulas=escape_formulas)
    order = np.argsort(found[:, 0], kind="stable")[:top]
    return _print(lines, order, _cells(estimator, X, order, named), reference, out)


def _lines(
    found: "NDArray[Any]", usual: "NDArray[Any]", named: list[list[str]], ids: Any, labels: Any
) -> "dict[str, NDArray[Any] | list[str]]":
    """What is said of each row, by column."""
    import numpy as np

    known = {name: values for name, values in (("id", ids), ("label", labels)) if values is not None}
    percentile = 100 * np.searchsorted(np.sort(usual[:, 0]), found[:, 0]) / len(usual)
    unusual = [", ".join(columns) for columns in named]
    row = np.arange(len(found))
    return {"row": row, **known, "log_density": found[:, 0], "percentile": percentile, "unusual": unusual}


def _cells(estimator: "SASGP", X: Any, rows: "NDArray[Any]", named: list[list[str]]) -> list[list[dict[str, Any]]]:
    """The unusual cells of some rows of a table: what they hold, and what is decoded from the row's z."""
    import polars as pl

    from sasgp.data.rows import take_rows

    if estimator.columns_ is None or not isinstance(X, pl.DataFrame) or not len(rows):
        return [[] for _ in rows]
    held = take_rows(X, rows)
    decoded = estimator.reconstruct(held)
    return [
        [{"column": name, "value": held[name][i], "decoded": decoded[name][i]} for name in named[row]]
        for i, row in enumerate(rows)
    ]


def _print(
    lines: dict[str, Any], order: "NDArray[Any]", cells: list[list[dict[str, Any]]], reference: str, out: Path | None
) -> Result:
    """Print the most unusual rows, and return them."""
    log_density, N = lines["log_density"], len(lines["row"])
    name = "id" if "id" in lines else "row"
    top_rows: list[tuple[str, str | Path, str]] = []
    for i, unusual in zip(order, cells, strict=True):
        values = (f"{cell['column']} {_short(cell['value'])} ({_short(cell['decoded'])})" for cell in unusual)
        why = ", ".join(values) or lines["unusual"][i]
        note = f"percentile {lines['percentile'][i]:.1f}; {why}".rstrip("; ")
        top_rows.append((str(lines[name][i]), f"{log_density[i]:.2f}", note))
    about = f"{N} rows, mean log density {log_density.mean():.3f} nats; percentiles among {reference}"
    numbered = " (the first is 0)" if name == "row" else ""
    why = "the columns that make it low"
    if any(cells):
        why += ",\nwith their values and, in brackets, what is decoded from the row"
    heading = f"The most unusual, by {name}{numbered}: log density, percentile, and {why}"
    show([(f"{about}\n{heading}" if top_rows else about, top_rows)])
    if out is not None:
        show([("\nWrote", [("", out, f"{N} rows")])])
    shown: list[dict[str, Any]] = [{name: values[i] for name, values in lines.items()} for i in order]
    for line, unusual in zip(shown, cells, strict=True):
        if any(cells):
            line["cells"] = unusual
    wrote = {} if out is None else {"wrote": out}
    return {"rows": N, "mean_log_density": log_density.mean(), "reference": reference, "top": shown, **wrote}


def _short(value: Any) -> str:
    """A cell in few characters. Whole numbers keep all their digits."""
    return f"{value:.4g}" if isinstance(value, float) and not value.is_integer() else f"{value}".removesuffix(".0")


def _scored(estimator: "SASGP", X: Any, processes: Processes) -> "NDArray[Any]":
    """The log density of each row and, in the other columns, that of each of its values given its z."""
    import numpy as np

    def some(part: slice) -> Any:
        rows = X[part]
        return np.column_stack([estimator.score_samples(rows), estimator.score_features(rows)])

    return processes.rows(some, (len(X), 1 + count_features(estimator)))


def _usual(estimator: "SASGP", run: "RunFolder", found: "NDArray[Any]") -> "tuple[NDArray[Any], str]":
    """What `_scored` gives for training rows, if they can be read, and in words which rows these are."""
    import numpy as np

    from sasgp.data.rows import take_rows

    if run.source is not None:
        try:
            train = training_rows(estimator, run, run.source)
            some = np.sort(np.random.default_rng(0).permutation(len(train))[:REFERENCE])
            return _scored(estimator, take_rows(train, some), Processes()), f"{len(some)} training rows"
        except (InputError, OSError):
            pass  # the file has moved or changed
    return found, "these rows, because the training data cannot be read"


def _unusual(names: list[str], by_column: "NDArray[Any]", usual: "NDArray[Any]") -> list[list[str]]:
    """For each row, the columns that are least probable compared with what is usual for them."""
    import numpy as np

    excess = np.nan_to_num(usual - by_column)
    order = np.argsort(-excess, axis=1, kind="stable")[:, :N_COLUMNS]
    return [[names[i] for i in line if excess[row, i] > NOTABLE] for row, line in enumerate(order)]
