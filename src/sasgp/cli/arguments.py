"""The application that the commands are registered with, and the arguments that several of them take."""

from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Parameter

from sasgp import __version__
from sasgp.errors import InputError

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
