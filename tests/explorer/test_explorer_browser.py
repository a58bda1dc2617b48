"""The explorer in a real Chromium, without a network: what a person sees is what `predict` says, and nothing else runs.

Needs Debian's chromium and chromium-driver, and selenium; without them everything here is skipped and says why.
"""

import csv
import time

import numpy as np
import pytest
import torch
from chromium import HOSTILE, browser, needs_chromium, overlapping
from explorer_models import KERNELS, Decoder, OwnKernel
from gpytorch.kernels import RBFKernel

from sasgp.explorer import explore
from sasgp.gp.row_sums import condition as given_rows

pytestmark = needs_chromium


def agrees(said, model):
    """The promise: within 1e-3 of the data's range of what `predict` says at that z."""
    z, mean, sd = said
    expected, std = model.predict(z[None], return_std=True)
    assert np.abs(mean - expected[0]).max() < 1e-3 * np.ptp(model.X)
    assert abs(sd - std[0].mean()) < 1e-3 * np.ptp(model.X)


PLACES = [(0.3, -0.4), (-1.2, 0.8), (2.0, 1.1)]  # among the points, at their edge, and beyond


# ---------------------------------------------------------------------------------------------------- the decoder


@pytest.mark.parametrize("kernel", ["rbf", "matern32", "sum"])
@pytest.mark.parametrize("shape", [(4, 5), None], ids=["images", "table"])
def test_hovering_says_what_predict_says(page, tmp_path, kernel, shape):
    model = Decoder(KERNELS[kernel](), D=20, low=0, high=1 if shape else 50)
    page.open(explore(model, model.X, image_shape=shape or ()), tmp_path / "x.html")
    for place in PLACES:
        said = page.hover(*place)
        assert np.hypot(*(said[0] - place)) < 0.05  # the pointer is where the mouse is, to a pixel
        agrees(said, model)
        # And what is written is that
        assert float(page.js("return document.getElementById('value-sd').textContent")) == pytest.approx(
            said[2], rel=5e-3
        )
        assert float(page.js("return document.getElementById('value-z0').textContent")) == pytest.approx(
            said[0][0], abs=1e-3
        )


@pytest.mark.parametrize("kernel", [KERNELS["rbf"], OwnKernel], ids=["exact", "grid"])
def test_features_with_scales_of_their_own(page, tmp_path, kernel):
    model = Decoder(kernel(), scales=torch.tensor([0.1, 0.3, 1.0, 1.0, 1.6, 2.0]))
    page.open(explore(model, model.X, image_shape=()), tmp_path / "x.html")
    said = page.hover(*PLACES[0])
    sds = page.js("return [...explorer.decoded.sds]")
    assert np.abs(sds - model.predict(said[0][None], return_std=True)[1][0]).max() < 5e-3
    assert "Features differ" in page.js("return document.getElementById('notes').textContent")


@pytest.mark.parametrize("shape", [(2, 3), None], ids=["images", "table"])
def test_local_noise_is_that_of_predict(page, tmp_path, shape):
    model = Decoder(KERNELS["rbf-ard"](), local=True)
    page.open(explore(model, model.X, image_shape=shape or ()), tmp_path / "x.html")
    for place in PLACES:
        said = page.hover(*place)
        agrees(said, model)
        sds = page.js("return [...explorer.decoded.sds]")
        expected = model.predict(said[0][None], return_std=True)[1][0]
        assert np.abs(sds - expected).max() < 1e-3 * np.ptp(model.X)
        assert float(page.js("return document.getElementById('value-sd').textContent")) == pytest.approx(
            expected.mean(), rel=5e-3
        )
    assert "not by the same factors everywhere" in page.js("return document.getElementById('notes').textContent")
    if shape is None:  # the bands are ±2 sd of each feature, on tracks where 68 % are the feature's range
        widths = page.js(
            "return [...document.querySelectorAll('.feature .band')].map((b) => parseFloat(b.style.width))"
        )
        low, high = model.X.min(0), model.X.max(0)
        ends = [np.clip(16 + 68 * (said[1] + sign * 2 * expected - low) / (high - low), 0, 100) for sign in (-1, 1)]
        np.testing.assert_allclose(widths, ends[1] - ends[0], atol=0.5)
    # The background that the page computes when one zooms in is the mean over features
    grid = page.js("return explorer.decoder.sd(Float64Array.from([0.4, -0.2]))")
    assert grid == pytest.approx(model.predict([[0.4, -0.2]], return_std=True)[1].mean(), abs=1e-3)


