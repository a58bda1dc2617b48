"""The explorer's tools in a real Chromium, used as a person does: search, colours, tooltips, selections, links, paths.

Tests share a browser and, mostly, one page, which is loaded again for each of them.
"""

import csv
import io

import numpy as np
import pytest
import torch
from chromium import needs_chromium, overlapping
from explorer_models import KERNELS, Decoder, OwnKernel
from test_explorer_browser import inside

from sasgp.explorer import explore
from sasgp.gp.row_sums import condition as given_rows

pytestmark = needs_chromium

N = 200
KINDS = np.array(["heron", "gull", "tern"])


class Birds:
    """A page with labels, ids, a column of each kind and six features, and the model that it shows."""

    def __init__(self, folder):
        self.model = Decoder(KERNELS["rbf"]())
        Z = self.model.embedding_
        self.kind = np.argmax(Z @ [[1, 0, -1], [0, 1, -1]], 1)  # three regions of the plane
        self.columns = {
            "weight in grams without feathers": 10 + 3 * Z[:, 0].astype(np.float64),
            "ring": [f"ring {i:03d}" for i in range(N)],
            "seen": np.datetime64("2020-01-01") + np.arange(N),
        }
        self.ids = [f"bird-{i:03d}" for i in range(N)]
        self.explorer = explore(
            self.model,
            self.model.X,
            labels=KINDS[self.kind],
            columns=self.columns,
            ids=self.ids,
            rows=1000 + np.arange(N),
            feature_names=["wing", "tail", "bill", "leg", "eye", "song"],
            title="birds",
        )
        self.path = self.explorer.save(folder / "birds.html")

    def on(self, page, fragment="", width=1280, height=800):
        page.window(width, height)
        page.driver.get("about:blank")
        page.driver.get(self.path.as_uri() + fragment)
        page.until("return document.documentElement.dataset.ready === 'true' && !explorer.plot.pending")
        page.settle()
        return page


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    return Birds(tmp_path_factory.mktemp("birds"))


