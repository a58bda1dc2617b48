"""A command of sasgp whose stack is looked at every few milliseconds, to say how long each part of it takes.

    python -m studies.benchmarks.sampled SECONDS.json fit digits --out RUN

A second thread looks at the frames of the first. The time since its last look belongs to the part of the program that
it finds there, so a long call that lets no other thread run counts in full. Nothing in the program is changed, and
nothing is imported that the program would not import.
"""

import json
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

__all__ = ["PARTS", "REST", "part_of"]

EVERY = 0.004  # seconds between looks
REST = "command line, start and exit"
# The part of a stack is the first of these that has a function in it: the end of a file's name, and the function
PARTS: dict[str, tuple[tuple[str, str], ...]] = {
    "imports": (("<frozen importlib._bootstrap>", "_find_and_load"),),
    "reading": (("data/readers.py", "load"),),
    "first numbers": (("training/initialise.py", "initialise"),),
    "steps": (("training/loop.py", "_step"),),
    "checkpoints": (("training/run.py", "_save"),),
    "between steps": (("training/run.py", "train"),),
    "all rows into the decoder": (("estimators/base.py", "_train"),),
    "metrics": (("evaluation/__init__.py", "quality"), ("estimators/inference.py", "transform")),
    "files": (("cli/results.py", "write_run"),),
    "pictures": (("cli/pictures.py", "draw_run"),),
    "explorer": (("cli/fit.py", "_draw"),),
}


def part_of(stack: Iterable[tuple[str, str]]) -> str:
    """The part that a stack of files and functions belongs to."""
    found = [(file.replace("\\", "/"), function) for file, function in stack]
    for part, places in PARTS.items():
        if any(file.endswith(end) and function == name for file, function in found for end, name in places):
            return part
    return REST


def frames(frame: FrameType | None) -> Iterable[tuple[str, str]]:
    """Files and functions of a frame and of all that called it."""
    while frame is not None:
        yield frame.f_code.co_filename, frame.f_code.co_name
        frame = frame.f_back


def main(path: Path, tokens: list[str]) -> int:
    """Run the command, and write how many seconds each part took."""
    first, ended = threading.get_ident(), threading.Event()
    seconds: dict[str, float] = defaultdict(float)

    def watch() -> None:
        last = time.perf_counter()
        while not ended.wait(EVERY):
            part = part_of(frames(sys._current_frames().get(first)))
            now = time.perf_counter()
            seconds[part] += now - last
            last = now

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    from sasgp.cli import main as run

    code = run(tokens)
    ended.set()
    watcher.join()
    path.write_text(json.dumps(seconds), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
