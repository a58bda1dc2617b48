"""Reads the imports of the package and fails on a backward arrow.

One table: a module may import those of a lower rank only. Every module of the package must be in it.
"""

import ast
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "src" / "sasgp"

# objective, posterior, encoders → models; explorer → estimators → cli (DESIGN §3, "Arrows")
RANKS = {
    # 0: of the whole package they know nothing
    "errors": 0,
    "heap": 0,
    "memory": 0,
    "objective": 0,
    "outputs": 1,
    "progress": 0,
    "settings": 0,
    "train": 0,
    "triangular": -1,
    # 1: parts
    "anchor": 1,
    "checkpoint": 1,
    "covariance": 1,
    "encoders": 1,
    "factor": 1,
    "images": 1,
    "kernels": 1,
    "labels": 1,
    "layouts": 1,
    "metrics": 1,
    "posterior": 1,
    "ranks": 1,
    "rows": 1,
    "storage": 1,
    "supports": 1,
    "synthetic": 1,
    "tables": 1,
    "watching": 1,
    # 2: parts made of parts
    "datasets": 2,
    "h5ad": 2,
    "evidence": 2,
    "latents": 2,
    "neighbours": 2,
    "start": 2,
    "checks": 2,
    "models": 2,
    "plots": 2,
    # 3
    "data": 3,
    "evaluation": 3,
    # It asks a model for its numbers and knows no estimator by name, so that `model.explorer` can lead to it
    "explorer": 3,
    "fitting": 3,
    # 4
    "estimators": 4,
    "files": 4,
    "reproduction": 5,
    "unfinished": 5,
    "runs": 6,
    # 7: what a person sees
    "__init__": 7,
    "cli": 7,
    "__main__": 8,
}
ONLY_TORCH = {"train"}  # besides the standard library
NO_NUMPY = {
    "objective",
    "posterior",
    "encoders",
    "models",
    "train",
    "kernels",
    "latents",
    "start",
    "evidence",
    "factor",
    "supports",
    "anchor",
}
MAY_PRINT = {"cli", "progress", "__main__"}
MAY_IMPORT_RICH = MAY_PRINT | {"datasets"}  # the bar of a download, on a terminal only


def layer(path):
    """The name that a file has in the table: its module, or the sub-package that it belongs to."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


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
    """Layers of sasgp among imported names: `from sasgp import rows` and `from sasgp.rows import moments` are alike."""
    return {name.split(".")[1] if name.count(".") else "__init__" for name in names if name.split(".")[0] == "sasgp"}


def backward(importer, imported):
    """Whether an arrow from one layer to another points the wrong way. A sub-package may import its own files."""
    return importer != imported and RANKS[imported] >= RANKS[importer]


FILES = sorted(PACKAGE.rglob("*.py"))


def test_the_package_was_found():
    assert {"objective", "posterior", "encoders", "models", "train"} <= {layer(path) for path in FILES}


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
class TestEveryFile:
    def test_has_a_rank(self, path):
        assert layer(path) in RANKS, f"{layer(path)} is not in RANKS: say where it stands"

    def test_imports_only_from_below(self, path):
        for name in inner(imports(ast.parse(path.read_text()), path.name)):
            # `from sasgp import __version__` or `import sasgp`: the version alone, which is not an arrow
            if name in ("__init__", "__version__"):
                continue
            assert name in RANKS, f"{path.name} imports sasgp.{name}, which is not in RANKS"
            assert not backward(layer(path), name), f"{layer(path)} must not import {name}: it stands no lower"

    def test_imports_what_its_layer_may(self, path):
        outside = {name.split(".")[0] for name in imports(ast.parse(path.read_text()), path.name)} - {"sasgp"}
        if layer(path) in ONLY_TORCH:
            assert outside - set(sys.stdlib_module_names) <= {"torch"}
            assert not inner(imports(ast.parse(path.read_text()), path.name))
        if layer(path) in NO_NUMPY:
            assert "numpy" not in outside, "numpy meets torch in estimators, rows and data alone"
        if layer(path) not in MAY_IMPORT_RICH:
            assert "rich" not in outside
        assert not outside & {"pickle", "joblib", "dill", "cloudpickle"}, "loading a file never runs code"

    def test_prints_only_where_a_person_looks(self, path):
        if layer(path) not in MAY_PRINT:
            calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
            assert "print" not in {ast.unparse(call.func) for call in calls}


# ---- the reader itself: a rule that cannot fail checks nothing ----


def test_the_reader_sees_every_form_of_import():
    source = "import sasgp.a\nfrom sasgp import b, c\ndef f():\n    from sasgp.d.e import g\nimport numpy as np"
    assert inner(imports(ast.parse(source), "")) == {"a", "b", "c", "d"}
    guarded = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from sasgp.cli import main"
    assert inner(imports(ast.parse(guarded), "")) == set()


def test_the_rule_knows_backward_from_forward():
    assert backward("objective", "models")
    assert backward("models", "estimators")
    assert backward("estimators", "cli")
    assert backward("encoders", "posterior"), "peers do not know each other"
    assert not backward("models", "posterior")
    assert not backward("models", "models")
    assert not backward("cli", "estimators")