def test_samples_have_the_local_noise(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), D=900, local=True)
    page.open(explore(model, model.X), tmp_path / "x.html")
    z, mean, _ = page.hover(0.3, -0.4)
    sds = model.predict(z[None], return_std=True)[1][0]
    for noise in (False, True):
        if noise:
            page.press("#noise")
        page.press("#draw")
        draws = np.array(page.js("return explorer.samples.map((row) => [...row])")) - mean
        function = np.sqrt(model.posterior_._moments(torch.as_tensor(z)[None])[1].item())
        size = sds if noise else np.full(900, function)
        # 4 × 300 values in each third: the standard deviation of their standard deviation is 1 / √2400 = 2 %
        for third in np.split(np.arange(900), 3):
            assert np.sqrt(np.mean((draws[:, third] / size[third]) ** 2)) == pytest.approx(1, rel=0.1)


def test_a_grid_has_the_local_noise_of_each_feature(page, tmp_path):
    model = Decoder(OwnKernel(), local=True)
    page.open(explore(model, model.X, image_shape=()), tmp_path / "x.html")
    z, _, sd = page.hover(*PLACES[0])
    expected = model.predict(z[None], return_std=True)[1][0]
    np.testing.assert_allclose(page.js("return [...explorer.decoded.sds]"), expected, atol=5e-3)
    assert sd == pytest.approx(expected.mean(), abs=5e-3)


def test_every_kernel_in_the_browser(page, tmp_path):
    models = {name: Decoder(kernel()) for name, kernel in KERNELS.items()}
    page.open(explore(models["rbf"]), tmp_path / "x.html")
    Z = np.random.default_rng(3).normal(size=(20, 2))
    decode = "const { mean, sd } = decoder.decode(Float64Array.from(z)); return [[...mean], sd]"
    code = (
        f"ExactDecoder.read(arguments[0], 2).then((decoder) => arguments[2](arguments[1].map((z) => {{ {decode} }})))"
    )
    for model in models.values():
        packed = explore(model, model.X).content["decoder"]
        assert packed["how"] == "exact"
        for z, (mean, sd) in zip(Z, page.driver.execute_async_script(code, packed, Z.tolist()), strict=True):
            agrees((z, np.array(mean), sd), model)


def test_numbers_that_are_hard_to_round(page, tmp_path):
    # At so little noise α and L⁻¹ have entries of 1e4, and rounding them to 16 bits would spoil the result
    model = Decoder(KERNELS["rbf"](), noise=1e-8, low=-40, high=60)
    page.open(explore(model, model.X), tmp_path / "x.html")
    for place in PLACES:
        agrees(page.hover(*place), model)


def test_the_picture_is_the_mean(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), D=20)
    page.open(explore(model, model.X, image_shape=(4, 5)), tmp_path / "x.html")
    _, mean, _ = page.hover(0.3, -0.4)
    assert page.js("return [explorer.canvases.mean.width, explorer.canvases.mean.height]") == [5, 4]
    pixels = page.js("return [...explorer.canvases.mean.getContext('2d').getImageData(0, 0, 5, 4).data]")
    grey = np.array(pixels).reshape(20, 4)[:, 0]
    assert np.abs(grey - np.clip(255 * mean, 0, 255)).max() <= 1


