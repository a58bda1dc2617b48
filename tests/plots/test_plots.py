"""Figures hold the numbers they claim to show."""

import io
import subprocess
import sys
from types import SimpleNamespace

import matplotlib
import numpy as np
import pytest
import torch

from sasgp import plots
from sasgp.errors import InputError
from sasgp.plots.latent import GRID
from sasgp.plots.style import PALETTE


def decoder(Q=2, D=6, n=40):
    """A stand-in whose mean and standard deviation at z are known: mean_d = Σz + d / D, std = 1 + |z|²."""

    def predict(Z, return_std=False):
        mean = np.sum(Z, 1, keepdims=True) + np.arange(D) / D
        return (mean, np.repeat(1 + np.sum(np.square(Z), 1, keepdims=True), D, axis=1)) if return_std else mean

    Z = np.random.default_rng(0).normal(size=(n, Q))
    found = SimpleNamespace(n_components_=Q, n_features_in_=D, n_scores_=D, columns_=None, embedding_=Z)
    found.predict_scores = lambda *args, **kwargs: found.predict(*args, **kwargs)  # which a test may replace
    found.predict = predict
    return found


def points(figure):
    """All points of the first panel, sorted."""
    found = np.concatenate([np.asarray(scatter.get_offsets()) for scatter in figure.axes[0].collections])
    return found[np.lexsort(found.T)]


def legend(figure):
    return [text.get_text() for text in figure.axes[0].get_legend().get_texts()]


def colours(figure):
    """Colour of every point of the first panel, by its position."""
    found = {}
    for scatter in figure.axes[0].collections:
        found |= {
            tuple(z): tuple(c) for z, c in zip(scatter.get_offsets(), scatter.get_facecolors()[:, :3], strict=True)
        }
    return found


def centres(extent, n):
    low, high = extent
    return low + (high - low) * (np.arange(n) + 0.5) / n


@pytest.mark.parametrize(("Q", "axes"), [(2, (0, 1)), (4, (3, 1))])
def test_points_are_the_latents_and_the_background_is_the_standard_deviation(Q, axes):
    model = decoder(Q)
    figure = plots.latent_space(model, axes=axes)
    Z = model.embedding_[:, list(axes)]
    np.testing.assert_array_equal(points(figure), Z[np.lexsort(Z.T)])

    image = figure.axes[0].images[0]
    left, right, bottom, top = image.get_extent()
    u, v = np.meshgrid(centres((left, right), GRID), centres((bottom, top), GRID))
    np.testing.assert_allclose(image.get_array(), 1 + u**2 + v**2)  # the other dimensions are at 0
    assert left <= Z[:, 0].min()
    assert Z[:, 1].max() <= top
    assert image.origin == "lower"
    assert figure.axes[0].get_xlabel().startswith(f"$z_{{{axes[0]}}}$")


def test_points_of_a_class_have_one_colour_and_the_legend_names_it():
    model, labels = decoder(), np.array(["cat", "dog"] * 20)
    figure = plots.latent_space(model, labels=labels)
    assert legend(figure) == ["cat", "dog"]
    found = colours(figure)
    cats, dogs = ({found[tuple(z)] for z in model.embedding_[labels == name]} for name in ("cat", "dog"))
    assert len(cats) == len(dogs) == 1
    assert cats != dogs
    handle = figure.axes[0].get_legend().legend_handles[0]
    assert handle.get_color() == PALETTE[0]


def test_other_points_than_those_of_training_can_be_shown():
    Z = np.array([[0.0, 1.0], [2.0, 3.0]])
    np.testing.assert_array_equal(points(plots.latent_space(decoder(), Z, [7, 8])), Z)


def test_thirty_classes_differ_by_colour_or_marker():
    figure = plots.latent_space(decoder(), labels=np.arange(40) % 30)
    assert legend(figure) == [str(i) for i in range(30)]
    looks = {(handle.get_color(), handle.get_marker()) for handle in figure.axes[0].get_legend().legend_handles}
    assert len(looks) == 30


