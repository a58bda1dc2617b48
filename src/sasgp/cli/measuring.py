"""`sasgp evaluate` and `evidence`: how good a model is, in numbers."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter

from sasgp.cli.arguments import DPI, Data, Labels, Model, app
from sasgp.cli.models import data_of, load, rows_of_evidence, rows_to_evaluate
from sasgp.cli.printing import THROUGH, Line, metric_lines, show
from sasgp.errors import InputError

__all__ = ["evaluate", "evidence"]

ESTIMATES = 20  # by default


@app.command
def evaluate(
    model: Model,
    data: Data,
    /,
    *,
    labels: Labels = None,
    refine: int = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Measure how well a model reconstructs data, and how well its latents keep labels together.

    Of a named data set its test rows are used; of the file that the run was trained on, those that were held out.

    Parameters
    ----------
    refine
        Steps by which the density of every row is climbed from the encoder's answer; 20 is enough for most.
    as_json
        Print one JSON object instead of a table.
    """
    from sasgp.evaluation import are_classes, knn, knn_cross_validated, reconstruction, structure, tidy_labels

    estimator, run = load(model)
    dataset = data_of(data, labels, estimator, run)
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


@app.command
def evidence(
    model: Model,
    data: Data | None = None,
    /,
    *,
    method: Literal["exact", "sas", "unbiased"] | None = None,
    curve: Path | None = None,
    labels: Labels = None,
    rows: int | None = None,
    active_set_size: int | None = None,
    n_estimates: int | None = None,
    dtype: Literal["float64", "float32"] = "float64",
    random_state: int | None = 0,
    as_json: Annotated[bool, Parameter(name="--json", negative=())] = False,
) -> None:
    """Compute the evidence log p(X|Z): how probable the data are, given the latents that the encoder finds.

    Without DATA, and of the data that the run was trained on, the training rows are used; of others all rows.

    Parameters
    ----------
    method
        "exact" (the default): the number itself; time grows with the cube of the rows, memory with their square.
        "sas": the training estimate over random active sets. "unbiased": SAS with a random correction whose mean is
        exact; each estimate costs about a quarter of the exact number.
    curve
        A .png file to write: how well a row is predicted from more and more others, and whether more active points
        would help. Without --method nothing else is computed.
    rows
        Use as many rows, drawn at random, instead of all.
    active_set_size
        Of "sas" and "unbiased". By default that of training.
    n_estimates
        Independent repetitions, of "sas", "unbiased" and the curve. By default 20.
    dtype
        "float32" takes half of the memory and of the time.
    random_state
        Seed. None draws a new one each time.
    as_json
        Print one JSON object instead of a table.
    """
    from dataclasses import asdict

    from sasgp.cli import files

    if curve is not None:
        files.check_suffix(curve, (".png",), data, "--curve")
        files.check_place(curve, "--curve")
    unused = {"--active-set-size": active_set_size, "--n-estimates": n_estimates if curve is None else None}
    if method in (None, "exact") and (given := [name for name, value in unused.items() if value is not None]):
        raise InputError(f"{given[0]} belongs to --method sas or unbiased. Got it without; name one, or leave it out.")
    estimator, run = load(model)
    if not hasattr(estimator, "evidence"):
        raise InputError(
            f"evidence is that of a Gaussian process given rows, and needs a model of the kind SASGP or GPLVM. Got "
            f"{type(estimator).__name__} in {model}; its objective is in history.jsonl."
        )
    X, Z, which = rows_of_evidence(estimator, run, data, labels, rows, random_state)
    options: dict[str, Any] = {"Z": Z, "dtype": dtype, "random_state": random_state}
    options["n_estimates"] = ESTIMATES if n_estimates is None else n_estimates
    result: dict[str, Any] = {"rows": len(X), "which": which}
    lines: list[Line] = []
    if method is not None or curve is None:
        found = estimator.evidence(X, method=method or "exact", active_set_size=active_set_size, **options)
        result |= asdict(found) | {"per_value": found.per_value}
        lines += found.lines()
    if curve is not None:
        from sasgp import plots

        shape = estimator.evidence_curve(X, **options)
        with files.replacing(curve) as file:
            plots.evidence_curve(shape, title=run.name).savefig(file, dpi=DPI)
        mean, error = (part.tolist() for part in (shape.mean, shape.standard_error))
        result["curve"] = {"sizes": shape.sizes.tolist(), "mean": mean, "standard_error": error, "says": str(shape)}
        lines.append(("wrote", curve, str(shape)))
    if as_json:
        sys.stdout.write(json.dumps(result) + "\n")
    else:
        show([(f"{len(X)} rows ({which}), given the latents that the encoder finds", lines)])