def test_colour_planes(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), D=3 * 4 * 5)
    page.open(explore(model, model.X, image_shape=(3, 4, 5)), tmp_path / "x.html")
    _, mean, _ = page.hover(0.3, -0.4)
    pixels = page.js("return [...explorer.canvases.mean.getContext('2d').getImageData(0, 0, 5, 4).data]")
    expected = np.moveaxis(np.clip(255 * mean, 0, 255).reshape(3, 20), 0, 1)
    assert np.abs(np.array(pixels).reshape(20, 4)[:, :3] - expected).max() <= 1


def test_beside_it_is_the_nearest_row(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    page.open(
        explore(model, model.X, labels=[f"n{i}" for i in range(200)], rows=1000 + np.arange(200)), tmp_path / "x.html"
    )
    z, _, _ = page.hover(0.3, -0.4)
    nearest = int(np.square(model.embedding_ - z).sum(1).argmin())
    assert page.js("return explorer.nearest.place") == nearest
    np.testing.assert_allclose(page.js("return [...explorer.nearest.row]"), model.X[nearest], rtol=1e-6)
    assert f"row {1000 + nearest}" in page.text()


def test_samples_spread_as_the_decoder_says(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), D=900)
    page.open(explore(model, model.X), tmp_path / "x.html")
    _, mean, sd = page.hover(2.0, 1.1)
    for noise, size in ((False, np.sqrt(sd**2 - float(model.posterior_.noise))), (True, sd)):
        if noise:
            page.press("#noise")
        page.press("#draw")
        draws = np.array(page.js("return explorer.samples.map((row) => [...row])")) - mean
        # 3600 values: the standard deviation of their standard deviation is 1 / √7200 = 1.2 %
        assert draws.std() == pytest.approx(size, rel=0.06)


def test_a_kernel_of_one_s_own_falls_back_to_a_grid_and_says_so(page, tmp_path):
    model = Decoder(OwnKernel())
    page.open(explore(model, model.X), tmp_path / "x.html")
    assert "cannot compute this model's decoder" in page.text()
    assert "grid of 224 × 128 points" in page.text()
    for place in PLACES:
        z, mean, sd = page.hover(*place)
        expected, std = model.predict(z[None], return_std=True)
        # A tenth of a lengthscale h between points: in either direction straight lines are off by up to h²/8 of f''
        np.testing.assert_allclose(mean, expected[0], atol=5e-3)
        assert sd == pytest.approx(std[0, 0], abs=5e-3)


# ---------------------------------------------------------------------------------------------------- safety


