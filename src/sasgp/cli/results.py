"""How a run is written: all of its files or none. A model that took long to train is not lost. Pictures come last."""

import json
import shlex
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sasgp.errors import InputError

__all__ = ["complete", "write_run"]


def write_run(out: Path, estimator: Any, info: dict[str, Any], write_more: Callable[[Path], None]) -> None:
    """Write the files of a run except its pictures. `write_more` writes those that not all runs have to a folder."""
    from sasgp.cli import runs

    try:
        with runs.written(out) as folder:
            estimator.save(folder / runs.MODEL)
            write_more(folder)
            lines = "".join(json.dumps(record) + "\n" for record in estimator.history_)
            (folder / runs.HISTORY).write_text(lines, encoding="utf-8")
            (folder / runs.INFO).write_text(json.dumps(info, indent=1) + "\n", encoding="utf-8")
    except (OSError, InputError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        if not isinstance(cause, OSError):
            raise
        raise InputError(f"{out} could not be written: {cause.strerror or cause}. {_rescued(estimator)}.") from error


def _rescued(estimator: Any) -> str:
    """Save a model that took long to train in the system's temporary folder, and say where it is."""
    from sasgp.cli import runs

    try:
        folder = Path(tempfile.mkdtemp(prefix="sasgp-"))
        try:
            estimator.save(folder / runs.MODEL)
        except (OSError, InputError):
            folder.rmdir()
            raise
    except (OSError, InputError):
        return "Free some space or choose another place"
    return f"The trained model is in {folder / runs.MODEL} instead"


@contextmanager
def complete(out: Path, how: str) -> Iterator[None]:
    """Add to an error in a picture that the run is complete without it. `how` says how {run} gets its pictures."""
    how = f"The run is complete. {how.format(run=shlex.quote(str(out)))}"
    try:
        yield
    except KeyboardInterrupt as error:
        error.args = (f"interrupted while drawing. {how}",)
        raise
    except (InputError, OSError) as error:
        error.add_note(how)
        raise
