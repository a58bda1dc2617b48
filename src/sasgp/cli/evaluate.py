"""`sasgp evaluate`: how good a model is, in numbers."""

import json
import sys
from typing import Any

from sasgp.cli.arguments import Data, Json, Labels, Model, Refine, app
from sasgp.cli.loading import load_data, load_model, rows_to_evaluate
from sasgp.cli.printing import THROUGH, metric_lines, show

__all__ = ["evaluate"]


@app.command
def evaluate(model: Model, data: Data, /, *, labels: Labels = None, refine: Refine = 0, as_json: Json = False) -> None:
    """Measure how well a model reconstructs data, and how well its latent space separates the labels.

    Of a named data set, the test rows are evaluated; of the file that the run was trained on, the held-out rows; of any
    other file, all rows.
    """
    from sasgp.evaluation import are_classes, knn, knn_cross_validated, reconstruction, structure, tidy_labels

    estimator, run = load_model(model)
    dataset = load_data(data, labels, estimator, run)
    known = run.embedding()
    X, y, which = rows_to_evaluate(data, dataset, run, known)
    Z = estimator.transform(X, refine=refine)
    result: dict[str, Any] = {"rows": len(X), "which": which, **reconstruction(estimator, X, Z)}
    y, train = tidy_labels(y), None if known is None else known.only("train")
    if train is not None and are_classes(train.labels):
        neighbours, how = knn(train.Z, train.labels, Z, y), "neighbours among the run's training rows"
    else:
        neighbours, how = knn_cross_validated(Z, y), "neighbours among these rows, in 5-fold cross-validation"
    if neighbours:
        result |= neighbours | {"neighbours": how}
    result |= structure(X, Z, y)
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        through = f"through the latent space, z refined in {refine} steps" if refine else THROUGH
        show([(f"{len(X)} rows ({which}), {through}", metric_lines(result, {"knn_1": how}))])
