"""`sasgp evaluate`: how good a model is, in numbers."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from sasgp.cli.arguments import TEXT, Data, FileName, Flag, Labels, Model, Printed, Refine, command
from sasgp.cli.loading import load_data, load_model, rows_to_evaluate, training_rows
from sasgp.cli.printing import THROUGH, Result, metric_lines, show
from sasgp.cli.tables import show_by_column
from sasgp.cli.together import together
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import Embedding, RunFolder
    from sasgp.estimators import SASGP

__all__ = ["evaluate"]


@command
def evaluate(
    model: Model,
    data: Data,
    /,
    *,
    labels: Labels = None,
    refine: Refine = 0,
    neighbours: int | None = None,
    train: FileName | None = None,
    geodesic: Annotated[bool, Flag] = False,
    by_column: Annotated[bool, Flag] = False,
    printed: Printed = TEXT,
) -> Result:
    """Measure how well a model reconstructs data, and how well its latent space separates the labels.

    Of a named data set, the test rows are evaluated; of the file that the run was trained on, the held-out rows; of any
    other file, all rows. Under torchrun, each process decodes a share of the rows, and the first prints.

    Parameters
    ----------
    neighbours
        Decode every row from this many training rows, those nearest to its z, instead of from the trained decoder. 128
        to 512 are best in more than about three dimensions.
    train
        The data that the model was trained on, for --neighbours. By default they are read from where the run and its
        updates found them. After an update, it is one file: the rows that the run was made from, then the new ones.
    geodesic
        Find neighbours also by the distance that the decoder measures in the data, beside the distance in the latent
        space. Needs labels. Of many rows, some are measured.
    by_column
        Print also a table with the metrics of each column.
    """
    from sasgp.evaluation import structure, tidy_labels

    with together() as processes:
        estimator, run = load_model(model)
        predict = _from_nearest_rows(estimator, run, neighbours, train)
        dataset = load_data(data, labels, estimator, run)
        known = run.embedding()
        X, y, which = rows_to_evaluate(data, dataset, run, known)
        _check(estimator, run, y, by_column, geodesic)
        Z = processes.transform(estimator, X, refine)
        measured, seen = _measured(estimator, X, Z, predict, processes)
    if not processes.first:
        return None
    result: dict[str, Any] = {"rows": len(X), "which": which, **measured}
    if predict is not None:
        result["nearest_rows"] = neighbours
    y = tidy_labels(y)
    result |= (
        _accuracy(known, Z, y) | (_by_distance(estimator, known, Z, y) if geodesic else {}) | structure(seen, Z, y)
    )
    through = f"through the latent space, z refined in {refine} steps" if refine else THROUGH
    through += f", from the {neighbours} nearest training rows" if predict is not None else ""
    show([(f"{len(X)} rows ({which}), {through}", metric_lines(result, _notes(result)))])
    if by_column:
        show_by_column(result)
    return result


def _measured(estimator: "SASGP", X: Any, Z: Any, predict: Any, processes: Any) -> tuple[dict[str, Any], Any]:
    """The metrics of reconstructed rows, of which each process decodes a share, and the rows as distances see them."""
    from sasgp import evaluation
    from sasgp.evaluation import tables

    if estimator.columns_ is not None:
        columns, values = estimator.columns_, evaluation.table_numbers(estimator, X)

        def of_table(part: slice) -> Any:
            return tables.table_sums(estimator, values[part], Z[part], predict).as_vector()

        length = len(columns) * len(tables.TableSums.FIELDS)
        total = tables.TableSums.from_vector(columns, processes.sum(of_table, len(X), length))
        found = total.metrics() | {"by_column": total.by_column()}
        return found, tables.standardised(columns, values)
    levels, scale = evaluation.eight_bit_levels(X), evaluation.feature_scale(estimator, X)

    def sums(part: slice) -> Any:
        return evaluation.reconstruction_sums(estimator, X[part], Z[part], predict, levels, scale).as_vector()

    vector = processes.sum(sums, len(X), evaluation.ReconstructionSums.LENGTH)
    found = evaluation.ReconstructionSums.from_vector(vector).metrics()
    return found if scale is None else found | {"units": "standard deviations"}, X


def _notes(result: dict[str, Any]) -> dict[str, str | None]:
    """Among which rows neighbours are."""
    names = {"": "neighbours", "geodesic_": "geodesic_rows"}
    return {f"{kind}{key}": result.get(rows) for kind, rows in names.items() for key in ("knn_1", "knn_r2_15")}


def _accuracy(known: "Embedding | None", Z: Any, y: Any) -> dict[str, Any]:
    """Accuracy of nearest neighbours, and in words among which rows they are."""
    from sasgp.evaluation import knn, knn_cross_validated, tidy_labels

    trained = None if known is None else known.only("train").labelled()
    if trained is not None and trained.labels is not None and y is not None:
        found, how = knn(trained.Z, tidy_labels(trained.labels), Z, y), "neighbours among the run's training rows"
    else:
        found, how = knn_cross_validated(Z, y), "neighbours among these rows, in 5-fold cross-validation"
    return found | {"neighbours": how} if found else {}


def _check(estimator: "SASGP", run: "RunFolder", y: Any, by_column: bool, geodesic: bool) -> None:
    """Raise InputError if the model or its rows have not what a flag asks for."""
    if by_column and estimator.columns_ is None:
        raise InputError("--by-column needs a model of a table with columns of several kinds. Leave it out.")
    if geodesic and not hasattr(estimator, "distance"):
        raise InputError(
            "--geodesic needs a Gaussian process as the decoder, which knows where it is uncertain, and "
            f"{run.model} is a {type(estimator).__name__}. Leave it out."
        )
    if geodesic and y is None:
        raise InputError("--geodesic asks whether neighbours have the same label. Name the labels with --labels.")


def _by_distance(estimator: "SASGP", known: "Embedding | None", Z: Any, y: Any) -> dict[str, Any]:
    """Accuracy of neighbours by both distances, and in words of how many rows."""
    from sasgp.evaluation import tidy_labels
    from sasgp.evaluation.geodesic import knn_by_distance

    trained = None if known is None else known.only("train").labelled()
    if trained is None or trained.labels is None:
        found, rows = knn_by_distance(estimator, Z, y)
    else:
        found, rows = knn_by_distance(estimator, Z, y, trained.Z, tidy_labels(trained.labels))
    return found | {"geodesic_rows": rows}


def _from_nearest_rows(
    estimator: "SASGP", run: "RunFolder", neighbours: int | None, train: str | None
) -> Callable[..., Any] | None:
    """`predict` from the nearest training rows; None without --neighbours."""
    if neighbours is None:
        if train is not None:
            raise InputError(f"--train {train} is only used with --neighbours. Add it, or leave --train out.")
        return None
    if not hasattr(estimator, "kernel_"):
        raise InputError(
            "--neighbours needs a Gaussian process as the decoder, which can be conditioned on rows, and "
            f"{run.model} is a {type(estimator).__name__}. Leave it out."
        )
    source = train or run.source
    if source is None:
        raise InputError(
            f"--neighbours needs the data that the model was trained on, and {run.model} does not say where they are. "
            "Name them with --train."
        )
    try:
        predict = partial(estimator.predict_scores, neighbours=neighbours, data=training_rows(estimator, run, source))
        predict(estimator.embedding_[:1])  # whatever is wrong is said before the work
    except InputError as error:
        if error.argument == "neighbours":
            raise
        raise InputError(
            f"--neighbours needs the data that the model was trained on, but {source} cannot be used: {error} Name the "
            "right data with --train."
        ) from error
    return predict
