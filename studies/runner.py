"""Do the runs of studies: what is finished is skipped, and a run that fails does not stop the others.

A record is written whole or not at all, so that an interruption costs the run under way and nothing else.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sasgp.data.files import replacing
from sasgp.errors import InputError
from studies import records
from studies.catalogue import Study
from studies.records import ROOT, Record, Run, finished

__all__ = ["Outcome", "Task", "perform", "queue", "work"]


@dataclass(frozen=True)
class Task:
    """A run, and the study that can do it."""

    study: Study
    run: Run


@dataclass(frozen=True)
class Outcome:
    """A run that has ended: its record, or what went wrong."""

    run: Run
    record: Record | None
    error: str = ""


def queue(
    studies: Iterable[Study], seeds: Sequence[int] | None = None, *, quick: bool = False, file: str | None = None
) -> list[Task]:
    """The runs of studies, each once, seed by seed: wherever the queue is cut, a smaller table is complete.

    Parameters
    ----------
    studies
    seeds
        By default those of each study, or 0 with `quick`.
    quick
        A rehearsal: small data, few epochs.
    file
        A file for the studies that read one.
    """
    studies = list(studies)
    own = {study.name: tuple(seeds or ((0,) if quick else study.seeds)) for study in studies}
    tasks: dict[str, Task] = {}
    for seed in sorted({seed for some in own.values() for seed in some}):
        for study in studies:
            for run in study.runs(seed, quick) if seed in own[study.name] else ():
                tasks.setdefault(run.title, Task(study, replace(run, file=file)))
    return list(tasks.values())


def perform(study: Study, run: Run, out: Path, *, command: str, jobs: int = 1) -> Record:
    """Do one run and write OUT/title.json, and title.npz where the study keeps arrays."""
    before = records.machine(jobs)
    found = study.execute(run)
    if arrays := found.pop("arrays", None):
        import numpy as np

        with replacing(out / f"{run.title}.npz") as temporary:
            np.savez_compressed(temporary, **arrays)
    record = records.record(run, found, command=command, machine=before)
    path = out / f"{run.title}.json"
    records.write(record, path)  # last: it says that the run is finished
    return records.read(path)


def work(tasks: Sequence[Task], out: Path, *, command: str, jobs: int = 1, again: bool = False) -> Iterator[Outcome]:
    """Do what is not finished, in order, and say of each run how it ended.

    Parameters
    ----------
    tasks, out
    command
        What was typed, for the records.
    jobs
        Processes at the same time, each with its share of the cores. 1: this process, with all of them.
    again
        Do what is finished, too.
    """
    if jobs < 1:
        raise InputError(f"--jobs must be at least 1. Got {jobs}.")
    waiting = deque(task for task in tasks if again or finished(task.run, out) is None)
    if jobs > 1:
        yield from _in_processes(waiting, out, jobs, command)
        return
    for task in waiting:
        record = None if again else finished(task.run, out)  # another process may have done it meanwhile
        try:
            yield Outcome(task.run, record or perform(task.study, task.run, out, command=command))
        except Exception as error:
            yield Outcome(task.run, None, f"{type(error).__name__}: {error}")


def _reason(code: int, said: Sequence[str]) -> str:
    """Why a process failed, or nothing if it did not."""
    if code < 0:
        return f"killed by signal {-code}, usually because memory ran out; use fewer --jobs"
    return (said[-1] if said else f"exit code {code}") if code else ""


def _in_processes(waiting: deque[Task], out: Path, jobs: int, command: str) -> Iterator[Outcome]:
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = os.environ | {"OMP_NUM_THREADS": threads}
    working: dict[subprocess.Popen[bytes], tuple[Run, Any]] = {}
    try:
        while waiting or working:
            while waiting and len(working) < jobs:
                study, run = (task := waiting.popleft()).study, task.run
                errors = tempfile.TemporaryFile()  # noqa: SIM115  a pipe that nobody reads would fill up
                asked = json.dumps(asdict(run))
                line = [sys.executable, "-m", "studies.worker", study.group, study.name, asked, str(out.resolve())]
                process = subprocess.Popen([*line, str(jobs), command], env=environment, stderr=errors, cwd=ROOT)
                working[process] = run, errors
            ended = [process for process in working if process.poll() is not None]
            for process in ended:
                run, errors = working.pop(process)
                with errors:
                    errors.seek(0)
                    said = errors.read().decode(errors="replace").strip().splitlines()
                reason = _reason(process.returncode, said)
                yield Outcome(run, None if reason else finished(run, out), reason)
            if not ended:
                time.sleep(0.2)
    finally:
        for process, (_, errors) in working.items():
            process.terminate()
            process.wait()
            errors.close()
