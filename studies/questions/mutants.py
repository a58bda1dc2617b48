"""Whether a test notices small wrong changes to the mathematics, the models, training, files and metrics.

A change (`mutator.py`) is put into a copy of the project in a temporary folder, and the tests that should know the
module run there, the likely ones first, each file in a process of its own (`forked_tests.py`). They notice if one of
them fails or does not end, and that test must pass without the change. Changes are drawn with a fixed seed, one for
every 65 lines of a module. Each is a run, so that the study can be interrupted.

A change that no test notices is no mistake, with its reason in REASONS: the same program in other words, or another
choice of a constant. Or it is a missing test.
"""

import atexit
import compileall
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from studies.questions.forked_tests import Server
from studies.questions.mutator import KINDS, Mutant, mutants
from studies.records import ROOT, Record, Run
from studies.tables import table as markdown

SEEDS = (0,)
SOURCE = ROOT / "src" / "sasgp"
LINES = 65  # of a module for each change
DRAW = 0  # the seed
COPIED = ("src", "tests", "studies", "pyproject.toml")
IMPORTED = ("torch", "gpytorch", "scipy.stats", "scipy.spatial", "sklearn.datasets", "sklearn.utils.estimator_checks")
SECONDS = 60.0  # of CPU time for one test at most

# The tests that should know a module, the quickest likely ones first
TESTS: dict[str, tuple[str, ...]] = {
    "gp/column_regression.py": ("gp/test_column_regression.py", "estimators/test_missing.py"),
    "gp/covariance.py": ("gp/test_covariance.py", "gp/test_objective.py"),
    "gp/evidence.py": ("gp/test_evidence.py", "cli/test_evidence_command.py"),
    "gp/factor.py": ("gp/test_evidence.py", "gp/test_rounding.py", "cli/test_evidence_command.py"),
    "gp/kernels.py": (
        "gp/test_kernels.py",
        "gp/test_covariance.py",
        "estimators/test_lengthscales.py",
        "estimators/test_storage.py",
    ),
    "gp/linalg.py": (
        "gp/test_linalg.py",
        "gp/test_masked.py",
        "gp/test_objective.py",
        "gp/test_rounding.py",
        "gp/test_evidence.py",
    ),
    "gp/local_noise.py": ("gp/test_local_noise.py", "estimators/test_calibration.py", "estimators/test_storage.py"),
    "gp/masked.py": ("gp/test_masked.py", "estimators/test_missing.py"),
    "gp/masked_factor.py": ("gp/test_evidence.py", "gp/test_masked_sums.py", "estimators/test_missing.py"),
    "gp/masked_gaussian.py": ("gp/test_masked_gaussian.py", "estimators/test_missing.py"),
    "gp/masked_sums.py": ("gp/test_masked_sums.py", "gp/test_geometry.py", "estimators/test_missing.py"),
    "gp/mixture.py": ("gp/test_masked_sums.py", "estimators/test_missing.py"),
    "gp/nearest.py": ("gp/test_nearest.py", "gp/test_local_noise.py", "estimators/test_nearest_rows.py"),
    "gp/neighbours.py": ("gp/test_neighbours.py", "gp/test_nearest.py", "estimators/test_nearest_rows.py"),
    "gp/objective.py": ("gp/test_objective.py", "gp/test_identities.py", "gp/test_rounding.py", "gp/test_masked.py"),
    "gp/positions.py": ("gp/test_positions.py", "gp/test_row_sums.py", "estimators/test_all_rows.py"),
    "gp/posterior.py": (
        "gp/test_posterior.py",
        "gp/test_row_sums.py",
        "models/test_baselines.py",
        "estimators/test_estimators.py",
    ),
    "gp/ppca.py": ("gp/test_masked_sums.py", "estimators/test_missing.py"),
    "gp/refine.py": (
        "gp/test_row_density.py",
        "gp/test_masked_sums.py",
        "estimators/test_inference.py",
        "training/test_layouts.py",
    ),
    "gp/residuals.py": ("gp/test_column_regression.py", "estimators/test_missing.py"),
    "gp/row_sums.py": (
        "gp/test_row_sums.py",
        "gp/test_posterior.py",
        "gp/test_rounding.py",
        "estimators/test_all_rows.py",
    ),
    "gp/geometry/derivatives.py": ("gp/test_geometry.py", "estimators/test_geometry_methods.py"),
    "gp/geometry/graph.py": ("gp/test_geometry.py", "estimators/test_geometry_methods.py"),
    "gp/geometry/metric.py": ("gp/test_geometry.py", "estimators/test_geometry_methods.py"),
    "gp/geometry/paths.py": ("gp/test_geometry.py", "estimators/test_geometry_methods.py"),
    "gp/geometry/space.py": ("gp/test_geometry.py", "estimators/test_geometry_methods.py"),
    "gp/row_density.py": ("gp/test_row_density.py", "estimators/test_inference.py"),
    "models/anchor.py": ("training/test_layouts.py", "estimators/test_inference.py"),
    "models/base.py": (
        "gp/test_objective.py",
        "models/test_encoders.py",
        "estimators/test_encoder_noise.py",
        "estimators/test_missing.py",
        "estimators/test_estimators.py",
    ),
    "models/build.py": (
        "models/test_encoders.py",
        "estimators/test_encoder_noise.py",
        "training/test_initialise.py",
        "estimators/test_estimators.py",
        "estimators/test_storage.py",
    ),
    "models/encoders.py": (
        "models/test_encoders.py",
        "models/test_baselines.py",
        "estimators/test_missing.py",
        "training/test_layouts.py",
    ),
    "models/inducing.py": ("models/test_baselines.py",),
    "models/precision.py": ("models/test_precision.py", "gp/test_objective.py"),
    "models/regression.py": ("estimators/test_supervised.py",),
    "models/sas.py": (
        "gp/test_identities.py",
        "gp/test_objective.py",
        "estimators/test_noise.py",
        "training/test_loop.py",
        "estimators/test_estimators.py",
        "gp/test_row_sums.py",
        "estimators/test_all_rows.py",
        "estimators/test_missing.py",
    ),
    "models/settings.py": (
        "models/test_defaults.py",
        "training/test_layouts.py",
        "estimators/test_estimators.py",
        "cli/test_help.py",
        "estimators/test_storage.py",
    ),
    "models/vae.py": ("models/test_baselines.py",),
    "training/checkpoint.py": ("training/test_resume.py", "fuzz/test_checkpoints.py"),
    "training/columns.py": ("estimators/test_missing.py",),
    "training/distributed.py": ("training/test_distributed.py", "cli/test_together.py"),
    "training/fingerprint.py": ("training/test_resume.py", "estimators/test_arrays.py"),
    "training/fit_encoder.py": (
        "training/test_initialise.py",
        "training/test_layouts.py",
        "estimators/test_estimators.py",
        "estimators/test_missing.py",
    ),
    "training/initialise.py": (
        "training/test_initialise.py",
        "estimators/test_noise.py",
        "training/test_layouts.py",
        "estimators/test_estimators.py",
        "estimators/test_missing.py",
    ),
    "training/layouts.py": ("training/test_layouts.py",),
    "training/loop.py": (
        "training/test_loop.py",
        "training/test_streaming.py",
        "training/test_resume.py",
        "training/test_distributed.py",
    ),
    "training/malloc.py": ("training/test_malloc.py",),
    "training/regression.py": ("estimators/test_supervised.py",),
    "training/restored.py": ("training/test_resume.py", "fuzz/test_checkpoints.py"),
    "training/run.py": ("estimators/test_estimators.py", "training/test_resume.py", "training/test_streaming.py"),
    "training/shares.py": ("training/test_shares.py", "training/test_distributed.py"),
    "estimators/storage.py": ("estimators/test_storage.py", "fuzz/test_model_files.py"),
    "estimators/persistence.py": (
        "estimators/test_storage.py",
        "fuzz/test_model_files.py",
        "estimators/test_all_rows.py",
        "estimators/test_table_models.py",
    ),
    "estimators/supervised_storage.py": (
        "estimators/test_supervised.py",
        "fuzz/test_model_files.py",
        "cli/test_fit_target.py",
    ),
    "data/files.py": ("data/test_files.py", "estimators/test_storage.py"),
    "metrics.py": ("test_metrics.py", "test_evaluation.py"),
}

