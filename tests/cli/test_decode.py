"""`sasgp decode`: what `predict` gives, from any file of latents."""

from pathlib import Path

import numpy as np
import polars as pl
from command_line import table

from sasgp import SASGP
from sasgp.data import load


def test_latents_beside_columns_that_decode_does_not_need(home, here, sasgp):
    Path("z.csv").write_text("label,z1,class,z0\n,1,a,0\nb,0,,1\n")
    np.save("z.npy", np.array([[0.0, 1], [1, 0]]))
    for name in ("z.csv", "z.npy"):
        sasgp("decode", home / "run", name, "--out", f"{name}.out.npy")
    np.testing.assert_array_equal(np.load("z.csv.out.npy"), np.load("z.npy.out.npy"))


def test_decode_after_embed_is_predict(home, here, sasgp):
    sasgp("embed", home / "run", home / "table.csv", "--labels", "species", "--out", "z.csv")
    sasgp("decode", home / "run", "z.csv", "--out", "x.npz")
    sasgp("decode", home / "run", "z.csv", "--out", "x.npy")
    sasgp("decode", home / "run", "z.csv", "--std", "--out", "x.csv")
    model = SASGP.load(home / "run" / "model.safetensors")
    X = load(home / "table.csv", labels="species").X
    mean, std = model.predict(model.transform(X), return_std=True)
    with np.load("x.npz") as archive:
        np.testing.assert_array_equal(archive["mean"], mean)
        np.testing.assert_array_equal(archive["std"], std)
    np.testing.assert_array_equal(np.load("x.npy"), mean)
    frame = pl.read_csv("x.csv")
    assert frame.columns == ["a", "b", "c", "d", "a_std", "b_std", "c_std", "d_std"]
    np.testing.assert_array_equal(frame.cast(pl.Float32).to_numpy(), np.hstack([mean, std]))


def test_decode_takes_a_run_s_embedding_and_plain_files(home, here, sasgp):
    Z = SASGP.load(home / "run" / "model.safetensors").transform(table().drop("species").to_numpy())
    np.save("plain.npy", Z)
    pl.DataFrame(Z).write_csv("plain.csv", include_header=False)
    for i, source in enumerate([home / "run" / "embedding.csv", "plain.npy", "plain.csv"]):
        sasgp("decode", home / "run", source, "--out", f"{i}.npy")
    np.testing.assert_allclose(np.load("1.npy"), np.load("0.npy"), atol=1e-5)
    np.testing.assert_array_equal(np.load("2.npy"), np.load("1.npy"))
