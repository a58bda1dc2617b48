"""The command line.

    sasgp fit digits --out runs/digits
    sasgp update runs/digits more.csv
    sasgp embed runs/digits new.csv --out latents.csv
    sasgp decode runs/digits latents.csv --out decoded.npz
    sasgp sample runs/digits -n 25 --out samples.png
    sasgp evaluate runs/digits new.csv --labels species --json
    sasgp score runs/digits new.csv --top 20
    sasgp impute runs/table gaps.csv --std --out full.csv
    sasgp evidence runs/digits --method exact
    sasgp explore runs/digits --open
    sasgp plot runs/digits --relevance --out figures
    sasgp info runs/digits

    sasgp fit table.csv --target price --out runs/price
    sasgp predict runs/price new.csv --out predictions.csv
    sasgp explain runs/price new.csv --features age,size

Each command has its own module. Results go to standard output, progress and errors to standard error. An error that
the user can put right is one line, with exit code 2; failed arithmetic has exit code 1; anything else is a bug, and
shows its traceback. Heavy packages are imported inside the commands, so that help appears at once.
"""

import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from shutil import get_terminal_size
from typing import Any

from cyclopts import CycloptsError, MissingArgumentError, UnusedCliTokensError

# Each of these modules registers its command with the application
from sasgp.cli import (  # noqa: F401
    decode,
    embed,
    evaluate,
    evidence,
    explain,
    explore,
    fit,
    impute,
    info,
    plot,
    predict,
    sample,
    score,
    update,
)
from sasgp.cli.arguments import LINE, OTHER, TEXT, app
from sasgp.cli.fit_options import DEFAULTS
from sasgp.cli.messages import in_options
from sasgp.cli.printing import as_json, printing
from sasgp.data.progress import LOG, alive, rank_of_process
from sasgp.errors import InputError
from sasgp.models.settings import Settings

app.register_install_completion_command(
    help="Let the shell complete commands and options: bash, zsh or fish. --shell names one, --output another file.",
    group=OTHER,
)

NARROW = 40  # columns of a terminal
# At most 79 columns, so that no terminal breaks its lines
START = """sasgp trains Gaussian-process decoders: maps of your data, with a way back from
the map to the data and honest uncertainty. Start with

  sasgp fit digits --out runs/digits      train on handwritten digits; seconds
  sasgp explore runs/digits --open        look around in the latent space
  sasgp fit table.csv --out runs/table    your own table, array or image folder

sasgp --help        all commands
sasgp fit --help    the options of one command
sasgp info RUN      what a run holds
"""

__all__ = ["DEFAULTS", "Settings", "app", "main"]