def test_hostile_text_is_shown_and_never_executed(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    labels = np.array(HOSTILE)[np.arange(200) % len(HOSTILE)]
    columns = {name: np.arange(200) % 3 for name in HOSTILE}
    columns["long"] = [f"{i} {HOSTILE[i % len(HOSTILE)]}" for i in range(200)]
    explorer = explore(
        model, model.X, labels=labels, columns=columns, feature_names=HOSTILE, ids=labels, title=HOSTILE[1]
    )
    path = tmp_path / "<img src=x onerror=document.title='pwned'> \"quoted\" 😀.html"
    page.open(explorer, path)
    page.hover(0.3, -0.4)
    legend = page.js("return [...document.querySelectorAll('#legend button')].map((b) => b.textContent)")
    assert sorted(legend) == sorted(HOSTILE)
    features = page.js("return [...document.querySelectorAll('.feature .name')].map((n) => n.textContent)")
    assert features == HOSTILE
    assert page.js("return document.getElementById('title').textContent") == HOSTILE[1]
    page.press("#colour")
    options = page.js("return [...document.querySelectorAll('#colours [role=option] .name')].map((o) => o.textContent)")
    assert options == ["label", *HOSTILE, "long", *(f"{name} (data)" for name in HOSTILE)]
    for i in range(len(options)):  # colour by each, with names of clusters and the values of a point
        page.js("explorer.colourBy(explorer.columns[arguments[0]])", i)
        page.js("explorer.look.labels = true; explorer.plot.paintNow(); explorer.plot.showTooltip(arguments[0])", i)
    for text in HOSTILE:
        page.js(
            "for (const hit of searchHits(explorer, arguments[0]).hits.filter((_, i) => i % 25 === 0)) hit.choose()",
            text[:8],
        )
        page.type("#search", text[:8])
    page.js("explorer.selection.keep(arguments[0])", HOSTILE[1])
    page.press("[data-mode=path]")
    page.mouse((-1, 0), "click", (1, 0.5), "click")
    page.until("return explorer.path.frames.length")
    assert page.js("return document.querySelectorAll('img, svg[onload]').length") == 0
    assert page.js("return document.querySelectorAll('script').length") == 2


def test_a_script_that_got_in_would_not_run(page, tmp_path):
    explorer = explore(Decoder(KERNELS["rbf"]()))
    page.open(explorer, tmp_path / "x.html")
    page.js("document.body.insertAdjacentHTML('beforeend', \"<img src=x onerror=document.title='pwned'>\")")
    script = "const s = document.createElement('script'); s.textContent = \"document.title='pwned'\";"
    page.js(f"{script} document.body.append(s)")
    time.sleep(0.3)
    assert page.js("return document.title") == "latent space"
    refused = page.log()  # by the policy, loudly: two scripts and an image
    assert len(refused) >= 2
    assert all("Content Security Policy" in line for line in refused)
    page.driver.get("about:blank")  # with the image that was asked for


# ---------------------------------------------------------------------------------------------------- doing things


def inside(polygon, points):
    from matplotlib.path import Path

    return Path(polygon).contains_points(points)


def test_lasso_to_csv_has_exactly_the_selected_rows(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    labels = np.array(["plain", 'with "quotes", and comma', "=1+1"])[np.arange(200) % 3]
    page.open(explore(model, model.X, labels=labels, rows=500 + np.arange(200), title="a/b: c"), tmp_path / "x.html")
    page.press("[data-mode=select]")
    corners = [(-0.9, -0.8), (0.9, -0.6), (1.0, 0.7), (0.1, 1.2), (-0.7, 0.5)]
    page.mouse(corners[0], "down", *corners[1:], corners[0], "up")
    page.until("return explorer.selection.size")
    # A click away from it all would deselect; pressing the button must not
    page.press("#csv")
    lines = list(csv.reader(page.downloaded("a-b-c-selection.csv").decode().splitlines()))
    assert lines[0] == ["row", "z0", "z1", "label"]
    chosen = np.array([int(line[0]) for line in lines[1:]]) - 500
    expected = np.flatnonzero(inside(corners, model.embedding_))
    # The mouse moves in whole pixels: a point less than that from an edge may fall on either side
    sharp = np.flatnonzero(inside(corners, model.embedding_) == inside(np.array(corners) * 1.03, model.embedding_))
    assert set(chosen) & set(sharp) == set(expected) & set(sharp)
    assert len(chosen) > 30
    np.testing.assert_array_equal(np.array([line[1:3] for line in lines[1:]], np.float32), model.embedding_[chosen])
    assert [line[3] for line in lines[1:]] == labels[chosen].tolist()
    assert f"{len(chosen)} of 200 rows" in page.text()


def test_hidden_classes_are_not_selected(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    page.open(explore(model, model.X, labels=np.array(["a", "b"])[np.arange(200) % 2]), tmp_path / "x.html")
    page.press("#legend button:nth-child(2)")
    assert page.js("return document.querySelector('#legend button:nth-child(2)').ariaPressed") == "false"
    page.press("[data-mode=select]")
    page.press("#select-view")
    assert page.js("return explorer.selection.rows") == list(range(0, 200, 2))
    page.press("#deselect")
    assert page.js("return explorer.selection.rows") == []


def test_the_path_s_frames_are_what_predict_says(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), D=20)
    page.open(explore(model, model.X, image_shape=(4, 5)), tmp_path / "x.html")
    page.press("[data-mode=path]")
    page.js("document.getElementById('route').value = 'straight'")
    page.mouse((-1.0, -0.5), "click", (1.2, 0.8), "click")
    page.until("return explorer.path.frames.length")
    points = np.array(page.js("return explorer.path.points"))
    frames = page.js("return explorer.path.frames.map(({ mean, sd }) => [[...mean], sd])")
    np.testing.assert_allclose(points, np.linspace(points[0], points[-1], 14), atol=1e-9)
    np.testing.assert_allclose(points[[0, -1]], [(-1.0, -0.5), (1.2, 0.8)], atol=0.05)
    for z, (mean, sd) in zip(points, frames, strict=True):
        agrees((z, np.array(mean), sd), model)

    page.press("#png")
    from io import BytesIO

    from PIL import Image

    strip = np.asarray(Image.open(BytesIO(page.downloaded("latent-space-path.png"))).convert("L"))
    # Two pixels for each of the page's; frames of 64 with 4 between them; an image of 5 × 4 pixels in each
    assert strip.shape[1] == 2 * 14 * 68
    for i, (mean, _) in enumerate(frames):
        centres = strip[np.ix_(np.arange(4) * 25 + 12, 2 * 68 * i + np.arange(5) * 25 + 12)]
        assert np.abs(centres - np.clip(255 * np.reshape(mean, (4, 5)), 0, 255)).max() <= 2


def test_the_route_of_low_uncertainty_is_more_certain_than_the_straight_one(page, tmp_path):
    # Points on a horseshoe: the straight way between its ends leads through the unknown
    model = Decoder(KERNELS["rbf"]())
    turn = np.linspace(0, np.pi, 60)
    model.embedding_ = np.stack([2 * np.cos(turn), 3 * np.sin(turn)], 1).astype(np.float32)
    Z, X = torch.from_numpy(model.embedding_), torch.from_numpy(model.X[:60])
    old = model.posterior_
    model.posterior_ = given_rows(old.kernel, old.noise, Z, X, old.mean)
    page.open(explore(model, model.X[:60]), tmp_path / "x.html")
    page.press("[data-mode=path]")
    page.mouse((-2, 0.1), "click", (2, 0.1), "click")
    largest = []
    for route in ("certain", "straight"):
        page.js(
            "const r = document.getElementById('route'); r.value = arguments[0]; r.dispatchEvent(new Event('change'))",
            route,
        )
        time.sleep(0.3)
        largest.append(max(page.until("return explorer.path.frames.map((f) => f.sd)")))
        ends = np.array(page.js("return explorer.path.points"))[[0, -1]]
        np.testing.assert_allclose(ends, [(-2, 0.1), (2, 0.1)], atol=0.05)
    assert largest[0] < 0.75 * largest[1]


def test_the_keyboard_alone_is_enough(page, tmp_path):
    from selenium.webdriver import ActionChains, Keys

    model = Decoder(KERNELS["rbf"]())
    page.open(explore(model, model.X, labels=["a", "b"] * 100), tmp_path / "x.html")
    reached = []
    for _ in range(40):
        ActionChains(page.driver).send_keys(Keys.TAB).perform()
        reached.append(page.js("return document.activeElement.id || document.activeElement.textContent.trim()"))
    assert {"colour", "theme", "Look", "Path", "Select", "zoom-in", "reset", "stage", "a", "b", "draw"} <= set(reached)

    page.js("document.getElementById('stage').focus()")
    before, _, _ = page.said()
    ActionChains(page.driver).send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_UP).perform()
    said = page.said()
    assert said[0][0] > before[0]
    assert said[0][1] > before[1]
    agrees(said, model)
    assert f"{said[0][0]:.2f}" in page.js("return document.getElementById('spoken').textContent")
    ActionChains(page.driver).send_keys(Keys.ENTER).perform()
    assert page.js("return explorer.pinned")
    page.mouse((0.9, 0.9))
    np.testing.assert_array_equal(page.said()[0], said[0])  # pinned: the mouse does not move it
    ActionChains(page.driver).send_keys(Keys.ESCAPE).perform()
    assert not page.js("return explorer.pinned")


def test_three_dimensions(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), Q=3)
    page.open(explore(model, model.X), tmp_path / "x.html")
    agrees(page.hover(0.3, -0.4), model)
    # The third dimension at the value of the point next to the pointer
    page.press("#axes button")
    z = page.said()[0]
    nearest = np.square(model.embedding_[:, :2] - z[:2]).sum(1).argmin()
    assert z[2] == model.embedding_[nearest, 2]
    agrees(page.said(), model)
    # Other axes
    page.js("const s = document.querySelectorAll('#axes select')[0]; s.value = 2; s.dispatchEvent(new Event('change'))")
    page.until("return explorer.axes[0] === 2 && !explorer.plot.pending && explorer.plot.fog.covered()")
    z, mean, sd = page.hover(0.5, 0.2)
    assert np.hypot(z[2] - 0.5, z[1] - 0.2) < 0.05
    agrees((z, mean, sd), model)
    # The background belongs to this plane: compare its corner with predict
    n, axes, corner = page.js("const b = explorer.plot.fog.grid; return [b.n, b.axes, b.values[0]]")
    place = np.array([[z[0], axes[1][0], axes[0][0]]])
    assert corner == pytest.approx(model.predict(place, return_std=True)[1][0, 0], abs=1e-3)
    assert n >= 32


