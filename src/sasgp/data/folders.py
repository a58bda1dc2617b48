"""Folders of images: one row per file, and the subfolder that a file is in as its label.

Images are in the natural order of their names, so that 9.png comes before 10.png. They get the size that most of them
have, and they are grey if all of them are. Pillow, which reads them, comes with matplotlib.
"""

import re
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from sasgp.data.labels import parse_labels
from sasgp.data.memory import amount, available
from sasgp.errors import InputError

if TYPE_CHECKING:
    from PIL.Image import Image

__all__ = ["IMAGE_SUFFIXES", "SUBFOLDERS", "Images", "image_files", "read_folder"]

IMAGE_SUFFIXES = (".png", ".jpg", ".jpeg", ".bmp", ".tif", ".tiff", ".webp")
SUBFOLDERS = "subfolders"  # where the labels are
MOST_NAMED = 5  # files in a message
ORIENTATION, TURNED = 0x0112, (5, 6, 7, 8)  # the EXIF tag, and its values for images that lie on their side


@dataclass(frozen=True)
class Images:
    """Pixels [N, H, W] or [N, H, W, 3] from 0 to 1, the classes [N] if there are any, the files [N], and notes."""

    X: NDArray[np.float32]
    y: NDArray[Any] | None
    ids: NDArray[Any]
    notes: tuple[str, ...]


def image_files(folder: Path) -> list[Path]:
    """The images in a folder and its subfolders, in natural order. Hidden files are left out.

    If most files are something else, such as in the folder of a run, it is no folder of images, and there are none.
    """
    found = [path.relative_to(folder) for path in folder.rglob("*") if path.is_file()]
    visible = [path for path in found if not any(name.startswith(".") for name in path.parts)]
    images = [path for path in visible if path.suffix.lower() in IMAGE_SUFFIXES]
    if 2 * len(images) <= len(visible):
        return []
    return sorted(images, key=lambda path: [_natural(name) for name in path.parts])


def read_folder(folder: Path) -> Images:
    """Read all images in a folder. Raises InputError that names those which cannot be read."""
    files = image_files(folder)
    y = _classes(folder, files)
    sizes, bad = [], {}
    for file in files:
        try:
            sizes.append(_size(folder / file))
        except (OSError, ValueError, SyntaxError, Warning) as error:  # whatever Pillow raises for a damaged file
            bad[file] = error
    if not bad:
        size = Counter(sizes).most_common(1)[0][0]
        pixels = _empty(folder, len(files), size)
        for row, file in enumerate(files):
            try:
                pixels[row] = _pixels(folder / file, size)
            except (OSError, ValueError, SyntaxError, Warning) as error:
                bad[file] = error
    if bad:
        names = ", ".join(str(file) for file in [*bad][:MOST_NAMED]) + ", …" * (len(bad) > MOST_NAMED)
        reason = (str(next(iter(bad.values()))).splitlines() or ["no reason given"])[0].rstrip(".")
        raise InputError(
            f"{folder}: {len(bad)} of {len(files)} images cannot be read: {names} ({reason}). Remove or replace them."
        )
    grey = all((image == image[..., :1]).all() for image in pixels)
    X = np.divide(pixels[..., 0] if grey else pixels, 255, dtype=np.float32)
    others = sum(found != size for found in sizes)
    notes = (f"{others} of {len(files)} images had another size and were scaled to {size[0]} × {size[1]} pixels",)
    return Images(X, y, np.array([file.as_posix() for file in files], dtype=object), notes if others else ())


def _classes(folder: Path, files: list[Path]) -> NDArray[Any] | None:
    """The first subfolder of each file. None if no file is in one."""
    loose = [file for file in files if len(file.parts) == 1]
    if len(loose) == len(files):
        return None
    if loose:
        raise InputError(
            f"{folder} has {len(files) - len(loose)} images in subfolders, whose names are their labels, but also "
            f"{len(loose)} beside them, such as {loose[0]}. Move these into a subfolder, too."
        )
    return parse_labels([file.parts[0] for file in files])


def _natural(name: str) -> list[tuple[int, int | str]]:
    """A key that sorts numbers in names by their value."""
    parts = re.split(r"([0-9]+)", name)
    return [(0, int(part)) if part.isdecimal() and part.isascii() else (1, part) for part in parts]


def _opened(path: Path) -> "Image":
    """An image whose header has been read. One with more pixels than Pillow trusts is an error."""
    from PIL import Image

    with warnings.catch_warnings():
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        try:
            return Image.open(path)
        except Image.DecompressionBombError as error:
            raise ValueError(str(error)) from error


def _size(path: Path) -> tuple[int, int]:
    """Width and height, upright."""
    with _opened(path) as image:
        width, height = image.size
        return (height, width) if image.getexif().get(ORIENTATION) in TURNED else (width, height)


def _pixels(path: Path, size: tuple[int, int]) -> NDArray[np.uint8]:
    """The pixels [H, W, 3] of an image, upright and scaled to this width and height. Transparency is left out."""
    from PIL import Image, ImageOps

    with _opened(path) as file:
        image = ImageOps.exif_transpose(file)
        if image.mode.startswith(("I", "F")):  # 16 bits, which Pillow would cut off at 255
            values = np.asarray(image)
            if image.mode == "F" or values.min() < 0 or values.max() >= 1 << 16:
                raise ValueError("its pixels are neither 8 nor 16 bits")
            image = Image.fromarray((values >> 8).astype(np.uint8))
        image = image.convert("RGB")
    if image.size != size:
        image = image.resize(size, Image.Resampling.BILINEAR)  # averages over what becomes one pixel
    return np.asarray(image)


def _empty(folder: Path, n: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    width, height = size
    need, have = n * width * height * 3 * (1 + 4), available()  # bytes, and then float32
    if need > have:
        raise InputError(
            f"{folder}: {n} images of {width} × {height} pixels need {amount(need)} of memory, but only {amount(have)} "
            "are free. Scale them down, or save them as an array [N, H, W] in a .npy file, which stays on disk."
        )
    return np.empty((n, height, width, 3), np.uint8)
