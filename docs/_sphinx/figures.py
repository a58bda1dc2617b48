"""The gallery: the order of its examples, and the figure that a block ends with, as a notebook shows it.

`sasgp.plots` returns figures that pyplot does not know, so sphinx-gallery does not find them by itself.
"""

from typing import Any
from weakref import WeakSet

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

# What most people look for comes first. An example that is not named here comes last
ORDER = (
    "digits", "table", "imputation", "anomalies", "regression", "classification", "umap", "single_cells", "geodesic",
    "motion", "pipeline", "kernel", "encoder", "large_data",
)  # fmt: skip
DPI = 110
SHOWN: WeakSet[Figure] = WeakSet()  # a block that ends with no value leaves that of an earlier block


def last_figure(block: Any, variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """Save the figure that the block's last line is, if it is one, and return the markup that shows it."""
    found = variables["example_globals"].get("___")  # where sphinx-gallery keeps the value of the last line
    if not isinstance(found, Figure) or found in SHOWN:
        return ""
    SHOWN.add(found)
    path = next(variables["image_path_iterator"])
    found.savefig(path, dpi=DPI, bbox_inches="tight")
    return figure_rst([path], settings["src_dir"])


class Order:
    """The key by which sphinx-gallery sorts the files of a folder."""

    def __init__(self, src_dir: str) -> None:
        self.src_dir = src_dir

    def __call__(self, name: str) -> tuple[int, str]:
        known = name.removeprefix("plot_").removesuffix(".py")
        return (ORDER.index(known) if known in ORDER else len(ORDER)), name