def texts(page, selector):
    return page.js("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)


def focused(page):
    return page.js("return document.activeElement.id")


# ---------------------------------------------------------------------------------------------------- search, colours


def test_search_finds_rows_ids_classes_and_features(page, birds):
    from selenium.webdriver import Keys

    birds.on(page)
    page.js("document.body.focus()")
    page.keys("/")
    assert focused(page) == "search"
    page.keys("1007")
    assert texts(page, "#hits [role=option] .name") == ["bird-007"]
    page.keys(Keys.ENTER)
    np.testing.assert_allclose(page.said()[0], birds.model.embedding_[7])
    assert page.js("return explorer.pinned")
    assert "bird-007" in texts(page, "#tooltip")[0]

    page.type("#search", "bird-04")
    assert texts(page, "#hits [role=option] .name") == [f"bird-{i:03d}" for i in range(40, 50)]
    page.keys(Keys.ARROW_DOWN, Keys.ARROW_DOWN, Keys.ARROW_UP)  # from the first to the second
    assert page.js("return document.getElementById('search').getAttribute('aria-activedescendant')") == "hits-1"
    page.keys(Keys.ENTER)
    np.testing.assert_allclose(page.said()[0], birds.model.embedding_[41])

    page.type("#search", "GULL")
    gulls = np.flatnonzero(birds.kind == 1)
    assert texts(page, "#hits [role=option]") == [f"label: gullselect {len(gulls)} rows"]
    page.keys(Keys.ENTER)
    assert page.js("return explorer.selection.rows") == gulls.tolist()

    page.type("#search", "son")
    page.press("#hits [role=option]")
    assert page.js("return explorer.column.name") == "song"
    page.type("#search", "no such thing")
    assert texts(page, "#hits li") == ["nothing found"]
    page.keys(Keys.ESCAPE)
    assert focused(page) == "stage"
    assert not page.js("return document.getElementById('hits').checkVisibility()")

    page.type("#search", "bird")  # many hits are counted
    assert texts(page, "#hits .more") == [f"and {N - 60} more"]


def test_a_row_that_is_out_of_view_or_hidden_comes_into_it(page, birds):
    from selenium.webdriver import Keys

    birds.on(page)
    row = int(np.argmax(birds.model.embedding_[:, 0]))
    page.js("explorer.plot.viewport.look([-30, -30], 1)")
    page.js("explorer.plot.toggle(explorer.column.codes[arguments[0]])", row)
    page.type("#search", birds.ids[row])
    page.keys(Keys.ENTER)
    z, view = birds.model.embedding_[row], page.js("return explorer.plot.view()")
    assert view["x"][0] < z[0] < view["x"][1]
    assert view["y"][0] < z[1] < view["y"][1]
    assert page.js("return explorer.plot.isShown(arguments[0])", row)


def test_colours_by_any_column_from_a_list_that_can_be_searched(page, birds):
    from selenium.webdriver import Keys

    birds.on(page)
    page.press("#colour")
    names = ["label", *birds.columns, "wing", "tail", "bill", "leg", "eye", "song"]
    assert texts(page, "#colours [role=option] .name") == names
    page.keys("weig", Keys.ENTER)
    assert page.js("return explorer.column.name") == "weight in grams without feathers"
    assert page.js("return document.getElementById('colour').value") == "weight in grams without feathers"
    values = birds.columns["weight in grams without feathers"]
    assert texts(page, "#legend") == [f"weight in grams without feathers {values.min():.3g}{values.max():.3g}"]
    # The lowest and the highest have the ends of the scale
    for row, colour in ((values.argmin(), [68, 1, 84]), (values.argmax(), [253, 231, 37])):
        drawn = "const { at, colour, count } = explorer.plot.points.marks;"
        drawn += "for (let k = 0; k < count; k++) if (at[2 * k] === explorer.plot.x(arguments[0])) "
        assert page.js(drawn + "return [...colour.slice(4 * k, 4 * k + 3)]", int(row)) == colour
    page.type("#colour", "seen")
    page.keys(Keys.ENTER)
    assert "2020-01-01" in texts(page, "#legend")[0]
    page.type("#colour", "ring")  # text with more values than there are colours
    page.keys(Keys.ENTER)
    assert texts(page, "#legend button")[-1] == "171 others"
    page.press("#colour")
    page.keys("zzz", Keys.ESCAPE)  # nothing changes
    assert page.js("return document.getElementById('colour').value") == "ring"


@pytest.mark.parametrize("kernel", [KERNELS["rbf"], OwnKernel], ids=["exact", "grid"])
def test_features_without_a_column_are_decoded(page, tmp_path, kernel):
    from selenium.webdriver import Keys

    model = Decoder(kernel())
    names = ["wing", "tail", "bill", "leg", "eye", "song"]
    page.open(explore(model, labels=["a", "b"] * 100, feature_names=names), tmp_path / "x.html")  # without rows
    page.type("#search", "bil")
    page.keys(Keys.ENTER)
    page.until("return explorer.column.name === 'bill (decoded)'")
    found = page.js("return [...explorer.column.values]")
    np.testing.assert_allclose(
        found, model.predict(model.embedding_)[:, 2], atol=1e-3 if kernel is not OwnKernel else 0.02
    )
    assert texts(page, "#hint")[0].startswith("Drag")
    link = page.driver.execute_async_script("linkOf(explorer).then(arguments[0])")
    page.driver.get("about:blank")
    page.driver.get(link)
    page.until("return document.documentElement.dataset.ready === 'true'")
    assert page.js("return explorer.column.name") == "bill (decoded)"
    page.until("return !explorer.plot.pending")


def test_classes_have_the_colours_of_the_pictures(page, birds):
    from matplotlib.colors import to_rgb

    from sasgp import plots

    birds.on(page)
    labels = KINDS[birds.kind]
    figure = plots.latent_space(birds.model, birds.model.embedding_, labels)
    legend = figure.axes[0].get_legend()
    pictures = {
        text.get_text(): to_rgb(handle.get_color())
        for text, handle in zip(legend.get_texts(), legend.legend_handles, strict=True)
    }
    fill = "return [...document.querySelectorAll('#legend button')].map((b) => "
    fill += "[b.textContent, b.querySelector('path').getAttribute('fill')])"
    assert {name: to_rgb(colour) for name, colour in page.js(fill)} == pictures


# ---------------------------------------------------------------------------------------------------- the points


def test_a_tooltip_has_the_values_of_the_row_at_the_pointer(page, birds):
    from selenium.webdriver import Keys

    birds.on(page)
    Z = birds.model.embedding_
    row = int(
        np.argmax(np.sort(np.linalg.norm(Z[:, None] - Z, axis=2) + 9 * np.eye(N), 1)[:, 0] * (np.abs(Z).max(1) < 2))
    )
    page.hover(*Z[row].tolist())
    lines = dict(zip(texts(page, "#tooltip dt"), texts(page, "#tooltip dd"), strict=True))
    assert texts(page, "#tooltip strong") == [birds.ids[row]]
    assert lines["label"] == KINDS[birds.kind[row]]
    assert lines["row"] == str(1000 + row)
    assert lines["ring"] == f"ring {row:03d}"
    assert lines["seen"] == str(birds.columns["seen"][row])
    assert float(lines["wing"]) == pytest.approx(birds.model.X[row, 0], rel=1e-3)
    page.hover(-2.9, 2.9)  # where there is no point
    assert not page.js("return document.getElementById('tooltip').checkVisibility()")
    # By keyboard: the pointer steps onto a point
    page.js("explorer.pointAt(arguments[0], arguments[1]); explorer.plot.stage.focus()", *Z[row].tolist())
    page.keys(Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert birds.ids[row] in texts(page, "#tooltip")[0]


def test_a_tooltip_of_an_image_shows_it(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), D=20)
    page.open(explore(model, model.X, image_shape=(4, 5)), tmp_path / "x.html")
    page.hover(*model.embedding_[3].tolist())
    pixels = page.js(
        "return [...document.querySelector('#tooltip canvas').getContext('2d').getImageData(0, 0, 5, 4).data]"
    )
    row = page.js("return explorer.plot.tooltip.row")
    expected = 255 * (model.X[row] - model.X.min()) / np.ptp(model.X)
    assert np.abs(np.array(pixels).reshape(20, 4)[:, 0] - expected).max() <= 2


def test_size_opacity_labels_and_contours_on_request(page, birds):
    from selenium.webdriver import Keys

    birds.on(page)
    look = "const { look, colour } = explorer.plot.points.marks; return [look[0], colour[3]]"
    size, opacity = page.js(look)
    page.press("#options")
    page.js("document.getElementById('size').focus()")
    page.keys(*[Keys.ARROW_RIGHT] * 4)
    page.js("document.getElementById('opacity').focus()")
    page.keys(*[Keys.ARROW_LEFT] * 20)
    larger, fainter = page.js(look)
    assert larger == pytest.approx(size * 3**0.2, rel=1e-5)  # four steps of 1/20, where 1 is three times as large
    assert fainter == pytest.approx(opacity - 0.2 * 255, abs=3)

    drawn = "const { width, height } = explorer.plot.drawing; const copy = element('canvas', { width, height });"
    drawn += (
        "const pen = copy.getContext('2d', { willReadFrequently: true }); pen.drawImage(explorer.plot.drawing, 0, 0);"
    )
    drawn += "return pen.getImageData(0, 0, width, height).data.reduce((n, v) => n + (v > 0), 0)"
    assert page.js(drawn) == 0
    page.press("#labels")
    assert sorted(page.js("return explorer.plot.density.labelled")) == sorted(KINDS)
    for place in page.js("return explorer.plot.density.clusters()"):  # each in its region of the plane
        assert KINDS[np.argmax(place["at"] @ np.array([[1, 0, -1], [0, 1, -1]]))] == place["text"]
    some = page.js(drawn)
    assert some > 0
    page.press("#contours")
    assert page.js(drawn) > some
    page.press("#legend button")  # the names of hidden classes are hidden, too
    page.settle()
    assert len(page.js("return explorer.plot.density.labelled")) == 2
    # A contour holds its share of the points: 90 % of a class lie where the density is above the threshold
    share = "const group = explorer.plot.density.groups()[0]; const level = threshold(group, 0.9);"
    assert page.js(
        share + "return group.cells.filter((c) => group.values[c] >= level).length / group.index.length"
    ) == (pytest.approx(0.9, abs=0.03))


def test_points_fade_with_their_distance_from_the_slice(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), Q=3)
    page.open(explore(model, model.X), tmp_path / "x.html")

    def opacities():
        alpha = "const m = explorer.plot.points.marks; const found = {};"
        alpha += "for (let k = 0; k < m.count; k++) found[m.at[2 * k]] = m.colour[4 * k + 3];"
        return page.js(alpha + "return Array.from({ length: 200 }, (_, i) => found[explorer.plot.x(i)])")

    distance = np.abs(model.embedding_[:, 2])
    order = np.argsort(distance)
    assert (np.diff(np.array(opacities())[order]) <= 0).all()
    assert opacities()[order[0]] > 3 * opacities()[order[-1]]
    page.js("const s = document.querySelectorAll('#axes input')[2]; s.value = 1.5; s.dispatchEvent(new Event('input'))")
    order = np.argsort(np.abs(model.embedding_[:, 2] - page.said()[0][2]))
    assert (np.diff(np.array(opacities())[order]) <= 0).all()
    page.press("#options")
    page.press("#fade")
    assert len(set(opacities())) == 1


