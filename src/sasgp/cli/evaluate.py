"""`sasgp evaluate`: how good a model is, in numbers."""

import json
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from sasgp.cli.arguments import Data, Json, Labels, Model, Refine, app
from sasgp.cli.loading import load_data, load_model, rows_to_evaluate, training_rows
from sasgp.cli.printing import THROUGH, metric_lines, show
from sasgp.cli.together import together
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import Embedding, RunFolder
    from sasgp.estimators import SASGP

__all__ = ["evaluate"]


@app.command
def evaluate(
    model: Model,
    data: Data,
    /,
    *,
    labels: Labels = None,
    refine: Refine = 0,
    neighbours: int | None = None,
    train: str | None = None,
    as_json: Json = False,
) -> None:
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
    """
    from sasgp.evaluation import ReconstructionSums, eight_bit_levels, reconstruction_sums, structure, tidy_labels

    with together() as processes:
        estimator, run = load_model(model)
        predict = _from_nearest_rows(estimator, run, neighbours, train)
        dataset = load_data(data, labels, estimator, run)
        known = run.embedding()
        X, y, which = rows_to_evaluate(data, dataset, run, known)
        Z = processes.transform(estimator, X, refine)

        levels = eight_bit_levels(X)

        def sums(part: slice) -> Any:
            return reconstruction_sums(estimator, X[part], Z[part], predict, levels).as_vector()

        total = ReconstructionSums.from_vector(processes.sum(sums, len(X), ReconstructionSums.LENGTH))
    if not processes.first:
        return
    result: dict[str, Any] = {"rows": len(X), "which": which, **total.metrics()}
    if predict is not None:
        result["nearest_rows"] = neighbours
    y = tidy_labels(y)
    accuracy, how = _accuracy(known, Z, y)
    if accuracy:
        result |= accuracy | {"neighbours": how}
    result |= structure(X, Z, y)
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        through = f"through the latent space, z refined in {refine} steps" if refine else THROUGH
        through += f", from the {neighbours} nearest training rows" if predict is not None else ""
        show([(f"{len(X)} rows ({which}), {through}", metric_lines(result, {"knn_1": how}))])


def _accuracy(known: "Embedding | None", Z: Any, y: Any) -> tuple[dict[str, float], str]:
    """Accuracy of nearest neighbours, and in words among which rows they are."""
    from sasgp.evaluation import are_classes, knn, knn_cross_validated

    trained = None if known is None else known.only("train").labelled()
    if trained is not None and are_classes(trained.labels):
        return knn(trained.Z, trained.labels, Z, y), "neighbours among the run's training rows"
    return knn_cross_validated(Z, y), "neighbours among these rows, in 5-fold cross-validation"


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
        predict = partial(estimator.predict, neighbours=neighbours, data=training_rows(estimator, run, source))
        predict(estimator.embedding_[:1])  # whatever is wrong is said before the work
    except InputError as error:
        if error.argument == "neighbours":
            raise
        raise InputError(
            f"--neighbours needs the data that the model was trained on, but {source} cannot be used: {error} Name the "
            "right data with --train."
        ) from error
    return predict
