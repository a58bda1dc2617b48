"""The explorer's page, before any browser: what is packed, how exactly, how large, and how safely."""

import html
import json
import re

import numpy as np
import pytest
import torch
from explorer_models import KERNELS, Decoder, OwnKernel
from gpytorch.kernels import RBFKernel, ScaleKernel, SpectralMixtureKernel

from sasgp import SASGP
from sasgp.data.images import guess_shape
from sasgp.errors import InputError
from sasgp.explorer import content, explore
from sasgp.explorer.kernel import evaluate, tree
from sasgp.explorer.packing import STEPS, pack, unpack, unpack_text
from sasgp.explorer.page import embedded_json
from sasgp.gp import kernels

HOSTILE = "</script><script>alert(1)</script>\"'&<!-- \u2028\u2029 😀" + "long " * 40


def parsed_content(page):
    """What the page's own script will read."""
    (text,) = re.findall(r'<script type="application/json" id="content">(.*?)</script>', page, flags=re.DOTALL)
    return json.loads(text)


def decode(packed, Z):
    """Mean and standard deviation as the browser computes them, from a page's numbers alone."""
    K = evaluate(packed["kernel"], Z, unpack(packed["Z"]).astype(np.float64))
    S = K.shape[1]
    root = np.zeros((S, S))
    root[np.tril_indices(S)] = unpack(packed["root"])
    root *= np.array(packed["root"].get("row_scale", np.ones(S)))[:, None]
    prior = np.array([evaluate(packed["kernel"], z[None], z[None])[0, 0] for z in Z])
    function = np.maximum(prior - np.square(K @ root.T).sum(1), 0)[:, None]
    noise = packed["noise"] if packed["local"] is None else decode_noise(packed, Z)
    return unpack(packed["mean"]) + K @ unpack(packed["alpha"]), np.sqrt(function + noise)


def decode_noise(packed, Z):
    """Local noise [n, D] as the browser computes it."""
    local, U = packed["local"], unpack(packed["Z"]).astype(np.float64)
    W = np.exp(-0.5 * np.square((Z[:, None] - U) / local["width"]).sum(-1))  # [n, S]
    root, far, b = unpack(local["root"]).astype(np.float64), unpack(local["far"]), local["weight"]
    return (W @ root**2 + b * far**2) / (W.sum(1, keepdims=True) + b)


# ---------------------------------------------------------------------------------------------------- packing


@pytest.mark.parametrize("kind", ["uint8", "int32", "float32", "float64"])
def test_what_is_not_rounded_comes_back_to_the_bit(kind):
    array = np.random.default_rng(0).uniform(0, 255, size=(7, 5)).astype(kind)
    np.testing.assert_array_equal(unpack(pack(array, kind)), array)


def test_rounding_is_by_at_most_half_a_step_of_each_column():
    array = np.random.default_rng(0).normal(size=(50, 3)) * [1e-6, 1, 1e6]
    array[:, 1] = 0
    step = np.abs(array).max(0) / STEPS
    # Half a step, and the float32 that the page keeps: 2⁻²⁴ of the value
    assert (np.abs(unpack(pack(array, "int16")) - array) <= 0.5 * step + 2**-23 * np.abs(array)).all()


# ---------------------------------------------------------------------------------------------------- kernels


