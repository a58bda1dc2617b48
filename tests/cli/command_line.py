"""What the tests of the command line share: a small table, a process, and the contents of a page."""

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl

FAST = ("--max-epochs", "2")
ROWS = 70


def table(n=ROWS, seed=0):
    """Two groups of four features, named, with text labels."""
    draw = np.random.default_rng(seed)
    group = np.arange(n) % 2
    X = draw.normal(size=(n, 4)) + 4 * group[:, None]
    X = X * [1, 1.5, 2, 1.25]  # the same spread for all would be taken for that of standardised columns
    return pl.DataFrame(dict(zip("abcd", X.T, strict=True)) | {"species": np.where(group == 1, "cat", "dog")})


def shell(*tokens, **options):
    command = [sys.executable, "-m", "sasgp", *map(str, tokens)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    done.stderr = without_progress(done.stderr)
    return done


def without_progress(text):
    """What a command wrote to standard error, without the lines about work that takes long on a slow machine."""
    lines = text.splitlines(keepends=True)
    return "".join(line for line in lines if not re.match(r"\d{4}-\d\d-\d\d .*(elapsed|done in)", line))


def content_of(path):
    """What the page in a file shows."""
    text = Path(path).read_text().partition('id="content">')[2].partition("</script>")[0]
    return json.loads(text)
