"""Pages are written for GitHub: here their links out of docs/ become links of the site.

CONTRIBUTING.md, ARCHITECTURE.md and CHANGELOG.md stand at the root of the project, where people look for them. The
pages of the same names in docs/ only point there, and show their text on the site. A sign ± stays on one line with its
number, also in a narrow column of a table.
"""

import os
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REPOSITORY = "https://github.com/sasgp/sasgp/blob/main/"
ROOT_PAGES = {"contributing": "CONTRIBUTING.md", "architecture": "ARCHITECTURE.md", "changelog": "CHANGELOG.md"}
DEVIATION = re.compile(r"(?<=\d) ± (?=[\d.])")
LINK = re.compile(r"\]\((?!https?:|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)")


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("source-read", _read)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _read(app: Any, page: str, source: list[str]) -> None:
    """Change the links of a page in place, and all of its text if it stands for a file at the root."""
    if Path(app.env.doc2path(page)).suffix != ".md":
        return
    here = (DOCS / page).parent
    start = here
    if page in ROOT_PAGES:
        contents = source[0].partition("```{toctree}")  # pages below it stay where they are
        source[0], start = "".join([(ROOT / ROOT_PAGES[page]).read_text(), "\n", *contents[1:]]), ROOT
    source[0] = LINK.sub(lambda link: f"]({_target(start / link[1], here)}{link[2] or ''})", source[0])
    source[0] = DEVIATION.sub(" ±\N{NO-BREAK SPACE}", source[0])


def _target(file: Path, here: Path) -> str:
    """A file of the project, as a link from a page in the folder `here`."""
    file = Path(os.path.normpath(file))
    if file.parent == ROOT and file.name in ROOT_PAGES.values():
        file = DOCS / file.name.lower()
    if file.parent == ROOT / "examples" and file.suffix == ".py":
        file = DOCS / "gallery" / f"{file.stem}.rst"  # the script's page, which sphinx-gallery writes
    if file.is_relative_to(DOCS):
        return Path(os.path.relpath(file, here)).as_posix()
    return REPOSITORY + file.relative_to(ROOT).as_posix()
