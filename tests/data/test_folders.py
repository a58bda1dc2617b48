"""Folders of images: what is in them becomes rows, in the order that people count."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from test_readers import message

from sasgp import cli
from sasgp.data import folders, load


@pytest.fixture
def draw(tmp_path, monkeypatch):
    """Writes images into an empty working folder."""
    monkeypatch.chdir(tmp_path)

    def draw(path, pixels, **settings):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(np.asarray(pixels)).save(path, **settings)

    return draw


def grey(n, height=4, width=6):
    return np.random.default_rng(0).integers(0, 256, (n, height, width), dtype=np.uint8)


@pytest.mark.parametrize("suffix", ["png", "bmp", "tif", "PNG"])
def test_grey_images_in_natural_order(draw, suffix):
    pixels = grey(12)
    for i in np.random.default_rng(1).permutation(12):
        draw(f"set/image{i}.{suffix}", pixels[i])
    Path("set/.hidden.png").write_bytes(b"no image")
    Path("set/readme.txt").write_text("about")
    data = load("set")
    np.testing.assert_array_equal(data.X, (pixels.reshape(12, -1) / 255).astype(np.float32))
    assert data.X.dtype == np.float32
    assert data.ids.tolist() == [f"image{i}.{suffix}" for i in range(12)]  # 9 before 10
    assert (data.name, data.image_shape, data.y, data.labels, data.notes) == ("set", (4, 6), None, None, ())
    assert data.columns[:2] == ("pixel0", "pixel1")


def test_subfolders_are_labels(draw):
    pixels = grey(6)
    for i, kind in enumerate(["cat", "cat", "dog", "dog", "dog", "emu"]):
        draw(f"set/{kind}/{i}.png", pixels[i])
    data = load("set")
    assert data.y.tolist() == ["cat", "cat", "dog", "dog", "dog", "emu"]
    assert data.ids[2] == "dog/2.png"
    np.testing.assert_array_equal(data.X[5], (pixels[5].ravel() / 255).astype(np.float32))
    Path("y.txt").write_text("\n".join("012345"))
    assert load("set", labels="y.txt").y.tolist() == list(range(6))
    draw("set/7.png", pixels[0])
    assert "6 images in subfolders, whose names are their labels, but also 1 beside them, such as 7.png" in message(
        "set"
    )


def test_classes_that_are_numbers_are_numbers(draw):
    for kind in (10, 9):
        draw(f"set/{kind}/a.png", grey(1)[0])
    assert load("set").y.tolist() == [9, 10]


def test_one_image_with_colours_makes_all_have_colours(draw):
    pixels = grey(3)
    for i in range(2):
        draw(f"set/{i}.png", pixels[i])
    draw("set/2.png", np.stack([pixels[2]] * 3, -1))  # grey, but stored in colours
    assert load("set").image_shape == (4, 6)
    colours = np.stack([pixels[2], pixels[1], pixels[0]], -1)
    draw("set/2.png", colours)
    data = load("set")
    assert data.image_shape == (4, 6, 3)
    np.testing.assert_array_equal(data.X[2], (colours.ravel() / 255).astype(np.float32))
    np.testing.assert_array_equal(data.X[0].reshape(4, 6, 3)[..., 1], (pixels[0] / 255).astype(np.float32))


def test_other_ways_to_store_the_same_pixels(draw):
    pixels = grey(1)[0]
    draw("set/0.png", pixels)
    Image.fromarray(pixels).convert("P").save("set/1.png")
    Image.fromarray(pixels).convert("LA").save("set/2.png")
    Image.fromarray(pixels.astype(np.uint16) * 257).save("set/3.png")  # 16 bits: 255 becomes 65535
    Image.fromarray(pixels).convert("RGBA").save("set/4.webp", lossless=True)
    data = load("set")
    assert data.image_shape == (4, 6)
    for row in data.X[1:]:
        np.testing.assert_array_equal(row, data.X[0])
    draw("set/5.png", np.where(pixels > 99, True, False))
    np.testing.assert_array_equal(load("set").X[5], (pixels > 99).ravel())


def test_others_get_the_most_common_size(draw):
    for i in range(3):
        draw(f"set/{i}.png", grey(3)[i])
    draw("set/3.png", np.full((8, 12), 51, np.uint8))
    data = load("set")
    assert data.image_shape == (4, 6)
    np.testing.assert_allclose(data.X[3], 0.2)  # a plain image stays plain
    assert data.notes == ("1 of 4 images had another size and were scaled to 6 × 4 pixels",)


def test_photographs_are_upright(draw):
    pixels = grey(1)[0]
    draw("set/0.png", pixels)
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: the image has to be turned by 270°
    draw("set/1.png", np.rot90(pixels), exif=exif)
    data = load("set")
    assert data.notes == ()
    np.testing.assert_array_equal(data.X[1], data.X[0])


def test_what_cannot_be_read_is_said_at_once(draw, monkeypatch):
    for i in range(9):
        draw(f"set/{i}.png", grey(9)[i])
    whole = Path("set/3.png").read_bytes()
    Path("set/3.png").write_bytes(whole[: len(whole) // 2])
    assert "set: 1 of 9 images cannot be read: 3.png (" in message("set")
    for i in range(7):
        Path(f"set/{i}.png").write_bytes(b"text")
    assert "7 of 9 images cannot be read: 0.png, 1.png, 2.png, 3.png, 4.png, … (" in message("set")
    for i in range(9):
        draw(f"set/{i}.png", grey(9)[i])
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 20)
    assert "9 of 9 images cannot be read" in message("set")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 8)  # beyond twice that, Pillow has another error
    assert "9 of 9 images cannot be read" in message("set")
    monkeypatch.undo()


def test_too_many_for_memory(draw, monkeypatch):
    draw("set/0.png", grey(1)[0])
    monkeypatch.setattr(folders, "available", lambda: 100)
    assert "1 images of 6 × 4 pixels need 0.0 MiB of memory" in message("set")


def test_a_run_on_a_folder(draw, capsys):
    pixels = grey(60)
    for i in range(60):
        draw(f"set/{'ab'[i % 2]}/{i}.png", pixels[i] // 2 + 60 * (i % 2))
    draw("set/b/60.png", grey(1, 8, 12)[0])
    assert cli.main(["fit", "set", "--max-epochs", "2", "--out", "run"]) == 0
    out = capsys.readouterr().out
    assert "1 of 61 images had another size" in out
    assert "subfolders" in out
    lines = Path("run/embedding.csv").read_text().splitlines()
    assert lines[0] == "row,id,z0,z1,label,split"
    assert lines[1].startswith("0,a/0.png,")
    assert cli.main(["embed", "run", "set", "--out", "z.csv"]) == 0
    assert cli.main(["evaluate", "run", "set"]) == 0
    assert "the rows that `sasgp fit` held out" in capsys.readouterr().out.replace("\n", " ")
    assert cli.main(["fit", "set", "--max-epochs", "2", "--out", "set/run"]) == 2
    assert "pictures of the run would be taken for data" in capsys.readouterr().err
    assert cli.main(["fit", "run", "--out", "other"]) == 2  # a run is no folder of images
    assert "read only if most of its files are images" in capsys.readouterr().err