def test_of_forty_names_the_most_frequent_twenty_nine_have_a_colour():
    names = [f"name {i:02d}" for i in range(40)]
    labels = names + names[11:] * 2  # the last 29 are three times as frequent
    figure = plots.latent_space(decoder(n=len(labels)), labels=labels)
    assert legend(figure) == [*names[11:], "11 others"]
    assert len(points(figure)) == len(labels)


def test_long_names_keep_both_ends():
    labels = ["a name that never seems to end, part 1", "a name that never seems to end, part 2"] * 20
    first, second = legend(plots.latent_space(decoder(), labels=labels))
    assert first != second
    assert len(first) <= 26


@pytest.mark.parametrize("labels", [np.linspace(0, 1, 40), np.arange(40)], ids=["fractions", "many integers"])
def test_numbers_have_a_scale_instead_of_a_legend(labels):
    model = decoder()
    figure = plots.latent_space(model, labels=labels)
    assert figure.axes[0].get_legend() is None
    found = colours(figure)
    assert found[tuple(model.embedding_[0])] == pytest.approx((0.267, 0.005, 0.329), abs=1e-3)  # where viridis begins
    assert found[tuple(model.embedding_[-1])] == pytest.approx((0.993, 0.906, 0.144), abs=1e-3)  # and where it ends


def test_one_dimension_is_a_strip_with_a_line_for_every_class():
    model, labels = decoder(Q=1), np.arange(40) % 3
    figure = plots.latent_space(model, labels=labels)
    (scatter,) = figure.axes[0].collections
    lines = {z: round(y) for z, y in scatter.get_offsets()}
    assert [lines[z] for z in model.embedding_[:, 0]] == list(labels)
    assert [tick.get_text() for tick in figure.axes[0].get_yticklabels()] == ["0", "1", "2"]
    image = figure.axes[0].images[0]
    expected = 1 + centres(image.get_extent()[:2], GRID) ** 2
    np.testing.assert_allclose(image.get_array(), expected[None])


def test_one_dimension_against_labels_that_are_numbers():
    model, labels = decoder(Q=1), np.linspace(5, 6, 40)
    found = points(plots.latent_space(model, labels=labels))
    np.testing.assert_allclose(found, np.column_stack([model.embedding_[:, 0], labels]))


def test_decoded_tiles_are_the_means_with_the_highest_z1_on_top():
    model = decoder(D=6)
    model.predict = lambda Z, return_std: (
        np.clip(0.5 + 0.1 * Z[:, 1:] + np.zeros(6), 0, 1),
        np.ones((len(Z), 6)),
    )  # as certain everywhere: nothing fades
    figure = plots.decoded_grid(model, (2, 3), n=4)
    image = figure.axes[0].images[0]
    # A margin of one pixel around each: tiles are 4 × 5
    tiles = np.asarray(image.get_array()).reshape(4, 4, 4, 5, 3).swapaxes(1, 2)
    assert (tiles[:, :, 0] == 1).all()
    _, _, bottom, top = image.get_extent()
    expected = 0.5 + 0.1 * centres((bottom, top), 4)[::-1]
    np.testing.assert_allclose(tiles[:, :, 1:-1, 1:-1, 0], np.broadcast_to(expected[:, None, None, None], (4, 4, 2, 3)))


def test_tiles_fade_where_the_decoder_is_uncertain():
    model = decoder(D=4)
    model.predict = lambda Z, return_std: (np.full((len(Z), 4), 0.5), np.where(Z[:, :1] > 0, 2.0, 1.0) + np.zeros(4))
    model.embedding_ = np.array([[-1.0, -1.0], [1.0, 1.0]])
    tiles = np.asarray(plots.decoded_grid(model, (2, 2), n=2).axes[0].images[0].get_array())
    assert tiles[1, 1, 0] == pytest.approx(0.5)  # left: certain
    assert tiles[1, 5, 0] == pytest.approx(1)  # right: white