def under(page, x, y):
    """The place of the plane at a pixel of the plot."""
    return np.array(page.js("return explorer.plot.viewport.toPlane(arguments[0], arguments[1])", x, y))


def test_dragging_pans_and_the_wheel_zooms_at_the_pointer(page, birds):
    from selenium.webdriver import ActionChains

    birds.on(page)
    box = page.js("const b = explorer.plot.area.getBoundingClientRect(); return [b.left, b.top]")
    start, unit = under(page, 200, 150), page.js("return explorer.plot.viewport.unit[0]")
    actions = ActionChains(page.driver, duration=20)
    pointer = actions.w3c_actions.pointer_action
    pointer.move_to_location(round(box[0]) + 200, round(box[1]) + 150)
    pointer.pointer_down()
    pointer.move_to_location(round(box[0]) + 290, round(box[1]) + 110)
    pointer.pointer_up()
    actions.perform()
    np.testing.assert_allclose(under(page, 290, 110), start, atol=1.5 * unit)  # what was taken is under the pointer
    assert not page.js("return explorer.pinned")  # a drag is no click

    before = under(page, 290, 110)
    wheel = {"type": "mouseWheel", "x": box[0] + 290, "y": box[1] + 110, "deltaX": 0, "deltaY": -300}
    page.driver.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)
    page.until(f"return explorer.plot.viewport.unit[0] < 0.9 * {unit}")
    np.testing.assert_allclose(under(page, 290, 110), before, atol=1.5 * unit)
    page.press("#reset")
    assert page.js("return explorer.plot.viewport.unit[0]") == pytest.approx(unit)
    page.until("return !explorer.plot.pending")