HIDES = "noise_bytes(X.shape, generator)"
LARGEST = "W.gather(0, W.abs().argmax(0, keepdim=True))"

# Why a change that no test notices is no mistake, by module and text: `before → after`
REASONS: dict[tuple[str, str], str] = {
    ("gp/ppca.py", f"{LARGEST} < 0 → ({LARGEST} <= 0)"): "differs only where a whole column is 0, which has no sign",
    ("gp/row_density.py", "c_f > 0 → (c_f >= 0)"): "differs only where a variance is exactly 0, at the kink of a clamp",
    ("gp/refine.py", "step < steps → (step <= steps)"): "no gradients are recorded in the last step in any case",
    ("gp/masked_factor.py", "1 → 2"): "the work of a factor whose progress nobody asks for",
    ("models/base.py", f"{HIDES} < 256 * share - 128 → ({HIDES} <= 256 * share - 128)"): (
        "differs only where a share that is drawn from an interval is exactly one of 128 numbers"
    ),
    ("models/base.py", "s and encoder.amortised → (s or encoder.amortised)"): (
        "a table does not read the rows, so that noise on them changes nothing but other random numbers"
    ),
    ("estimators/persistence.py", "0 → 1"): "a setting that a class does not have counts as any of its choices",
    ("metrics.py", "20_000 → 20001"): "how many triplets are drawn is a choice",
}


def runs(seed: int, quick: bool) -> list[Run]:
    """Every change, one of each module first."""
    counts = {module: 1 if quick else _number(module) for module in (list(TESTS)[:1] if quick else TESTS)}
    return [
        Run(f"mutants-{_title(module)}-{i}", {"module": module, "number": i, "draw": DRAW})
        for i in range(max(counts.values()))
        for module in counts
        if i < counts[module]
    ]


