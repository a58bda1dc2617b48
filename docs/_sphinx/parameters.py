"""Types and defaults of parameters, from signatures into the reference.

A setting is declared once (`sasgp.models.settings`): its type and its default stand in the code, its meaning in the
docstring. The "Parameters" section of the reference has all three.
"""

import inspect
import re
import types
from collections.abc import Mapping
from itertools import takewhile
from typing import Any, Literal, Union, get_args, get_origin

from numpy.typing import ArrayLike

# Python's names → those of documentation
NAMES = {
    "Callable": "callable",
    "Decoder": "estimator",
    "Iterable": "iterable",
    "Mapping": "dict",
    "Path": "path",
    "Sequence": "sequence",
    "_empty": "",
}
SECTION = re.compile(r"^-{3,}\s*$")
ENTRY = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*)(?: : (?P<type>.*))?$")


def setup(app: Any) -> dict[str, bool]:
    """Connect to autodoc, before numpydoc reads the docstring."""
    app.setup_extension("sphinx.ext.autodoc")
    app.connect("autodoc-process-docstring", _process, priority=400)
    app.connect("autodoc-process-signature", _signature)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _process(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what == "data":  # a constant is not what the type of its value is
        inherited = (inspect.getdoc(type(obj)) or "").splitlines()
        if lines[: len(inherited)] == inherited:
            del lines[: len(inherited)]
    if what not in ("class", "function", "method", "exception"):
        return
    try:
        parameters = inspect.signature(obj).parameters
    except (TypeError, ValueError):
        return
    lines[:] = completed(lines, parameters)


def _signature(
    app: Any, what: str, name: str, obj: Any, options: Any, signature: str | None, returned: str | None
) -> tuple[str | None, str | None]:
    return signature and signature.replace("<factory>", "{}"), returned


def completed(lines: list[str], parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """The lines of a docstring, with type and default of each parameter."""
    result, inside = [], False
    for i, (line, following) in enumerate(zip(lines, [*lines[1:], ""], strict=True)):
        if SECTION.match(following):
            inside = line.strip() in ("Parameters", "Other Parameters")
        entry = ENTRY.match(line) if inside and not SECTION.match(following) else None
        text = list(takewhile(lambda below: below.startswith(" "), lines[i + 1 :]))
        result += _entries(entry, text, parameters) if entry else [line]
    return result


def _entries(entry: re.Match[str], text: list[str], parameters: Mapping[str, inspect.Parameter]) -> list[str]:
    """One line for all names of an entry if they have one type, otherwise one line for each, with the same text."""
    names = entry["names"].split(", ")
    if not all(name.lstrip("*") in parameters for name in names):
        return [entry[0]]
    kinds = {name: _type(entry["type"], parameters[name.lstrip("*")]) for name in names}
    if len(set(kinds.values())) == 1:
        return [f"{', '.join(names)} : {kinds[names[0]]}"]
    *others, last = (f"{name} : {kind}" for name, kind in kinds.items())
    return [*(line for other in others for line in (other, *text)), last]  # the text of the last one follows


def _type(said: str | None, parameter: inspect.Parameter) -> str:
    kind = written(parameter.annotation) if said in (None, "optional") else said.removesuffix(", optional")
    known = parameter.default is inspect.Parameter.empty or "default" in kind
    return kind if known else f"{kind}, default {_value(parameter.default)}"


def _value(value: Any) -> str:
    text = f'"{value}"' if isinstance(value, str) else repr(value)
    return "{}" if text == "<factory>" else text  # the only one in a public dataclass


def written(annotation: Any) -> str:
    """A type in words: `int | Literal["auto"] | None` is int, "auto" or None."""
    words = list(dict.fromkeys(_words(annotation)))
    return words[0] if len(words) < 2 else f"{', '.join(words[:-1])} or {words[-1]}"


def _words(annotation: Any) -> list[str]:
    if annotation in (None, type(None)):
        return ["None"]
    if annotation is Any:
        return ["object"]
    if get_origin(annotation) is Literal:
        return [_value(value) for value in get_args(annotation)]
    if get_origin(annotation) in (Union, types.UnionType):
        parts = get_args(annotation)
        if set(get_args(ArrayLike)) <= set(parts):
            parts = ("array-like", *(part for part in parts if part not in get_args(ArrayLike)))
        return [word for part in parts for word in _words(part)]
    return [_name(get_origin(annotation) or annotation)]


def _name(kind: Any) -> str:
    name = str(getattr(kind, "__forward_arg__", None) or getattr(kind, "__name__", kind))
    return NAMES.get(name, name.replace(" | ", " or "))