def test_one_dimension(page, tmp_path):
    model = Decoder(KERNELS["rbf"](), Q=1)
    page.open(explore(model, model.X, labels=["a", "b"] * 100), tmp_path / "x.html")
    z, mean, sd = page.hover(0.4, -0.5)
    assert z == pytest.approx([0.4], abs=0.05)
    agrees((z, mean, sd), model)
    page.press("[data-mode=path]")
    page.mouse((-1, -0.5), "click", (1, -0.5), "click")
    assert np.ptp(page.until("return explorer.path.points.length && explorer.path.points.flat()")) == pytest.approx(
        2, abs=0.1
    )


def test_zooming_in_computes_a_finer_background(page, tmp_path):
    model = Decoder(KERNELS["rbf"]())
    page.open(explore(model, model.X), tmp_path / "x.html")
    for _ in range(5):
        page.press("#zoom-in")
    page.until("return explorer.plot.fog.grid.n < 144 && !explorer.plot.pending && explorer.plot.fog.covered()")
    n, axes, sd = page.js("const b = explorer.plot.fog.grid; return [b.n, b.axes, b.values[0]]")
    assert n == 80
    (first, last), _ = page.js("return explorer.page.background.axes")
    assert axes[0][1] - axes[0][0] < (last - first) / 2
    assert sd == pytest.approx(model.predict([[axes[0][0], axes[1][0]]], return_std=True)[1][0, 0], abs=1e-3)
    page.press("#reset")
    agrees(page.hover(0.3, -0.4), model)