def _number(module: str) -> int:
    return max(1, round(len(_source(module).splitlines()) / LINES))


@cache
def _source(module: str) -> str:
    return (SOURCE / module).read_text(encoding="utf-8")


@cache
def drawn(module: str) -> list[Mutant]:
    """The changes of a module: places are drawn, then one of the changes that can be made there.

    They depend on this module alone, and more lines add to them.
    """
    places: dict[tuple[int, int], list[Mutant]] = {}
    for one in mutants(_source(module)):
        places.setdefault((one.start, one.end), []).append(one)
    draw = random.Random(f"{DRAW} {module}")
    order = draw.sample(list(places.values()), len(places))
    return [draw.choice(some) for some in order][: _number(module)]


# ---- one run ----


def execute(run: Run) -> dict[str, Any]:
    """Test a copy of the project with a change."""
    module = run.settings["module"]
    mutant = drawn(module)[run.settings["number"]]
    about = {name: getattr(mutant, name) for name in ("line", "kind", "before", "after")}
    found: dict[str, Any] = about | {"noticed": False, "seconds": 0.0}
    for file in TESTS[module]:
        answer = _tested(f"tests/{file}", SOURCE / module, mutant)
        found["seconds"] += answer["seconds"]
        if answer["code"] != 0:
            _check(answer["test"] or f"tests/{file}")
            return found | {"noticed": True, "test": answer["test"] or file, "reason": answer["reason"]}
    return found


@cache
def _check(test: str) -> None:
    """Raise if a test does not pass without any change."""
    answer = _tested(test)
    if answer["code"] != 0:
        raise RuntimeError(f"{test} fails without any change: {answer['reason']}")


def _tested(tests: str, path: Path | None = None, mutant: Mutant | None = None) -> dict[str, Any]:
    """What came of tests in a new copy of the project, with or without a change."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name) / "project"
        shutil.copytree(_template(), folder)  # with its byte code, which knows its source by size and time
        if path is not None and mutant is not None:
            changed = mutant.apply(path.read_text(encoding="utf-8"))
            (folder / path.relative_to(ROOT)).write_text(changed, encoding="utf-8")
        return _server().run(folder, tests, SECONDS)


@cache
def _server() -> Server:
    server = Server(IMPORTED)
    atexit.register(server.close)
    return server


@cache
def _template() -> Path:
    """A copy of the project with its byte code."""
    folder = Path(tempfile.mkdtemp(prefix="mutants-template-"))
    atexit.register(shutil.rmtree, folder)
    for name in COPIED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("results", "__pycache__"))
        else:
            shutil.copy2(ROOT / name, folder / name)
    compileall.compile_dir(folder, quiet=1)
    return folder


def _title(module: str) -> str:
    return module.removesuffix(".py").replace("/", "-")


# ---- what the page says ----


def changes(records: Sequence[Record]) -> list[dict[str, Any]]:
    """What became of each change."""
    return [record["settings"] | record["results"] for record in records if "module" in record["settings"]]


def unnoticed(records: Sequence[Record]) -> list[dict[str, Any]]:
    """Changes that no test noticed, with the reason why they change nothing, if there is one."""
    some = [one for one in changes(records) if not one["noticed"]]
    return [one | {"why": REASONS.get((one["module"], text(one)), "")} for one in some]


def table(records: Sequence[Record]) -> str:
    """How many changes were noticed, by room, and which were not."""
    found = changes(records)
    rooms = dict.fromkeys(_room(one["module"]) for one in found)
    made = Counter(_room(one["module"]) for one in found)
    noticed = Counter(_room(one["module"]) for one in found if one["noticed"])
    lines = [(room, made[room], noticed[room]) for room in rooms] + [("all", made.total(), noticed.total())]
    counts = markdown(
        ["room", "changes", "noticed by a test", "share"],
        [[room, str(n), str(k), f"{k / n:.1%}".replace("%", " %")] for room, n, k in lines],
    )
    kinds = Counter(one["kind"] for one in found)
    what = "; ".join(f"{KINDS[kind]} ({kinds[kind]})" for kind in KINDS if kinds[kind])
    left = [[f"`{one['module']}`", f"`{text(one)}`".replace("|", "\\|"), one["why"]] for one in unnoticed(records)]
    header = ["not noticed in", "change", "why it is no mistake"]
    waiting = sum(map(_number, TESTS)) - len(found)
    # Changes that are noticed at once are decided first
    unfinished = (
        f"Not finished: {waiting} changes are undecided, so that the shares are too high.\n\n" if waiting > 0 else ""
    )
    return f"{unfinished}{counts}\n\nChanges: {what}." + (f"\n\n{markdown(header, left)}" if left else "")


def _room(module: str) -> str:
    room = module.removesuffix(".py").partition("/")[0]
    return "files" if room in ("estimators", "data") else room


def text(one: dict[str, Any]) -> str:
    """A change in one line."""
    return " ".join(f"{one['before']} → {one['after']}".split())
