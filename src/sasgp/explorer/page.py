"""The page itself: one file with the decoder, the points, our own script and Plotly's in it.

Text of the user's (labels, column names, titles) travels as JSON in which no character can end the element that it is
in, and is put on the page as text. Should that ever fail, the page's security policy lets no script run but the two
whose hashes it names, and lets nothing reach the network.
"""

import base64
import hashlib
import html
import json
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

__all__ = ["Explorer", "embedded_json"]

SCRIPTS = ("packing.js", "decoder.js", "colours.js", "charts.js", "latent.js", "path.js", "main.js")
HEIGHT = 760  # pixels, of the frame in a notebook


class Explorer:
    """The latent explorer of a model. In a notebook it shows itself; `save` writes it to a file.

    Parameters
    ----------
    content
        What the page shows, as JSON.
    """

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    @property
    def html(self) -> str:
        """The whole page."""
        scripts = [_plotly(), "\n".join(_file(name) for name in SCRIPTS)]
        hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
        parts = {
            # Plotly writes programs for the graphics card as it goes, hence unsafe-eval
            "POLICY": f"default-src 'none'; script-src {hashes} 'unsafe-eval'; style-src 'unsafe-inline'; "
            "img-src data: blob:",
            "TITLE": html.escape(self.content["title"]),
            "STYLE": _file("page.css"),
            "CONTENT": embedded_json(self.content),
            "PLOTLY": scripts[0],
            "SCRIPT": scripts[1],
        }
        page = _file("page.html")
        # In one walk through the template: what is put in is never looked at again
        pieces = page.split("%%")
        return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))

    def save(self, path: str | Path) -> Path:
        """Write the page to a file, and return its path."""
        path = Path(path)
        path.write_text(self.html, encoding="utf-8")
        return path

    def _repr_html_(self) -> str:
        """A frame of its own for a notebook: neither page sees the other's styles and scripts."""
        return (
            f'<iframe title="latent explorer" style="width: 100%; height: {HEIGHT}px; border: 0" '
            f'sandbox="allow-scripts allow-downloads" srcdoc="{html.escape(self.html)}"></iframe>'
        )

    def __repr__(self) -> str:
        return f"<Explorer of {self.content['title']!r}; save(path) writes it>"


def embedded_json(content: Any) -> str:
    """JSON that may stand in a <script> element: without <, > and &, and without the line ends of JavaScript's own.

    NaN and infinity, which JSON does not have, are refused.
    """
    text = json.dumps(content, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace").decode()  # half of a pair, which UTF-8 does not have, becomes a "?"


@cache
def _file(name: str) -> str:
    return (resources.files("sasgp.explorer") / "assets" / name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    from plotly.offline import get_plotlyjs

    return str(get_plotlyjs())


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
