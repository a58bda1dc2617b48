"""Real processes that work together, started as torchrun starts them."""

import os
import socket
import subprocess
import sys
from pathlib import Path


def start(program, *arguments, world=2):
    """The processes that run a Python program, rank 0 first. Their standard error can be read."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    group = {
        "PYTHONPATH": os.pathsep.join(filter(None, [str(Path(__file__).parent), os.environ.get("PYTHONPATH")])),
        "WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    return [
        subprocess.Popen(
            [sys.executable, program, *map(str, arguments)],
            env=os.environ | group | {"RANK": str(rank), "LOCAL_RANK": str(rank)},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(world)
    ]


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
