"""One run in a process of its own, as `runner.work` starts it."""

import json
import sys
from pathlib import Path

from studies.catalogue import study
from studies.records import Run
from studies.runner import perform

if __name__ == "__main__":
    group, name, asked, out, jobs, command = sys.argv[1:]
    perform(study(group, name), Run(**json.loads(asked)), Path(out), command=command, jobs=int(jobs))
