"""Reads the imports of the package and fails on a backward arrow.

One table of rooms: a room may import those of a lower rank only. Every entry of the package must be in it.
"""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "sasgp"

# gp → models → training → estimators → evaluation → plots, explorer → cli; data knows none of them
RANKS = {
    "errors": 0,
    "metrics": 2,
    "data": 1,
    "gp": 2,
    "models": 3,
    "training": 4,
    "estimators": 5,
    "evaluation": 6,
    "anndata": 6,
    "plots": 7,
    "explorer": 7,
    "__init__": 8,
    "cli": 8,
    "__main__": 9,
}
# `model.explorer(X)` is `sasgp.explorer.explore(model, X)` for short: the one import from a room above
SHORTCUTS = {("estimators", "explorer")}
ONLY_TORCH = {"training/loop"}  # besides the standard library
NO_NUMPY = {"gp", "models", "training/loop", "training/fit_encoder", "training/run"}
NO_ESTIMATOR = {"data", "gp", "models", "training"}  # as an argument: they stand below `estimators`
MAX_LINES, MAX_FUNCTION_LINES = 450, 60
MAY_PRINT = {"cli", "data/progress", "__main__"}


def room(path):
    """The entry of the package that a file belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def among(path, places):
    """Whether a file is, or lies in, one of these places."""
    module = str(path.relative_to(PACKAGE).with_suffix(""))
    return module in places or room(path) in places


def imports(tree, module):
    """Dotted names of all that a module imports, inside functions too, but not what is for type checkers only."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    names = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module} imports relatively; write the full name"
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names


def inner(names):
    """Rooms of sasgp among imported names: `import sasgp.gp` and `from sasgp.gp.kernels import make` are alike."""
    return {name.split(".")[1] if name.count(".") else "__init__" for name in names if name.split(".")[0] == "sasgp"}


def backward(importer, imported):
    """Whether an arrow from one room to another points the wrong way. A room may import its own files."""
    return importer != imported and (importer, imported) not in SHORTCUTS and RANKS[imported] >= RANKS[importer]


FILES = sorted(PACKAGE.rglob("*.py"))


def test_the_package_was_found():
    assert {"gp", "models", "training", "estimators", "cli"} <= {room(path) for path in FILES}


def test_the_top_has_few_entries():
    assert len([entry for entry in PACKAGE.iterdir() if entry.name != "__pycache__"]) <= 15


def test_the_wheel_is_the_package_alone():
    targets = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    assert targets["wheel"] == {"packages": ["src/sasgp"]}
    assert (PACKAGE.parents[1] / "studies" / "__main__.py").is_file(), "studies are beside src"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
class TestEveryFile:
    def test_has_a_rank(self, path):
        assert room(path) in RANKS, f"{room(path)} is not in RANKS: say where it stands"

    def test_imports_only_from_below(self, path):
        for name in inner(imports(ast.parse(path.read_text()), path.name)):
            # `from sasgp import __version__` or `import sasgp`: the version alone, which is not an arrow
            if name in ("__init__", "__version__"):
                continue
            assert name in RANKS, f"{path.name} imports sasgp.{name}, which is not in RANKS"
            assert not backward(room(path), name), f"{room(path)} must not import {name}: it stands no lower"

    def test_imports_what_its_room_may(self, path):
        outside = {name.split(".")[0] for name in imports(ast.parse(path.read_text()), path.name)} - {"sasgp"}
        if among(path, ONLY_TORCH):
            assert outside - set(sys.stdlib_module_names) <= {"torch"}
            assert not inner(imports(ast.parse(path.read_text()), path.name))
        if among(path, NO_NUMPY):
            assert "numpy" not in outside, "numpy meets torch in data, training and estimators alone"
        if not among(path, MAY_PRINT):
            assert "rich" not in outside
        assert not outside & {"pickle", "joblib", "dill", "cloudpickle"}, "loading a file never runs code"
        assert "studies" not in outside, "studies use the package, which does not know them and comes without them"

    def test_takes_no_estimator_below_estimators(self, path):
        if among(path, NO_ESTIMATOR):
            functions = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)]
            arguments = {a.arg for f in functions for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)}
            assert "estimator" not in arguments

    def test_fits_on_a_few_screens(self, path):
        text = path.read_text()
        assert len(text.splitlines()) <= MAX_LINES
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef):
                assert (node.end_lineno or 0) - node.lineno < MAX_FUNCTION_LINES, f"{node.name} is long"

    def test_prints_only_where_a_person_looks(self, path):
        if not among(path, MAY_PRINT):
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            assert "print" not in {ast.unparse(call.func) for call in calls}


# ---- the reader itself: a rule that cannot fail checks nothing ----


def test_the_reader_sees_every_form_of_import():
    source = "import sasgp.a\nfrom sasgp import b, c\ndef f():\n    from sasgp.d.e import g\nimport numpy as np"
    assert inner(imports(ast.parse(source), "")) == {"a", "b", "c", "d"}
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sasgp.cli import main"
    assert inner(imports(ast.parse(guarded), "")) == set()


def test_the_rule_knows_backward_from_forward():
    assert backward("gp", "models")
    assert backward("models", "training")
    assert backward("training", "estimators")
    assert backward("estimators", "cli")
    assert backward("data", "gp")
    assert backward("plots", "explorer"), "peers do not know each other"
    assert not backward("models", "gp")
    assert not backward("models", "models")
    assert not backward("cli", "estimators")
