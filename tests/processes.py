"""Real processes for tests, alone or together as torchrun starts them.

They are forked from a process that has imported sasgp, because importing takes longer than what most of them do.
What a test of imports, of the interpreter's options or of memory needs is a process of its own: `subprocess`.
"""

import multiprocessing
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

from sasgp.data import progress

_FORKS = multiprocessing.get_context("forkserver")
# What commands import sooner or later
_FORKS.set_forkserver_preload(
    ["matplotlib.figure", "polars", "pytest", "safetensors.torch", "sasgp.cli.fit", "sasgp.cli.runs", "sasgp.data",
     "sasgp.estimators", "sasgp.evaluation", "sasgp.explorer", "sasgp.plots", "sklearn.neighbors",
     "torch.distributed"]
)  # fmt: skip


class Process:
    """`python *command`, with the methods of subprocess.Popen that tests use."""

    def __init__(self, *command, **environment):
        self.folder, self.said = Path(tempfile.mkdtemp()), None
        for name in ("out", "err"):
            (self.folder / name).touch()
        environment = os.environ | environment
        arguments = ([*map(str, command)], environment, Path.cwd(), self.folder)
        self.process = _FORKS.Process(target=_run, args=arguments, daemon=True)
        self.process.start()

    @property
    def pid(self):
        return self.process.pid

    @property
    def returncode(self):
        return self.process.exitcode

    def poll(self):
        return self.process.exitcode

    def send_signal(self, number):
        os.kill(self.pid, number)

    def kill(self):
        self.process.kill()

    def communicate(self, timeout=120):
        """What the process wrote, after its end: standard output and standard error."""
        self.process.join(timeout)
        if self.process.exitcode is None:
            self.kill()
            raise subprocess.TimeoutExpired("python", timeout)
        if self.said is None:
            self.said = tuple((self.folder / name).read_text() for name in ("out", "err"))
            shutil.rmtree(self.folder)
        return self.said


def _run(command, environment, cwd, output):
    """What `python *command` does, in a process that has been forked."""
    for number, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(output / name, os.O_WRONLY | os.O_APPEND), number)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", buffering=1, closefd=False)  # noqa: SIM115
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    progress.PATIENCE = progress.SHORTEST = 1e6  # as in conftest: no lines of a log on a slow machine
    option, *arguments = command
    if option == "-c":
        code, *arguments = arguments
        sys.argv = ["-c", *arguments]
        exec(compile(code, "<string>", "exec"), {"__name__": "__main__"})
    elif option == "-m":
        module, *arguments = arguments
        sys.argv = [module, *arguments]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = command
        runpy.run_path(option, run_name="__main__")


def start(*command, world=2):
    """The processes that run `python *command` together, rank 0 first."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {"WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    return [Process(*command, **group, RANK=str(rank), LOCAL_RANK=str(rank)) for rank in range(world)]


def wait_for(path, process, seconds=120):
    """Wait until a file is there, while a process runs that is to write it."""
    start = time.monotonic()
    while not path.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - start < seconds
        time.sleep(0.01)


def finish(processes, code=0):
    """Wait for processes, all of which must end with the same code, and return what they wrote to standard error."""
    errors = [process.communicate(timeout=120)[1] for process in processes]
    assert [process.returncode for process in processes] == [code] * len(processes), errors
    return errors


def torchrun(*tokens, world=2):
    """Run the command line under torchrun."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world), "-m", "sasgp"]
    return subprocess.run(
        [*command, *map(str, tokens)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
