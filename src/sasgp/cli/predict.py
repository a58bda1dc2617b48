"""`sasgp predict`: the target of new rows, and how certain it is."""

from pathlib import Path
from typing import TYPE_CHECKING

from sasgp.cli.arguments import TEXT, Data, EscapeFormulas, Model, Out, Printed, command
from sasgp.cli.loading import load_supervised
from sasgp.cli.predictions import INTERVAL, Predictor, quality_lines
from sasgp.cli.printing import Result, show
from sasgp.cli.target_rows import load_rows, name_of_target
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.target_rows import TargetRows

__all__ = ["predict"]


@command
def predict(
    model: Model,
    data: Data,
    /,
    *,
    out: Out,
    interval: float = INTERVAL,
    escape_formulas: EscapeFormulas = False,
    printed: Printed = TEXT,
) -> Result:
    """Predict the target of each row of the data with a model that was trained with --target.

    Columns are found by name, and others are ignored. If the target is among them, the metrics are printed. Of a named
    data set, the test rows are predicted.

    Parameters
    ----------
    out
        The .csv file to write, one line per row: row, id and observed if they are known, predicted, and for numbers
        std, low and high, the standard deviation and the interval of a new observation; for classes the probability of
        each.
    interval
        Share of new observations that lie between low and high.
    """
    from sasgp.cli import files

    if not 0 < interval < 1:
        raise InputError(f"--interval must be between 0 and 1, for example 0.9. Got {interval:g}.")
    files.check_suffix(out, (".csv",), data)
    files.check_place(out)
    estimator, run = load_supervised(model)
    rows = load_rows(data, estimator, run)
    predictor = Predictor(estimator, name_of_target(estimator, run), interval)
    with files.replacing(out) as file:
        write_predictions(predictor, rows, file, escape_formulas=escape_formulas)
    if metrics := predictor.metrics():
        trained = ", which include rows that the model was trained on" if rows.seen else ""
        heading = f"On {metrics['rows']} rows with {predictor.target}{trained}"
        show([(heading, quality_lines(metrics)), ("Wrote", [("", out, f"{len(rows.X)} rows")])])
    else:
        show([("", [("wrote", str(out), f"{len(rows.X)} rows")])])
    return {"wrote": out, "rows": len(rows.X), "target": predictor.target, "metrics": metrics or None}


def write_predictions(predictor: Predictor, rows: "TargetRows", file: Path, *, escape_formulas: bool) -> None:
    """Write the predictions block by block, so that a large file is never in memory whole."""
    from sasgp.cli import files
    from sasgp.data.progress import progress_bar

    predictor.estimator.verbose = False  # one bar for all blocks
    with file.open("wb") as handle, progress_bar("predictions", len(rows.X)) as update:
        for number, X, ids, y in rows.blocks():
            frame = predictor.frame(X, number, ids, y)
            files.write_csv(frame, handle, escape_formulas=escape_formulas, header=number[0] == 0)
            update(int(number[-1]) + 1)