def test_sixty_thousand_points_can_be_moved_and_coloured(page, tmp_path, mnist_sized):
    page.open(mnist_sized, tmp_path / "x.html")
    page.hover(0.3, -0.4)
    before = page.js("return explorer.plot.viewport.centre")
    page.mouse((0, 0), "down", (0.5, 0.2), (1, 0.4), "up")
    after = page.js("return explorer.plot.viewport.centre")
    assert after[0] < before[0] - 0.5
    assert 0.1 <= page.js("return explorer.plot.share") <= 1  # while it moved, as many points as are fluid
    page.until("return explorer.plot.rest === null")
    page.js("explorer.colourBy(explorer.columns[0])")
    assert page.js("return explorer.plot.points.marks.count") == 60_000
    page.until("return !explorer.plot.pending")


# ---------------------------------------------------------------------------------------------------- looks


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("size", [(1280, 720), (390, 844)], ids=["desk", "phone"])
@pytest.mark.parametrize("kind", ["images", "table"])
def test_no_control_covers_another(page, tmp_path, dark, size, kind):
    model = Decoder(KERNELS["rbf"](), Q=2 if kind == "images" else 4, D=20)
    labels = np.array([f"class number {i}" for i in range(8)])[np.arange(200) % 8]
    shape = (4, 5) if kind == "images" else ()
    explorer = explore(model, model.X, labels=labels, image_shape=shape, columns={"when": np.arange(200) / 3})
    page.open(explorer, tmp_path / "x.html", width=size[0], height=size[1], dark=dark)
    for mode in ("look", "select", "path"):
        page.press(f"[data-mode={mode}]")
        assert overlapping(page) == []
    page.js("document.getElementById('stage').scrollIntoView({ block: 'center' })")
    page.mouse((-1, 0), "click", (1, 0.5), "click")
    page.until("return explorer.path.frames.length")
    page.press("#draw")
    assert overlapping(page) == []
    assert page.js("return document.documentElement.scrollWidth") <= size[0]
    background = page.js("return getComputedStyle(document.body).backgroundColor")
    assert background == ("rgb(20, 23, 26)" if dark else "rgb(255, 255, 255)")
    page.press("#theme")
    assert page.js("return getComputedStyle(document.body).backgroundColor") != background
    time.sleep(0.2)


