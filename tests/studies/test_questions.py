"""Questions: their tables can be made from the committed records, the page is what these say, and some of them run."""

import numpy as np
import pytest
import torch
from starts import shorten_start

from studies import records, tables
from studies.__main__ import main
from studies.catalogue import finished, names, study
from studies.questions import layout_encoders, page, scores

RESULTS = records.RESULTS / "questions"


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    shorten_start(monkeypatch, 5)


@pytest.mark.parametrize("name", names("questions"))
def test_a_table_is_made_from_the_committed_records(name):
    found = finished(study("questions", name), RESULTS, False)
    assert found, f"no record of {name} has the settings that it asks for"
    assert page.tables([name], RESULTS, False)[name].startswith("| ")


def test_tables_say_what_the_records_say():
    found = finished(study("questions", "oil-flow"), RESULTS, False)
    values = [r["results"]["refine 0"]["rmse"] for r in found if r["name"] == "oil-flow-point"]
    line = next(line for line in page.tables(["oil-flow"], RESULTS, False)["oil-flow"].splitlines() if "point" in line)
    cells = [cell.strip() for cell in line.split("|")[1:-1]]
    assert cells == ["point", "0", f"{np.mean(values):.4f} ± {np.std(values, ddof=1):.4f}", cells[3], "5"]


def test_the_page_is_what_its_records_say():
    text = page.PAGE.read_text()
    assert set(tables.parts(text)) == set(page.PARTS)
    assert tables.filled(text, page.contents(RESULTS, False)) == text, (
        "docs/large-data.md is behind: run `python -m studies questions all --tables`"
    )


def test_the_measured_rule_of_the_encoder_s_noise_is_what_its_records_say():
    text = (records.ROOT / "docs" / "measurements.md").read_text()
    assert tables.parts(text) == page.tables(["encoder-noise-rows"], RESULTS, False), (
        "docs/measurements.md is behind: copy what `python -m studies questions encoder-noise-rows --tables` prints"
    )


def test_figures_are_drawn_from_the_records():
    drawn = {name: draw() for name, draw in page.pictures(RESULTS, False).items()}
    assert set(drawn) == {"infinite-mnist.png", "calibration.png"}
    assert all(figure.axes for figure in drawn.values())


@pytest.mark.parametrize("name", ["encoder-noise", "encoder-noise-rows", "evidence-digits", "inits", "feature-noise"])
def test_a_rehearsal_runs(name, tmp_path, capsys):
    assert main(["questions", name, "--quick", "--out", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "[1/" in out
    assert "\n| " in out, "it ends with the table"
    assert not list(tmp_path.glob("*.json")), "a rehearsal has a folder of its own"
    assert finished(study("questions", name), tmp_path / "quick", True)


def test_shifted_images_are_moved_by_whole_pixels():
    X = torch.zeros(50, 16)
    X[:, 5] = 1.0
    with torch.random.fork_rng():
        torch.manual_seed(0)
        moved = layout_encoders.shifted(X, 1, 4)
    assert (moved.sum(1) == 1).all()
    rows, columns = moved.argmax(1) // 4, moved.argmax(1) % 4
    assert set(rows.tolist()) == set(columns.tolist()) == {0, 1, 2}, "pixel (1, 1), moved by one at most"


def test_the_quadrature_knows_a_gaussian():
    class Linear:
        """x | z ~ N(z, ½ I), so that x ~ N(0, 3/2 I)."""

        def predict(self, Z, return_std):
            return Z, np.full_like(Z, np.sqrt(0.5))

    X = np.array([[0.3, -1.0], [2.0, 0.0]])
    expected = -0.5 * ((X**2).sum(1) / 1.5 + 2 * np.log(2 * np.pi * 1.5))
    np.testing.assert_allclose(scores.quadrature(Linear(), X, 101), expected, atol=1e-4)