def test_two_fingers_zoom_and_one_pins(page, birds):
    birds.on(page, width=390, height=844)
    box = page.js("const b = explorer.plot.area.getBoundingClientRect(); return [b.left, b.top]")

    def touch(kind, *places):
        points = [{"x": box[0] + x, "y": box[1] + y, "id": i} for i, (x, y) in enumerate(places)]
        page.driver.execute_cdp_cmd("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points})

    unit, middle = page.js("return explorer.plot.viewport.unit[0]"), under(page, 150, 150)
    touch("touchStart", (130, 150))
    touch("touchStart", (130, 150), (170, 150))
    touch("touchMove", (110, 150), (190, 150))
    touch("touchEnd")
    # Twice as far apart: half the unit, around the middle
    assert page.js("return explorer.plot.viewport.unit[0]") == pytest.approx(unit / 2, rel=0.05)
    np.testing.assert_allclose(under(page, 150, 150), middle, atol=12 * unit)
    assert not page.js("return explorer.pinned")
    place = under(page, 100, 120)
    touch("touchStart", (100, 120))
    touch("touchEnd")
    page.until("return explorer.pinned")
    np.testing.assert_allclose(page.said()[0], place, atol=2 * unit)
    page.until("return !explorer.plot.pending")


# ---------------------------------------------------------------------------------------------------- selections


def lasso(page, corners):
    page.press("[data-mode=select]")
    page.mouse(corners[0], "down", *corners[1:], corners[0], "up")


def test_a_selection_says_what_distinguishes_it(page, birds):
    birds.on(page)
    corners = [(0.5, -3), (3.5, -3), (3.5, 3), (0.5, 3)]
    lasso(page, corners)
    page.settle()
    assert page.js("return explorer.plot.lassoLine") is None
    chosen = np.array(page.js("return explorer.selection.rows"))
    assert abs(len(chosen) - inside(corners, birds.model.embedding_).sum()) <= 3
    assert texts(page, "#selected") == [f"{len(chosen)} of {N} rows"]

    names, counts = np.unique(KINDS[birds.kind[chosen]], return_counts=True)
    order = np.argsort(-counts, kind="stable")
    assert texts(page, ".mix .name") == names[order].tolist()
    bars = page.js("return [...document.querySelectorAll('.mix i')].map((b) => parseFloat(b.style.width))")
    np.testing.assert_allclose(bars, 100 * counts[order] / len(chosen), atol=0.01)

    # The difference of means in standard deviations of all rows, the largest first
    rest = np.setdiff1d(np.arange(N), chosen)
    features = {"weight in grams without feathers": birds.columns["weight in grams without feathers"]}
    features |= dict(zip(["wing", "tail", "bill", "leg", "eye", "song"], birds.model.X.T.astype(float), strict=True))
    features["seen"] = np.arange(N).astype(float)
    size = {name: (v[chosen].mean() - v[rest].mean()) / v.std() for name, v in features.items()}
    expected = sorted((name for name in size if abs(size[name]) >= 0.1), key=lambda name: -abs(size[name]))
    shown = [name for name in texts(page, ".differences:not(.mix) .name") if not name.startswith("ring")]
    assert shown == expected[: len(shown)]
    assert shown[0] == "weight in grams without feathers"
    assert len(shown) >= 3
    widths = page.js(
        "return [...document.querySelectorAll('.differences:not(.mix) i')].map((b) => parseFloat(b.style.width))"
    )
    assert widths[0] == pytest.approx(50)
    assert widths[1] == pytest.approx(50 * abs(size[shown[1]] / size[shown[0]]), abs=0.5)
    page.press(".differences:not(.mix) button")
    assert page.js("return explorer.column.name") == shown[0]


def test_selections_are_added_to_saved_and_named(page, birds):
    from selenium.webdriver import ActionChains, Keys

    birds.on(page)
    page.js("localStorage.clear()")
    lasso(page, [(0.5, 0.5), (3, 0.5), (3, 3), (0.5, 3)])
    first = page.js("return explorer.selection.rows")
    assert first
    page.type("#name", "the upper right")
    page.keys(Keys.ENTER)
    assert texts(page, "#kept .take") == [f"the upper right ({len(first)})"]
    ActionChains(page.driver).key_down(Keys.SHIFT).perform()
    corners = [(-3, -3), (-0.5, -3), (-0.5, -0.5), (-3, -0.5)]
    page.mouse(corners[0], "down", *corners[1:], corners[0], "up")
    ActionChains(page.driver).key_up(Keys.SHIFT).perform()
    both = page.js("return explorer.selection.rows")
    assert set(both) > set(first)
    page.type("#name", "both")
    page.press("#keep-it")
    page.press("#deselect")
    assert page.js("return explorer.selection.rows") == []

    birds.on(page)  # they are still there when the page is opened again
    assert texts(page, "#kept .take") == [f"the upper right ({len(first)})", f"both ({len(both)})"]
    page.press("#kept li:nth-child(2) .take")
    assert page.js("return explorer.selection.rows") == both
    page.press("#csv")
    lines = list(csv.DictReader(io.StringIO(page.downloaded("selection.csv").decode())))
    assert [line["id"] for line in lines] == [birds.ids[i] for i in both]
    assert {line["saved selections"] for line in lines} == {"both"}
    page.type("#colour", "saved")
    page.keys(Keys.ENTER)
    assert texts(page, "#legend button") == ["the upper right", "both", "in none"]
    page.press("#kept li:nth-child(2) .drop")
    page.press("#kept li:nth-child(1) .drop")
    assert texts(page, "#kept .take") == []
    assert page.js("return explorer.column.name") == "label"
    page.js("localStorage.clear()")


def test_images_show_the_mean_of_the_selection(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), D=20)
    page.open(explore(model, model.X, image_shape=(4, 5)), tmp_path / "x.html")
    rows = np.flatnonzero(model.embedding_[:, 0] > 0.3)
    page.js("explorer.selection.change(arguments[0])", rows.tolist())
    read = "return [...document.querySelectorAll('.means canvas')].map((c) =>"
    read += " [...c.getContext('2d').getImageData(0, 0, 5, 4).data])"
    for pixels, some in zip(page.js(read), (rows, np.setdiff1d(np.arange(N), rows)), strict=True):
        grey = np.array(pixels).reshape(20, 4)[:, 0]
        expected = 255 * (model.X[some].mean(0) - model.X.min()) / np.ptp(model.X)
        assert np.abs(grey - expected).max() <= 2