def main(tokens: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code."""
    # By default, torch's threads spin for milliseconds while they wait for each other, which slows a shared machine
    # down. This must be set before torch is loaded
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    columns = os.environ.get("COLUMNS", "")
    if (int(columns) if columns.isdecimal() else get_terminal_size().columns) < NARROW:
        os.environ["COLUMNS"] = str(NARROW)  # the help would take forever to fit one word into a few columns
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed, as in `sasgp … >&-`
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a result with "?" for ± is better than none
    try:
        rank_of_process()  # an environment that makes no sense is told first
        LINE[:] = sys.argv[1:] if tokens is None else tokens
        _run()
        sys.stdout.flush()
    except CycloptsError as error:
        command = " ".join(["sasgp", *(error.command_chain or ())])
        return _fail(f"{_in_words(error)} Try `{command} --help`.", 2, everywhere=True)
    except BrokenPipeError:
        # The reader has gone. Python would complain at exit about what is still buffered
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141  # the exit code of a program that SIGPIPE ended
    except InputError as error:
        return _fail(_with_notes(error), 2)
    except OSError as error:
        notes = " ".join(getattr(error, "__notes__", ()))
        return _fail(f"{f'{error.filename}: {error.strerror}' if error.filename else error} {notes}", 2)
    except ArithmeticError as error:
        from sasgp.gp.linalg import NotPositiveDefiniteError
        from sasgp.training.loop import DivergedError

        if not isinstance(error, NotPositiveDefiniteError | DivergedError):
            raise
        return _fail(_with_notes(error), 1)
    except RuntimeError as error:
        kind = type(error).__name__  # importing its class would import torch
        if kind == "FailedElsewhereError":
            return 1  # that process says why
        if kind != "RankError":
            raise
        return _fail(_with_notes(error), 1)
    except KeyboardInterrupt as error:
        number = getattr(error, "signal_number", 2)
        return _fail(str(error) or "interrupted. Nothing half-written is left.", 128 + number, everywhere=True)
    return 0


def _run() -> None:
    """Run the command that was typed, and print its result if --json asks for it."""
    if not LINE:
        sys.stdout.write(START)
        return
    command, bound, _ = app.parse_args(LINE, exit_on_error=False, print_error=False)
    printed = bound.arguments.get("printed", TEXT)
    verbose = bound.arguments.get("options", DEFAULTS).verbose
    with (
        _short_warnings(quiet=printed.quiet),
        _logged(quiet=printed.quiet),
        printing(printed),
        alive(LINE[0], show=verbose),
    ):
        result = command(*bound.args, **bound.kwargs)
    if printed.as_json and result is not None:
        sys.stdout.write(f"{as_json(result)}\n")


@contextmanager
def _logged(*, quiet: bool) -> Iterator[None]:
    """Write what the logger `sasgp` says to standard error, with the time. `quiet` leaves only errors."""
    handler, before = logging.StreamHandler(sys.stderr), (LOG.level, LOG.propagate)
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s", "%Y-%m-%d %H:%M:%S"))
    LOG.addHandler(handler)
    LOG.setLevel(logging.ERROR if quiet else logging.INFO)
    LOG.propagate = False
    try:
        yield
    finally:
        LOG.removeHandler(handler)
        LOG.setLevel(before[0])
        LOG.propagate = before[1]


@contextmanager
def _short_warnings(*, quiet: bool) -> Iterator[None]:
    """Show each warning once, as one line, without the line of code that it comes from. `quiet` shows none.

    Python forgets what it has shown whenever a library changes the filters of warnings.
    """
    usual, shown = warnings.formatwarning, set[str]()
    warnings.formatwarning = lambda message, *_, **__: f"sasgp: warning: {' '.join(str(message).split())}\n"
    try:
        with warnings.catch_warnings():
            show = warnings.showwarning

            def show_once(message: Warning | str, *rest: Any, **named: Any) -> None:
                if str(message) not in shown:
                    shown.add(str(message))
                    show(message, *rest, **named)

            warnings.showwarning = show_once
            # Commands compare the columns of a file with those of a model by themselves
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            if quiet:
                warnings.simplefilter("ignore")
            yield
    finally:
        warnings.formatwarning = usual


def _in_words(error: CycloptsError) -> str:
    """What is wrong with what was typed."""
    if isinstance(error, UnusedCliTokensError) and error.unused_tokens:
        return f"There is one argument too many: {shlex.quote(error.unused_tokens[0])}. Options start with two dashes."
    if isinstance(error, MissingArgumentError) and error.argument is not None:
        typed = [name for name in error.argument.names if any(token.startswith(name) for token in LINE)]
        return f"{typed[0]} needs a value." if typed else f"{error.argument.name} is missing."
    return str(error)


def _with_notes(error: BaseException) -> str:
    """The message of an error and its notes, with the options of the command for the arguments of Python."""
    message = " ".join([str(error), *getattr(error, "__notes__", ())])
    return in_options(message, getattr(error, "argument", None))


def _fail(message: str, code: int, *, everywhere: bool = False) -> int:
    """Print an error. One that all processes of torchrun have, `everywhere`, is printed by the first."""
    if not (everywhere and rank_of_process()):
        sys.stderr.write(f"sasgp: error: {' '.join(message.split())}\n")
    return code