@pytest.mark.parametrize("shape", [(3, 2, 5), (2, 5, 3)])
def test_colour_planes_may_come_first_or_last(shape):
    row = np.linspace(0, 1, 30)
    sheet = np.asarray(plots.contact_sheet(row[None], shape).axes[0].images[0].get_array())
    image = row.reshape(shape)
    np.testing.assert_allclose(sheet, np.moveaxis(image, 0, -1) if shape[0] == 3 else image)


def test_bytes_and_unit_colours_look_the_same():
    row = np.random.default_rng(0).random((1, 12))
    sheets = [plots.contact_sheet(row * scale, (2, 2, 3)).axes[0].images[0].get_array() for scale in (1, 255)]
    np.testing.assert_allclose(*sheets)


def test_a_contact_sheet_holds_every_row_in_order():
    X = np.repeat(np.linspace(0.4, 0.8, 5)[:, None], 4, axis=1)
    sheet = np.asarray(plots.contact_sheet(X, (2, 2)).axes[0].images[0].get_array())[..., 0]
    # Three columns; white between the images, and where the sixth would be
    np.testing.assert_allclose(sheet[0, ::3], X[:3, 0])
    np.testing.assert_allclose(sheet[3, ::3], [*X[3:, 0], 1])
    assert (sheet[2] == 1).all()


def test_both_panels_show_the_same_part_of_the_space():
    left, right = plots.latent_with_images(decoder(), (2, 3), n=3).axes[:2]
    assert left.images[0].get_extent() == right.images[0].get_extent()
    above, below = plots.latent_with_images(decoder(Q=1), (2, 3), n=3).axes[:2]
    assert above.images[0].get_extent()[:2] == below.images[0].get_extent()[:2]


def test_rows_that_are_no_images_are_bars_as_high_as_their_values():
    model = decoder(D=3)
    model.predict = lambda Z, return_std: (Z[:, :1] * [1, -1, 0], np.ones((len(Z), 3)))
    tiles = np.asarray(plots.decoded_grid(model, n=2).axes[0].images[0].get_array())
    # Two by two pictures of 24 × 6 pixels with a margin of 2: bars grow to the right, fall, and stay
    inked = (tiles.reshape(2, 28, 2, 10, 3)[..., 0] < 1).swapaxes(1, 2)[:, :, 2:-2, 2:-2].sum(2)
    np.testing.assert_array_equal(inked[:, 0], [[1, 1, 24, 24, 1, 1]] * 2)
    np.testing.assert_array_equal(inked[:, 1], [[24, 24, 1, 1, 1, 1]] * 2)


def test_images_stand_above_their_reconstruction():
    model = decoder(D=4)
    X = np.linspace(0.4, 1, 12).reshape(3, 4)
    model.predict = lambda Z, return_std: (1.4 - X, np.ones((3, 4)))
    figure = plots.reconstructions(model, X, np.zeros((3, 2)), image_shape=(2, 2))
    sheet = np.asarray(figure.axes[0].images[0].get_array())[..., 0]
    np.testing.assert_allclose(sheet[:2, 3:5].ravel(), X[1])
    np.testing.assert_allclose(sheet[3:5, 3:5].ravel(), 1.4 - X[1])


def test_a_row_of_a_table_lies_over_the_band_of_two_standard_deviations():
    model, X = decoder(D=3), np.arange(6.0).reshape(2, 3)
    model.transform = lambda X: X[:, :2]
    panel = plots.reconstructions(model, X, feature_names=["a", "b", "c"]).axes[1]
    mean, std = model.predict(X[:, :2], return_std=True)
    np.testing.assert_allclose([line.get_ydata() for line in panel.lines], [mean[1], X[1]])
    band = panel.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (mean[1].min() - 2 * std[1, 0], mean[1].max() + 2 * std[1, 0])
    assert [tick.get_text() for tick in panel.get_xticklabels()] == ["a", "b", "c"]