# ---------------------------------------------------------------------------------------------------- links


def state(page):
    return page.js(
        "const { centre, extent } = explorer.plot.viewport;"
        "return [[...centre, extent], explorer.column.name, explorer.selection.rows, [...explorer.plot.hidden],"
        " explorer.path.points, document.getElementById('route').value, explorer.look, explorer.pinned,"
        " [...explorer.z]]"
    )


def test_a_link_restores_the_view_and_all_that_was_chosen(page, birds):
    from selenium.webdriver import Keys

    birds.on(page)
    page.press("[data-mode=path]")
    page.mouse((-1, 0.2), "click", (1, 0.5), "click")
    page.until("return explorer.path.frames.length")
    lasso(page, [(0.5, 0.5), (3, 0.5), (3, 3), (0.5, 3)])
    page.type("#colour", "wing")
    page.keys(Keys.ENTER)
    page.press("#zoom-in")
    page.press("#options")
    page.press("#labels")
    page.js("const s = document.getElementById('size'); s.value = 0.5; s.dispatchEvent(new Event('input'))")
    page.js("const b = document.getElementById('background'); b.value = 'none'; b.dispatchEvent(new Event('change'))")
    page.press("[data-mode=look]")
    page.mouse((0.4, -0.3), "click")
    page.driver.execute_cdp_cmd("Browser.grantPermissions", {"permissions": ["clipboardReadWrite"]})
    page.press("#link")
    page.until("return document.getElementById('link').textContent === 'Copied'")
    link = page.driver.execute_async_script("navigator.clipboard.readText().then(arguments[0])")
    assert link == page.js("return location.href")
    before = state(page)

    birds.on(page, "#" + link.partition("#")[2])
    page.until("return explorer.path.frames.length")
    after = state(page)
    np.testing.assert_allclose(after[0], before[0], rtol=1e-5)
    assert after[1:4] == before[1:4]
    np.testing.assert_allclose(after[4], before[4], atol=2e-3)  # the ends are rounded to six digits
    assert after[5:8] == before[5:8]
    np.testing.assert_allclose(after[8], before[8], atol=1e-4)


def test_a_path_may_end_outside_of_the_view(page, birds):
    birds.on(page, "#view=0,0,0.5&path=-6,0.1;0.1,7&route=certain&frames=5")
    page.until("return explorer.path.frames.length === 5")
    np.testing.assert_allclose(np.array(page.js("return explorer.path.line"))[[0, -1]], [(-6, 0.1), (0.1, 7)])


def test_hidden_classes_and_other_axes_are_in_the_link(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), Q=3)
    path = tmp_path / "x.html"
    page.open(explore(model, model.X, labels=np.array(["a", "b", "c"])[np.arange(N) % 3]), path)
    page.press("#legend button:nth-child(2)")
    page.js("const s = document.querySelectorAll('#axes select')[0]; s.value = 2; s.dispatchEvent(new Event('change'))")
    page.js("const s = document.querySelectorAll('#axes input')[0]; s.value = 0.7; s.dispatchEvent(new Event('input'))")
    link = page.driver.execute_async_script("linkOf(explorer).then(arguments[0])")
    z = page.said()[0]
    page.driver.get("about:blank")
    page.driver.get(link)
    page.until("return document.documentElement.dataset.ready === 'true' && !explorer.plot.pending")
    assert page.js("return [explorer.axes, [...explorer.plot.hidden]]") == [[2, 1], [1]]
    np.testing.assert_allclose(page.said()[0], z, atol=1e-4)


