"""The gallery: each example has a title and text, uses only what is public, and runs.

The build of the site runs them to the end, and shows what comes out. Here they train for a few epochs.
"""

import ast
import importlib
import re
from pathlib import Path

import matplotlib.pyplot as plt
import pytest
from test_public_surface import SURFACE

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
NAMES = {path.stem for path in EXAMPLES}
examples = pytest.mark.parametrize("path", EXAMPLES, ids=[path.stem for path in EXAMPLES])

# What an example may import: the package, what it depends on, and the extras `layouts` and `test`
KNOWN = {
    "anndata",
    "gpytorch",
    "matplotlib",
    "numpy",
    "pandas",
    "pathlib",
    "sasgp",
    "sklearn",
    "tempfile",
    "time",
    "torch",
}


def text_cells(source):
    """The text between the cells of code, without the comment signs."""
    blocks = re.findall(r"^# %%\n((?:#.*\n)+)", source, flags=re.MULTILINE)
    return [re.sub(r"^# ?", "", block, flags=re.MULTILINE) for block in blocks]


def used(tree):
    """Modules and names of the package that an example imports or takes by a dot, as (module, name)."""
    modules = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "sasgp":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                if whole in SURFACE:
                    modules[alias.asname or alias.name] = whole
                else:
                    yield node.module, alias.name
        elif isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.partition(".")[0] == "sasgp":
                    modules[alias.asname or alias.name] = alias.name
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) in modules:
            yield modules[ast.unparse(node.value)], node.attr


def test_the_gallery_has_a_place_for_every_example():
    source = (ROOT / "docs" / "_sphinx" / "figures.py").read_text()
    assigned = next(node for node in ast.parse(source).body if isinstance(node, ast.Assign))
    assert {f"plot_{name}" for name in ast.literal_eval(assigned.value)} == NAMES  # ORDER


def test_there_are_at_least_ten_and_a_heading():
    assert len(EXAMPLES) >= 10
    assert all(name.startswith("plot_") for name in NAMES)  # sphinx-gallery runs these, and only these
    assert (ROOT / "examples" / "GALLERY_HEADER.rst").read_text().startswith("Examples\n========\n")


@examples
def test_an_example_compiles_and_says_what_it_does(path):
    source = path.read_text()
    tree = ast.parse(source)
    compile(tree, str(path), "exec")
    title, line, empty, task, *_ = (ast.get_docstring(tree) or "").splitlines()
    assert re.fullmatch("=+", line), "the docstring is a title, underlined, and one sentence about the task"
    assert len(line) == len(title)
    assert not empty
    assert task.endswith((".", ",")) or len(task) > 60
    texts = text_cells(source)
    assert len(texts) >= 4
    assert "**What to read next.**" in texts[-1]
    assert len(re.findall(r"^# %%$", source, flags=re.MULTILINE)) == len(texts), "every cell begins with text"


@examples
def test_an_example_uses_only_what_is_public(path):
    tree = ast.parse(path.read_text())
    for module, name in used(tree):
        assert name in SURFACE.get(module, ()), f"{module}.{name} is private"
        assert hasattr(importlib.import_module(module), name)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            assert not re.match("_[^_]", node.attr), f"{ast.unparse(node)} is private"
        if isinstance(node, ast.Import | ast.ImportFrom):
            for name in [node.module] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]:
                assert (name or "").partition(".")[0] in KNOWN, f"{name} is not installed with sasgp"


@examples
def test_an_example_runs(path, brief, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("matplotlib.pyplot.show", lambda: None)
    source, changes = re.subn(r"""(max_epochs"?(?:=|: ))\d+""", r"\g<1>3", path.read_text())
    assert changes or "max_epochs" not in source
    try:
        exec(compile(source, str(path), "exec"), {"__name__": "__main__"})
    finally:
        plt.close("all")


@examples
def test_an_example_needs_neither_files_nor_network(path):
    source = path.read_text()
    assert not re.search(r"fetch_|https?://|urlopen|/work/|/tmp/", source)
    assert 'load("' not in source  # named data sets are downloaded


@examples
def test_links_of_an_example_lead_somewhere(path):
    for target in re.findall(r":doc:`([^`]+)`", path.read_text()):
        if target.startswith("/"):
            assert (ROOT / "docs" / f"{target[1:]}.md").exists(), f"{path.name} links to {target}"
        else:
            assert target in NAMES - {path.stem}, f"{path.name} links to {target}"
