"""Types and defaults of parameters, from signatures into the reference.

A setting is declared once (`sasgp.models.settings`): its type and its default stand in the code, its meaning in the
docstring. The "Parameters" section of the reference has all three.
"""

import inspect
import re
import types
from collections.abc import Mapping
from typing import Any, Literal, Union, get_args, get_origin

SECTION = re.compile(r"^-{3,}\s*$")
ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (?P<type>.*))?$")


def setup(app: Any) -> dict[str, bool]:
    """Connect to autodoc, before numpydoc reads the docstring."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what not in ("class", "function", "method", "exception"):
        return
    try:
        parameters = inspect.signature(obj).parameters
    except (TypeError, ValueError):
        return
    lines[:] = completed(lines, parameters)


def completed(lines: list[str], parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The lines of a docstring, with type and default of each parameter."""
    result, inside = [], False
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        if SECTION.match(following):
            inside = line.strip() in ("Parameters", "Other Parameters")
        entry = ENTRY.match(line) if inside and not SECTION.match(following) else None
        result.append(_entry(entry, parameters) if entry else line)
    return result


def _entry(entry: re.Match[str], parameters: Mapping[str, inspect.Parameter]) -> str:
    names = [name.lstrip("*") for name in entry["names"].split(", ")]
    known = [parameters[name] for name in names if name in parameters]
    if not known:
        return entry[0]
    kind = entry["type"] or written(known[0].annotation)
    default = known[0].default
    if default is not inspect.Parameter.empty and "default" not in kind:
        kind = f"{kind.removesuffix(', optional')}, default {_value(default)}"
    return f"{entry['names']} : {kind}" if kind else entry["names"]


def _value(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def written(annotation: Any) -> str:
    """A type in words: `int | Literal["auto"] | None` is int, "auto" or None."""
    words = list(dict.fromkeys(_words(annotation)))
    return words[0] if len(words) < 2 else f"{', '.join(words[:-1])} or {words[-1]}"


def _words(annotation: Any) -> list[str]:
    if annotation in (inspect.Parameter.empty, None):
        return ["None"] if annotation is None else [""]
    if annotation is Any:
        return ["object"]
    if annotation is type(None):
        return ["None"]
    if get_origin(annotation) is Literal:
        return [f'"{value}"' if isinstance(value, str) else repr(value) for value in get_args(annotation)]
    if get_origin(annotation) in (Union, types.UnionType):
        return [word for part in get_args(annotation) for word in _words(part)]
    if get_origin(annotation) is not None:
        return [_name(get_origin(annotation))]
    return [_name(annotation)]


def _name(kind: Any) -> str:
    name = getattr(kind, "__name__", str(kind))
    return {"Mapping": "dict", "ndarray": "ndarray"}.get(name, name)