@pytest.mark.parametrize(
    "fragment",
    [
        "#view=1,2&axes=7,9&z=NaN,1&colour=<img src=x onerror=document.title='pwned'>&hide=99,-1,__proto__&frames=1e9",
        "#view=Infinity,0,1&z=1e99,0&pin=1&select=AAAA&path=1,2;3&route=evil&size=1e9&opacity=-4&background=__proto__",
        "#view=0,0,-1&select=%FF%FE&path=0,0;javascript:alert(1)&labels=yes&colour=constructor&theme=x",
        "#<script>document.title='pwned'</script>",
        "#" + "select=" + "A" * 300_000,
    ],
)
def test_hostile_fragments_are_ignored(page, birds, fragment):
    birds.on(page, fragment)
    view, column, rows, hidden, points, _, look, pinned, z = state(page)
    assert (column, rows, hidden, points, pinned) == ("label", [], [], [], None)
    assert np.abs(view).max() < 20
    assert np.abs(z).max() < 4
    assert 0.05 <= look["opacity"] <= 1
    assert -1 <= look["size"] <= 1
    assert look["background"] == "sd"


def test_a_selection_that_unpacks_to_too_much_is_ignored(page, birds):
    # Ten million letters are ten kilobytes in a link
    code = "squeezed('5k.' + '0.'.repeat(5e6)).then(arguments[0])"
    birds.on(page)
    squeezed = page.driver.execute_async_script(code)
    assert len(squeezed) < 100_000
    stretched = "stretched(arguments[0], arguments[1]).then((text) => arguments[2](text.length))"
    assert page.driver.execute_async_script(stretched, squeezed, 8 * N) == 0
    assert page.driver.execute_async_script(stretched, squeezed, 2e7) == 3 + 1e7
    birds.on(page, f"#select={squeezed}")
    assert page.js("return explorer.selection.rows") == []


# ---------------------------------------------------------------------------------------------------- geometry


class Naive:
    """Distances in the data of a decoder, from its posterior's numbers, in float64."""

    def __init__(self, posterior):
        self.kernel, self.U = posterior.kernel, posterior.Z.double()
        self.alpha, self.root = posterior.alpha.double().numpy(), posterior.root.double().numpy()
        self.weight = posterior.scales.double().expand(self.alpha.shape[1]).square().sum().item()

    def k(self, A, B):
        with torch.no_grad():
            return self.kernel(torch.as_tensor(A), torch.as_tensor(B)).to_dense().double().numpy()

    def squared(self, A, B):
        """E‖f(a) − f(b)‖² [n] of each pair of rows, from the joint covariance."""
        KA, KB = self.k(A, self.U), self.k(B, self.U)
        mean = np.square((KA - KB) @ self.alpha).sum(1)
        with torch.no_grad():
            A, B = torch.as_tensor(A), torch.as_tensor(B)
            aa, bb, ab = (self.kernel(x, y, diag=True).double().numpy() for x, y in ((A, A), (B, B), (A, B)))
        doubt = aa + bb - 2 * ab - np.square((KA - KB) @ self.root.T).sum(1)
        return mean + self.weight * doubt

    def length(self, path, n=400):
        """The length of a path, as n small straight pieces."""
        path = np.asarray(path, dtype=np.float64)
        at = np.linspace(0, len(path) - 1, n + 1)
        fine = np.stack([np.interp(at, np.arange(len(path)), path[:, q]) for q in range(path.shape[1])], 1)
        return np.sqrt(np.maximum(self.squared(fine[:-1], fine[1:]), 0)).sum()

    def metric(self, z, h=1e-3):
        """G from squared distances of small steps: G_qr = ¼ (d²(e_q + e_r) − d²(e_q − e_r)) / h², central around z."""
        Q = len(z)
        G = np.empty((Q, Q))
        for q in range(Q):
            for r in range(Q):
                a, b = np.eye(Q)[q], np.eye(Q)[r]
                plus, minus = (
                    self.squared((z - h * step / 2)[None], (z + h * step / 2)[None])[0] for step in (a + b, a - b)
                )
                G[q, r] = (plus - minus) / (4 * h**2)
        return G


