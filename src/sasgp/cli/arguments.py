"""The application that the commands are registered with, and the arguments that several of them take."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from sasgp import __version__
from sasgp.errors import InputError

__all__ = ["DPI", "LINE", "Data", "Flag", "Labels", "Model", "Open", "app", "seed_of"]

LINE: list[str] = []  # what was typed after `sasgp`
DPI = 150

app = App(
    name="sasgp",
    version=__version__,
    version_flags=["--version"],
    suppress_keyboard_interrupt=False,
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