def test_without_webgl_a_sentence_says_so_and_the_rest_works(tmp_path):
    model = Decoder(KERNELS["rbf"](), N=21_000)
    with browser(tmp_path, "--disable-3d-apis", "--disable-gpu") as page:
        page.open(explore(model, model.X), tmp_path / "x.html")
        assert "This browser has no WebGL" in page.text()
        assert "20,000 of 21,000 points are shown" in page.text()
        agrees(page.hover(0.3, -0.4), model)
        # A point is drawn in its colour: of the pixels around it some are not those of the background
        x, y = (float(v) for v in model.embedding_[20_999])
        drawn = "const [x, y] = explorer.plot.toScreen(arguments[0], arguments[1]).map(Math.round);"
        drawn += "const pen = document.getElementById('points').getContext('2d');"
        assert max(page.js(drawn + "return [...pen.getImageData(x - 1, y - 1, 3, 3).data]", x, y)) > 0
        assert page.log() == []


def test_in_a_notebook_it_shows_itself_in_a_frame_of_its_own(page, tmp_path, monkeypatch):
    model = Decoder(KERNELS["rbf"]())
    page.window(1280, 720)
    monkeypatch.chdir(tmp_path)
    explorer = explore(model, model.X, labels=["a", "b"] * 100)
    cells = explorer._repr_html_() + explorer.light(50)._repr_html_()
    (tmp_path / "notebook.html").write_text(f"<!doctype html><meta charset=utf-8>{cells}")
    page.driver.get((tmp_path / "notebook.html").as_uri())
    for frame, n in ((0, 200), (1, 50)):  # a file beside the notebook, and a light page inside of it
        page.driver.switch_to.frame(frame)
        page.until("return document.documentElement.dataset.ready === 'true'")
        assert page.js("return explorer.n") == n
        page.until("return !explorer.plot.pending")
        agrees(page.said(), model)
        page.press("[data-mode=select]")
        page.press("#select-view")
        page.press("#keep-it")  # without the browser's storage
        assert page.js("return explorer.selection.kept[0].rows.length") == n
        page.driver.switch_to.default_content()


def test_many_points_and_left_out_columns_are_mentioned(page, tmp_path, monkeypatch):
    from sasgp.explorer import content

    monkeypatch.setattr(content, "MAX_POINTS", 150)
    monkeypatch.setattr(content, "COLUMN_BYTES", 2 * 4 * 150)
    model = Decoder(RBFKernel())
    page.open(explore(model, model.X), tmp_path / "x.html")
    page.press("summary")
    assert "150 of 200 points are shown" in page.text()
    assert "4 columns of the data are coloured by what is decoded" in page.text()
