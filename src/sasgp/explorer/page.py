"""The page: one HTML file with the decoder, the points and our script.

Text from the user (labels, column names, titles) is stored as JSON without any character that could end its element,
and is put on the page as text. Should that ever fail, the page's security policy runs no script except the one whose
hash it names, and blocks the network.
"""

import base64
import hashlib
import html
import json
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from sasgp.data.files import at_home, replacing
from sasgp.errors import InputError
from sasgp.explorer.content import lighter

__all__ = ["Explorer", "embedded_json"]

SCRIPTS = (
    "dom.js",
    "packing.js",
    "decoder.js",
    "geometry.js",
    "columns.js",
    "colours.js",
    "charts.js",
    "table.js",
    "viewport.js",
    "points.js",
    "background.js",
    "density.js",
    "gestures.js",
    "tooltip.js",
    "latent.js",
    "routes.js",
    "strip.js",
    "path.js",
    "picker.js",
    "search.js",
    "selection.js",
    "permalink.js",
    "notes.js",
    "controls.js",
    "main.js",
)
HEIGHT = 760  # of the frame in a notebook, in pixels


class Explorer:
    """The latent explorer of a model. A notebook displays it, and `save` writes it to a file.

    A cell of a notebook does not hold the page. It shows a file that is written beside the notebook, into the current
    folder. Where that cannot work, `light` makes a page that is small enough for the cell itself.

    Parameters
    ----------
    content
        The content of the page, which can be written as JSON.
    inline
        Whether the cell of a notebook holds the page.
    """

    def __init__(self, content: dict[str, Any], *, inline: bool = False) -> None:
        self.content = content
        self.inline = inline

    @property
    def html(self) -> str:
        """The whole page."""
        script = "\n".join(_file(name) for name in SCRIPTS)
        parts = {
            "POLICY": f"default-src 'none'; script-src 'sha256-{_sha256(script)}'; style-src 'unsafe-inline'; "
            "img-src data: blob:",
            "TITLE": html.escape(self.content["title"]),
            "STYLE": _file("page.css"),
            "CONTENT": embedded_json(self.content),
            "SCRIPT": script,
        }
        page = _file("page.html")
        # In one pass through the template, so that inserted text is never searched for placeholders
        pieces = page.split("%%")
        return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return its path.

        Parameters
        ----------
        path : path
            The file to write. An existing one is replaced in one step.
        """
        path = at_home(path)
        with replacing(path) as temporary:
            temporary.write_text(self.html, encoding="utf-8")
        return path

    def light(self, n_points: int = 2000) -> "Explorer":
        """A smaller page, which a notebook keeps in its cell: without rows, and with some of the points.

        Parameters
        ----------
        n_points
            The number of points to show, drawn at random.

        Returns
        -------
        Explorer
        """
        if n_points < 1:
            raise InputError(f"n_points must be at least 1. Got {n_points}.", argument="n_points")
        return Explorer(lighter(self.content, n_points), inline=True)

    def _repr_html_(self) -> str:
        """The page in a frame, so that it shares no styles or scripts with the notebook."""
        page = self.html
        source = f'srcdoc="{html.escape(page)}"'
        if not self.inline:
            name = f"explorer-{hashlib.sha256(page.encode()).hexdigest()[:12]}.html"
            with suppress(OSError):  # a folder that is read-only: the cell holds the page after all
                self.save(name)
                source = f'src="{name}"'
        return (
            f'<iframe title="latent explorer" style="width: 100%; height: {HEIGHT}px; border: 0" '
            f'sandbox="allow-scripts allow-downloads allow-popups" {source}></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Explorer of {self.content['title']!r}; save(path) writes it>"


def embedded_json(content: Any) -> str:
    """JSON that is safe inside a <script> element: without <, > and &, and without JavaScript's additional line ends.

    NaN and infinity raise ValueError, because JSON does not have them.
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()  # a lone surrogate, which UTF-8 does not have, becomes "?"


@cache
def _file(name: str) -> str:
    return (resources.files("sasgp.explorer") / "assets" / name).read_text(encoding="utf-8")


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
