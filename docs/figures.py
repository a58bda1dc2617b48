"""The figures in docs/images that sasgp draws itself.

    python docs/figures.py [RUNS]     # a few minutes

RUNS is a folder with a run of digits to take instead of training anew: `sasgp fit digits --out RUNS/digits`.
"""

import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from sklearn.datasets import load_wine

from sasgp import SASGP, SASGPRegressor, plots
from sasgp.data import load

IMAGES = Path(__file__).parent / "images"


def main(runs: Path | None) -> None:
    """Draw wine, s(a) of digits, digits with holes, a regression, and the geometry of digits and of a sphere."""
    wine().savefig(IMAGES / "wine.png", dpi=110)
    X = load("digits").X
    model = SASGP(random_state=0).fit(X) if runs is None else SASGP.load(runs / "digits" / "model.safetensors")
    curve = model.evidence_curve(X, random_state=0)
    plots.evidence_curve(curve, title="digits").savefig(IMAGES / "evidence.png", dpi=110)
    missing_values().savefig(IMAGES / "missing-values.png", dpi=110, bbox_inches="tight")
    regression().savefig(IMAGES / "regression.png", dpi=110)
    draw_geometry(model)


def wine() -> Figure:
    """The latent space of the table that docs/getting-started.md fits, by the same lines."""
    data = load_wine(as_frame=True)
    model = SASGP(random_state=0)
    return plots.latent_space(model, model.fit_transform(data.data), data.target)


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


def draw_geometry(model: SASGP) -> None:
    """Geodesics between digits, what is decoded along one of them, and geodesics on a sphere."""
    data = load("digits")
    Z, y = model.embedding_, np.asarray(data.y)
    middles = [np.median(Z[y == digit], 0) for digit in range(10)]
    some = np.array([Z[np.square(Z - middle).sum(1).argmin()] for middle in middles])  # a row of each digit
    paths = model.geodesic(some[[0, 2, 4]], some[[1, 7, 9]])
    plots.geometry(model, labels=y, paths=paths, title="digits").savefig(IMAGES / "geometry-digits.png", dpi=110)
    decoded_paths(model, paths[0]).savefig(IMAGES / "geometry-paths.png", dpi=110)
    sphere().savefig(IMAGES / "geometry-sphere.png", dpi=110)


def decoded_paths(model: SASGP, path: np.ndarray, n: int = 12) -> Figure:
    """Rows along a geodesic, above rows along the straight line between its ends, and how uncertain they are."""
    share = np.linspace(0, 1, n)[:, None]
    straight = (1 - share) * path[0] + share * path[-1]
    ways = {"geodesic": path[np.linspace(0, len(path) - 1, n).round().astype(int)], "straight": straight}
    figure = Figure(figsize=(8.4, 2.2), layout="constrained")
    for line, (name, Z) in zip(figure.subplots(2, n), ways.items(), strict=True):
        mean, std = model.predict(Z, return_std=True)
        unsure = np.sqrt(np.maximum(std[:, 0] ** 2 - model.noise_, 0))  # of the function, without the noise
        for axes, row, sd in zip(line, mean, unsure, strict=True):
            axes.imshow(row.reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
            axes.set(xticks=[], yticks=[])
            axes.set_xlabel(f"{sd:.2f}", fontsize=8)
        line[0].set_ylabel(f"{name}\n{model.length(path if name == 'geodesic' else path[[0, -1]]):.1f}", fontsize=9)
    return figure


def sphere(rows: int = 500) -> Figure:
    """A cap of a sphere in 20 dimensions: geodesics of a decoder that was trained on it, beside great circles."""
    rng = np.random.default_rng(0)
    height, angle = rng.uniform(np.cos(np.radians(75)), 1, rows), rng.uniform(0, 2 * np.pi, rows)
    r = np.sqrt(1 - height**2)
    points = np.stack([r * np.cos(angle), r * np.sin(angle), height], 1)
    axes = np.linalg.qr(rng.normal(size=(20, 3)))[0]
    model = SASGP(random_state=0).fit(points @ axes.T + 0.01 * rng.normal(size=(rows, 20)))
    figure = Figure(figsize=(4.6, 4.6), layout="constrained")
    panel = figure.subplots()
    panel.scatter(*points[:, :2].T, s=6, color="#bbbbbb")
    for turn in np.radians([0, 90, 180, 270]):
        wanted = 0.9 * np.array([[np.cos(a), np.sin(a)] for a in (turn, turn + 1.6)])
        i, j = (int(np.square(points[:, :2] - place).sum(1).argmin()) for place in wanted)
        path = model.geodesic(model.embedding_[i], model.embedding_[j])
        a, b = points[i], points[j]
        omega, t = np.arccos(a @ b), np.linspace(0, 1, 50)[:, None]
        circle = (np.sin((1 - t) * omega) * a + np.sin(t * omega) * b) / np.sin(omega)
        panel.plot(*circle[:, :2].T, color="#ee7733", lw=4, alpha=0.5)
        panel.plot(*(model.predict(path) @ axes)[:, :2].T, color="#332288", lw=1.6)
        middle = circle[25, :2]
        panel.text(
            *(0.82 * middle), f"{model.length(path):.2f} / {omega:.2f}", fontsize=8, ha="center", va="center"
        ).set_bbox({"fc": "white", "ec": "none", "pad": 1})
    panel.set(aspect="equal", xticks=[], yticks=[])
    panel.spines[:].set_visible(False)
    return figure


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
