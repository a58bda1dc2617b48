"""Pictures that are wider than the column of text: a click opens them at their full size, as it does on GitHub."""

from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.util.images import get_image_size

COLUMN = 776  # pixels, in a window of 1280 with both sidebars


def setup(app: Any) -> dict[str, bool]:
    """Connect to Sphinx."""
    app.connect("doctree-read", _give_widths)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _give_widths(app: Any, doctree: nodes.document) -> None:
    """Write its own width on each wide picture: Sphinx links pictures with a width to their files."""
    for picture in doctree.findall(nodes.image):
        size = get_image_size(Path(app.srcdir) / picture["uri"])
        if size and size[0] > COLUMN and "width" not in picture:
            picture["width"] = f"{size[0]}px"
