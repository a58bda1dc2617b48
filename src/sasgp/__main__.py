"""`python -m sasgp` is `sasgp`."""

import sys

from sasgp.cli import main

sys.exit(main())