def test_relevance_is_the_spread_of_the_latents_in_lengthscales():
    from gpytorch.kernels import RBFKernel, ScaleKernel

    ard, shared = RBFKernel(ard_num_dims=2), RBFKernel(active_dims=(1,))
    ard.lengthscale, shared.lengthscale = torch.tensor([0.5, 4.0]), 2.0
    model = decoder()
    model.kernel_ = ScaleKernel(ard) + shared  # the second dimension has two: the shortest counts
    bars = [bar.get_width() for bar in plots.relevance(model).axes[0].patches]  # type: ignore[attr-defined]
    np.testing.assert_allclose(bars, model.embedding_.std(0) / [0.5, 2.0])


def test_training_curve_shows_the_negative_loss_and_the_noise():
    history = [{"epoch": i, "loss": 1 / i, "noise": 2.0**-i, "held_out_loss": 2 / i} for i in (1, 2, 3)]
    top, bottom = plots.training_curve(history).axes
    np.testing.assert_allclose([line.get_ydata() for line in top.lines], [[-1, -1 / 2, -1 / 3], [-2, -1, -2 / 3]])
    np.testing.assert_allclose(bottom.lines[0].get_ydata(), [1 / 2, 1 / 4, 1 / 8])
    assert len(plots.training_curve([{"epoch": 1, "loss": 2.0}]).axes) == 1


@pytest.mark.parametrize("Q", [1, 2, 3])
def test_every_figure_can_be_saved(tmp_path, Q):
    model = decoder(Q)
    model.embedding_ = np.zeros((3, Q))  # all points in one place, and nothing to scale by
    plots.latent_with_images(model, (2, 3), labels=["a", "b", "c"], title="title").savefig(tmp_path / "a.png")
    plots.latent_space(model, labels=[1.5, 2, np.nan]).savefig(tmp_path / "b.png")
    plots.contact_sheet(np.zeros((7, 6)), (6, 1)).savefig(tmp_path / "c.png")
    for name in "abc":
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda model: plots.latent_space(model, labels=[1, 2]), "one for each of the 40 points"),
        (lambda model: plots.latent_space(model, np.zeros((3, 5))), r"latents \[N, 2\]"),
        (lambda model: plots.latent_space(model, axes=(0, 2)), "dimensions from 0 to 1"),
        (lambda model: plots.decoded_grid(model, (3, 3)), "6 values"),
        (lambda model: plots.decoded_grid(model, (2, 3), n=0), "at least 1"),
        (lambda model: plots.training_curve([]), "Fit the model first"),
        (plots.relevance, "rbf-ard"),
        (lambda model: plots.reconstructions(model, np.zeros((0, 6))), "a few rows"),
    ],
)
def test_bad_input_is_named(draw, words):
    with pytest.raises(InputError, match=words):
        draw(decoder())


def test_pyplot_is_never_loaded():
    code = "import sys, sasgp.plots; sys.exit('matplotlib.pyplot' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.filterwarnings("ignore:Glyph .* missing from font")
@pytest.mark.parametrize("text", ["$x_{$", "$$", r"\$x_{$ $", r"$\frac$", "a$b", "_$x_{$", "half \udcff", "\x01\x7f"])
def test_text_of_the_user_is_no_formula(text):
    def drawn(figure):
        figure.savefig(io.BytesIO(), format="png", dpi=20)  # small: what is drawn does not matter, that it is does
        figure.savefig(io.BytesIO(), format="svg")
        return figure

    shown = text.replace("\udcff", "?").replace("$", r"\$")
    labels = np.array([text, "other"] * 20, dtype=object)
    figure = drawn(plots.latent_space(decoder(), labels=labels, title=text))
    assert shown in legend(figure)
    assert figure.get_suptitle() == shown
    strip = drawn(plots.latent_space(decoder(Q=1), labels=labels))
    assert shown in [label.get_text() for label in strip.axes[0].get_yticklabels()]
    drawn(plots.latent_with_images(decoder(), (2, 3), labels=labels, title=text))
    model = decoder(D=2)
    rows = drawn(plots.reconstructions(model, np.zeros((2, 2)), np.zeros((2, 2)), feature_names=[text, "b"]))
    assert rows.axes[0].get_xticklabels()[0].get_text() == shown


