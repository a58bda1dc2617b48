"""Run tests in processes of their own, forked from one that has already imported what is slow to import.

    python -P forked_tests.py torch sklearn     # imports these, then answers requests

A request is a line of JSON with the folder of a copy of the project, a test file or a test in it, and the seconds of
CPU time that a test may take. The answer is a line with the exit code, the test that failed first and why, and the CPU
time of all. Two requests never share a process, and none shares one with the code that asks: `Server` starts this file
as a script.
"""

import importlib
import json
import os
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Server"]

TICK = 0.05  # seconds between two looks at a process
PATIENCE = 30  # times the CPU time of a test: how long it may wait


class Server:
    """The process that forks."""

    def __init__(self, modules: Sequence[str] = ()) -> None:
        self.modules = tuple(modules)
        self.process: subprocess.Popen[str] | None = None

    def run(self, folder: Path, tests: str, seconds: float) -> dict[str, Any]:
        """Run tests of a copy of the project up to the first that fails, or takes more seconds of CPU time than these.

        A test that only waits is ended, too. That time does not pass while this process is stopped.
        """
        if self.process is None:
            line = [sys.executable, "-P", __file__, *self.modules]
            self.process = subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"folder": str(folder), "tests": tests, "seconds": seconds}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.communicate()


# ---- the process that forks ----


def _serve(modules: Sequence[str]) -> None:
    for name in ("pytest", *modules):
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(_forked(**json.loads(line))), flush=True)


def _forked(folder: str, tests: str, seconds: float) -> dict[str, Any]:
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _test(folder, tests, seconds, writing)
    os.close(writing)
    said, ticks, ended = b"", 0, 0
    while not ended:
        if select.select([reading], [], [], TICK)[0] and (news := os.read(reading, 1 << 16)):
            said, ticks = said + news, 0
        ticks += 1  # not a clock, which would go on while this process is stopped
        if ticks > PATIENCE * seconds / TICK:
            _kill(child)
        ended, status, used = os.wait4(child, os.WNOHANG)
    while select.select([reading], [], [], 0)[0] and (news := os.read(reading, 1 << 16)):
        said += news
    os.close(reading)
    lines = said.decode().splitlines()  # of the tests that began, and the last of one that failed
    found = json.loads(lines[-1]) if lines else {"test": "", "reason": ""}
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        found["reason"] = f"ended by signal {-code}"
    return found | {"code": code, "seconds": round(used.ru_utime + used.ru_stime, 2)}


def _kill(process: int) -> None:
    """A process and those that it started."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            _kill(int(child))
    os.kill(process, signal.SIGKILL)


# ---- the forked process ----


class Reporter:
    """A plugin of pytest that says which test begins and which fails, and lets none take too long."""

    def __init__(self, pipe: int, seconds: float) -> None:
        self.pipe, self.seconds, self.failed = pipe, seconds, False

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        """Each test with its first parameters, before any with others."""
        count: Counter[str] = Counter()
        turn = {}
        for item in items:
            name = item.nodeid.partition("[")[0]
            turn[item.nodeid] = count[name]
            count[name] += 1
        items.sort(key=lambda item: turn[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._say(nodeid, "")
        signal.setitimer(signal.ITIMER_PROF, self.seconds)  # its signal ends the process

    def pytest_runtest_logreport(self, report: Any) -> None:
        self._fail(report)

    def pytest_collectreport(self, report: Any) -> None:
        self._fail(report)

    def _fail(self, report: Any) -> None:
        if report.failed and not self.failed:
            self.failed = True
            crash = getattr(report.longrepr, "reprcrash", None)
            self._say(report.nodeid, crash.message if crash else str(report.longrepr))

    def _say(self, test: str, reason: str) -> None:
        line = {"test": test, "reason": " ".join(reason.split())[:160]}
        os.write(self.pipe, (json.dumps(line) + "\n").encode())


def _test(folder: str, tests: str, seconds: float, writing: int) -> None:
    """Run tests; it does not return."""
    import pytest

    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nowhere, stream)
    os.chdir(folder)
    paths = [f"{folder}/src", folder]
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(paths)  # for processes that tests start
    options = ["-x", "-q", "-n0", "-p", "no:cacheprovider", f"--basetemp={folder}/temporary"]
    os._exit(pytest.main([*options, tests], plugins=[Reporter(writing, seconds)]))


if __name__ == "__main__":
    _serve(sys.argv[1:])
