"""The figures in docs/images that sasgp draws itself.

    python docs/figures.py [RUNS]     # a minute

RUNS is a folder with a run of digits to take instead of training anew: `sasgp fit digits --out RUNS/digits`.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sasgp import SASGP, plots
from sasgp.data import load

IMAGES = Path(__file__).parent / "images"


def main(runs: Path | None) -> None:
    """Draw s(a) of digits, and digits with holes."""
    X = load("digits").X
    model = SASGP(random_state=0).fit(X) if runs is None else SASGP.load(runs / "digits" / "model.safetensors")
    curve = model.evidence_curve(X, random_state=0)
    plots.evidence_curve(curve, title="digits").savefig(IMAGES / "evidence.png", dpi=110)
    missing_values().savefig(IMAGES / "missing-values.png", dpi=110)


def missing_values(rows: int = 8) -> Figure:
    """Test rows of digits with holes, completed by a model that was trained on rows with holes."""
    data = load("digits")
    train, test = (
        np.where(np.random.default_rng(seed).random(X.shape) < 0.6, np.nan, X)
        for seed, X in enumerate((data.X, data.X_test[:rows]))
    )
    model = SASGP(n_components=8, random_state=0).fit(train)
    shown = [data.X_test[:rows], test, model.impute(test), *model.impute(test, n_samples=2)]
    figure = Figure(figsize=(4.2, 0.84 * rows))
    for i, axes in enumerate(figure.subplots(rows, len(shown)).flat):
        axes.imshow(shown[i % len(shown)][i // len(shown)].reshape(8, 8), cmap="gray_r", vmin=0, vmax=data.X.max())
        axes.set(xticks=[], yticks=[], facecolor="#f4d9c6")
        if i < len(shown):
            axes.set_title(("row", "given", "impute", "draw", "draw")[i], fontsize=9)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