def test_an_escaped_dollar_is_drawn_as_a_dollar():
    content = io.BytesIO()
    with matplotlib.rc_context({"svg.fonttype": "none"}):  # text stays text
        plots.latent_space(decoder(), title=r"5 $ and \$ 6 $").savefig(content, format="svg")
    assert rb">5 $ and \$ 6 $<" in content.getvalue()


# ---- geometry ----


def curved(Q=2):
    """A stand-in whose volume element at z is 10^|z|², and whose geodesics bend through the origin."""
    model = decoder(Q)
    model.volume = lambda Z: 10 ** np.square(Z).sum(1)
    model.geodesic = lambda a, b: np.stack([a, np.zeros_like(a), b], 1)
    return model


@pytest.mark.parametrize(("Q", "axes"), [(2, (0, 1)), (4, (3, 1))])
def test_the_background_is_the_volume_element_and_paths_lie_on_it(Q, axes):
    model, rng = curved(Q), np.random.default_rng(1)
    paths = rng.normal(size=(2, 9, Q))
    figure = plots.geometry(model, paths=paths, axes=axes)
    panel = figure.axes[0]
    image = panel.images[0]
    x, y = centres(image.get_extent()[:2], GRID), centres(image.get_extent()[2:], GRID)
    np.testing.assert_allclose(image.get_array(), x[None] ** 2 + y[:, None] ** 2, atol=1e-9)
    drawn = [np.asarray(line.get_xydata()) for line in panel.lines]
    for path in paths[..., list(axes)]:
        for expected in (path, path[[0, -1]]):  # the path, and the straight line between its ends
            assert any(line.shape == expected.shape and np.allclose(line, expected) for line in drawn)
    Z = model.embedding_[:, list(axes)]
    np.testing.assert_allclose(points(figure), Z[np.lexsort(Z.T)])


def test_without_paths_some_are_found():
    model = curved()
    figure = plots.geometry(model, labels=np.arange(40) % 3, title="a title")
    bent = [line for line in figure.axes[0].lines if len(line.get_xydata()) == 3]
    assert len(bent) == 3
    assert legend(figure) == ["0", "1", "2"]


def test_geometry_says_what_it_needs():
    with pytest.raises(InputError, match="at least two latent dimensions"):
        plots.geometry(curved(1))
    with pytest.raises(InputError, match="needs a Gaussian process"):
        plots.geometry(decoder())
    with pytest.raises(InputError, match=r"paths must have shape \[R, n, 2\]. Got \(2, 3, 3\)"):
        plots.geometry(curved(), paths=np.zeros((2, 3, 3)))


def test_a_style_with_a_grid_does_not_cover_pictures():
    # plots.STYLE has a grid, as seaborn's styles have. Behind points over an image, and in colour bars, it has no place
    with matplotlib.rc_context(plots.STYLE | {"axes.grid": True}):
        drawn = [
            plots.latent_space(decoder()),
            plots.decoded_grid(decoder(), (2, 3)),
            plots.contact_sheet(np.eye(6), (2, 3)),
        ]
    for figure in drawn:
        panels = [*figure.axes, *(inset for axes in figure.axes for inset in axes.child_axes)]
        panels = [axes for axes in panels if axes.axison]
        lines = [line for axes in panels for line in (*axes.get_xgridlines(), *axes.get_ygridlines())]
        assert not any(line.get_visible() for line in lines)
    assert [entry["color"] for entry in plots.STYLE["axes.prop_cycle"]] == list(PALETTE)  # "C3" is class 3