@pytest.mark.parametrize("kernel", ["rbf", "rbf-ard", "matern52", "matern32", "sum", "product"])
def test_the_metric_is_that_of_small_steps(page, birds, kernel):
    model = Decoder(KERNELS[kernel](), scales=torch.linspace(0.5, 2, 6))
    naive = Naive(model.posterior_)
    if not page.js("return typeof Geometry === 'function'"):
        birds.on(page)
    packed = explore(model).content["decoder"]
    Z = np.concatenate([model.embedding_[60:66].astype(np.float64), [[2.5, 2.0]]])
    read = "ExactDecoder.read(arguments[0], 2).then((d) => { const g = Geometry.of(d, arguments[0]);"
    read += "arguments[2](arguments[1].map((z) => [[...g.derivatives(Float64Array.from(z)).G], g.volume(z)])) })"
    for z, (G, volume) in zip(Z, page.driver.execute_async_script(read, packed, Z.tolist()), strict=True):
        expected = naive.metric(z)
        # A Matérn-3/2 kernel is 1 − u²/2 + O(u³), so that a step of a thousandth is off by about that; and T is rounded
        np.testing.assert_allclose(np.reshape(G, (2, 2)), expected, rtol=0, atol=6e-3 * np.abs(expected).max())
        assert volume == pytest.approx(np.sqrt(np.linalg.det(expected)), rel=1e-2)


def test_the_gradient_of_the_energy_is_that_of_small_steps(page, birds):
    birds.on(page)
    route = np.cumsum(np.random.default_rng(0).normal(scale=0.4, size=(5, 2)), 0)
    read = "const g = explorer.geometry, points = arguments[0].map((z) => g.at(Float64Array.from(z)));"
    read += "const slopes = points.map((p) => g.derivatives(p.z));"
    read += "return [1, 2, 3].map((i) => g.gradient(points, slopes, i))"
    found, naive, h = page.js(read, route.tolist()), Naive(birds.model.posterior_), 1e-4

    def energy(i, q, step):
        moved = route.copy()
        moved[i, q] += step
        return naive.squared(moved[:-1], moved[1:]).sum()

    expected = [[(energy(i, q, h) - energy(i, q, -h)) / (2 * h) for q in range(2)] for i in (1, 2, 3)]
    np.testing.assert_allclose(found, expected, atol=5e-3 * np.abs(expected).max())


def horseshoe(Q=2):
    """A decoder that knows a half circle: the straight way between its ends leads through the unknown."""
    model = Decoder(KERNELS["rbf"](), Q=Q, noise=1e-4)
    turn = np.linspace(0, np.pi, 60)
    Z = np.zeros((60, Q))
    Z[:, 0], Z[:, 1] = 2 * np.cos(turn), 3 * np.sin(turn)
    X = 0.15 * np.stack([np.cos(turn * k / 4 + k) for k in range(6)], 1)  # little changes along it
    model.embedding_, model.X = Z.astype(np.float32), X.astype(np.float32)
    old = model.posterior_
    Z, X = torch.from_numpy(model.embedding_), torch.from_numpy(model.X)
    model.posterior_ = given_rows(old.kernel, old.noise, Z, X, torch.zeros(6))
    return model


@pytest.mark.parametrize("Q", [2, 3])
def test_the_shortest_path_is_short_and_stays_where_the_data_are(page, tmp_path, Q):
    from scipy.optimize import minimize
    from selenium.webdriver import Keys

    model = horseshoe(Q)
    naive = Naive(model.posterior_)
    page.open(explore(model, model.X), tmp_path / "x.html", height=800)
    page.press("[data-mode=path]")
    assert page.js("return document.getElementById('route').value") == "shortest"
    page.js("explorer.plot.stage.focus(); explorer.pointAt(-2, 0)")
    page.keys(Keys.ENTER)
    page.js("explorer.pointAt(2, 0)")
    page.keys(Keys.ENTER)  # by keyboard
    page.until("return explorer.path.frames.length")
    line = np.array(page.js("return explorer.path.line"))
    np.testing.assert_allclose(line[[0, -1]], model.embedding_[[-1, 0]], atol=1e-6)
    straight, own = naive.length(line[[0, -1]]), naive.length(line)
    assert own < 0.8 * straight
    said = [float(word.rstrip(".;")) for word in texts(page, "#path-hint")[0].split() if word[0].isdigit()]
    np.testing.assert_allclose(said, [own, straight], rtol=0.03)
    # All its points are near the data, and more so than a straight line's
    distance = np.linalg.norm(line[:, None] - model.embedding_, axis=2).min(1)
    assert distance.max() < 0.5
    # Nothing near it has less energy: another method, started there, finds hardly anything shorter
    inner = line[1:-1]

    def energy(flat):
        path = np.concatenate([line[:1], flat.reshape(inner.shape), line[-1:]])
        return naive.squared(path[:-1], path[1:]).sum()

    found = minimize(energy, inner.ravel(), method="CG", options={"maxiter": 3})
    better = np.concatenate([line[:1], found.x.reshape(inner.shape), line[-1:]])
    assert naive.length(better) > 0.99 * own
    # Pictures along it are as far apart in the data as from each other
    points = np.array(page.js("return explorer.path.points"))
    pieces = [naive.length(points[i : i + 2], 20) for i in range(len(points) - 1)]
    assert np.std(pieces) < 0.15 * np.mean(pieces)
    # The other routes are one choice away
    for route in ("certain", "straight"):
        page.js(
            "const r = document.getElementById('route'); r.value = arguments[0]; r.dispatchEvent(new Event('change'))",
            route,
        )
        page.until(f"return explorer.path.line.length {'> 2' if route == 'certain' else '=== 2'}")


