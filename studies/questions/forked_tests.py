"""Run test files, each in a process of its own, forked from one that has already imported what is slow to import.

    python -P forked_tests.py torch sklearn     # imports these, then answers requests

A request is a line of JSON with the folder of a copy of the project, a test file in it, and a limit in seconds. The
answer is a line with the exit code, the test that failed first and why, and the seconds of CPU time. Two requests never
share a process, and none shares one with the code that asks: `Server` starts this file as a script.
"""

import importlib
import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Server"]

TICK = 0.02  # seconds between two looks at a process


class Server:
    """The process that forks."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self.modules = tuple(modules)
        self.process: subprocess.Popen[str] | None = None

    def run(self, folder: Path, file: str, seconds: float) -> dict[str, Any]:
        """Run one test file of a copy of the project, and stop it after some seconds of CPU time, or ten times as many.

        The longer time is for processes that wait. It does not pass while this process is stopped.
        """
        if self.process is None:
            line = [sys.executable, "-P", __file__, *self.modules]
            self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "file": file, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


# ---- the process that forks ----


class First:
    """A plugin of pytest that keeps the first failure."""

    def __init__(self) -> None:
        self.test, self.reason = "", ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._keep(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._keep(report)

    def _keep(self, report: Any) -> None:
        if report.failed and not self.test:
            crash = getattr(report.longrepr, "reprcrash", None)
            self.test = report.nodeid
            self.reason = " ".join((crash.message if crash else str(report.longrepr)).split())[:160]


def _serve(modules: Sequence[str]) -> None:
    for name in ("pytest", *modules):
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(_forked(**json.loads(line))), flush=True)


def _forked(folder: str, file: str, seconds: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _test(folder, file, seconds, writing)
    os.close(writing)
    for _ in range(int(10 * seconds / TICK)):  # ticks: a clock would go on while this process is stopped
        ended, status, used = os.wait4(child, os.WNOHANG)
        if ended:
            break
        time.sleep(TICK)
    else:
        _kill(child)
        _, status, used = os.wait4(child, 0)
    with os.fdopen(reading) as pipe:
        said = pipe.read()
    code = os.waitstatus_to_exitcode(status)
    found = json.loads(said) if said else {"test": "", "reason": f"ended by signal {-code}" if code < 0 else ""}
    return found | {"code": code, "seconds": round(used.ru_utime + used.ru_stime, 2)}


def _kill(process: int) -> None:
    """A process and those that it started."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            _kill(int(child))
    os.kill(process, signal.SIGKILL)


def _test(folder: str, file: str, seconds: float, writing: int) -> None:
    """What the forked process does; it does not return."""
    import pytest

    resource.setrlimit(resource.RLIMIT_CPU, (int(seconds) + 1, int(seconds) + 1))
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.chdir(folder)
    paths = [f"{folder}/src", folder]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for processes that tests start
    first = First()
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", f"--basetemp={folder}/temporary"]
    code = pytest.main([*options, file], plugins=[first])
    with os.fdopen(writing, "w") as pipe:
        json.dump({"test": first.test, "reason": first.reason}, pipe)
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1:])
