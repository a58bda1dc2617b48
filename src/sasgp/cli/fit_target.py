"""`sasgp fit --target`: a regression or classification, and the folder of its run."""

from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from sasgp.cli import target_report
from sasgp.cli.arguments import check_seed
from sasgp.cli.printing import show
from sasgp.cli.results import complete, write_run
from sasgp.cli.tables import show_columns
from sasgp.data.progress import rank_of_process

if TYPE_CHECKING:
    import polars as pl

    from sasgp.cli.fit_options import Request
    from sasgp.cli.targets import Problem
    from sasgp.estimators import SASGPClassifier, SASGPRegressor
    from sasgp.evaluation import Split

__all__ = ["draw_again", "run"]

PICTURES = "`sasgp plot {run} --out FOLDER` makes its pictures."


@dataclass(frozen=True)
class Trained:
    """A run that has been written, but for its pictures."""

    estimator: "SASGPRegressor | SASGPClassifier"
    predictions: "pl.DataFrame | None"
    info: dict[str, Any]


def run(request: "Request", source: str, target: str, out: Path, resumed: bool) -> bool:
    """Train, write the run, print and draw. Returns whether this process did so: of several, the first."""
    from sasgp.cli.target_pictures import draw_run
    from sasgp.data.files import real_path

    trained = _train(request, source, target, out, resumed)
    if trained is None:
        return False
    with complete(out, PICTURES):
        show(target_report.summary(trained.info, out))
        draw_run(trained.estimator, trained.predictions, trained.info, real_path(out))
    show([target_report.pictures(trained.info, out)])
    return True


def draw_again(out: Path) -> None:
    """Draw a run whose process was killed while it drew."""
    from sasgp.cli.loading import load_supervised
    from sasgp.cli.target_pictures import draw_run

    with complete(out, PICTURES):
        estimator, known = load_supervised(out)
        assert known.folder is not None
        draw_run(estimator, known.predictions(), dict(known.info), known.folder)
    show([target_report.pictures(dict(known.info), out)])


def _train(request: "Request", source: str, target: str, out: Path, resumed: bool) -> Trained | None:
    """Read the data, train and write the files of the run. None in all processes but the first."""
    from sasgp.cli import unfinished
    from sasgp.cli.targets import read_problem

    problem = read_problem(source, target, request.table)

    # These import torch, and a wrong path should not have to wait for it
    from sasgp.estimators.callbacks import History
    from sasgp.evaluation import hold_out

    seed = check_seed(request.options.random_state)
    estimator = request.supervised(classes=problem.classes, columns=problem.columns)
    split = hold_out(problem.dataset, request.test_fraction, seed)
    first = not rank_of_process()
    if first:
        show_columns(split.train.X, problem.columns)
        show([target_report.problem(problem)])
    with unfinished.begun(out, request.as_json(), resumed=resumed) as work:
        start = perf_counter()
        callback = History(work.history) if first else None
        y = _named(split.train.y, problem)
        estimator.fit(split.train.X, y, checkpoint=work.checkpointer, resume=work.resume, callback=callback)
        if not first:
            return None
        seconds = work.seconds_before + perf_counter() - start
        return _write(request, problem, split, estimator, seconds, seed, out)


def _named(y: Any, problem: "Problem") -> Any:
    """Targets for an estimator. A regressor keeps their name."""
    import polars as pl

    return y if problem.classes else pl.Series(problem.target, y.astype("float64"))


def _write(
    request: "Request", problem: "Problem", split: "Split", estimator: Any, seconds: float, seed: int, out: Path
) -> Trained:
    """Evaluate the model, and write the files of the run except its pictures."""
    from sasgp.cli import files, runs
    from sasgp.cli.predictions import Predictor
    from sasgp.data.progress import progress_bar
    from sasgp.evaluation.supervised import baselines

    frame, metrics, train, test = None, {}, split.train, split.test
    if test is not None:
        assert train.y is not None
        assert test.y is not None
        number = problem.rows if problem.rows is not None and problem.dataset.X_test is None else None
        ids = None if problem.dataset.ids is None else problem.dataset.ids[test.rows]
        y = test.y.tolist() if problem.classes else test.y.astype("float64")
        predictor = Predictor(estimator, problem.target)
        frame = predictor.frame(test.X, test.rows if number is None else number[test.rows], ids, y)
        with progress_bar("simple models", None, show=request.options.verbose):
            beside = baselines(estimator, (train.X, train.y), (test.X, test.y), seed)
        metrics = predictor.metrics() | {"baselines": beside}
    info = target_report.run_info(request, problem, split, estimator, seconds, metrics)
    write_run(
        out,
        estimator,
        info,
        lambda folder: None if frame is None else files.write_csv(frame, folder / runs.PREDICTIONS),
    )
    return Trained(estimator, frame, info)
