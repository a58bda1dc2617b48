"""The application that the commands are registered with, and the arguments that several of them take."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, get_args, get_origin

from cyclopts import App, ArgumentCollection, CoercionError, Group, Parameter

from sasgp import __version__
from sasgp.cli.config import read_config
from sasgp.errors import InputError

__all__ = [
    "DATA",
    "DPI",
    "LINE",
    "MODEL",
    "OUTPUT",
    "TEXT",
    "TRAINING",
    "Data",
    "EscapeFormulas",
    "FileName",
    "Flag",
    "Labels",
    "Metadata",
    "Model",
    "Open",
    "OptionalOut",
    "Out",
    "Printed",
    "Refine",
    "app",
    "check_labels",
    "check_seed",
    "command",
]

LINE: list[str] = []  # what was typed after `sasgp`
DPI = 150
WHOLE = re.compile(r"[+-]?[0-9][0-9_]*(\.0*)?")

# The panels of `sasgp --help` and their commands, in this order, each with what is typed after it
PANELS = {
    Group("Train a model, and look at it", sort_key=0): {
        "fit": "DATA --out RUN",
        "explore": "RUN",
        "plot": "RUN --out FOLDER",
        "info": "RUN",
    },
    Group("Use it", sort_key=1): {
        "embed": "RUN DATA --out FILE",
        "decode": "RUN LATENTS --out FILE",
        "sample": "RUN --out FILE",
        "score": "RUN DATA",
        "impute": "RUN DATA --out FILE",
        "update": "RUN DATA",
    },
    Group("Measure it", sort_key=2): {"evaluate": "RUN DATA", "evidence": "RUN [DATA]"},
    Group("Predict a column, after fit --target", sort_key=3): {
        "predict": "RUN DATA --out FILE",
        "explain": "RUN DATA",
    },
}
OTHER = Group("Other", sort_key=len(PANELS))

# The panels of a command's own help, in this order. What a command reads and what it does come before them
DATA, MODEL = Group("Data", sort_key=10), Group("Model", sort_key=11)
TRAINING, OUTPUT = Group("Training", sort_key=12), Group("Output", sort_key=20)


def _check_numbers(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise if what was typed is no number where one is needed, or a fraction where a whole number is.

    cyclopts would round the fraction, and its own messages have the types of Python.
    """
    for argument in arguments:
        types = set(_types(argument.hint))
        if not types & {int, float}:
            continue
        names = [name for part in types if get_origin(part) is Literal for name in get_args(part)]
        kind, pattern = ("a whole number", WHOLE) if int in types else ("a number", None)
        for token in argument.tokens:
            text = token.value
            if text in names or (type(None) in types and text.lower() in ("none", "null")):
                continue
            if not (pattern.fullmatch(text) if pattern else _is_number(text)):
                expected = " or ".join([*names, kind])
                place = "" if token.source == "cli" else f" in {token.source}"
                raise CoercionError(msg=f"expected {expected}. Got {text or 'nothing'}{place}.", token=token)


def _types(hint: Any) -> Iterator[Any]:
    """The types that a type is made of: for `int | None` and `tuple[int, ...]`, among others int."""
    yield hint
    if get_origin(hint) is not Literal:
        for part in get_args(hint):
            yield from _types(part)


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
    group_parameters=Group("Options", sort_key=1),
    suppress_keyboard_interrupt=False,
    config=(read_config, _check_numbers),
    help="Train Gaussian-process decoders, and use them to embed, decode, generate and evaluate data. Each command "
    "explains itself with --help.",
)
for flag in ("--help", "--version"):
    app[flag].group = (OTHER,)
app["--help"].help, app["--version"].help = "Show this text. Each command has its own.", "Show the version."

Command = TypeVar("Command", bound=Callable[..., Any])


def command(function: Command) -> Command:
    """Register a function as the command of its name, in its panel of the help."""
    name = function.__name__
    panel, commands = next((panel, commands) for panel, commands in PANELS.items() if name in commands)
    usage = f"Usage: sasgp {name} {commands[name]} [OPTIONS]"
    app.command(group=panel, sort_key=list(commands).index(name), usage=usage)(function)
    return function


if TYPE_CHECKING:
    FileName = str
else:
    FileName = str | Path  # text, which comes first. A shell completes the names of files for the sake of the second

Data = Annotated[
    FileName,
    Parameter(
        help="A named data set (digits, mnist, fashion-mnist, cifar10 or oil-flow), or the path of a file or of a "
        "folder of images."
    ),
]
Model = Annotated[Path, Parameter(name="RUN", help="The folder of a run, or a .safetensors file.")]
Labels = Annotated[
    FileName | None,
    Parameter(
        group=DATA,
        help="Where the labels are: a column of the file, an array in the .npz file, or a file with one label per row. "
        "By default, the column called label, labels, class, target or y, if the file has one of text or integers.",
    ),
]
Metadata = Annotated[
    tuple[str, ...],
    Parameter(
        name="--columns",
        group=DATA,
        consume_multiple=True,
        negative=(),
        show_default=False,
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
Open = Annotated[
    bool,
    Parameter(name="--open", group=OUTPUT, negative=(), show_default=False, help="Open the page in the browser."),
]
EscapeFormulas = Annotated[
    bool,
    Parameter(
        group=OUTPUT,
        negative=(),
        show_default=False,
        help="Write ' before text and names of columns in a .csv file that begin with =, +, - or @. A spreadsheet may "
        "run them as formulas.",
    ),
]
Out = Annotated[Path, Parameter(group=OUTPUT)]
OptionalOut = Annotated[Path | None, Parameter(group=OUTPUT)]


@Parameter(name="*")
@dataclass(frozen=True)
class Printed:
    """What a command prints. Every command takes it as `printed`, and `main` reads it there.

    Parameters
    ----------
    quiet
        Print nothing but errors, and the object of --json.
    as_json
        Print one JSON object to standard output instead of text.
    """

    quiet: Annotated[bool, Parameter(group=OUTPUT, negative=(), show_default=False)] = False
    as_json: Annotated[bool, Parameter(name="--json", group=OUTPUT, negative=(), show_default=False)] = False

    @property
    def as_text(self) -> bool:
        return not (self.quiet or self.as_json)


TEXT = Printed()


def check_labels(labels: str | None, data: str | None) -> None:
    """Raise InputError if labels were named, but not the data that they belong to."""
    if labels is not None and data is None:
        raise InputError(f"--labels {labels} needs rows that the labels belong to. Name them with --data.")


def check_seed(random_state: int | None) -> int:
    """The seed, which is 0 if there is none."""
    if random_state is not None and not 0 <= random_state < 2**32:
        raise InputError(f"--random-state must be from 0 to 2³² − 1. Got {random_state}.")
    return random_state or 0
