"""The application that the commands are registered with, and the arguments that several of them take."""

from pathlib import Path
from typing import Annotated, Any, get_args

from cyclopts import App, ArgumentCollection, CoercionError, Parameter

from sasgp import __version__
from sasgp.errors import InputError

__all__ = ["DPI", "LINE", "Data", "Flag", "Labels", "Model", "Open", "app", "seed_of"]

LINE: list[str] = []  # what was typed after `sasgp`
DPI = 150


def _refuse_fractions(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Raise where a whole number is expected and a fraction was typed, which cyclopts would round."""
    for argument in arguments:
        for token in argument.tokens if _is_whole(argument.hint) else ():
            if _is_fraction(token.value):
                raise CoercionError(msg=f"expected a whole number. Got {token.value}.", token=token)


def _is_whole(hint: Any) -> bool:
    """Whether a type is int or made of it, as in `int | None` and `list[int]`."""
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
    help="Gaussian-process decoders: latent spaces with honest uncertainty, trained with stochastic active sets.",
)

Data = Annotated[str, Parameter(help="A data set (digits, mnist, fashion-mnist, cifar10, oil-flow) or a file.")]
Model = Annotated[Path, Parameter(help="The folder of a run, or a .safetensors file.")]
Labels = Annotated[
    str | None,
    Parameter(
        help="The labels: a column of the file, an array of a .npz file, or a file with one label a row. By default a "
        "column of text or integers that is called label, labels, class, target or y, where there is one."
    ),
]
Flag = Parameter(negative=())
Open = Annotated[bool, Parameter(name="--open", negative=(), help="Open it in the browser.")]


def seed_of(random_state: int | None) -> int:
    if random_state is not None and not 0 <= random_state < 2**32:
        raise InputError(f"--random-state must be from 0 to 2³² − 1. Got {random_state}; choose another.")
    return random_state or 0