@pytest.mark.parametrize("name", KERNELS)
def test_the_tree_computes_what_gpytorch_does(name):
    kernel = ScaleKernel(KERNELS[name]()).double()
    A, B = torch.randn(9, 2, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
    found = tree(kernel, A)
    assert found is not None
    np.testing.assert_allclose(evaluate(found, A.numpy(), B.numpy()), kernel(A, B).to_dense().detach(), atol=1e-7)


@pytest.mark.parametrize("name", kernels.NAMES)
def test_the_browser_knows_every_kernel_with_a_name(name):
    # By name, a kernel is scaled by a class of our own, which the page took for a kernel that it does not know
    kernel, Z = kernels.make(name, 2).double(), torch.randn(9, 2, dtype=torch.float64)
    found = tree(kernel, Z)
    assert found is not None
    np.testing.assert_allclose(evaluate(found, Z.numpy(), Z.numpy()), kernel(Z).to_dense().detach(), atol=1e-7)


def test_what_the_browser_does_not_know_has_no_tree():
    Z = torch.randn(5, 2, dtype=torch.float64)
    for kernel in (OwnKernel(), SpectralMixtureKernel(num_mixtures=2, ard_num_dims=2), RBFKernel() + OwnKernel()):
        assert tree(kernel.double(), Z) is None


def test_a_formula_that_disagrees_with_gpytorch_is_not_handed_over(monkeypatch):
    monkeypatch.setattr(RBFKernel, "forward", lambda self, a, b, **_: 0.5 * torch.ones(len(a), len(b), dtype=a.dtype))
    assert tree(RBFKernel().double(), torch.randn(5, 2, dtype=torch.float64)) is None


# ---------------------------------------------------------------------------------------------------- the decoder


@pytest.mark.parametrize("noise", [0.1, 1e-4, 1e-8])
@pytest.mark.parametrize("name", ["rbf", "matern12", "sum"])
def test_the_page_s_numbers_give_predict_s(name, noise):
    model = Decoder(KERNELS[name](), noise=noise, low=-30, high=70)
    packed = explore(model, model.X).content["decoder"]
    Z = np.random.default_rng(1).normal(size=(300, 2)).astype(np.float32)
    mean, sd = decode(packed, Z.astype(np.float64))
    expected, std = model.predict(Z, return_std=True)
    data_range = np.ptp(model.X)
    assert np.abs(mean - expected).max() < 1e-3 * data_range
    assert np.abs(sd - std).max() < 1e-3 * data_range


@pytest.mark.parametrize("noise", [0.1, 1e-6])
@pytest.mark.parametrize("name", ["rbf", "rbf-ard", "sum"])
def test_the_page_s_numbers_give_predict_s_local_noise(name, noise):
    model = Decoder(KERNELS[name](), noise=noise, low=-30, high=70, local=True)
    packed = explore(model, model.X).content["decoder"]
    Z = np.random.default_rng(1).normal(size=(300, 2)).astype(np.float32)
    mean, sd = decode(packed, Z.astype(np.float64))
    expected, std = model.predict(Z, return_std=True)
    assert np.ptp(std, 1).max() > 0.2 * std.mean()
    assert np.abs(mean - expected).max() < 1e-3 * np.ptp(model.X)
    assert np.abs(sd - std).max() < 1e-3 * np.ptp(model.X)
    assert packed["local"]["root"]["kind"] == "int16"


def test_a_grid_holds_the_noise_of_each_feature_if_it_varies():
    model = Decoder(OwnKernel(), local=True)
    packed = explore(model, model.X).content["decoder"]
    columns, _ = packed["cells"]
    corner = np.array([[packed["axes"][0][1], packed["axes"][1][0]]])
    sds = unpack(packed["sds"]).reshape(-1, 6)
    np.testing.assert_allclose(sds[columns - 1], model.predict(corner, return_std=True)[1][0], atol=1e-4)
    assert explore(Decoder(OwnKernel())).content["decoder"]["sds"] is None


def test_numbers_are_rounded_as_far_as_the_result_allows():
    kinds = [explore(Decoder(RBFKernel(), noise=noise)).content["decoder"]["root"]["kind"] for noise in (0.1, 1e-9)]
    assert kinds[0] == "int16"
    assert kinds[1] != "int16"


def test_mnist_with_the_most_positions_stays_under_12_mb(mnist_sized):
    # Random numbers do not compress: real images are smaller
    size = len(mnist_sized.html.encode())
    assert size < 12e6, f"{size / 1e6:.1f} MB"
    assert mnist_sized.content["n_points"] == 60_000


def test_unknown_kernels_come_as_a_grid():
    model = Decoder(OwnKernel())
    packed = explore(model, model.X).content["decoder"]
    assert packed["how"] == "grid"
    assert packed["why"] == "its kernel is not one of those that the page knows"  # the page's notice ends with this
    (low, high), _ = packed["axes"]
    columns, lines = packed["cells"]
    # The last point of the first line: rightmost, lowest
    corner = np.array([[high, packed["axes"][1][0]]])
    mean = unpack(packed["mean"])[columns - 1] + unpack(packed["centre"])
    np.testing.assert_allclose(mean, model.predict(corner)[0], atol=1e-4)
    assert low < model.embedding_[:, 0].min()
    assert len(unpack(packed["sd"])) == columns * lines


# ---------------------------------------------------------------------------------------------------- content


def test_rows_to_show_beside_are_the_data_s_own():
    model = Decoder(RBFKernel(), D=64)
    page = explore(model, model.X).content
    assert page["image"] | {"low": None, "high": None, "writing": None} == {
        "height": 8, "width": 8, "channels": 1, "planes": False, "low": None, "high": None, "writing": None,
    }  # fmt: skip
    X, places = page["observed"]["X"], unpack(page["observed"]["places"])
    shown = X["low"] + X["step"] * unpack(X)
    assert np.abs(shown - model.X[places]).max() <= X["step"] / 2 + 1e-6
    assert X["step"] == pytest.approx(np.ptp(model.X) / 255)

    assert not len(unpack(explore(model).content["observed"]["Z"]))  # a model keeps no rows


def test_a_table_keeps_its_values_and_every_column_can_colour():
    model = Decoder(RBFKernel())
    page = explore(model, model.X, labels=["a", "b"] * 100, feature_names=["label", *"bcdef"]).content
    np.testing.assert_array_equal(unpack(page["observed"]["X"]), model.X)
    assert [column["name"] for column in page["columns"]] == ["label", "label (data)", *"bcdef"]
    np.testing.assert_array_equal(unpack(page["columns"][2]["values"]), model.X[:, 1])
    assert page["columns"][0]["classes"] == ["a", "b"]


def test_more_columns_than_there_is_room_for_are_counted(monkeypatch):
    monkeypatch.setattr(content, "COLUMN_BYTES", 2 * 4 * 200)
    page = explore(Decoder(RBFKernel()), Decoder(RBFKernel()).X).content
    assert [column["name"] for column in page["columns"]] == ["x0", "x1"]
    assert page["n_columns_left_out"] == 4


def test_of_many_points_a_random_part_is_shown(monkeypatch):
    monkeypatch.setattr(content, "MAX_POINTS", 50)
    model = Decoder(RBFKernel())
    page = explore(model, model.X, labels=np.arange(200) % 3, rows=1000 + np.arange(200)).content
    rows = unpack(page["rows"]) - 1000
    assert (page["n_points"], len(rows)) == (200, 50)
    np.testing.assert_array_equal(unpack(page["Z"]), model.embedding_[rows])
    np.testing.assert_array_equal(unpack(page["columns"][0]["codes"]), rows % 3)


def test_missing_values_of_a_column_do_not_spoil_its_scale():
    values = np.linspace(2, 3, 200)
    values[[0, 5]] = np.nan, np.inf
    model = Decoder(RBFKernel())
    column = explore(model, labels=values).content["columns"][0]
    assert (column["low"], column["high"]) == (values[1], 3)
    json.dumps(explore(model, labels=np.full(200, np.nan)).content, allow_nan=False)


@pytest.mark.parametrize(
    ("X", "shape"),
    [
        (np.random.default_rng(0).random((20, 64)), (8, 8)),
        (np.random.default_rng(0).integers(0, 256, (20, 3 * 16 * 16)), (3, 16, 16)),
        (np.random.default_rng(0).random((20, 63)), None),
        (np.random.default_rng(0).random((20, 49)), None),  # 7 × 7 is more likely a table
        (np.random.default_rng(0).normal(size=(20, 64)), None),
        (np.random.default_rng(0).random((20, 64)) * np.geomspace(1, 200, 64), None),  # columns on scales of their own
        (np.random.default_rng(0).random((20, 64)) * 1000, None),
    ],
)
def test_squares_of_pixels_are_recognised(X, shape):
    assert guess_shape(X) == shape


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"labels": [1, 2]}, "200 points"),
        ({"columns": {"b": [1]}}, "'b'"),
        ({"X": np.zeros((3, 6))}, r"\[200, 6\]"),
        ({"Z": np.zeros((3, 5))}, r"latents \[N, 2\]"),
        ({"image_shape": (3, 3)}, "6 values"),
    ],
)
def test_bad_input_is_named(arguments, words):
    with pytest.raises(InputError, match=words):
        explore(Decoder(RBFKernel()), **arguments)


