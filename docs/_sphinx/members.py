"""Which methods of a class the reference shows: ours, in the order in which people need them.

Classes also have methods of scikit-learn, such as `get_params`; its documentation describes those.
"""

import inspect
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from sphinx.pycode import ModuleAnalyzer

FIRST = (
    *("fit", "fit_transform", "transform", "predict", "predict_proba", "reconstruct", "inverse_transform"),
    *("impute", "sample", "score_samples", "score", "save", "load", "update"),
)
HIDDEN = ("encoder_rate", "torch_device")  # of the settings: for the package itself


def setup(app: Any) -> dict[str, bool]:
    """Give the templates of autosummary these functions."""
    app.setup_extension("sphinx.ext.autosummary")
    app.connect("autodoc-process-docstring", _describe, priority=450)  # after `parameters`
    app.config.autosummary_context = {"methods_of": methods, "names_of": names}
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def methods(module: str, name: str) -> list[str]:
    """The public methods that sasgp defines, the important ones first."""
    found = [key for key, value in _ours(module, name) if callable(value) or isinstance(value, classmethod)]
    return sorted(found, key=lambda key: (FIRST.index(key) if key in FIRST else len(FIRST), key))


def names(module: str) -> list[tuple[str, str]]:
    """What a module offers, each with the kind that autodoc calls it by."""
    found = import_module(module)
    return [(name, _kind(getattr(found, name))) for name in sorted(found.__all__, key=str.lower)]


def _describe(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what == "data" and not any(lines):
        lines[:] = [_comment(*name.rsplit(".", 1))]


def _comment(module: str, name: str) -> str:
    """What the comment `#:` above a constant says, which may stand in any file of the package."""
    files = [
        module,
        *(f"{module}.{file.name}" for file in iter_modules(getattr(import_module(module), "__path__", ()))),
    ]
    found = [ModuleAnalyzer.for_module(file).find_attr_docs().get(("", name)) for file in files]
    return " ".join(line for lines in found if lines for line in lines)


def _kind(value: Any) -> str:
    if inspect.isclass(value):
        return "exception" if issubclass(value, BaseException) else "class"
    return "function" if inspect.isroutine(value) else "data"  # a name for a type can be called, too


def _ours(module: str, name: str) -> list[tuple[str, Any]]:
    cls = getattr(import_module(module), name)
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base.__module__.startswith("sasgp"):
            found = dict(vars(base)) | found
    hidden = {*HIDDEN, *getattr(cls, "__dataclass_fields__", {})}
    return [(key, value) for key, value in found.items() if not key.startswith("_") and key not in hidden]
