"""Questions: their tables can be made from the committed records, the page is what these say, and some of them run."""

import numpy as np
import pytest
import torch
from scipy.stats import norm
from starts import shorten_start

from sasgp.data.columns import Columns, Discrete, Number
from sasgp.data.columns import table as columns_table
from sasgp.data.columns.maps import MonotoneMap
from studies import records, tables
from studies.__main__ import main
from studies.catalogue import finished, names, study
from studies.questions import geodesics, layout_encoders, page, scores, tables_settings
from studies.questions import tables as question_tables
from studies.questions.table_sets import Guess, measured

RESULTS = records.RESULTS / "questions"


@pytest.fixture(autouse=True)
def brief_starts(monkeypatch):
    shorten_start(monkeypatch, 5)


@pytest.mark.parametrize("name", names("questions"))
def test_a_table_is_made_from_the_committed_records(name):
    found = finished(study("questions", name), RESULTS, False)
    assert found, f"no record of {name} has the settings that it asks for"
    assert "| " in page.tables([name], RESULTS, False)[name]


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
        "docs/how-good.md is behind: run `python -m studies questions all --tables`"
    )


@pytest.mark.parametrize("path", page.OTHERS, ids=lambda path: path.name)
def test_the_tables_of_other_pages_are_what_their_records_say(path):
    text, shown = path.read_text(), page.tables(page.OTHERS[path], RESULTS, False)
    assert set(tables.parts(text)) == set(page.OTHERS[path])
    assert tables.filled(text, shown) == text, (
        f"docs/{path.name} is behind: run `python -m studies questions all --tables`"
    )


def test_figures_are_drawn_from_the_records():
    drawn = {name: draw() for name, draw in page.pictures(RESULTS, False).items()}
    assert set(drawn) == {"infinite-mnist.png", "calibration.png"}
    assert all(figure.axes for figure in drawn.values())


@pytest.mark.parametrize(
    "name",
    [
        "encoder-noise",
        "encoder-noise-rows",
        "evidence-digits",
        "inits",
        "feature-noise",
        "tables",
        "tables-settings",
        "geodesics",
    ],
)
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


@pytest.mark.parametrize("name", ["sphere", "roll"])
def test_true_lengths_are_those_of_curves_on_the_surface(name):
    # Between near points, the length of a geodesic is that of the straight line in space
    points, coordinates = getattr(geodesics, name)(np.random.default_rng(0))
    places = coordinates(points)
    squares = np.square(points[:, None] - points).sum(2) + 9 * np.eye(len(points))
    j = squares.argmin(1)
    near = np.sqrt(squares.min(1))
    np.testing.assert_allclose(geodesics.true_lengths(name, places, places[j]), near, rtol=0.02)
    # Noise along the surface moves a row on it
    moved = coordinates(points + 0.1 * (points[j] - points))
    np.testing.assert_allclose(geodesics.true_lengths(name, places, moved), 0.1 * near, rtol=0.1)


# ---- tables ----


class TwoNumbers:
    """Scores s = W z + noise of two real columns and a yes-or-no one, with z ~ N(0, I)."""

    W = np.array([[0.8, 0.1], [0.5, -0.6], [0.7, 0.4]])
    noise = np.array([0.3, 0.4, 0.2])

    def __init__(self):
        straight = MonotoneMap("identity", 3.0, 2.0)
        self.columns_ = Columns(
            (
                Number(name="a", kind="real", sd=2.0, map=straight),
                Number(name="b", kind="real", sd=2.0, map=straight),
                Discrete(name="c", kind="binary", levels=("no", "yes"), cuts=(0.3,)),
            ),
            (),
        )

    def predict_scores(self, Z, return_std):
        mean = Z @ self.W.T
        return mean, np.broadcast_to(np.sqrt(self.noise), mean.shape)


def test_cells_given_the_others_are_those_of_the_joint_gaussian():
    # s ~ N(0, S), S = W Wᵀ + diag(noise). First without the third column: E[s_a | s_b] = S_ab s_b / S_bb, with variance
    # S_aa − S_ab² / S_bb, and x = 3 + 2 s
    model = TwoNumbers()
    S = model.W @ model.W.T + np.diag(model.noise)
    values = np.array([[2.0, 4.5, 1.0], [6.0, 3.0, 0.0]])
    alone = TwoNumbers()
    alone.columns_ = Columns(model.columns_.columns[:2], ())
    alone.W, alone.noise = model.W[:2], model.noise[:2]
    found = question_tables.cells_of(alone, values[:, :2])
    s = (values - 3) / 2
    mean, var = S[0, 1] / S[1, 1] * s[:, 1], S[0, 0] - S[0, 1] ** 2 / S[1, 1]
    np.testing.assert_allclose(found["a"].value, 3 + 2 * mean, atol=2e-3)
    density = norm.logpdf(s[:, 0], mean, np.sqrt(var)) - np.log(2)
    np.testing.assert_allclose(found["a"].log_density, density, atol=2e-3)
    # P(yes | s_a, s_b) = Φ((E[s_c | s_a, s_b] − .3) / its standard deviation)
    weights = np.linalg.solve(S[:2, :2], S[:2, 2])
    up = norm.cdf((s[:, :2] @ weights - 0.3) / np.sqrt(S[2, 2] - weights @ S[:2, 2]))
    found = question_tables.cells_of(model, values, block=1)
    np.testing.assert_allclose(np.exp(found["c"].log_density), [up[0], 1 - up[1]], atol=2e-3)
    np.testing.assert_array_equal(found["c"].value, up > 0.5)


def test_metrics_of_guesses():
    columns = TwoNumbers().columns_
    values = np.array([[1.0, 2.0, 1.0], [3.0, 2.0, 0.0]])
    guesses = {
        "a": Guess(np.array([3.0, 3.0]), np.array([-1.0, -2.0])),
        "b": Guess(np.array([2.0, 6.0]), np.array([-3.0, -4.0])),
        "c": Guess(np.array([1.0, 1.0])),
    }
    found = measured(columns, values, guesses)
    # Errors are 1, 0, 0 and 2 standard deviations; of the levels one of two is right, and nothing is said of their odds
    assert found == {"rmse": pytest.approx(np.sqrt(5 / 4)), "accuracy": 0.5, "nlpd": 2.5}


def test_a_constant_is_set_for_a_while():
    before, columns = columns_table.DITHER, TwoNumbers().columns_
    with tables_settings._set("dither", 0.9):
        assert columns.dither()[2] == pytest.approx(0.9 * columns.columns[2].unknown()[0])
    assert before == columns_table.DITHER
