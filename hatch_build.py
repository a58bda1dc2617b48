"""The README as package indexes show it. They know no repository, so links and images become absolute.

In the repository they stay relative: a clone shows its own pictures, and a branch links to its own pages.
"""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

FILES, FOLDERS = "https://github.com/sasgp/sasgp/blob", "https://github.com/sasgp/sasgp/tree"
IMAGES = "https://raw.githubusercontent.com/sasgp/sasgp"
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)\s]+)\)")


class ReadmeHook(MetadataHookInterface):
    """Hatchling calls it for every build."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the README: links of a release lead to its tag, others to the main branch."""
        root = Path(self.root)
        version = re.search(r'^__version__ = "(.*)"', (root / "src/sasgp/__init__.py").read_text("utf-8"), re.MULTILINE)
        assert version is not None
        branch = "main" if "dev" in version[1] else f"v{version[1]}"
        text = (root / "README.md").read_text("utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": absolute(text, branch)}


def absolute(text: str, branch: str) -> str:
    """Markdown whose relative links lead to GitHub. Those of folders end in a slash."""

    def link(at: re.Match[str]) -> str:
        place = IMAGES if at[1] else FOLDERS if at[3].endswith("/") else FILES
        return f"{at[1]}[{at[2]}]({place}/{branch}/{at[3]})"

    return LINK.sub(link, text)
