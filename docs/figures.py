"""The figures in docs/images that sasgp draws itself.

    python docs/figures.py [RUNS]     # a minute

RUNS is a folder with a run of digits to take instead of training anew: `sasgp fit digits --out RUNS/digits`.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from sasgp import SASGP, SASGPRegressor, plots
from sasgp.data import load

IMAGES = Path(__file__).parent / "images"


def main(runs: Path | None) -> None:
    """Draw s(a) of digits, digits with holes, and a regression of one input."""
    X = load("digits").X
    model = SASGP(random_state=0).fit(X) if runs is None else SASGP.load(runs / "digits" / "model.safetensors")
    curve = model.evidence_curve(X, random_state=0)
    plots.evidence_curve(curve, title="digits").savefig(IMAGES / "evidence.png", dpi=110)
    missing_values().savefig(IMAGES / "missing-values.png", dpi=110)
    regression().savefig(IMAGES / "regression.png", dpi=110)


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


def regression(rows: int = 240) -> Figure:
    """A regression of one input, with a gap in the training rows: means and 90 % intervals."""
    draw = np.random.default_rng(0)
    x = draw.uniform(0, 10, 2 * rows)
    x = x[(x < 5.2) | (x > 7.2)][:rows]
    y = np.sin(1.7 * x) + 0.3 * x + draw.normal(0, 0.25, len(x))
    model = SASGPRegressor(random_state=0).fit(x[:, None], y)
    at = np.linspace(-1.5, 11.5, 400)
    mean, low, high = model.predict(at[:, None], return_interval=0.9)
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    axes = figure.subplots()
    axes.fill_between(at, low, high, color="#4477aa", alpha=0.2, lw=0, label="90 % of new observations")
    axes.plot(at, np.sin(1.7 * at) + 0.3 * at, color="0.3", lw=1, ls="--", label="the truth")
    axes.plot(at, mean, color="#4477aa", lw=1.8, label="mean")
    axes.plot(x, y, ".", color="0.25", ms=3.5, label="training rows")
    axes.set(xlabel="input", ylabel="target", xlim=(at[0], at[-1]))
    axes.legend(fontsize=8, loc="upper left", frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
