"""The pictures of a regressor or classifier: what `fit --target` and `plot` share."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sasgp.cli.pictures import save_figure
from sasgp.cli.predictions import INTERVAL
from sasgp.errors import InputError

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure

    from sasgp.estimators import SASGPClassifier, SASGPRegressor

__all__ = ["draw_run", "figures", "names_of_pictures"]


def names_of_pictures(estimator: "SASGPRegressor | SASGPClassifier", *, held_out: bool) -> list[str]:
    """The pictures that a run of this model has."""
    from sasgp.cli import runs

    first = runs.CONFUSION if hasattr(estimator, "classes_") else runs.PREDICTED
    return [
        *([first, runs.CALIBRATION] if held_out else []),
        *([runs.RELEVANCE] if _has_relevance(estimator) else []),
        runs.LOSS,
    ]


def _has_relevance(estimator: Any) -> bool:
    try:
        return bool(estimator.relevance_.any())
    except AttributeError:  # a deep kernel
        return False


def draw_run(estimator: Any, predictions: "pl.DataFrame | None", info: dict[str, Any], run: Path) -> None:
    """Write the pictures of a run."""
    data = info["data"]
    drawn = figures(estimator, predictions, data["target_name"], data["name"])
    for name in info["pictures"]:
        save_figure(drawn[name](), run / name)


def figures(
    estimator: Any, predictions: "pl.DataFrame | None", target: str, title: str
) -> "dict[str, Callable[[], Figure]]":
    """How to draw each picture, by the name of its file. `predictions` is the table of rows whose target is known."""
    from sasgp import plots
    from sasgp.cli import runs
    from sasgp.estimators.tables import input_names

    def known() -> "pl.DataFrame":
        if predictions is None or "observed" not in predictions.columns:
            raise InputError("This picture needs rows whose target is known. Name them with --data.")
        return predictions.drop_nulls("observed")

    def relevance() -> "Figure":
        if not _has_relevance(estimator):
            raise InputError("The kernel of this model has no lengthscale for each input.")
        return plots.input_relevance(estimator.relevance_, input_names(estimator), title=title)

    both = {
        runs.RELEVANCE: relevance,
        runs.LOSS: lambda: plots.training_curve(estimator.history_, title=title),
    }
    own = _of_classes if hasattr(estimator, "classes_") else _of_numbers
    return own(known, target, title) | both


def _of_numbers(known: "Callable[[], pl.DataFrame]", target: str, title: str) -> "dict[str, Callable[[], Figure]]":
    from sasgp import plots
    from sasgp.cli import runs
    from sasgp.evaluation.supervised import quantile_counts

    def predicted() -> "Figure":
        found = known()
        y, mean, low, high = (found[name].to_numpy() for name in ("observed", "predicted", "low", "high"))
        return plots.predicted(y, mean, low, high, name=target, level=INTERVAL, title=title)

    def calibration() -> "Figure":
        return plots.calibration(quantile_counts(known()["quantile"].to_numpy()), title=title)

    return {runs.PREDICTED: predicted, runs.CALIBRATION: calibration}


def _of_classes(known: "Callable[[], pl.DataFrame]", target: str, title: str) -> "dict[str, Callable[[], Figure]]":
    import polars as pl

    from sasgp import plots
    from sasgp.cli import runs

    def classes() -> Any:
        return (known()[name].cast(pl.String).to_numpy().astype(str) for name in ("observed", "predicted"))

    def confusion() -> "Figure":
        return plots.confusion(*classes(), name=target, title=title)

    def reliability() -> "Figure":
        y, found = classes()
        named = [name for name in known().columns if name.startswith(f"{target}=")]
        return plots.reliability(
            y == found, known().select(pl.max_horizontal(named)).to_series().to_numpy(), title=title
        )

    return {runs.CONFUSION: confusion, runs.CALIBRATION: reliability}
