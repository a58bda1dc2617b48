"""A notebook, executed by a real kernel: progress that updates in place, figures, the card of a model, the explorer."""

import json
import re

import nbformat
import pytest
from cards import Card
from nbclient import NotebookClient

CELLS = {
    "start": """
        import json, sys, time
        from sklearn.datasets import load_iris
        from sasgp import SASGP, plots
        from sasgp.data import progress
        from sasgp.training import fit_encoder
        progress.NOTEBOOK_PATIENCE, progress.NOTEBOOK_PACE, fit_encoder.FIT_STEPS = 0.01, 0.01, 50
        X, y = load_iris(return_X_y=True)
        model = SASGP(max_epochs=40, random_state=0, verbose=True)
        model
    """,
    "fit": "model.fit(X)",
    "facts": "print(json.dumps([len(X), model.noise_, model.missed_share_, model.history_[-1]]))",
    "figure": "plots.latent_space(model, labels=y)",
    "no pyplot": "print('matplotlib.pyplot' in sys.modules)",
    "with pyplot": "import matplotlib.pyplot as plt\nplots.latent_space(model, labels=y)",
    "kept": "figure = plots.training_curve(model.history_)",
    "displayed": "display(figure, plots.relevance(model))",
    "explorer": "model.explorer(X, labels=y)",
    "unknown": """
        with progress.progress_bar('layout', None):
            time.sleep(0.2)
    """,
    "interrupted": """
        with progress.progress_bar('rows', 8) as update:
            update(2)
            time.sleep(0.2)
            1 / 0
    """,
}


class Watched(NotebookClient):
    """Keeps the messages that text is shown and replaced with."""

    messages: dict[int, list[tuple[str, str | None, str]]]

    def process_message(self, msg, cell, cell_index):
        if msg["msg_type"] in ("display_data", "update_display_data"):
            content = msg["content"]
            kept = (msg["msg_type"], content["transient"].get("display_id"), content["data"]["text/plain"])
            self.messages.setdefault(cell_index, []).append(kept)
        return super().process_message(msg, cell, cell_index)


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    """The outputs of each cell by its name, the messages of each, and the folder of the notebook."""
    folder = tmp_path_factory.mktemp("notebook")
    sources = ["\n".join(line.removeprefix(8 * " ") for line in code.strip().splitlines()) for code in CELLS.values()]
    executed = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, sources)))
    executed.cells[-1].metadata["tags"] = ["raises-exception"]
    client = Watched(executed, resources={"metadata": {"path": str(folder)}}, kernel_name="python3", timeout=300)
    client.startup_timeout = 300
    client.messages = {}
    client.execute()
    nbformat.write(executed, folder / "executed.ipynb")
    outputs = dict(zip(CELLS, (cell.outputs for cell in executed.cells), strict=True))
    return outputs, {name: client.messages.get(i, []) for i, name in enumerate(CELLS)}, folder


def test_nothing_warns(notebook):
    outputs, _, _ = notebook
    assert not [one for cell in outputs.values() for one in cell if one.get("name") == "stderr"]
    assert outputs["interrupted"][-1].ename == "ZeroDivisionError"  # any other error would have stopped the notebook


def test_progress_is_one_text_that_is_replaced(notebook):
    outputs, messages, _ = notebook
    training = [one for one in messages["fit"] if "training" in one[2]]
    assert [kind for kind, _, _ in training] == ["display_data"] + ["update_display_data"] * (len(training) - 1)
    assert len({name for _, name, _ in training}) == 1
    assert len(training) > 2
    shares = [int(found[1]) for _, _, text in training if (found := re.search(r"(\d+) %", text))]
    assert shares == sorted(shares)
    assert all(
        text.count("━") == round(16 * share / 100) for share, (_, _, text) in zip(shares, training, strict=False)
    )
    # What stays in the notebook: the last state, with the noise that the history has
    *_, noise = json.loads(outputs["facts"][0].text)[3].values()
    last = [one.data["text/plain"] for one in outputs["fit"] if "training" in one.data["text/plain"]]
    assert len(last) == 1
    assert re.fullmatch(rf"━{{16}}  training: done in 0:\d\d  epoch 40/40  objective \S+  noise {noise:.3g}", last[0])


def test_work_of_unknown_length_and_work_that_fails_have_a_last_state(notebook):
    outputs, messages, _ = notebook
    assert outputs["unknown"][0].data["text/plain"] == "layout: done in 0:00"
    assert len(messages["unknown"]) > 2
    assert outputs["interrupted"][0].data["text/plain"] == "━━━━────────────  rows: stopped after 0:00"


def test_a_figure_is_shown_once_with_and_without_pyplot(notebook):
    outputs, _, _ = notebook
    assert outputs["no pyplot"][0].text == "False\n"
    for name, n in (("figure", 1), ("with pyplot", 1), ("kept", 0), ("displayed", 2)):
        assert [list(one.data) for one in outputs[name]] == [["text/plain", "image/png"]] * n, name
    (png,) = (one for one in outputs["figure"])
    assert png.data["image/png"].startswith("iVBORw0KGgo")
    assert png.metadata["image/png"]["height"] == 520  # 5.2 inches of 100 pixels


def test_a_fitted_model_shows_its_numbers(notebook):
    outputs, _, _ = notebook
    rows, noise, missed, last = json.loads(outputs["facts"][0].text)
    lines = Card(outputs["fit"][-1].data["text/html"].partition("<style>")[0]).lines
    assert lines["rows"] == str(rows)
    assert lines["noise"] == f"variance {noise:.3g}"
    assert lines["epochs"].startswith("40 in ")
    assert lines["loss"].startswith(f"{last['loss']:.3g}".replace("-", "−"))
    assert f"{100 * missed:.3g} %" in lines["decoder"] or missed < 1e-5
    assert "sasgp-card" not in outputs["start"][-1].data["text/html"]  # not fitted yet


def test_the_explorer_is_a_frame_with_a_file_beside_the_notebook(notebook):
    outputs, _, folder = notebook
    (shown,) = outputs["explorer"]
    assert (folder / re.search(r'<iframe [^>]*src="(explorer-\w+\.html)"', shown.data["text/html"])[1]).is_file()