# ---------------------------------------------------------------------------------------------------- the page


def test_text_of_the_user_cannot_leave_its_element():
    model = Decoder(RBFKernel())
    names = [HOSTILE, *"bcdef"]
    page = explore(model, model.X, labels=[HOSTILE] * 200, feature_names=names, title=HOSTILE)
    assert len(re.findall(r"<script[ >]", page.html)) == 2  # exactly the template's scripts: content, ours
    assert "alert(1)</script>" not in page.html
    assert html.escape(HOSTILE) in page.html.partition("</title>")[0]
    found = parsed_content(page.html)
    assert found["title"] == found["columns"][0]["classes"][0] == found["features"][0] == HOSTILE


def test_json_in_a_page_has_no_markup_and_no_nan():
    text = embedded_json({"<&>": "\u2028\u2029</script>\ud800"})
    assert not set("<>&\u2028\u2029") & set(text)
    assert json.loads(text) == {"<&>": "\u2028\u2029</script>?"}
    with pytest.raises(ValueError, match="JSON"):
        embedded_json(float("nan"))


def test_nothing_is_fetched_and_only_our_scripts_may_run():
    page = explore(Decoder(RBFKernel())).html
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', page)[1]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy.partition("script-src")[2].partition(";")[0]
    assert policy.count("sha256-") == 1
    assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=", page)


