"""`sasgp fit --config`: options from a TOML file, or from an earlier run. What is typed beats what is in the file."""

import difflib
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cyclopts import App, ArgumentCollection, Token

from sasgp.data.files import at_home
from sasgp.errors import InputError

__all__ = ["FROM_FILE", "as_toml", "read_config"]

FROM_FILE: set[str] = set()  # the names in Python of the arguments that the file gives


def read_config(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Give the arguments of a command that were not typed the values that are in the file of --config."""
    FROM_FILE.clear()
    by_name = {_name(argument): argument for argument in arguments if argument.parse}
    asked = by_name.pop("config", None)
    if commands != ("fit",) or asked is None or not asked.tokens:
        return
    source = asked.tokens[-1].value
    for key, value in _options(source).items():
        name = key.replace("_", "-")
        if name not in by_name:
            near = difflib.get_close_matches(name, by_name, 1)
            hint = f"Did you mean {near[0]}?" if near else "`sasgp fit --help` lists the options."
            raise InputError(f"{source} has the key {key}, which is no option of sasgp fit. {hint}")
        argument = by_name[name]
        if argument.tokens:
            continue
        option = argument.name if argument.name.startswith("--") else name.upper()
        for index, text in enumerate(_texts(source, key, value)):
            argument.append(Token(keyword=option, value=text, source=source, index=index))
        FROM_FILE.add(argument.field_info.name)


def _name(argument: Any) -> str:
    """The name of an argument in a file: that of its option without dashes in front, or `data`."""
    return str(argument.name).removeprefix("--").lower()


def _options(source: str) -> dict[str, Any]:
    """The options in a TOML file, or those of the run in a folder."""
    path = at_home(source)
    if path.is_dir():
        return _options_of_run(path)
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(
            f"--config must name a .toml file or the folder of a run. There is no file {source}."
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(
            f"{source} is not TOML: {error}. Write one option on each line, such as batch-size = 512 or "
            'labels = "species".'
        ) from error


def _options_of_run(folder: Path) -> dict[str, Any]:
    from sasgp.cli.fit_options import chosen
    from sasgp.cli.runs import INFO

    try:
        request = json.loads((folder / INFO).read_text(encoding="utf-8"))["request"]
        return chosen(request)
    except (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        raise InputError(
            f"--config needs the folder of a finished run, whose {INFO} says how it was trained. {folder} has none "
            "that this sasgp wrote. Write the options to a .toml file."
        ) from None


def _texts(source: str, key: str, value: Any) -> list[str]:
    """A value of TOML as it would be typed."""
    if isinstance(value, list) and all(isinstance(entry, str | int | float) for entry in value):
        return [text for entry in value for text in _texts(source, key, entry)]
    if value is None:
        return ["none"]
    if isinstance(value, bool):
        return ["true" if value else "false"]
    if isinstance(value, str | int | float):
        return [str(value)]
    expected = "text in quotes, a number, true, false, or a list of them"
    raise InputError(f"{source}: {key} must be {expected}. Got {'a table' if isinstance(value, dict) else value}.")


def as_toml(options: Mapping[str, Any]) -> str:
    """Options as a TOML file, which --config reads."""
    return "".join(f"{name} = {_toml(value)}\n" for name, value in options.items())


def _toml(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, bool | str | None):  # TOML has no null; `none` is what would be typed
        return json.dumps("none" if value is None else value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
