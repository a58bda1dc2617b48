"""One run in a process of its own, as `running.work` starts it: a run as JSON, the folder, how many share the cores."""

import json
import sys
from pathlib import Path

from sasgp.reproduction.experiments import Run
from sasgp.reproduction.running import execute

if __name__ == "__main__":
    asked, out, jobs = sys.argv[1:]
    fields = json.loads(asked)
    execute(Run(**fields | {"measures": tuple(fields["measures"])}), Path(out), jobs=int(jobs))
