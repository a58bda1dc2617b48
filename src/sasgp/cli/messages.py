"""Messages of the library, in the words of the command line: its options instead of arguments in Python."""

import re
import shlex
from functools import partial

from sasgp.cli.arguments import LINE, app
from sasgp.models.settings import Settings

__all__ = ["in_options"]


def in_options(message: str, argument: str | None = None) -> str:
    """A message of the library, with the options of the command that was typed instead of arguments in Python.

    `labels='age'` becomes `--labels age`. The name of the `argument` at fault becomes its option if it starts the
    message, and anywhere if it is no English word, as `test_fraction` is. If the argument is a setting, the names of
    the other settings become options, too. An option that the message does not mention so is added at the end.
    """
    options = _options()
    for name, option in options.items():
        assigned = rf"(?<![\w.'\"-]){name}=(?:'([^']*)'|\"([^\"]*)\"|(-?\d[\w.+-]*(?<![.-])))"
        message = re.sub(assigned, partial(_assigned, option), message)
    if argument is None and (subject := re.match(r"(\w+) (must|needs)\b", message)):
        argument = subject[1]
    if argument not in options:
        return message
    message = re.sub(rf"^{argument}\b", options[argument], message)
    for name in Settings.__dataclass_fields__ if argument in Settings.__dataclass_fields__ else (argument,):
        if "_" in name and name in options:
            message = re.sub(rf"(?<![\w.'\"/-]){name}(?![\w'\"/=])", options[name], message)
    mentioned = re.search(rf"(?<!\S){options[argument]}\b", message)
    return message if mentioned else f"{message} The option is {options[argument]}."


def _assigned(option: str, match: re.Match[str]) -> str:
    return f"{option} {shlex.quote(next(value for value in match.groups() if value is not None))}"


def _options() -> dict[str, str]:
    """The options of the command that was typed, by the names that their arguments have in Python."""
    names, apps, _ = app.parse_commands(LINE)
    if not names or names[0].startswith("-"):  # `sasgp --version`
        return {}
    arguments = apps[-1].assemble_argument_collection()
    found = {argument.field_info.name: argument.name for argument in arguments if argument.name.startswith("--")}
    return {name: option for name, option in found.items() if name != "columns"}  # --kind and others say it instead
