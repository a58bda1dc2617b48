"""Infinite MNIST: as many handwritten digits as one likes, each an MNIST digit that was deformed and shifted.

    python -m studies data infinite-mnist --rows 1000000 --out big.npy

After Loosli, Canu & Bottou (2007). Row i is training digit i mod 60 000, moved along a smooth random field:

    x'(p) = x(p − s − a·(u_j(p), u_k(p)))          s ∈ {−1, 0, 1}²,  a ~ U[0, 1) pixel

with bilinear interpolation. The fields u are a fixed set of white noise smoothed by a Gaussian and scaled to standard
deviation one. Everything that row i draws comes from (seed, i) alone, so a row does not depend on how many there are or
on how they are cut into blocks. The first 60 000 rows are deformed, too.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from sasgp.data.blocks import slices
from sasgp.data.files import replacing
from sasgp.errors import InputError

__all__ = ["InfiniteDigits", "check_request", "write_infinite"]

N_FIELDS = 1024  # smooth fields to choose two from: a million pairs
SMOOTH = 4.0  # pixels: about the width of a stroke and a half
LARGEST = 1.0  # of the amplitude a, in pixels: beyond, a 5 may turn into a 6
LIMIT = 3.0  # standard deviations that a field reaches at the most


class InfiniteDigits:
    """Deformed copies of images [M, H, W], by index."""

    def __init__(self, images: NDArray[np.uint8], seed: int = 0) -> None:
        from scipy.ndimage import gaussian_filter

        self.images, self.seed = images, seed
        _, self.height, self.width = images.shape
        white = np.random.default_rng([seed, 1]).standard_normal((N_FIELDS, self.height, self.width), np.float32)
        smooth = gaussian_filter(white, (0, SMOOTH, SMOOTH), mode="wrap")
        self.fields = np.clip(smooth / smooth.std(axis=(1, 2), keepdims=True), -LIMIT, LIMIT)
        # A border of zeros as wide as any move: no index is ever outside
        self.border = int(np.ceil(1 + LARGEST * LIMIT)) + 1
        pad = ((0, 0), (self.border, self.border), (self.border, self.border))
        self.padded = np.pad(images, pad)

    def rows(self, start: int, stop: int) -> NDArray[np.uint8]:
        """Rows `start` to `stop` as bytes [stop − start, H·W]."""
        H, W = self.height, self.width
        index = np.arange(start, stop)
        u = _uniform(self.seed, index, 5)  # [n, 5]
        amplitude = (LARGEST * u[:, 2]).astype(np.float32)[:, None, None]
        shift = np.floor(3 * u[:, 3:]).astype(np.float32) - 1  # −1, 0 or 1
        move = (np.floor(N_FIELDS * u[:, :2])).astype(np.int64)  # which two fields
        y = np.arange(H, dtype=np.float32)[:, None] + self.border - shift[:, 0, None, None]
        x = np.arange(W, dtype=np.float32)[None, :] + self.border - shift[:, 1, None, None]
        y = y - amplitude * self.fields[move[:, 0]]  # [n, H, W]
        x = x - amplitude * self.fields[move[:, 1]]
        top, left = y.astype(np.int32), x.astype(np.int32)  # positive: this is the floor
        y -= top
        x -= left
        # x'(p) = (1−y)[(1−x) I(t,l) + x I(t,l+1)] + y[(1−x) I(t+1,l) + x I(t+1,l+1)]
        stride, size = self.padded.shape[2], self.padded[0].size
        place = (index % len(self.images))[:, None, None] * size + top.astype(np.int64) * stride + left
        flat = self.padded.reshape(-1)
        upper = flat[place] * (1 - x) + flat[place + 1] * x
        place += stride
        lower = flat[place] * (1 - x) + flat[place + 1] * x
        return np.rint(upper + y * (lower - upper)).astype(np.uint8).reshape(len(index), H * W)


def _uniform(seed: int, index: NDArray[np.int64], n: int) -> NDArray[np.float64]:
    """Uniform numbers [len(index), n] in [0, 1) that depend on the seed and each index alone: SplitMix64 as a hash."""
    with np.errstate(over="ignore"):
        key = np.uint64(seed) * np.uint64(0xD1342543DE82EF95)
        state = key + (index.astype(np.uint64)[:, None] * np.uint64(n) + np.arange(n, dtype=np.uint64)[None])
        z = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53


def check_request(n_rows: int, out: Path, seed: int) -> None:
    """Raise InputError where rows cannot be written as asked for."""
    if out.suffix != ".npy":
        raise InputError(f"--out must be a .npy file. Got {out}; rename it.")
    if not out.parent.is_dir():
        raise InputError(f"--out must be in a folder that exists. Got {out}; create {out.parent} first.")
    if n_rows < 1:
        raise InputError(f"--rows must be at least 1. Got {n_rows}.")
    if not 0 <= seed < 2**64:
        raise InputError(f"--seed must be from 0 to 2⁶⁴ − 1. Got {seed}; choose another.")


def write_infinite(
    images: NDArray[np.uint8],
    labels: NDArray[Any],
    n_rows: int,
    out: Path,
    *,
    seed: int = 0,
    update: Callable[[int], None] = lambda done: None,
) -> Path:
    """Write rows to a .npy file [n_rows, H, W] and their labels to …labels.npy beside it; returns the latter's path.

    Both files appear whole or not at all.
    """
    check_request(n_rows, out, seed)
    digits = InfiniteDigits(images, seed)
    label_path = out.with_suffix(".labels.npy")
    shape = (n_rows, digits.height, digits.width)
    try:
        with replacing(out) as temporary:
            with temporary.open("wb") as file:
                header = {"descr": npy.dtype_to_descr(np.dtype(np.uint8)), "fortran_order": False, "shape": shape}
                npy.write_array_header_1_0(file, header)
                for block in slices(n_rows, digits.height * digits.width):
                    file.write(digits.rows(block.start, block.stop).data)
                    update(block.stop)
            with replacing(label_path) as labels_file:
                np.save(labels_file, labels[np.arange(n_rows) % len(labels)].astype(np.int64))
    except OSError as error:
        raise InputError(f"--out must be where files can be written. Got {out}: {error.strerror or error}.") from error
    return label_path
