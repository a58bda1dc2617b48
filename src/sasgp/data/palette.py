"""The colours of classes and numbers, which figures and the explorer share.

`CLASSES` is Paul Tol's "muted" scheme, which is safe for colour-blind readers, with the orange of his "vibrant" scheme
as the tenth colour. The background of both is grey, so his grey is left out. `ON_DARK` has the same hues, lighter where
they would not be seen on a dark page.
"""

__all__ = ["CLASSES", "MAX_CLASSES", "NUMBERS", "N_SHAPES", "ON_DARK"]

CLASSES = (
    "#332288", "#88CCEE", "#117733", "#DDCC77", "#CC6677", "#AA4499", "#44AA99", "#882255", "#999933", "#EE7733",
)  # fmt: skip
ON_DARK = (
    "#9080F0", "#88CCEE", "#3DB468", "#DDCC77", "#E8808F", "#D46BC4", "#55CDB9", "#C24F86", "#B0B03C", "#EE7733",
)  # fmt: skip
NUMBERS = (
    "#440154", "#482173", "#433E85", "#38588C", "#2D708E", "#25858E", "#1E9B8A", "#2AB07F", "#52C569", "#86D549",
    "#C2DF23", "#FDE725",
)  # viridis, from the lowest to the highest  # fmt: skip
N_SHAPES = 3  # circle, triangle and diamond: each repeats the colours
MAX_CLASSES = len(CLASSES) * N_SHAPES
