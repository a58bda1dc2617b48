"""Everything public is documented: each class, method and function, and each of their parameters with type and text."""

import importlib
import inspect
import re
from itertools import pairwise, takewhile

import pytest
from test_public_surface import SURFACE

from docs._sphinx.parameters import completed, written

ENTRY = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (.*))?$", flags=re.MULTILINE)


def public():
    """Each callable that a user may call, by its name."""
    for module, names in SURFACE.items():
        found = importlib.import_module(module)
        for name in sorted(names):
            value = getattr(found, name)
            if not (inspect.isclass(value) or inspect.isfunction(value)):
                continue
            yield f"{module}.{name}", value
            if inspect.isclass(value):
                yield from methods(f"{module}.{name}", value)


def methods(name, cls):
    """Those that sasgp itself defines; scikit-learn's are documented by scikit-learn."""
    for key in dir(cls):
        owner = next((base for base in cls.__mro__ if key in vars(base)), cls)
        if (
            not re.match("_|set_.*_request", key)
            and owner.__module__.startswith("sasgp")
            and callable(getattr(cls, key))
        ):
            yield f"{name}.{key}", getattr(cls, key)


PUBLIC = dict(public())


def described(value):
    """The parameters in a docstring, as the reference shows them: name → type and default."""
    text = "\n".join(completed((inspect.getdoc(value) or "").splitlines(), inspect.signature(value).parameters))
    section = re.search(r"^Parameters\n-+\n(.*?)(?=^\w[\w ]*\n-{3,}$|\Z)", text, flags=re.DOTALL | re.MULTILINE)
    entries = ENTRY.findall(section[1]) if section else []
    return {name.strip("* "): kind for names, kind in entries for name in names.split(",")}


def unexplained(value):
    """The parameters in a docstring that no text follows, except those that are ignored."""
    lines = completed((inspect.getdoc(value) or "").splitlines(), inspect.signature(value).parameters)
    start = lines.index("Parameters") + 2 if "Parameters" in lines else len(lines)
    section = takewhile(bool, lines[start:])  # an empty line ends it
    entries = [
        line for line, below in pairwise([*section, ""]) if not line.startswith(" ") and not below.startswith(" ")
    ]
    return [entry for entry in entries if " : ignored" not in entry]


def test_the_surface_is_counted():
    # 7 estimators with some 20 methods each, and the functions of 7 modules: with far fewer, nothing would be tested
    assert len(PUBLIC) > 130
    assert sum(len(described(value)) for value in PUBLIC.values()) > 500


@pytest.mark.parametrize("name", [name for name, value in PUBLIC.items() if not name.endswith("Callback")])
def test_every_parameter_is_documented(name):
    value = PUBLIC[name]
    assert inspect.getdoc(value), f"{name} has no docstring"
    parameters = inspect.signature(value).parameters
    found = described(value)
    assert set(found) == set(parameters) - {"self"}, f"{name}: its docstring and its signature differ"
    for parameter, kind in found.items():
        assert kind, f"{name} says nothing about the type of {parameter}"
        default = parameters[parameter].default
        if default is not inspect.Parameter.empty:
            assert "default" in kind, f"{name} does not say the default of {parameter}"
    assert not unexplained(value), f"{name} does not explain {unexplained(value)}"


@pytest.mark.parametrize("module", SURFACE)
def test_a_module_says_what_it_is_for(module):
    assert len((importlib.import_module(module).__doc__ or "").split()) > 5


def test_types_are_written_in_words():
    # int | Literal["auto"] | None, as the settings declare it
    from sasgp.models.settings import Settings

    parameters = inspect.signature(Settings).parameters
    assert written(parameters["support_size"].annotation) == 'int, "auto" or None'
    assert written(parameters["latents"].annotation) == '"bayesian" or "point"'
    lines = ["Parameters", "----------", "latents", "    Text.", "", "Notes", "-----", "latents"]
    expected = ['latents : "bayesian" or "point", default "bayesian"']
    assert completed(lines, parameters) == [*lines[:2], *expected, *lines[3:]]


def test_names_of_one_entry_share_its_type_or_its_text():
    from sasgp.models.settings import Settings

    parameters = inspect.signature(Settings).parameters
    head = ["Parameters", "----------"]
    lines = completed([*head, "X, y : array-like", "    Text."], inspect.signature(lambda X, y: None).parameters)
    assert lines == [*head, "X, y : array-like", "    Text."]
    lines = completed([*head, "batch_size, verbose", "    Text."], parameters)
    assert lines == [*head, "batch_size : int, default 1024", "    Text.", "verbose : bool, default False", "    Text."]
