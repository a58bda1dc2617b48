"""`sasgp sample`: the model's own draws, as numbers and as pictures."""

from pathlib import Path

import numpy as np
import polars as pl

from sasgp import SASGP


def test_sample_writes_the_model_s_draws(home, here, sasgp):
    sasgp("sample", home / "run", "-n", "5", "--out", "x.npy")
    sasgp("sample", home / "run", "-n", "5", "--out", "x.csv")
    X = SASGP.load(home / "run" / "model.safetensors").sample(5, random_state=0)
    np.testing.assert_array_equal(np.load("x.npy"), X)
    assert pl.read_csv("x.csv").columns == ["a", "b", "c", "d"]
    np.testing.assert_array_equal(pl.read_csv("x.csv").cast(pl.Float32).to_numpy(), X)
    sasgp("sample", home / "run", "-n", "5", "--no-noise", "--random-state", "3", "--out", "y.npy")
    smooth = SASGP.load(home / "run" / "model.safetensors").sample(5, noise=False, random_state=3)
    np.testing.assert_array_equal(np.load("y.npy"), smooth)


def test_sample_draws_images_for_a_run_of_images(home, here, sasgp, error):
    sasgp("sample", home / "pictures", "--out", "x.png")
    assert Path("x.png").read_bytes().startswith(b"\x89PNG")
    assert "images" in error("sample", home / "run", "--out", "y.png")
    assert "images" in error("sample", home / "pictures" / "model.safetensors", "--out", "y.png")
    assert not Path("y.png").exists()
