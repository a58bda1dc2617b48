"""`python -m sasgp` is `sasgp`."""

import gc
import sys

from sasgp.cli import main

__all__ = ["run"]

OBJECTS = 20_000  # new ones until the collector looks at them, instead of Python's 700


def run() -> int:
    """The command line in a process of its own: its exit code.

    Nearly all objects of a command come from imports and stay to the end. So the collector looks at them seldom, and
    not at all when the process ends.
    """
    gc.set_threshold(OBJECTS)
    try:
        return main()
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(run())