def test_a_model_s_own_method(tmp_path):
    import pandas as pd

    X = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 3)), columns=["a", "<b>", "c"])
    model = SASGP(max_epochs=2, random_state=0).fit(X)
    page = model.explorer(X, labels=["x", "y"] * 30, columns={"when": np.arange(60.0) / 7}, title="mine")
    assert page.content["features"] == ["a", "<b>", "c"]
    assert [column["name"] for column in page.content["columns"]] == ["label", "when", "a", "<b>", "c"]
    np.testing.assert_array_equal(unpack(page.content["Z"]), model.transform(X))
    assert page.save(tmp_path / "x.html").read_text().startswith("<!doctype html>")
    np.testing.assert_array_equal(unpack(model.explorer().content["Z"]), model.embedding_)


def test_a_cell_of_a_notebook_shows_a_file_beside_it(tmp_path, monkeypatch):
    page = explore(Decoder(RBFKernel()), title=HOSTILE)
    monkeypatch.chdir(tmp_path)
    cells = {page._repr_html_() for _ in range(2)}
    (file,) = tmp_path.iterdir()  # the same page again is the same file
    (cell,) = cells
    assert len(cell) < 400
    assert f'src="{file.name}"' in cell
    assert file.read_text() == page.html

    def fail(*_, **__):
        raise OSError("read-only")

    monkeypatch.setattr("sasgp.explorer.page.replacing", fail)
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', page._repr_html_())[1]) == page.html


def test_a_light_page_has_some_points_and_no_rows(tmp_path, monkeypatch):
    model = Decoder(RBFKernel())
    columns = {"age": np.arange(200) / 7, "who": [f"w{i}" for i in range(200)]}
    page = explore(model, model.X, labels=["a", "b"] * 100, columns=columns, ids=[f"id{i}" for i in range(200)])
    light = page.light(50).content
    rows = unpack(light["rows"])
    assert len(rows) == len(set(rows)) == 50
    np.testing.assert_array_equal(unpack(light["Z"]), model.embedding_[rows])
    assert unpack_text(light["ids"]) == [f"id{i}" for i in rows]
    label, age, who = light["columns"][:3]
    np.testing.assert_array_equal(unpack(label["codes"]), rows % 2)
    np.testing.assert_array_equal(unpack(age["values"]), (rows / 7).astype(np.float32))
    assert [unpack_text(who["levels"])[cell] for cell in unpack(who["cells"])] == [f"w{i}" for i in rows]
    assert not len(unpack(light["observed"]["X"]))
    assert light["decoder"] == page.content["decoder"]
    monkeypatch.chdir(tmp_path)
    assert html.unescape(re.search(r'srcdoc="([^"]*)"', page.light(50)._repr_html_())[1]) == page.light(50).html
    assert not any(tmp_path.iterdir())
    with pytest.raises(InputError, match="n_points must be at least 1"):
        page.light(0)


def test_ids_and_text_with_many_values_are_whole(monkeypatch):
    monkeypatch.setattr(content, "MAX_POINTS", 50)
    ids = [f"{i} {HOSTILE}\n" for i in range(200)]
    model = Decoder(RBFKernel())
    page = explore(model, columns={"who": ids}, ids=ids).content
    rows = unpack(page["rows"])
    assert unpack_text(page["ids"]) == [ids[i] for i in rows]
    (who,) = page["columns"]
    assert (len(who["classes"]), who["others"]) == (30, 1)
    assert [unpack_text(who["levels"])[cell] for cell in unpack(who["cells"])] == [ids[i] for i in rows]
    with pytest.raises(InputError, match=r"one name for each of the 200 points\. Got 3"):
        explore(model, ids=["a", "b", "c"])


def test_the_page_has_the_colours_of_the_pictures():
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    from sasgp.data.palette import MAX_CLASSES
    from sasgp.plots.style import PALETTE

    page = explore(Decoder(RBFKernel()), labels=np.arange(200) % MAX_CLASSES).content
    assert page["palette"]["light"] == list(PALETTE)
    assert len(page["palette"]["dark"]) == len(PALETTE)
    assert len(page["columns"][0]["classes"]) == MAX_CLASSES
    places = np.linspace(0, 1, len(page["palette"]["scale"]))
    assert page["palette"]["scale"] == [to_hex(colormaps["viridis"](t)).upper() for t in places]


def test_images_may_come_in_their_shape():
    X = np.random.default_rng(0).random((40, 3, 4, 5))
    model = SASGP(max_epochs=2, random_state=0).fit(X.reshape(40, -1))
    image = model.explorer(X).content["image"]
    assert (image["height"], image["width"], image["channels"], image["planes"]) == (4, 5, 3, True)
    assert model.explorer(X, image_shape=()).content["image"] is None


def test_a_page_is_replaced_whole_or_not_at_all(tmp_path, monkeypatch):
    page, path = explore(Decoder(RBFKernel())), tmp_path / "x.html"
    path.write_text("old")

    def fail(*_, **__):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.write_text", fail)
        with pytest.raises(OSError, match="disk full"):
            page.save(path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    assert page.save(path) == path
    assert path.read_text() == page.html
