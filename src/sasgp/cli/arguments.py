"""The application that the commands are registered with, and the arguments that several of them take."""

from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

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
    "Metadata",
    "Model",
    "Open",
    "Refine",
    "app",
    "check_labels",
    "check_seed",
]

LINE: list[str] = []  # what was typed after `sasgp`
DPI = 150


def _check_numbers(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise if what was typed is no number where one is needed, or a fraction where a whole number is.

    cyclopts would round the fraction. For `float | Literal["auto"]`, its own message has the types of Python.
    """
    for argument in arguments:
        parts = get_args(argument.hint)
        names = [name for part in parts if get_origin(part) is Literal for name in get_args(part)]
        kind = "a whole number" if _is_whole(argument.hint) else "a number"
        for token in argument.tokens:
            if _is_whole(argument.hint) and _is_fraction(token.value):
                raise CoercionError(msg=f"expected {kind}. Got {token.value}.", token=token)
            if names and {int, float} & set(parts) and token.value not in names and not _is_number(token.value):
                expected = " or ".join([*names, kind])
                raise CoercionError(msg=f"expected {expected}. Got {token.value or 'nothing'}.", token=token)


def _is_whole(hint: Any) -> bool:
    """Whether a type is int or contains it, as `int | None` and `list[int]` do."""
    return hint is int or any(map(_is_whole, get_args(hint)))


def _is_fraction(text: str) -> bool:
    return "." in text and _is_number(text) and not float(text).is_integer()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:  # text, such as "auto"
        return False
    return True


app = App(
    name="sasgp",
    version=__version__,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
    config=_check_numbers,
    help="Train Gaussian-process decoders, and use them to embed, decode, generate and evaluate data. Each command "
    "explains itself with --help.",
)

Data = Annotated[
    str,
    Parameter(
        help="A named data set (digits, mnist, fashion-mnist, cifar10 or oil-flow), or the path of a file or of a "
        "folder of images."
    ),
]
Model = Annotated[Path, Parameter(help="The folder of a run, or a .safetensors file.")]
Labels = Annotated[
    str | None,
    Parameter(
        help="Where the labels are: a column of the file, an array in the .npz file, or a file with one label per row. "
        "By default, the column called label, labels, class, target or y, if the file has one of text or integers."
    ),
]
Metadata = Annotated[
    tuple[str, ...],
    Parameter(
        name="--columns",
        consume_multiple=True,
        negative=(),
        help="What else is known about the rows, for the page: columns of the data that are not trained on, or tables "
        "with one line per row, such as about.csv. The page shows, finds and colours by them.",
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
