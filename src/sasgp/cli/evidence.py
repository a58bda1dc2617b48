"""`sasgp evidence`: how probable the data are under a model."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from sasgp.cli.arguments import TEXT, Data, Labels, Model, Printed, check_seed, command
from sasgp.cli.loading import is_source, load_data, load_model, training_rows
from sasgp.cli.pictures import save_figure
from sasgp.cli.printing import Line, Result, show
from sasgp.errors import InputError

if TYPE_CHECKING:
    from sasgp.cli.runs import RunFolder
    from sasgp.estimators import SASGP

__all__ = ["evidence"]

N_ESTIMATES = 20  # by default


@command
def evidence(
    model: Model,
    data: Data | None = None,
    /,
    *,
    method: Literal["exact", "bound", "sas", "unbiased"] | None = None,
    curve: Path | None = None,
    labels: Labels = None,
    rows: int | None = None,
    active_set_size: int | None = None,
    n_estimates: int | None = None,
    dtype: Literal["float64", "float32"] = "float64",
    random_state: int | None = 0,
    printed: Printed = TEXT,
) -> Result:
    """Compute the evidence log p(X|Z): how probable the data are, given the latents that the encoder finds.

    Without DATA, or with the data that the run was trained on, the training rows are used. From other data, all rows
    are used.

    Parameters
    ----------
    method
        "exact" (the default) computes the number itself; time grows with the cube of the rows, memory with their
        square. "bound" computes a lower bound in one pass, for any number of rows. "sas" estimates the number as
        training does, with random active sets. "unbiased" corrects SAS at random, so that the mean is exact; each
        estimate costs about a quarter of the exact number.
    curve
        A .png file to write: how well a row is predicted from more and more others, and whether more active points
        would help. Without --method, only the curve is computed.
    rows
        Use this many rows, drawn at random, instead of all.
    active_set_size
        Active points of "sas" and "unbiased". By default as many as in training.
    n_estimates
        Independent repetitions of "sas", "unbiased" and the curve. By default 20.
    dtype
        Precision. "float32" takes half the memory and half the time.
    random_state
        Seed. None draws a new one each time.
    """
    _check_options(data, method, curve, active_set_size, n_estimates)
    estimator, run = load_model(model)
    _check_model(estimator, model)
    X, Z, which = _rows(estimator, run, data, labels, rows, random_state)
    n_estimates = N_ESTIMATES if n_estimates is None else n_estimates
    options = {"Z": Z, "n_estimates": n_estimates, "dtype": dtype, "random_state": random_state}
    result: dict[str, Any] = {"rows": len(X), "which": which}
    lines: list[Line] = []
    if method is not None or curve is None:
        found = estimator.evidence(X, method=method or "exact", active_set_size=active_set_size, **options)
        result |= asdict(found) | {"per_value": found.per_value}
        lines += found.lines()
    if curve is not None:
        result["curve"] = _draw_curve(estimator, X, curve, run.name, options)
        lines.append(("wrote", curve, result["curve"]["says"]))
    show([(f"{len(X)} rows ({which}), given the latents that the encoder finds", lines)])
    return result


def _check_options(
    data: str | None, method: str | None, curve: Path | None, active_set_size: int | None, n_estimates: int | None
) -> None:
    """Raise InputError if the curve cannot be written, or an option would do nothing."""
    from sasgp.cli import files

    if curve is not None:
        files.check_suffix(curve, (".png",), data, option="--curve")
        files.check_place(curve, "--curve")
    unused = {"--active-set-size": active_set_size, "--n-estimates": n_estimates if curve is None else None}
    if method in (None, "exact", "bound") and (given := [name for name, value in unused.items() if value is not None]):
        raise InputError(f"{given[0]} needs --method sas or --method unbiased. Add one of them, or leave it out.")


def _check_model(estimator: Any, path: Path) -> None:
    if not hasattr(estimator, "evidence"):
        raise InputError(
            f"Only a Gaussian process that is conditioned on rows, SASGP or GPLVM, has this evidence, and {path} is a "
            f"{type(estimator).__name__}. Its own objective is in history.jsonl."
        )


def _draw_curve(estimator: "SASGP", X: Any, path: Path, title: str, options: dict[str, Any]) -> dict[str, Any]:
    """Write the figure, and return its numbers for JSON."""
    from sasgp import plots

    curve = estimator.evidence_curve(X, **options)
    save_figure(plots.evidence_curve(curve, title=title), path)
    return {
        "wrote": path,
        "sizes": curve.sizes.tolist(),
        "mean": curve.mean.tolist(),
        "standard_error": curve.standard_error.tolist(),
        "says": str(curve),
    }


def _rows(
    estimator: "SASGP",
    run: "RunFolder",
    data: str | None,
    labels: str | None,
    rows: int | None,
    random_state: int | None,
) -> tuple[Any, Any, str]:
    """X, their latents if those are parameters of the model (otherwise None), and in words which rows they are."""
    import numpy as np

    from sasgp.data.rows import take_rows

    source = data or run.source
    if source is None:
        raise InputError(f"evidence needs data, and {run.model} does not say which it was trained on. Add DATA.")
    dataset, known = load_data(source, labels, estimator, run), run.embedding()
    X, which, chosen, Z = dataset.X, f"all of {dataset.name}", None, None
    if run.updates and is_source(run, source):
        X, which = training_rows(estimator, run, source), "the training rows"
        Z = estimator.embedding_ if estimator.encoder == "table" else None
    elif known is not None and is_source(run, source):
        train = known.only("train").rows
        if len(train) == len(estimator.embedding_) and train.max(initial=-1) < len(X):
            which, chosen = "the training rows", train
            Z = estimator.embedding_ if estimator.encoder == "table" else None  # a network finds them again
    if rows is not None:
        N = len(X) if chosen is None else len(chosen)
        if not 1 <= rows <= N:
            raise InputError(f"--rows must be at least 1 and at most {N}, the number of rows there are. Got {rows}.")
        some = np.sort(np.random.default_rng(check_seed(random_state)).permutation(N)[:rows])
        which, Z = f"{rows} of {which}, drawn at random", None if Z is None else Z[some]
        chosen = some if chosen is None else chosen[some]
    if chosen is not None and (chosen == np.arange(len(chosen))).all():
        X, chosen = X[: len(chosen)], None  # no copy of what is on disk
    return X if chosen is None else take_rows(X, chosen), Z, which
