"""Questions that the docs answer, a module each: `python -m studies questions oil-flow`."""