def test_the_volume_is_a_background(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    naive = Naive(model.posterior_)
    page.open(explore(model, model.X), tmp_path / "x.html")
    page.press("#options")
    page.js("const b = document.getElementById('background'); b.value = 'volume'; b.dispatchEvent(new Event('change'))")
    page.until(
        "return explorer.plot.fog === explorer.plot.fogs.volume && explorer.plot.fog.grid && !explorer.plot.pending"
    )
    n, axes, values = page.js("const { n, axes, values } = explorer.plot.fog.grid; return [n, axes, [...values]]")
    x, y = (np.linspace(*axis, n) for axis in axes)
    for column, line in ((n // 2, n // 2), (n // 3, n // 2), (0, 0)):
        expected = np.sqrt(np.linalg.det(naive.metric(np.array([x[column], y[line]]))))
        assert values[line * n + column] == pytest.approx(np.log10(expected), abs=0.01)
    assert texts(page, "#scale")[0].startswith("volume")
    page.js("const b = document.getElementById('background'); b.value = 'none'; b.dispatchEvent(new Event('change'))")
    assert texts(page, "#scale") == [""]


def test_the_first_volume_comes_with_the_page(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    model.volume = lambda Z: 10 ** np.asarray(Z)[:, 0]  # what the page shows is what Python says
    page.open(explore(model, model.X), tmp_path / "x.html")
    n, axes, values = page.js(
        "const { n, axes, values } = explorer.plot.fogs.volume.grid; return [n, axes, [...values]]"
    )
    np.testing.assert_allclose(values[:n], np.linspace(*axes[0], n), atol=1e-5)


def test_without_a_metric_the_other_routes_remain(page, tmp_path):
    model = Decoder(OwnKernel())
    page.open(explore(model, model.X), tmp_path / "x.html")
    assert page.js("return document.getElementById('route').value") == "certain"
    disabled = "return [...document.querySelectorAll('option:disabled')].map((o) => o.value)"
    assert sorted(page.js(disabled)) == ["shortest", "volume"]


# ---------------------------------------------------------------------------------------------------- looks


def test_names_of_features_are_whole_where_there_is_room(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    names = ["concentration of sodium", "b", "c", "temperature at noon", "e", "f"]
    page.open(explore(model, model.X, feature_names=names), tmp_path / "x.html")
    cut = "return [...document.querySelectorAll('.feature .name')].filter((n) => n.scrollWidth > n.clientWidth)"
    assert page.js(cut + ".length") == 0
    page.press("[data-mode=path]")
    page.mouse((-1, 0), "click", (1, 0.5), "click")
    page.until("return explorer.path.frames.length")
    wide = "const pen = document.getElementById('strip').getContext('2d');"
    assert page.js(wide + "return explorer.path.cells.left > pen.measureText('concentration of sodium').width")


def test_marks_stay_at_their_places_when_the_size_changes(page, birds):
    birds.on(page)
    page.press("[data-mode=path]")
    page.mouse((-1, 0.2), "click", (1, 0.5), "click")
    page.until("return explorer.path.frames.length")  # the strip takes room from the plot
    marks = "const { plot, path, z } = explorer; const read = (e) => [e.cx, e.cy].map((v) => v.baseVal.value);"
    marks += "return [[...plot.overlay.querySelectorAll('.end')].map(read), path.ends.map((z) => plot.screen(z))]"
    for height in (800, 600):
        page.window(1280, height)
        page.settle()
        drawn, expected = page.js(marks)
        np.testing.assert_allclose(drawn, expected, atol=0.01)


def test_bars_of_a_path_differ(page, birds):
    birds.on(page)
    page.press("[data-mode=path]")
    page.mouse((-1, 0.2), "click", (1, 0.5), "click")
    page.until("return explorer.path.frames.length")
    sds = np.array(page.js("return explorer.path.frames.map((f) => f.sd)"))
    bars = page.js("return explorer.path.cells.bars")
    share = (sds - sds.min()) / np.ptp(sds)
    np.testing.assert_allclose([bar["height"] for bar in bars], 4 + 26 * share, atol=1e-6)
    assert len({bar["text"] for bar in bars}) > 3
    np.testing.assert_allclose([float(bar["text"]) for bar in bars], sds, atol=0.13 * np.ptp(sds))


@pytest.mark.parametrize("width", [1280, 390])
def test_open_tools_cover_nothing(page, birds, width):
    birds.on(page, width=width)
    page.press("#options")
    page.js("explorer.selection.change(Array.from({ length: 50 }, (_, i) => i)); explorer.selection.keep('mine')")
    assert overlapping(page) == []
    assert page.js("return document.documentElement.scrollWidth") <= width
    page.js("localStorage.clear()")
