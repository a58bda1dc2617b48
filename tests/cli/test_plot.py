"""`sasgp plot`: the figures that are asked for."""

from pathlib import Path

import numpy as np

from sasgp import SASGP


def test_plot_draws_what_is_asked_for(home, here, sasgp, error):
    everything = {"latent.png", "grid.png", "curve.png", "relevance.png", "geometry.png"}
    for run, data in (("run", "table.csv"), ("pictures", "images.npy")):
        said = sasgp("plot", home / run, "--out", f"figures/{run}")
        assert "--reconstructions needs rows, and a model keeps none. Add --data." in said
        assert {file.name for file in Path(f"figures/{run}").iterdir()} == everything
        sasgp("plot", home / run, "--data", home / data, "--reconstructions", "--out", f"figures/{run}")
        assert {file.name for file in Path(f"figures/{run}").iterdir()} == everything | {"reconstructions.png"}
    for flag in everything:
        flag = flag.removesuffix(".png")
        sasgp("plot", home / "run", f"--{flag}", "--out", flag)
        assert [file.name for file in Path(flag).iterdir()] == [f"{flag}.png"]
    sasgp("plot", home / "run", "--data", home / "table.csv", "--labels", "species", "--reconstructions", "--out", "d")
    assert Path("d/reconstructions.png").read_bytes().startswith(b"\x89PNG")
    assert "Add --data" in error("plot", home / "run", "--reconstructions", "--out", "d")


def test_a_figure_that_a_kernel_does_not_have_is_left_out_unless_asked_for(here, sasgp, error):
    from gpytorch.kernels import LinearKernel

    X = np.random.default_rng(0).normal(size=(30, 3))
    SASGP(kernel=LinearKernel(), max_epochs=1).fit(X).save("m.safetensors")
    assert "left out" in sasgp("plot", "m.safetensors", "--out", "figures")
    assert not Path("figures/relevance.png").exists()
    assert "rbf-ard" in error("plot", "m.safetensors", "--relevance", "--out", "figures")


def test_a_table_of_mixed_columns_has_every_figure_and_a_page(mixed, here, sasgp):
    model, frame = mixed
    model.save("m.safetensors")
    frame.write_csv("table.csv")
    sasgp("plot", "m.safetensors", "--data", "table.csv", "--out", "figures")
    names = {"latent", "grid", "curve", "reconstructions", "relevance", "calibration", "geometry"}
    assert {file.stem for file in Path("figures").iterdir()} == names
    sasgp("explore", "m.safetensors", "--data", "table.csv", "--out", "x.html")
    assert '"type":"category","levels":["Biscoe","Dream","Torgersen"]' in Path("x.html").read_text()
