"""The application that the commands are registered with, and the arguments that several of them take."""

import re
import shlex
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Parameter

from sasgp import __version__
from sasgp.errors import InputError
from sasgp.models.settings import Settings

__all__ = [
    "DPI",
    "LINE",
    "Data",
    "Flag",
    "Json",
    "Labels",
    "Model",
    "Open",
    "Refine",
    "app",
    "check_labels",
    "check_seed",
    "in_options",
]

LINE: list[str] = []  # what was typed after `sasgp`
DPI = 150


def _refuse_fractions(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise if a fraction was typed for a whole number, because cyclopts would round it."""
    for argument in arguments:
        for token in argument.tokens if _is_whole(argument.hint) else ():
            if _is_fraction(token.value):
                raise CoercionError(msg=f"expected a whole number. Got {token.value}.", token=token)


def _is_whole(hint: Any) -> bool:
    """Whether a type is int or contains it, as `int | None` and `list[int]` do."""
    return hint is int or any(map(_is_whole, get_args(hint)))


def _is_fraction(text: str) -> bool:
    try:
        return "." in text and not float(text).is_integer()
    except ValueError:  # text, such as "auto"
        return False


app = App(
    name="sasgp",
    version=__version__,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
    config=_refuse_fractions,
    help="Train Gaussian-process decoders, and use them to embed, decode, generate and evaluate data. Each command "
    "explains itself with --help.",
)

Data = Annotated[
    str, Parameter(help="A named data set (digits, mnist, fashion-mnist, cifar10 or oil-flow), or the path of a file.")
]
Model = Annotated[Path, Parameter(help="The folder of a run, or a .safetensors file.")]
Labels = Annotated[
    str | None,
    Parameter(
        help="Where the labels are: a column of the file, an array in the .npz file, or a file with one label per row. "
        "By default, the column called label, labels, class, target or y, if the file has one of text or integers."
    ),
]
Refine = Annotated[
    int,
    Parameter(
        help="Gradient steps that refine the encoder's z for each row. 0 uses the encoder's z; 20 are enough for most "
        "data."
    ),
]
Flag = Parameter(negative=(), show_default=False)
Open = Annotated[bool, Parameter(name="--open", negative=(), show_default=False, help="Open the page in the browser.")]
Json = Annotated[
    bool,
    Parameter(name="--json", negative=(), show_default=False, help="Print one JSON object instead of a table."),
]


def check_labels(labels: str | None, data: str | None) -> None:
    """Raise InputError if labels were named, but not the data that they belong to."""
    if labels is not None and data is None:
        raise InputError(f"--labels {labels} needs rows that the labels belong to. Name them with --data.")


def check_seed(random_state: int | None) -> int:
    """The seed, which is 0 if there is none."""
    if random_state is not None and not 0 <= random_state < 2**32:
        raise InputError(f"--random-state must be from 0 to 2³² − 1. Got {random_state}.")
    return random_state or 0


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
    return {argument.field_info.name: argument.name for argument in arguments if argument.name.startswith("--")}
