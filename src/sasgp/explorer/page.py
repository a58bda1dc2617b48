"""The page: one HTML file with the decoder, the points, our script and Plotly's.

Text from the user (labels, column names, titles) is stored as JSON without any character that could end its element,
and is put on the page as text. Should that ever fail, the page's security policy runs no script except the two whose
hashes it names, and blocks the network.
"""

import base64
import hashlib
import html
import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

from sasgp.data.files import at_home, replacing

__all__ = ["Explorer", "embedded_json"]

SCRIPTS = (
    "dom.js",
    "packing.js",
    "decoder.js",
    "columns.js",
    "colours.js",
    "charts.js",
    "table.js",
    "latent.js",
    "path.js",
    "notes.js",
    "controls.js",
    "main.js",
)
HEIGHT = 760  # of the frame in a notebook, in pixels


class Explorer:
    """The latent explorer of a model. A notebook displays it, and `save` writes it to a file.

    Parameters
    ----------
    content
        The content of the page, which can be written as JSON.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    @property
    def html(self) -> str:
        """The whole page."""
        scripts = [_plotly(), "\n".join(_file(name) for name in SCRIPTS)]
        hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
        parts = {
            # Plotly compiles its drawing code at run time, hence unsafe-eval
            "POLICY": f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
            "img-src data: blob:",
            "TITLE": html.escape(self.content["title"]),
            "STYLE": _file("page.css"),
            "CONTENT": embedded_json(self.content),
            "PLOTLY": scripts[0],
            "SCRIPT": scripts[1],
        }
        page = _file("page.html")
        # In one pass through the template, so that inserted text is never searched for placeholders
        pieces = page.split("%%")
        return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))

    def save(self, path: str | Path) -> Path:
        """Write the page to a file and return its path. An existing file is replaced in one step."""
        path = at_home(path)
        with replacing(path) as temporary:
            temporary.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """The page in a frame, so that it shares no styles or scripts with the notebook."""
        return (
            f'<iframe title="latent explorer" style="width: 100%; height: {HEIGHT}px; border: 0" '
            f'sandbox="allow-scripts allow-downloads" srcdoc="{html.escape(self.html)}"></iframe>'
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


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
